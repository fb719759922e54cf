//! The engine and the driver, with services made for it.

use std::time::Duration;

use segue_service::driver::{MTU, NEXT, SID, srv6, srv6_around};
use segue_service::{
    Context, Driver, FlowKey, Metric, Mode, Packet, Reason, Service, Steering, SteeringKind, Time, Unfit, Verdict, Way,
};
use segue_wire::{Ipv6Repr, PacketBuilder, Srh, UdpRepr};

fn udp(flow: u16, payload: &[u8]) -> Vec<u8> {
    let addresses = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let ports = UdpRepr { source_port: flow, destination_port: 53 };
    PacketBuilder::new().ipv6(addresses).udp(ports).payload(payload).build()
}

/// What a segment endpoint makes of a packet of the driver: the octets that End changes (RFC 8986 section 4.1).
fn advanced(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[7] -= 1;
    packet[24..40].copy_from_slice(&NEXT.parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet[43] = 0;
    packet
}

/// Does what the first octet of the inner payload says.
struct Obedient;

impl Service for Obedient {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        match packet.inner()[48] {
            b'o' => Verdict::Onward,
            b'b' => Verdict::Back,
            b'k' => Verdict::Kernel,
            b'd' => Verdict::Drop(Reason::Refused),
            b's' => {
                context.send(packet.behind_the_same(41, &[&udp(9, b"own")]).unwrap());
                context.count(0, 1);
                Verdict::Onward
            }
            _ => Verdict::Taken,
        }
    }

    fn stop(&mut self, context: &mut Context) {
        context.account_dropped(Reason::HeldTooLong, context.counters().snapshot().held());
    }
}

const METRICS: &[Metric] = &[Metric::counter("sent_packets", "packets that were sent")];

fn obedient() -> Driver {
    Driver::with(vec![Box::new(Obedient)], Mode::Synchronous, MTU, METRICS)
}

fn steered(what: &str) -> Vec<Vec<u8>> {
    what.bytes().map(|octet| srv6(&udp(1, &[octet]))).collect()
}

#[test]
fn every_verdict_has_its_way_and_its_counter() {
    let mut driver = obedient();
    let packets = steered("obkdt");
    driver.receive(&packets);
    let sent = driver.sent();
    let ways: Vec<_> = sent.iter().map(|sent| sent.way).collect();
    assert_eq!(ways, [Way::Onward, Way::Back, Way::Kernel]);
    assert_eq!(sent[0].octets, advanced(&packets[0]));
    assert_eq!((&sent[1].octets, &sent[2].octets), (&packets[1], &packets[2]));
    let counters = driver.counters();
    let octets: usize = packets.iter().map(Vec::len).sum();
    assert_eq!((counters.received, counters.received_octets), (5, octets as u64));
    assert_eq!((counters.onward, counters.back, counters.kernel, counters.taken), (1, 1, 1, 1));
    assert_eq!((counters.dropped(Reason::Refused), counters.held()), (1, 1));
    driver.stop();
    assert_eq!((driver.counters().held(), driver.counters().dropped(Reason::HeldTooLong)), (0, 1));
}

#[test]
fn what_is_sent_leaves_in_front_of_the_packet_at_hand() {
    let mut driver = obedient();
    let packets = steered("oso");
    driver.receive(&packets);
    let own = advanced(&srv6(&udp(9, b"own")));
    let octets: Vec<_> = driver.sent().into_iter().map(|sent| sent.octets).collect();
    assert_eq!(octets, [advanced(&packets[0]), own, advanced(&packets[1]), advanced(&packets[2])]);
    let counters = driver.counters();
    assert_eq!((counters.own, counters.own_out, counters.metrics["sent_packets"]), (1, 1, 1));
}

#[test]
fn packets_that_cannot_go_on_are_dropped_with_the_reason() {
    let mut driver = obedient();
    let change = |offset: usize, value: u8| {
        let mut packet = steered("o").remove(0);
        packet[offset] = value;
        packet
    };
    let cases = [
        (change(0, 0x45), Reason::NotSteered),
        (change(7, 1), Reason::HopLimit),
        (change(43, 0), Reason::NoSegmentLeft),
        (change(43, 3), Reason::Malformed),
        (change(44, 9), Reason::Malformed),
        (change(5, 255), Reason::Malformed),
        (change(41, 200), Reason::Malformed),
        (change(6, 44), Reason::OuterFragment),
        (vec![0x60; 39], Reason::Malformed),
        (vec![], Reason::Malformed),
    ];
    for (number, (packet, reason)) in cases.into_iter().enumerate() {
        let before = driver.counters().dropped(reason);
        driver.receive(&[packet]);
        assert_eq!(driver.counters().dropped(reason), before + 1, "case {number}: {:?}", driver.counters());
    }
    assert_eq!(driver.sent(), []);
}

