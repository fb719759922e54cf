# SPDX-License-Identifier: Apache-2.0
"""Endpoint and headend behaviours, by packets that the tester sends from inside of the SR domain, and that come back to it."""

import copy
from typing import Any

import pytest
from checks import there
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6TimeExceeded, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from srft import Crafter, Flow, Matcher, Test, Tester, expect, send
from srft.craft import Step
from srft.lab import Lab

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])
families = pytest.mark.parametrize("family", [4, 6])

NFV1 = "fc00:5e9:2:"
CORE, NFV2, EDGE2 = "$core.end", "$nfv2.end", "$edge2.end-dt46"
#: Where chains have different arguments behind the same SID.
LABELS = {"netfilter": "$nfv1.netfilter.netfilter"}
MADE = "srft's suite"
#: Of what a node puts on, the flow label is its own choice (RFC 8754 section 5.4 leaves it open).
OUTER = Matcher(ignore=["IPv6.fl"])


def inner(flow: Flow, family: int = 6, destination: str = "$server") -> Packet:
    """What is in the steering header."""
    return flow.ip("$client", destination, family) / UDP(dport=9999) / flow.payload()


@pytest.fixture
def extended(tester: Tester, lab: Lab) -> Tester:
    """SIDs that the planner never makes, on nfv1; policies and ports of layer 2 on the edges. Once for all tests."""
    core = tester.labels.address(CORE)
    to_tester = tester.labels.address("$tester.nfv1")
    lab.execute("nfv1", ["ip", "-6", "route", "replace", "default", "via", to_tester, "dev", "tester", "table", "77"])
    lab.execute("nfv1", ["ip", "route", "replace", "10.0.2.0/24", "via", "inet6", to_tester, "dev", "tester", "table", "77"])
    sids: list[dict[str, Any]] = [
        {"sid": f"{NFV1}201::", "behaviour": "End", "flavours": ["PSP"]},
        {"sid": f"{NFV1}202::", "behaviour": "End", "flavours": ["USD"]},
        {"sid": f"{NFV1}203::", "behaviour": "End", "flavours": ["USP"]},
        {"sid": f"{NFV1}204::", "behaviour": "End.X", "next_hop": to_tester, "port": "tester"},
        {"sid": f"{NFV1}205::", "behaviour": "End.T", "table": 77},
        {"sid": f"{NFV1}206::", "behaviour": "End.DX6", "next_hop": to_tester},
        {"sid": f"{NFV1}207::", "behaviour": "End.DX4"},
        {"sid": f"{NFV1}208::", "behaviour": "End.DT6", "table": 77},
        {"sid": f"{NFV1}209::", "behaviour": "End.DT4", "table": 77},
        {"sid": f"{NFV1}20a::", "behaviour": "End.B6.Encaps", "policy": "srft-full"},
        {"sid": f"{NFV1}20b::", "behaviour": "End.B6.Encaps.Red", "policy": "srft-reduced"},
    ]
    policies = [
        {"name": "srft-full", "mode": "H.Encaps", "segment_lists": [{"segments": [core, tester.labels.address("$tester")]}]},
        {
            "name": "srft-reduced",
            "mode": "H.Encaps.Red",
            "segment_lists": [{"segments": [core, tester.labels.address("$tester")]}],
        },
    ]
    # H.Insert leaves the client's own source address on what comes to the SID: the operator has to allow it.
    extend(tester, "nfv1", sids, policies, source_prefix="2001:db8:1::/64")
    insert = {"name": "srft-insert", "mode": "H.Insert", "segment_lists": [{"segments": [f"{NFV1}201::"]}]}
    wire = {"name": "srft-wire", "mode": "H.Encaps.L2.Red", "segment_lists": [{"segments": ["fc00:5e9:5:2::"]}]}
    steering = {
        "name": "srft-insert",
        "destination": tester.labels.address("$server") + "/128",
        "protocol": "udp",
        "destination_ports": [7050],
        "priority": 9,
        "policy": "srft-insert",
    }
    back = {"name": "srft-wire", "mode": "H.Encaps.L2", "segment_lists": [{"segments": [core, "fc00:5e9:1:2::"]}]}
    left, right = (
        {"sid": f"fc00:5e9:{node}:2::", "behaviour": "End.DX2", "port": port} for node, port in ((1, "left"), (5, "right"))
    )
    extend(tester, "edge1", [left], [insert, wire], [steering], {"left": "srft-wire"})
    extend(tester, "edge2", [right], [back], [], {"right": "srft-wire"})
    return tester


