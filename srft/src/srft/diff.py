# SPDX-License-Identifier: Apache-2.0
"""Where two packets differ: layer by layer, field by field, in scapy's names, which are those that a test is written in."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from scapy.contrib.mpls import MPLS  # and from here on scapy reads labels in frames
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, TCPerror, UDPerror
from scapy.layers.inet6 import IPerror6, IPv6, IPv6ExtHdrFragment, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import NoPayload, Packet, Padding, Raw
from scapy.utils import checksum

from srft.flow import layers

_NAMES = {
    "IP": "IPv4",
    "Ether": "Ethernet",
    "IPv6ExtHdrSegmentRouting": "SRH",
    "IPv6ExtHdrFragment": "Fragment",
    "Raw": "payload",
    "IPerror": "quoted IPv4",
    "IPerror6": "quoted IPv6",
    "TCPerror": "quoted TCP",
    "UDPerror": "quoted UDP",
}
CHECKSUMS = ("chksum", "cksum")
_QUOTED = (IPerror, IPerror6, TCPerror, UDPerror)


@dataclass(frozen=True)
class Difference:
    """One field, or a whole layer if `field` is empty, that is not as it should be."""

    layer: str
    field: str
    expected: Any
    received: Any

    @property
    def name(self) -> str:
        """Layer and field, as in what a matcher ignores."""
        return f"{self.layer}.{self.field}" if self.field else self.layer

    @property
    def is_checksum(self) -> bool:
        """Whether a checksum is wrong."""
        return self.field in CHECKSUMS

    def __str__(self) -> str:
        if not self.field:
            return f"{self.layer:<24} expected {self.expected}, received {self.received}"
        return f"{self.name:<24} expected {show(self.expected)}, received {show(self.received)}"


def show(value: Any) -> str:
    """A field's value for people."""
    if isinstance(value, bytes):
        text = value.hex(" ", 4)
        return text if len(value) <= 48 else f"{value[:48].hex(' ', 4)} ... ({len(value)} octets)"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(item) for item in value) + "]"
    if isinstance(value, bool) or not isinstance(value, int) or 0 <= value < 10:
        return str(value)
    return f"{value} ({value:#x})"


def layer_name(layer: Packet) -> str:
    """What a layer is called in messages and in what a matcher ignores."""
    name = type(layer).__name__
    return _NAMES.get(name, name)


def canonical(packet: Packet) -> Packet:
    """The packet as a receiver has it: with lengths and checksums, and without padding of the link."""
    return without_padding(type(packet)(bytes(packet)))


def without_padding(packet: Packet) -> Packet:
    """The packet without what a link adds to short frames."""
    for layer in layers(packet):
        if isinstance(layer.payload, Padding):
            layer.payload = NoPayload()
            break
    return packet


def from_frame(data: bytes) -> Packet:
    """A frame as a packet, without padding."""
    return without_padding(Ether(data))


def network_layer(packet: Packet) -> Packet:
    """What is in a frame; any other packet as it is."""
    return packet.payload if isinstance(packet, Ether) else packet


def behind_labels(packet: Packet) -> Packet:
    """What is behind a stack of labels; any other packet as it is."""
    while isinstance(packet, MPLS):
        packet = packet.payload
    return packet


def _value(layer: Packet, field: str) -> Any:
    value = layer.getfieldval(field)
    if isinstance(value, list):
        return tuple(bytes(item) if isinstance(item, Packet) else item for item in value)
    if isinstance(value, Packet):
        return bytes(value)
    try:
        hash(value)
    except TypeError:
        return str(value)
    return value


Fields = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


def fields(packet: Packet, ignore: Collection[str] = ()) -> Fields:
    """All layers with all fields but the ignored ones (`IPv6`, `IPv6.hlim`) and checksums, which `wrong_checksums` judges."""
    found = []
    for layer in layers(packet):
        name = layer_name(layer)
        if name in ignore:
            continue
        keep = [field.name for field in layer.fields_desc if f"{name}.{field.name}" not in ignore]
        if not isinstance(layer, _QUOTED):
            keep = [field for field in keep if field not in CHECKSUMS]
        values = [(field, _value(layer, field)) for field in keep]
        if type(layer) is TCP and "options" in keep:
            # Scapy does not tell what is behind the end of the options.
            values.append(("options in octets", layer.original[20 : layer.dataofs * 4] if layer.original else b""))
        found.append((name, tuple(values)))
    return tuple(found)


