//! The builder: lengths, next headers, checksums, overrides.

use crate::{ethernet, hex, ip6, path, steered};
use segue_wire::{
    Error, EthernetFrame, Icmpv4Message, Icmpv4Repr, Icmpv6Message, Icmpv6Repr, Ipv4Packet, Ipv4Repr, Ipv6Packet,
    Ipv6Repr, LayerKind, MplsEntry, OptionsRepr, PacketBuilder, PseudoHeader, Srh, SrhRepr, TcpSegment, UdpDatagram,
    UdpRepr, ethertype, protocol,
};

#[test]
fn every_octet_of_a_small_packet() {
    let packet = PacketBuilder::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv6(Ipv6Repr {
            traffic_class: 0xb8,
            flow_label: 0x12345,
            hop_limit: 7,
            ..Ipv6Repr::new(ip6("::1"), ip6("::2"))
        })
        .udp(UdpRepr::new(0x1111, 0x2222))
        .payload(&[0xab])
        .build();
    let expected = hex("020000000002 020000000001 86dd \
         6b812345 0009 11 07 00000000000000000000000000000001 00000000000000000000000000000002 \
         1111 2222 0009 21a6 ab");
    assert_eq!(packet, expected);
}

#[test]
fn steered_packet_has_right_fields_at_every_layer() {
    let packet = steered().payload(b"data").build();
    let outer = Ipv6Packet::new_checked(&packet[14..]).unwrap();
    assert_eq!(usize::from(outer.payload_length()), packet.len() - 54);
    assert_eq!(outer.next_header(), protocol::ROUTING);
    let srh = Srh::new_checked(outer.payload()).unwrap();
    assert_eq!((srh.next_header(), srh.segments_left(), srh.last_entry()), (protocol::IPV4, 1, 1));
    let inner = Ipv4Packet::new_checked(srh.payload()).unwrap();
    assert!(inner.verify_checksum());
    assert_eq!((inner.protocol(), inner.total_length()), (protocol::TCP, 44));
    let pseudo = PseudoHeader::new(inner.source().into(), inner.destination().into(), protocol::TCP).unwrap();
    let segment = TcpSegment::new_checked(inner.payload()).unwrap();
    assert!(segment.verify_checksum(&pseudo));
    assert_eq!(segment.payload(), b"data");
}

#[test]
fn checksum_behind_an_srh_covers_the_last_segment() {
    let [first, last] = path();
    let source = ip6("fd00::1");
    let check = |segments_left, destination, covered| {
        let packet = PacketBuilder::new()
            .ipv6(Ipv6Repr::new(source, destination))
            .srh(SrhRepr::new(&path()).with_segments_left(segments_left))
            .udp(UdpRepr::new(1, 2))
            .build();
        let datagram = UdpDatagram::new_checked(&packet[80..]).unwrap();
        let pseudo = PseudoHeader::V6 { source, destination: covered, next_header: protocol::UDP };
        assert!(datagram.verify_checksum(&pseudo));
    };
    check(1, first, last);
    check(0, last, last);
    check(0, ip6("fc00::9"), ip6("fc00::9"));
}

#[test]
fn stacked_tags_and_labels() {
    let entry = |label| MplsEntry { label, time_to_live: 64, bottom_of_stack: true, ..MplsEntry::default() };
    let packet = ethernet().vlan(100).vlan(200).mpls(&[entry(16_000), entry(16_001)]).ipv4(Ipv4Repr::default()).build();
    assert_eq!(packet[12..26], hex("88a8 0064 8100 00c8 8847 03e80040")[..]);
    assert_eq!(packet[26..30], hex("03e81140")[..], "only the last entry has the S bit");
    let single = ethernet().vlan(7).ipv4(Ipv4Repr::default()).build();
    assert_eq!(single[12..18], hex("8100 0007 0800")[..]);
}

#[test]
fn ethernet_inside() {
    let packet = ethernet().ipv6(Ipv6Repr::default()).inner_ethernet([1; 6], [3; 6]).ipv4(Ipv4Repr::default()).build();
    assert_eq!(packet[14 + 6], protocol::ETHERNET);
    let inner = EthernetFrame::new_checked(&packet[54..]).unwrap();
    assert_eq!((inner.source().0, inner.destination().0, inner.ethertype()), ([1; 6], [3; 6], ethertype::IPV4));
}

#[test]
fn icmp_checksums_cover_the_payload() {
    let (source, destination) = (ip6("fd00::1"), ip6("fd00::2"));
    let problem = Icmpv6Repr::ParameterProblem { code: 4, pointer: 80, packet: vec![6; 3] };
    let packet = PacketBuilder::new().ipv6(Ipv6Repr::new(source, destination)).icmpv6(problem).payload(&[1, 2]).build();
    let pseudo = PseudoHeader::V6 { source, destination, next_header: protocol::ICMPV6 };
    let message = Icmpv6Message::new_checked(&packet[40..]).unwrap();
    assert!(message.verify_checksum(&pseudo) && message.is_error());
    let whole = Icmpv6Repr::ParameterProblem { code: 4, pointer: 80, packet: vec![6, 6, 6, 1, 2] };
    assert_eq!(Icmpv6Repr::parse(&message, &pseudo), Ok(whole));

    let too_big = Icmpv4Repr::DestinationUnreachable { code: 4, next_hop_mtu: 1400, packet: vec![5] };
    let packet = PacketBuilder::new().ipv4(Ipv4Repr::default()).icmpv4(too_big).payload(&[1]).build();
    let message = Icmpv4Message::new_checked(&packet[20..]).unwrap();
    assert!(message.verify_checksum());
    assert_eq!(packet[26..28], 1400_u16.to_be_bytes());
}

#[test]
fn own_values_are_kept_when_only_a_payload_follows() {
    let packet = ethernet().ipv6(Ipv6Repr { next_header: 253, ..Ipv6Repr::default() }).payload(&[1; 4]).build();
    assert_eq!(packet[14 + 6], 253);
    let packet =
        ethernet().ipv6(Ipv6Repr::default()).destination_options(OptionsRepr { next_header: 254, options: vec![] });
    let packet = packet.payload(&[1; 4]).build();
    assert_eq!((packet[14 + 6], packet[54]), (protocol::DESTINATION_OPTIONS, 254));
    assert_eq!(packet[56..62], hex("01 04 00000000")[..], "PadN fills the options header");
}

#[test]
fn faults_are_made_with_octets() {
    let sound = steered().build();
    let faulty = steered().with_bytes(14 + 40 + 3, &[9]).with_bytes(0, &[0xff; 6]).build();
    assert_eq!(faulty[..6], [0xff; 6]);
    assert_eq!(faulty[57], 9);
    assert_eq!((&faulty[6..57], &faulty[58..]), (&sound[6..57], &sound[58..]));
    let length = sound.len();
    let error = steered().with_bytes(length, &[0]).try_build().unwrap_err();
    let layer = LayerKind::Payload;
    assert_eq!(error, Error::BufferTooSmall { layer, expected: length + 1, found: length });
    assert!(steered().with_bytes(usize::MAX, &[0]).try_build().is_err());
}

#[test]
#[should_panic(
    expected = "cannot build the packet: IPv6: payload length is 65544, the largest value possible is 65535"
)]
fn build_panics_where_try_build_fails() {
    PacketBuilder::new().ipv6(Ipv6Repr::default()).hop_by_hop(OptionsRepr::default()).payload(&[0; 65_536]).build();
}
