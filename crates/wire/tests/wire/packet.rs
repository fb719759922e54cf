//! `parse_packet` and `summary`.

use crate::{ethernet, ip6, path, steered};
use segue_wire::{
    Error, FiveTuple, FragmentRepr, HeaderChain, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Packet, Ipv6Repr, LayerKind,
    MplsEntry, OptionsRepr, PacketBuilder, RoutingRepr, Snapshot, SrhRepr, TcpRepr, UdpRepr, parse_ip_packet,
    parse_packet, summary,
};

fn outer() -> PacketBuilder {
    ethernet().ipv6(Ipv6Repr::new(ip6("fd00::1"), ip6("fc00::1")))
}

fn inner4() -> Ipv4Repr {
    Ipv4Repr::new([10, 1, 0, 2].into(), [10, 2, 0, 2].into())
}

fn kinds(packet: &[u8]) -> Vec<LayerKind> {
    parse_packet(packet).unwrap().as_slice().iter().map(|layer| layer.kind).collect()
}

#[test]
fn layers_of_a_steered_packet() {
    let packet = steered().payload(b"data").build();
    let layers = parse_packet(&packet).unwrap();
    let found: Vec<_> = layers.as_slice().iter().map(|layer| (layer.kind, layer.offset, layer.length)).collect();
    let expected = [
        (LayerKind::Ethernet, 0, 14),
        (LayerKind::Ipv6, 14, 40),
        (LayerKind::Srh, 54, 40),
        (LayerKind::Ipv4, 94, 20),
        (LayerKind::Tcp, 114, 20),
        (LayerKind::Payload, 134, 4),
    ];
    assert_eq!(found, expected);
    assert_eq!(layers.outer_ip().unwrap().offset, 14);
    assert_eq!(layers.inner_ip().unwrap().offset, 94);
    assert_eq!(layers.srh().unwrap().header(&packet).len(), 40);
    assert_eq!(layers.payload().unwrap().bytes(&packet), b"data");
    let tuple = FiveTuple {
        source: [10, 1, 0, 2].into(),
        destination: [10, 2, 0, 2].into(),
        protocol: 6,
        ports: Some((40_000, 80)),
    };
    assert_eq!(layers.five_tuple(), Some(tuple));
    let from_ip = parse_ip_packet(&packet[14..]).unwrap();
    assert_eq!(from_ip.five_tuple(), Some(tuple));
    let inner = parse_ip_packet(&packet[94..]).unwrap();
    assert_eq!(inner.five_tuple(), Some(tuple));
}

#[test]
fn flow_of_a_packet_with_an_inline_srh_goes_to_the_last_segment() {
    let packet = outer().srh(SrhRepr::new(&path())).udp(UdpRepr::new(7, 8)).build();
    let tuple = parse_packet(&packet).unwrap().five_tuple().unwrap();
    assert_eq!(tuple.destination, path()[1]);
    let packet = outer().srh(SrhRepr::new(&path()).with_segments_left(0)).udp(UdpRepr::new(7, 8)).build();
    let tuple = parse_packet(&packet).unwrap().five_tuple().unwrap();
    assert_eq!(tuple.destination, ip6("fc00::1"));
}

