# SPDX-License-Identifier: Apache-2.0
"""Firewalls in chains: what rules allow passes, what they refuse is refused as they say, what they drop is gone."""

import time
from collections.abc import Sequence

import pytest
from checks import nothing, there
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest
from scapy.packet import Packet
from test_functions import ERROR, families, refused

from srft import Crafter, Flow, Matcher, Test, Tester, expect, send
from srft.craft import Step
from srft.lab import Lab
from srft.tester import PATIENCE

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])


def handshake(port: int, family: int, host: str = "client") -> Crafter:
    """SYN, SYN and ACK, ACK, an octet and its acknowledgement: all have to arrive."""

    def craft(flow: Flow) -> list[Step]:
        there, back = flow.ip(f"${host}", "$server", family), flow.ip("$server", f"${host}", family)
        client, server = {"sport": flow.port, "dport": port}, {"sport": port, "dport": flow.port}
        segments = [
            (host, "server", there / TCP(**client, flags="S", seq=1000)),
            ("server", host, back / TCP(**server, flags="SA", seq=5000, ack=1001)),
            (host, "server", there / TCP(**client, flags="A", seq=1001, ack=5001)),
            (host, "server", there / TCP(**client, flags="PA", seq=1001, ack=5001) / b"x"),
            ("server", host, back / TCP(**server, flags="A", seq=5001, ack=1002)),
        ]
        return [step for at, to, packet in segments for step in (send(packet, at), expect(packet, to))]

    return Crafter(craft)


def begun_by(at: str, source: str, destination: str, upper: Packet, family: int) -> Crafter:
    """One packet of which nothing may arrive."""
    return Crafter(lambda flow: [send(flow.ip(source, destination, family) / upper.copy(), at)])


@families
@pytest.mark.parametrize("port", [80, 443, 8080])
def test_connections_to_allowed_ports(tester: Tester, port: int, family: int) -> None:
    tester.perform(Test(handshake(port, family), chain="web"))


