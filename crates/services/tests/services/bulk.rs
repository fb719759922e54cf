//! `bulk` and `debulk`: there and back, sizes, delays, ways that must not be mixed, and aggregates with faults.

use proptest::prelude::*;
use segue_service::driver::{NEXT, SID, srv6, srv6_around};
use segue_service::{Driver, Prepared, Reason, Time};
use segue_services::corpus::{Random, Sender};
use segue_wire::layer::protocol;
use segue_wire::tcp::control::ACK;
use segue_wire::{AggfragRepr, Ipv4Repr, Ipv6Packet, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

fn prepared(service: &str, configuration: &str) -> Arc<dyn Prepared> {
    let prepared = segue_services::find(service).unwrap().prepare(configuration, "test.yaml");
    prepared.unwrap_or_else(|error| panic!("{configuration}: {error}"))
}

fn octets(driver: &mut Driver) -> Vec<Vec<u8>> {
    driver.sent().into_iter().map(|sent| sent.octets).collect()
}

/// What `bulk` makes of packets that come at once, when it has stopped.
fn bulked(configuration: &str, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut driver = Driver::prepared(&*prepared("bulk", configuration), 1);
    driver.receive(packets);
    driver.stop();
    octets(&mut driver)
}

/// `packet` as if the service's segment were in front of it again.
fn steered_again(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[7] += 1;
    packet[24..40].copy_from_slice(&SID.parse::<Ipv6Addr>().unwrap().octets());
    packet[43] += 1;
    packet
}

fn debulked(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut driver = Driver::prepared(&*prepared("debulk", ""), 1);
    driver.receive(packets);
    driver.stop();
    octets(&mut driver)
}

fn inner(packet: &[u8]) -> &[u8] {
    &packet[80..]
}

fn udp(port: u16, length: usize) -> Vec<u8> {
    let header = Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into());
    PacketBuilder::new().ipv4(header).udp(UdpRepr::new(port, 53)).payload(&vec![port as u8; length]).build()
}

#[test]
fn packets_of_one_way_travel_together_and_arrive_as_they_were() {
    let mut random = Random::new(4);
    let mut packets: Vec<_> = (0..40).map(|port| srv6(&udp(port, random.below(300)))).collect();
    packets.extend(Sender::IPV6.steered(&random.bytes(8000)));
    let travelling = bulked("path_mtu: 3000", &packets);
    assert!(travelling.len() <= 7, "{} packets for {}", travelling.len(), packets.len());
    for packet in &travelling {
        assert!(packet.len() <= 3000);
        let view = Ipv6Packet::new_checked(packet.as_slice()).unwrap();
        assert_eq!((view.total_length(), packet[40]), (packet.len(), protocol::AGGFRAG));
    }
    let again: Vec<_> = travelling.iter().map(|packet| steered_again(packet)).collect();
    let arrived = debulked(&again);
    let inners = |packets: &[Vec<u8>]| packets.iter().map(|packet| inner(packet).to_vec()).collect::<Vec<_>>();
    assert_eq!(inners(&arrived), inners(&packets), "all, in order");
    for packet in &arrived {
        let view = Ipv6Packet::new_checked(packet.as_slice()).unwrap();
        assert_eq!(view.total_length(), packet.len());
        assert_eq!(view.destination(), NEXT.parse::<Ipv6Addr>().unwrap());
        assert_ne!(view.flow_label(), 0);
    }
}

#[test]
fn no_packet_is_held_too_long_and_one_alone_has_no_frame() {
    let mut driver = Driver::prepared(&*prepared("bulk", "longest_delay_ms: 3"), 1);
    driver.receive(&[srv6(&udp(1, 100))]);
    driver.advance(Duration::from_millis(2));
    assert_eq!((driver.sent().len(), driver.counters().held()), (0, 1));
    driver.advance(Duration::from_millis(2));
    let sent = driver.sent();
    assert_eq!(sent[0].at, Time::START + Duration::from_millis(3));
    assert_eq!((sent[0].octets[40], inner(&sent[0].octets)), (protocol::IPV4, &udp(1, 100)[..]));
    driver.receive(&[srv6(&udp(1, 100))]);
    driver.advance(Duration::from_millis(2));
    driver.receive(&[srv6(&udp(2, 100))]);
    driver.advance(Duration::from_millis(1));
    assert_eq!(driver.sent().len(), 1, "the first one's time counts");
    driver.stop();
}

