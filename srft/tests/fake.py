# SPDX-License-Identifier: Apache-2.0
"""A network without a kernel: a function says what becomes of each packet that is sent."""

import heapq
import threading
import time
from collections.abc import Callable, Iterable

from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from srft.flow import FlowLabels
from srft.labels import Labels
from srft.network import Service
from srft.wire import Frame

LABELS = {
    "client": ["10.0.1.2", "2001:db8:1::2"],
    "server": ["10.0.2.2", "2001:db8:2::2"],
    "nfv": "fc00:5ea:2::1",
    "nfv.filter": "fc00:5e9:2:100::",
    "chain.web": ["fc00:5e9:2:100::", "fc00:5e9:3:46::"],
}

#: What becomes of a packet: where it is seen (`server`, `nfv filter-w`), in which direction, after how many seconds, and as what.
Fate = Iterable[tuple[str, str, float, Packet]]


class FakeNetwork:
    """Stands in for srft.network.Network."""

    def __init__(self, fate: Callable[[Packet, str, int], Fate]) -> None:
        """`fate` gets a packet, the host that sends it, and how many were sent before."""
        self.name = "fake"
        self.labels = Labels(LABELS)
        self.services = [Service("filter", "nfv", frozenset({"filter-w", "filter-e"}))]
        self.flow_labels = FlowLabels(0x100)
        self.agents: dict[str, object] = {}
        self.hosts = ["client", "server"]
        self._fate = fate
        self._sent = 0
        self._listeners: list[Callable[[Frame, bool], None]] = []
        self._later = threading.Condition()
        self._waiting: list[tuple[int, int, Frame]] = []
        self._count = 0
        threading.Thread(target=self._run, daemon=True).start()

    def listen(self, listener: Callable[[Frame, bool], None]) -> None:
        self._listeners.append(listener)

    def frame(self, packet: Packet, at: str) -> bytes:
        assert at in self.hosts
        return to_frame(packet)

    def send(self, frame: bytes, at: str) -> None:
        now = time.time_ns()
        for where, direction, delay, seen in self._fate(Ether(frame).payload, at, self._sent):
            # What time it came is what the fate says, however busy the machine is.
            arrived = Frame(now + int(delay * 1e9), where, direction, to_frame(seen))
            if delay:
                with self._later:
                    self._count += 1
                    heapq.heappush(self._waiting, (arrived.time, self._count, arrived))
                    self._later.notify()
            else:
                self._deliver(arrived)
        self._sent += 1

    def close(self) -> None:
        pass

    def _run(self) -> None:
        while True:
            with self._later:
                while not self._waiting or self._waiting[0][0] > time.time_ns():
                    self._later.wait((self._waiting[0][0] - time.time_ns()) / 1e9 if self._waiting else None)
                _, _, frame = heapq.heappop(self._waiting)
            self._deliver(frame)

    def _deliver(self, frame: Frame) -> None:
        for listener in self._listeners:
            listener(frame, frame.where in self.hosts)


def to_frame(packet: Packet) -> bytes:
    if isinstance(packet, Ether):
        return bytes(packet)
    kind = 0x0800 if isinstance(packet, IP) else 0x86DD
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=kind) / packet)


def straight(packet: Packet, at: str, _: int) -> Fate:
    """Everything arrives as it is at the other host."""
    return [("server" if at == "client" else "client", "in", 0.0, packet)]
