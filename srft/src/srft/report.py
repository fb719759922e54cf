# SPDX-License-Identifier: Apache-2.0
"""What a failed test says: the fault and the service that made it, then the packets, then every station of their way."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from scapy.layers.l2 import Ether

from srft.blame import culprits, refusals
from srft.craft import Expect, Step
from srft.diff import summary
from srft.flow import Flow
from srft.match import Finding, Got, Wanted
from srft.network import Network
from srft.sniff import Seen, Sniffer

if TYPE_CHECKING:
    from srft.tester import Test

#: Of packets and of differences a message shows so many; the rest is in the capture.
_LINES = 12
#: A message tells of so many flows.
SHOWN = 3


@dataclass
class Run:
    """A test with one flow, while it runs. Times are of `time.monotonic`, but for those that say nanoseconds since 1970."""

    name: str
    test: "Test"
    flow: Flow
    steps: list[Step]
    #: For each step its packet as the frame that its host would send.
    frames: list[bytes]
    begun: int  # nanoseconds since 1970
    changed: float
    position: int = 0
    sent: list[Seen] = field(default_factory=list)
    seen: int = 0
    #: When the packets that were sent in one go left, nanoseconds since 1970.
    burst: list[int] = field(default_factory=list)
    arrivals: dict[str, list[Got]] = field(default_factory=dict)
    last_sent: float = 0.0
    until: float = 0.0
    expected: list[tuple[str, Wanted]] = field(default_factory=list)
    judged: tuple[int, int] = (-1, -1)
    complete: bool = False

    @cached_property
    def link_layer(self) -> bool:
        """Whether frames are compared, and not what is in them: where a test expects frames."""
        return any(isinstance(step, Expect) and isinstance(step.packet, Ether) for step in self.steps)


class Failure(AssertionError):  # noqa: N818 -- pytest and unittest call this a failure; an error is something else
    """Packets are not what a test expects. `capture` is the file that has all of them."""

    def __init__(self, texts: Sequence[str], failed: int, runs: int, capture: Path) -> None:
        """`texts` are of some of the flows that failed, of all `runs`."""
        self.capture = capture
        count = f"{failed} of {runs} flows failed\n" if runs > 1 else ""
        more = f"\n\n... and {failed - len(texts)} more flows" if failed > len(texts) else ""
        super().__init__(f"{count}" + "\n\n".join(texts) + f"{more}\n  packets: {capture}")


def explain(network: Network, sniffer: Sniffer, run: Run, findings: dict[str, list[Finding]]) -> str:
    """All that can be said of one flow that failed."""
    inside = sniffer.inside(run.flow, run.begun)
    kinds = {finding.fault for found in findings.values() for finding in found}
    blamed = culprits(network, run.test.matcher, inside, kinds) or refusals(network, run.flow)
    chain = f" of chain {run.test.chain}" if run.test.chain else ""
    lines = [f"{run.name}: flow {run.flow.label:#07x}{chain}"]
    lines += [f"  {line}" for line in blamed] or ["  no function is seen to be at fault"]
    for place, found in findings.items():
        for finding in found:
            lines.append(f"  at {place}: {finding}")
            lines += [f"    {line}" for line in finding.details[:_LINES]]
            if len(finding.details) > _LINES:
                lines.append(f"    ... and {len(finding.details) - _LINES} more lines")
    lines += _stations(run, inside, sniffer.received(run.flow))
    if strangers := sniffer.foreign(run.begun):
        lines.append(f"  {len(strangers)} packets of no test arrived meanwhile, such as")
        lines += [f"    {seen.frame.where}: {summary(seen.packet)}" for seen in strangers[:3]]
    return "\n".join(lines)


def _stations(run: Run, inside: Sequence[Seen], received: Sequence[Seen]) -> list[str]:
    """How many packets of a flow each place has seen, in the order of the first one."""
    counts: dict[tuple[str, str], int] = {}
    for seen in sorted([*run.sent, *inside, *received], key=lambda seen: seen.frame.time):
        place = (seen.frame.where, seen.frame.direction)
        counts[place] = counts.get(place, 0) + 1
    lines = [f"  the way of {len(run.sent)} packets:"]
    lines += [f"    {where:<28} {direction:<4} {count}" for (where, direction), count in counts.items()]
    return lines
