# SPDX-License-Identifier: Apache-2.0
"""Each assertion of a test can fail, and says why: the tester on a network that treats packets as a test likes."""

import re
import time
from collections.abc import Callable

import pytest
from fake import FakeNetwork, Fate, straight
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, IPerror6, IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import rdpcap

from srft import Crafter, Failure, Flow, Matcher, Sniffer, Test, Tester, expect, send
from srft.craft import Step
from srft.network import Service
from srft.sniff import filter_icmp, filter_srh


def craft(flow: Flow, family: int = 6) -> list[Step]:
    """Ten datagrams there."""
    packets = [flow.ip("$client", "$server", family) / UDP(dport=80) / flow.payload(number) for number in range(10)]
    return [send(packet, "client") for packet in packets] + [expect(packet, "server", (0, 0.2)) for packet in packets]


def run(tmp_path: object, fate: Callable[[Packet, str, int], Fate], *tests: Test) -> None:
    tester = Tester(FakeNetwork(fate), captures=tmp_path)
    tester.name = "a test"
    tester.perform(*(tests or [Test(Crafter(craft), patience=0.3)]))


def fails(tmp_path: object, fate: Callable[[Packet, str, int], Fate], *tests: Test) -> str:
    with pytest.raises(Failure) as failure:
        run(tmp_path, fate, *tests)
    return str(failure.value)


def changed(packet: Packet, **values: object) -> Packet:
    packet = packet.copy()
    for name, value in values.items():
        layer, _, field = name.partition("_")
        setattr(packet.getlayer(layer), field, value)
    return packet


def test_all_arrive(tmp_path: object) -> None:
    begun = time.monotonic()
    run(tmp_path, straight)
    assert time.monotonic() - begun < 0.3, "nobody waits for what has arrived"


def test_ipv4_all_arrive(tmp_path: object) -> None:
    run(tmp_path, straight, Test(Crafter(lambda flow: craft(flow, 4))))


def test_loss(tmp_path: object) -> None:
    text = fails(tmp_path, lambda packet, at, number: [] if number == 3 else straight(packet, at, number))
    assert "at server: lost 1 of 10 packets" in text
    assert "#3 IPv6 2001:db8:1::2 > 2001:db8:2::2 / UDP" in text


def test_duplicate(tmp_path: object) -> None:
    text = fails(tmp_path, lambda packet, at, number: [*straight(packet, at, 0)] * (2 if number == 4 else 1))
    assert "at server: duplicated 1 of 10 packets" in text
    assert "lost" not in text


def test_duplicate_of_the_last_packet_that_comes_a_little_later(tmp_path: object) -> None:
    def fate(packet: Packet, at: str, number: int) -> Fate:
        return [*straight(packet, at, 0), ("server", "in", 0.05, packet)] if number == 9 else straight(packet, at, 0)

    assert "duplicated 1 of 10 packets" in fails(tmp_path, fate)


def test_order(tmp_path: object) -> None:
    held: list[Packet] = []

    def fate(packet: Packet, at: str, number: int) -> Fate:
        if number == 2:
            held.append(packet)
            return []
        if number == 3:
            return [*straight(packet, at, 0), *straight(held[0], at, 0)]
        return straight(packet, at, 0)

    text = fails(tmp_path, fate)
    assert "at server: reordered 1 of 10 packets" in text
    assert "arrived in this order: #0 #1 #3 #2 #4" in text
    held.clear()
    run(tmp_path, fate, Test(Crafter(craft), Matcher(ordered=False)))


def test_delay_and_haste(tmp_path: object) -> None:
    def late(packet: Packet, at: str, number: int) -> Fate:
        return [("server", "in", 0.3 if number == 5 else 0.0, packet)]

    text = fails(tmp_path, late, Test(Crafter(craft)))
    assert "at server: delayed 1 of 10 packets" in text
    assert re.search(r"#5 arrived after 3\d\d\.\d ms; allowed are 0 to 200 ms", text)

    def slow(flow: Flow) -> list[Step]:
        packet = flow.ip("$client", "$server") / UDP() / flow.payload()
        return [send(packet, "client"), expect(packet, "server", (0.1, 1))]

    assert "at server: too early 1 of 1 packet" in fails(tmp_path, straight, Test(Crafter(slow)))
    run(tmp_path, lambda packet, at, number: [("server", "in", 0.15, packet)], Test(Crafter(slow)))


