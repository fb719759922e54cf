# SPDX-License-Identifier: Apache-2.0
"""Matcher: what arrived against what should have, and what is wrong where they differ."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from scapy.packet import Packet

from srft.diff import Fields, canonical, checksums_fit, differences, fields, has_steering_header, summary

SECOND = 1_000_000_000

#: Fields that routers change as they forward: how many there are is not what a test of a chain is about.
HOPS = frozenset({"IPv6.hlim", "IPv4.ttl"})


class Fault(Enum):
    """What may be wrong with the packets of a flow at one place."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    CORRUPTED = "corrupted a checksum of"
    LEAKED = "leaked a segment routing header on"
    CHANGED = "changed"
    DELAYED = "delayed"
    EARLY = "too early"
    UNEXPECTED = "unexpected"


@dataclass(frozen=True)
class Wanted:
    """A packet that should arrive, `within` seconds (at least, at most) of `sent`, nanoseconds since 1970."""

    packet: Packet
    within: tuple[float, float] | None = None
    sent: int = 0

    @cached_property
    def canonical(self) -> Packet:
        """The packet with lengths and checksums."""
        return canonical(self.packet)

    @cached_property
    def fields(self) -> dict[frozenset[str], Fields]:
        """Fields by what is ignored, once they were wanted."""
        return {}


@dataclass(frozen=True)
class Got:
    """A packet that arrived at `time`, nanoseconds since 1970."""

    packet: Packet
    time: int = 0

    @cached_property
    def fields(self) -> dict[frozenset[str], Fields]:
        """Fields by what is ignored, once they were wanted."""
        return {}


@dataclass(frozen=True)
class Finding:
    """One fault, of `count` packets of `total`; `details` are lines for people."""

    fault: Fault
    count: int
    total: int
    details: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.fault is Fault.UNEXPECTED:
            return f"{self.count} packet{'s' if self.count != 1 else ''} that nobody expects"
        return f"{self.fault.value} {self.count} of {self.total} packet{'s' if self.total != 1 else ''}"


@dataclass
class _Pairs:
    """Which received packet is which expected one, by position."""

    matched: list[tuple[int, int]] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    strange: list[int] = field(default_factory=list)


