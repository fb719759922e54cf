# SPDX-License-Identifier: Apache-2.0
"""What functions do to packets: drop, refuse, rewrite; and what chains do beside leading to them."""

import pytest
from checks import nothing, there
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, UDPerror
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6TimeExceeded, IPerror6, IPv6
from scapy.packet import Packet

from srft import Crafter, Flow, Matcher, Test, Tester, expect, send
from srft.agent import Agent, Counters
from srft.craft import Step

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])
families = pytest.mark.parametrize("family", [4, 6])

#: Of an ICMP error a test says what it means, not how much it quotes, nor what the network did to what is quoted.
ERROR = Matcher(equal=lambda expected, received: meaning(expected) == meaning(received))


def meaning(packet: Packet) -> tuple[object, ...]:
    """Type, code, and addresses and ports of what an ICMP error quotes; for whom it is."""
    error = packet.getlayer(ICMP) or packet.getlayer(ICMPv6DestUnreach) or packet.getlayer(ICMPv6TimeExceeded)
    quoted = packet.getlayer(IPerror) or packet.getlayer(IPerror6)
    upper = packet.getlayer(UDPerror)
    if error is None or quoted is None or upper is None:
        return (packet.summary(),)
    return packet.dst, error.type, error.code, quoted.src, quoted.dst, upper.sport, upper.dport


def refused(
    port: int, family: int, hops: int = 64, unreachable: bool = True, codes: tuple[int, int] = (3, 4), **fields: int
) -> Crafter:
    """A datagram from client to server that does not arrive; an ICMP error comes back. `codes`: in IPv4 and in IPv6."""

    def craft(flow: Flow) -> list[Step]:
        packet = flow.ip("$client", "$server", family) / UDP(**{"sport": flow.port, "dport": port, **fields}) / flow.payload()
        if family == 4:
            packet.ttl = hops
            error = IP(dst=packet.src) / ICMP(type=3 if unreachable else 11, code=codes[0] if unreachable else 0)
            quoted = IPerror(bytes(packet))
        else:
            packet.hlim = hops
            error = IPv6(dst=packet.src) / (ICMPv6DestUnreach(code=codes[1]) if unreachable else ICMPv6TimeExceeded(code=0))
            quoted = IPerror6(bytes(packet))
        return [send(packet, "client"), expect(error / quoted, "client")]

    return Crafter(craft)


def steered(agent: Agent, before: Counters) -> dict[str, int]:
    """By policy: packets since; without what the hosts at the ends of the pseudowire say to their neighbours."""
    return {name: count for name, count in agent.counters().since(before).policies.items() if name != "srft-wire"}


@families
def test_function_drops(tester: Tester, family: int) -> None:
    tester.perform(Test(nothing(7015, family, sport=666), chain="filter"))


@families
def test_mark_tells_chains_apart(tester: Tester, family: int) -> None:
    """One SID, one namespace, two chains: the argument is the mark that rules see."""

    def passes(flow: Flow) -> list[Step]:
        packet = flow.ip("$client", "$server", family) / UDP(sport=666, dport=7009) / flow.payload()
        return [send(packet, "client"), expect(packet, "server")]

    tester.perform(Test(nothing(7008, family, sport=666), chain="netfilter"), Test(Crafter(passes), chain="netfilter-other"))


@families
def test_reject_in_netfilter_answers_the_client(tester: Tester, family: int) -> None:
    tester.perform(Test(refused(7008, family, sport=667), ERROR, chain="netfilter"))


@families
def test_destination_nat_and_its_reversal(tester: Tester, family: int) -> None:
    """The function rewrites ports; the exact proxy knows the packets all the same, both ways."""

    def craft(flow: Flow) -> list[Step]:
        client, server, port = flow.ip("$client", "$server", family), flow.ip("$server", "$client", family), flow.port
        return [
            send(client / UDP(sport=port, dport=7030) / flow.payload(1), "client"),
            expect(client / UDP(sport=port, dport=7031) / flow.payload(1), "server"),
            send(server / UDP(sport=7031, dport=port) / flow.payload(2), "server"),
            expect(server / UDP(sport=7030, dport=port) / flow.payload(2), "client"),
        ]

    tester.check(craft, chain="balanced", flows=4)


@families
def test_chain_in_one_direction(tester: Tester, family: int) -> None:
    """Without `reverse` answers take the plain way: the function sees none of them."""

    def craft(flow: Flow) -> list[Step]:
        question = flow.ip("$client", "$server", family) / UDP(sport=flow.port, dport=7040) / flow.payload(1)
        answer = flow.ip("$server", "$client", family) / UDP(sport=7040, dport=flow.port) / flow.payload(2)
        return [send(question, "client"), expect(question, "server"), send(answer, "server"), expect(answer, "client")]

    edge1, edge2 = tester.network.agent("edge1"), tester.network.agent("edge2")
    before = edge1.counters(), edge2.counters()
    tester.check(craft, chain="oneway")
    assert steered(edge1, before[0]) == {"oneway-forward": 1}
    assert steered(edge2, before[1]) == {}


