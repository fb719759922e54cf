# SPDX-License-Identifier: Apache-2.0
"""Mutation tests: what the suite asserts of chains fails on broken functions, and says which one it is, and what it does.

Functions on TAP are broken from the beginning; packet services and functions in namespaces and netfilter get a broken program for
the time of a test, and a firewall has too narrow a limit.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from checks import transparent

from srft import Failure, Tester
from srft.lab import Lab

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])

BROKEN = {
    "eaten": (7302, "service eater on nfv2: lost"),
    "corrupted": (7303, "service corrupter on nfv2: corrupted a checksum of"),
    "doubled": (7304, "service doubler on nfv2: duplicated"),
    "shuffled": (7305, "service shuffler on nfv2: reordered"),
    "leaked": (7306, "service leaker on nfv2: leaked a segment routing header on"),
    "delayed": (7307, "service sleeper on nfv2: delayed"),
    "limited": (7308, "service choked on nfv2: lost"),
}
FAULTS = {
    "eats": "lost",
    "corrupts": "corrupted a checksum of",
    "duplicates": "duplicated",
    "reorders": "reordered",
    "leaks": "leaked a segment routing header on",
    "delays": "delayed",
}


def named(tester: Tester, chain: str, port: int, says: str) -> None:
    """What is asserted of every chain fails; the message names one function, and its fault."""
    with pytest.raises(Failure) as failure:
        transparent(tester, chain, port, patience=0.7)
    print(failure.value)
    assert says in str(failure.value)
    # And nobody else is.
    blamed = {line.split()[1] for line in str(failure.value).splitlines() if line.startswith("  service ")}
    assert blamed == {says.split()[1]}


@contextmanager
def running(lab: Lab, function: str, program: str, *arguments: str) -> Iterator[None]:
    """A program of the suite in the namespace of a function."""
    file = Path(__file__).parent / "functions" / program
    line = ["ip", "netns", "exec", lab.namespace(function), sys.executable, str(file), *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def queued(lab: Lab, function: str, fault: str) -> Iterator[None]:
    """A function whose packets wait for a broken program."""
    commands = ("iptables", "ip6tables")
    with running(lab, function, "queue.py", "7", fault):
        for command in commands:
            lab.execute(function, [command, "-A", "FORWARD", "-j", "NFQUEUE", "--queue-num", "7"])
        try:
            yield
        finally:
            for command in commands:
                lab.execute(function, [command, "-F", "FORWARD"])


@pytest.mark.parametrize("chain", BROKEN)
def test_broken_function_is_named_with_its_fault(tester: Tester, chain: str) -> None:
    named(tester, chain, *BROKEN[chain])


@pytest.mark.parametrize("fault", FAULTS)
def test_broken_packet_service_is_named_with_its_fault(tester: Tester, lab: Lab, fault: str) -> None:
    """The service `tun` on AF_XDP, in whose hands a broken program puts the packets."""
    with running(lab, "inline", "tun.py", "segue-tun", fault):
        named(tester, "inlined", 7408, f"service inline on nfv2: {FAULTS[fault]}")


#: The program says of each packet what becomes of it: it cannot double one.
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "duplicates"])
@pytest.mark.parametrize(("function", "chain", "port"), [("netfilter", "netfilter", 7008), ("exact", "exact", 7005)])
def test_broken_program_behind_netfilter_is_named_with_its_fault(
    tester: Tester, lab: Lab, function: str, chain: str, port: int, fault: str
) -> None:
    """In netfilter, on the inner packet without a port of the node; and in a namespace behind a proxy."""
    # That nothing is left of it is what test_chains.py sees.
    with queued(lab, function, fault):
        named(tester, chain, port, f"service {function} on nfv1: {FAULTS[fault]}")
