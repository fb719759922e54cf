# SPDX-License-Identifier: Apache-2.0
"""Packet services as they run, on AF_XDP: alone, by their SIDs, as the thesis tests them; and in chains of the thesis."""

import subprocess
import time
import zlib

import pytest
from checks import SOON, there, transparent
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.packet import Packet
from test_broken import running

from srft import Crafter, Flow, Matcher, Test, Tester, expect, send
from srft.craft import Step
from srft.lab import Lab

pytestmark = pytest.mark.topology("square.yaml", testers=["tester"])
families = pytest.mark.parametrize("family", [4, 6])

COUNT = 12
IPCOMP, AGGFRAG = 108, 144
DEFLATE = b"\x00\x02"
IN_IPV4, IN_IPV6 = 4, 41


def received(lab: Lab, service: str) -> int:
    """Packets that a service has got."""
    found: int = lab.service(service)["total"]["received"]
    return found


def bulky(port: int, family: int, source: str = "client", destination: str = "server", count: int = COUNT) -> Crafter:
    """Datagrams that compression makes smaller, one way; they must arrive as they are."""

    def craft(flow: Flow) -> list[Step]:
        ports = {"dport": port} if source == "client" else {"sport": port, "dport": flow.port}
        packets = [
            flow.ip(f"${source}", f"${destination}", family) / UDP(**ports) / flow.payload(number, 400 + 10 * number)
            for number in range(count)
        ]
        return [send(packet, source) for packet in packets] + [expect(packet, destination, SOON) for packet in packets]

    return Crafter(craft)


def inner(flow: Flow, family: int = 6, number: int = 0, size: int = 300) -> Packet:
    """What is in the steering header."""
    return flow.ip("$client", "$server", family) / UDP(dport=9999) / flow.payload(number, size)


def from_tester(flow: Flow, sid: str, payload: Packet | bytes, next_header: int) -> Packet:
    """What the tester sends over a SID and back to itself."""
    header = flow.steering("$tester", sid, "$tester")
    header[1].nh = next_header
    return header / payload


def behind(packet: Packet) -> tuple[int, bytes]:
    """What is behind a steering header: its number, and its octets."""
    return packet[1].nh, bytes(packet[1].payload)


@pytest.mark.parametrize(("chain", "port"), [("forwarded", 7401), ("counted", 7402), ("watched", 7407)])
def test_service_that_changes_nothing(tester: Tester, lab: Lab, chain: str, port: int) -> None:
    service = {"forwarded": "forward", "counted": "counter", "watched": "tun"}[chain]
    before = received(lab, service)
    transparent(tester, chain, port)
    # Three flows there of each family, and a question with its answers. Copies come a moment later.
    expected = before + 2 * (3 * 20 + 21)
    deadline = time.monotonic() + 5
    while received(lab, service) < expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert received(lab, service) == expected


@families
@pytest.mark.parametrize(("chain", "port"), [("packed", 7403), ("bulked", 7404), ("thesis", 7405), ("all-services", 7409)])
def test_what_is_packed_is_unpacked(tester: Tester, lab: Lab, chain: str, port: int, family: int) -> None:
    """Several flows at once: all arrive once, in order, as they were."""
    services = {"packed": ["compress", "decompress"], "bulked": ["bulk", "debulk"]}.get(
        chain, ["bulk", "compress", "decompress", "debulk"]
    )
    before = {name: received(lab, name) for name in services}
    tester.perform(Test(bulky(port, family), chain=chain, flows=3))
    moved = {name: received(lab, name) - count for name, count in before.items()}
    assert moved[services[0]] == 3 * COUNT
    # Aggregates are fewer packets.
    assert all(0 < count <= 3 * COUNT for count in moved.values())
    if "bulk" in services:
        assert moved["debulk"] < 3 * COUNT


@families
@pytest.mark.parametrize(("chain", "port"), [("packed", 7403), ("bulked", 7404), ("thesis", 7405)])
def test_answers_are_packed_and_unpacked_too(tester: Tester, chain: str, port: int, family: int) -> None:
    tester.perform(Test(bulky(port, family, "server", "client"), chain=f"{chain}-back"))


