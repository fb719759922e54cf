# SPDX-License-Identifier: Apache-2.0
"""The functional experiments of P4-SFC, in SRv6: three chains, and that every function and every forwarding node got the packets.

A: one function. B: two functions on one host. C: functions on different hosts, delivery alternating with forwarding.
"""

import pytest
from checks import COUNT, back, there

from srft import Test, Tester
from srft.lab import Lab

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])
families = pytest.mark.parametrize("family", [4, 6])

CHAINS = {
    "one": (7021, ["nfv1.a0"]),
    "two": (7022, ["nfv1.b0", "nfv1.b1"]),
    "apart": (7023, ["nfv1.c0", "nfv2.c1"]),
}


def delivered(tester: Tester, direction: str = "") -> dict[str, tuple[int, int]]:
    """Packets that each function of the three chains has got, and given back."""
    nodes = {node: tester.network.agent(node).counters() for node in ("nfv1", "nfv2")}
    found = {}
    for chain, (_, functions) in CHAINS.items():
        for name in functions:
            sid = tester.labels.address(f"${name}.{chain}{direction}")
            counters = nodes[name.split(".")[0]]
            found[name] = (counters.sids[sid], counters.returned[sid])
    return found


def forwarded(lab: Lab) -> int:
    """IPv6 packets that the kernel of the node in the middle has forwarded."""
    shown = lab.execute("core", ["nstat", "-asz", "Ip6OutForwDatagrams"])
    return int(next(line for line in shown.splitlines() if line.startswith("Ip6OutForwDatagrams")).split()[1])


@families
@pytest.mark.parametrize("chain", CHAINS)
def test_functions_of_the_chain_get_all_packets_and_others_none(tester: Tester, lab: Lab, chain: str, family: int) -> None:
    port, functions = CHAINS[chain]
    before, passed = delivered(tester), forwarded(lab)
    tester.perform(Test(there(port, family), chain=chain))
    moved = {name: (count - before[name][0], back - before[name][1]) for name, (count, back) in delivered(tester).items()}
    assert moved == {name: (COUNT, COUNT) if name in functions else (0, 0) for name in moved}
    assert forwarded(lab) - passed >= COUNT


@pytest.mark.parametrize("chain", CHAINS)
def test_answers_visit_the_same_functions(tester: Tester, chain: str) -> None:
    port, functions = CHAINS[chain]
    before = delivered(tester, ".reverse")
    tester.perform(Test(back(port, 6, 7), chain=chain))
    moved = {name: count - before[name][0] for name, (count, _) in delivered(tester, ".reverse").items()}
    assert moved == {name: 7 if name in functions else 0 for name in moved}
