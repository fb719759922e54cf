//! `tcp-bulk`: what is merged and what is not, and that merging can be undone.

use proptest::prelude::*;
use segue_service::driver::srv6;
use segue_service::{Driver, Prepared, SteeringKind, Time};
use segue_services::corpus::{Random, Sender};
use segue_services::tcp_bulk::{Aggregate, Class, Segment, split};
use segue_wire::tcp::control::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
use segue_wire::{Ipv4Packet, Ipv6Packet, OptionsRepr, PacketBuilder, TcpRepr, TcpSegment, parse_ip_packet};
use std::sync::Arc;
use std::time::Duration;

fn prepared(configuration: &str) -> Arc<dyn Prepared> {
    let service = segue_services::find("tcp-bulk").unwrap();
    service.prepare(configuration, "test.yaml").unwrap_or_else(|error| panic!("{configuration}: {error}"))
}

fn driver(configuration: &str) -> Driver {
    Driver::with(
        vec![prepared(configuration).build(segue_service::Worker::ONLY).unwrap()],
        prepared("").mode(),
        65_535,
        prepared("").metrics(),
    )
}

/// What leaves for these packets, all received at once, before time goes by and after.
fn merged(configuration: &str, packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut driver = driver(configuration);
    driver.receive(packets);
    let at_once = driver.sent().into_iter().map(|sent| sent.octets).collect();
    driver.advance(Duration::from_millis(1001));
    let later = driver.sent().into_iter().map(|sent| sent.octets).collect();
    driver.stop();
    assert!(driver.sent().is_empty(), "nothing was held any more");
    (at_once, later)
}

fn all(configuration: &str, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut at_once, later) = merged(configuration, packets);
    at_once.extend(later);
    at_once
}

/// The packets as they leave when nothing is done to them.
fn advanced(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut driver = Driver::prepared(&*segue_services::find("forward").unwrap().prepare("", "x").unwrap(), 1);
    driver.receive(packets);
    driver.sent().into_iter().map(|sent| sent.octets).collect()
}

/// Sequence number and payload of the segment in a packet, whose checksums are right.
fn segment(packet: &[u8]) -> (u32, Vec<u8>, u8) {
    assert!(
        matches!(Class::of(SteeringKind::Srv6, packet, &mut Vec::new()), Class::Mergeable(_)),
        "checksums and lengths are right"
    );
    let layers = parse_ip_packet(packet).unwrap();
    let tcp = TcpSegment::new_checked(layers.last(segue_wire::LayerKind::Tcp).unwrap().bytes(packet)).unwrap();
    (tcp.sequence_number(), tcp.payload().to_vec(), tcp.control_bits())
}

const SENDERS: [Sender; 2] = [Sender { segment: 100, ..Sender::IPV4 }, Sender { segment: 100, ..Sender::IPV6 }];

#[test]
fn segments_that_follow_each_other_become_one() {
    for sender in SENDERS {
        for mode in ["buffer", "queue"] {
            let stream = Random::new(1).bytes(950);
            let packets = sender.steered(&stream);
            let (at_once, later) = merged(&format!("mode: {mode}"), &packets);
            // The tenth is shorter, so nothing can follow it.
            assert_eq!((at_once.len(), later.len()), (1, 0), "{mode}");
            assert_eq!(segment(&at_once[0]), (0, stream, ACK));
        }
    }
}

#[test]
fn what_is_held_leaves_in_time() {
    let packets = SENDERS[0].steered(&Random::new(1).bytes(300));
    let mut driver = driver("longest_delay_ms: 7");
    driver.receive(&packets[..2]);
    driver.advance(Duration::from_millis(4));
    driver.receive(&packets[2..]);
    assert!(driver.sent().is_empty());
    assert_eq!(driver.counters().held(), 3);
    driver.advance(Duration::from_millis(10));
    let sent = driver.sent();
    assert_eq!(sent.len(), 1);
    // Seven milliseconds from the first, not from the last.
    assert_eq!(sent[0].at, Time::START + Duration::from_millis(7));
    driver.stop();
}

#[test]
fn queue_puts_in_order_and_buffer_does_not() {
    let stream = Random::new(1).bytes(300);
    let packets = SENDERS[0].inner(&stream);
    let disordered: Vec<_> = [1, 0, 2].iter().map(|index| srv6(&packets[*index])).collect();
    let queue = all("mode: queue", &disordered);
    assert_eq!(queue.len(), 1);
    assert_eq!(segment(&queue[0]), (0, stream.clone(), ACK));
    let buffer = all("mode: buffer", &disordered);
    assert_eq!(buffer, advanced(&disordered), "the thesis's example: all three leave as they came");
}

