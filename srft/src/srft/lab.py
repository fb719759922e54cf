# SPDX-License-Identifier: Apache-2.0
"""Local mode: the network is a lab, which `segue lab up` makes of a topology file."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from srft.labels import Labels
from srft.network import Attachment, Description, NetworkError, Service
from srft.silence import silence

_PROTOCOLS = {"udp": 17, "tcp": 6, "icmp": 1, "ipv6-icmp": 58, "icmpv6": 58}
STATE = Path("/run/segue/lab")
_PATIENCE = 5.0


def program(given: str | None = None) -> str:
    """The `segue` program: as given, as $SEGUE says, or that in PATH. Raises NetworkError if there is none."""
    found = given or os.environ.get("SEGUE") or shutil.which("segue")
    if not found or not shutil.which(found):
        raise NetworkError(f"no program {found or 'segue'}: put segue into PATH, or give its path with --srft-segue")
    return found


class Lab:
    """A lab made of a topology file."""

    def __init__(self, file: Path, segue: str | None = None, testers: Sequence[str] = ()) -> None:
        """Plans it; nothing is made yet. `testers` are plain nodes that the tester speaks for, inside of the SR domain.

        Raises NetworkError if the topology is wrong.
        """
        self.file = file
        self.segue = program(segue)
        self.testers = list(testers)
        self.plan: dict[str, Any] = json.loads(self._run("lab", "plan", str(file), "-o", "json"))
        self.name: str = self.plan["name"]
        self._ours = False

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self.segue, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NetworkError(f"{self.segue} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def up(self) -> None:
        """Brings it up; one that is up already, of the same file, is taken as it is, and stays up. Raises NetworkError."""
        there = STATE / self.name / "topology.yaml"
        if there.exists():
            if there.read_text() != self.file.read_text():
                raise NetworkError(
                    f"a lab {self.name} is up already, made of another topology than {self.file}: `segue lab down {self.name}`"
                )
        else:
            self._run("lab", "up", str(self.file), "-o", "json")
            self._ours = True
        for attachment in self._attachments():
            self._prepare(attachment)

    def _prepare(self, attachment: Attachment) -> None:
        """The tester gets packets one by one, and answers alone."""
        # Receive offload, where somebody has switched it on, makes no two segments one.
        self._inside(attachment, ["ip", "link", "set", "dev", attachment.interface, "gro_max_size", "1"])
        # Of a lab that was up before, this may be there.
        self._inside(attachment, ["nft", "-f", "-"], "table inet srft\ndelete table inet srft\n" + silence())

    def _inside(self, attachment: Attachment, command: list[str], text: str = "") -> None:
        line = ["ip", "netns", "exec", str(attachment.namespace), *command]
        done = subprocess.run(line, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NetworkError(f"host {attachment.host}: {' '.join(command)}: {done.stderr.strip()}")

    def down(self) -> None:
        """Takes it down, if `up` has made it."""
        if self._ours:
            self._run("lab", "down", self.name)
            self._ours = False

    def namespace(self, node: str) -> str:
        """The network namespace of a node, host or function."""
        return f"sg-{self.name}-{node}"

    def execute(self, node: str, command: Sequence[str]) -> str:
        """Runs a command in a node, host or function; what it printed. Raises NetworkError if it fails."""
        return self._run("lab", "exec", self.name, node, "--", *command)

    def log(self, node: str) -> Path:
        """The log of a node's agent, or of a function."""
        return STATE / self.name / f"{node}.log"

    def kept(self, node: str) -> Path:
        """The directory in which a node's agent keeps what it writes beside its log: NFLOG's records, and its own state."""
        return STATE / self.name / f"{node}.state"

    def service(self, name: str) -> dict[str, Any]:
        """What a packet service of the lab says of itself, as `segue service list -o json` has it.

        Raises NetworkError if it does not answer.
        """
        path = STATE / self.name / f"{name}.socket"
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(_PATIENCE)
                client.connect(str(path))
                client.sendall(b"status")
                with client.makefile("rb") as answer:
                    found: dict[str, Any] = json.loads(answer.read())
                    return found
        except (OSError, ValueError) as error:
            raise NetworkError(f"service {name} does not answer on {path}: {error}") from None

    def description(self) -> Description:
        """Hosts, labels, functions and agents, as the plan has them."""
        plan = self.plan
        agents = {
            node: str(STATE / self.name / f"{node}.sock")
            for node, entry in plan["nodes"].items()
            if entry["dataplane"] == "segue"
        }
        listed = json.loads(self._run("lab", "labels", str(self.file), "-o", "json"))
        services = [
            Service(
                name,
                entry["node"],
                frozenset(interface["peer"]["interface"] for interface in entry["interfaces"]),
                _sids(listed, entry["node"], name),
                "(End.AN)" in entry["approach"],
            )
            for name, entry in plan["functions"].items()
        ]
        return Description(self.name, self._attachments(), labels(listed), services, agents)

    def _attachments(self) -> list[Attachment]:
        found = [self._attachment(host, [entry["interface"]]) for host, entry in self.plan["hosts"].items()]
        return found + [self._attachment(node, self.plan["nodes"][node]["interfaces"]) for node in self.testers]

    def ways(self) -> list[tuple[str, str, int, int, int | None]]:
        """What each steering rule takes between two hosts: source, destination, family, protocol, destination port."""
        addresses = {
            address.split("/")[0]: name for name, host in self.plan["hosts"].items() for address in host["interface"]["addresses"]
        }
        found = []
        for node in self.plan["nodes"].values():
            for rule in (node.get("state") or {}).get("steering", []):
                source, destination = (addresses.get(str(rule.get(end, "")).split("/")[0]) for end in ("source", "destination"))
                if not source or not destination:
                    continue
                family = 4 if "." in rule["destination"] else 6
                protocol = _PROTOCOLS.get(str(rule.get("protocol", "udp")), 17)
                ports = rule.get("destination_ports") or [None]
                port = int(str(ports[0]).split("-")[0]) if ports[0] is not None else None
                found.append((source, destination, family, protocol, port))
        return found

    def _attachment(self, host: str, interfaces: list[dict[str, Any]]) -> Attachment:
        if not interfaces:
            raise NetworkError(f"{host} has no link, so no packet can be sent from it")
        interface = interfaces[0]
        node, port = interface["peer"]["namespace"], interface["peer"]["interface"]
        behind = next(other for other in self.plan["nodes"][node]["interfaces"] if other["name"] == port)
        return Attachment(host, interface["name"], behind["mac"], self.namespace(host))


def _sids(listed: Sequence[dict[str, str]], node: str, function: str) -> frozenset[str]:
    """The SIDs that lead to a function."""
    name = f"${node}.{function}"
    ours = (one for one in listed if one["kind"] == "sid" and (one["label"] == name or one["label"].startswith(f"{name}.")))
    return frozenset(one["value"] for one in ours)


def labels(listed: Sequence[dict[str, str]]) -> Labels:
    """Labels as `segue lab labels -o json` lists them: a host's addresses become one label, a chain's segments a list."""
    found = Labels()
    hosts: dict[str, list[str]] = {}
    for entry in listed:
        name, value = entry["label"].removeprefix("$"), entry["value"]
        if entry["kind"] == "locator":
            continue  # a prefix
        if entry["kind"] == "host":
            host, _, family = name.partition(".")
            if family:
                hosts.setdefault(host, []).append(value)
        found.add(name, [word.strip() for word in value.split(",")])
    for host, addresses in hosts.items():
        found.add(host, addresses)
    return found