def extend(
    tester: Tester,
    node: str,
    sids: list[dict[str, Any]],
    policies: list[dict[str, Any]],
    steering: list[dict[str, Any]] | None = None,
    wires: dict[str, str] | None = None,
    source_prefix: str | None = None,
) -> None:
    """Adds to the state of a node, if it is not there yet."""
    agent = tester.network.agent(node)
    state = agent.state()
    if any(sid.get("comment") == MADE for sid in state["sids"]):
        return
    state = copy.deepcopy(state)
    state["sids"] += [sid | {"comment": MADE} for sid in sids]
    state["policies"] += policies
    state["steering"] += steering or []
    state["domain"]["source_prefixes"] += [source_prefix] if source_prefix else []
    for port in state["ports"]:
        if policy := (wires or {}).get(port["name"]):
            port["l2_policy"] = policy
    agent.apply(state)


def through(flow: Flow, segments: list[str], packet: Packet, reduced: bool = False) -> list[Step]:
    """Sent over segments that end at the tester, and expected there as the last but the tester's segment leaves it."""
    sent = flow.steering("$tester", *segments, "$tester", reduced=reduced)
    arrived = sent.copy()
    arrived.dst = flow.labels.address("$tester")
    arrived[1].segleft = 0
    return [send(sent / packet, "tester"), expect(arrived / packet, "tester")]


@families
@pytest.mark.parametrize("reduced", [False, True])
def test_end(tester: Tester, family: int, reduced: bool) -> None:
    tester.check(lambda flow: through(flow, ["$nfv1.end"], inner(flow, family), reduced))


def test_end_over_three_nodes_one_of_them_the_kernel(tester: Tester) -> None:
    tester.check(lambda flow: through(flow, ["$nfv1.end", CORE, NFV2, CORE], inner(flow)), flows=4)


@families
@pytest.mark.parametrize("function", ["static", "dynamic", "perflow", "exact", "netfilter", "aware", "tapped", "masq"])
def test_function_by_its_sid(tester: Tester, function: str, family: int) -> None:
    """As in the thesis: the list names the service, and ends at the tester, to whom the packet comes back as it was.

    The static proxy is the exception that it has to be: it goes on as it is configured, to edge2, and so to the server.
    """

    def craft(flow: Flow) -> list[Step]:
        packet = inner(flow, family)
        if function != "static":
            return through(flow, [LABELS.get(function, f"$nfv1.{function}")], packet)
        sent = flow.steering("$tester", "$nfv1.static", EDGE2) / packet
        return [send(sent, "tester"), expect(packet, "server")]

    tester.check(craft, OUTER if function in ("dynamic", "perflow", "tapped") else Matcher())