def test_changed_fields_are_named(tmp_path: object) -> None:
    text = fails(tmp_path, lambda packet, at, number: straight(changed(packet, UDP_dport=81, IPv6_tc=4), at, number))
    assert "at server: changed 10 of 10 packets" in text
    assert re.search(r"IPv6\.tc +expected 0, received 4", text)
    assert re.search(r"UDP\.dport +expected 80 \(0x50\), received 81 \(0x51\)", text)


def test_changed_payload(tmp_path: object) -> None:
    def fate(packet: Packet, at: str, number: int) -> Fate:
        wrong = packet.copy()
        wrong["Raw"].load = wrong["Raw"].load[:-1] + b"!"
        wrong[UDP].chksum = None
        return straight(IPv6(bytes(wrong)), at, number)

    assert "payload.load" in fails(tmp_path, fate)


@pytest.mark.parametrize("family", [4, 6])
def test_wrong_checksum(tmp_path: object, family: int) -> None:
    test = Test(Crafter(lambda flow: craft(flow, family)), patience=0.3)
    text = fails(tmp_path, lambda packet, at, number: straight(changed(packet, UDP_chksum=0x1234), at, number), test)
    assert "at server: corrupted a checksum of 10 of 10 packets" in text
    assert re.search(r"UDP\.chksum +expected \d+ \(0x[0-9a-f]+\), received 4660 \(0x1234\)", text)


def test_wrong_header_checksum(tmp_path: object) -> None:
    test = Test(Crafter(lambda flow: craft(flow, 4)), patience=0.3)
    text = fails(tmp_path, lambda packet, at, number: straight(changed(packet, IP_chksum=0x1234), at, number), test)
    assert "corrupted a checksum" in text
    assert "IPv4.chksum" in text


def test_hop_limits_count_if_they_are_to(tmp_path: object) -> None:
    def hop(packet: Packet, at: str, number: int) -> Fate:
        one_less = packet.copy()
        if IP in packet:
            one_less.ttl -= 1
            del one_less.chksum
            one_less = IP(bytes(one_less))
        else:
            one_less.hlim -= 1
        return straight(one_less, at, number)

    for family, field in ((4, "IPv4.ttl"), (6, "IPv6.hlim")):
        crafter = Crafter(lambda flow, family=family: craft(flow, family))
        run(tmp_path, hop, Test(crafter))
        assert field in fails(tmp_path, hop, Test(crafter, Matcher(hops=True), patience=0.3))


def test_leaked_srh(tmp_path: object) -> None:
    def fate(packet: Packet, at: str, number: int) -> Fate:
        srh = IPv6ExtHdrSegmentRouting(addresses=[packet.dst], segleft=0, nh=17)
        leaked = IPv6(src=packet.src, dst=packet.dst, fl=packet.fl, hlim=packet.hlim) / srh / packet[UDP]
        return straight(leaked, at, number)

    text = fails(tmp_path, fate)
    assert "at server: leaked a segment routing header on 10 of 10 packets" in text
    assert "received IPv6 / SRH / UDP / payload" in text


def test_leaked_envelope(tmp_path: object) -> None:
    text = fails(tmp_path, lambda packet, at, number: straight(IPv6(src="fc00::1", dst="fc00::2") / packet, at, number))
    assert "leaked a segment routing header on 10 of 10 packets" in text


def nothing(flow: Flow) -> list[Step]:
    return [send(flow.ip("$client", "$server") / UDP(dport=23) / flow.payload(), "client")]


