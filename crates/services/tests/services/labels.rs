//! Services behind a label: they do what they do behind a SID, and give the stack back as it came.

use std::time::Duration;

use segue_service::driver::{LABELS, labels, labels_around};
use segue_service::{Driver, Mode, Reason, Sampling, SteeringKind};
use segue_services::corpus::{Random, Sender};
use segue_services::refragment::{Inner, inspect};
use segue_services::tcp_bulk::{Class, split};
use segue_wire::layer::protocol;
use segue_wire::mpls::MplsEntry;
use segue_wire::{FragmentRepr, Ipv6Repr, PacketBuilder, UdpRepr};
use serde_json::json;

/// Octets of the stack of the driver.
const STACK: usize = 4 * LABELS.len();

fn driver(service: &str, configuration: &str, workers: usize) -> Driver {
    let prepared = segue_services::find(service).unwrap().prepare(configuration, "x").unwrap();
    assert_eq!(prepared.refuses_labels(), None);
    Driver::prepared(prepared.as_ref(), workers).steered_by(SteeringKind::SrMpls)
}

fn sent(driver: &mut Driver) -> Vec<Vec<u8>> {
    driver.sent().into_iter().map(|sent| sent.octets).collect()
}

fn addresses() -> Ipv6Repr {
    Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
}

fn udp(port: u16, length: usize) -> Vec<u8> {
    PacketBuilder::new().ipv6(addresses()).udp(UdpRepr::new(port, 53)).payload(&vec![7; length]).build()
}

fn stack(labels: &[u32]) -> Vec<MplsEntry> {
    labels.iter().map(|label| MplsEntry { label: *label, time_to_live: 9, ..MplsEntry::default() }).collect()
}

#[test]
fn what_makes_something_else_of_packets_says_why_it_cannot_be_behind_a_label() {
    let refused: Vec<_> = segue_services::ALL
        .iter()
        .filter(|service| service.prepare("", "x").unwrap().refuses_labels().is_some())
        .map(|service| service.name())
        .collect();
    assert_eq!(refused, ["bulk", "compress", "debulk", "decompress"]);
}

#[test]
fn forwarded_packets_leave_as_they_came_and_flows_are_spread_by_what_is_behind_the_labels() {
    let mut driver = driver("forward", "", 2);
    let packets: Vec<_> = (0..32).map(|port| labels(&udp(port, 100))).collect();
    driver.receive(&packets);
    let mut found = driver.sent();
    let workers: std::collections::BTreeSet<_> = found.iter().map(|sent| sent.worker).collect();
    assert_eq!(workers.len(), 2);
    found.sort_by_key(|sent| sent.octets[STACK + 40..STACK + 42].to_vec());
    assert!(found.iter().map(|sent| &sent.octets).eq(&packets));
    driver.stop();
}

#[test]
fn stacks_are_counted_without_entropy_labels() {
    let prepared = segue_services::find("counter").unwrap().prepare("", "x").unwrap();
    assert_eq!(
        (prepared.mode(), prepared.sampling()),
        (Mode::Asynchronous, Sampling { snap_length: Some(256), one_in: 1 })
    );
    let mut driver = driver("counter", "", 1);
    let packet = |labels: &[u32], port| labels_around(&stack(labels), &udp(port, 300));
    let packets = [
        packet(&[16_001, 16_002], 1),
        packet(&[16_001, 16_002, 7, 90_001], 1),
        packet(&[16_001, 7, 90_002, 16_002], 2),
        packet(&[16_001], 2),
    ];
    driver.receive_cut(&packets, 256);
    let report = driver.report(0);
    let octets = |of: &[usize]| of.iter().map(|index| packets[*index].len()).sum::<usize>();
    assert_eq!(
        report["segment_lists"],
        json!([
            {"labels": [16_001, 16_002], "packets": 3, "octets": octets(&[0, 1, 2]), "error_octets": 0},
            {"labels": [16_001], "packets": 1, "octets": octets(&[3]), "error_octets": 0},
        ])
    );
    let flows: Vec<_> = report["flows"].as_array().unwrap().iter().map(|flow| &flow["packets"]).collect();
    assert_eq!((flows, &report["sids"]), (vec![&json!(2), &json!(2)], &json!([])));
    driver.stop();
}

