"""Inner packets."""

from ipaddress import IPv6Address


def udp(payload: bytes = b"", ports: tuple[int, int] = (1000, 2000)) -> bytes:
    """An IPv6 packet with UDP; its checksum is 0, which nobody here looks at."""
    addresses = IPv6Address("2001:db8::1").packed + IPv6Address("2001:db8::2").packed
    length = (8 + len(payload)).to_bytes(2, "big")
    numbers = ports[0].to_bytes(2, "big") + ports[1].to_bytes(2, "big")
    return bytes([0x60, 0, 0, 0]) + length + bytes([17, 64]) + addresses + numbers + length + bytes(2) + payload
