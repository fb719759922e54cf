//! `refragment`: the acceptance lines on fragments, from any order, and within bounds.

use proptest::prelude::*;
use segue_service::driver::{srv6, srv6_around};
use segue_service::{Driver, Prepared, Reason, Snapshot};
use segue_services::corpus::Random;
use segue_services::refragment::{Fault, Inner, inspect};
use segue_wire::layer::protocol;
use segue_wire::tcp::control::ACK;
use segue_wire::{
    FragmentRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, OptionsRepr, PacketBuilder, TcpRepr, UdpRepr,
    parse_ip_packet,
};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

const HERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2);
const THERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 2);

fn prepared(configuration: &str) -> Arc<dyn Prepared> {
    let prepared = segue_services::find("refragment").unwrap().prepare(configuration, "test.yaml");
    prepared.unwrap_or_else(|error| panic!("{configuration}: {error}"))
}

fn driver(configuration: &str) -> Driver {
    let prepared = prepared(configuration);
    let service = prepared.build(segue_service::Worker::ONLY).unwrap();
    let mut driver = Driver::with(vec![service], prepared.mode(), 65_575, prepared.metrics());
    driver.set_frame_length(2048);
    driver
}

/// A UDP datagram with so many octets, whole, and how fragments of it are made.
#[derive(Clone)]
struct Datagram {
    ipv6: bool,
    identification: u16,
    source: u8,
    /// Behind the IP header, or the headers that every fragment has.
    data: Vec<u8>,
}

impl Datagram {
    fn new(ipv6: bool, length: usize) -> Self {
        let whole = Self { ipv6, identification: 77, source: 2, data: Vec::new() };
        let built = whole
            .builder_whole()
            .udp(UdpRepr::new(7, 8))
            .payload(&Random::new(length as u64 + 1).bytes(length))
            .build();
        Self { data: built[whole.header_length()..].to_vec(), ..whole }
    }

    fn header_length(&self) -> usize {
        if self.ipv6 { 40 } else { 20 }
    }

    fn source_ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::from(u128::from(HERE) ^ 2 ^ u128::from(self.source))
    }

    fn builder_whole(&self) -> PacketBuilder {
        let number = protocol::UDP;
        if self.ipv6 {
            PacketBuilder::new().ipv6(Ipv6Repr { next_header: number, ..Ipv6Repr::new(self.source_ipv6(), THERE) })
        } else {
            PacketBuilder::new().ipv4(self.ipv4())
        }
    }

    fn ipv4(&self) -> Ipv4Repr {
        let header = Ipv4Repr::new([10, 1, 0, self.source].into(), [10, 2, 0, 2].into());
        Ipv4Repr { protocol: protocol::UDP, identification: self.identification, ..header }
    }

    fn whole(&self) -> Vec<u8> {
        self.builder_whole().payload(&self.data).build()
    }

    fn fragment_with(&self, offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
        let offset = u16::try_from(offset).unwrap();
        if self.ipv6 {
            let header = FragmentRepr {
                next_header: protocol::UDP,
                fragment_offset: offset,
                more_fragments: more,
                identification: self.identification.into(),
            };
            let header6 = Ipv6Repr::new(self.source_ipv6(), THERE);
            srv6(&PacketBuilder::new().ipv6(header6).fragment(header).payload(data).build())
        } else {
            let header = Ipv4Repr { fragment_offset: offset, more_fragments: more, ..self.ipv4() };
            srv6(&PacketBuilder::new().ipv4(header).payload(data).build())
        }
    }

    /// The octets from `start` to `end` as a fragment behind a steering header.
    fn fragment(&self, start: usize, end: usize) -> Vec<u8> {
        self.fragment_with(start, end < self.data.len(), &self.data[start..end])
    }

    fn fragments(&self, size: usize) -> Vec<Vec<u8>> {
        (0..self.data.len())
            .step_by(size)
            .map(|start| self.fragment(start, (start + size).min(self.data.len())))
            .collect()
    }
}

/// Inner packets that leave for these, and the counters.
fn through(configuration: &str, packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Snapshot) {
    let mut driver = driver(configuration);
    driver.receive(packets);
    let sent = driver.sent().into_iter().map(|sent| inner(&sent.octets)).collect();
    let counters = driver.counters();
    driver.stop();
    (sent, counters)
}