def test_expectation_of_nothing(tmp_path: object) -> None:
    run(tmp_path, lambda *_: [], Test(Crafter(nothing)))
    text = fails(tmp_path, straight, Test(Crafter(nothing)))
    assert "at server: 1 packet that nobody expects" in text


def test_expectation_of_nothing_holds_everywhere(tmp_path: object) -> None:
    """An answer at the sender is not nothing."""

    def fate(packet: Packet, at: str, number: int) -> Fate:
        return [("client", "in", 0.0, IPv6(dst=packet.src) / ICMPv6DestUnreach(code=4) / IPerror6(bytes(packet)))]

    assert "at client: 1 packet that nobody expects" in fails(tmp_path, fate, Test(Crafter(nothing)))


def test_nothing_that_comes_late_is_seen(tmp_path: object) -> None:
    text = fails(tmp_path, lambda packet, at, number: [("server", "in", 0.2, packet)], Test(Crafter(nothing)))
    assert "nobody expects" in text


def test_what_follows_waits_for_what_is_expected(tmp_path: object) -> None:
    """A handshake: the answer is sent when the question has arrived."""
    order = []

    def fate(packet: Packet, at: str, number: int) -> Fate:
        order.append(at)
        return [("server" if at == "client" else "client", "in", 0.05, packet)]

    def handshake(flow: Flow) -> list[Step]:
        there = flow.ip("$client", "$server") / TCP(sport=1000, dport=80, flags="S")
        back = flow.ip("$server", "$client") / TCP(sport=80, dport=1000, flags="SA")
        return [send(there, "client"), expect(there, "server"), send(back, "server"), expect(back, "client")]

    run(tmp_path, fate, Test(Crafter(handshake)))
    assert order == ["client", "server"]
    order.clear()
    text = fails(tmp_path, lambda packet, at, number: order.append(at) or [], Test(Crafter(handshake), patience=0.1))
    assert order == ["client"]
    assert "at server: lost 1 of 1 packet" in text
    assert "at client: lost 1 of 1 packet" in text


def test_flows_do_not_mix(tmp_path: object) -> None:
    """The same packets but for the flow: each gets its own."""

    def same(flow: Flow) -> list[Step]:
        packet = flow.ipv6("$client", "$server") / UDP(sport=1, dport=2) / b"the same"
        return [send(packet, "client"), expect(packet, "server")]

    run(tmp_path, straight, Test(Crafter(same), flows=20))
    text = fails(
        tmp_path,
        lambda packet, at, number: [] if number == 7 else straight(packet, at, 0),
        Test(Crafter(same), flows=20, patience=0.2),
    )
    assert text.startswith("1 of 20 flows failed\n")


def test_tests_at_the_same_time_fail_alone(tmp_path: object) -> None:
    def fate(packet: Packet, at: str, number: int) -> Fate:
        return [] if packet[UDP].dport == 23 else straight(packet, at, number)

    def refused(flow: Flow) -> list[Step]:
        return [*nothing(flow), expect(flow.ip("$client", "$server") / UDP(dport=23) / flow.payload(), "server")]

    good, bad = Test(Crafter(craft), name="good"), Test(Crafter(refused), name="bad", patience=0.2)
    text = fails(tmp_path, fate, good, bad)
    assert text.startswith("1 of 2 flows failed\nbad: flow 0x")
    assert "good" not in text


def test_sniffer_filters(tmp_path: object) -> None:
    tester = Tester(FakeNetwork(straight), Sniffer(filter_icmp), tmp_path)
    with pytest.raises(Failure, match="lost 10 of 10"):
        tester.perform(Test(Crafter(craft), patience=0.1))
    srh = IPv6() / IPv6ExtHdrSegmentRouting(addresses=["fc00::1"])
    assert filter_srh(Ether() / srh)
    assert not filter_srh(Ether() / IPv6())
    assert filter_icmp(Ether() / IPv6() / ICMPv6DestUnreach())


