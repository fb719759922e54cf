# SPDX-License-Identifier: Apache-2.0
"""A network to test: hosts that packets are sent from and arrive at, labels, functions, and the agents of its nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from srft.agent import Agent, Tap
from srft.flow import FlowLabels
from srft.labels import Labels
from srft.wire import Frame, Reader, Wire


@dataclass(frozen=True)
class Attachment:
    """Where the tester is connected as a host: an interface, and the link-layer address of the node behind it."""

    host: str
    interface: str
    gateway: str
    namespace: str | None = None


@dataclass(frozen=True)
class Service:
    """A function of a chain, and the ports of its node that lead to it; its SIDs, by which one without ports is known.

    `steered`: it gets packets with their steering header, and goes on in the list by itself.
    """

    name: str
    node: str
    ports: frozenset[str] = frozenset()
    sids: frozenset[str] = frozenset()
    steered: bool = False

    def __str__(self) -> str:
        return f"service {self.name} on {self.node}"


@dataclass
class Description:
    """What is known of a network before anything is opened."""

    name: str
    attachments: list[Attachment]
    labels: Labels
    services: list[Service] = field(default_factory=list)
    agents: dict[str, str] = field(default_factory=dict)


class NetworkError(Exception):
    """A network that cannot be tested: what is wrong, and what to do."""


class Network:
    """A network that is up, with sockets on the tester's interfaces and, where agents can be asked, a view into its nodes."""

    def __init__(self, description: Description, flow_labels: FlowLabels | None = None) -> None:
        """Opens everything. Raises OSError or AgentError."""
        self.name = description.name
        self.labels = description.labels
        self.services = description.services
        self.flow_labels = flow_labels or FlowLabels()
        self.agents = {node: Agent(node, path) for node, path in description.agents.items()}
        self._attachments = {attachment.host: attachment for attachment in description.attachments}
        self._wires: dict[str, Wire] = {}
        self._listeners: list[Callable[[Frame, bool], None]] = []
        self._closers: list[Callable[[], None]] = []
        try:
            for attachment in description.attachments:
                self._wires[attachment.host] = Wire(attachment.host, attachment.interface, attachment.namespace)
            self._reader = Reader(list(self._wires.values()), lambda frame: self._deliver(frame, True))
            self._closers.append(self._reader.close)
            for agent in self.agents.values():
                self._closers.append(Tap(agent, lambda frame: self._deliver(frame, False)).close)
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> list[str]:
        """Where packets can be sent from and arrive."""
        return list(self._wires)

    def listen(self, listener: Callable[[Frame, bool], None]) -> None:
        """From now on `listener` gets every frame, and whether it was seen at a host (else inside of the network)."""
        self._listeners.append(listener)

    def _deliver(self, frame: Frame, at_host: bool) -> None:
        for listener in self._listeners:
            listener(frame, at_host)

    def frame(self, packet: Packet, at: str) -> bytes:
        """A packet as the frame that host `at` sends. Raises NetworkError if there is no such host."""
        if at not in self._wires:
            raise NetworkError(f"there is no host {at} in {self.name}; there are: {', '.join(self.hosts)}")
        if not isinstance(packet, Ether):
            kind = 0x0800 if isinstance(packet, IP) else 0x86DD
            packet = Ether(src=self._wires[at].mac, dst=self._attachments[at].gateway, type=kind) / packet
        return bytes(packet)

    def send(self, frame: bytes, at: str) -> None:
        """Sends a frame by the interface of host `at`. Raises OSError if the interface refuses it."""
        self._wires[at].send(frame)

    def agent(self, node: str) -> Agent:
        """The agent of a node. Raises NetworkError if it cannot be asked."""
        try:
            return self.agents[node]
        except KeyError:
            known = ", ".join(self.agents) or "none"
            raise NetworkError(
                f"the agent of node {node} is not known in {self.name}; known: {known}. In remote mode: `agents` in the file"
            ) from None

    def close(self) -> None:
        """Closes all sockets."""
        while self._closers:
            self._closers.pop()()
