//! The domain's boundary (RFC 8754 section 5.1), transit, and packets that Segue leaves to the kernel.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{
    DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, macs, port_ipv4, port_ipv6,
};
use segue_testkit::golden::Golden;
use segue_testkit::node::can_run;
use segue_wire::ipv6_extension::{OptionsRepr, RoutingRepr};
use segue_wire::srh::HmacVariant;
use segue_wire::{
    EthernetRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, TlvRepr,
    UdpRepr,
};

fn udp(packet: PacketBuilder) -> PacketBuilder {
    packet.udp(UdpRepr::new(40_000, 40_001)).payload(b"from outside")
}

fn steered() -> Ipv6Addr {
    "fd00:0:e0::7".parse().expect("an address")
}

#[test]
#[ignore = "needs root"]
fn a70_a72_packets_to_sids_from_outside() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let rfc_9602: Ipv6Addr = "5f00:1:2::1".parse().expect("an address");
    let unknown: Ipv6Addr = "fc00:ffff::1".parse().expect("an address");
    for destination in [local(END), local(END_DX6), local(0xfff), behind_core1(1), BLACKHOLE, unknown, rfc_9602] {
        let case = format!("to {destination}");
        let frame = udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination)));
        node.drops(&case, "acc0", &frame, "drop_sid_from_outside");
        let inner = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination)).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER));
        node.drops(&format!("{case}, IPv6 in IPv6"), "acc0", &udp(inner), "drop_sid_from_outside");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a70_srhs_from_outside() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let path = [local(END), behind_core1(1)];
    for (case, destination, srh) in [
        ("to a SID", local(END), SrhRepr::new(&path)),
        ("to a host, segments left", SERVER, SrhRepr::new(&[SERVER, behind_core1(1)])),
        ("to a host, no segments left", SERVER, SrhRepr::new(&path).with_segments_left(0)),
        ("to a steered destination", steered(), SrhRepr::new(&[steered(), local(END)])),
        ("to the node's port", port_ipv6("acc0"), SrhRepr::new(&[port_ipv6("acc0"), local(END)])),
    ] {
        let start = || arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination));
        node.drops(case, "acc0", &udp(start().srh(srh.clone())), "drop_sr_from_outside");
        let behind = udp(start().destination_options(OptionsRepr::default()).srh(srh.clone()));
        node.drops(&format!("{case}, behind another header"), "acc0", &behind, "drop_sr_from_outside");
        // One that somebody else has to visit, too: all of its kinds.
        for (kind, segments_left) in [(0, 1), (2, 1), (2, 0), (3, 2), (253, 255)] {
            let routing = RoutingRepr { routing_type: kind, segments_left, ..RoutingRepr::default() };
            let behind = udp(start().routing(routing).srh(srh.clone()));
            node.drops(&format!("{case}, behind type {kind}"), "acc0", &behind, "drop_sr_from_outside");
        }
        let hmac = srh.with_hmac(HmacVariant::Linux, CLIENT, 1, b"secret");
        node.drops(
            &format!("{case}, HMAC where none is accepted"),
            "acc0",
            &udp(start().srh(hmac)),
            "drop_sr_from_outside",
        );
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn an_hmac_goes_to_the_kernel_where_the_port_says_so() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let path = [local(END), behind_core1(1)];
    let start = || arriving("acc1").ipv6(Ipv6Repr::new(SERVER, local(END)));
    let frame = udp(start().srh(SrhRepr::new(&path).with_hmac(HmacVariant::Linux, SERVER, 1, b"secret")));
    // With the link-layer source that the kernel's rules expect: here they have named none.
    let end = arriving("acc1").build();
    let signed = PacketBuilder::ethernet([0; 6], <[u8; 6]>::try_from(&end[..6]).unwrap())
        .ipv6(Ipv6Repr::new(SERVER, local(END)))
        .srh(SrhRepr::new(&path).with_hmac(HmacVariant::Linux, SERVER, 1, b"secret"));
    node.passes("an HMAC, which the kernel verifies", "acc1", &frame, &udp(signed), "passed_hmac", &[]);
    let frame = udp(start().srh(SrhRepr::new(&path)));
    node.drops("no HMAC", "acc1", &frame, "drop_sr_from_outside");
    let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![0; 38] };
    let frame = udp(start().srh(SrhRepr::new(&path).with_flags(8).with_tlv(tlv)));
    node.drops("another TLV of the same length", "acc1", &frame, "drop_sr_from_outside");
    // Linux looks for the HMAC only where this flag is set: without it the kernel would not verify anything.
    let frame = udp(start().srh(SrhRepr::new(&path).with_hmac(HmacVariant::Rfc8754, SERVER, 1, b"secret")));
    node.drops("an HMAC that Linux would not look for", "acc1", &frame, "drop_sr_from_outside");
    let hmac = SrhRepr::new(&path).with_hmac(HmacVariant::Linux, SERVER, 1, b"secret");
    let frame = udp(start().srh(hmac.with_tlv(TlvRepr::PadN(2)).with_tlv(TlvRepr::PadN(2))));
    node.drops("an HMAC that is not last: Linux would not verify it", "acc1", &frame, "drop_sr_from_outside");
    let frame = udp(start());
    node.drops("to a SID without SRH", "acc1", &frame, "drop_sid_from_outside");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a71_sources_outside_the_domain() {
    let network = Network::new();
    let domain = "{sid_blocks: ['fc00::/16'], source_prefixes: ['fd00:0:9::/48', 'fd00:0:1::/48']}";
    let node = Golden::load(&network, &configuration(domain));
    let path = [local(END), behind_core1(1)];
    let frame = |source, hop_limit, front: PacketBuilder, destination, segments_left| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(source, destination) };
        let srh = SrhRepr::new(&path).with_segments_left(segments_left);
        udp(front.ipv6(repr).srh(srh).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)))
    };
    node.forwards(
        "a source of the domain",
        "core0",
        &frame(HEADEND, 64, arriving("core0"), path[0], 1),
        &frame(HEADEND, 63, leaving("core1"), path[1], 0),
        &["sid fc00:0:1:1::/64"],
    );
    let outside = frame(CLIENT, 64, arriving("core0"), path[0], 1);
    node.drops("another source", "core0", &outside, "drop_source_outside_domain");
    // What goes on in segue_again is asked the same, with more octets in its frame or headers to walk.
    let padded = outside.trailer(&[0xee; 9]).build();
    let found = node.node().send("core0", &padded);
    assert!(found.moved.contains_key("core0 drop_source_outside_domain"), "padded: {:?}", found.moved);
    let behind = |source| {
        let front = arriving("core0").ipv6(Ipv6Repr::new(source, path[0])).destination_options(OptionsRepr::default());
        udp(front.srh(SrhRepr::new(&path)).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)))
    };
    node.drops("behind options", "core0", &behind(CLIENT), "drop_source_outside_domain");
    let found = node.send("core0", &behind(HEADEND));
    assert!(found.moved.contains_key("core0 forwarded"), "within the domain, behind options: {:?}", found.moved);
    let padded = frame(HEADEND, 64, arriving("core0"), path[0], 1).trailer(&[0xee; 9]).build();
    let found = node.node().send("core0", &padded);
    assert!(found.moved.contains_key("core0 forwarded"), "within the domain, padded: {:?}", found.moved);
    let outside =
        udp(arriving("core0").ipv6(Ipv6Repr::new(CLIENT, local(END_DX6))).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)));
    node.drops("A72: without SRH", "core0", &outside, "drop_source_outside_domain");
    node.finish();
}

