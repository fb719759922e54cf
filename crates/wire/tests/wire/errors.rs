//! Every variant of the error type with its values, text and ICMPv6 error; faults of the SRH's meaning are in `srh`.

use crate::{ethernet, hex, ip6};
use segue_wire::ipv6_extension::OptionIter;
use segue_wire::{
    Error, EthernetFrame, FragmentRepr, HeaderChain, Icmpv4Message, Icmpv4Repr, Icmpv6Message, Icmpv6Repr, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr, LabelStack, LayerKind, MplsEntry, OptionsRepr, PseudoHeader, RoutingRepr, Srh,
    SrhRepr, TcpRepr, TcpSegment, TlvRepr, UdpDatagram, UdpRepr, VlanRepr, VlanTag,
};

const PSEUDO: PseudoHeader = PseudoHeader::V4 {
    source: std::net::Ipv4Addr::LOCALHOST,
    destination: std::net::Ipv4Addr::LOCALHOST,
    protocol: 17,
};

fn ipv4(first: &str) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    let first = hex(first);
    bytes[..first.len()].copy_from_slice(&first);
    bytes
}

/// The error and its text.
fn check<T: std::fmt::Debug>(result: Result<T, Error>, expected: Error, text: &str) {
    let error = result.unwrap_err();
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), text);
}

#[test]
fn truncated() {
    let truncated = |layer, expected, found| Error::Truncated { layer, offset: 0, expected, found };
    check(
        EthernetFrame::new_checked([0; 13]),
        truncated(LayerKind::Ethernet, 14, 13),
        "Ethernet at offset 0 is cut short: 14 bytes needed, 13 present",
    );
    assert_eq!(VlanTag::new_checked([0; 3]).unwrap_err(), truncated(LayerKind::Vlan, 4, 3));
    assert_eq!(Ipv4Packet::new_checked([0x45; 19]).unwrap_err(), truncated(LayerKind::Ipv4, 20, 19));
    assert_eq!(Ipv4Packet::new_checked([0x46; 20]).unwrap_err(), truncated(LayerKind::Ipv4, 24, 20));
    assert_eq!(Ipv6Packet::new_checked([0x60; 39]).unwrap_err(), truncated(LayerKind::Ipv6, 40, 39));
    assert_eq!(Srh::new_checked([4; 7]).unwrap_err(), truncated(LayerKind::Srh, 8, 7));
    assert_eq!(UdpDatagram::new_checked([0; 7]).unwrap_err(), truncated(LayerKind::Udp, 8, 7));
    assert_eq!(TcpSegment::new_checked([0; 19]).unwrap_err(), truncated(LayerKind::Tcp, 20, 19));
    assert_eq!(Icmpv4Message::new_checked([0; 7]).unwrap_err(), truncated(LayerKind::Icmpv4, 8, 7));
    assert_eq!(Icmpv6Message::new_checked([0; 7]).unwrap_err(), truncated(LayerKind::Icmpv6, 8, 7));
    assert_eq!(FragmentRepr::parse(&[0; 7]).unwrap_err(), truncated(LayerKind::Fragment, 8, 7));
    assert_eq!(RoutingRepr::parse(&[0; 7]).unwrap_err(), truncated(LayerKind::Routing, 8, 7));
    assert_eq!(LabelStack::new_checked([0; 3]).unwrap_err(), truncated(LayerKind::Mpls, 4, 3));
}

#[test]
fn bad_version() {
    let error = |layer, expected, found| Error::BadVersion { layer, offset: 0, expected, found };
    let text = "IPv4 at offset 0: version 6 found where version 4 was expected";
    check(Ipv4Packet::new_checked(ipv4("65")), error(LayerKind::Ipv4, 4, 6), text);
    assert_eq!(Ipv6Packet::new_checked([0x45; 40]).unwrap_err(), error(LayerKind::Ipv6, 6, 4));
}

#[test]
fn length_too_small() {
    let error = |layer, field, offset, expected, found| Error::LengthTooSmall { layer, field, offset, expected, found };
    let text = "IPv4: IHL at offset 0 gives 16 bytes, at least 20 expected";
    check(Ipv4Packet::new_checked(ipv4("44")), error(LayerKind::Ipv4, "IHL", 0, 20, 16), text);
    let short = Ipv4Packet::new_checked(ipv4("45000013")).unwrap_err();
    assert_eq!(short, error(LayerKind::Ipv4, "Total Length", 2, 20, 19));
    let short = UdpDatagram::new_checked(hex("00000000 00070000")).unwrap_err();
    assert_eq!(short, error(LayerKind::Udp, "Length", 4, 8, 7));
    assert_eq!(TcpSegment::new_checked([0; 20]).unwrap_err(), error(LayerKind::Tcp, "data offset", 12, 20, 0));
    let empty = SrhRepr { segments: vec![], ..SrhRepr::new(&[]) }.emit(&mut [0; 99]).unwrap_err();
    assert_eq!(empty, error(LayerKind::Srh, "segment list", 8, 16, 0));
}