@families
def test_full_packets_fit(tester: Tester, family: int) -> None:
    """What fills the access link's MTU goes through, headers of the domain and all."""
    size = 1500 - (20 if family == 4 else 40) - 8

    def craft(flow: Flow) -> list[Step]:
        packet = flow.ip("$client", "$server", family) / UDP(dport=7023) / flow.payload(size=size)
        return [send(packet, "client"), expect(packet, "server")]

    tester.check(craft, chain="apart", flows=2)


@families
def test_hop_limit_counts_routers_and_functions(tester: Tester, family: int) -> None:
    """The domain is one hop for the inner packet at each end; the function's kernel is another."""
    for chain, port, hops in (("none", 7013, 2), ("one", 7021, 4), ("two", 7022, 6)):

        def craft(flow: Flow, port: int = port, hops: int = hops) -> list[Step]:
            packet = flow.ip("$client", "$server", family) / UDP(dport=port) / flow.payload()
            arrived = packet.copy()
            if family == 4:
                packet.ttl, arrived.ttl = 60, 60 - hops
            else:
                packet.hlim, arrived.hlim = 60, 60 - hops
            return [send(packet, "client"), expect(arrived, "server")]

        tester.check(craft, Matcher(hops=True), chain=chain)


@families
def test_hop_limit_that_ends_at_the_headend(tester: Tester, family: int) -> None:
    tester.perform(Test(refused(7001, family, hops=1, unreachable=False), ERROR, chain="static"))


@families
def test_dscp_chooses_the_chain_and_stays(tester: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        mark = {"tos": 46 << 2} if family == 4 else {"tc": 46 << 2}
        packet = flow.ip("$client", "$server", family, **mark) / UDP(dport=9999) / flow.payload()
        return [send(packet, "client"), expect(packet, "server")]

    edge1 = tester.network.agent("edge1")
    before = edge1.counters()
    tester.check(craft, chain="voice")
    assert steered(edge1, before) == {"voice-forward": 1}


@families
def test_traffic_of_no_chain_takes_the_plain_way(tester: Tester, family: int) -> None:
    edge1 = tester.network.agent("edge1")
    before = edge1.counters()
    tester.perform(Test(there(6999, family)))
    assert steered(edge1, before) == {}


@families
def test_chain_of_five_kinds(tester: Tester, family: int) -> None:
    """TAP, exact proxy, netfilter, SR-aware function and firewall, one after the other."""
    tester.perform(Test(there(7024, family), chain="mixed", flows=3))


@families
def test_flows_at_the_same_time_do_not_mix(tester: Tester, family: int) -> None:
    """Many flows of many chains at once: each gets what is its own, and nothing else."""
    ports = {"static": 7001, "dynamic": 7002, "perflow": 7003, "exact-twice": 7006, "masq": 7007, "tapped": 7011, "apart": 7023}
    tester.perform(*(Test(there(port, family, 4), chain=chain, flows=6) for chain, port in ports.items()))


def test_flows_with_the_same_ports_do_not_mix(tester: Tester) -> None:
    """The same addresses and ports: the flow label tells them apart, as in the thesis."""

    def craft(flow: Flow) -> list[Step]:
        packet = flow.ipv6("$client", "$server") / UDP(sport=4321, dport=7005) / b"no token in here"
        return [send(packet, "client"), expect(packet, "server")]

    tester.check(craft, flows=16)


def test_tcp_segments_arrive_as_they_were_sent(tester: Tester) -> None:
    """One after the other of the same connection: what receives them must not make one of two."""

    def craft(flow: Flow) -> list[Step]:
        there, again = flow.ip("$client", "$server"), flow.ip("$server", "$client")
        syn = there / TCP(sport=flow.port, dport=80, flags="S", seq=100)
        both = again / TCP(sport=80, dport=flow.port, flags="SA", seq=300, ack=101)
        sizes = range(20)
        data = [
            there / TCP(sport=flow.port, dport=80, flags="PA", seq=101 + 100 * number, ack=301) / flow.payload(number, 100)
            for number in sizes
        ]
        return [
            send(syn, "client"),
            expect(syn, "server"),
            send(both, "server"),
            expect(both, "client"),
            *(send(segment, "client") for segment in data),
            *(expect(segment, "server") for segment in data),
        ]

    tester.check(craft, chain="web", flows=3)
