# SPDX-License-Identifier: Apache-2.0
"""The tester answers for hosts, so their kernels must not: neither port unreachable nor RST, nor forward what arrives."""

from collections.abc import Sequence

_RULES = """table inet srft {
    # Packet sockets, which the tester has, get what comes before this.
    chain input {
        type filter hook input priority raw; policy accept;
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept
        %(where)sdrop
    }
    chain forward {
        type filter hook forward priority raw; policy accept;
        %(where)sdrop
    }
}
"""


def silence(interfaces: Sequence[str] = ()) -> str:
    """A ruleset for nft that keeps the kernel silent on these interfaces, or on all, where nothing else is done than to test."""
    if not interfaces:
        return _RULES % {"where": ""}
    return _RULES % {"where": "iifname { " + ", ".join(f'"{name}"' for name in interfaces) + " } "}
