"""What a service sees of a packet, and what it can make of it."""

from ipaddress import IPv6Address

import pytest

from packets import udp
from segue_service import NEXT, SID, Driver, Packet, Reason, Sampling, Service, Verdict, Way, five_tuple, srv6, srv6_around


def service(packet, **members):
    """A service with this function as its method."""
    return type("Tried", (Service,), {"packet": lambda self, *arguments: packet(*arguments), **members})


def through(function, *packets, **members):
    """What leaves when packets meet a service with this function as its method."""
    driver = Driver(service(function, **members))
    driver.receive(list(packets))
    sent = driver.sent()
    driver.stop()
    return sent, driver.counters()


def advanced(packet):
    """A packet of srv6() as End leaves it."""
    octets = bytearray(packet)
    octets[7] -= 1
    octets[24:40] = IPv6Address(NEXT).packed
    octets[43] = 0
    return bytes(octets)


def test_the_steering_header_is_seen_as_it_arrived():
    seen = []

    def look(packet, context):
        seen.append(packet)
        return Verdict.ONWARD

    octets = srv6(udp(b"abc"))
    sent, counters = through(look, octets)
    assert [packet.octets for packet in sent] == [advanced(octets)]
    assert (counters.received, counters.onward, counters.held) == (1, 1, 0)
    # It is kept beyond its batch, and is as it was then.
    (packet,) = seen
    assert packet.octets == octets
    assert len(packet) == packet.wire_length == len(octets)
    assert packet.inner == udp(b"abc")
    assert packet.inner_protocol == 41
    assert not packet.is_cut
    steering = packet.steering
    assert steering.active == IPv6Address(SID)
    assert steering.hop_limit == 64
    assert steering.octets + packet.inner == octets
    assert steering.srh.segments_left == 1
    assert steering.srh.segment_list == [IPv6Address(NEXT), IPv6Address(SID)]
    assert (steering.srh.last_entry, steering.srh.flags, steering.srh.tag, steering.srh.tlvs) == (1, 0, 0, b"")
    flow = packet.five_tuple
    assert (flow.source, flow.destination) == (IPv6Address("2001:db8::1"), IPv6Address("2001:db8::2"))
    assert (flow.protocol, flow.ports) == (17, (1000, 2000))
    assert {flow: 1}[five_tuple(udp(b"other"))] == 1
    assert packet.flow == Packet.from_octets(srv6(udp(b"more"))).flow
    assert packet.flow != Packet.from_octets(srv6(udp(ports=(1, 2)))).flow


def test_same_rest_of_the_segment_list_compares_equal():
    first, second = (Packet.from_octets(srv6(udp(payload))).steering for payload in (b"a", b"bc"))
    assert first.remaining == second.remaining
    other = bytearray(srv6(udp()))
    other[55] ^= 1
    assert Packet.from_octets(other).steering.remaining != first.remaining


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("length", [0, 5, 60, 4000, 8000])
def test_another_inner_packet_of_any_length_goes_on(kind, length):
    def change(packet, context):
        packet.inner = kind(udp(bytes(length)))
        return Verdict.ONWARD

    sent, _ = through(change, srv6(udp(bytes(20))))
    assert [packet.octets for packet in sent] == [advanced(srv6(udp(bytes(length))))]


def test_octets_are_changed_in_place():
    def change(packet, context):
        octets = bytearray(packet.octets)
        octets[-1] ^= 0xFF
        packet.octets = octets
        return Verdict.ONWARD

    original = srv6(udp(b"abc"))
    sent, _ = through(change, original)
    assert sent[0].octets == advanced(original[:-1] + bytes([original[-1] ^ 0xFF]))


def test_protocol_and_parts_are_put_behind_the_steering_header():
    def change(packet, context):
        packet.replace_inner(17, b"abcd", bytearray(b"ef"))
        assert packet.inner_protocol == 17
        return Verdict.ONWARD

    sent, _ = through(change, srv6(udp()))
    assert sent[0].octets == advanced(srv6_around(17, b"abcdef"))


def test_what_does_not_fit_is_refused_and_changes_nothing():
    packet = Packet.from_octets(srv6(udp()))
    before = packet.octets
    for attempt in (
        lambda: packet.replace_inner(41, bytes(65_536)),
        lambda: packet.replace_inner(256, b""),
        lambda: packet.replace_inner(-1, b""),
        lambda: setattr(packet, "inner", bytes(70_000)),
        lambda: setattr(packet, "octets", before + b"x"),
        lambda: setattr(packet, "segment_size", 0),
        lambda: packet.behind_the_same(41, bytes(65_536)),
        lambda: srv6(bytes(65_496)),
    ):
        with pytest.raises((ValueError, OverflowError)):
            attempt()
    for octets in ("text", 5, None, [1, 2]):
        with pytest.raises(TypeError):
            packet.inner = octets
    assert packet.octets == before


def test_verdicts_lead_to_their_ends():
    verdicts = iter([Verdict.ONWARD, Verdict.BACK, Verdict.KERNEL, Verdict.drop(Reason.REFUSED), Verdict.drop(Reason.DUPLICATE)])
    octets = srv6(udp())
    sent, counters = through(lambda packet, context: next(verdicts), *[octets] * 5)
    assert [(packet.way, packet.octets) for packet in sent] == [
        (Way.ONWARD, advanced(octets)),
        (Way.BACK, octets),
        (Way.KERNEL, octets),
    ]
    assert (counters.onward, counters.back, counters.kernel) == (1, 1, 1)
    assert counters.dropped_received == {"refused": 1, "duplicate": 1}
    assert counters.dropped(Reason.REFUSED) == 1


def test_a_changed_packet_that_is_dropped_changes_nothing_else():
    def change(packet, context):
        packet.inner = bytes(9000)
        return Verdict.drop(Reason.TOO_BIG)

    sent, counters = through(change, srv6(udp()))
    assert sent == []
    assert counters.dropped_received == {"too_big": 1}


def test_merged_segments_are_told():
    def merge(packet, context):
        packet.segment_size = 1000
        return Verdict.ONWARD

    sent, _ = through(merge, srv6(udp(bytes(3000))))
    assert sent[0].segment_size == 1000


def test_asynchronous_services_get_copies_that_may_be_cut():
    from segue_service import Mode

    cut = []

    def look(packet, context):
        cut.append((packet.is_cut, len(packet), packet.wire_length))
        packet.inner = b"changes nothing"
        return Verdict.ONWARD

    members = {
        "mode": staticmethod(lambda configuration: Mode.ASYNCHRONOUS),
        "sampling": staticmethod(lambda configuration: Sampling(snap_length=120)),
    }
    driver = Driver(service(look, **members))
    assert driver.mode == Mode.ASYNCHRONOUS
    octets = srv6(udp(bytes(100)))
    driver.receive_cut([octets], 120)
    assert cut == [(True, 120, len(octets))]
    assert driver.sent() == []
    assert driver.counters().onward == 1


def test_reasons_are_those_of_rust():
    names = [reason.name for reason in Reason.all()]
    assert len(names) == len(set(names)) > 20
    for reason in Reason.all():
        assert getattr(Reason, reason.name.upper()) == reason
        assert reason.about.endswith(".")
        assert eval(repr(Verdict.drop(reason)), {"Verdict": Verdict, "Reason": Reason}) == Verdict.drop(reason)