fn inner(packet: &[u8]) -> Vec<u8> {
    assert_eq!(Ipv6Packet::new_checked(packet).unwrap().total_length(), packet.len());
    packet[80..].to_vec()
}

#[test]
fn datagrams_are_put_together_from_any_order() {
    for ipv6 in [false, true] {
        let datagram = Datagram::new(ipv6, 3000);
        let fragments = datagram.fragments(1000);
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let packets: Vec<_> = order.iter().map(|index| fragments[*index].clone()).collect();
            let (sent, counters) = through("", &packets);
            assert_eq!(sent, [datagram.whole()], "{order:?}, IPv6: {ipv6}");
            assert_eq!((counters.taken, counters.taken_sent), (4, 4));
        }
    }
}

#[test]
fn datagrams_with_the_same_identification_are_told_apart() {
    for ipv6 in [false, true] {
        let one = Datagram::new(ipv6, 500);
        let others = [
            Datagram { source: 9, ..Datagram::new(ipv6, 600) },
            Datagram { identification: 78, ..Datagram::new(ipv6, 600) },
        ];
        for other in others {
            let packets: Vec<_> =
                one.fragments(400).into_iter().zip(other.fragments(400)).flat_map(|(a, b)| [a, b]).collect();
            assert_eq!(through("", &packets).0, [one.whole(), other.whole()]);
        }
        // The same addresses behind another steering header are those of others.
        let mut elsewhere = one.fragments(400);
        elsewhere[1][63] ^= 1;
        assert_eq!(through("", &elsewhere).0, Vec::<Vec<u8>>::new());
    }
}

#[test]
fn a90_an_overlap_loses_the_datagram_and_a_duplicate_does_not() {
    for ipv6 in [false, true] {
        let datagram = Datagram::new(ipv6, 57);
        let (first, second, third) = (datagram.fragment(0, 24), datagram.fragment(24, 48), datagram.fragment(48, 65));
        let all = [first.clone(), second.clone(), third.clone()];
        let twice = [first.clone(), first.clone(), second.clone(), second.clone(), third.clone()];
        let (sent, counters) = through("", &twice);
        assert_eq!((sent, counters.dropped(Reason::Duplicate)), (vec![datagram.whole()], 2));

        let with = |data: &[u8], offset: usize, more: bool| datagram.fragment_with(offset, more, data);
        let mut changed = datagram.data[24..48].to_vec();
        changed[5] ^= 1;
        // Two that are there, a wrong one that comes; nothing of it is ever sent.
        for (what, held, wrong) in [
            ("the same place, another octet", [0, 1], with(&changed, 24, true)),
            ("one octet of the last", [0, 2], with(&datagram.data[..8], 64, true)),
            ("the end of the first", [2, 0], with(&datagram.data[16..32], 16, true)),
            ("the beginning of the last", [0, 2], with(&datagram.data[40..56], 40, true)),
            ("inside (teardrop)", [1, 0], with(&datagram.data[24..40], 24, true)),
            ("around", [1, 2], with(&datagram.data[..48], 0, true)),
            ("another end", [0, 2], with(&datagram.data[48..60], 48, false)),
            ("behind the end", [2, 0], with(&datagram.data[..16], 72, true)),
        ] {
            let mut driver = driver("");
            driver.receive(&[all[held[0]].clone(), all[held[1]].clone(), wrong]);
            let counters = driver.counters();
            assert_eq!((counters.held(), counters.dropped(Reason::FragmentOverlap)), (0, 3), "{what}");
            driver.receive(&all);
            driver.advance(Duration::from_secs(29));
            driver.receive(&all);
            assert_eq!(driver.sent().len(), 0, "{what}, IPv6: {ipv6}; no ICMP message either");
            // Its time is up: another datagram may have the identification.
            driver.advance(Duration::from_secs(32));
            driver.receive(&all);
            assert_eq!(driver.sent().len(), 1, "{what}");
            driver.stop();
        }
    }
}

#[test]
fn a91_fragments_are_held_for_60_s_from_the_first_and_for_30_s_of_ipv4() {
    for (ipv6, seconds) in [(true, 60), (false, 30)] {
        let datagram = Datagram::new(ipv6, 3000);
        let fragments = datagram.fragments(1000);
        let mut driver = driver("");
        driver.receive(&fragments[2..3]);
        driver.advance(Duration::from_secs(seconds - 1));
        // A later one does not make it longer.
        driver.receive(&fragments[..2]);
        assert_eq!(driver.counters().held(), 3);
        driver.advance(Duration::from_millis(1001));
        let counters = driver.counters();
        assert_eq!((counters.held(), counters.dropped(Reason::HeldTooLong)), (0, 3));
        assert_eq!(counters.metrics["held_octets"], 0);
        driver.receive(&fragments[3..]);
        assert_eq!((driver.sent().len(), driver.counters().held()), (0, 1));
        driver.stop();
    }
}

