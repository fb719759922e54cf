"""Services: timers, packets of their own, accounts, metrics, configurations, workers, and what fails."""

import time

import pytest

from packets import udp
from segue_service import (
    MILLISECONDS,
    SECONDS,
    Driver,
    Metric,
    Packet,
    Reason,
    Service,
    Spread,
    Verdict,
    Way,
    srv6,
)
from test_packets import advanced


class Later(Service):
    """Sends each packet 5 ms later."""

    def __init__(self, configuration, worker):
        self.held = []

    def packet(self, packet, context):
        context.wake_at(context.now + 5 * MILLISECONDS)
        self.held.append(packet)
        return Verdict.TAKEN

    def timer(self, context):
        context.account_sent(len(self.held))
        for packet in self.held:
            context.send(packet)
        self.held = []

    stop = timer

    def report(self):
        return {"held": len(self.held)}


def test_the_example_lets_large_packets_go_on_only_so_often(gentle):
    driver = Driver(gentle, {"largest": 100})
    small, large = srv6(b"\x60" * 100), srv6(b"\x60" * 101)
    driver.receive([small, large, large])
    assert len(driver.sent()) == 2
    driver.advance(10 * MILLISECONDS)
    driver.receive([large])
    assert len(driver.sent()) == 1
    counters = driver.counters()
    assert counters.dropped(Reason.REFUSED) == 1
    assert counters.metrics == {"refused_octets": 101}
    driver.stop()


def test_packets_are_held_and_sent_by_a_timer():
    driver = Driver(Later)
    packets = [srv6(udp(bytes([number]))) for number in range(3)]
    driver.receive(packets)
    assert driver.sent() == []
    assert driver.counters().held == 3
    assert driver.report() == {"held": 3}
    driver.advance(5 * MILLISECONDS - 1)
    assert driver.sent() == []
    driver.advance(1)
    sent = driver.sent()
    assert [packet.octets for packet in sent] == [advanced(packet) for packet in packets]
    assert {packet.at for packet in sent} == {5 * MILLISECONDS}
    counters = driver.counters()
    assert (counters.taken, counters.taken_sent, counters.own, counters.own_out, counters.held) == (3, 3, 3, 3, 0)
    driver.receive(packets[:1])
    driver.stop()
    assert len(driver.sent()) == 1


def test_packets_that_are_neither_sent_nor_dropped_are_found():
    class Forgets(Service):
        def packet(self, packet, context):
            return Verdict.TAKEN

    driver = Driver(Forgets)
    driver.receive([srv6(udp())] * 2)
    with pytest.raises(AssertionError, match="neither sent nor dropped: 2"):
        driver.stop()
    with pytest.raises(RuntimeError, match="the service is stopped"):
        driver.receive([srv6(udp())])


def test_held_packets_are_dropped_with_a_reason():
    class Drops(Service):
        def packet(self, packet, context):
            return Verdict.TAKEN

        def stop(self, context):
            context.account_dropped(Reason.HELD_TOO_LONG, 2)

    driver = Driver(Drops)
    driver.receive([srv6(udp())] * 2)
    driver.stop()
    assert driver.counters().dropped_taken == {"held_too_long": 2}


def test_packets_of_its_own_leave_in_front_of_the_packet_that_is_looked_at():
    class Doubles(Service):
        def packet(self, packet, context):
            context.send(packet.behind_the_same(packet.inner_protocol, packet.inner, b"own"))
            context.send_by(Way.BACK, packet)
            return Verdict.ONWARD

    driver = Driver(Doubles)
    first, second = srv6(udp(b"1")), srv6(udp(b"2"))
    driver.receive([first, second])
    sent = [(packet.way, packet.octets[-4:]) for packet in driver.sent()]
    back = [(Way.BACK, packet[-4:]) for packet in (first, second)]
    assert sent == [
        (Way.ONWARD, b"1own"),
        back[0],
        (Way.ONWARD, first[-4:]),
        (Way.ONWARD, b"2own"),
        back[1],
        (Way.ONWARD, second[-4:]),
    ]
    assert driver.counters().own_out == 4


def test_a_packet_is_sent_as_it_was_when_it_was_given():
    class Changes(Service):
        def packet(self, packet, context):
            own = Packet.from_octets(packet.octets)
            context.send(own)
            own.inner = b"later"
            return Verdict.drop(Reason.REFUSED)

    driver = Driver(Changes)
    octets = srv6(udp(b"now"))
    driver.receive([octets])
    assert [packet.octets for packet in driver.sent()] == [advanced(octets)]