/// What this node has wrapped itself is not asked for its source, whatever came before it.
#[test]
#[ignore = "needs root"]
fn sources_are_asked_where_packets_come_in_and_not_again() {
    let network = Network::new();
    // The node's own source address lies outside.
    let domain = "{sid_blocks: ['fc00::/16'], source_prefixes: ['fd00:0:9::/48']}";
    let node = Golden::load(&network, &configuration(domain));
    let path = [local(END), behind_core1(1)];
    let front = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, path[0])).srh(SrhRepr::new(&path));
    let padded = udp(front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))).trailer(&[0xee; 9]).build();
    let to_itself = udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, "fd00:0:ea::7".parse().expect("an address"))));
    for round in 0..8 {
        let found = node.node().send("core0", &padded);
        assert!(found.moved.contains_key("core0 forwarded"), "{round}, handed on: {:?}", found.moved);
        let found = node.send("acc0", &to_itself);
        assert!(found.moved.contains_key("acc0 forwarded"), "{round}, to a SID of its own: {:?}", found.moved);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn transit_packets_are_forwarded_without_a_look_at_their_srh() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    // Last Entry and Segments Left are nonsense: none of a transit node's business (RFC 8754 section 4.2).
    let frame = |front: PacketBuilder, hop_limit| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(HEADEND, behind_core1(1)) };
        let srh = SrhRepr::new(&[behind_core1(1), behind_core1(2)]);
        udp(front.ipv6(repr).srh(srh).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))).with_bytes(14 + 43, &[200, 100])
    };
    node.forwards("SRH", "core0", &frame(arriving("core0"), 64), &frame(leaving("core1"), 63), &[]);
    let expired = frame(arriving("core0"), 1);
    node.passes("hop limit 1: the kernel answers", "core0", &expired, &expired, "passed_route", &[]);
    let unknown = udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, NO_ROUTE)));
    node.passes("no route: the kernel answers", "core0", &unknown, &unknown, "passed_route", &[]);
    let own = udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(0xfff))));
    node.passes("no SID in the node's own locator", "core0", &own, &own, "passed_route", &[]);
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn what_is_not_for_segue_goes_to_the_kernel_untouched() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let arp = |port| {
        let source = macs(port).1;
        let header = EthernetRepr { destination: MacAddress::BROADCAST, source, ethertype: 0x0806 };
        PacketBuilder::new().ethernet_repr(header).payload(&[0; 46])
    };
    let tcp =
        |port: &str| arriving(port).ipv4(Ipv4Repr::new(CLIENT4, port_ipv4("acc0"))).tcp(TcpRepr::new(40_000, 22, 2));
    for (case, port, frame) in [
        ("ARP", "core0", arp("core0")),
        ("ARP", "acc0", arp("acc0")),
        (
            "an unknown ethertype",
            "acc0",
            PacketBuilder::ethernet([2; 6], [2; 6]).payload(&[1; 60]).with_bytes(12, &[0x88, 0xb5]),
        ),
        ("IPv4 on a core port", "core0", tcp("core0")),
        ("to the node by IPv4", "acc0", tcp("acc0")),
        ("to the node by IPv6", "acc0", udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, port_ipv6("acc0"))))),
        ("to the node's loopback address", "core0", udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, NODE)))),
        ("to another host, unsteered", "acc0", udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, SERVER)))),
        ("to another host inside the domain", "core0", udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, SERVER)))),
        (
            "neighbour solicitation",
            "acc0",
            PacketBuilder::ethernet([2, 0, 0, 0, 0, 0x41], [0x33, 0x33, 0xff, 0, 0, 1])
                .ipv6(Ipv6Repr {
                    hop_limit: 255,
                    ..Ipv6Repr::new(Ipv6Addr::UNSPECIFIED, "ff02::1:ff00:1".parse().expect("an address"))
                })
                .icmpv6(Icmpv6Repr::Other { message_type: 135, code: 0, body: vec![0; 20] }),
        ),
        (
            "another routing header without segments left",
            "acc0",
            udp(arriving("acc0")
                .ipv6(Ipv6Repr::new(CLIENT, SERVER))
                .routing(RoutingRepr { routing_type: 2, ..RoutingRepr::default() })),
        ),
        (
            "an echo request to the node",
            "core0",
            arriving("core0").ipv6(Ipv6Repr::new(HEADEND, port_ipv6("core0"))).icmpv6(Icmpv6Repr::EchoRequest {
                identifier: 1,
                sequence_number: 2,
                data: vec![],
            }),
        ),
    ] {
        node.passes(&format!("{case} at {port}"), port, &frame, &frame, "passed_not_for_segue", &[]);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn broken_packets_at_the_boundary_are_dropped() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let six = || udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, steered())));
    let four = || udp(arriving("acc0").ipv4(Ipv4Repr::new(CLIENT4, [10, 20, 0, 7].into())));
    for (case, frame, outcome) in [
        ("IPv6: version", six().with_bytes(14, &[0x45]), "drop_bad_version"),
        ("IPv6: longer than the frame", six().with_bytes(18, &[0, 200]), "drop_bad_length"),
        ("IPv4: version", four().with_bytes(14, &[0x65]), "drop_bad_version"),
        ("IPv4: longer than the frame", four().with_bytes(16, &[0, 200]), "drop_bad_length"),
        ("IPv4: shorter than its header", four().with_bytes(16, &[0, 19]), "drop_bad_length"),
        ("IPv4: header of 16 octets", four().with_bytes(14, &[0x44]), "drop_bad_length"),
        ("IPv4: checksum", four().with_bytes(24, &[1, 2]), "drop_bad_checksum"),
        ("IPv6: source ::1", six().with_bytes(14 + 8, &Ipv6Addr::LOCALHOST.octets()), "drop_bad_source"),
        ("IPv6: source multicast", six().with_bytes(14 + 8, &[0xff, 2]), "drop_bad_source"),
        (
            "IPv6: no room for ports",
            udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, steered()))).with_bytes(18, &[0, 3]),
            "drop_truncated",
        ),
    ] {
        node.drops(case, "acc0", &frame, outcome);
    }
    for length in 14..54 {
        let mut frame = six().build();
        frame.truncate(length);
        if !can_run(&frame) {
            continue;
        }
        node.drops_octets(&format!("IPv6: {length} octets of frame"), "acc0", &frame, "drop_truncated");
        let mut frame = udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(END)))).build();
        frame.truncate(length);
        node.drops_octets(&format!("IPv6: {length} octets of frame"), "core0", &frame, "drop_truncated");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a10_truncated_and_lying_srhs_inside_the_domain() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let srh = SrhRepr::new(&[local(END), behind_core1(1)]);
    let frame = || udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(END))).srh(srh.clone()));
    for length in [9, 10, 100, 255] {
        let case = format!("Hdr Ext Len {length} is beyond the packet");
        node.drops(&case, "core0", &frame().with_bytes(14 + 41, &[length]), "drop_bad_length");
    }
    for payload_length in [0_u8, 7] {
        let lying = frame().with_bytes(18, &[0, payload_length]);
        node.drops(&format!("Payload Length {payload_length}"), "core0", &lying, "drop_bad_length");
    }
    let lying = frame().with_bytes(18, &[0, 39]);
    node.drops("Payload Length one octet short of the SRH", "core0", &lying, "drop_bad_length");
    let lying = frame().with_bytes(18, &[0xff, 0xff]);
    node.drops("Payload Length beyond the frame", "core0", &lying, "drop_bad_length");
    let mut packet = arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(END)));
    for _ in 0..9 {
        packet = packet.destination_options(OptionsRepr::default());
    }
    node.drops("nine extension headers", "core0", &udp(packet), "drop_too_many_headers");
    node.finish();
}