/// What an inner packet is, from its steered form.
fn fault(packet: &[u8]) -> Option<Fault> {
    inspect(packet[40], &packet[80..]).err()
}

/// Code and pointer of the ICMPv6 Parameter Problem that the destination would send.
fn problem(packet: &[u8]) -> Option<(u8, u32)> {
    let error = fault(packet)?.icmpv6_error()?;
    Some((error.code, error.pointer))
}

#[test]
fn a92_a_length_that_is_no_multiple_of_8() {
    let datagram = Datagram::new(true, 100);
    let packet = datagram.fragment_with(0, true, &datagram.data[..20]);
    assert_eq!(problem(&packet), Some((0, 4)));
    let (sent, counters) = through("", std::slice::from_ref(&packet));
    assert_eq!((sent.len(), counters.dropped(Reason::FragmentInvalid)), (0, 1));
    assert_eq!(counters.metrics["length_fragments"], 1);
    let datagram = Datagram::new(false, 100);
    assert_eq!(fault(&datagram.fragment_with(0, true, &datagram.data[..20])), Some(Fault::Length));
    // The last one may have any length.
    assert_eq!(fault(&datagram.fragment_with(8, false, &[1])), None);
}

#[test]
fn a93_more_than_65535_octets() {
    for ipv6 in [true, false] {
        let datagram = Datagram::new(ipv6, 100);
        let most = if ipv6 { 65_535 } else { 65_535 - 20 };
        let at = 65_504;
        let (fits, too_long) = (vec![0; most - at], vec![0; most - at + 1]);
        assert_eq!(fault(&datagram.fragment_with(at, false, &fits)), None, "IPv6: {ipv6}");
        let packet = datagram.fragment_with(at, false, &too_long);
        assert!(matches!(fault(&packet), Some(Fault::TooLong { .. })));
        assert_eq!(problem(&packet), ipv6.then_some((0, 42)));
        assert_eq!(through("", &[packet]).1.metrics["too_long_fragments"], 1);
    }
}

#[test]
fn a94_a_first_fragment_without_all_headers() {
    let datagram = Datagram::new(true, 100);
    let header = FragmentRepr { more_fragments: true, ..FragmentRepr::default() };
    let first = |next_header: u8, data: &[u8]| {
        let header = FragmentRepr { next_header, ..header };
        srv6(&PacketBuilder::new().ipv6(Ipv6Repr::new(HERE, THERE)).fragment(header).payload(data).build())
    };
    // Half a TCP header; a destination options header that goes on.
    for packet in [first(protocol::TCP, &[0x50; 16]), first(protocol::DESTINATION_OPTIONS, &[6, 2, 0, 0, 0, 0, 0, 0])] {
        assert_eq!(problem(&packet), Some((3, 0)));
        assert_eq!(through("", &[packet]).1.metrics["incomplete_chain_fragments"], 1);
    }
    assert_eq!(fault(&first(protocol::TCP, &[0x50; 24])), None);
    assert_eq!(fault(&datagram.fragment(0, 8)), None);
}

#[test]
fn tiny_fragments_of_tcp() {
    let datagram = Datagram::new(false, 100);
    let tcp = |offset: u16, data: &[u8]| {
        let header =
            Ipv4Repr { protocol: protocol::TCP, fragment_offset: offset, more_fragments: true, ..datagram.ipv4() };
        srv6(&PacketBuilder::new().ipv4(header).payload(data).build())
    };
    let mut options = vec![0; 32];
    options[12] = 0x80;
    // RFC 1858: offset 1. RFC 3128: a first fragment that ends in the header.
    for packet in [tcp(8, &options), tcp(0, &options[..16]), tcp(0, &options[..24])] {
        assert_eq!(fault(&packet), Some(Fault::Tiny));
        assert_eq!(through("", &[packet]).1.metrics["tiny_fragments"], 1);
    }
    assert_eq!(fault(&tcp(0, &options)), None);
    assert_eq!(fault(&tcp(16, &options)), None);
}