#[test]
fn queue_waits_for_a_gap_to_close_and_not_for_ever() {
    let sender = SENDERS[1];
    let packets = sender.steered(&Random::new(1).bytes(1000));
    let mut driver = driver("mode: queue\nlargest: 1280");
    // The first fill one packet, so what comes next is known.
    driver.receive(&packets[..5]);
    driver.receive(&packets[6..8]);
    driver.receive(&packets[9..]);
    driver.advance(Duration::from_millis(4));
    let before: usize = driver.sent().iter().map(|sent| segment(&sent.octets).1.len()).sum();
    driver.receive(&packets[5..6]);
    driver.advance(Duration::from_millis(100));
    let rest: Vec<_> = driver.sent().iter().map(|sent| segment(&sent.octets)).collect();
    assert!(rest.is_sorted_by_key(|segment| segment.0), "in order: {rest:?}");
    assert_eq!(
        before + rest.iter().map(|segment| segment.1.len()).sum::<usize>(),
        900,
        "all but the one that was lost"
    );
    // A late one is not kept, and does not come again.
    driver.receive(&packets[8..9]);
    assert_eq!(driver.sent().len() + driver.counters().held() as usize, 1);
    driver.stop();
}

/// Two segments that would be one, the second changed by `change`: both leave as they came.
fn is_not_merged(what: &str, sender: Sender, change: impl Fn(TcpRepr) -> TcpRepr, patch: impl Fn(&mut Vec<u8>)) {
    let packets = sender.inner(&Random::new(3).bytes(200));
    let mut second = packets[1].clone();
    let at = if sender.ipv6 { 40 } else { 20 };
    let pseudo = {
        let tuple = parse_ip_packet(&second).unwrap().five_tuple().unwrap();
        segue_wire::PseudoHeader::new(tuple.source, tuple.destination, tuple.protocol).unwrap()
    };
    let view = TcpSegment::new_checked(second[at..].to_vec()).unwrap();
    let repr = change(TcpRepr::parse(&view, &pseudo).unwrap());
    repr.emit(&mut second[at..], view.payload(), &pseudo).unwrap();
    patch(&mut second);
    if let Ok(mut view) = Ipv4Packet::new_checked(&mut second) {
        view.fill_checksum();
    }
    let steered = [srv6(&packets[0]), srv6(&second)];
    for mode in ["buffer", "queue"] {
        assert_eq!(
            all(&format!("mode: {mode}"), &steered),
            advanced(&steered),
            "{what}, {mode}, {sender:?}",
            sender = sender.ipv6
        );
    }
}

#[test]
fn a100_any_other_difference_prevents_it() {
    let as_it_is = |repr: TcpRepr| repr;
    for sender in SENDERS {
        let tcp = |what: &str, change: &dyn Fn(&mut TcpRepr)| {
            let changed = |mut repr: TcpRepr| {
                change(&mut repr);
                repr
            };
            is_not_merged(what, sender, changed, |_| {});
        };
        tcp("a gap", &|repr| repr.sequence_number += 1);
        tcp("an overlap", &|repr| repr.sequence_number -= 1);
        tcp("acknowledgment number", &|repr| repr.acknowledgment_number += 1);
        tcp("window", &|repr| repr.window += 1);
        tcp("reserved bits (AccECN)", &|repr| repr.reserved ^= 1);
        tcp("timestamp", &|repr| repr.options[7] ^= 1);
        tcp("an option", &|repr| repr.options[0] = 0);
        tcp("urgent pointer", &|repr| repr.urgent_pointer = 1);
        for bit in [SYN, RST, URG, ECE, CWR] {
            tcp("a control bit", &|repr| repr.control_bits |= bit);
        }
        tcp("no ACK", &|repr| repr.control_bits = 0);
        tcp("another port", &|repr| repr.source_port += 1);
    }
    let [ipv4, ipv6] = SENDERS;
    for (what, offset, mask) in [
        ("type of service", 1, 4_u8),
        ("ECN", 1, 1),
        ("identification", 4, 1),
        ("DF", 6, 0x40),
        ("time to live", 8, 1),
        ("source address", 15, 1),
    ] {
        // The pseudo header has an address in it: then the checksum is wrong as well, and that must not be the only reason.
        is_not_merged(what, ipv4, as_it_is, |packet| {
            packet[offset] ^= mask;
            if offset == 15 {
                let sum = u16::from_be_bytes([packet[36], packet[37]]);
                let fixed = segue_wire::checksum::update_u16(sum, 2, 3);
                packet[36..38].copy_from_slice(&fixed.to_be_bytes());
            }
        });
    }
    for (what, offset, mask) in
        [("traffic class", 0, 1_u8), ("ECN", 1, 0x10), ("flow label", 3, 1), ("hop limit", 7, 1)]
    {
        is_not_merged(what, ipv6, as_it_is, |packet| packet[offset] ^= mask);
    }
}