@families
@pytest.mark.parametrize("port", [23, 25])
def test_connections_to_other_ports_are_reset(tester: Tester, port: int, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        syn = flow.ip("$client", "$server", family) / TCP(sport=flow.port, dport=port, flags="S", seq=1000)
        reset = flow.ip("$server", "$client", family) / TCP(sport=port, dport=flow.port, flags="RA", seq=0, ack=1001, window=0)
        return [send(syn, "client"), expect(reset, "client")]

    tester.check(craft, Matcher(ignore=["IPv4.id", "IPv4.flags", "IPv6.fl", "IPv4.tos", "IPv6.tc"]), chain="web")


@families
def test_datagrams_and_their_answers(tester: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        question = flow.ip("$client", "$server", family) / UDP(sport=flow.port, dport=7100) / flow.payload(1)
        answer = flow.ip("$server", "$client", family) / UDP(sport=7100, dport=flow.port) / flow.payload(2)
        return [send(question, "client"), expect(question, "server"), send(answer, "server"), expect(answer, "client")]

    tester.check(craft, chain="datagrams", flows=3)


@families
def test_other_datagrams_are_rejected(tester: Tester, family: int) -> None:
    tester.perform(Test(refused(7101, family), ERROR, chain="datagrams"))


@families
def test_server_begins_nothing(tester: Tester, family: int) -> None:
    """The policy of FORWARD: datagrams and segments of no connection."""
    datagram, segment = UDP(sport=7100, dport=4444) / b"x", TCP(sport=80, dport=4444, flags="SA", seq=1, ack=1)
    before = tester.network.agent("nfv2").counters()
    tester.perform(
        Test(begun_by("server", "$server", "$client", datagram, family), chain="datagrams"),
        Test(begun_by("server", "$server", "$client", segment, family), chain="web"),
    )
    assert tester.network.agent("nfv2").counters().since(before).drops == {"drop_firewall": 2}


@families
def test_pings_pass_and_their_answers(tester: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        echo, reply = (ICMP(type=8), ICMP(type=0)) if family == 4 else (ICMPv6EchoRequest(), ICMPv6EchoReply())
        question = flow.ip("$client", "$server", family) / echo / flow.payload(1)
        answer = flow.ip("$server", "$client", family) / reply / flow.payload(1)
        return [send(question, "client"), expect(question, "server"), send(answer, "server"), expect(answer, "client")]

    tester.check(craft, chain="pings", flows=2)


@families
def test_guest_may_use_the_web(tester: Tester, family: int) -> None:
    tester.perform(Test(handshake(80, family, "guest"), chain="guests"))


@families
def test_guest_may_use_nothing_else(tester: Tester, family: int) -> None:
    """And is not told so: no RST, no ICMP error."""
    segment, datagram = TCP(sport=4445, dport=443, flags="S"), UDP(sport=4445, dport=7100) / b"x"
    tester.perform(
        Test(begun_by("guest", "$guest", "$server", segment, family), chain="guests"),
        Test(begun_by("guest", "$guest", "$server", datagram, family), chain="guests"),
    )


def test_fragments_of_allowed_datagrams_pass(tester: Tester) -> None:
    def craft(flow: Flow) -> list[Step]:
        whole = flow.ipv4("$client", "$server") / UDP(sport=flow.port, dport=7100) / flow.payload(size=2000)
        parts = [IP(bytes(part)) for part in fragment(whole, 1000)]
        return [send(part, "client") for part in parts] + [expect(part, "server") for part in parts]

    tester.check(craft, chain="datagrams")


def test_later_fragments_alone_are_dropped(tester: Tester) -> None:
    """A firewall that tracks connections lets none pass whose first one has not come."""

    def craft(flow: Flow) -> list[Step]:
        whole = flow.ipv4("$client", "$server") / UDP(sport=flow.port, dport=7100) / flow.payload(size=2000)
        return [send(IP(bytes(part)), "client") for part in fragment(whole, 1000)[1:]]

    # Without ports nothing can say that they are of this chain: they are steered into none, and so must arrive.
    def plain(flow: Flow) -> list[Step]:
        steps = craft(flow)
        return steps + [expect(step.packet, "server") for step in steps]

    tester.check(plain)

    def guests(flow: Flow) -> list[Step]:
        whole = flow.ipv4("$guest", "$server") / UDP(sport=flow.port, dport=7100) / flow.payload(size=2000)
        return [send(IP(bytes(part)), "guest") for part in fragment(whole, 1000)[1:]]

    tester.check(guests, chain="guests")


def test_rules_count(tester: Tester) -> None:
    """The counter of the rule that matched moves, by as many packets as were sent, and no other rule's."""

    def counts() -> dict[str, int]:
        firewalls = {entry["name"]: entry for entry in tester.network.agent("nfv2").get("/v1/firewalls")}
        return {row["name"]: row["packets"] for row in firewalls["fw"]["rules"]}

    before = counts()
    tester.perform(Test(refused(7101, 6), ERROR, chain="datagrams"))
    moved = {name: count - before[name] for name, count in counts().items() if count != before[name]}
    # The goto to `services` is a rule too.
    assert {name.split(" -A ")[1] for name in moved} == {
        "FORWARD -s 2001:db8:1::/64 -d 2001:db8:2::/64 -g services",
        "services -p udp -j REJECT --reject-with icmp6-port-unreachable",
    }
    assert set(moved.values()) == {1}


def scanned(tester: Tester, craft: Crafter, chain: str) -> int:
    """Packets that the scanner behind the gate has got."""
    nfv2 = tester.network.agent("nfv2")
    sid = tester.labels.address("$nfv2.scanner")
    before = nfv2.counters()
    tester.perform(Test(craft, chain=chain))
    return nfv2.counters().since(before).sids.get(sid, 0)


@families
@pytest.mark.parametrize(("chain", "port", "packets"), [("gated", 7200, 3), ("skipped", 7210, 0)])
def test_argument_decides_what_the_gate_does(tester: Tester, chain: str, port: int, packets: int, family: int) -> None:
    """SERA's eval-args: argument 0 goes on to the scanner, 1 skips it; the packets arrive either way."""

    def craft(flow: Flow) -> list[Step]:
        data = [
            flow.ip("$client", "$server", family) / UDP(sport=flow.port, dport=port) / flow.payload(number) for number in range(3)
        ]
        return [send(packet, "client") for packet in data] + [expect(packet, "server") for packet in data]

    assert scanned(tester, Crafter(craft), chain) == packets


#: By destination port: the functions behind the firewall that its target has the packet visit, in the chain's order.
ACTS = {
    "go-next": (7220, ["scanner", "spare"]),
    "skip-next": (7221, ["spare"]),
    "go-last": (7222, []),
    "accept": (7223, ["scanner", "spare"]),
    "mark": (7224, ["spare"]),
    "log": (7225, ["scanner", "spare"]),
    "nflog": (7226, ["scanner", "spare"]),
    "chain": (7227, []),
    "return": (7228, ["spare"]),
}


def visited(tester: Tester, tests: Sequence[Test]) -> dict[str, int]:
    """Packets that the functions behind `acts` have got by this."""
    at = {"scanner": "nfv2", "spare": "nfv1"}
    before = {function: tester.network.agent(node).counters() for function, node in at.items()}
    tester.perform(*tests)
    moved = {function: tester.network.agent(node).counters().since(before[function]) for function, node in at.items()}
    counts = {function: moved[function].sids.get(tester.labels.address(f"${at[function]}.{function}"), 0) for function in at}
    return {function: count for function, count in counts.items() if count}


@families
@pytest.mark.parametrize("target", ACTS)
def test_target_decides_what_is_visited(tester: Tester, target: str, family: int) -> None:
    """SERA's actions, and what leads to them: marks, user chains, RETURN, targets that decide nothing."""
    port, functions = ACTS[target]
    assert visited(tester, [Test(there(port, family, count=3), chain="acted")]) == dict.fromkeys(functions, 3)


@families
@pytest.mark.parametrize(("port", "target"), [(7229, "drop"), (7232, "policy")])
def test_target_drops(tester: Tester, port: int, target: str, family: int) -> None:
    nfv2 = tester.network.agent("nfv2")
    before = nfv2.counters()
    assert visited(tester, [Test(nothing(port, family), chain="acted")]) == {}, target
    assert nfv2.counters().since(before).drops == {"drop_firewall": 3}, target


@families
@pytest.mark.parametrize(("port", "codes"), [(7230, (1, 3)), (7231, (3, 4))])
def test_target_rejects_in_the_family_of_the_packet(tester: Tester, port: int, codes: tuple[int, int], family: int) -> None:
    """Address unreachable, port unreachable; an IPv4 packet, too, though the rules are for IPv6."""
    assert visited(tester, [Test(refused(port, family, codes=codes), ERROR, chain="acted")]) == {}


@families
def test_log_and_nflog_record_the_packet(tester: Tester, lab: Lab, family: int) -> None:
    """LOG's line in the agent's log, NFLOG's frame with its prefix in the file of its group; both packets go on."""
    port, mark = 41000 + family, f"recorded, family {family}".encode()

    def craft(flow: Flow) -> list[Step]:
        header = flow.ip("$client", "$server", family)
        packets = [header / UDP(sport=port, dport=to) / mark for to in (7225, 7226)]
        return [send(packet, "client") for packet in packets] + [expect(packet, "server") for packet in packets]

    tester.perform(Test(Crafter(craft), chain="acted"))
    records = lab.kept("nfv2") / "nflog-7.pcapng"
    deadline = time.monotonic() + PATIENCE
    while True:
        lines = [line for line in lab.log("nfv2").read_text().splitlines() if "acts: " in line and f"SPT={port} DPT=7225" in line]
        frames = records.read_bytes() if records.exists() else b""
        if (lines and mark in frames) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert len(lines) == 1, lines
    assert frames.count(mark) == 1
    assert b"acts: " in frames


def test_gate_drops_what_comes_from_outside_the_domain_list(tester: Tester) -> None:
    """The gate's rules look at the SRH: a list that does not end at edge2 is not for it."""

    def craft(flow: Flow) -> list[Step]:
        inner = flow.ipv6("$client", "$server") / UDP(dport=7200) / flow.payload()
        return [send(flow.steering("$tester", "$nfv2.gate.gated", "$nfv2.scanner", "$tester") / inner, "tester")]

    before = tester.network.agent("nfv2").counters()
    tester.check(craft)
    time.sleep(0.05)
    assert tester.network.agent("nfv2").counters().since(before).drops == {"drop_firewall": 1}
