# SPDX-License-Identifier: Apache-2.0
"""Functions that go down: their packets take the way that the operator chose, and the old one when they are back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from checks import nothing, there

from srft import Test, Tester
from srft.lab import Lab

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])

PATIENCE = 20.0


def wait_for(tester: Tester, function: str, alive: bool) -> None:
    """Waits until the agent has seen it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = tester.network.agent("nfv2").get("/v1/functions")
        states = [entry["state"] for entry in found if entry.get("comment") == f"function {function}"]
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


def test_reroute_to_the_backup(tester: Tester, lab: Lab) -> None:
    nfv1 = tester.network.agent("nfv1")
    with down(tester, lab, "meter"):
        before = nfv1.counters()
        tester.perform(Test(there(7041, 6, 5), chain="metered"), Test(there(7041, 4, 5), chain="metered"))
        # The spare, on the other node.
        assert 10 in nfv1.counters().since(before).returned.values()


def test_bypass(tester: Tester, lab: Lab) -> None:
    with down(tester, lab, "optional"):
        tester.perform(Test(there(7042, 6, 5), chain="bypassed"), Test(there(7042, 4, 5), chain="bypassed"))


def test_drop(tester: Tester, lab: Lab) -> None:
    """A firewall must not be walked around: that it is down means that nothing passes, and the reason says so."""
    with down(tester, lab, "strict"):
        before = tester.network.agent("nfv2").counters()
        tester.perform(Test(nothing(7043, 6, 3), chain="strict"), Test(nothing(7043, 4, 3), chain="strict"))
        assert tester.network.agent("nfv2").counters().since(before).drops == {"drop_function_down": 6}