def test_matching_function(tmp_path: object) -> None:
    """The thesis's: true if and only if two packets are similar."""
    matcher = Matcher(equal=lambda expected, received: expected[UDP].dport == received[UDP].dport, ordered=False)
    run(tmp_path, lambda packet, at, number: straight(changed(packet, IPv6_tc=number), at, number), Test(Crafter(craft), matcher))
    text = fails(
        tmp_path,
        lambda packet, at, number: straight(changed(packet, UDP_dport=7), at, number),
        Test(Crafter(craft), matcher, patience=0.2),
    )
    assert "UDP.dport" in text


def test_header_of_the_crafter(tmp_path: object) -> None:
    """The thesis's Crafter: a steering header in front of each packet that is sent."""
    seen = []

    def fate(packet: Packet, at: str, number: int) -> Fate:
        seen.append(packet)
        return straight(IPv6(bytes(packet.getlayer(IPv6, 2))), at, number)

    crafter = Crafter(craft, header=lambda flow: flow.steering("$client", "$nfv.filter", "$server"))
    run(tmp_path, fate, Test(crafter))
    assert seen[0].dst == "fc00:5e9:2:100::"
    assert seen[0][IPv6ExtHdrSegmentRouting].addresses == ["2001:db8:2::2", "fc00:5e9:2:100::"]


def test_capture_is_kept_and_named(tmp_path: object) -> None:
    text = fails(tmp_path, lambda packet, at, number: straight(changed(packet, UDP_dport=81), at, number))
    path = tmp_path / "a-test.pcapng"
    assert text.endswith(f"packets: {path}")
    # Sent, and received.
    assert len(rdpcap(str(path))) == 20
    assert all(place in path.read_bytes() for place in (b"client", b"server"))


def test_packets_of_nobody_are_told(tmp_path: object) -> None:
    def fate(packet: Packet, at: str, number: int) -> Fate:
        stranger = IPv6(src="2001:db8:9::9", dst="2001:db8:2::2") / UDP(sport=5, dport=6) / b"?"
        return straight(stranger, at, number)

    text = fails(tmp_path, fate)
    assert "10 packets of no test arrived meanwhile, such as" in text
    assert "server: IPv6 2001:db8:9::9 > 2001:db8:2::2 / UDP 5 > 6" in text


def by_way_of(function: Callable[[Packet, int], list[tuple[float, Packet]]]) -> Callable[[Packet, str, int], Fate]:
    """A network in which all packets visit the function `filter` on node nfv."""

    def fate(packet: Packet, at: str, number: int) -> Fate:
        seen: list[tuple[str, str, float, Packet]] = [("nfv filter-w", "out", 0.0, packet)]
        for delay, back in function(packet, number):
            seen += [("nfv filter-e", "in", delay, back), ("server", "in", delay, back)]
        return seen

    return fate


Function = Callable[[Packet, int], list[tuple[float, Packet]]]
SID, NEXT, SOURCE = "fc00:5e9:2:100::", "fc00:5e9:3:46::", "fc00:5ea:1::1"


def steered(packet: Packet, left: int) -> Packet:
    """A packet on its way to the function, or behind it."""
    header = IPv6(src=SOURCE, dst=SID if left else NEXT, fl=7) / IPv6ExtHdrSegmentRouting(addresses=[NEXT, SID], segleft=left)
    return header / packet


def by_way_of_steered(function: Function) -> Callable[[Packet, str, int], Fate]:
    """The same where the function gets packets with their steering header, and goes on in the list by itself."""

    def fate(packet: Packet, at: str, number: int) -> Fate:
        seen: list[tuple[str, str, float, Packet]] = [("nfv filter-p", "out", 0.0, steered(packet, 1))]
        for delay, back in function(packet, number):
            seen += [("nfv filter-p", "in", delay, steered(back, 0)), ("server", "in", delay, back)]
        return seen

    return fate


