# SPDX-License-Identifier: Apache-2.0
"""`python3 -m srft`: what remote mode needs on the tester's machine, printed."""

import argparse
import sys
from pathlib import Path

import yaml

from srft.lab import Lab
from srft.network import NetworkError
from srft.silence import silence


def remote(file: Path, segue: str | None) -> str:
    """A remote file for a network that was planned by this topology; the interfaces of the tester are left to fill in."""
    description = Lab(file, segue).description()
    hosts = {
        one.host: {
            "interface": f"INTERFACE of the tester that stands for {one.host}",
            "addresses": description.labels.values(f"${one.host}"),
            "gateway": one.gateway,
        }
        for one in description.attachments
    }
    skip = set(hosts) | {f"{host}.{family}" for host in hosts for family in ("ipv4", "ipv6")}
    labels = {
        name: values for name in description.labels if name not in skip for values in [description.labels.values(f"${name}")]
    }
    services = {}
    for one in description.services:
        entry: dict[str, object] = {"node": one.node, "ports": sorted(one.ports), "sids": sorted(one.sids)}
        services[one.name] = entry | ({"steered": True} if one.steered else {})
    found = {"name": description.name, "hosts": hosts, "services": services, "agents": {}, "labels": labels}
    return yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=120)


def main() -> int:
    """Runs a command; the exit status: 0, 1 (failed) or 2 (usage)."""
    parser = argparse.ArgumentParser(prog="python3 -m srft", description="Functional tests of service chains: for remote mode")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("remote", help="print a remote file for a network that was planned by a topology file")
    one.add_argument("topology", type=Path)
    one.add_argument("--segue", help="the segue program (default: $SEGUE, or that in PATH)")
    other = commands.add_parser("silence", help="print an nft ruleset that keeps the tester's kernel from answering")
    other.add_argument("interfaces", nargs="+", help="interfaces that stand for hosts")
    arguments = parser.parse_args()
    try:
        text = remote(arguments.topology, arguments.segue) if arguments.command == "remote" else silence(arguments.interfaces)
    except NetworkError as error:
        print(f"srft: {error}", file=sys.stderr)
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
