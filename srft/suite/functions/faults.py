# SPDX-License-Identifier: Apache-2.0
"""What functions that are broken on purpose do to packets."""

UDP, TCP, ROUTING = 17, 6, 43
CHECKSUM = {UDP: 6, TCP: 16}
#: Seconds.
DELAY = 0.4
#: Of so many packets one is treated badly.
EVERY = 10


def corrupt(packet: bytes) -> bytes:
    """The packet with another checksum of its transport header."""
    protocol, start = (packet[6], 40) if packet[0] >> 4 == 6 else (packet[9], (packet[0] & 15) * 4)
    place = start + CHECKSUM[protocol]
    return packet[:place] + bytes([packet[place] ^ 0x55]) + packet[place + 1 :]


def leak(packet: bytes) -> bytes:
    """The packet with an SRH that is of no use to anybody any more: Segments Left 0."""
    if packet[0] >> 4 != 6:
        return packet
    srh = bytes([packet[6], 2, 4, 0, 0, 0, 0, 0]) + packet[24:40]
    length = int.from_bytes(packet[4:6], "big") + len(srh)
    return packet[:4] + length.to_bytes(2, "big") + bytes([ROUTING]) + packet[7:40] + srh + packet[40:]


class Side:
    """One direction."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.count = 0
        self.held: bytes | None = None

    def handle(self, packet: bytes) -> list[tuple[float, bytes]]:
        """What leaves because a packet has come, and in how many seconds."""
        self.count += 1
        bad = self.count % EVERY == 0
        if self.fault == "eats" and bad:
            return []
        if self.fault == "corrupts" and bad:
            return [(0, corrupt(packet))]
        if self.fault == "leaks" and bad:
            return [(0, leak(packet))]
        if self.fault == "duplicates" and bad:
            return [(0, packet), (0, packet)]
        if self.fault == "delays":
            return [(DELAY, packet)]
        if self.fault == "reorders":
            if self.held is not None:
                held, self.held = self.held, None
                return [(0, packet), (0, held)]
            if self.count % EVERY == EVERY - 2:
                self.held = packet
                return []
        return [(0, packet)]