def by_way_of_inside(function: Function) -> Callable[[Packet, str, int], Fate]:
    """The same where the function has no port: it is in the data plane of its node, or in netfilter."""

    def fate(packet: Packet, at: str, number: int) -> Fate:
        seen: list[tuple[str, str, float, Packet]] = [("nfv west", "in", 0.0, steered(packet, 1))]
        for delay, back in function(packet, number):
            seen += [("nfv east", "out", delay, steered(back, 0)), ("far west", "in", delay, steered(back, 0))]
            seen += [("server", "in", delay, back)]
        return seen

    return fate


def with_srh(packet: Packet) -> Packet:
    """A packet that has kept a steering header."""
    return IPv6(src=packet.src, dst=packet.dst, fl=packet.fl) / IPv6ExtHdrSegmentRouting(addresses=[packet.dst]) / packet.payload


class Swaps:
    """A function that sends packet #1 behind #2, however long the tester takes from one to the next."""

    def __init__(self) -> None:
        self._held: Packet | None = None

    def __call__(self, packet: Packet, number: int) -> list[tuple[float, Packet]]:
        if number == 1:
            self._held = packet
            return []
        held, self._held = self._held, None
        return [(0.0, packet)] if held is None else [(0.0, packet), (0.0, held)]


KINDS = {
    "between ports": (by_way_of, Service("filter", "nfv", frozenset({"filter-w", "filter-e"}))),
    "that is steered": (by_way_of_steered, Service("filter", "nfv", frozenset({"filter-p"}), frozenset({SID}), True)),
    "in its node": (by_way_of_inside, Service("filter", "nfv", frozenset(), frozenset({SID}), False)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda packet, number: [] if number == 1 else [(0.0, packet)], "lost 1 of 10 packets"),
        (lambda packet, number: [(0.0, packet)] * (2 if number == 1 else 1), "duplicated 1 of 10 packets"),
        (lambda packet, number: [(0.0, changed(packet, UDP_chksum=1))], "corrupted a checksum of 10 of 10 packets"),
        (lambda packet, number: [(0.0, changed(packet, UDP_dport=1))], "changed 10 of 10 packets"),
        (lambda packet, number: [(0.25, packet)], "delayed 10 of 10 packets"),
        (Swaps(), "reordered 1 of 10 packets"),
        (
            lambda packet, number: [(0.0, with_srh(packet) if number == 1 else packet)],
            "leaked a segment routing header on 1 of 10",
        ),
    ],
)
def test_function_at_fault_is_named(tmp_path: object, function: Function, says: str, kind: str) -> None:
    way, service = KINDS[kind]
    network = FakeNetwork(way(function))
    # Another one, on the same way, that does nothing wrong: it is not named.
    network.services = [service, Service("other", "far", frozenset({"other-w", "other-e"}))]
    tester = Tester(network, captures=tmp_path)
    with pytest.raises(Failure) as failure:
        tester.perform(Test(Crafter(craft), chain="web", patience=0.35))
    text = str(failure.value)
    assert f"\n  service filter on nfv: {says}" in text
    assert "of chain web" in text
    assert "service other" not in text
    assert re.search(r"nfv (filter-[wp] +out|west +in) +10\n", text)


def test_innocent_function_is_not_named(tmp_path: object) -> None:
    """Lost behind the function: it gave back what it got."""

    def fate(packet: Packet, at: str, number: int) -> Fate:
        return [("nfv filter-w", "out", 0.0, packet), ("nfv filter-e", "in", 0.0, packet)]

    text = fails(tmp_path, fate)
    assert "no function is seen to be at fault" in text
    assert "service filter" not in text


def test_host_that_is_not_there(tmp_path: object) -> None:
    with pytest.raises(AssertionError):
        run(tmp_path, straight, Test(Crafter(lambda flow: [send(flow.ip("$client", "$server"), "nobody")])))


def test_nothing_to_send(tmp_path: object) -> None:
    with pytest.raises(ValueError, match="sends at least one packet"):
        run(tmp_path, straight, Test(Crafter(lambda flow: [expect(flow.ip("$client", "$server"), "server")])))