#[test]
fn a100_a_larger_segment_is_not_merged_and_a_shorter_one_ends() {
    let sender = SENDERS[0];
    let packet = |index: usize, sequence: u32, length: usize, bits: u8| {
        srv6(&sender.packet(index, sequence, bits, &vec![7; length]))
    };
    let larger = [packet(0, 0, 100, ACK), packet(1, 100, 101, ACK)];
    assert_eq!(all("", &larger).len(), 2);
    let shorter = [packet(0, 0, 100, ACK), packet(1, 100, 99, ACK), packet(2, 199, 100, ACK)];
    let lengths: Vec<_> = all("", &shorter).iter().map(|packet| segment(packet).1.len()).collect();
    assert_eq!(lengths, [199, 100]);
    for bits in [ACK | PSH, ACK | FIN] {
        let ended = [packet(0, 0, 100, ACK), packet(1, 100, 100, bits), packet(2, 200, 100, ACK)];
        let (at_once, later) = merged("", &ended);
        assert_eq!(segment(&at_once[0]), (0, vec![7; 200], bits), "the bit comes with the last");
        assert_eq!(later.len(), 1);
    }
}

#[test]
fn a100_wrong_checksums_are_never_merged_and_go_on_untouched() {
    for sender in SENDERS {
        let mut packets = sender.inner(&Random::new(3).bytes(400));
        let last = packets[2].len() - 1;
        packets[2][last] ^= 1;
        if !sender.ipv6 {
            packets[1][11] ^= 1;
        }
        let steered: Vec<_> = packets.iter().map(|packet| srv6(packet)).collect();
        let (at_once, later) = merged("", &steered);
        let sent = [at_once, later].concat();
        assert!(sent.contains(&advanced(&steered)[2]), "octet by octet");
        let expected = if sender.ipv6 { 3 } else { 4 };
        assert_eq!(sent.len(), expected);
    }
}

#[test]
fn a100_no_packet_is_larger_than_its_headers_can_say() {
    for sender in [Sender { segment: 1400, ..Sender::IPV4 }, Sender { segment: 1400, ..Sender::IPV6 }] {
        let sent = all("largest: 65575", &sender.steered(&Random::new(3).bytes(1400 * 120)));
        assert_eq!(sent.iter().map(|packet| segment(packet).1.len()).sum::<usize>(), 1400 * 120);
        assert!(sent.iter().all(|packet| packet.len() <= 65_535) && sent.len() == 3, "{}", sent.len());
        for packet in sent {
            let outer = Ipv6Packet::new_checked(packet.as_slice()).unwrap();
            assert_eq!(outer.total_length(), packet.len());
        }
    }
}

#[test]
fn what_cannot_be_merged_overtakes_nothing() {
    let sender = SENDERS[0];
    for (bits, length) in [(ACK, 0), (ACK | SYN, 0), (ACK | RST, 0), (ACK | URG, 50)] {
        let mut packets = sender.steered(&Random::new(3).bytes(200));
        packets.push(srv6(&sender.packet(2, 200, bits, &vec![1; length])));
        let (at_once, later) = merged("", &packets);
        assert_eq!((at_once.len(), later.len()), (2, 0), "{bits:#x}: what is held leaves in front of it");
        assert_eq!(at_once[1], advanced(&packets)[2]);
    }
}

#[test]
fn connections_in_different_tunnels_are_two() {
    let tunnel = |last: u8, index: usize| {
        let header = |end: u8| segue_wire::Ipv4Repr {
            identification: index as u16,
            ..segue_wire::Ipv4Repr::new([192, 0, 2, 1].into(), [192, 0, 2, end].into())
        };
        let inner = SENDERS[1].packet(index, 100 * index as u32, ACK, &[last; 100]);
        srv6(&PacketBuilder::new().ipv4(segue_wire::Ipv4Repr { protocol: 41, ..header(last) }).payload(&inner).build())
    };
    // The same inner addresses and ports, alternating between two tunnels.
    let packets = [tunnel(1, 0), tunnel(2, 0), tunnel(1, 1), tunnel(2, 1)];
    let sent = all("", &packets);
    let payloads: Vec<_> = sent.iter().map(|packet| segment(packet).1).collect();
    assert_eq!(payloads, [vec![1; 200], vec![2; 200]]);
}