@families
def test_small_datagrams_through_the_thesis_chain(tester: Tester, family: int) -> None:
    """Too small to be compressed alone; aggregates of them are not."""
    tester.perform(Test(there(7405, family, 30, SOON), chain="thesis", flows=2))


def test_segments_through_the_thesis_chain(tester: Tester) -> None:
    """As in the thesis: successive segments of one connection are bulked, compressed, and come out as they were."""

    def craft(flow: Flow) -> list[Step]:
        header = flow.ip("$client", "$server")
        segments = [
            header / TCP(sport=flow.port, dport=7405, flags="A", seq=1 + 100 * number, ack=1) / flow.payload(number, 100)
            for number in range(COUNT)
        ]
        return [send(segment, "client") for segment in segments] + [expect(segment, "server", SOON) for segment in segments]

    tester.check(craft, chain="thesis-tcp", flows=2)


@families
def test_compress_makes_ipcomp_of_packets(tester: Tester, family: int) -> None:
    """RFC 3173 with RFC 2394: what comes out inflates to what went in, and is smaller; the steering header stays as it is."""
    number = IN_IPV4 if family == 4 else IN_IPV6

    def equal(expected: Packet, found: Packet) -> bool:
        kind, octets = behind(found)
        whole = behind(expected)[1]
        assert (kind, octets[0], octets[1:4]) == (IPCOMP, number, b"\x00" + DEFLATE), found.summary()
        assert len(octets) < len(whole)
        return zlib.decompress(octets[4:], -15) == whole and found.fl == expected.fl and found[1].segleft == 0

    def craft(flow: Flow) -> list[Step]:
        sent = from_tester(flow, "$nfv1.compress", inner(flow, family), number)
        return [send(sent, "tester"), expect(sent, "tester")]

    tester.check(craft, Matcher(equal=equal), flows=2)


def test_compress_leaves_small_packets_as_they_are(tester: Tester) -> None:
    def craft(flow: Flow) -> list[Step]:
        sent = from_tester(flow, "$nfv1.compress", inner(flow, size=12), IN_IPV6)
        arrived = sent.copy()
        arrived.dst, arrived[1].segleft = flow.labels.address("$tester"), 0
        return [send(sent, "tester"), expect(arrived, "tester")]

    tester.check(craft)


@families
def test_decompress_makes_packets_whole(tester: Tester, family: int) -> None:
    """What another maker's IPComp has compressed with DEFLATE."""
    number = IN_IPV4 if family == 4 else IN_IPV6

    def craft(flow: Flow) -> list[Step]:
        whole = flow.mark(inner(flow, family))
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = bytes([number, 0]) + DEFLATE + packer.compress(bytes(whole)) + packer.flush()
        sent = from_tester(flow, "$nfv2.decompress", packed, IPCOMP)
        arrived = from_tester(flow, "$nfv2.decompress", whole, number)
        arrived.dst, arrived[1].segleft = flow.labels.address("$tester"), 0
        return [send(sent, "tester"), expect(arrived, "tester")]

    tester.check(craft)


def test_decompress_drops_what_it_cannot_read(tester: Tester, lab: Lab) -> None:
    def craft(flow: Flow) -> list[Step]:
        damaged = bytes([IN_IPV6, 0]) + DEFLATE + b"\xff" * 40
        unknown = bytes([IN_IPV6, 0]) + b"\x00\x09" + b"\xff" * 40
        return [send(from_tester(flow, "$nfv2.decompress", packed, IPCOMP), "tester") for packed in (damaged, unknown)]

    before = lab.service("decompress")["total"]["dropped_received"]
    tester.check(craft)
    after = lab.service("decompress")["total"]["dropped_received"]
    moved = {reason: count - before.get(reason, 0) for reason, count in after.items() if count != before.get(reason, 0)}
    assert moved == {"corrupt_compression": 1, "unknown_compression": 1}