#[test]
fn a95_an_atomic_fragment_is_a_packet_for_itself() {
    let datagram = Datagram::new(true, 100);
    let mut driver = driver("");
    // Fragments with the same identification wait, and are not touched.
    driver.receive(&[datagram.fragment(0, 40)]);
    driver.receive(&[datagram.fragment_with(0, false, &datagram.data)]);
    let sent: Vec<_> = driver.sent().iter().map(|sent| inner(&sent.octets)).collect();
    assert_eq!(sent, [datagram.whole()], "without its fragment header");
    driver.receive(&[datagram.fragment(40, 108)]);
    assert_eq!(driver.sent().len(), 1);
    driver.stop();
}

#[test]
fn a96_length_and_headers_of_the_result_are_those_of_the_first_fragment() {
    let options = OptionsRepr { options: vec![5, 2, 0, 0, 1, 0], ..OptionsRepr::default() };
    let tcp = TcpRepr::new(9, 10, ACK);
    let header = |hop_limit: u8| Ipv6Repr { hop_limit, ..Ipv6Repr::new(HERE, THERE) };
    let whole = PacketBuilder::new().ipv6(header(33)).hop_by_hop(options.clone()).tcp(tcp).payload(&[4; 500]).build();
    let data = whole[48..].to_vec();
    let fragment = |hop_limit: u8, next_header: u8, start: usize, end: usize| {
        let fields = FragmentRepr {
            next_header,
            fragment_offset: start as u16,
            more_fragments: end < data.len(),
            identification: 5,
        };
        let builder = PacketBuilder::new().ipv6(header(hop_limit)).hop_by_hop(options.clone()).fragment(fields);
        srv6(&builder.payload(&data[start..end]).build())
    };
    // Others may say another next header and hop limit: they do not count.
    let packets =
        [fragment(9, protocol::UDP, 200, 400), fragment(33, protocol::TCP, 0, 200), fragment(1, 0, 400, data.len())];
    let (sent, _) = through("", &packets);
    assert_eq!(sent, [whole]);
    // PL = PL.first - FL.first - 8 + 8 * FO.last + FL.last (RFC 8200 section 4.5).
    let first = usize::from(Ipv6Packet::new_checked(&packets[1][80..]).unwrap().payload_length());
    let expected = first - 200 - 8 + 400 + (data.len() - 400);
    assert_eq!(usize::from(Ipv6Packet::new_checked(sent[0].as_slice()).unwrap().payload_length()), expected);
}

#[test]
fn a97_fragments_are_no_larger_than_the_largest_that_came_and_than_the_mtu() {
    for ipv6 in [false, true] {
        let datagram = Datagram::new(ipv6, 5000);
        let headers = datagram.header_length() + if ipv6 { 8 } else { 0 };
        for (configuration, came, largest) in [
            ("output: fragments", 1200, 1200 + headers),
            ("output: fragments\nmtu: 1280", 1400, 1200),
            ("output: whole\nmtu: 1280", 1400, 1200),
            ("output: whole\nmtu: 3000", 1400, 1400 + headers),
        ] {
            let mut packets = datagram.fragments(came);
            packets.reverse();
            let (sent, counters) = through(configuration, &packets);
            assert_eq!(counters.metrics["fragmented_datagrams"], 1);
            let parts: Vec<_> = sent
                .iter()
                .map(|packet| match inspect(if ipv6 { 41 } else { 4 }, packet) {
                    Ok(Inner::Fragment(fragment)) => fragment,
                    other => panic!("{other:?}"),
                })
                .collect();
            for (index, part) in parts.iter().enumerate() {
                assert!(part.length <= largest, "{configuration}: {} of {largest}", part.length);
                assert_eq!(part.more, index + 1 < parts.len());
                assert!(!part.more || part.data.len() % 8 == 0 && part.length + 8 > largest, "as full as can be");
                assert_eq!(part.identity.identification, 77, "the identification is that of those that came");
            }
            assert!(parts.is_sorted_by_key(|part| part.offset));
            let again: Vec<_> = sent.iter().map(|packet| srv6(packet)).collect();
            assert_eq!(through("", &again).0, [datagram.whole()]);
        }
    }
}