#[test]
fn what_fills_a_packet_is_not_held_and_overtakes_nothing() {
    let mut driver = Driver::prepared(&*prepared("bulk", "path_mtu: 1500"), 1);
    driver.receive(&[srv6(&udp(1, 50)), srv6(&udp(2, 1370))]);
    let sent = octets(&mut driver);
    assert_eq!(sent.iter().map(|packet| inner(packet).to_vec()).collect::<Vec<_>>(), [udp(1, 50), udp(2, 1370)]);
    assert_eq!(driver.counters().held(), 0);
    driver.stop();
}

/// A steered packet with something changed in its outer headers.
fn changed(inner: &[u8], change: impl Fn(&mut Ipv6Repr, &mut SrhRepr)) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let mut srh = SrhRepr::new(&["fc00:1::1", SID, NEXT].map(address)).with_segments_left(1);
    let mut outer = Ipv6Repr::new(address("fc00:5e9:1::1"), address(SID));
    change(&mut outer, &mut srh);
    let next_header = protocol::IPV4;
    let srh = SrhRepr { next_header, ..srh };
    PacketBuilder::new().ipv6(outer).srh(srh).payload(inner).build()
}

#[test]
fn ways_are_not_mixed() {
    let packet = udp(1, 50);
    let same = changed(&packet, |_, _| {});
    let count = |other: Vec<u8>| bulked("", &[same.clone(), other]).len();
    assert_eq!(count(same.clone()), 1);
    assert_eq!(
        count(changed(&packet, |_, srh| srh.segments[2] = Ipv6Addr::LOCALHOST)),
        1,
        "a segment that lies behind"
    );
    assert_eq!(count(changed(&packet, |outer, _| outer.flow_label = 9)), 1);
    assert_eq!(count(changed(&packet, |_, srh| srh.segments[0] = Ipv6Addr::LOCALHOST)), 2, "another way");
    assert_eq!(count(changed(&packet, |outer, _| outer.source = Ipv6Addr::LOCALHOST)), 2);
    assert_eq!(count(changed(&packet, |outer, _| outer.traffic_class = 4)), 2);
    assert_eq!(count(changed(&packet, |outer, _| outer.traffic_class = 1)), 2, "ECN");
    assert_eq!(count(changed(&packet, |_, srh| srh.tag = 3)), 2);
    assert_eq!(count(changed(&packet, |_, srh| srh.flags = 0x20)), 2);
}

#[test]
fn the_smallest_hop_limit_is_that_of_all() {
    let [one, other] = [30, 20].map(|hop_limit| changed(&udp(1, 50), |outer, _| outer.hop_limit = hop_limit));
    let sent = bulked("", &[one, other]);
    assert_eq!((sent.len(), sent[0][7]), (1, 19));
}

#[test]
fn all_packets_of_one_way_have_one_flow_label() {
    let label = |packet: &Vec<u8>| Ipv6Packet::new_checked(packet).unwrap().flow_label();
    let packets: Vec<_> =
        [(1, 50), (2, 60), (3, 1390), (4, 10)].iter().map(|(port, length)| srv6(&udp(*port, *length))).collect();
    let sent = bulked("path_mtu: 1500", &packets);
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|packet| label(packet) == label(&sent[0]) && label(packet) != 0));
    // Behind debulk: one for each flow, whether it came alone or not.
    let alone = debulked(&[srv6(&udp(1, 50))]);
    let again: Vec<_> = sent.iter().map(|packet| steered_again(packet)).collect();
    let arrived = debulked(&again);
    assert_eq!(label(&arrived[0]), label(&alone[0]));
    assert_ne!(label(&arrived[0]), label(&arrived[1]));
}

#[test]
fn what_is_no_ip_packet_goes_on_as_it_is() {
    for packet in [
        srv6_around(protocol::ETHERNET, &[3; 90]),
        srv6_around(protocol::IPV4, &[0x45; 90]),
        srv6_around(protocol::IPCOMP, &[3; 90]),
    ] {
        let sent = bulked("", std::slice::from_ref(&packet));
        assert_eq!(inner(&sent[0]), inner(&packet));
        assert_eq!(sent[0][40], packet[40]);
    }
}

#[test]
fn the_number_of_open_aggregates_is_bounded() {
    let mut driver = Driver::prepared(&*prepared("bulk", "most_open: 20"), 1);
    for number in 0..500_u16 {
        driver.receive(&[changed(&udp(1, 50), |_, srh| {
            srh.segments[0] = Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, number)
        })]);
        assert!(driver.counters().held() <= 20);
    }
    assert_eq!(driver.counters().metrics["evicted_aggregates"], 480);
    driver.stop();
    assert_eq!(driver.sent().len(), 500);
}

