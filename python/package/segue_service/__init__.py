"""Packet services of Segue in Python: a class with one method, `packet`, and `run()`.

The page docs/developing/writing-a-service.md of Segue has an example; docs/design/services.md says what holds for all services.
Times and durations are whole nanoseconds.
"""

import signal
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from segue_service import _native
from segue_service._native import (
    NEXT,
    SID,
    Context,
    Driver,
    FiveTuple,
    Metric,
    Mode,
    Packet,
    Reason,
    Report,
    Sampling,
    Sent,
    Snapshot,
    Spread,
    Srh,
    Steering,
    Verdict,
    Way,
    Worker,
    five_tuple,
    srv6,
    srv6_around,
)

__all__ = [
    "MICROSECONDS",
    "MILLISECONDS",
    "NEXT",
    "SECONDS",
    "SID",
    "Context",
    "Driver",
    "FiveTuple",
    "Metric",
    "Mode",
    "Packet",
    "Reason",
    "Report",
    "Sampling",
    "Sent",
    "Service",
    "Snapshot",
    "Spread",
    "Srh",
    "Steering",
    "Verdict",
    "Way",
    "Worker",
    "five_tuple",
    "run",
    "srv6",
    "srv6_around",
]

MICROSECONDS = 1_000
"""Nanoseconds in one."""
MILLISECONDS = 1_000_000
"""Nanoseconds in one."""
SECONDS = 1_000_000_000
"""Nanoseconds in one."""


class Service:
    """A packet service. An object of the class is one worker's part; only `packet()` must be there.

    The static methods are asked with a configuration before there are workers, which has all keys of `CONFIGURATION`.
    """

    NAME: ClassVar[str] = ""
    """Its name in configurations and on the command line; that of the class, with hyphens, if there is none."""
    ABOUT: ClassVar[str] = ""
    """What it does, in one sentence; the first line of the class's documentation if there is none."""
    METRICS: ClassVar[Sequence[Metric]] = ()
    """Its own metrics, which `Context.count()` and `Context.set()` name."""
    CONFIGURATION: ClassVar[dict[str, Any]] = {}
    """What an operator may write, with the defaults: JSON. Values are of the same kind as the default; None stands for any."""

    configuration: dict[str, Any]
    worker: Worker

    def __new__(cls, configuration: dict[str, Any], worker: Worker) -> "Service":  # noqa: D102
        # Here, not in __init__(): who writes one of their own need not think of this one.
        self = super().__new__(cls)
        self.configuration = configuration
        self.worker = worker
        return self

    def __init__(self, configuration: dict[str, Any], worker: Worker) -> None:
        """Makes a worker's part. Both are attributes of it already."""

    def packet(self, packet: Packet, context: Context) -> Verdict:
        """Decides on one packet. What is sent through `context` meanwhile leaves before this packet."""
        raise NotImplementedError(f"{type(self).__name__} has no method packet()")

    def timer(self, context: Context) -> None:
        """The time that `Context.wake_at()` was given has come. A service that wants to be woken again says so again."""

    def stop(self, context: Context) -> None:
        """Sends or drops all that it holds: no packet will come any more, or the service gets another configuration."""

    def report(self) -> Any:
        """What it wants to be seen of its state, as JSON: for `segue service list -o json`."""

    @staticmethod
    def check(configuration: dict[str, Any], report: Report) -> None:
        """Says what is wrong with the meaning of a configuration, with a remedy for each."""

    @staticmethod
    def mode(configuration: dict[str, Any]) -> Mode:  # noqa: ARG004
        """Whether packets wait for it."""
        return Mode.SYNCHRONOUS

    @staticmethod
    def sampling(configuration: dict[str, Any]) -> Sampling:  # noqa: ARG004
        """Asynchronous: which copies it gets."""
        return Sampling()

    @staticmethod
    def many_workers(configuration: dict[str, Any]) -> bool:  # noqa: ARG004
        """Whether more than one worker may run. They take turns at the interpreter: it gets no faster by that."""
        return True

    @staticmethod
    def spread(configuration: dict[str, Any]) -> Spread:  # noqa: ARG004
        """Which packets must go to one worker."""
        return Spread.FLOW

    @staticmethod
    def uses_kernel(configuration: dict[str, Any]) -> bool:  # noqa: ARG004
        """Whether it gives packets to the kernel of its namespace (`Verdict.KERNEL`): a device is made for them then."""
        return False

    @staticmethod
    def rewrites_flows(configuration: dict[str, Any]) -> bool:  # noqa: ARG004
        """Whether what it sends may be another flow than what it got."""
        return False


def run(*services: type[Service]) -> NoReturn:
    """The whole of a program that runs services of these classes: the commands of `segue-service`, and the end of the process."""
    own = sys.argv[1:]
    # What starts this program again, options of the interpreter included, is what is in front of its own arguments.
    words = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(own)]]
    # Else a KeyboardInterrupt would be raised once the service has worked off what it has.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.program(list(services), own, words))
