# SPDX-License-Identifier: Apache-2.0
"""Test and Tester: what is sent, what must arrive; and the run of it."""

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srft import pcapng
from srft.craft import Craft, Crafter, Expect, Send
from srft.diff import network_layer
from srft.flow import Flow
from srft.match import Finding, Got, Matcher, Wanted
from srft.network import Network
from srft.report import SHOWN, Failure, Run, explain
from srft.sniff import Seen, Sniffer
from srft.wire import Frame

#: What is expected must have arrived so many seconds after the last packet was sent.
PATIENCE = 3.0
#: After the last packet nothing else may come for so many seconds: duplicates, answers that nobody expects.
QUIET = 0.08
#: The same where nothing at all is expected, which no arrival confirms.
SILENCE = 0.3


@dataclass(frozen=True)
class Test:
    """One test: packets, and how what arrives is compared with what is expected. Several `flows` at once, if need be."""

    __test__ = False  # for pytest: no class with tests

    crafter: Crafter
    matcher: Matcher = field(default_factory=Matcher)
    name: str = "test"
    chain: str | None = None
    flows: int = 1
    patience: float = PATIENCE
    quiet: float | None = None


class Tester:
    """Runs tests on a network."""

    __test__ = False

    def __init__(self, network: Network, sniffer: Sniffer | None = None, captures: Path | None = None) -> None:
        """`captures` is where packets of failed tests are kept: a new directory if not given."""
        self.network = network
        self.labels = network.labels
        self.sniffer = sniffer or Sniffer()
        self.captures = captures
        #: What a test is called in messages if it does not say so itself.
        self.name = "test"
        network.listen(self.sniffer.take)

    def perform(self, *tests: Test) -> None:
        """Runs tests, all of their flows at the same time. Raises Failure, which says what is wrong with each, and where."""
        __tracebackhide__ = True  # for pytest: what is wrong is in the message, not in here
        runs = [self._prepare(test) for test in tests for _ in range(test.flows)]
        try:
            self._drive(runs)
            self._judge(runs)
        finally:
            for run in runs:
                self.sniffer.forget(run.flow)

    def flow(self) -> Flow:
        """A flow with a label that nobody else has."""
        return Flow(self.network.flow_labels.next(), self.labels)

    def check(self, craft: Craft, matcher: Matcher | None = None, **options: Any) -> None:
        """A test of one craft function: short for `perform(Test(Crafter(craft), matcher, ...))`."""
        __tracebackhide__ = True
        self.perform(Test(Crafter(craft), matcher or Matcher(), **options))

    def _prepare(self, test: Test) -> Run:
        flow = self.flow()
        steps = test.crafter.steps(flow)
        name = test.name if test.name != "test" else self.name
        # Made before anything is sent, so that packets leave one right after the other.
        frames = [self.network.frame(step.packet, step.at) for step in steps]
        self.sniffer.watch(flow, frames)
        return Run(name, test, flow, steps, frames, time.time_ns(), time.monotonic())

    def _drive(self, runs: list[Run]) -> None:
        under_way = runs
        while under_way:
            now, count = time.monotonic(), self.sniffer.count
            under_way = [run for run in under_way if not self._advance(run, now)]
            if under_way:
                self.sniffer.wait(min(run.until for run in under_way), count)

    def _advance(self, run: Run, now: float) -> bool:
        """Sends what can be sent; whether the run has ended."""
        received = self.sniffer.received(run.flow)
        if len(received) != run.seen:
            self._sort(run, received)
            run.changed = now
        while run.position < len(run.steps):
            if not isinstance(run.steps[run.position], Send):
                self._expect(run)
            elif run.position and isinstance(run.steps[run.position - 1], Expect):
                if not self._complete(run):
                    break
                self._send(run)
            else:
                self._send(run)
        deadline = run.last_sent + run.test.patience
        if run.position < len(run.steps) or not self._complete(run):
            run.until = deadline
            return now >= deadline
        usual = QUIET if run.expected else SILENCE
        quiet = usual if run.test.quiet is None else run.test.quiet
        run.until = min(run.changed + quiet, deadline + quiet)
        return now >= run.until

    def _send(self, run: Run) -> None:
        """All packets up to the next expectation."""
        run.burst = []
        while run.position < len(run.steps) and isinstance(run.steps[run.position], Send):
            frame = Frame(time.time_ns(), run.steps[run.position].at, "out", run.frames[run.position])
            self.network.send(frame.data, frame.where)
            run.burst.append(frame.time)
            run.sent.append(Seen(frame))
            run.position += 1
        run.changed = run.last_sent = time.monotonic()

    def _expect(self, run: Run) -> None:
        """All expectations up to the next packet to send. As many as were sent before them: each belongs to one of those."""
        steps = []
        while run.position < len(run.steps) and isinstance(step := run.steps[run.position], Expect):
            steps.append(step)
            run.position += 1
        times = run.burst if len(run.burst) == len(steps) else [run.burst[0] if run.burst else 0] * len(steps)
        for step, sent in zip(steps, times, strict=True):
            run.expected.append((step.at, Wanted(step.packet, step.within, sent)))

    def _sort(self, run: Run, received: Sequence[Seen]) -> None:
        """What has come since the last time, to where it has come."""
        for seen in received[run.seen :]:
            packet = seen.packet if run.link_layer else network_layer(seen.packet)
            run.arrivals.setdefault(seen.frame.where, []).append(Got(packet, seen.frame.time))
        run.seen = len(received)

    def _complete(self, run: Run) -> bool:
        # What has not changed since need not be compared again.
        state = (run.seen, len(run.expected))
        if run.judged != state:
            run.judged = state
            places = {at for at, _ in run.expected}
            run.complete = all(run.test.matcher.complete(*self._at(run, place)) for place in places)
        return run.complete

    def _at(self, run: Run, place: str) -> tuple[list[Wanted], list[Got]]:
        return [one for at, one in run.expected if at == place], run.arrivals.get(place, [])

    def _judge(self, runs: list[Run]) -> None:
        __tracebackhide__ = True
        failed = []
        for run in runs:
            # What comes after a packet that was never sent, because something before it did not arrive, is expected all the same.
            rest = [step for step in run.steps[run.position :] if isinstance(step, Expect)]
            run.expected += [(step.at, Wanted(step.packet)) for step in rest]
            self._sort(run, self.sniffer.received(run.flow))
            findings: dict[str, list[Finding]] = {}
            for place in sorted({at for at, _ in run.expected} | set(run.arrivals)):
                if found := run.test.matcher.compare(*self._at(run, place)):
                    findings[place] = found
            if findings:
                failed.append((run, findings))
        if not failed:
            return
        # What nodes have seen comes a moment later than what hosts have.
        time.sleep(0.2)
        texts = [explain(self.network, self.sniffer, run, findings) for run, findings in failed[:SHOWN]]
        raise Failure(texts, len(failed), len(runs), self._keep([run for run, _ in failed]))

    def _keep(self, runs: list[Run]) -> Path:
        if self.captures is None:
            self.captures = Path(tempfile.mkdtemp(prefix="srft-"))
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", runs[0].name).strip("-") or "test"
        path = self.captures / f"{name}.pcapng"
        begun = min(run.begun for run in runs)
        seen = self.sniffer.foreign(begun)
        for run in runs:
            seen += run.sent + self.sniffer.received(run.flow) + self.sniffer.inside(run.flow, run.begun)
        pcapng.write(path, [one.frame for one in seen])
        return path