#[test]
fn extension_headers_must_be_the_same() {
    let packet = |index: u32, option: u8| {
        let tcp = TcpRepr { sequence_number: index * 100, ..TcpRepr::new(1, 2, ACK) };
        let options = OptionsRepr { options: vec![30, 2, option, 0], ..OptionsRepr::default() };
        let builder = PacketBuilder::new().ipv6(segue_wire::Ipv6Repr::default()).destination_options(options);
        srv6(&builder.tcp(tcp).payload(&[3; 100]).build())
    };
    assert_eq!(all("", &[packet(0, 1), packet(1, 1)]).len(), 1);
    assert_eq!(all("", &[packet(0, 1), packet(1, 2)]).len(), 2);
}

#[test]
fn limits_hold_in_a_flood_of_connections() {
    for mode in ["buffer", "queue"] {
        let mut driver = driver(&format!("mode: {mode}\nmost_connections: 50\nmemory: 131072"));
        for port in 0..3000 {
            let sender = Sender { port, segment: 1300, ..Sender::IPV4 };
            driver.receive(&[srv6(&sender.packet(0, 0, ACK, &[1; 1300]))]);
            let counters = driver.counters();
            assert!(counters.held() <= 50 && counters.metrics["held_octets"] <= 131_072);
        }
        driver.advance(Duration::from_secs(1));
        let counters = driver.counters();
        assert_eq!(
            (counters.held(), counters.metrics["held_octets"], counters.metrics["remembered_connections"]),
            (0, 0, 0)
        );
        assert_eq!(driver.sent().len(), 3000, "all are there");
        driver.stop();
    }
}

/// The thesis's ratio: packets that are gone.
fn ratio(configuration: &str, workers: usize, senders: &[Sender], octets: usize) -> f64 {
    let prepared = prepared(configuration);
    let workers = (0..workers).map(|index| prepared.build(segue_service::Worker { index, count: workers }).unwrap());
    let mut driver = Driver::with(workers.collect(), prepared.mode(), 65_535, prepared.metrics());
    let streams: Vec<_> =
        senders.iter().map(|sender| sender.steered(&Random::new(sender.port.into()).bytes(octets))).collect();
    let count = streams[0].len();
    for index in 0..count {
        let batch: Vec<_> = streams.iter().map(|stream| stream[index].clone()).collect();
        driver.receive(&batch);
    }
    driver.advance(Duration::from_secs(1));
    let sent = driver.sent().len();
    driver.stop();
    1.0 - sent as f64 / (count * senders.len()) as f64
}

#[test]
fn ratio_by_buffer_size() {
    const MSS: usize = 1340;
    // Steering header, IPv4, TCP with timestamps.
    const HEADERS: usize = 80 + 20 + 32;
    let sender = |port| Sender { port, segment: MSS, ..Sender::IPV4 };
    let one = [sender(1)];
    let eight: Vec<_> = (1..=8).map(sender).collect();
    let octets = MSS * 10_080;
    println!("| segments in a buffer | 1 - MSS/buffer | buffer | queue | two workers | 8 clients, two workers |");
    println!("|---|---|---|---|---|---|");
    for segments in [2, 3, 5, 6, 12, 48] {
        let bound = 1.0 - 1.0 / segments as f64;
        let largest = HEADERS + segments * MSS;
        let text = |mode: &str| format!("mode: {mode}\nlargest: {largest}");
        let measured = [
            ratio(&text("buffer"), 1, &one, octets / 4),
            ratio(&text("queue"), 1, &one, octets / 4),
            ratio(&text("buffer"), 2, &one, octets / 4),
            ratio(&text("buffer"), 2, &eight, octets / 16),
        ];
        let shown: Vec<_> = measured.iter().map(|ratio| format!("{ratio:.4}")).collect();
        println!("| {segments} | {bound:.4} | {} |", shown.join(" | "));
        for ratio in measured {
            assert!(ratio >= 0.98 * bound, "{segments} segments: {ratio:.4}, the bound is {bound:.4}");
        }
    }
}