def test_wrong_accounts_are_refused_and_the_account_stays_whole(capfd):
    class Wrong(Service):
        how = 0

        def packet(self, packet, context):
            self.how += 1
            if self.how == 1:
                context.account_sent(2)
            # This one would do, for a packet that is taken.
            context.account_sent(1)
            return Verdict.ONWARD if self.how == 2 else Verdict.TAKEN

    driver = Driver(Wrong)
    driver.receive([srv6(udp())] * 3)
    counters = driver.counters()
    assert counters.dropped_received == {"service_failed": 2}
    assert (counters.taken, counters.taken_sent) == (1, 1)
    assert "accounted for" in capfd.readouterr().err
    driver.stop()


def test_a_failure_costs_one_packet_and_is_told_at_a_bounded_rate(capfd):
    class Fails(Service):
        """Fails on inner packets that end so."""

        NAME = "fails"

        def packet(self, packet, context):
            if packet.inner.endswith(b"bad"):
                packet.inner = b"half done"
                raise KeyError("what went wrong")
            return Verdict.ONWARD

        def timer(self, context):
            raise RuntimeError("the timer, too")

    driver = Driver(Fails)
    good, bad = srv6(udp(b"good")), srv6(udp(b"bad"))
    driver.receive([good, bad, good, bad, bad])
    assert len(driver.sent()) == 2
    counters = driver.counters()
    assert (counters.onward, counters.dropped_received) == (2, {"service_failed": 3})
    said = capfd.readouterr().err
    assert said.count("Traceback") == 1
    assert "fails, worker 0: packet() has failed; the packet is dropped as service_failed" in said
    assert "KeyError: 'what went wrong'" in said
    assert 'raise KeyError("what went wrong")' in said
    driver.advance(10 * SECONDS)
    driver.receive([bad, bad])
    said = capfd.readouterr().err
    assert said.count("Traceback") == 1
    assert "(2 more failures since the last one that was told)" in said
    driver.stop()
    assert "(1 more failures" in capfd.readouterr().err


@pytest.mark.parametrize("answer", [None, True, "ONWARD", Reason.REFUSED, Way.ONWARD])
def test_what_is_no_verdict_is_a_failure(answer, capfd):
    class Wrong(Service):
        def packet(self, packet, context):
            return answer

    driver = Driver(Wrong)
    driver.receive([srv6(udp())])
    assert driver.counters().dropped_received == {"service_failed": 1}
    assert "not a Verdict" in capfd.readouterr().err


def test_a_service_that_fails_in_timer_stop_and_report_goes_on(capfd):
    class Fails(Service):
        def packet(self, packet, context):
            context.wake_at(context.now + 1)
            return Verdict.ONWARD

        def timer(self, context):
            raise RuntimeError("in the timer")

        def stop(self, context):
            raise SystemExit(3)

        def report(self):
            return {1, 2}

    driver = Driver(Fails)
    driver.receive([srv6(udp())])
    driver.advance(1 * SECONDS)
    assert "timer() has failed" in capfd.readouterr().err
    assert "not JSON serializable" in driver.report()["error"]
    driver.receive([srv6(udp())])
    assert driver.counters().onward == 2
    driver.advance(20 * SECONDS)
    driver.stop()
    capfd.readouterr()


def test_metrics_count_and_are_known_by_name(capfd):
    class Counts(Service):
        METRICS = [Metric.counter("seen_packets", "packets that were seen"), Metric.gauge("last_octets", "octets of the last")]

        def packet(self, packet, context):
            context.count("seen_packets")
            context.count("seen_packets", 2)
            context.set("last_octets", len(packet))
            for wrong in (lambda: context.count("none"), lambda: context.set("seen_packets", 1)):
                with pytest.raises(KeyError, match="METRICS has no"):
                    wrong()
            return Verdict.ONWARD

    driver = Driver(Counts)
    octets = srv6(udp())
    driver.receive([octets, octets])
    assert driver.counters().metrics == {"seen_packets": 6, "last_octets": len(octets)}
    for name in ("Upper", "", "1st", "with blank"):
        with pytest.raises(ValueError, match="cannot name a metric"):
            Metric.counter(name, "nothing")
    assert capfd.readouterr().err == ""


