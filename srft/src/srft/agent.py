# SPDX-License-Identifier: Apache-2.0
"""What a node says of itself: the agent's API (docs/openapi.json), over its Unix socket."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from srft.wire import Frame

PATIENCE = 20.0


class AgentError(Exception):
    """An agent that does not answer, or refuses."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Counters:
    """Counters of a node at one moment, or what they moved by between two."""

    #: By port and outcome (docs/using/outcomes.md): packets.
    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)
    #: By SID, as labels have it (LOC:FUNCT, without an argument): packets that arrived for it.
    sids: dict[str, int] = field(default_factory=dict)
    #: By SID: packets that came back from the function behind it.
    returned: dict[str, int] = field(default_factory=dict)
    #: By name of the SR policy: packets that were put into it.
    policies: dict[str, int] = field(default_factory=dict)

    def outcome(self, name: str, port: str | None = None) -> int:
        """Packets with this outcome, of one port or of all."""
        return sum(count for (at, what), count in self.outcomes.items() if what == name and port in (None, at))

    @property
    def drops(self) -> dict[str, int]:
        """Packets by the reason why they were dropped, all ports together; only what is not 0."""
        found: dict[str, int] = {}
        for (_, outcome), count in self.outcomes.items():
            if outcome.startswith("drop_") and count:
                found[outcome] = found.get(outcome, 0) + count
        return found

    def since(self, before: "Counters") -> "Counters":
        """What moved since an earlier moment."""

        def less(now: dict[Any, int], was: dict[Any, int]) -> dict[Any, int]:
            return {key: count - was.get(key, 0) for key, count in now.items() if count != was.get(key, 0)}

        return Counters(
            less(self.outcomes, before.outcomes),
            less(self.sids, before.sids),
            less(self.returned, before.returned),
            less(self.policies, before.policies),
        )


def _address(sid: str) -> str:
    return sid.split("/")[0]


class Agent:
    """The agent of one node."""

    def __init__(self, node: str, path: str) -> None:
        """`path` is that of its socket; nothing is sent yet."""
        self.node = node
        self.path = path

    def request(self, method: str, target: str, body: Any = None) -> Any:
        """One request; the answer's JSON. Raises AgentError with what the agent says."""
        connection = _Connection(self.path, PATIENCE)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, target, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        except OSError as error:
            raise AgentError(f"node {self.node}: {self.path}: {error}; does segued run there?") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise AgentError(f"node {self.node}: {method} {target}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content) if content else None

    def get(self, target: str) -> Any:
        """GET of a path such as `/v1/sids`."""
        return self.request("GET", target)

    def counters(self) -> Counters:
        """All counters at one moment."""
        report = self.get("/v1/counters")
        return Counters(
            {(row["port"], row["outcome"]): row["counter"]["packets"] for row in report["outcomes"]},
            {_address(row["sid"]): row["counter"]["packets"] for row in report["sids"]},
            {_address(row["sid"]): row["returned"]["packets"] for row in report["sids"] if row.get("returned")},
            {row["name"]: row["counter"]["packets"] for row in report["policies"]},
        )

    def drops(self) -> list[dict[str, Any]]:
        """Drops by port and reason, each with the last such packet."""
        return self.get("/v1/drops")

    def state(self) -> dict[str, Any]:
        """The desired state that was applied last."""
        return self.get("/v1/state")

    def apply(self, state: dict[str, Any]) -> None:
        """Makes the node what a state says, all of it or nothing."""
        self.request("PUT", "/v1/state", state)


class Tap:
    """What the data plane of a node sees at its ports, while this is open."""

    def __init__(self, agent: Agent, deliver: Callable[[Frame], None]) -> None:
        """Starts a capture at all ports. Raises AgentError if the agent refuses."""
        self._agent = agent
        self._deliver = deliver
        #: Packets that the agent could not tell of, because there were too many.
        self.lost = 0
        self._connection = _Connection(agent.path, PATIENCE)
        try:
            body = json.dumps({"ports": [], "format": "json"})
            self._connection.request("POST", "/v1/capture", body, {"Content-Type": "application/json"})
            # Kept: closing the connection alone would not end a read of the answer.
            self._socket = self._connection.sock
            self._answer = self._connection.getresponse()
        except OSError as error:
            raise AgentError(f"node {agent.node}: capture: {error}") from error
        if self._answer.status != http.client.OK:
            raise AgentError(f"node {agent.node}: capture: {self._answer.read().decode(errors='replace')}")
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._run, name=f"srft tap {agent.node}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while line := self._answer.readline():
                self._take(json.loads(line))
        except (OSError, ValueError, http.client.HTTPException):
            return  # closed, by us or by an agent that ended

    def _take(self, packet: dict[str, Any]) -> None:
        if "lost" in packet:
            self.lost += packet["lost"]
            return
        seconds, nanoseconds = packet["time"].split(".")
        self._deliver(
            Frame(
                int(seconds) * 1_000_000_000 + int(nanoseconds),
                f"{self._agent.node} {packet['port']}",
                packet["direction"],
                bytes.fromhex(packet["bytes"]),
                packet.get("outcome") or "",
            )
        )

    def close(self) -> None:
        """Ends the capture."""
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._connection.close()
