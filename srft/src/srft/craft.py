# SPDX-License-Identifier: Apache-2.0
"""Crafter: from a function that a test writes to the packets that are sent and those that must come of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scapy.packet import Packet

from srft.flow import Flow


@dataclass(frozen=True)
class Send:
    """A packet that is sent: by host `at`, from the network layer on, or as a frame that begins with Ether."""

    packet: Packet
    at: str


@dataclass(frozen=True)
class Expect:
    """A packet that must arrive at host `at`, `within` so many seconds (at least, at most) after what was sent before it."""

    packet: Packet
    at: str
    within: tuple[float, float] | None = None


Step = Send | Expect
Craft = Callable[[Flow], Sequence[Step]]


def send(packet: Packet, at: str) -> Send:
    """A step of a test: host `at` sends a packet."""
    return Send(packet, at)


def expect(packet: Packet, at: str, within: tuple[float, float] | None = None) -> Expect:
    """A step of a test: a packet arrives at host `at`, and `within` (at least, at most) seconds of what was sent before it."""
    return Expect(packet, at, within)


class Crafter:
    """Makes the packets of a flow."""

    def __init__(self, craft: Craft, header: Callable[[Flow], Packet] | Packet | None = None) -> None:
        """`craft` gets a flow and returns steps, in order. What is sent behind an expectation waits until that is met.

        `header` goes in front of each packet that is sent: a steering header, where the tester itself is in the SR domain.
        """
        self._craft = craft
        self._header = header

    def steps(self, flow: Flow) -> list[Step]:
        """The steps for one flow, with packets that tell it. Raises ValueError if nothing is sent."""
        header = self._header(flow) if callable(self._header) and not isinstance(self._header, Packet) else self._header
        steps = []
        for step in self._craft(flow):
            packet = header / step.packet if header is not None and isinstance(step, Send) else step.packet
            steps.append(replace(step, packet=flow.mark(packet)))
        if not any(isinstance(step, Send) for step in steps):
            raise ValueError("a test sends at least one packet: its craft function returned none")
        return steps