def blocks(octets: bytes) -> list[bytes]:
    """The packets of an AGGFRAG payload of whole blocks (RFC 9347)."""
    assert octets[:4] == bytes(4), octets[:4]
    rest, found = octets[4:], []
    while rest:
        version = rest[0] >> 4
        length = int.from_bytes(rest[2:4], "big") if version == 4 else 40 + int.from_bytes(rest[4:6], "big")
        assert version in (4, 6)
        assert length <= len(rest)
        found.append(rest[:length])
        rest = rest[length:]
    return found


@families
def test_bulk_puts_packets_into_one(tester: Tester, family: int) -> None:
    """Four that come together leave in one AGGFRAG payload, in order."""
    number = IN_IPV4 if family == 4 else IN_IPV6
    count = 4
    got: list[bytes] = []

    def equal(_: Packet, found: Packet) -> bool:
        kind, octets = behind(found)
        got.extend(blocks(octets) if kind == AGGFRAG else [octets])
        return True

    def craft(flow: Flow) -> list[Step]:
        packets = [from_tester(flow, "$nfv1.patient", flow.mark(inner(flow, family, one)), number) for one in range(count)]
        craft.sent = [behind(packet)[1] for packet in packets]  # type: ignore[attr-defined]
        return [*(send(packet, "tester") for packet in packets), expect(packets[0], "tester")]

    tester.check(craft, Matcher(equal=equal))
    seen = list(dict.fromkeys(got))
    assert seen == craft.sent  # type: ignore[attr-defined]


@families
def test_debulk_takes_packets_apart(tester: Tester, family: int) -> None:
    number = IN_IPV4 if family == 4 else IN_IPV6

    def craft(flow: Flow) -> list[Step]:
        packets = [flow.mark(inner(flow, family, one)) for one in range(3)]
        sent = from_tester(flow, "$nfv2.debulk", bytes(4) + b"".join(bytes(packet) for packet in packets), AGGFRAG)
        steps: list[Step] = [send(sent, "tester")]
        for packet in packets:
            arrived = from_tester(flow, "$nfv2.debulk", packet, number)
            arrived.dst, arrived[1].segleft = flow.labels.address("$tester"), 0
            steps.append(expect(arrived, "tester"))
        return steps

    # Each gets the flow label of its own flow.
    tester.check(craft, Matcher(ignore=["IPv6.fl"]))


def test_debulk_drops_what_is_no_aggregate(tester: Tester, lab: Lab) -> None:
    def craft(flow: Flow) -> list[Step]:
        return [send(from_tester(flow, "$nfv2.debulk", bytes(4) + b"\x90" * 40, AGGFRAG), "tester")]

    before = lab.service("debulk")["total"]["dropped_received"].get("corrupt_aggregate", 0)
    tester.check(craft)
    assert lab.service("debulk")["total"]["dropped_received"]["corrupt_aggregate"] == before + 1


@families
def test_tcp_bulk_merges_segments_that_follow(tester: Tester, lab: Lab, family: int) -> None:
    """All octets arrive, in order, in fewer segments."""
    count, size = 8, 100
    before = lab.service("tcpbulk")["total"]

    def craft(flow: Flow) -> list[Step]:
        header = flow.ip("$client", "$server", family, **({"flags": "DF"} if family == 4 else {}))
        parts = [flow.payload(number, size) for number in range(count)]
        segments = [
            header / TCP(sport=flow.port, dport=7406, flags="A", seq=1 + size * number, ack=1, window=1000) / part
            for number, part in enumerate(parts)
        ]
        merged = header / TCP(sport=flow.port, dport=7406, flags="A", seq=1, ack=1, window=1000) / b"".join(parts)
        return [*(send(segment, "client") for segment in segments), expect(merged, "server")]

    tester.check(craft, chain="merged")
    after = lab.service("tcpbulk")["total"]
    assert after["received"] - before["received"] == count


