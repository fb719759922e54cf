# SPDX-License-Identifier: Apache-2.0
"""What services have packed is taken apart, and no octets make that fail."""

import random
import zlib
from collections.abc import Callable

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from srft import unpack
from srft.flow import Flow
from srft.sniff import Sniffer
from srft.wire import Frame

NEXT, SID = "fc00:5e9:3:46::", "fc00:5e9:2:100::"
#: Literals, a match that overlaps itself, more literals; by the format's description.
LZ4 = bytes([0x44]) + b"abcd" + bytes([4, 0]) + bytes([0x30]) + b"xyz"


def frame(kind: int, body: bytes) -> bytes:
    header = IPv6(src="fc00:5ea:1::1", dst=SID) / IPv6ExtHdrSegmentRouting(addresses=[NEXT, SID], segleft=1, nh=kind)
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x86DD) / header / body)


def inner(number: int) -> Packet:
    header = IP(src="10.0.1.2", dst="10.0.2.2") if number % 2 else IPv6(src="2001:db8:1::2", dst="2001:db8:2::2")
    return header / UDP(sport=1, dport=number) / (b"x" * 300)


def deflated(kind: int, body: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return bytes([kind, 0, 0, 2]) + packer.compress(body) + packer.flush()


def test_what_is_not_packed_is_itself() -> None:
    for data in (frame(41, bytes(inner(2))), frame(17, b"abc"), b"", b"x" * 100):
        assert unpack.frames(data) == [data]


@pytest.mark.parametrize("number", [1, 2])
def test_compressed_packets(number: int) -> None:
    kind = 4 if number % 2 else 41
    plain = frame(kind, bytes(inner(number)))
    assert unpack.frames(frame(108, deflated(kind, bytes(inner(number))))) == [plain]


def test_lz4() -> None:
    assert unpack.lz4(LZ4) == b"abcd" + b"abcdabcd" + b"xyz"
    long = bytes([0xF0, 255, 10]) + bytes(15 + 255 + 10)
    assert unpack.lz4(long) == bytes(280)
    for broken in (bytes([0x11]) + b"a" + bytes([9, 0]), bytes([0x11]) + b"a" + bytes([0, 0])):
        with pytest.raises(ValueError, match="nowhere"):
            unpack.lz4(broken)


def test_aggregates_and_aggregates_that_are_compressed() -> None:
    packets = [bytes(inner(number)) for number in range(4)]
    aggregate = bytes(4) + b"".join(packets) + bytes(7)
    plain = [frame(4 if number % 2 else 41, packet) for number, packet in enumerate(packets)]
    assert unpack.frames(frame(144, aggregate)) == plain
    assert unpack.frames(frame(108, deflated(144, aggregate))) == plain


@pytest.mark.parametrize("packed", [lambda body: frame(144, body), lambda body: frame(108, deflated(144, body))])
def test_packets_of_several_flows_are_each_flows_own(packed: Callable[[bytes], bytes]) -> None:
    flows = [Flow(0x10001), Flow(0x20002)]
    ends = {"src": "2001:db8:1::2", "dst": "2001:db8:2::2"}
    packets = [bytes(IPv6(**ends, fl=flow.label) / UDP(sport=1, dport=2) / flow.payload(7)) for flow in flows]
    sniffer = Sniffer()
    for flow in flows:
        sniffer.watch(flow, [])
    sniffer.take(Frame(1, "node port", "in", packed(bytes(4) + b"".join(packets))), False)
    # Whoever asks, and however often.
    for flow, packet in [*zip(flows, packets, strict=True)] * 2:
        assert [seen.frame.data for seen in sniffer.inside(flow, 0)] == [frame(41, packet)]
    assert sniffer.inside(flows[0], 2) == []


def test_nothing_makes_it_fail() -> None:
    chance = random.Random(7)
    wholes = [
        frame(144, bytes(4) + bytes(inner(1)) * 2),
        frame(108, deflated(144, bytes(4) + bytes(inner(2)))),
        frame(108, b"\x29\0\xf0\0" + LZ4),
    ]
    for whole in wholes:
        assert unpack.frames(whole) != [whole]
        for _ in range(2000):
            data = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            found = unpack.frames(bytes(data[: chance.randrange(len(data) + 1)]))
            assert found