#[test]
fn whole_packets_that_are_too_large_become_fragments() {
    for ipv6 in [false, true] {
        let datagram = Datagram::new(ipv6, 5000);
        let whole = srv6(&datagram.whole());
        let small = srv6(&Datagram::new(ipv6, 1000).whole());
        let configuration = "output: fragments\nmtu: 1400";
        let (sent, counters) = through(configuration, &[small.clone(), whole.clone(), whole.clone()]);
        assert_eq!((counters.onward, counters.taken, counters.taken_sent), (1, 2, 2), "IPv6: {ipv6}");
        assert_eq!(counters.metrics["cut_packets"], 2);
        assert_eq!(sent.len(), 1 + 2 * 4);
        assert!(sent.iter().all(|packet| packet.len() <= 1400 - 80));
        let again: Vec<_> = sent[1..].iter().map(|packet| srv6(packet)).collect();
        // Another packet has another identification, if its source has not given it one.
        let identification = |packet: &[u8]| match inspect(if ipv6 { 41 } else { 4 }, &packet[80..]) {
            Ok(Inner::Fragment(fragment)) => fragment.identity.identification,
            other => panic!("{other:?}"),
        };
        assert!(again[..4].iter().all(|packet| identification(packet) == identification(&again[0])));
        assert_eq!(identification(&again[0]) != identification(&again[4]), ipv6);
        assert_eq!(through("", &again).0, [datagram.whole(), datagram.whole()]);
        // Where whole packets are wanted, they go on.
        let (sent, counters) = through("mtu: 1400", std::slice::from_ref(&whole));
        assert_eq!((sent, counters.onward), (vec![datagram.whole()], 1));
        if !ipv6 {
            let mut forbidden = whole.clone();
            forbidden[86] |= 0x40;
            Ipv4Packet::new_checked(&mut forbidden[80..]).unwrap().fill_checksum();
            let (sent, counters) = through(configuration, &[forbidden]);
            assert_eq!((sent.len(), counters.dropped(Reason::TooBig)), (0, 1));
        }
    }
}

#[test]
fn fragments_of_whole_packets_have_the_headers_that_routers_read() {
    let options = OptionsRepr { options: vec![5, 2, 0, 0, 1, 0], ..OptionsRepr::default() };
    let header = Ipv6Repr::new(HERE, THERE);
    let datagram = Datagram::new(true, 3000);
    let own = PacketBuilder::new().ipv6(header).hop_by_hop(options.clone());
    let whole =
        own.clone().destination_options(options.clone()).udp(UdpRepr::new(7, 8)).payload(&datagram.data).build();
    let (sent, _) = through("output: fragments\nmtu: 1280", &[srv6(&whole)]);
    assert_eq!(sent.len(), 3);
    for packet in &sent {
        let Ok(Inner::Fragment(fragment)) = inspect(protocol::IPV6, packet) else { panic!("{packet:?}") };
        assert_eq!((fragment.header.len(), fragment.next_header), (48, protocol::DESTINATION_OPTIONS));
        assert_eq!(
            fragment.header[40..],
            whole[40..48]
                .iter()
                .enumerate()
                .map(|(at, octet)| { if at == 0 { protocol::FRAGMENT } else { *octet } })
                .collect::<Vec<_>>()
        );
    }
    let again: Vec<_> = sent.iter().map(|packet| srv6(packet)).collect();
    assert_eq!(through("", &again).0, [whole]);
    // An atomic fragment has its identification already.
    let fields = FragmentRepr { next_header: protocol::UDP, identification: 4711, ..FragmentRepr::default() };
    let atomic = PacketBuilder::new().ipv6(header).fragment(fields).payload(&datagram.data).build();
    let (sent, _) = through("output: fragments\nmtu: 1280", &[srv6(&atomic)]);
    for packet in &sent {
        let Ok(Inner::Fragment(fragment)) = inspect(protocol::IPV6, packet) else { panic!("{packet:?}") };
        assert_eq!(fragment.identity.identification, 4711);
    }
}

#[test]
fn a97_df_is_kept_and_obeyed() {
    let datagram = Datagram::new(false, 3000);
    let with_df = |packet: &Vec<u8>| {
        let mut packet = packet.clone();
        packet[86] |= 0x40;
        Ipv4Packet::new_checked(&mut packet[80..]).unwrap().fill_checksum();
        packet
    };
    let packets: Vec<_> = datagram.fragments(1400).iter().map(with_df).collect();
    let (sent, _) = through("", &packets);
    assert!(Ipv4Packet::new_checked(sent[0].as_slice()).unwrap().dont_fragment());
    let (sent, _) = through("output: fragments", &packets);
    assert!(sent.iter().all(|packet| Ipv4Packet::new_checked(packet).unwrap().dont_fragment()));
    // Smaller ones may not be made of them.
    let (sent, counters) = through("mtu: 1280", &packets);
    assert_eq!((sent.len(), counters.dropped(Reason::TooBig)), (0, 3));
    // DF of a smaller fragment does not count.
    let mut packets = datagram.fragments(1400);
    packets[2] = with_df(&packets[2]);
    let (sent, _) = through("", &packets);
    assert!(!Ipv4Packet::new_checked(sent[0].as_slice()).unwrap().dont_fragment());
}

