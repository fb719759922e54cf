# SPDX-License-Identifier: Apache-2.0
"""Sniffer: keeps what hosts receive and what nodes see, by the flow that it belongs to."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from scapy.layers.inet import ICMP
from scapy.layers.inet6 import _ICMPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from srft import unpack
from srft.diff import from_frame
from srft.flow import Flow, Registry, layers
from srft.peek import Marks, marks
from srft.wire import Frame

Filter = Callable[[Packet], bool]

#: Frames that nobody asked for are kept for messages: the last so many.
_KEPT = 20_000


class Seen:
    """A frame that was seen, and its packet, which is made when somebody wants it."""

    def __init__(self, frame: Frame) -> None:
        """Keeps the frame."""
        self.frame = frame

    @cached_property
    def packet(self) -> Packet:
        """The frame as a packet."""
        return parse(self.frame.data)


class _Passage:
    """A frame that a node has seen, and what is in it, which is taken apart when somebody asks first."""

    def __init__(self, frame: Frame, found: Marks) -> None:
        """`found` are the marks of the frame as it is."""
        self.frame = frame
        self._found = found

    @cached_property
    def parts(self) -> list[tuple[Seen, Marks]]:
        """Frames, and what tells their flows. What a service has packed is of the flows that are in it."""
        whole = self.frame.data
        frames = [replace(self.frame, data=data) for data in unpack.frames(whole)]
        return [(Seen(frame), self._found if frame.data == whole else marks(frame.data)) for frame in frames]


class Sniffer:
    """Frames by flow. Those of hosts are looked at when they come, those of nodes when somebody asks."""

    def __init__(self, *filters: Filter) -> None:
        """`filters` get each packet of a flow that a host received, as a frame; all must hold, or it is left out."""
        self.filters = filters
        self.registry = Registry()
        self.arrived = threading.Condition()
        #: Frames that hosts have received.
        self.count = 0
        self._of_flow: dict[int, list[Seen]] = defaultdict(list)
        self._foreign: deque[Frame] = deque(maxlen=_KEPT)
        self._inside: deque[_Passage] = deque(maxlen=_KEPT)

    def take(self, frame: Frame, at_host: bool) -> None:
        """A frame was seen; called by the reading threads."""
        found = marks(frame.data)
        if not found.routed:
            return
        if not at_host:
            self._inside.append(_Passage(frame, found))
            return
        flow = self.registry.identify(found)
        seen = Seen(frame)
        if flow is not None and not all(holds(seen.packet) for holds in self.filters):
            return
        with self.arrived:
            if flow is None:
                self._foreign.append(frame)
            else:
                self._of_flow[flow.label].append(seen)
            self.count += 1
            self.arrived.notify_all()

    def watch(self, flow: Flow, frames: Iterable[bytes]) -> None:
        """From now on frames of a flow are kept; its own frames help to know it."""
        self.registry.add(flow, frames)

    def forget(self, flow: Flow) -> None:
        """Ends what `watch` began."""
        self.registry.remove(flow)
        with self.arrived:
            self._of_flow.pop(flow.label, None)

    def received(self, flow: Flow) -> list[Seen]:
        """What hosts have received of a flow, in the order of its coming."""
        with self.arrived:
            return list(self._of_flow.get(flow.label, ()))

    def foreign(self, since: int) -> list[Seen]:
        """What hosts have received since a time (nanoseconds since 1970) that belongs to no flow."""
        with self.arrived:
            return [Seen(frame) for frame in self._foreign if frame.time >= since]

    def inside(self, flow: Flow, since: int) -> list[Seen]:
        """What nodes have seen of a flow since a time, in the order of its being seen."""
        parts = [part for passage in self._inside.copy() if passage.frame.time >= since for part in passage.parts]
        parts.sort(key=lambda part: part[0].frame.time)
        return [seen for seen, found in parts if self.registry.identify(found) is flow]

    def wait(self, until: float, since: int) -> None:
        """Waits until something has arrived after `since` (what `count` was then), or a moment of `time.monotonic`."""
        with self.arrived:
            self.arrived.wait_for(lambda: self.count != since, max(until - time.monotonic(), 0))


def parse(data: bytes) -> Packet:
    """A frame as a packet; what scapy cannot read stays octets."""
    try:
        return from_frame(data)
    except Exception:  # scapy raises whatever its fields raise; the octets are then all that can be said
        return Ether(data[:14]) / data[14:]


def filter_srh(packet: Packet) -> bool:
    """A filter: packets with an SRH."""
    return packet.haslayer("IPv6ExtHdrSegmentRouting")


def filter_icmp(packet: Packet) -> bool:
    """A filter: ICMP and ICMPv6."""
    return any(isinstance(layer, (ICMP, _ICMPv6)) for layer in layers(packet))