#[test]
fn padding_of_the_device_is_no_part_of_the_packet() {
    let mut driver = obedient();
    let packet = steered("o").remove(0);
    driver.receive(&[[packet.as_slice(), &[0; 9]].concat()]);
    assert_eq!(driver.sent()[0].octets, advanced(&packet));
}

/// Puts what the inner payload says behind the steering header.
struct Grow(usize);

impl Service for Grow {
    fn packet(&mut self, packet: &mut Packet<'_>, _: &mut Context) -> Verdict {
        let before = packet.octets().to_vec();
        match packet.replace_inner(108, &[&[1, 2, 3, 4], &vec![7; self.0]]) {
            Ok(()) => Verdict::Onward,
            Err(error) => {
                assert_eq!(error, Unfit::TooLong(packet.steering().octets().len() + 4 + self.0));
                assert_eq!(packet.octets(), before);
                Verdict::Drop(Reason::TooBig)
            }
        }
    }
}

#[test]
fn an_inner_packet_of_any_length_can_be_put_in() {
    for length in [0, 1, 100, 3000, 3900, 9000, 65535 - 40 - 4, 65535 - 39 - 4, 70000] {
        let mut driver = Driver::new(vec![Box::new(Grow(length))]);
        let packet = steered("o").remove(0);
        driver.receive(std::slice::from_ref(&packet));
        if length > 65535 - 40 - 4 {
            assert_eq!(driver.counters().dropped(Reason::TooBig), 1);
            continue;
        }
        let sent = driver.sent().remove(0).octets;
        let expected = srv6_around(108, &[&[1, 2, 3, 4][..], &vec![7; length]].concat());
        assert_eq!(sent, advanced(&expected), "{length}");
    }
}

/// Holds packets for a while, and sends them all together.
#[derive(Default)]
struct Later(Vec<Packet<'static>>);

const DELAY: Duration = Duration::from_millis(5);

impl Later {
    fn flush(&mut self, context: &mut Context) {
        context.account_sent(self.0.len() as u64);
        for packet in self.0.drain(..) {
            context.send(packet);
        }
    }
}

impl Service for Later {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        context.wake_at(packet.arrived() + DELAY);
        self.0.push(packet.to_owned());
        Verdict::Taken
    }

    fn timer(&mut self, context: &mut Context) {
        self.flush(context);
    }

    fn stop(&mut self, context: &mut Context) {
        self.flush(context);
    }
}

#[test]
fn timers_run_when_they_are_due() {
    let mut driver = Driver::new(vec![Box::new(Later::default())]);
    driver.receive(&steered("a"));
    driver.advance(Duration::from_millis(4));
    driver.receive(&steered("b"));
    assert_eq!((driver.sent().len(), driver.counters().held()), (0, 2));
    driver.advance(Duration::from_millis(10));
    let sent = driver.sent();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|sent| sent.at == Time::START + DELAY), "{sent:?}");
    driver.receive(&steered("c"));
    driver.stop();
    assert_eq!((driver.sent().len(), driver.counters().held()), (1, 0));
}

/// Takes packets and forgets them.
struct Leaky;

impl Service for Leaky {
    fn packet(&mut self, _: &mut Packet<'_>, _: &mut Context) -> Verdict {
        Verdict::Taken
    }
}

#[test]
#[should_panic(expected = "took packets that it neither sent nor dropped")]
fn a_service_that_loses_packets_is_found_out() {
    let mut driver = Driver::new(vec![Box::new(Leaky)]);
    driver.receive(&steered("a"));
    driver.stop();
}

#[test]
fn flows_stay_with_their_worker_and_in_order() {
    let workers = (0..3).map(|_| Box::new(Obedient) as Box<dyn Service>).collect();
    let mut driver = Driver::new(workers);
    let packets: Vec<_> = (0..400u16).map(|number| srv6(&udp(number % 40, &[b'o', (number / 40) as u8]))).collect();
    for batch in packets.chunks(64) {
        driver.receive(batch);
    }
    let mut seen = std::collections::BTreeMap::<u16, (usize, u8)>::new();
    let mut of_worker = [0; 3];
    for sent in driver.sent() {
        let port = u16::from_be_bytes([sent.octets[120], sent.octets[121]]);
        let number = sent.octets[129];
        of_worker[sent.worker] += 1;
        let (worker, next) = seen.entry(port).or_insert((sent.worker, 0));
        assert_eq!((*worker, *next), (sent.worker, number));
        *next += 1;
    }
    assert!(seen.len() == 40 && seen.values().all(|(_, count)| *count == 10), "{seen:?}");
    assert!(of_worker.iter().all(|count| *count >= 40), "{of_worker:?}");
}

