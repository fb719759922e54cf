# SPDX-License-Identifier: Apache-2.0
"""The networks that one run of tests uses: each is brought up once, for all tests that name it."""

import atexit
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scapy.layers.inet import ICMP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest
from scapy.packet import Packet

from srft import remote
from srft.flow import Flow, FlowLabels
from srft.lab import Lab
from srft.network import Description, Network, NetworkError
from srft.tester import Tester

#: The first packets of a way find neighbours that are not known yet, and may be overtaken: they are sent before tests. Seconds.
_WARMING = 1.5


@dataclass
class Options:
    """How tests are run; `SRFT_REMOTE`, `SEGUE`, `SRFT_CAPTURES` and `SRFT_FLOW_LABELS` in the environment say it too."""

    remote: Path | None = None
    segue: str | None = None
    captures: Path | None = None
    flow_labels: int | None = None

    @classmethod
    def from_environment(cls) -> "Options":
        """All from the environment."""
        where, kept, labels = (os.environ.get(name) for name in ("SRFT_REMOTE", "SRFT_CAPTURES", "SRFT_FLOW_LABELS"))
        return cls(Path(where) if where else None, None, Path(kept) if kept else None, int(labels, 0) if labels else None)


class Session:
    """Networks by topology file."""

    def __init__(self, options: Options | None = None) -> None:
        """Opens nothing yet."""
        self.options = options or Options.from_environment()
        self._flow_labels: FlowLabels | None = None
        self._testers: dict[Path | None, Tester] = {}
        self._labs: dict[Path | None, Lab] = {}
        self._failed: dict[Path | None, Exception] = {}

    def tester(self, topology: Path | None, testers: Sequence[str] = ()) -> Tester:
        """The tester of a network: in local mode a lab of this file, in remote mode the one network of the remote file.

        Raises NetworkError, AgentError or OSError.
        """
        key = None if self.options.remote else topology and topology.resolve()
        if key in self._failed:
            # Once is enough: it takes time, and each test of it says the same.
            raise self._failed[key]
        if key not in self._testers:
            try:
                self._testers[key] = self._open(key, testers)
            except Exception as error:
                self._failed[key] = error
                raise
        found = self._testers[key]
        if missing := set(testers) - set(found.network.hosts):
            raise NetworkError(
                f"{', '.join(sorted(missing))} of {found.network.name}: name the same testers in each mark of a topology"
            )
        return found

    def lab(self, topology: Path) -> Lab:
        """The lab of a topology that is up. Raises NetworkError in remote mode, where there is none."""
        if self.options.remote:
            raise NetworkError("this test works on a lab itself: it does not run in remote mode")
        return self._labs[topology.resolve()]

    def _open(self, key: Path | None, testers: Sequence[str]) -> Tester:
        self._flow_labels = self._flow_labels or FlowLabels(self.options.flow_labels)
        if self.options.remote:
            description = remote.load(self.options.remote)
        elif key is None:
            raise NetworkError("no topology: mark the test with @pytest.mark.topology('FILE'), or give --srft-remote")
        else:
            lab = Lab(key, self.options.segue, testers)
            # Before it is up, so that it comes down in any case.
            self._labs[key] = lab
            lab.up()
            description = lab.description()
        tester = Tester(Network(description, self._flow_labels), captures=self.options.captures)
        warm(tester, description, self._labs.get(key))
        return tester

    def close(self) -> None:
        """Closes networks, and takes down the labs that this has brought up."""
        while self._testers:
            self._testers.popitem()[1].network.close()
        while self._labs:
            self._labs.popitem()[1].down()
        if self._flow_labels:
            self._flow_labels.close()
            self._flow_labels = None


def warm(tester: Tester, description: Description, lab: Lab | None) -> None:
    """Sends a packet along each way, until it has arrived or a second has gone by: then neighbours know each other."""
    ways = lab.ways() if lab else []
    hosts = [attachment.host for attachment in description.attachments]
    ways += [(one, other, family, 17, None) for one in hosts for other in hosts if one != other for family in (4, 6)]
    flows = []
    begun = time.monotonic()
    try:
        for source, destination, family, protocol, port in ways:
            flow = tester.flow()
            try:
                packet = flow.mark(flow.ip(f"${source}", f"${destination}", family) / _upper(flow, family, protocol, port))
            except LookupError:
                continue  # no address of this family
            frame = tester.network.frame(packet, source)
            tester.sniffer.watch(flow, [frame])
            flows.append(flow)
            tester.network.send(frame, source)
        while time.monotonic() < begun + _WARMING:
            count = tester.sniffer.count
            if all(tester.sniffer.received(flow) for flow in flows):
                break
            tester.sniffer.wait(begun + _WARMING, count)
    finally:
        for flow in flows:
            tester.sniffer.forget(flow)


def _upper(flow: Flow, family: int, protocol: int, port: int | None) -> Packet:
    if protocol == 6:
        return TCP(dport=port or 80, flags="S")
    if protocol in (1, 58):
        return (ICMP() if family == 4 else ICMPv6EchoRequest()) / flow.payload()
    return UDP(dport=port or 9) / flow.payload()


_current: Session | None = None


def current() -> Session:
    """The session of this process: that of pytest, or one made of the environment, which ends with the process."""
    global _current
    if _current is None:
        _current = Session()
        atexit.register(_current.close)
    return _current


def use(session: Session | None) -> None:
    """Makes a session that of this process."""
    global _current
    _current = session