/// An aggregate with these octets behind its header.
fn aggregate(block_offset: u16, blocks: &[u8]) -> Vec<u8> {
    srv6_around(protocol::AGGFRAG, &PacketBuilder::new().aggfrag(AggfragRepr { block_offset }).payload(blocks).build())
}

/// What it is, the packet, what is delivered of it, and how many blocks are cut and malformed.
type Case<'a> = (&'a str, Vec<u8>, &'a [&'a [u8]], u64, u64);

#[test]
fn whole_blocks_are_delivered_and_others_counted() {
    let (one, two) = (udp(1, 50), Sender::IPV6.packet(0, 0, ACK, &[7; 60]));
    let cases: [Case<'_>; 7] = [
        ("two", aggregate(0, &[&one[..], &two].concat()), &[&one, &two], 0, 0),
        ("padding", aggregate(0, &[&one[..], &[0; 30]].concat()), &[&one], 0, 0),
        ("nothing but padding", aggregate(0, &[0; 30]), &[], 0, 0),
        ("cut at its end", aggregate(0, &[&one[..], &two[..70]].concat()), &[&one], 1, 0),
        ("cut in a header", aggregate(0, &[&one[..], &two[..7]].concat()), &[&one], 1, 0),
        ("cut at its beginning", aggregate(20, &[&one[10..30], &two].concat()), &[&two], 1, 0),
        ("no packet", aggregate(0, &[&one[..], &[0x70; 9], &two].concat()), &[&one], 0, 1),
    ];
    for (what, packet, expected, cut, malformed) in cases {
        let mut driver = Driver::prepared(&*prepared("debulk", ""), 1);
        driver.receive(&[packet]);
        let sent = octets(&mut driver);
        assert_eq!(sent.iter().map(|packet| inner(packet)).collect::<Vec<_>>(), expected, "{what}");
        let metrics = driver.counters().metrics;
        assert_eq!((metrics["cut_blocks"], metrics["malformed_blocks"]), (cut, malformed), "{what}");
        driver.stop();
    }
}

#[test]
fn aggregates_without_a_whole_block_are_dropped() {
    let one = udp(1, 50);
    let mut other_sub_type = aggregate(0, &one);
    other_sub_type[80] = 1;
    for packet in [
        aggregate(0, &one[..40]),
        aggregate(500, &one),
        aggregate(0, &[0x10; 40]),
        other_sub_type,
        srv6_around(protocol::AGGFRAG, &[0, 0]),
    ] {
        let mut driver = Driver::prepared(&*prepared("debulk", ""), 1);
        driver.receive(&[packet]);
        assert_eq!((driver.sent().len(), driver.counters().dropped(Reason::CorruptAggregate)), (0, 1));
        driver.stop();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_is_lost_and_flows_keep_their_order(
        sizes in prop::collection::vec((0..4_u16, 0..1300_usize, 0..8_u8, 0..4_u64), 1..80),
        mtu in 1280..9000_usize,
    ) {
        let mut driver = Driver::prepared(&*prepared("bulk", &format!("path_mtu: {mtu}")), 1);
        let mut packets = Vec::new();
        for (flow, length, way, pause) in sizes {
            let steered = changed(&udp(flow, length), |_, srh| srh.segments[0] = Ipv6Addr::from(u128::from(way)));
            packets.push(steered.clone());
            driver.receive(&[steered]);
            driver.advance(Duration::from_millis(pause));
        }
        driver.stop();
        let sent = octets(&mut driver);
        prop_assert!(sent.iter().all(|packet| packet.len() <= mtu.max(1500)));
        let again: Vec<_> = sent.iter().map(|packet| {
            let mut packet = packet.clone();
            (packet[7], packet[43]) = (packet[7] + 1, packet[43] + 1);
            packet
        }).collect();
        let arrived = debulked(&again);
        prop_assert_eq!(arrived.len(), packets.len());
        for way in 0..8_u8 {
            let of_way = |packets: &[Vec<u8>]| -> Vec<Vec<u8>> {
                packets.iter().filter(|packet| packet[63] == way).map(|packet| packet[96..].to_vec()).collect()
            };
            prop_assert_eq!(of_way(&arrived), of_way(&packets), "in the order in which they came");
        }
    }
}

#[test]
fn wrong_configurations_say_what_to_do() {
    for (configuration, expected) in
        [("path_mtu: 100", "use 1280"), ("longest_delay_ms: 5000", "use 1 to 1000"), ("most_open: 0", "use 1 to 65536")]
    {
        let error =
            segue_services::find("bulk").unwrap().prepare(configuration, "test.yaml").err().expect(configuration);
        assert!(error.to_string().contains(expected), "{configuration}: {error}");
    }
}