def wrong_checksums(packet: Packet, ignore: Collection[str] = ()) -> list[Difference]:
    """Checksums that do not fit the packet. Not judged: those of fragments, of quoted packets, of UDP over IPv4 without one."""
    right = packet.copy()
    fragment = packet.haslayer(IPv6ExtHdrFragment)
    judged = []
    for layer in layers(right):
        fragment = fragment or (isinstance(layer, IP) and (layer.frag or layer.flags.MF))
        if isinstance(layer, _QUOTED):
            break
        for field in CHECKSUMS:
            if field not in layer.fields or (fragment and not isinstance(layer, IP)):
                continue
            if isinstance(layer, UDP) and layer.chksum == 0 and isinstance(layer.underlayer, IP):
                continue
            layer.delfieldval(field)  # which has the layer built anew
            judged.append(field)
    if not judged:
        return []
    right = type(packet)(bytes(right))
    found = []
    for name, here, there in zip(names(packet), layers(packet), layers(right), strict=False):
        for field in CHECKSUMS:
            if f"{layer_name(here)}.{field}" in ignore or field not in here.fields or isinstance(here, _QUOTED):
                continue
            expected, received = there.getfieldval(field), here.getfieldval(field)
            if expected != received and not (received == 0 and isinstance(here, UDP)):
                found.append(Difference(name, field, expected, received))
    return found


def checksums_fit(expected: Packet, received: Packet, ignore: Collection[str] = ()) -> bool:
    """Whether the checksums of a packet that is as expected otherwise are right. Quicker than to compute all of them."""
    for wanted, layer in zip(layers(expected), layers(received), strict=False):
        if isinstance(layer, IP) and not isinstance(layer, IPerror):
            # Routers change it with the TTL.
            if "IPv4.chksum" not in ignore and checksum(layer.original[: layer.ihl * 4]) != 0:
                return False
            continue
        for field in CHECKSUMS:
            if field in layer.fields and layer.fields[field] != wanted.fields.get(field):
                return not wrong_checksums(received, ignore)
    return True


def names(packet: Packet) -> list[str]:
    """Names of the layers; the second of a kind is `IPv6 (2)`."""
    seen: Counter[str] = Counter()
    found = []
    for layer in layers(packet):
        name = layer_name(layer)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def differences(expected: Packet, received: Packet, ignore: Collection[str] = ()) -> list[Difference]:
    """All that differs, from the outside in; checksums that are wrong in the received packet last."""
    wanted, got = fields(expected, ignore), fields(received, ignore)
    kinds, kinds_got = [name for name, _ in wanted], [name for name, _ in got]
    if kinds != kinds_got:
        return [Difference("layers", "", " / ".join(kinds), " / ".join(kinds_got))]
    found = []
    seen: Counter[str] = Counter()
    for (name, here), (_, there) in zip(wanted, got, strict=True):
        seen[name] += 1
        shown = name if seen[name] == 1 else f"{name} ({seen[name]})"
        found += [
            Difference(shown, field, value, other)
            for (field, value), (_, other) in zip(here, there, strict=True)
            if value != other
        ]
    return found + wrong_checksums(received, ignore)


def has_steering_header(packet: Packet) -> bool:
    """Whether there is an SRH, IP in IPv6, or a label."""
    inner = [layer for layer in layers(packet) if isinstance(layer, (IP, IPv6)) and not isinstance(layer, _QUOTED)]
    encapsulated = len(inner) > 1 and isinstance(inner[0], IPv6)
    return packet.haslayer(IPv6ExtHdrSegmentRouting) or packet.haslayer(MPLS) or encapsulated


def summary(packet: Packet) -> str:
    """A packet in one line: addresses, segments, ports, and what tells it."""
    parts = []
    for layer in layers(packet):
        if isinstance(layer, (IP, IPv6)):
            parts.append(f"{layer_name(layer)} {layer.src} > {layer.dst}")
        elif isinstance(layer, MPLS):
            parts.append(f"label {layer.label}")
        elif isinstance(layer, IPv6ExtHdrSegmentRouting):
            parts.append(f"SRH <{', '.join(reversed(layer.addresses))}> left {layer.segleft}")
        elif isinstance(layer, TCP):
            parts.append(f"TCP {layer.sport} > {layer.dport} {layer.flags} seq {layer.seq} ack {layer.ack}")
        elif isinstance(layer, UDP):
            parts.append(f"UDP {layer.sport} > {layer.dport}")
        elif isinstance(layer, ICMP):
            parts.append(f"ICMP type {layer.type} code {layer.code}")
        elif isinstance(layer, Raw):
            parts.append(f"{len(layer.load)} octets: {show(layer.load[:16])}")
        elif not isinstance(layer, Ether):
            parts.append(layer.summary().split(" / ")[0])
    return " / ".join(parts)