/// A connection at random: segments of few sizes, with bits, gaps and changed fields now and then.
fn stream() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let step = (0..20_u8, prop_oneof![8 => Just(100_usize), 1 => 1..100_usize, 1 => 101..200_usize]);
    (any::<bool>(), any::<u32>(), any::<bool>(), prop::collection::vec(step, 1..60)).prop_map(
        |(ipv6, first, constant, steps)| {
            let sender = Sender { ipv6, ..SENDERS[0] };
            let mut sequence_number = first;
            let mut packets = Vec::new();
            for (index, (kind, length)) in steps.into_iter().enumerate() {
                let bits = match kind {
                    0 => ACK | PSH,
                    1 => ACK | FIN,
                    2 => ACK | ECE,
                    3 => ACK | SYN,
                    _ => ACK,
                };
                if kind == 4 {
                    sequence_number = sequence_number.wrapping_add(50);
                }
                let identification = if constant { 7 } else { index };
                let payload = vec![index as u8; if kind == 5 { 0 } else { length }];
                packets.push(sender.packet(identification, sequence_number, bits, &payload));
                sequence_number = sequence_number.wrapping_add(payload.len() as u32);
            }
            packets
        },
    )
}

/// Merges what can be merged of neighbours, and splits it again.
fn there_and_back(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let found = |packet: &[u8]| match Class::of(SteeringKind::Srv6, packet, &mut Vec::new()) {
        Class::Mergeable(segment) => Some(segment),
        _ => None,
    };
    let apart = |aggregate: Aggregate| {
        let (size, identification) = (aggregate.segment_size() as usize, aggregate.identification().to_vec());
        let count = aggregate.segments() as usize;
        let packet = aggregate.finish();
        let segment: Segment = found(&packet).expect("what was merged can be read");
        let parts = split(&packet, &segment, size, &identification);
        assert_eq!(parts.len(), count);
        parts
    };
    let mut held: Option<Aggregate> = None;
    let mut all = Vec::new();
    for packet in packets {
        let new = found(packet).map(|segment| Aggregate::new(packet, &segment, Time::START));
        if let (Some(aggregate), Some(new)) = (&mut held, &new)
            && aggregate.append(new, 65_000)
        {
            continue;
        }
        all.extend(held.take().map(apart).unwrap_or_default());
        match new {
            Some(new) => held = Some(new),
            None => all.push(packet.clone()),
        }
    }
    all.extend(held.map(apart).unwrap_or_default());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a100_splitting_undoes_merging(packets in stream()) {
        let steered: Vec<_> = packets.iter().map(|packet| srv6(packet)).collect();
        prop_assert_eq!(there_and_back(&steered), steered);
    }

    #[test]
    fn the_stream_of_octets_is_the_same_and_in_order(packets in stream(), largest in 1280..9000_u32) {
        let steered: Vec<_> = packets.iter().map(|packet| srv6(packet)).collect();
        let octets = |packets: &[Vec<u8>]| -> Vec<u8> {
            packets.iter().flat_map(|packet| {
                let layers = parse_ip_packet(packet).unwrap();
                layers.payload().map(|payload| payload.bytes(packet).to_vec()).unwrap_or_default()
            }).collect()
        };
        let before = octets(&steered);
        // Nothing comes out of order here, so both modes keep it.
        for mode in ["buffer", "queue"] {
            let sent = all(&format!("mode: {mode}\nlargest: {largest}"), &steered);
            prop_assert_eq!(octets(&sent), before.clone());
            prop_assert!(sent.iter().all(|packet| packet.len() <= largest as usize));
        }
    }

    #[test]
    fn queue_loses_nothing_of_a_disordered_stream(packets in stream().prop_shuffle()) {
        let steered: Vec<_> = packets.iter().map(|packet| srv6(packet)).collect();
        let count = |packets: &[Vec<u8>]| packets.iter().map(|packet| {
            let layers = parse_ip_packet(packet).unwrap();
            layers.payload().map_or(0, |payload| payload.length)
        }).sum::<usize>();
        prop_assert_eq!(count(&all("mode: queue", &steered)), count(&steered));
    }
}

#[test]
fn wrong_configurations_say_what_to_do() {
    for (configuration, expected) in [
        ("largest: 100", "use 1280 to 65575"),
        ("longest_delay_ms: 0", "use 1 to 1000"),
        ("most_connections: 0", "use 1 to 1000000"),
        ("memory: 5", "use 131072 or more"),
        ("mode: stack", "test.yaml:1"),
    ] {
        let service = segue_services::find("tcp-bulk").unwrap();
        let error = service.prepare(configuration, "test.yaml").err().expect(configuration);
        assert!(error.to_string().contains(expected), "{configuration}: {error}");
    }
}