#[test]
fn fragments_have_ports_only_in_the_first() {
    let fragment = |fragment_offset| FragmentRepr { fragment_offset, more_fragments: true, ..FragmentRepr::default() };
    // The datagram's Length is that of the whole datagram, more than the first fragment holds.
    let build = |offset| outer().fragment(fragment(offset)).udp(UdpRepr::new(7, 8)).payload(&[0; 8]);
    let first = build(0).with_bytes(14 + 48 + 4, &[0x10, 0]).build();
    assert_eq!(parse_packet(&first).unwrap().five_tuple().unwrap().ports, Some((7, 8)));
    let other = build(8).build();
    let layers = parse_packet(&other).unwrap();
    assert_eq!(layers.five_tuple().unwrap().ports, None);
    assert_eq!(layers.payload().unwrap().length, 16);

    let inner = |fragment_offset| Ipv4Repr { fragment_offset, more_fragments: true, ..inner4() };
    let build = |offset| ethernet().ipv4(inner(offset)).udp(UdpRepr::new(7, 8)).with_bytes(14 + 24, &[0x10, 0]).build();
    assert_eq!(parse_packet(&build(0)).unwrap().five_tuple().unwrap().ports, Some((7, 8)));
    assert_eq!(parse_packet(&build(8)).unwrap().five_tuple().unwrap().ports, None);
    // What a first fragment encloses ends early, so it is not taken apart.
    let packet = outer().fragment(fragment(0)).inner_ipv4(inner4()).udp(UdpRepr::new(1, 2)).build();
    assert_eq!(parse_packet(&packet).unwrap().payload().unwrap().length, 28);
}

#[test]
fn incomplete_chain_in_a_first_fragment() {
    let fragment = FragmentRepr { more_fragments: true, ..FragmentRepr::default() };
    let cut = outer().fragment(fragment).tcp(TcpRepr::default()).with_bytes(18, &[0, 16]).build();
    let error = parse_packet(&cut).unwrap_err();
    assert_eq!(error, Error::IncompleteHeaderChain { layer: LayerKind::Tcp, offset: 62 });
    let icmp = error.icmpv6_error_from(14).unwrap();
    assert_eq!((icmp.message_type, icmp.code, icmp.pointer), (4, 3, 0));
    let cut = outer().fragment(fragment).destination_options(OptionsRepr::default()).with_bytes(18, &[0, 12]).build();
    let error = parse_packet(&cut).unwrap_err();
    assert_eq!(error, Error::IncompleteHeaderChain { layer: LayerKind::DestinationOptions, offset: 62 });
}

#[test]
fn limits() {
    let nested = |count| (0..count).fold(ethernet(), |packet, _| packet.ipv6(Ipv6Repr::default())).build();
    assert_eq!(kinds(&nested(4)).len(), 5);
    let too_deep = Error::TooManyHeaders { layer: LayerKind::Ipv6, offset: 14 + 160, expected: 4 };
    assert_eq!(parse_packet(&nested(5)), Err(too_deep));

    let tags = |count| (0..count).fold(ethernet(), |packet, _| packet.vlan(1)).ipv4(inner4()).build();
    assert_eq!(kinds(&tags(2)).len(), 4);
    let too_many = Error::TooManyHeaders { layer: LayerKind::Vlan, offset: 22, expected: 2 };
    assert_eq!(parse_packet(&tags(3)), Err(too_many));

    let options =
        |count| (0..count).fold(outer(), |packet, _| packet.destination_options(OptionsRepr::default())).build();
    assert_eq!(kinds(&options(8)).len(), 10);
    let (layer, offset) = (LayerKind::DestinationOptions, 54 + 64);
    assert_eq!(parse_packet(&options(9)), Err(Error::TooManyHeaders { layer, offset, expected: 8 }));

    let level = |packet: PacketBuilder| (0..8).fold(packet, |p, _| p.destination_options(OptionsRepr::default()));
    let deep = (0..4).fold(ethernet(), |packet, _| level(packet.ipv6(Ipv6Repr::default()))).build();
    assert!(matches!(parse_packet(&deep), Err(Error::TooManyHeaders { expected: 32, .. })));
}

#[test]
fn routing_types_matter_only_to_the_addressed_node() {
    let routing = RoutingRepr { routing_type: 253, segments_left: 1, ..RoutingRepr::default() };
    let packet = outer().hop_by_hop(OptionsRepr::default()).routing(routing).udp(UdpRepr::new(1, 2)).build();
    assert!(kinds(&packet).contains(&LayerKind::Routing));
    let chain = HeaderChain::parse(&Ipv6Packet::new_checked(&packet[14..]).unwrap()).unwrap();
    let error = chain.check_routing_types().unwrap_err();
    assert_eq!(error, Error::UnknownRoutingType { offset: 50, found: 253, segments_left: 1 });
    assert_eq!(error.icmpv6_error().map(|icmp| (icmp.code, icmp.pointer)), Some((0, 50)));
    let finished = outer().routing(RoutingRepr { routing_type: 0, ..RoutingRepr::default() }).build();
    let chain = HeaderChain::parse(&Ipv6Packet::new_checked(&finished[14..]).unwrap()).unwrap();
    assert_eq!(chain.check_routing_types(), Ok(()));
}