/// RFC 2473 section 8: errors from inside the domain about what this node wrapped are told to the inner source.
#[test]
#[ignore = "needs root"]
fn errors_from_inside_the_domain_are_relayed() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [behind_core1(0xa), behind_core1(0xb)];
    let wrapped = |inner: &PacketBuilder| {
        let mut bytes = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, list[0])).srh(SrhRepr::reduced(&list)).build();
        let octets = inner.build();
        let next_header = if octets[0] >> 4 == 4 { 4 } else { 41 };
        bytes[40] = next_header;
        bytes[4..6].copy_from_slice(&(24 + octets.len() as u16).to_be_bytes());
        bytes.extend(octets);
        Icmpv6Repr::quote(&bytes).to_vec()
    };
    let router: Ipv6Addr = "fd00:0:77::1".parse().expect("an address");
    let arrives = |message| arriving("core1").ipv6(Ipv6Repr::new(router, NODE)).icmpv6(message);
    let six = |octets: usize| udp6(octets);
    let small = six(100);
    let large = six(1400);
    let four = PacketBuilder::new()
        .ipv4(Ipv4Repr { dont_fragment: true, ..Ipv4Repr::new(CLIENT4, SERVER4) })
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(&[9; 60]);
    // From the address of the port by which it leaves: the domain's own are nothing for outside.
    let reply6 = |message| leaving("acc0").ipv6(Ipv6Repr::new(port_ipv6("acc0"), CLIENT)).icmpv6(message);
    let header4 = Ipv4Repr { type_of_service: 0xc0, dont_fragment: true, ..Ipv4Repr::new(port_ipv4("acc0"), CLIENT4) };
    let reply4 = |message| leaving("acc0").ipv4(header4.clone()).icmpv4(message);
    let unreachable6 = |packet| Icmpv6Repr::DestinationUnreachable { code: 3, packet };
    let unreachable4 = |packet| Icmpv4Repr::DestinationUnreachable { code: 1, next_hop_mtu: 0, packet };
    // What is quoted of the inner packet is what the error itself quoted of it.
    let quoted = |inner: &PacketBuilder, most: usize| {
        let mut octets = inner.build();
        octets.truncate((1232 - 64).min(most));
        octets
    };
    for (case, message, reply) in [
        (
            "hop limit exceeded, IPv6",
            Icmpv6Repr::TimeExceeded { code: 0, packet: wrapped(&small) },
            reply6(unreachable6(quoted(&small, 1232))),
        ),
        (
            "no route, IPv6",
            Icmpv6Repr::DestinationUnreachable { code: 0, packet: wrapped(&small) },
            reply6(unreachable6(quoted(&small, 1232))),
        ),
        (
            "too big, IPv6",
            Icmpv6Repr::PacketTooBig { mtu: 1400, packet: wrapped(&large) },
            reply6(Icmpv6Repr::PacketTooBig { mtu: 1400 - 64, packet: quoted(&large, 1232) }),
        ),
        (
            "too big, IPv6, less than 1280 would be left",
            Icmpv6Repr::PacketTooBig { mtu: 1300, packet: wrapped(&large) },
            reply6(Icmpv6Repr::PacketTooBig { mtu: 1280, packet: quoted(&large, 1232) }),
        ),
        (
            "hop limit exceeded, IPv4",
            Icmpv6Repr::TimeExceeded { code: 0, packet: wrapped(&four) },
            reply4(unreachable4(quoted(&four, 548))),
        ),
        (
            "too big, IPv4 with DF",
            Icmpv6Repr::PacketTooBig { mtu: 1280, packet: wrapped(&four) },
            reply4(Icmpv4Repr::DestinationUnreachable { code: 4, next_hop_mtu: 1280 - 64, packet: quoted(&four, 548) }),
        ),
    ] {
        node.answers_counted(case, "core1", &arrives(message).build(), &reply, &["icmp_relayed"], "relayed");
    }
    for (case, message) in [
        (
            "a parameter problem is a fault of the domain",
            Icmpv6Repr::ParameterProblem { code: 0, pointer: 43, packet: wrapped(&small) },
        ),
        (
            "too big, but the inner packet is at most 1280 octets",
            Icmpv6Repr::PacketTooBig { mtu: 1280, packet: wrapped(&six(1280)) },
        ),
        ("the quote is too short", Icmpv6Repr::TimeExceeded { code: 0, packet: wrapped(&small)[..80].to_vec() }),
        ("the quoted source is not this node", {
            let mut packet = wrapped(&small);
            packet[23] ^= 1;
            Icmpv6Repr::TimeExceeded { code: 0, packet }
        }),
        ("the quoted destination is no SID", {
            let mut packet = wrapped(&small);
            packet[24] = 0x20;
            Icmpv6Repr::TimeExceeded { code: 0, packet }
        }),
    ] {
        let frame = arrives(message);
        let found = node.send("core1", &frame);
        assert_eq!(found.verdict, segue_testkit::node::Verdict::Pass, "{case}: {:?}", found.moved);
        assert_eq!(found.frame, frame.build(), "{case}");
        assert_eq!(found.moved.len(), 1, "{case}: {:?}", found.moved);
    }
    node.finish();
}