@families
def test_end_dt46_takes_the_header_off(tester: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        return [
            send(flow.steering("$tester", NFV2, EDGE2) / inner(flow, family), "tester"),
            expect(inner(flow, family), "server"),
        ]

    tester.check(craft)


@families
def test_end_dt46_without_an_srh(tester: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        sent = flow.steering("$tester", EDGE2, reduced=True) / inner(flow, family)
        return [send(sent, "tester"), expect(inner(flow, family), "server")]

    tester.check(craft)


def test_psp_takes_the_srh_off_one_segment_before_the_end(extended: Tester) -> None:
    def craft(flow: Flow) -> list[Step]:
        sent = flow.steering("$tester", f"{NFV1}201::", "$tester") / inner(flow)
        return [send(sent, "tester"), expect(flow.ipv6("$tester", "$tester") / inner(flow), "tester")]

    extended.check(craft)


@families
def test_usd_takes_the_outer_header_off(extended: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        return [
            send(flow.steering("$tester", f"{NFV1}202::") / inner(flow, family), "tester"),
            expect(inner(flow, family), "server"),
        ]

    extended.check(craft)


def test_usp_lets_the_node_answer(extended: Tester) -> None:
    def craft(flow: Flow) -> list[Step]:
        question = flow.steering("$tester", f"{NFV1}203::") / ICMPv6EchoRequest(id=flow.ident) / flow.payload()
        answer = flow.ipv6(f"{NFV1}203::", "$tester") / ICMPv6EchoReply(id=flow.ident) / flow.payload()
        return [send(question, "tester"), expect(answer, "tester")]

    extended.check(craft, OUTER)


def test_sids_can_be_pinged(tester: Tester) -> None:
    def craft(flow: Flow) -> list[Step]:
        question = flow.ipv6("$tester", "$nfv1.end") / ICMPv6EchoRequest(id=flow.ident) / flow.payload()
        answer = flow.ipv6("$nfv1.end", "$tester") / ICMPv6EchoReply(id=flow.ident) / flow.payload()
        return [send(question, "tester"), expect(answer, "tester")]

    tester.check(craft, OUTER)


def cross(flow: Flow, sid: str) -> list[Step]:
    """Comes back to the tester by its link, although the next segment is elsewhere."""
    sent = flow.steering("$tester", sid, NFV2) / inner(flow)
    arrived = sent.copy()
    arrived.dst, arrived[1].segleft = flow.labels.address(NFV2), 0
    return [send(sent, "tester"), expect(arrived, "tester")]


def test_end_x_goes_where_it_says_whatever_the_next_segment(extended: Tester) -> None:
    extended.check(lambda flow: cross(flow, f"{NFV1}204::"))


def test_end_t_looks_into_its_table(extended: Tester) -> None:
    extended.check(lambda flow: cross(flow, f"{NFV1}205::"))


@pytest.mark.parametrize(("sid", "family"), [("206", 6), ("208", 6), ("209", 4)])
def test_inner_packet_goes_by_next_hop_or_table(extended: Tester, sid: str, family: int) -> None:
    """End.DX6, End.DT6, End.DT4: bare, and to the tester, although the server is elsewhere."""

    def craft(flow: Flow) -> list[Step]:
        return [
            send(flow.steering("$tester", f"{NFV1}{sid}::") / inner(flow, family), "tester"),
            expect(inner(flow, family), "tester"),
        ]

    extended.check(craft)


def test_end_dx4_without_a_next_hop_goes_by_route(extended: Tester) -> None:
    def craft(flow: Flow) -> list[Step]:
        return [send(flow.steering("$tester", f"{NFV1}207::") / inner(flow, 4), "tester"), expect(inner(flow, 4), "server")]

    extended.check(craft)


@pytest.mark.parametrize(("sid", "reduced"), [("20a", False), ("20b", True)])
def test_binding_sid_puts_a_policy_on_top(extended: Tester, sid: str, reduced: bool) -> None:
    """End.B6.Encaps and its reduced form: what came stays as it is below, one segment further."""

    def craft(flow: Flow) -> list[Step]:
        sent = flow.steering("$tester", f"{NFV1}{sid}::", NFV2) / inner(flow)
        below = sent.copy()
        below.dst, below[1].segleft = flow.labels.address(NFV2), 0
        outer = flow.steering("$nfv1", CORE, "$tester", reduced=reduced)
        outer.dst, outer[1].segleft = flow.labels.address("$tester"), 0
        return [send(sent, "tester"), expect(outer / below, "tester")]

    extended.check(craft, OUTER)


def test_inserted_header_is_gone_before_the_host(extended: Tester) -> None:
    """H.Insert at the edge, PSP at nfv1: the server sees the packet as the client sent it."""
    edge1 = extended.network.agent("edge1")
    before = edge1.counters()
    extended.perform(Test(there(7050, 6, 5)))
    assert edge1.counters().since(before).policies["srft-insert"] == 5


@pytest.mark.parametrize(("at", "to"), [("left", "right"), ("right", "left")])
def test_pseudowire_carries_frames_as_they_are(extended: Tester, at: str, to: str) -> None:
    """H.Encaps.L2.Red one way, H.Encaps.L2 the other, End.DX2: link-layer addresses and all."""

    def craft(flow: Flow) -> list[Step]:
        addresses = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
        frame = Ether(**addresses, type=0x86DD) / IPv6(src="2001:db8:f::1", dst="2001:db8:f::2") / UDP(dport=1) / flow.payload()
        return [send(frame, at), expect(frame, to)]

    extended.check(craft, Matcher(hops=True), flows=3)


def test_hop_limit_of_the_outer_header(tester: Tester) -> None:
    """At an endpoint too: the node says so to the source of the steering header."""

    def craft(flow: Flow) -> list[Step]:
        sent = flow.steering("$tester", "$nfv1.end", CORE, "$tester", hlim=1) / inner(flow)
        return [send(sent, "tester"), expect(IPv6(dst=sent.src) / ICMPv6TimeExceeded(code=0), "tester")]

    def error(expected: Packet, received: Packet) -> bool:
        return expected.dst == received.dst and received.haslayer(ICMPv6TimeExceeded) and received[ICMPv6TimeExceeded].code == 0

    tester.check(craft, Matcher(equal=error))


def test_what_is_wrong_at_a_sid_is_dropped_for_its_reason(tester: Tester) -> None:
    """Segments Left beyond the list, a next segment that is no unicast address: counted by name, and nothing goes on."""
    agent = tester.network.agent("nfv1")

    def too_many(flow: Flow) -> list[Step]:
        packet = flow.steering("$tester", "$nfv1.end", CORE, "$tester") / inner(flow)
        packet[1].segleft = 9
        return [send(packet, "tester"), expect(IPv6(dst=packet.src), "tester")]

    def multicast(flow: Flow) -> list[Step]:
        return [send(flow.steering("$tester", "$nfv1.end", "ff02::1", "$tester") / inner(flow), "tester")]

    # An ICMPv6 error of type 4 comes back.
    problem = Matcher(equal=lambda expected, received: received.dst == expected.dst and "ICMPv6ParamProblem" in received)
    before = agent.counters()
    tester.perform(Test(Crafter(too_many), problem), Test(Crafter(multicast)))
    assert agent.counters().since(before).drops == {"drop_segments_left": 1, "drop_bad_next_segment": 1}


def test_nothing_of_segment_routing_comes_in_from_outside(tester: Tester) -> None:
    """An SRH on an access port, and a plain packet to a SID (RFC 8754 section 5.1)."""
    agent = tester.network.agent("edge1")

    def srh(flow: Flow) -> list[Step]:
        return [send(flow.steering("$client", "$server", "$server") / UDP(dport=1) / flow.payload(), "client")]

    def sid(flow: Flow) -> list[Step]:
        return [send(flow.ipv6("$client", EDGE2) / inner(flow), "client")]

    before = agent.counters()
    tester.perform(Test(Crafter(srh)), Test(Crafter(sid)))
    assert agent.counters().since(before).drops == {"drop_sr_from_outside": 1, "drop_sid_from_outside": 1}


def test_nothing_comes_to_sids_from_a_source_outside_the_domain(tester: Tester) -> None:
    agent = tester.network.agent("nfv1")

    def craft(flow: Flow) -> list[Step]:
        return [send(flow.steering("2001:db8:bad::1", "$nfv1.end", "$tester") / inner(flow), "tester")]

    before = agent.counters()
    tester.check(craft)
    assert agent.counters().since(before).drops == {"drop_source_outside_domain": 1}


def test_inner_packet_to_a_sid_does_not_enter_twice(tester: Tester) -> None:
    agent = tester.network.agent("edge2")

    def craft(flow: Flow) -> list[Step]:
        return [send(flow.steering("$tester", EDGE2) / flow.ipv6("$client", EDGE2) / IP() / UDP(), "tester")]

    before = agent.counters()
    tester.check(craft)
    assert agent.counters().since(before).drops == {"drop_inner_to_sid": 1}
