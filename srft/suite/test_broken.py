# SPDX-License-Identifier: Apache-2.0
"""Mutation tests: what the suite asserts of chains fails on broken functions, and says which one it is, and what it does."""

import pytest
from checks import transparent

from srft import Failure, Tester

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])

BROKEN = {
    "eaten": (7302, "service eater on nfv2: lost"),
    "corrupted": (7303, "service corrupter on nfv2: corrupted a checksum of"),
    "doubled": (7304, "service doubler on nfv2: duplicated"),
    "shuffled": (7305, "service shuffler on nfv2: reordered"),
    "leaked": (7306, "service leaker on nfv2: leaked a segment routing header on"),
    "delayed": (7307, "service sleeper on nfv2: delayed"),
}


@pytest.mark.parametrize("chain", BROKEN)
def test_broken_function_is_named_with_its_fault(tester: Tester, chain: str) -> None:
    port, says = BROKEN[chain]
    with pytest.raises(Failure) as failure:
        transparent(tester, chain, port, patience=1.0)
    print(failure.value)
    assert says in str(failure.value)
    # And nobody else is.
    blamed = {line.split()[1] for line in str(failure.value).splitlines() if line.startswith("  service ")}
    assert blamed == {says.split()[1]}