/// Two tenants may have the same addresses: an error about a packet of one goes where that packet came from.
#[test]
#[ignore = "needs root"]
fn relayed_errors_go_by_the_port_that_the_packet_came_in_by() {
    let network = Network::new();
    // Behind acc1, by a table of its own, is another client with the same address.
    network.node.script(
        "ip -6 rule add iif acc1 table 100
         ip -6 route add table 100 fd00:0:a0::/64 via fd00:0:a1::2
         ip -4 rule add iif acc1 table 100
         ip -4 route add table 100 10.1.0.0/24 via 10.2.0.2",
    );
    let policy = |name: &str, last: u16| {
        format!("  - {{name: {name}, segment_lists: [{{segments: ['fc00:0:2:a::', 'fc00:0:2:{last:x}::']}}]}}\n")
    };
    let rule = |port: &str, number: u8, policy: &str| {
        format!(
            "  - {{destination: 'fd00:0:{number:x}::/64', ingress: {port}, policy: {policy}}}\n  \
             - {{destination: 10.{number}.0.0/16, ingress: {port}, policy: {policy}}}\n"
        )
    };
    let policies = [policy("left", 0x1a), policy("right", 0x1b), policy("both", 0x1c)].concat();
    let rules =
        [rule("acc0", 60, "left"), rule("acc1", 60, "right"), rule("acc0", 61, "both"), rule("acc1", 61, "both")];
    let yaml = configuration(DOMAIN).replacen("policies:", &format!("policies:\n{policies}"), 1);
    let yaml = yaml.replacen("steering:", &format!("steering:\n{}", rules.concat()), 1);
    let node = Golden::load(&network, &yaml);
    let router: Ipv6Addr = "fd00:0:77::1".parse().expect("an address");
    let expired = |last: u16, left: u8, inner: &PacketBuilder| {
        let list = [behind_core1(0xa), behind_core1(last)];
        let srh = SrhRepr::reduced(&list).with_segments_left(left);
        let destination = if left == 0 { list[1] } else { list[0] };
        let mut packet = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, destination)).srh(srh).build();
        let octets = inner.build();
        packet[40] = if octets[0] >> 4 == 4 { 4 } else { 41 };
        packet[4..6].copy_from_slice(&(24 + octets.len() as u16).to_be_bytes());
        packet.extend(octets);
        arriving("core1").ipv6(Ipv6Repr::new(router, NODE)).icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet })
    };
    let from = |source| {
        PacketBuilder::new().ipv6(Ipv6Repr::new(source, steered())).udp(UdpRepr::new(1, 2)).payload(b"which way back?")
    };
    let four = PacketBuilder::new().ipv4(Ipv4Repr::new(CLIENT4, [10, 60, 0, 1].into())).udp(UdpRepr::new(1, 2));
    for left in [0, 1] {
        for (case, last, port, source) in [
            ("of the left one", 0x1a, "acc0", CLIENT),
            ("of the right one", 0x1b, "acc1", CLIENT),
            ("of either, and only one port leads there", 0x1c, "acc1", SERVER),
        ] {
            let message = Icmpv6Repr::DestinationUnreachable { code: 3, packet: from(source).build() };
            let reply = leaving(port).ipv6(Ipv6Repr::new(port_ipv6(port), source)).icmpv6(message);
            let frame = expired(last, left, &from(source)).build();
            node.answers_counted(case, "core1", &frame, &reply, &["icmp_relayed"], "relayed");
        }
        for (last, port) in [(0x1a, "acc0"), (0x1b, "acc1")] {
            let header =
                Ipv4Repr { type_of_service: 0xc0, dont_fragment: true, ..Ipv4Repr::new(port_ipv4(port), CLIENT4) };
            let message = Icmpv4Repr::DestinationUnreachable { code: 1, next_hop_mtu: 0, packet: four.build() };
            let reply = leaving(port).ipv4(header).icmpv4(message);
            let frame = expired(last, left, &four).build();
            node.answers_counted("IPv4", "core1", &frame, &reply, &["icmp_relayed"], "relayed");
        }
        let frame = expired(0x1c, left, &from(CLIENT));
        node.drops("both ports lead to a client of this address", "core1", &frame, "drop_not_answered");
    }
    node.finish();
}

/// An IPv6 packet of the client of that many octets.
fn udp6(octets: usize) -> PacketBuilder {
    PacketBuilder::new()
        .ipv6(Ipv6Repr::new(CLIENT, SERVER))
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(&vec![9; octets - 48])
}