def test_configurations_are_checked_with_key_and_remedy(gentle, flows):
    for configuration, expected in [
        ({"larges": 1}, 'larges: the key "larges" is not known here; write one of them: largest, pause_ms'),
        ({"largest": "1"}, 'largest: "1" is of another kind than integer; write one such as 1500'),
        ({"largest": 1.5}, "largest: 1.5 is of another kind than integer"),
        ({"largest": True}, "largest: true is of another kind than integer"),
        ([1], "a configuration is a mapping; write `key: value`"),
    ]:
        with pytest.raises(ValueError, match="^" + __import__("re").escape(expected)):
            Driver(gentle, configuration)
    with pytest.raises(ValueError, match="most: 0 flows cannot be counted; write a number from 1 to 1000000"):
        Driver(flows, {"most": 0})


def test_classes_that_are_no_service_are_told():
    class NoPacket(Service):
        pass

    class Twice(Service):
        METRICS = [Metric.counter("a", "a"), Metric.gauge("a", "a")]

    class Named(Service):
        NAME = "not a name"

    for service, error, expected in [
        (Service, TypeError, "no subclass"),
        (int, TypeError, "no subclass"),
        (5, TypeError, "no class"),
        (Twice, ValueError, "twice"),
        (Named, ValueError, "cannot name a service"),
        ("nothing", ValueError, "there is no service"),
    ]:
        with pytest.raises(error, match=expected):
            Driver(service)
    driver = Driver(NoPacket)
    driver.receive([srv6(udp())])
    assert driver.counters().dropped(Reason.SERVICE_FAILED) == 1


def test_classes_that_fail_before_they_run_are_told():
    class Init(Service):
        def __init__(self, configuration, worker):
            raise OSError("no such file")

    class Check(Service):
        @staticmethod
        def check(configuration, report):
            raise ZeroDivisionError

    class Mode(Service):
        @staticmethod
        def mode(configuration):
            return "synchronous"

    for service, expected in [(Init, "OSError: no such file"), (Check, "ZeroDivisionError"), (Mode, "correct its class")]:
        with pytest.raises(ValueError, match=expected):
            Driver(service)


def test_flows_stay_with_their_worker():
    class Where(Service):
        NAME = "where"

        def packet(self, packet, context):
            assert context.worker == self.worker
            packet.inner = packet.inner + bytes([self.worker.index])
            return Verdict.ONWARD

    driver = Driver(Where, workers=4)
    ports = [(1000 + number, 2000) for number in range(32)]
    for _ in range(2):
        driver.receive([srv6(udp(ports=port)) for port in ports])
    sent = driver.sent()
    workers = {}
    for packet in sent:
        assert packet.octets[-1] == packet.worker
        workers.setdefault(packet.octets[-9:-1], set()).add(packet.worker)
    assert len(sent) == 64
    assert all(len(there) == 1 for there in workers.values())
    assert {packet.worker for packet in sent} == {0, 1, 2, 3}


def test_one_worker_where_a_service_says_so():
    class One(Service):
        @staticmethod
        def many_workers(configuration):
            return False

        @staticmethod
        def spread(configuration):
            return Spread.WAY

        def packet(self, packet, context):
            return Verdict.ONWARD

    Driver(One, workers=1)
    with pytest.raises(ValueError, match="2 workers are not possible for one"):
        Driver(One, workers=2)


def test_flows_are_counted_on_packets_and_on_copies(flows):
    for copies in (False, True):
        driver = Driver(flows, {"copies": copies})
        octets = srv6(udp(b"abc"))
        driver.receive([octets, octets, srv6(udp(ports=(1, 2)))])
        (first, second) = driver.report()["flows"]
        assert (first["packets"], first["octets"], second["packets"]) == (2, 2 * len(octets), 1)
        assert len(driver.sent()) == (0 if copies else 3)


def test_a_service_cannot_use_the_driver_that_runs_it(capfd):
    class Reenters(Service):
        def packet(self, packet, context):
            with pytest.raises(RuntimeError, match="at work"):
                driver.counters()
            return Verdict.ONWARD

    driver = Driver(Reenters)
    driver.receive([srv6(udp())])
    assert driver.counters().onward == 1
    assert capfd.readouterr().err == ""


def test_services_in_rust_run_in_the_driver_too():
    driver = Driver("forward")
    octets = srv6(udp())
    driver.receive([octets])
    assert [packet.octets for packet in driver.sent()] == [advanced(octets)]
    with pytest.raises(ValueError, match="is not known here"):
        Driver("forward", {"key": 1})


def test_the_clock_is_virtual(gentle):
    driver = Driver(gentle)
    begun = time.monotonic()
    driver.advance(3600 * SECONDS)
    assert driver.now == 3600 * SECONDS
    assert time.monotonic() - begun < 60