class Matcher:
    """Says whether packets are those that were expected."""

    def __init__(
        self,
        equal: Callable[[Packet, Packet], bool] | None = None,
        *,
        ignore: Collection[str] = (),
        hops: bool = False,
        ordered: bool = True,
    ) -> None:
        """`equal` (expected, received) decides; without it all fields have to be equal, and all checksums right.

        `ignore` names layers and fields that may differ: `TCP`, `IPv6.tc`. `hops`: hop limits and TTLs must be as expected too.
        `ordered`: packets have to arrive in the order in which they are expected.
        """
        self.equal = equal
        self.ignore = frozenset(ignore) | (frozenset() if hops else HOPS)
        self.ordered = ordered

    def compare(self, wanted: Sequence[Wanted], got: Sequence[Got]) -> list[Finding]:
        """All that is wrong; nothing if all is well."""
        expected = [one.canonical for one in wanted]
        received = [one.packet for one in got]
        pairs = self._pair(wanted, got)
        total = max(len(wanted), 1)
        findings = self._changed(pairs, expected, received, total)
        if pairs.missing:
            lines = [f"#{number} {summary(expected[number])}" for number in pairs.missing]
            findings.append(Finding(Fault.LOST, len(lines), total, lines))
        if pairs.duplicates:
            lines = [f"again {summary(received[number])}" for number in pairs.duplicates]
            findings.append(Finding(Fault.DUPLICATED, len(lines), total, lines))
        findings += self._order(pairs, expected, total)
        findings += _timing(pairs, wanted, got, total)
        return findings

    def complete(self, wanted: Sequence[Wanted], got: Sequence[Got]) -> bool:
        """Whether everything that is expected has arrived, whatever else has."""
        if len(got) < len(wanted):
            return False
        return not self._pair(wanted, got).missing

    def _pair(self, wanted: Sequence[Wanted], got: Sequence[Got]) -> _Pairs:
        pairs = _Pairs()
        free = list(range(len(wanted)))
        taken: list[int] = []
        for number, received in enumerate(got):
            found = next((one for one in free if self._same(wanted[one], received)), None)
            if found is not None:
                free.remove(found)
                taken.append(found)
                pairs.matched.append((found, number))
            elif any(self._same(wanted[one], received) for one in taken):
                pairs.duplicates.append(number)
            else:
                pairs.strange.append(number)
        pairs.missing = free
        return pairs

    def _same(self, wanted: Wanted, got: Got) -> bool:
        if self.equal is not None:
            return self.equal(wanted.canonical, got.packet)
        here, there = self._fields(wanted, wanted.canonical), self._fields(got, got.packet)
        return here == there and checksums_fit(wanted.canonical, got.packet, self.ignore)

    def _fields(self, one: Wanted | Got, packet: Packet) -> Fields:
        # Of a packet once, not once for each pair.
        if self.ignore not in one.fields:
            one.fields[self.ignore] = fields(packet, self.ignore)
        return one.fields[self.ignore]

    def _changed(self, pairs: _Pairs, expected: list[Packet], received: list[Packet], total: int) -> list[Finding]:
        """What came and is like nothing that was expected: most likely a packet that is missing, changed."""
        groups: dict[Fault, list[str]] = {}
        for number in pairs.strange:
            packet = received[number]
            if not pairs.missing:
                kind = Fault.LEAKED if _leaks(packet, expected) else Fault.UNEXPECTED
                groups.setdefault(kind, []).append(summary(packet))
                continue
            differ = {one: differences(expected[one], packet, self.ignore) for one in pairs.missing}
            nearest = min(differ, key=lambda one: (differ[one][0].field == "" if differ[one] else False, len(differ[one])))
            pairs.missing.remove(nearest)
            found = differ[nearest]
            if _leaks(packet, [expected[nearest]]):
                kind = Fault.LEAKED
            elif found and all(difference.is_checksum for difference in found):
                kind = Fault.CORRUPTED
            else:
                kind = Fault.CHANGED
            lines = groups.setdefault(kind, [])
            lines.append(f"#{nearest} {summary(expected[nearest])}")
            if not found:
                lines.append("  the matching function says that they differ; their fields do not")
            lines += [f"  {difference}" for difference in found]
        counted = {kind: sum(1 for line in lines if not line.startswith(" ")) for kind, lines in groups.items()}
        return [Finding(kind, counted[kind], total, lines) for kind, lines in groups.items()]

    def _order(self, pairs: _Pairs, expected: list[Packet], total: int) -> list[Finding]:
        if not self.ordered:
            return []
        came = [wanted for wanted, _ in pairs.matched]
        kept = set(_longest_ascending(came))
        late = [wanted for wanted in came if wanted not in kept]
        if not late:
            return []
        lines = [f"#{wanted} {summary(expected[wanted])}" for wanted in late]
        lines.append("arrived in this order: " + " ".join(f"#{wanted}" for wanted in came))
        return [Finding(Fault.REORDERED, len(late), total, lines)]


def _leaks(received: Packet, expected: Sequence[Packet]) -> bool:
    return bool(has_steering_header(received)) and not any(has_steering_header(packet) for packet in expected)


def _longest_ascending(numbers: Sequence[int]) -> list[int]:
    """What stayed in order when some others moved."""
    best: list[list[int]] = []
    for number in numbers:
        before = max((run for run in best if run[-1] < number), key=len, default=[])
        best.append([*before, number])
    return max(best, key=len, default=[])


def _timing(pairs: _Pairs, wanted: Sequence[Wanted], got: Sequence[Got], total: int) -> list[Finding]:
    lines: dict[Fault, list[str]] = {}
    for expected, received in pairs.matched:
        within = wanted[expected].within
        if within is None:
            continue
        took = (got[received].time - wanted[expected].sent) / SECOND
        if within[0] <= took <= within[1]:
            continue
        fault = Fault.EARLY if took < within[0] else Fault.DELAYED
        allowed = f"{within[0] * 1000:.0f} to {within[1] * 1000:.0f} ms"
        lines.setdefault(fault, []).append(f"#{expected} arrived after {took * 1000:.1f} ms; allowed are {allowed}")
    return [Finding(fault, len(found), total, found) for fault, found in lines.items()]