#[test]
fn labels_tell_what_they_enclose() {
    let entry = |label| MplsEntry { label, time_to_live: 63, ..MplsEntry::default() };
    let v4 = ethernet().mpls(&[entry(16_000)]).ipv4(inner4()).build();
    assert_eq!(kinds(&v4), [LayerKind::Ethernet, LayerKind::Mpls, LayerKind::Ipv4]);
    let v6 = ethernet().mpls(&[entry(16_000)]).ipv6(Ipv6Repr::default()).build();
    assert_eq!(kinds(&v6), [LayerKind::Ethernet, LayerKind::Mpls, LayerKind::Ipv6]);
    let control_word = ethernet().mpls(&[entry(16_000)]).payload(&[0; 20]).build();
    assert_eq!(kinds(&control_word), [LayerKind::Ethernet, LayerKind::Mpls, LayerKind::Payload]);
    let explicit_null = ethernet().mpls(&[entry(2)]).ipv4(inner4()).build();
    assert!(matches!(parse_packet(&explicit_null), Err(Error::Truncated { layer: LayerKind::Ipv6, .. })));
}

#[test]
fn summaries() {
    let fragment = FragmentRepr { more_fragments: true, ..FragmentRepr::default() };
    let entry = |label| MplsEntry { label, time_to_live: 63, ..MplsEntry::default() };
    let echo = Icmpv6Repr::EchoRequest { identifier: 1, sequence_number: 1, data: vec![] };
    let problem = Icmpv6Repr::ParameterProblem { code: 0, pointer: 43, packet: vec![0; 40] };
    let unreachable = Icmpv4Repr::DestinationUnreachable { code: 1, next_hop_mtu: 0, packet: vec![] };
    let cases = [
        (
            steered(),
            "fd00::1 > fcbb:0:2:e000::, SRH [fcbb:0:3:d::, fcbb:0:2:e000::] SL 1, \
             IPv4 10.1.0.2 > 10.2.0.2 TCP 40000 > 80 [S]",
        ),
        (ethernet().ipv4(inner4()).tcp(TcpRepr::new(1, 2, 0x19)).payload(b"x"), "10.1.0.2 > 10.2.0.2 TCP 1 > 2 [FP.]"),
        (ethernet().ipv4(inner4()).tcp(TcpRepr::new(1, 2, 0)), "10.1.0.2 > 10.2.0.2 TCP 1 > 2 [none]"),
        (ethernet().ipv4(inner4()).icmpv4(unreachable), "10.1.0.2 > 10.2.0.2 ICMP destination unreachable code 1"),
        (outer().icmpv6(echo), "fd00::1 > fc00::1 ICMPv6 echo request"),
        (outer().icmpv6(problem), "fd00::1 > fc00::1 ICMPv6 parameter problem code 0 pointer 43"),
        (
            outer().hop_by_hop(OptionsRepr::default()).fragment(fragment).udp(UdpRepr::new(5, 6)),
            "fd00::1 > fc00::1, hop-by-hop options header, fragment at 0+, UDP 5 > 6",
        ),
        (
            outer()
                .udp(UdpRepr::new(50_000, 6635))
                .payload(&PacketBuilder::new().mpls(&[entry(16_000)]).ipv4(inner4()).udp(UdpRepr::new(1, 2)).build()),
            "fd00::1 > fc00::1 UDP 50000 > 6635, MPLS [16000] TTL 63, IPv4 10.1.0.2 > 10.2.0.2 UDP 1 > 2",
        ),
        (
            ethernet().vlan(100).mpls(&[entry(16_000), entry(16_001)]).ipv4(inner4()).udp(UdpRepr::new(1, 2)),
            "vlan 100, MPLS [16000, 16001] TTL 63, 10.1.0.2 > 10.2.0.2 UDP 1 > 2",
        ),
        (
            outer().inner_ethernet([1; 6], [3; 6]).ipv4(inner4()),
            "fd00::1 > fc00::1, Ethernet 01:01:01:01:01:01 > 03:03:03:03:03:03 ethertype 0x0800, IPv4 10.1.0.2 > 10.2.0.2",
        ),
        (
            outer().inner_ipv6(Ipv6Repr::default()).payload(&[0; 5]),
            "fd00::1 > fc00::1, IPv6 :: > ::, protocol 59 5 bytes",
        ),
        (
            ethernet().payload(&[0; 3]).with_bytes(12, &[8, 6]),
            "Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02 ethertype 0x0806, 3 bytes",
        ),
        (
            steered().with_bytes(94, &[0x65]),
            "fd00::1 > fcbb:0:2:e000::, SRH [fcbb:0:3:d::, fcbb:0:2:e000::] SL 1 \
             [IPv4 at offset 94: version 6 found where version 4 was expected]",
        ),
    ];
    for (builder, expected) in cases {
        assert_eq!(summary(&builder.build()).to_string(), expected);
    }
    assert_eq!(summary(&[1]).to_string(), "[Ethernet at offset 0 is cut short: 14 bytes needed, 1 present]");
}

