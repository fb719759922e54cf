//! `classify_outer`: every status, and what it fills in.

use crate::{ethernet, ip6, path, steered};
use segue_wire::{
    FragmentRepr, Ipv4Repr, Ipv6Repr, OptionsRepr, OuterStatus, PacketBuilder, RoutingRepr, SrhRepr, UdpRepr,
    classify_outer, protocol,
};

fn outer() -> PacketBuilder {
    ethernet().ipv6(Ipv6Repr::new(ip6("fd00::1"), ip6("fc00::1")))
}

fn status(builder: PacketBuilder) -> OuterStatus {
    classify_outer(&builder.build()).status
}

#[test]
fn steered_packet() {
    let class = classify_outer(&steered().build());
    assert_eq!(
        (class.status, class.ethertype, class.vlan_tags, class.network_offset),
        (OuterStatus::Ok, 0x86dd, 0, 14)
    );
    assert_eq!((class.header_count, class.headers[0]), (1, protocol::ROUTING));
    let srh = class.srh.unwrap();
    assert_eq!((srh.offset, srh.next_header, srh.hdr_ext_len), (54, protocol::IPV4, 4));
    assert_eq!((srh.segments_left, srh.last_entry, srh.flags, srh.tag), (1, 1, 0, 0));
    assert_eq!((class.upper_layer, class.upper_layer_offset), (protocol::IPV4, 94));
}

#[test]
fn headers_in_front_of_the_srh_and_tags() {
    let srh = SrhRepr::new(&path()).with_tag(0x1234).with_flags(0x20);
    let frame = ethernet().vlan(5).vlan(6).ipv6(Ipv6Repr::default());
    let frame = frame.hop_by_hop(OptionsRepr::default()).destination_options(OptionsRepr::default()).srh(srh);
    let class = classify_outer(&frame.udp(UdpRepr::new(1, 2)).build());
    assert_eq!((class.status, class.vlan_tags, class.network_offset), (OuterStatus::Ok, 2, 22));
    assert_eq!(class.headers[..3], [0, 60, 43]);
    let srh = class.srh.unwrap();
    assert_eq!((srh.offset, srh.flags, srh.tag), (22 + 40 + 16, 0x20, 0x1234));
    assert_eq!((class.upper_layer, class.upper_layer_offset), (17, 22 + 40 + 16 + 40));
}

#[test]
fn walk_ends_behind_the_first_srh() {
    let frame = outer().srh(SrhRepr::new(&path()).with_segments_left(0)).srh(SrhRepr::new(&path()));
    let class = classify_outer(&frame.udp(UdpRepr::new(1, 2)).build());
    assert_eq!((class.header_count, class.upper_layer, class.srh.unwrap().offset), (1, protocol::ROUTING, 54));
}

#[test]
fn no_srh() {
    let class = classify_outer(&outer().udp(UdpRepr::new(1, 2)).build());
    assert_eq!((class.status, class.srh, class.header_count), (OuterStatus::Ok, None, 0));
    assert_eq!((class.upper_layer, class.upper_layer_offset), (17, 54));
}

#[test]
fn fragments() {
    let fragment = |fragment_offset| FragmentRepr { fragment_offset, more_fragments: true, ..FragmentRepr::default() };
    let build = |offset| outer().fragment(fragment(offset)).destination_options(OptionsRepr::default()).build();
    let first = classify_outer(&build(0));
    assert_eq!((first.status, first.non_first_fragment), (OuterStatus::Ok, false));
    assert_eq!((first.header_count, first.upper_layer), (2, protocol::NO_NEXT_HEADER));
    let other = classify_outer(&build(8));
    assert_eq!((other.non_first_fragment, other.header_count, other.upper_layer), (true, 1, 60));
    assert_eq!(other.upper_layer_offset, 14 + 48);
}

#[test]
fn every_fault() {
    let srh = || outer().srh(SrhRepr::new(&path())).udp(UdpRepr::new(1, 2));
    let options = OptionsRepr::default;
    let routing = |segments_left| RoutingRepr { routing_type: 253, segments_left, ..RoutingRepr::default() };
    let many = |count| {
        let chain = (0..count).fold(outer(), |chain, _| chain.destination_options(options()));
        chain.udp(UdpRepr::new(1, 2))
    };
    let authentication = |length: u8| {
        let header = [17, length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ethernet().ipv6(Ipv6Repr { next_header: protocol::AUTHENTICATION, ..Ipv6Repr::default() }).payload(&header)
    };
    let cases = [
        ("IPv4", ethernet().ipv4(Ipv4Repr::default()), OuterStatus::NotIpv6),
        ("three tags", ethernet().vlan(1).vlan(2).vlan(3).ipv6(Ipv6Repr::default()), OuterStatus::NotIpv6),
        ("version", srh().with_bytes(14, &[0x40]), OuterStatus::BadVersion),
        ("Payload Length", srh().with_bytes(18, &[0xff]), OuterStatus::BadLength),
        ("padding", srh().trailer(&[0; 9]), OuterStatus::Ok),
        ("Hdr Ext Len", srh().with_bytes(55, &[200]), OuterStatus::BadLength),
        ("inside padding", srh().with_bytes(18, &[0, 39]), OuterStatus::BadLength),
        ("header cut", srh().with_bytes(18, &[0, 7]), OuterStatus::Truncated),
        ("eight headers", many(8), OuterStatus::Ok),
        ("nine headers", many(9), OuterStatus::TooManyHeaders),
        ("hop-by-hop", outer().destination_options(options()).hop_by_hop(options()), OuterStatus::HopByHopMisplaced),
        ("routing, none left", outer().routing(routing(0)).udp(UdpRepr::new(1, 2)), OuterStatus::Ok),
        ("routing, one left", outer().routing(routing(1)).udp(UdpRepr::new(1, 2)), OuterStatus::RoutingTypeUnknown),
        ("authentication", authentication(1), OuterStatus::Ok),
        ("authentication too short", authentication(0), OuterStatus::BadLength),
        ("authentication too long", authentication(2), OuterStatus::BadLength),
    ];
    for (name, builder, expected) in cases {
        assert_eq!(status(builder), expected, "{name}");
    }
    assert_eq!(classify_outer(&[]).status, OuterStatus::Truncated);
}