@families
def test_tcp_bulk_leaves_what_does_not_follow(tester: Tester, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        header = flow.ip("$client", "$server", family)
        syn = header / TCP(sport=flow.port, dport=7406, flags="S", seq=1)
        far = header / TCP(sport=flow.port, dport=7406, flags="A", seq=5000, ack=1) / flow.payload(1)
        return [send(syn, "client"), send(far, "client"), expect(syn, "server"), expect(far, "server")]

    tester.check(craft, chain="merged", flows=2)


@families
@pytest.mark.parametrize("reverse", [False, True])
def test_refragment_puts_fragments_together(tester: Tester, family: int, reverse: bool) -> None:
    """In any order; the filter behind it sees one whole packet, and so does the server."""

    def craft(flow: Flow) -> list[Step]:
        mark = {"tos": 10 << 2} if family == 4 else {"tc": 10 << 2}
        whole = flow.mark(flow.ip("$client", "$server", family, **mark) / UDP(dport=7500) / flow.payload(size=1300))
        parts = pieces(flow, whole)
        assert len(parts) > 2
        order = reversed(parts) if reverse else parts
        return [*(send(part, "client") for part in order), expect(whole, "server")]

    tester.check(craft, chain="whole", flows=2)


def pieces(flow: Flow, whole: Packet) -> list[Packet]:
    """Fragments of a packet."""
    if isinstance(whole, IP):
        return [IP(bytes(part)) for part in fragment(whole, 500)]
    head = IPv6(src=whole.src, dst=whole.dst, fl=whole.fl, tc=whole.tc)
    parts = fragment6(head / IPv6ExtHdrFragment(id=flow.label) / whole.payload, 600)
    return [IPv6(bytes(part)) for part in parts]


@families
def test_refragment_drops_fragments_that_overlap(tester: Tester, lab: Lab, family: int) -> None:
    def craft(flow: Flow) -> list[Step]:
        mark = {"tos": 10 << 2} if family == 4 else {"tc": 10 << 2}
        whole = flow.mark(flow.ip("$client", "$server", family, **mark) / UDP(dport=7500) / flow.payload(size=1300))
        first, second, *rest = pieces(flow, whole)
        moved = second.copy()
        if family == 4:
            moved.frag -= 1
            del moved.chksum
        else:
            moved[IPv6ExtHdrFragment].offset -= 1
        return [send(part, "client") for part in (first, moved, *rest)]

    def overlaps() -> int:
        total = lab.service("refragment")["total"]
        return sum(total[kind].get("fragment_overlap", 0) for kind in ("dropped_received", "dropped_taken"))

    before = overlaps()
    tester.check(craft, chain="whole")
    assert overlaps() > before


def test_program_behind_tun_is_inline(tester: Tester, lab: Lab) -> None:
    """It gets bare packets, and what it gives back goes on in its chain."""
    with running(lab, "inline", "tun.py", "segue-tun"):
        transparent(tester, "inlined", 7408)


def test_copies_on_tun_are_bare(tester: Tester, lab: Lab) -> None:
    """What tcpdump sees there has no steering header."""
    line = ["ip", "netns", "exec", lab.namespace("tun"), "tcpdump", "-n", "-l", "-i", "segue-tun", "-c", "5", "udp"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        while b"listening on" not in process.stderr.readline():
            assert process.poll() is None
        tester.perform(Test(there(7407, 6, 5), chain="watched"))
        shown, _ = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    lines = shown.decode().splitlines()
    server = tester.labels.address("$server")
    assert len(lines) == 5
    assert all(f"> {server}.7407: UDP, length 32" in one for one in lines), lines


def test_counter_counts_flows(tester: Tester, lab: Lab) -> None:
    """By their addresses and ports, in packets."""

    def packets() -> dict[int, int]:
        flows = lab.service("counter")["workers"][0]["report"]["flows"]
        return {flow["source_port"]: flow["packets"] for flow in flows if flow["destination_port"] == 7402}

    def craft(flow: Flow) -> list[Step]:
        packets = [flow.ip("$client", "$server") / UDP(sport=6000, dport=7402) / flow.payload(number) for number in range(9)]
        return [send(packet, "client") for packet in packets] + [expect(packet, "server") for packet in packets]

    before = packets().get(6000, 0)
    tester.check(craft, chain="counted")
    deadline = time.monotonic() + 5
    while packets().get(6000, 0) < before + 9 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert packets()[6000] == before + 9
