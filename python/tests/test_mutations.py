"""Broken packets and services that do anything with them: nothing ends the interpreter, and every packet is accounted for."""

import random

import pytest

from packets import udp
from segue_service import Driver, Packet, Reason, Service, Verdict, Way, five_tuple, srv6, srv6_around

VERDICTS = [Verdict.ONWARD, Verdict.BACK, Verdict.KERNEL, Verdict.TAKEN, *map(Verdict.drop, Reason.all())]


class Anything(Service):
    """Looks at all, and does what chance says."""

    CONFIGURATION = {"seed": 0}

    def __init__(self, configuration, worker):
        self.random = random.Random(configuration["seed"])
        self.held = []

    def packet(self, packet, context):
        chance = self.random
        steering = packet.steering
        assert steering.octets + packet.inner == packet.octets
        for value in (packet, steering, steering.srh, packet.five_tuple):
            assert repr(value)
        assert packet.flow >= 0
        five_tuple(packet.inner)
        what = chance.randrange(8)
        if what == 0:
            packet.inner = chance.randbytes(chance.randrange(9000))
        elif what == 1:
            packet.replace_inner(chance.randrange(256), chance.randbytes(chance.randrange(200)), packet.inner[:40])
        elif what == 2:
            octets = bytearray(packet.octets)
            for _ in range(chance.randrange(1, 20)):
                octets[chance.randrange(len(octets))] = chance.randrange(256)
            packet.octets = octets
        elif what == 3:
            context.send(packet.behind_the_same(chance.randrange(256), chance.randbytes(chance.randrange(2000))))
        elif what == 4:
            context.send_by(chance.choice([Way.ONWARD, Way.BACK, Way.KERNEL]), chance.choice([packet, *self.held]))
        elif what == 5:
            raise ValueError("by chance")
        context.wake_at(context.now + chance.choice([0, 1 << 63, chance.randrange(2_000_000_000)]))
        verdict = chance.choice(VERDICTS)
        if verdict == Verdict.TAKEN:
            self.held.append(packet)
        return verdict

    def timer(self, context):
        self.stop(context)

    def stop(self, context):
        for packet in self.held:
            context.send(packet)
        context.account_sent(len(self.held))
        self.held = []


def mutated(chance):
    """A packet with a few octets changed, or cut, or with more behind it."""
    base = [srv6(udp(bytes(chance.randrange(100)))), srv6_around(chance.randrange(256), chance.randbytes(60)), srv6(b"")]
    octets = bytearray(chance.choice(base))
    for _ in range(chance.choice([0, 1, 1, 2, 5])):
        octets[chance.randrange(len(octets))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    what = chance.randrange(4)
    if what == 0:
        del octets[chance.randrange(len(octets) + 1) :]
    elif what == 1:
        octets += chance.randbytes(chance.randrange(50))
    return bytes(octets)


def test_broken_packets_end_nothing(capfd):
    chance = random.Random(11)
    driver = Driver(Anything, {"seed": 11}, workers=2)
    received = 0
    for _ in range(400):
        packets = [mutated(chance) for _ in range(chance.randrange(20))]
        received += len(packets)
        driver.receive(packets)
        driver.advance(chance.randrange(1_000_000_000))
    driver.stop()
    counters = driver.counters()
    assert counters.received == received > 3000
    assert counters.received == counters.onward + counters.back + counters.kernel + counters.taken + sum(
        counters.dropped_received.values()
    )
    assert counters.held == 0
    # All of it was tried: packets that are none, services that fail, packets that went on, and packets of their own.
    assert {"malformed", "not_steered", "service_failed"} <= set(counters.dropped_received)
    assert min(counters.onward, counters.back, counters.taken_sent, counters.own_out) > 50
    capfd.readouterr()


def test_a_packet_that_is_cut_anywhere_is_none():
    whole = srv6(udp(b"payload"))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="malformed"):
            Packet.from_octets(whole[:length])
    assert Packet.from_octets(whole).octets == whole
