# SPDX-License-Identifier: Apache-2.0
"""Remote mode: the network is there, and a file says where the tester is connected and what labels mean.

The tester needs packet sockets (CAP_NET_RAW) on its own interfaces, and nothing on the nodes. Where the sockets of agents can be
reached (`ssh -L`), failures say what nodes saw, and counters can be asserted.
"""

import configparser
import ipaddress
import json
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from srft.labels import Labels
from srft.netns import inside
from srft.network import Attachment, Description, NetworkError, Service

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_RESOLVING = 5.0
_DISCARD = 9
_KEYS = {
    "": {"name", "hosts", "labels", "services", "agents"},
    "hosts": {"interface", "addresses", "gateway", "namespace"},
    "services": {"node", "ports", "sids", "steered"},
}


def load(file: Path) -> Description:
    """Reads a file: INI if it is called `.ini` or `.conf`, else YAML. Raises NetworkError, which says where it is wrong."""
    try:
        text = file.read_text()
        found = _ini(text) if file.suffix in (".ini", ".conf") else yaml.safe_load(text)
        return _description(file.stem, found)
    except (OSError, yaml.YAMLError, configparser.Error, ValueError) as error:
        raise NetworkError(f"{file}: {error}") from error


def _ini(text: str) -> dict[str, Any]:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # labels keep their case
    parser.read_string(text)
    found: dict[str, Any] = {}
    for section in parser.sections():
        kind, _, name = section.partition(" ")
        values: dict[str, Any] = dict(parser[section])
        if kind == "network":
            found |= values
        elif kind in ("labels", "agents"):
            found[kind] = values
        elif kind in ("host", "service") and name:
            found.setdefault(f"{kind}s", {})[name] = values
        else:
            raise ValueError(f"section [{section}]: sections are network, labels, agents, host NAME, service NAME")
    found["labels"] = {name: _words(value) for name, value in found.get("labels", {}).items()}
    return found


def _words(value: Any) -> list[str]:
    """A list, or its words with commas between them."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return [str(word) for word in value or []]


def _known(where: str, kind: str, entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where}: keys with values are expected, not {entry!r}")
    if unknown := sorted(set(entry) - _KEYS[kind]):
        raise ValueError(f"{where}: unknown key {unknown[0]}; known are {', '.join(sorted(_KEYS[kind]))}")
    return entry


def _named(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    entries = found.get(key) or {}
    if not isinstance(entries, Mapping):
        raise ValueError(f"{key}: names with values are expected, not {entries!r}")
    return entries


def _description(stem: str, found: Any) -> Description:
    found = _known("the file", "", found)
    labels = Labels()
    attachments = []
    for host, entry in _named(found, "hosts").items():
        entry = _known(f"host {host}", "hosts", entry)
        for key in ("interface", "addresses", "gateway"):
            if not entry.get(key):
                raise ValueError(f"host {host}: `{key}` is missing")
        labels.add(host, _words(entry["addresses"]))
        namespace = entry.get("namespace")
        gateway = resolve(str(entry["gateway"]), entry["interface"], namespace)
        attachments.append(Attachment(host, entry["interface"], gateway, namespace))
    if not attachments:
        raise ValueError("no host: the tester has to be connected somewhere, `hosts: {client: {interface: .., ...}}`")
    for label, value in _named(found, "labels").items():
        labels.add(label, _words(value))
    services = []
    for name, entry in _named(found, "services").items():
        entry = _known(f"service {name}", "services", entry)
        if not entry.get("node"):
            raise ValueError(f"service {name}: `node` is missing")
        steered = str(entry.get("steered", "")).lower() in ("true", "yes", "1")
        services.append(
            Service(name, entry["node"], frozenset(_words(entry.get("ports"))), frozenset(_words(entry.get("sids"))), steered)
        )
    agents = {node: str(path) for node, path in _named(found, "agents").items()}
    return Description(str(found.get("name", stem)), attachments, labels, services, agents)


def resolve(gateway: str, interface: str, namespace: str | None = None) -> str:
    """The link-layer address of a neighbour: as given, or what the kernel finds for an IP address. Raises NetworkError."""
    if _MAC.fullmatch(gateway):
        return gateway.lower()
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(gateway).version == 6 else socket.AF_INET
    except ValueError:
        raise NetworkError(f"gateway {gateway} is neither a link-layer address nor an IP address") from None
    deadline = time.monotonic() + _RESOLVING
    with inside(namespace), socket.socket(family, socket.SOCK_DGRAM) as asking:
        while True:
            asking.sendto(b"", (gateway, _DISCARD))
            command = ["ip", "-j", "neigh", "show", gateway, "dev", interface]
            shown = subprocess.run(command, capture_output=True, text=True, check=False)
            for row in json.loads(shown.stdout or "[]"):
                if row.get("lladdr"):
                    return row["lladdr"]
            if time.monotonic() > deadline:
                raise NetworkError(f"gateway {gateway} does not answer on {interface}: {shown.stderr.strip() or 'no neighbour'}")
            time.sleep(0.05)