#[test]
fn fragments_of_a_datagram_have_one_flow() {
    let fragment = |offset: u16, more: bool| {
        let addresses = Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let header = segue_wire::FragmentRepr {
            next_header: 17,
            fragment_offset: offset,
            more_fragments: more,
            ..segue_wire::FragmentRepr::default()
        };
        srv6(&PacketBuilder::new().ipv6(addresses).fragment(header).payload(&[0; 64]).build())
    };
    let first = FlowKey::of(&fragment(0, true));
    assert_eq!(FlowKey::of(&fragment(8, false)), first);
    assert_ne!(FlowKey::of(&srv6(&udp(1, b"x"))), FlowKey::of(&srv6(&udp(2, b"x"))));
}

/// Copies: only counts octets of those with this mark.
struct Watch;

impl Service for Watch {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        context.count(0, packet.wire_length() as u64);
        if packet.is_cut() && packet.inner().len() < 40 { Verdict::Drop(Reason::CutShort) } else { Verdict::Onward }
    }
}

#[test]
fn an_asynchronous_service_gets_copies_and_sends_none_on() {
    let mut driver = Driver::with(vec![Box::new(Watch)], Mode::Asynchronous, MTU, METRICS);
    let packet = srv6(&udp(1, &[0; 500]));
    driver.receive_cut(std::slice::from_ref(&packet), 128);
    driver.receive_cut(std::slice::from_ref(&packet), 90);
    driver.receive_cut(std::slice::from_ref(&packet), 39);
    assert_eq!(driver.sent(), []);
    let counters = driver.counters();
    assert_eq!((counters.received, counters.onward), (3, 1));
    assert_eq!((counters.dropped(Reason::CutShort), counters.dropped(Reason::Malformed)), (1, 1));
    assert_eq!(counters.metrics["sent_packets"], 2 * packet.len() as u64);
    assert_eq!(counters.received_octets, 3 * packet.len() as u64);
}

#[test]
fn the_steering_header_says_what_is_left_of_the_way() {
    let packet = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut octets = srv6(&udp(1, b"o"));
        change(&mut octets);
        Packet::from_octets(SteeringKind::Srv6, &octets, Time::START).unwrap()
    };
    let usual = packet(&|_| {});
    let Steering::Srv6(header) = usual.steering() else { panic!("not SRv6") };
    assert_eq!(header.destination(), SID.parse::<std::net::Ipv6Addr>().unwrap());
    assert_eq!(header.srh().as_ref().map(Srh::segments_left), Some(1));
    assert_eq!((usual.steering().octets().len(), usual.inner_protocol()), (80, 41));
    assert_eq!(usual.inner(), udp(1, b"o"));
    let same = |change: &dyn Fn(&mut Vec<u8>)| packet(change).steering().remaining() == usual.steering().remaining();
    assert!(same(&|octets| octets[7] = 3), "the hop limit is no way");
    assert!(same(&|octets| octets[1] |= 0x30), "nor is ECN");
    assert!(same(&|octets| octets[3] = 7), "nor is the flow label");
    assert!(!same(&|octets| octets[1] |= 0x80), "DSCP is");
    assert!(!same(&|octets| octets[63] = 9), "so is the rest of the list");
    assert!(!same(&|octets| octets[23] = 9), "and the source");
}

/// No octets make it panic, and each packet has one end.
#[test]
fn broken_packets_have_one_end_each() {
    let mut driver = obedient();
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let whole = steered("obkdst");
    for _ in 0..3000 {
        let mut packet = whole[random(whole.len())].clone();
        for _ in 0..random(4) {
            let at = random(packet.len());
            packet[at] = random(256) as u8;
        }
        packet.truncate(random(packet.len() * 2).max(1));
        if packet.len() < 129 || packet.get(6) != Some(&43) {
            // What `Obedient` reads may not be there: only what the engine does with it matters.
            assert!(
                Packet::from_octets(SteeringKind::Srv6, &packet, Time::START).map_or(true, |packet| packet.len() >= 40)
            );
            continue;
        }
        let inner = Packet::from_octets(SteeringKind::Srv6, &packet, Time::START).map(|packet| packet.inner().len());
        if inner.is_ok_and(|inner| inner < 49) {
            continue;
        }
        driver.receive(&[packet]);
    }
    assert!(driver.counters().received > 500);
    driver.stop();
}