#[test]
fn options_of_ipv4_are_copied_as_they_say() {
    let datagram = Datagram::new(false, 2000);
    // Record route (not copied), router alert (copied), end of options.
    let options = vec![7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0];
    let fragment = |start: usize, end: usize, options: &[u8]| {
        let header = Ipv4Repr {
            fragment_offset: start as u16,
            more_fragments: end < datagram.data.len(),
            options: options.to_vec(),
            ..datagram.ipv4()
        };
        srv6(&PacketBuilder::new().ipv4(header).payload(&datagram.data[start..end]).build())
    };
    let packets = [fragment(0, 1000, &options), fragment(1000, 2008, &options[7..11])];
    let (sent, _) = through("output: fragments", &packets);
    let seen: Vec<_> = sent.iter().map(|packet| Ipv4Packet::new_checked(packet).unwrap().options().to_vec()).collect();
    assert_eq!(seen[0], options);
    assert!(seen.len() > 1 && seen[1..].iter().all(|seen| seen == &[148, 4, 0, 0]), "{seen:?}");
    let (sent, _) = through("", &packets);
    assert_eq!(Ipv4Packet::new_checked(sent[0].as_slice()).unwrap().options(), options);
}

#[test]
fn a98_ecn_of_fragments() {
    for ipv6 in [false, true] {
        let datagram = Datagram::new(ipv6, 100);
        let with = |packet: Vec<u8>, ecn: u8| {
            let mut packet = packet;
            if ipv6 {
                packet[81] |= ecn << 4;
            } else {
                packet[81] |= ecn;
                Ipv4Packet::new_checked(&mut packet[80..]).unwrap().fill_checksum();
            }
            packet
        };
        let (not_ect, ect1, ect0, ce) = (0, 1, 2, 3);
        for (first, second, expected) in [
            (not_ect, not_ect, Some(not_ect)),
            (ect0, ect0, Some(ect0)),
            (ect0, ce, Some(ce)),
            (ce, ect1, Some(ce)),
            (ce, ce, Some(ce)),
            (ect0, ect1, Some(ect0)),
            (not_ect, ce, None),
            (ce, not_ect, None),
            (not_ect, ect0, None),
        ] {
            let packets = [with(datagram.fragment(0, 48), first), with(datagram.fragment(48, 108), second)];
            let (sent, counters) = through("", &packets);
            let seen = sent.first().map(|packet| if ipv6 { packet[1] >> 4 & 3 } else { packet[1] & 3 });
            assert_eq!(seen, expected, "{first} and {second}, IPv6: {ipv6}");
            assert_eq!(counters.dropped(Reason::FragmentInvalid), if expected.is_none() { 2 } else { 0 });
        }
    }
}

#[test]
fn congestion_that_a_fragment_met_is_told_by_the_outer_header() {
    let datagram = Datagram::new(true, 100);
    let outer = |packet: Vec<u8>, ecn: u8| {
        let mut packet = packet;
        packet[1] |= ecn << 4;
        packet
    };
    for (first, second, expected) in [(2, 3, 3), (3, 2, 3), (2, 2, 2), (0, 3, 0)] {
        let mut driver = driver("");
        driver.receive(&[outer(datagram.fragment(0, 48), first), outer(datagram.fragment(48, 108), second)]);
        assert_eq!(driver.sent()[0].octets[1] >> 4 & 3, expected);
        driver.stop();
    }
}

