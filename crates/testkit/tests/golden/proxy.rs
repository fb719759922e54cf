//! The static proxy, End.AS (draft-ietf-spring-sr-service-programming section 6.1): to the function and back.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{
    DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, macs, port_ipv4, port_ipv6,
};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::{
    EthernetRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TlvRepr, UdpRepr,
};

const TO_FUNCTION: &str = "to_function";

fn path(first: u16) -> [Ipv6Addr; 3] {
    [local(first), behind_core1(0xa), behind_core1(0xb)]
}

fn outer(function: u16, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, local(function)) }
}

fn six(packet: PacketBuilder, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, traffic_class: 0x29, flow_label: 0x54321, ..Ipv6Repr::new(CLIENT, SERVER) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"for the function")
}

fn four(packet: PacketBuilder, time_to_live: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"for the function")
}

#[test]
#[ignore = "needs root"]
fn a50_to_the_function_the_inner_packet_goes_as_it_is() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let full = SrhRepr::new(&path(END_AS));
    let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![3; 6] };
    let start = || arriving("core0").ipv6(outer(END_AS, 64));
    for (case, front) in [
        ("full SRH", start().srh(full.clone())),
        ("reduced SRH", start().srh(SrhRepr::reduced(&path(END_AS)))),
        ("SRH with a TLV that is not a multiple of 16 octets", start().srh(full.clone().with_tlv(tlv))),
        ("A52: no segments left", start().srh(full.clone().with_segments_left(0))),
        ("A52: no SRH", start()),
        ("destination options", start().destination_options(OptionsRepr::default()).srh(full)),
    ] {
        let counter = "sid fc00:0:1:61::/64";
        // The inner hop limit is not touched on the way to the function (1 included).
        for hop_limit in [64, 1] {
            let (frame, expected) = (six(front.clone(), hop_limit).build(), six(leaving("fun0"), hop_limit).build());
            node.leaves(case, "core0", &frame, &expected, TO_FUNCTION, &[counter]);
            let (frame, expected) = (four(front.clone(), hop_limit).build(), four(leaving("fun0"), hop_limit).build());
            node.leaves(case, "core0", &frame, &expected, TO_FUNCTION, &[counter]);
        }
    }
    let frame =
        four(arriving("core0").ipv6(outer(END_AS_BYPASS, 64)).srh(SrhRepr::new(&path(END_AS_BYPASS))), 64).build();
    let expected = four(leaving("fun0"), 64).build();
    node.leaves("next hop by address", "core0", &frame, &expected, TO_FUNCTION, &["sid fc00:0:1:63::/64"]);
    let (frame, expected) = (four(start(), 64).trailer(&[0xee; 8]).build(), four(leaving("fun0"), 64).build());
    node.leaves("octets behind it are cut", "core0", &frame, &expected, TO_FUNCTION, &["sid fc00:0:1:61::/64"]);
    node.finish();
}

/// In mid-chain nobody knows whose the inner packet is, and by which table its source is found: the node that wrapped it is told.
#[test]
#[ignore = "needs root"]
fn what_does_not_fit_the_function_is_told_to_who_wrapped_it() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let octets = vec![0xa5; 1501];
    for function in [END_AS, END_AD] {
        let start = || arriving("core0").ipv6(outer(function, 64)).srh(SrhRepr::new(&path(function)));
        for frame in [
            start().inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&octets[48..]),
            start().inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(1, 2)).payload(&octets[28..]),
        ] {
            let packet = Icmpv6Repr::quote(&frame.build()[14..]).to_vec();
            // IPv6 header, and an SRH with three segments.
            let message = Icmpv6Repr::PacketTooBig { mtu: 1500 + 40 + 8 + 48, packet };
            let reply = leaving("core0").ipv6(Ipv6Repr::new(NODE, HEADEND)).icmpv6(message);
            let case = format!("function {function:#x}");
            node.answers(&case, "core0", &frame, "drop_too_big", "too_big", &reply);
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a51_inner_packets_of_another_type() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&path(END_AS_BYPASS));
    node.forwards(
        "bypass, as the draft says",
        "core0",
        &six(arriving("core0").ipv6(outer(END_AS_BYPASS, 64)).srh(srh.clone()), 9),
        &six(
            leaving("core1")
                .ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) })
                .srh(srh.with_segments_left(1)),
            9,
        ),
        &["sid fc00:0:1:63::/64"],
    );
    let frame = four(arriving("core0").ipv6(outer(END_AS_IPV6, 64)).srh(SrhRepr::new(&path(END_AS_IPV6))), 9);
    node.drops("drop, unless the SID says bypass", "core0", &frame, "drop_inner_type");
    let frame =
        arriving("core0").ipv6(outer(END_AS_IPV6, 64)).srh(SrhRepr::new(&path(END_AS_IPV6))).udp(UdpRepr::new(1, 2));
    node.drops("no inner packet at all", "core0", &frame, "drop_inner_type");
    node.finish();
}