#[test]
fn length_too_large() {
    let error = |layer, field, offset, expected, found| Error::LengthTooLarge { layer, field, offset, expected, found };
    let mut ipv6 = vec![0; 44];
    ipv6[..6].copy_from_slice(&hex("60000000 0005"));
    let text = "IPv6: Payload Length at offset 4 gives 5 bytes, at most 4 are present";
    check(Ipv6Packet::new_checked(&ipv6), error(LayerKind::Ipv6, "Payload Length", 4, 4, 5), text);
    assert_eq!(Ipv6Packet::new_quoted(&ipv6).unwrap().payload().len(), 4);
    let long = ipv4("45000019");
    assert_eq!(Ipv4Packet::new_checked(&long).unwrap_err(), error(LayerKind::Ipv4, "Total Length", 2, 24, 25));
    assert_eq!(Ipv4Packet::new_quoted(&long).unwrap().payload().len(), 4);
    let long = Srh::new_checked(hex("11020400 00000000 0000000000000000")).unwrap_err();
    assert_eq!(long, error(LayerKind::Srh, "Hdr Ext Len", 1, 16, 24));
    let long = UdpDatagram::new_checked(hex("00000000 00090000")).unwrap_err();
    assert_eq!(long, error(LayerKind::Udp, "Length", 4, 8, 9));
    let mut tcp = [0; 20];
    tcp[12] = 0x60;
    assert_eq!(TcpSegment::new_checked(tcp).unwrap_err(), error(LayerKind::Tcp, "data offset", 12, 20, 24));
    let options = OptionIter::new(&[0, 5, 3, 0]).last().unwrap().unwrap_err();
    assert_eq!(options, error(LayerKind::DestinationOptions, "Opt Data Len", 2, 3, 5));
    let options = OptionsRepr::parse(LayerKind::HopByHopOptions, &[0, 1, 0, 0, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(options, error(LayerKind::HopByHopOptions, "Hdr Ext Len", 1, 8, 16));
}

#[test]
fn unexpected_type() {
    let (layer, field, offset) = (LayerKind::Srh, "Routing Type", 2);
    let error = Error::UnexpectedType { layer, field, offset, expected: 4, found: 0 };
    check(Srh::new_checked([0; 8]), error, "SRH: Routing Type at offset 2 is 0, expected 4");
}

#[test]
fn bad_checksum() {
    let mut bytes = [0xff; 20];
    Ipv4Repr::default().emit(&mut bytes).unwrap();
    let right = u16::from_be_bytes([bytes[10], bytes[11]]);
    bytes[10] ^= 0xff;
    let found = right ^ 0xff00;
    let packet = Ipv4Packet::new_checked(bytes).unwrap();
    let expected = Error::BadChecksum { layer: LayerKind::Ipv4, offset: 10, expected: right, found };
    let text = format!("IPv4: checksum at offset 10 is {found:#06x}, the packet's bytes give {right:#06x}");
    check(Ipv4Repr::parse(&packet), expected, &text);

    let mut udp = [0xff; 8];
    UdpRepr::new(1, 2).emit(&mut udp, &[], &PSEUDO).unwrap();
    udp[6] ^= 1;
    let datagram = UdpDatagram::new_checked(udp).unwrap();
    let is_bad = |error| matches!(error, Error::BadChecksum { expected, found, .. } if expected == found ^ 0x100);
    assert!(is_bad(UdpRepr::parse(&datagram, &PSEUDO).unwrap_err()));
    let mut tcp = [0xff; 20];
    TcpRepr::new(1, 2, 0).emit(&mut tcp, &[], &PSEUDO).unwrap();
    tcp[16] ^= 1;
    assert!(is_bad(TcpRepr::parse(&TcpSegment::new_checked(tcp).unwrap(), &PSEUDO).unwrap_err()));
    let mut icmp = [0xff; 8];
    Icmpv4Repr::TimeExceeded { code: 0, packet: vec![] }.emit(&mut icmp).unwrap();
    icmp[2] ^= 1;
    assert!(is_bad(Icmpv4Repr::parse(&Icmpv4Message::new_checked(icmp).unwrap()).unwrap_err()));
    Icmpv6Repr::TimeExceeded { code: 0, packet: vec![] }.emit(&mut icmp, &PSEUDO).unwrap();
    icmp[2] ^= 1;
    assert!(is_bad(Icmpv6Repr::parse(&Icmpv6Message::new_checked(icmp).unwrap(), &PSEUDO).unwrap_err()));
}

#[test]
fn udp_without_a_checksum() {
    let bytes = hex("00010002 00080000");
    let datagram = UdpDatagram::new_checked(&bytes).unwrap();
    assert!(datagram.verify_checksum(&PSEUDO));
    let v6 = PseudoHeader::V6 { source: ip6("::1"), destination: ip6("::1"), next_header: 17 };
    assert!(!datagram.verify_checksum(&v6), "RFC 8200 section 8.1");
}

#[test]
fn header_chain() {
    let options = OptionsRepr::default;
    let outer = || ethernet().ipv6(Ipv6Repr::default());
    let parse = |frame: Vec<u8>| HeaderChain::parse(&Ipv6Packet::new_checked(&frame[14..]).unwrap());
    let misplaced = parse(outer().destination_options(options()).hop_by_hop(options()).build());
    let text = "next header 0 (hop-by-hop options) at offset 40 is allowed only in the IPv6 header itself";
    check(misplaced, Error::HopByHopMisplaced { offset: 40 }, text);
    let icmp = misplaced.unwrap_err().icmpv6_error().unwrap();
    assert_eq!((icmp.message_type, icmp.code, icmp.pointer), (4, 1, 40));

    let many = parse((0..9).fold(outer(), |frame, _| frame.destination_options(options())).build());
    let expected = Error::TooManyHeaders { layer: LayerKind::DestinationOptions, offset: 104, expected: 8 };
    check(many, expected, "destination options header at offset 104: more than 8 such headers in a row");

    let short = Ipv6Repr { next_header: 51, ..Ipv6Repr::default() };
    let authentication = parse(ethernet().ipv6(short).payload(&[0; 8]).build());
    let (layer, field) = (LayerKind::Authentication, "Payload Len");
    let expected = Error::LengthTooSmall { layer, field, offset: 41, expected: 12, found: 8 };
    assert_eq!(authentication.unwrap_err(), expected);

    let unknown = Error::UnknownRoutingType { offset: 42, found: 0, segments_left: 3 };
    let text = "routing header: type 0 at offset 42 with 3 segments left, only type 4 is known";
    let routing = RoutingRepr { segments_left: 3, ..RoutingRepr::default() };
    check(parse(outer().routing(routing).build()).unwrap().check_routing_types(), unknown, text);
}

#[test]
fn label_stack() {
    let error = Error::TooManyHeaders { layer: LayerKind::Mpls, offset: 64, expected: 16 };
    let text = "MPLS label stack at offset 64: more than 16 such headers in a row";
    check(LabelStack::new_checked([0; 80]), error, text);
    let meaning = |text: &str| LabelStack::new_checked(hex(text)).unwrap().check_meaning();
    let misplaced = |offset, found, rule| Error::MisplacedLabel { offset, found, rule };
    let null = misplaced(4, 3, "(implicit null) must not be in a packet");
    check(meaning("03e80040 00003140"), null, "MPLS label 3 at offset 4 (implicit null) must not be in a packet");
    let alert = misplaced(0, 1, "(router alert) must not be at the bottom of the stack");
    assert_eq!(meaning("00001140"), Err(alert));
    let null = misplaced(0, 2, "(explicit null) must be at the bottom of the stack");
    assert_eq!(meaning("00002040 03e80140"), Err(null));
    assert_eq!(meaning("00001040 00000140"), Ok(()));
}

#[test]
fn emitting() {
    let small = Ipv6Repr::default().emit(&mut [0; 39]);
    let error = Error::BufferTooSmall { layer: LayerKind::Ipv6, expected: 40, found: 39 };
    check(small, error, "no room to write IPv6: 40 bytes needed, the buffer has 39");
    let large = |layer, field, expected, found| Error::ValueTooLarge { layer, field, expected, found };
    let label = Ipv6Repr { flow_label: 1 << 20, ..Ipv6Repr::default() }.emit(&mut [0; 40]);
    let error = large(LayerKind::Ipv6, "flow label", 0xf_ffff, 1 << 20);
    check(label, error, "IPv6: flow label is 1048576, the largest value possible is 1048575");
    let multiple = |layer, field, expected, found| Error::NotAMultiple { layer, field, expected, found };
    let odd = Ipv4Repr { options: vec![0; 3], ..Ipv4Repr::default() }.emit(&mut [0; 60]);
    let error = multiple(LayerKind::Ipv4, "length of options", 4, 3);
    check(odd, error, "IPv4: length of options is 3, it must be a multiple of 4");

    let buffer = &mut [0; 4000];
    let cases = [
        (
            VlanRepr { priority: 8, ..VlanRepr::default() }.emit(buffer),
            large(LayerKind::Vlan, "priority code point", 7, 8),
        ),
        (
            VlanRepr { vlan_id: 4096, ..VlanRepr::default() }.emit(buffer),
            large(LayerKind::Vlan, "VLAN identifier", 4095, 4096),
        ),
        (
            MplsEntry { label: 1 << 20, ..MplsEntry::default() }.emit(buffer),
            large(LayerKind::Mpls, "label", 0xf_ffff, 1 << 20),
        ),
        (
            MplsEntry { traffic_class: 8, ..MplsEntry::default() }.emit(buffer),
            large(LayerKind::Mpls, "traffic class", 7, 8),
        ),
        (
            Ipv4Repr { options: vec![0; 44], ..Ipv4Repr::default() }.emit(buffer),
            large(LayerKind::Ipv4, "length of options", 40, 44),
        ),
        (
            Ipv4Repr { payload_length: 65_516, ..Ipv4Repr::default() }.emit(buffer),
            large(LayerKind::Ipv4, "Total Length", 65_535, 65_536),
        ),
        (
            Ipv4Repr { fragment_offset: 4, ..Ipv4Repr::default() }.emit(buffer),
            multiple(LayerKind::Ipv4, "Fragment Offset", 8, 4),
        ),
        (
            FragmentRepr { fragment_offset: 4, ..FragmentRepr::default() }.emit(buffer),
            multiple(LayerKind::Fragment, "Fragment Offset", 8, 4),
        ),
        (
            TcpRepr { reserved: 16, ..TcpRepr::default() }.emit(buffer, &[], &PSEUDO),
            large(LayerKind::Tcp, "reserved bits", 15, 16),
        ),
        (
            TcpRepr { options: vec![0; 2], ..TcpRepr::default() }.emit(buffer, &[], &PSEUDO),
            multiple(LayerKind::Tcp, "length of options", 4, 2),
        ),
        (UdpRepr::new(1, 2).emit(buffer, &[0; 65_528], &PSEUDO), large(LayerKind::Udp, "Length", 65_535, 65_536)),
        (SrhRepr::new(&[ip6("::1"); 128]).emit(buffer), large(LayerKind::Srh, "number of segments", 127, 128)),
        (srh_with(unknown(256)).emit(buffer), large(LayerKind::Srh, "TLV Length", 255, 256)),
        (srh_with(hmac(40)).emit(buffer), large(LayerKind::Srh, "length of HMAC", 32, 40)),
        (srh_with(hmac(9)).emit(buffer), multiple(LayerKind::Srh, "length of HMAC", 8, 9)),
        (
            SrhRepr::new(&[ip6("::1"); 126]).with_tlv(unknown(40)).emit(buffer),
            large(LayerKind::Srh, "length of the header", 2048, 2072),
        ),
        (
            OptionsRepr { options: vec![0; 2047], next_header: 0 }.emit(LayerKind::DestinationOptions, buffer),
            large(LayerKind::DestinationOptions, "length of the header", 2048, 2056),
        ),
        (
            RoutingRepr { data: vec![0; 2045], ..RoutingRepr::default() }.emit(buffer),
            large(LayerKind::Routing, "length of the header", 2048, 2056),
        ),
    ];
    for (result, expected) in cases {
        assert_eq!(result, Err(expected));
        assert_eq!(expected.icmpv6_error(), None);
        assert_eq!(expected.shifted(9), expected, "an emitter's error has no offset");
    }
}

fn srh_with(tlv: TlvRepr) -> SrhRepr {
    SrhRepr::new(&[ip6("::1")]).with_tlv(tlv)
}

fn unknown(length: usize) -> TlvRepr {
    TlvRepr::Unknown { tlv_type: 124, value: vec![0; length] }
}

fn hmac(length: usize) -> TlvRepr {
    TlvRepr::Hmac { d_and_reserved: 0, key_id: 0, hmac: vec![0; length] }
}