/// The first octets of a large packet, as the data plane keeps them of what it drops.
#[test]
fn a_snapshot_is_not_malformed() {
    let long = steered().payload(&[0x5a; 8000]).build();
    let whole = summary(&long).to_string();
    assert!(whole.ends_with("TCP 40000 > 80 [S]"), "{whole}");
    for kept in [192, 8000, long.len()] {
        assert_eq!(Snapshot::new(&long[..kept], long.len()).to_string(), whole, "{kept} octets kept");
    }
    // Cut inside headers: those in front are told, and the cut is no fault.
    for (kept, expected) in [
        (
            14,
            "Ethernet 02:00:00:00:00:01 > 02:00:00:00:00:02 ethertype 0x86dd [headers go on behind the first 14 bytes]",
        ),
        (60, "fd00::1 > fcbb:0:2:e000:: [headers go on behind the first 60 bytes]"),
    ] {
        assert_eq!(Snapshot::new(&long[..kept], long.len()).to_string(), expected);
    }
    for kept in 0..long.len().min(300) {
        let text = Snapshot::new(&long[..kept], long.len()).to_string();
        assert!(
            text == whole || text.ends_with(&format!("[headers go on behind the first {kept} bytes]")),
            "{kept}: {text}"
        );
    }
    // A fault is one, and so is a packet that says to be longer than its frame was.
    let broken = steered().payload(&[0x5a; 8000]).with_bytes(94, &[0x65]).build();
    let text = Snapshot::new(&broken[..192], broken.len()).to_string();
    assert!(text.ends_with("[IPv4 at offset 94: version 6 found where version 4 was expected]"), "{text}");
    let text = Snapshot::new(&long[..192], 500).to_string();
    assert!(text.contains("Payload Length at offset 18 gives"), "{text}");
    assert_eq!(Snapshot::new(&[1], 1).to_string(), summary(&[1]).to_string());
    assert!(!Snapshot::new(&long[..192], usize::MAX).to_string().is_empty());
}

#[test]
fn octets_behind_the_udp_length_are_no_payload() {
    let packet = ethernet().ipv4(inner4()).udp(UdpRepr::new(1, 2)).payload(b"datagram and more");
    let packet = packet.with_bytes(14 + 20 + 4, &[0, 16]).build();
    assert_eq!(parse_packet(&packet).unwrap().payload().unwrap().bytes(&packet), b"datagram");
}