#[test]
fn segments_behind_the_same_labels_become_one_that_can_be_split() {
    for sender in [Sender { segment: 100, ..Sender::IPV4 }, Sender { segment: 100, ..Sender::IPV6 }] {
        for mode in ["buffer", "queue"] {
            let stream = Random::new(1).bytes(950);
            let inner = sender.inner(&stream);
            let packets: Vec<_> = inner.iter().map(|inner| labels(inner)).collect();
            let mut driver = driver("tcp-bulk", &format!("mode: {mode}"), 1);
            driver.receive(&packets);
            let merged = sent(&mut driver);
            assert_eq!(merged.len(), 1, "{mode}");
            let Class::Mergeable(found) = Class::of(SteeringKind::SrMpls, &merged[0], &mut Vec::new()) else {
                panic!("checksums and lengths are right")
            };
            assert_eq!(merged[0][found.places.payload..], stream);
            assert_eq!(split(&merged[0], &found, 100, &[]), packets, "{mode}");
            driver.stop();
            // Another stack is another connection, another TTL or TC no reason to lose one.
            let (ttl, class) = (
                MplsEntry { time_to_live: 63, ..stack(&LABELS)[0] },
                MplsEntry { traffic_class: 3, ..stack(&LABELS)[0] },
            );
            for other in [stack(&[16_001, 16_002]), vec![ttl, stack(&LABELS)[1]], vec![class, stack(&LABELS)[1]]] {
                let mut driver = self::driver("tcp-bulk", &format!("mode: {mode}"), 1);
                let mixed: Vec<_> = (0..8)
                    .map(
                        |index| {
                            if index % 2 == 0 { labels(&inner[index]) } else { labels_around(&other, &inner[index]) }
                        },
                    )
                    .collect();
                driver.receive(&mixed);
                driver.advance(Duration::from_millis(20));
                let mut found = sent(&mut driver);
                found.sort();
                let mut expected = mixed;
                expected.sort();
                assert_eq!(found, expected, "{mode}: no two could be one");
                driver.stop();
            }
        }
    }
}

#[test]
fn fragments_behind_labels_become_whole_and_whole_packets_fragments() {
    let whole = udp(7, 3000);
    let data = &whole[40..];
    let fragments: Vec<_> = data
        .chunks(1200)
        .enumerate()
        .map(|(index, piece)| {
            let more_fragments = (index + 1) * 1200 < data.len();
            let fragment_offset = index as u16 * 1200;
            let header =
                FragmentRepr { next_header: protocol::UDP, fragment_offset, more_fragments, identification: 3 };
            PacketBuilder::new().ipv6(addresses()).fragment(header).payload(piece).build()
        })
        .collect();
    let mut driver = driver("refragment", "", 1);
    // Entropy labels are those of flows: they do not tell fragments apart.
    driver.receive(&[labels(&fragments[2]), labels(&fragments[0])]);
    driver.receive(&[labels_around(&stack(&[LABELS[0], LABELS[1], 7, 90_000]), &fragments[1])]);
    let found = sent(&mut driver);
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with(&whole));
    // Behind other labels they are of something else.
    driver.receive(&[labels(&fragments[0]), labels_around(&stack(&[16_009]), &fragments[1]), labels(&fragments[2])]);
    assert_eq!(sent(&mut driver).len(), 0);
    driver.stop();
    assert_eq!(driver.counters().dropped(Reason::HeldTooLong), 3);

    let mut driver = self::driver("refragment", "output: fragments\nmtu: 1280", 1);
    driver.receive(&[labels(&whole)]);
    let found = sent(&mut driver);
    assert_eq!(found.len(), 3);
    for piece in &found {
        assert!(piece.len() <= 1280 && piece[..STACK] == labels(&[])[..STACK]);
        assert!(matches!(inspect(protocol::IPV6, &piece[STACK..]), Ok(Inner::Fragment(_))));
    }
    driver.stop();
}
