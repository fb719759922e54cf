# SPDX-License-Identifier: Apache-2.0
"""Chains of each kind of function change nothing that they should not."""

import pytest
from checks import transparent

from srft import Tester

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])

CHAINS = {
    "none": 7013,
    "waypoint": 7012,
    "full": 7014,
    "static": 7001,
    "dynamic": 7002,
    "perflow": 7003,
    "perflow-far": 7004,
    "exact": 7005,
    "exact-twice": 7006,
    "masq": 7007,
    "netfilter": 7008,
    "netfilter-other": 7009,
    "aware": 7010,
    "tapped": 7011,
    "filter": 7015,
    "one": 7021,
    "two": 7022,
    "apart": 7023,
    "healthy": 7301,
}


@pytest.mark.parametrize("chain", CHAINS)
def test_chain_is_transparent(tester: Tester, chain: str) -> None:
    transparent(tester, chain, CHAINS[chain])