/// What a function sends: from its far end of the link to the node.
fn from_function(port: &str) -> PacketBuilder {
    arriving(port)
}

#[test]
#[ignore = "needs root"]
fn a50_a56_back_from_the_function_the_steering_header_goes_on() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [behind_core1(0xa), behind_core1(0xb)];
    let outer6 = Ipv6Repr { traffic_class: 0x29, flow_label: 0x54321, ..Ipv6Repr::new(NODE, list[0]) };
    let counters = ["returned fc00:0:1:61::/64", "list End.AS fc00:0:1:61::/64/0"];
    node.forwards(
        "IPv6, full SRH",
        "fun1",
        &six(from_function("fun1"), 63),
        &six(leaving("core1").ipv6(outer6).srh(SrhRepr::new(&list)), 62),
        &counters,
    );
    let found = node.send("fun1", &four(from_function("fun1"), 63));
    let label = u32::from_be_bytes([0, found.frame[15] & 15, found.frame[16], found.frame[17]]);
    assert_ne!(label, 0);
    node.forwards(
        "IPv4, full SRH",
        "fun1",
        &four(from_function("fun1"), 2),
        &four(
            leaving("core1")
                .ipv6(Ipv6Repr { flow_label: label, ..Ipv6Repr::new(NODE, list[0]) })
                .srh(SrhRepr::new(&list)),
            1,
        ),
        &counters,
    );
    node.forwards(
        "reduced, one segment: no SRH",
        "fun2",
        &six(from_function("fun2"), 63),
        &six(leaving("core1").ipv6(outer6), 62),
        &["returned fc00:0:1:62::/64", "list End.AS fc00:0:1:62::/64/0"],
    );
    let made_by_function = |packet: PacketBuilder, hop_limit| {
        let from = "fd00:0:f1::2".parse().expect("an address");
        let repr = Ipv6Repr { hop_limit, flow_label: 1, ..Ipv6Repr::new(from, CLIENT) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(53, 40_001)).payload(b"")
    };
    node.forwards(
        "a packet that the function made",
        "fun1",
        &made_by_function(from_function("fun1"), 64),
        &made_by_function(
            leaving("core1").ipv6(Ipv6Repr { flow_label: 1, ..Ipv6Repr::new(NODE, list[0]) }).srh(SrhRepr::new(&list)),
            63,
        ),
        &counters,
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a53_what_the_node_itself_is_addressed_by_stays_here() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let (own, far) = macs("fun1");
    let to =
        |destination: Ipv6Addr| from_function("fun1").ipv6(Ipv6Repr::new(CLIENT, destination)).udp(UdpRepr::new(1, 2));
    let arp = PacketBuilder::new()
        .ethernet_repr(EthernetRepr { destination: MacAddress::BROADCAST, source: far, ethertype: 0x0806 })
        .payload(&[0; 46]);
    let solicitation = PacketBuilder::ethernet(far, [0x33, 0x33, 0xff, 0, 0, 1])
        .ipv6(Ipv6Repr {
            hop_limit: 255,
            ..Ipv6Repr::new("fe80::2".parse().expect("an address"), "ff02::1:ff00:1".parse().expect("an address"))
        })
        .icmpv6(Icmpv6Repr::Other { message_type: 135, code: 0, body: vec![0; 28] });
    let ipv4 = from_function("fun1").ipv4(Ipv4Repr::new(CLIENT4, port_ipv4("fun1"))).udp(UdpRepr::new(1, 2));
    for (case, frame) in [
        ("the port's own IPv6 address", to(port_ipv6("fun1"))),
        ("the port's own IPv4 address", ipv4),
        ("link-local", to("fe80::1".parse().expect("an address"))),
        ("ARP", arp),
        ("neighbour solicitation", solicitation),
    ] {
        node.passes(case, "fun1", &frame, &frame, "passed_not_for_segue", &[]);
    }
    let _ = own;
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a54_an_empty_cache_lets_nothing_through() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    // fun3 is a service port that no proxy uses.
    node.drops("IPv6", "fun3", &six(from_function("fun3"), 64), "drop_proxy_empty");
    node.drops("IPv4", "fun3", &four(from_function("fun3"), 64), "drop_proxy_empty");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a57_hop_limit_exceeded_on_the_way_back() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for hop_limit in [0, 1] {
        let packet = six(PacketBuilder::new(), hop_limit).build();
        let reply =
            leaving("acc0").ipv6(Ipv6Repr::new(NODE, CLIENT)).icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet });
        let frame = six(from_function("fun1"), hop_limit);
        node.answers("IPv6", "fun1", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
        let packet = four(PacketBuilder::new(), hop_limit).build();
        let header =
            Ipv4Repr { type_of_service: 0xc0, dont_fragment: true, ..Ipv4Repr::new(port_ipv4("fun1"), CLIENT4) };
        let reply = leaving("acc0").ipv4(header).icmpv4(Icmpv4Repr::TimeExceeded { code: 0, packet });
        let frame = four(from_function("fun1"), hop_limit);
        node.answers("IPv4", "fun1", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_function_can_not_choose_its_path() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [behind_core1(0xa), behind_core1(0xb)];
    for (case, frame) in [
        (
            "to a SID of this node",
            from_function("fun1").ipv6(Ipv6Repr::new(CLIENT, local(END))).udp(UdpRepr::new(1, 2)),
        ),
        ("to another SID", from_function("fun1").ipv6(Ipv6Repr::new(CLIENT, behind_core2(1))).udp(UdpRepr::new(1, 2))),
        (
            "with an SRH",
            from_function("fun1")
                .ipv6(Ipv6Repr::new(CLIENT, behind_core2(1)))
                .srh(SrhRepr::new(&[behind_core2(1), behind_core2(2)]))
                .udp(UdpRepr::new(1, 2)),
        ),
    ] {
        let found = node.send("fun1", &frame);
        let dropped = found.verdict == Verdict::Drop && found.moved.keys().eq(["fun1 drop_from_function"]);
        // Wrapped is as good: the outer destination is that of the proxy's own list.
        let wrapped = found.verdict == Verdict::Redirect
            && found.frame[14 + 24..14 + 40] == list[0].octets()
            && found.frame[14 + 8..14 + 24] == NODE.octets();
        assert!(dropped || wrapped, "{case}: {:?}", found.moved);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn broken_packets_from_a_function_are_dropped() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for (case, frame, outcome) in [
        ("IPv6: version", six(from_function("fun1"), 64).with_bytes(14, &[0x45]), "drop_bad_version"),
        (
            "IPv6: the length field is not believed",
            six(from_function("fun1"), 64).with_bytes(18, &[0xff, 0xff]),
            "drop_bad_length",
        ),
        (
            "IPv4: the length field is not believed",
            four(from_function("fun1"), 64).with_bytes(16, &[0xff, 0xff]),
            "drop_bad_length",
        ),
        ("IPv4: checksum", four(from_function("fun1"), 64).with_bytes(24, &[0, 0]), "drop_bad_checksum"),
    ] {
        node.drops(case, "fun1", &frame, outcome);
    }
    let padded = four(from_function("fun1"), 64).trailer(&[0xee; 10]);
    let found = node.send("fun1", &padded);
    assert_eq!(found.verdict, Verdict::Redirect);
    let payload_length = usize::from(u16::from_be_bytes([found.frame[18], found.frame[19]]));
    assert_eq!(
        payload_length,
        8 + 32 + four(PacketBuilder::new(), 64).build().len(),
        "padding is no part of the packet"
    );
    assert_eq!(found.frame.len(), 14 + 40 + payload_length, "and does not leave the node");
    node.finish();
}

/// Tags in front of what a frame carries: ethertype and VLAN.
fn tagged(frame: &PacketBuilder, tags: &[(u16, u16)]) -> Vec<u8> {
    let mut frame = frame.build();
    let octets: Vec<u8> =
        tags.iter().flat_map(|(kind, vlan)| [kind.to_be_bytes(), vlan.to_be_bytes()].concat()).collect();
    frame.splice(12..12, octets);
    frame
}

/// What a function behind an Ethernet proxy sends to the node itself, which takes it in and looks at its IP header.
#[test]
#[ignore = "needs root"]
fn an_ethernet_function_can_not_choose_a_path_by_the_node() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let (own, far) = macs("frames0");
    let (group, broadcast) = (MacAddress([0x33, 0x33, 0, 0, 0, 1]), MacAddress::BROADCAST);
    let udp = UdpRepr::new(1, 2);
    let list = [behind_core1(0xa), behind_core1(0xb)];
    let to = |mac, destination| PacketBuilder::ethernet(far, mac).ipv6(Ipv6Repr::new(CLIENT, destination));
    for (port, mac) in [("its own", own), ("a group", group), ("all", broadcast)] {
        for (case, frame) in [
            ("to a SID of this node", to(mac, local(END)).udp(udp)),
            ("to a decapsulating SID", six(to(mac, local(END_DT46)), 64)),
            ("to another node's SID", six(to(mac, behind_core1(0x46)), 64)),
            ("with an SRH", to(mac, local(END)).srh(SrhRepr::new(&list)).udp(udp)),
            (
                "with an SRH to the node's link",
                to(mac, "fe80::1".parse().expect("an address")).srh(SrhRepr::new(&list)),
            ),
            ("with an SRH and no segments left", to(mac, NODE).srh(SrhRepr::new(&list).with_segments_left(0)).udp(udp)),
        ] {
            node.drops(&format!("{port}: {case}"), "frames0", &frame, "drop_from_function");
            let untagged = layer_3(&frame);
            for tags in [
                &[(0x8100, 0)][..],
                &[(0x88a8, 0)],
                &[(0x8100, 0xe000), (0x8100, 0)],
                &[(0x88a8, 0), (0x8100, 0)],
                &[(0x8100, 0), (0x88a8, 0), (0x8100, 0)],
            ] {
                let found = node.node().send("frames0", &tagged(&frame, tags));
                assert_eq!(found.verdict, Verdict::Drop, "{port}: {case}, {tags:x?}: {:?}", found.moved);
                let moved = found.moved.get("frames0 drop_from_function");
                assert_eq!(moved, Some(&(1, untagged)), "{port}: {case}, {tags:x?}: {:?}", found.moved);
            }
        }
    }
    // The node would route it.
    node.drops("to a host", "frames0", &to(own, SERVER).udp(udp), "drop_from_function");
    let four = PacketBuilder::ethernet(far, own).ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(udp);
    node.drops("to a host, IPv4", "frames0", &four, "drop_from_function");
    let broken = six(to(own, SERVER), 64).with_bytes(18, &[0xff, 0xff]);
    node.drops("a length that lies", "frames0", &broken, "drop_bad_length");
    let arp =
        |mac| PacketBuilder::new().ethernet_repr(EthernetRepr { destination: mac, source: far, ethertype: 0x0806 });
    let solicitation = |mac| {
        let repr = Ipv6Repr {
            hop_limit: 255,
            ..Ipv6Repr::new("fe80::2".parse().expect("an address"), "ff02::1:ff00:1".parse().expect("an address"))
        };
        let message = Icmpv6Repr::Other { message_type: 135, code: 0, body: vec![0; 28] };
        PacketBuilder::ethernet(far, mac).ipv6(repr).icmpv6(message)
    };
    for (case, frame) in [
        ("ARP to all", arp(broadcast).payload(&[0; 46])),
        ("ARP to the node", arp(own).payload(&[0; 46])),
        ("neighbour discovery", solicitation(group)),
        ("neighbour discovery to the node", solicitation(own)),
        ("link-local", to(own, "fe80::1".parse().expect("an address")).udp(udp)),
    ] {
        node.passes(case, "frames0", &frame, &frame, "passed_not_for_segue", &[]);
    }
    node.finish_with_faults();
}

/// Layer 3 octets of a frame whose length fields are right.
fn layer_3(frame: &PacketBuilder) -> u64 {
    frame.build().len() as u64 - 14
}
