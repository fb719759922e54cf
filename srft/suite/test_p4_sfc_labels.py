# SPDX-License-Identifier: Apache-2.0
"""The functional experiments of P4-SFC by labels, with its captures: at both hosts, at functions, and on the links between nodes.

The example's comment has the stacks beside those of the paper.
"""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from checks import COUNT, back, there
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import UDP
from scapy.packet import Packet

from srft import Test, Tester
from srft.flow import layers
from srft.lab import Lab
from srft.peek import marks
from srft.sniff import parse
from srft.wire import Frame, Reader, Wire

pytestmark = pytest.mark.topology("../../examples/p4-sfc.yaml")
families = pytest.mark.parametrize("family", [4, 6])
#: What nodes and functions have seen comes a moment later than what hosts have. Seconds.
PATIENCE = 10.0

#: A place, and labels.
Seen = tuple[str, tuple[int, ...]]
Way = list[Seen]
HOSTS = ("border client", "border server")
#: The way from the last function to the host behind it: node border, and its table.
OUT = (16001, 30100)
PORTS = {"a": 7021, "b": 7022, "c": 7023}
FUNCTIONS = ("a0", "b0", "b1", "c0", "c1")
#: A chain's way: where packets come in, by links and back from functions, with their stack, first label first. The last node but
#: one has taken the label of the next one off, but for the headend's first.
THERE: dict[str, Way] = {
    "a": [("s1 border", (16002, 30201, *OUT)), ("s1 a0-e", ()), ("border s1", OUT[1:])],
    "b": [("s2 border", (16003, 30301, 30302, *OUT)), ("s2 b0-e", ()), ("s2 b1-e", ()), ("border s2", OUT[1:])],
    "c": [
        ("s1 border", (16002, 30203, 16003, 16004, 30401, *OUT)),
        ("s1 c0-e", ()),
        ("s2 s1", (16004, 30401, *OUT)),
        ("s3 s2", (30401, *OUT)),
        ("s3 c1-e", ()),
        ("border s3", OUT[1:]),
    ],
}
BACK: dict[str, Way] = {
    "a": [("s1 border", (16002, 30202, *OUT)), ("s1 a0-w", ()), ("border s1", OUT[1:])],
    "b": [("s2 border", (16003, 30303, 30304, *OUT)), ("s2 b1-w", ()), ("s2 b0-w", ()), ("border s2", OUT[1:])],
    "c": [
        ("s3 border", (16004, 30402, 16003, 16002, 30204, *OUT)),
        ("s3 c1-w", ()),
        ("s2 s3", (16002, 30204, *OUT)),
        ("s1 s2", (30204, *OUT)),
        ("s1 c0-w", ()),
        ("border s1", OUT[1:]),
    ],
}


@dataclass
class Captures:
    """Frames that nodes and functions have seen since it was made: what the test before has sent may be told of late."""

    frames: list[Frame] = field(default_factory=list)
    since: int = field(default_factory=time.time_ns)

    def take(self, frame: Frame, at_host: bool = False) -> None:
        if not at_host and frame.time >= self.since:
            self.frames.append(frame)

    def of(self, end: str, port: int) -> list[Seen]:
        """Where packets with this UDP port (`sport` or `dport`) came in, in this order, each with its labels."""
        found = []
        for frame in sorted(self.frames.copy(), key=lambda frame: frame.time):
            if frame.direction != "in" or frame.where in HOSTS or not marks(frame.data).routed:
                continue
            packet = parse(frame.data)
            if UDP in packet and getattr(packet[UDP], end) == port:
                found.append((frame.where, stack(packet)))
        return found


def stack(packet: Packet) -> tuple[int, ...]:
    """The labels in front of a packet; the last one, and no other, must say that it is the last."""
    entries = [layer for layer in layers(packet) if isinstance(layer, MPLS)]
    assert [entry.s for entry in entries] == [0] * (len(entries) - 1) + [1] * bool(entries), packet.summary()
    return tuple(entry.label for entry in entries)


@pytest.fixture
def captures(tester: Tester, lab: Lab) -> Iterator[Captures]:
    """Of all ports of all nodes, and of both interfaces of all functions."""
    found = Captures()
    tester.network.listen(found.take)
    places = [(name, side) for name in FUNCTIONS for side in ("west", "east")]
    reader = Reader([Wire(f"{name} {side}", side, lab.namespace(name)) for name, side in places], found.take)
    yield found
    reader.close()


def came(captures: Captures, end: str, port: int, way: Way, count: int) -> None:
    """Asserts that so many packets went this way, in order: with the stacks on links, without labels in functions and back."""
    functions = [place.split()[1] for place, labels in way if not labels]
    inside = [(name[:-2] + {"e": " west", "w": " east"}[name[-1]], ()) for name in functions]
    wanted = Counter(dict.fromkeys([*way, *inside], count))
    until = time.monotonic() + PATIENCE
    while Counter(seen := captures.of(end, port)) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    assert Counter(seen) == wanted
    # Nodes have one clock.
    assert [one for one in dict.fromkeys(seen) if one in way] == way


@families
@pytest.mark.parametrize("chain", PORTS)
def test_functions_see_no_label_and_links_the_stacks_of_the_paper(
    tester: Tester, captures: Captures, chain: str, family: int
) -> None:
    tester.perform(Test(there(PORTS[chain], family), chain=chain))
    came(captures, "dport", PORTS[chain], THERE[chain], COUNT)


@families
@pytest.mark.parametrize("chain", PORTS)
def test_answers_come_back_over_the_same_functions(tester: Tester, captures: Captures, chain: str, family: int) -> None:
    tester.perform(Test(back(PORTS[chain], family, 7), chain=chain))
    came(captures, "dport", PORTS[chain], THERE[chain], 1)
    came(captures, "sport", PORTS[chain], BACK[chain], 7)


def test_labels_are_counted(tester: Tester) -> None:
    """Packets to a function's label, and those that came back from it; each in the stack of its own chain."""
    agent = tester.network.agent("s2")
    before = agent.counters()
    tester.perform(Test(there(PORTS["b"], 6), chain="b"))
    moved = agent.counters().since(before)
    for label in ("label 30301", "label 30302"):
        assert (moved.sids[label], moved.returned[label]) == (COUNT, COUNT)
    assert moved.drops == {}
