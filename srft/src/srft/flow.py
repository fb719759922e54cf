# SPDX-License-Identifier: Apache-2.0
"""A flow of a test, and how its packets are told from all others, so that tests at the same time do not mix.

Every flow has a number of its own. It is the flow label of IPv6 packets, as in the thesis; what has no flow label, or loses it
on the way, is known by the same number elsewhere: in the payload, in the Identification of IPv4, in the ports.
"""

import os
import socket
import threading
from collections.abc import Iterable, Iterator

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6, IPv6ExtHdrSegmentRouting
from scapy.packet import Packet

from srft.labels import Labels
from srft.peek import TOKEN, Ends, Marks, marks

#: Flow labels have 20 bits. A process takes a range of so many for itself, so that several can test at the same time.
RANGE = 1 << 14
RANGES = 1 << 6
_PORTS = range(20000, 60000)


def layers(packet: Packet) -> Iterator[Packet]:
    """The packet and all that is in it, from the outside in."""
    layer = packet
    while layer:
        yield layer
        layer = layer.payload


class Flow:
    """One flow of a test."""

    def __init__(self, label: int, labels: Labels | None = None) -> None:
        """`label` is its number: a flow label, 1 to 0xfffff."""
        if not 0 < label < 1 << 20:
            raise ValueError(f"a flow label has 20 bits and is not 0: {label:#x}")
        self.label = label
        self.labels = labels or Labels()

    def __repr__(self) -> str:
        return f"Flow({self.label:#07x})"

    @property
    def ident(self) -> int:
        """Identification of its IPv4 packets, identifier of its pings."""
        return self.label & 0xFFFF or 0xFFFF

    @property
    def port(self) -> int:
        """Its source port, if a test does not choose one."""
        return _PORTS[self.label % len(_PORTS)]

    def payload(self, number: int = 0, size: int = 32) -> bytes:
        """Octets that tell the flow, and the packet's `number` in it; `size` octets, 12 or more."""
        head = TOKEN + self.label.to_bytes(4, "big") + number.to_bytes(4, "big")
        if size < len(head):
            raise ValueError(f"a payload that tells its flow has {len(head)} octets or more, not {size}")
        return head + bytes(index & 0xFF for index in range(size - len(head)))

    def ip(self, source: str, destination: str, family: int = 6, **fields: object) -> Packet:
        """An IP header between two labels or addresses; `family` is 4 or 6."""
        if family == 4:
            return self.ipv4(source, destination, **fields)
        return self.ipv6(source, destination, **fields)

    def ipv4(self, source: str, destination: str, **fields: object) -> Packet:
        """An IPv4 header between two labels or addresses."""
        address = self.labels.address
        return IP(src=address(source, 4), dst=address(destination, 4), **{"id": self.ident, **fields})

    def ipv6(self, source: str, destination: str, **fields: object) -> Packet:
        """An IPv6 header between two labels or addresses."""
        address = self.labels.address
        return IPv6(src=address(source), dst=address(destination), **{"fl": self.label, **fields})

    def steering(self, source: str, *segments: str, reduced: bool = False, **fields: object) -> Packet:
        """An IPv6 header with an SRH that leads over segments (labels, chains, addresses) in the order of visiting (RFC 8754).

        `reduced` leaves the first one out of the SRH; a list of one then has none at all.
        """
        found = self.labels.segments(*segments)
        header = self.ipv6(source, found[0], **fields)
        listed = found[1:] if reduced else found
        if not listed:
            return header
        return header / IPv6ExtHdrSegmentRouting(
            addresses=list(reversed(listed)), segleft=len(found) - 1, lastentry=len(listed) - 1
        )

    def mark(self, packet: Packet) -> Packet:
        """A copy in which every field that tells the flow, and that the test has not chosen, does so."""
        packet = packet.copy()
        for layer in layers(packet):
            if type(layer) is IPv6:
                layer.fields.setdefault("fl", self.label)
            elif type(layer) is IP:
                layer.fields.setdefault("id", self.ident)
            elif type(layer) in (UDP, TCP):
                layer.fields.setdefault("sport", self.port)
            elif type(layer) in (ICMP, ICMPv6EchoRequest, ICMPv6EchoReply):
                layer.fields.setdefault("id", self.ident)
        return packet


class Registry:
    """The flows that are under way: to which of them does a frame belong?"""

    def __init__(self) -> None:
        """Knows none yet."""
        self._labels: dict[int, Flow] = {}
        self._idents: dict[int, Flow] = {}
        self._ends: dict[Ends, set[int]] = {}
        self._lock = threading.Lock()

    def add(self, flow: Flow, frames: Iterable[bytes] = ()) -> None:
        """From now on frames of this flow are known; by the addresses and ports of `frames` too."""
        with self._lock:
            self._labels[flow.label] = flow
            self._idents[flow.ident] = flow
            for frame in frames:
                if ends := marks(frame).ends:
                    self._ends.setdefault(ends, set()).add(flow.label)

    def remove(self, flow: Flow) -> None:
        """Forgets a flow."""
        with self._lock:
            self._labels.pop(flow.label, None)
            if self._idents.get(flow.ident) is flow:
                del self._idents[flow.ident]
            for ends in [ends for ends, owners in self._ends.items() if flow.label in owners]:
                self._ends[ends].discard(flow.label)
                if not self._ends[ends]:
                    del self._ends[ends]

    def identify(self, found: Marks) -> Flow | None:
        """The flow of a frame. What says more comes first: payload, flow label, ports, Identification of IPv4 and of pings."""
        with self._lock:
            for label in [*found.tokens, *reversed(found.labels)]:
                if flow := self._labels.get(label):
                    return flow
            if found.ends and len(owners := self._ends.get(found.ends, ())) == 1:
                return self._labels.get(next(iter(owners)))
            return next((flow for ident in reversed(found.idents) if (flow := self._idents.get(ident))), None)


class FlowLabels:
    """Flow labels that nobody else uses."""

    def __init__(self, first: int | None = None) -> None:
        """Those from `first` on; without, a range that no other process of this network namespace has."""
        self._held: socket.socket | None = None
        if first is None:
            first = self._range() * RANGE
        self._numbers = iter(range(max(first, 1), first + RANGE))

    def _range(self) -> int:
        # An abstract address is gone with its process, however that ends. Another network namespace does not see it; by beginning
        # elsewhere each time, two that test the same network hardly meet.
        begin = os.getpid() % RANGES
        for number in [*range(begin, RANGES), *range(begin)]:
            held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                held.bind(f"\0srft flow labels {number}")
            except OSError:
                held.close()
                continue
            self._held = held
            return number
        raise RuntimeError(f"{RANGES} testers have all flow labels; choose one with --srft-flow-labels")

    def next(self) -> int:
        """One that was never given out. Raises RuntimeError if there are no more."""
        try:
            return next(self._numbers)
        except StopIteration:
            raise RuntimeError(f"{RANGE} flows in one run: there are no more flow labels") from None

    def close(self) -> None:
        """Leaves the range to others."""
        if self._held:
            self._held.close()