#[test]
fn a99_memory_is_bounded_in_a_flood_and_others_are_not_pushed_out() {
    let configuration = "memory: 1048576\nmemory_of_source: 131072";
    for ipv6 in [false, true] {
        let mut random = Random::new(9);
        let mut driver = driver(configuration);
        let honest = Datagram { source: 200, ..Datagram::new(ipv6, 3000) };
        let mut complete = 0;
        for round in 0..60 {
            // One half of an honest packet, a flood of first and middle fragments of few sources, the other half.
            let fragments = honest.fragments(1000);
            driver.receive(&fragments[..2]);
            let flood: Vec<_> = (0..100)
                .map(|_| {
                    let source = random.below(7) as u8;
                    let datagram =
                        Datagram { source, identification: random.below(60_000) as u16, ..Datagram::new(ipv6, 1200) };
                    if random.below(2) == 0 { datagram.fragment(0, 1000) } else { datagram.fragment(400, 1000) }
                })
                .collect();
            driver.receive(&flood);
            let counters = driver.counters();
            assert!(counters.metrics["held_octets"] <= 1_048_576, "round {round}");
            driver.receive(&fragments[2..]);
            complete += driver.sent().iter().filter(|sent| inner(&sent.octets) == honest.whole()).count();
        }
        assert_eq!(complete, 60, "the flood takes nothing from who holds little");
        assert!(driver.counters().dropped(Reason::SourceLimit) > 4000);
        driver.stop();

        // Each from another source: all together hold no more than is permitted.
        let mut driver = self::driver(configuration);
        for number in 0..8000_u32 {
            let mut packet =
                Datagram { identification: number as u16, ..Datagram::new(ipv6, 1200) }.fragment(400, 1000);
            if ipv6 {
                packet[84 + 16..84 + 20].copy_from_slice(&number.to_be_bytes());
            } else {
                packet[80 + 14..80 + 16].copy_from_slice(&(number as u16).to_be_bytes());
                Ipv4Packet::new_checked(&mut packet[80..]).unwrap().fill_checksum();
            }
            driver.receive(&[packet]);
        }
        let counters = driver.counters();
        assert!(counters.metrics["held_octets"] <= 1_048_576);
        assert!(counters.dropped(Reason::MemoryLimit) > 6000);
        driver.stop();
        assert_eq!(driver.counters().metrics["known_sources"], 0);
    }
}

#[test]
fn what_is_no_fragment_goes_on_as_it_is() {
    let datagram = Datagram::new(true, 100);
    for packet in
        [srv6(&datagram.whole()), srv6(&Datagram::new(false, 100).whole()), srv6_around(protocol::ETHERNET, &[3; 90])]
    {
        let (sent, counters) = through("output: fragments", std::slice::from_ref(&packet));
        assert_eq!(sent, [&packet[80..]]);
        assert_eq!((counters.onward, counters.taken), (1, 0));
    }
    // What cannot be read might be a fragment.
    let mut malformed = srv6(&datagram.whole());
    // A hop-by-hop options header that reaches behind the packet.
    (malformed[86], malformed[121]) = (protocol::HOP_BY_HOP, 255);
    assert_eq!(through("", &[malformed]).1.dropped(Reason::Malformed), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_the_order_and_the_sizes(
        ipv6: bool,
        length in 1..6000_usize,
        size in 1..180_usize,
        seed: u64,
        fragments_out: bool,
    ) {
        let datagram = Datagram::new(ipv6, length);
        let mut packets = datagram.fragments(size * 8);
        let mut random = Random::new(seed);
        for index in (1..packets.len()).rev() {
            packets.swap(index, random.below(index + 1));
        }
        let (sent, counters) = through(if fragments_out { "output: fragments" } else { "" }, &packets);
        prop_assert_eq!(counters.held(), 0);
        let again: Vec<_> = sent.iter().map(|packet| srv6(packet)).collect();
        let (whole, _) = through("", &again);
        if packets.len() == 1 && !ipv6 {
            prop_assert_eq!(whole, sent);
        } else {
            prop_assert_eq!(&whole, &[datagram.whole()]);
            prop_assert!(parse_ip_packet(&whole[0]).is_ok());
        }
    }
}

#[test]
fn wrong_configurations_say_what_to_do() {
    for (configuration, expected) in [
        ("mtu: 100", "use 1280 to 65575"),
        ("timeout_ipv6_s: 61", "use 1 to 60"),
        ("timeout_ipv4_s: 0", "use 1 to 60"),
        ("memory_of_source: 5", "use 131072 or more"),
        ("memory: 200000", "or raise memory"),
    ] {
        let error =
            segue_services::find("refragment").unwrap().prepare(configuration, "test.yaml").err().expect(configuration);
        assert!(error.to_string().contains(expected), "{configuration}: {error}");
    }
}
