# SPDX-License-Identifier: Apache-2.0
"""Functions of every kind behind labels: planned, wired, and none of them changes what it should not."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from checks import nothing, there, transparent

from srft import Test, Tester
from srft.lab import Lab

pytestmark = pytest.mark.topology("labels.yaml")

CHAINS = {
    "none": 7001,
    "static": 7002,
    "dynamic": 7003,
    "perflow": 7004,
    "perflow-far": 7005,
    "exact": 7006,
    "exact-twice": 7007,
    "single": 7008,
    "tapped": 7009,
    "netfilter": 7010,
    "fw": 7011,
    "apart": 7012,
    "mixed": 7013,
    "first": 7015,
    "ends": 7016,
}
PATIENCE = 20.0
SPARE = "function spare, all chains, west to east"


@pytest.mark.parametrize("chain", CHAINS)
def test_chain_is_transparent(tester: Tester, chain: str) -> None:
    transparent(tester, chain, CHAINS[chain])


@pytest.mark.parametrize("family", [4, 6])
def test_rules_see_the_packet_behind_the_labels(tester: Tester, family: int) -> None:
    before = tester.network.agent("nfv").counters()
    tester.perform(Test(nothing(7014, family), chain="mixed"))
    assert tester.network.agent("nfv").counters().since(before).drops == {"drop_firewall": 3}
    tester.perform(Test(nothing(7010, family, sport=666), chain="netfilter"))


def wait_for(tester: Tester, function: str, alive: bool) -> None:
    """Waits until the agent has seen it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = tester.network.agent("nfv").get("/v1/functions")
        states = [entry["state"] for entry in found if str(entry.get("comment")).startswith(f"function {function}")]
        if states and all((state == "up") == alive for state in states):
            return
        assert time.monotonic() < deadline, f"{function} did not go {'up' if alive else 'down'}: {found}"
        time.sleep(0.02)


@contextmanager
def down(tester: Tester, lab: Lab, function: str) -> Iterator[None]:
    """A function whose links are down."""
    wait_for(tester, function, True)
    for side in ("west", "east"):
        lab.execute(function, ["ip", "link", "set", side, "down"])
    try:
        wait_for(tester, function, False)
        yield
    finally:
        for side in ("west", "east"):
            lab.execute(function, ["ip", "link", "set", side, "up"])
        wait_for(tester, function, True)


@pytest.mark.parametrize(("function", "chain", "port"), [("meter", "metered", 7041), ("shared", "shared", 7044)])
def test_reroute_to_the_backup(tester: Tester, lab: Lab, function: str, chain: str, port: int) -> None:
    """The packets of both families go to the spare, and on by the rest of their own stack."""
    spare = [entry["sid"] for entry in tester.network.agent("nfv").get("/v1/sids") if entry.get("comment") == SPARE]
    with down(tester, lab, function):
        before = tester.network.agent("nfv").counters()
        tester.perform(Test(there(port, 6, 5), chain=chain), Test(there(port, 4, 5), chain=chain))
        moved = tester.network.agent("nfv").counters().since(before)
        assert [moved.returned.get(label) for label in spare] == [10]


def test_bypass(tester: Tester, lab: Lab) -> None:
    with down(tester, lab, "optional"):
        tester.perform(Test(there(7042, 6, 5), chain="bypassed"), Test(there(7042, 4, 5), chain="bypassed"))


def test_drop(tester: Tester, lab: Lab) -> None:
    with down(tester, lab, "strict"):
        before = tester.network.agent("nfv").counters()
        tester.perform(Test(nothing(7043, 6, 3), chain="strict"), Test(nothing(7043, 4, 3), chain="strict"))
        assert tester.network.agent("nfv").counters().since(before).drops == {"drop_function_down": 6}
