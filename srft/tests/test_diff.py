# SPDX-License-Identifier: Apache-2.0
"""Differences by layer and field; checksums by what they must be."""

import pytest
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, fragment
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Padding

from srft.diff import (
    canonical,
    checksums_fit,
    differences,
    from_frame,
    has_steering_header,
    names,
    summary,
    wrong_checksums,
)

V6 = IPv6(src="2001:db8::1", dst="2001:db8::2", fl=7)
V4 = IP(src="10.0.0.1", dst="10.0.0.2", id=7)
SRH = IPv6ExtHdrSegmentRouting(addresses=["2001:db8::2", "fc00::1"], segleft=1, lastentry=1)
PACKETS = [
    V4 / UDP(sport=1, dport=2) / b"x",
    V4 / TCP(sport=1, dport=2, options=[("MSS", 1400), ("Timestamp", (1, 2))]) / b"x",
    V4 / ICMP() / b"x",
    V6 / UDP(sport=1, dport=2) / b"x",
    V6 / TCP(sport=1, dport=2) / b"x",
    V6 / ICMPv6EchoRequest() / b"x",
    IPv6(src="fc00::9", dst="fc00::1") / SRH / V4 / UDP() / b"x",
    IPv6(src="fc00::9", dst="fc00::1") / SRH / V6 / TCP() / b"x",
    V4 / ICMP(type=3, code=3) / IPerror(bytes(V4 / UDP() / b"x")),
    Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / V6 / UDP() / b"x",
]
shown = pytest.mark.parametrize("packet", PACKETS, ids=[packet.summary().replace(" ", "") for packet in PACKETS])


@shown
def test_packet_is_like_itself(packet: Packet) -> None:
    assert differences(canonical(packet), canonical(packet)) == []
    assert wrong_checksums(canonical(packet)) == []
    assert checksums_fit(canonical(packet), canonical(packet))


@shown
def test_every_octet_counts(packet: Packet) -> None:
    """Whichever octet of a packet changes, it is seen; what is ignored on purpose here is nothing."""
    right = canonical(packet)
    data = bytes(right)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :]
        received = type(packet)(changed)
        found = differences(right, received)
        assert found or not checksums_fit(right, received), f"octet {at} of {len(data)}"


def test_fields_are_named_from_the_outside_in() -> None:
    inner = canonical(V6 / V6 / UDP(dport=5))
    other = canonical(V6.copy() / IPv6(src="2001:db8::1", dst="2001:db8::3", fl=8) / UDP(dport=6))
    assert [difference.name for difference in differences(inner, other)] == ["IPv6 (2).fl", "IPv6 (2).dst", "UDP.dport"]
    assert names(inner) == ["IPv6", "IPv6 (2)", "UDP"]
    assert [difference.name for difference in differences(inner, other, ["IPv6.fl", "UDP"])] == ["IPv6 (2).dst"]


def test_layers_that_are_too_many_or_too_few() -> None:
    found = differences(canonical(V6 / UDP()), canonical(IPv6(dst="fc00::1") / SRH / V6 / UDP()))
    assert [str(difference).split() for difference in found] == [
        ["layers", "expected", "IPv6", "/", "UDP,", "received", "IPv6", "/", "SRH", "/", "IPv6", "/", "UDP"]
    ]


def test_checksum_is_judged_by_the_packet_that_has_it() -> None:
    """Not by what was expected: a packet whose TTL is one less has another one, and that is right."""
    right, less = canonical(V4 / UDP()), canonical(IP(src=V4.src, dst=V4.dst, id=7, ttl=63) / UDP())
    assert right.chksum != less.chksum
    assert differences(right, less, ["IPv4.ttl"]) == []
    assert checksums_fit(right, less)
    less.chksum ^= 1
    assert [difference.name for difference in differences(right, IP(bytes(less)), ["IPv4.ttl"])] == ["IPv4.chksum"]
    assert not checksums_fit(right, IP(bytes(less)))


def test_no_checksum_is_one_only_where_it_may_be() -> None:
    assert wrong_checksums(IP(bytes(V4 / UDP(chksum=0) / b"x"))) == []
    assert [one.name for one in wrong_checksums(IP(bytes(V4 / TCP(chksum=0) / b"x")))] == ["TCP.chksum"]


def test_fragments_have_no_checksum_to_judge() -> None:
    for part in fragment(V4 / UDP() / bytes(100), 56):
        assert wrong_checksums(IP(bytes(part))) == []
    assert wrong_checksums(IPv6(bytes(V6 / IPv6ExtHdrFragment(m=1, nh=17) / UDP(chksum=5) / b"x"))) == []


def test_padding_of_the_link_is_nothing() -> None:
    frame = Ether() / V4 / UDP() / b"x"
    assert Padding not in from_frame(bytes(frame) + bytes(20))
    assert differences(canonical(V4 / UDP() / b"x"), from_frame(bytes(frame) + bytes(20)).payload) == []


def test_steering_headers() -> None:
    assert has_steering_header(V6 / SRH / UDP())
    assert has_steering_header(V6 / V4 / UDP())
    assert has_steering_header(MPLS(label=16001, s=1) / V4 / UDP())
    assert not has_steering_header(V6 / UDP())
    assert not has_steering_header(canonical(V4 / ICMP(type=3) / IPerror(bytes(V4 / UDP()))))


def test_summary() -> None:
    text = summary(canonical(IPv6(src="fc00::9", dst="fc00::1") / SRH / V4 / UDP(sport=1, dport=2) / b"abc"))
    assert text == (
        "IPv6 fc00::9 > fc00::1 / SRH <fc00::1, 2001:db8::2> left 1 / IPv4 10.0.0.1 > 10.0.0.2 / UDP 1 > 2 / 3 octets: 616263"
    )
