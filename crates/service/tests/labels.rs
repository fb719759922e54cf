//! Stacks of labels as steering headers: good ones, bad ones, and octets that are neither.

use segue_service::driver::{LABELS, labels, labels_around, srv6};
use segue_service::{Context, Driver, FlowKey, Packet, Reason, Service, Steering, SteeringKind, Time, Unfit, Verdict};
use segue_wire::layer::protocol;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

fn udp(ipv6: bool) -> Vec<u8> {
    let builder = if ipv6 {
        PacketBuilder::new().ipv6(Ipv6Repr::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()))
    } else {
        PacketBuilder::new().ipv4(Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into()))
    };
    builder.udp(UdpRepr::new(7, 53)).payload(b"behind labels").build()
}

fn entry(label: u32) -> MplsEntry {
    MplsEntry { label, time_to_live: 64, traffic_class: 5, ..MplsEntry::default() }
}

fn stack(labels: &[u32]) -> Vec<MplsEntry> {
    labels.iter().map(|label| entry(*label)).collect()
}

fn read(octets: &[u8]) -> Result<Packet<'static>, Reason> {
    Packet::from_octets(SteeringKind::SrMpls, octets, Time::START)
}

fn of(packet: &Packet<'_>) -> Vec<u32> {
    match packet.steering() {
        Steering::SrMpls(labels) => labels.path().map(|entry| entry.label).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stack_is_what_leads_and_what_is_behind_it_is_the_inner_packet() {
    for (ipv6, number) in [(false, protocol::IPV4), (true, protocol::IPV6)] {
        let inner = udp(ipv6);
        // 7 and what follows it are no labels, also where that is 7 again; explicit null says what is behind it.
        let last = if ipv6 { 2 } else { 0 };
        for (labels, path, entropy) in [
            (vec![16_001], vec![16_001], None),
            (vec![16_001, 7, 90_000], vec![16_001], Some(90_000)),
            (vec![7, 7, 16_001, 7, 90_001, last], vec![16_001, last], Some(7)),
            ((100..132).collect(), (100..132).collect(), None),
        ] {
            let octets = labels_around(&stack(&labels), &inner);
            // What a device has put behind it is no part of it.
            let packet = read(&[&octets[..], &[0; 9]].concat()).unwrap();
            assert_eq!((packet.octets(), packet.inner(), packet.inner_protocol()), (&octets[..], &inner[..], number));
            assert_eq!(of(&packet), path);
            let Steering::SrMpls(found) = packet.steering() else { panic!("{packet:?}") };
            assert_eq!((found.entropy_label(), found.entries().count()), (entropy, labels.len()));
            assert_eq!((packet.steering().active(), packet.kind()), (None, SteeringKind::SrMpls));
            let tuple = packet.inner_five_tuple().unwrap();
            assert_eq!((tuple.ports, packet.flow()), (Some((7, 53)), FlowKey::of(&inner)));
        }
    }
}

#[test]
fn bad_stacks_are_no_packets_for_a_service() {
    let (four, six) = (udp(false), udp(true));
    let no_bottom = |labels: usize| [0, 1, 0x4a, 64].repeat(labels);
    let around = |labels: &[u32], inner: &[u8]| labels_around(&stack(labels), inner);
    let with = |at: usize, octet: u8| {
        let mut octets = around(&[16_001], &four);
        octets[at] = octet;
        octets
    };
    let thirty_three: Vec<u32> = (100..133).collect();
    let cases = [
        ("nothing", Vec::new(), Reason::Malformed),
        ("half an entry", vec![0, 1, 1], Reason::Malformed),
        ("no bottom", no_bottom(3), Reason::Malformed),
        (
            "no bottom, so that the packet is taken for one",
            [no_bottom(3), four.clone()].concat(),
            Reason::UnsupportedProtocol,
        ),
        ("no bottom for ever", no_bottom(400), Reason::Malformed),
        ("33 labels", around(&thirty_three, &four), Reason::Malformed),
        ("an indicator at the end", around(&[16_001, 7], &six), Reason::Malformed),
        ("an indicator alone", around(&[7], &six), Reason::Malformed),
        ("nothing behind", around(&[16_001], &[]), Reason::Malformed),
        ("no IP behind", around(&[16_001], &[0; 60]), Reason::UnsupportedProtocol),
        ("IPv6 behind explicit null of IPv4", around(&[16_001, 0], &six), Reason::Malformed),
        ("IPv4 behind explicit null of IPv6", around(&[2], &four), Reason::Malformed),
        ("half a header", around(&[16_001], &six[..39]), Reason::Malformed),
        ("less than it says", around(&[16_001], &six[..six.len() - 1]), Reason::Malformed),
        ("a header of 16 octets", with(4, 0x44), Reason::Malformed),
        ("a header longer than the packet", with(4, 0x4f), Reason::Malformed),
        ("longer than it is", with(6, 1), Reason::Malformed),
        ("shorter than its header", with(7, 19), Reason::Malformed),
    ];
    for (case, octets, reason) in cases {
        assert_eq!(read(&octets).map(|_| ()).unwrap_err(), reason, "{case}");
    }
    // Of a copy that was cut the end may be missing, but no header.
    let whole = around(&[16_001], &six);
    let cut = |octets: usize| {
        Packet::from_cut(SteeringKind::SrMpls, whole[..octets].to_vec(), whole.len(), Time::START)
            .map(|packet| packet.wire_length())
    };
    assert_eq!((cut(44), cut(43).unwrap_err()), (Ok(whole.len()), Reason::Malformed));
    // A longer one than was on the wire contradicts itself.
    let longer = Packet::from_cut(SteeringKind::SrMpls, whole[..44].to_vec(), 50, Time::START);
    assert_eq!(longer.map(|_| ()).unwrap_err(), Reason::Malformed);
}

#[test]
fn one_way_is_the_same_labels_whatever_their_ttl_and_entropy() {
    let packet = |entries: &[MplsEntry]| read(&labels_around(entries, &udp(true))).unwrap();
    let usual = packet(&stack(&[16_001, 7, 90_000, 16_002]));
    let way = |entries: &[MplsEntry]| packet(entries).steering().remaining() == usual.steering().remaining();
    assert!(way(&stack(&[16_001, 16_002])) && way(&stack(&[16_001, 16_002, 7, 90_001])));
    assert!(way(&[MplsEntry { time_to_live: 3, ..entry(16_001) }, entry(16_002)]));
    assert!(!way(&stack(&[16_002, 16_001])) && !way(&stack(&[16_001])) && !way(&stack(&[16_001, 16_002, 16_003])));
    assert!(!way(&[MplsEntry { traffic_class: 0, ..entry(16_001) }, entry(16_002)]));
    // The same header is more than the same way.
    let other = packet(&stack(&[16_001, 16_002]));
    assert!(!usual.steering().is_same(&other.steering()) && other.steering().is_same(&other.to_owned().steering()));
    let srv6 = Packet::from_octets(SteeringKind::Srv6, &srv6(&udp(true)), Time::START).unwrap();
    assert!(!usual.steering().is_same(&srv6.steering()));
}

#[test]
fn what_is_put_behind_labels_is_of_the_same_protocol() {
    let (short, long) = (udp(true), [udp(true), vec![0; 9000]].concat());
    let mut packet = read(&labels(&short)).unwrap();
    let before = packet.octets().to_vec();
    for number in [protocol::IPV4, protocol::IPCOMP, protocol::AGGFRAG, protocol::ETHERNET] {
        let error = Unfit::NotAnnounced { number, of: protocol::IPV6 };
        assert_eq!(packet.replace_inner(number, &[b"x"]), Err(error));
        assert_eq!(packet.behind_the_same(number, &[b"x"]).map(|_| ()), Err(error));
    }
    let most = before.len() - short.len() + 65_575;
    let too_long = vec![0; 65_576];
    assert_eq!(packet.replace_inner(protocol::IPV6, &[&too_long]), Err(Unfit::TooLong(most + 1)));
    assert_eq!(packet.octets(), before);
    packet.replace_inner(protocol::IPV6, &[&long[..50], &long[50..]]).unwrap();
    assert_eq!((packet.octets(), packet.wire_length()), (&labels(&long)[..], labels(&long).len()));
    let own = packet.behind_the_same(protocol::IPV6, &[&short]).unwrap();
    assert_eq!((own.octets(), own.inner_protocol()), (&before[..], protocol::IPV6));
}

struct Relay;

impl Service for Relay {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        if packet.inner().len() % 2 == 1 {
            context.send(packet.to_owned());
        }
        Verdict::Onward
    }
}

/// The node sees to labels and TTLs: what a service lets go on leaves as it came, and no octets make it fail.
#[test]
fn broken_packets_with_labels_have_one_end_each_and_what_goes_on_is_as_it_came() {
    let mut driver = Driver::new(vec![Box::new(Relay), Box::new(Relay)]).steered_by(SteeringKind::SrMpls);
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below.max(1)
    };
    let whole: Vec<_> = [&LABELS[..], &[16_001, 7, 80_000], &[7, 3, 2], &[0]]
        .iter()
        .map(|labels| labels_around(&stack(labels), &udp(labels.len() > 1)))
        .collect();
    let mut own = 0;
    for _ in 0..5000 {
        let mut octets = whole[random(whole.len())].clone();
        for _ in 0..random(4) {
            let at = random(octets.len().min(60));
            octets[at] = random(256) as u8;
        }
        octets.truncate(octets.len() - random(40).saturating_sub(30));
        let found = read(&octets).map(|packet| packet.octets().to_vec());
        driver.receive(&[octets]);
        let sent: Vec<_> = driver.sent().into_iter().map(|sent| sent.octets).collect();
        match found {
            Ok(packet) => assert!(sent.iter().all(|sent| *sent == packet) && !sent.is_empty()),
            Err(_) => assert!(sent.is_empty()),
        }
        own += sent.len().saturating_sub(1);
    }
    let counters = driver.counters();
    assert!(counters.onward > 1000 && own > 500 && counters.dropped(Reason::Malformed) > 500, "{counters:?}");
    driver.stop();
}
