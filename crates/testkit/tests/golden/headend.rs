//! The headend: H.Encaps, H.Encaps.Red, H.Encaps.L2, H.Insert (RFC 8986 section 5), steering, and End.B6.Encaps(.Red), which is a
//! headend behind a SID.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use segue_testkit::fixture::{
    DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, port_ipv4, port_ipv6,
};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::ipv6_extension::FragmentRepr;
use segue_wire::{
    EthernetRepr, Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, UdpRepr,
    VlanRepr,
};

fn segments(functions: &[u16]) -> Vec<Ipv6Addr> {
    functions.iter().map(|function| behind_core1(*function)).collect()
}

fn destination6(network: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7)
}

fn destination4(network: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 20, network, 7)
}

fn six(packet: PacketBuilder, destination: Ipv6Addr, hop_limit: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit, traffic_class: 0x29, flow_label: 0x54321, ..Ipv6Repr::new(CLIENT, destination) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"to be wrapped")
}

fn four(packet: PacketBuilder, destination: Ipv4Addr, time_to_live: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live, type_of_service: 0xb9, ..Ipv4Repr::new(CLIENT4, destination) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"to be wrapped")
}

/// The outer header around [`six`]: traffic class and flow label are copied.
fn outer6(first: Ipv6Addr) -> Ipv6Repr {
    Ipv6Repr { traffic_class: 0x29, flow_label: 0x54321, hop_limit: 64, ..Ipv6Repr::new(NODE, first) }
}

/// Flow label of a frame that starts with Ethernet and IPv6.
fn flow_label(frame: &[u8]) -> u32 {
    u32::from_be_bytes([0, frame[15] & 15, frame[16], frame[17]])
}

/// Sends a packet whose outer flow label is not known beforehand: not 0, and the same each time. All else is compared.
fn encapsulated(
    node: &Golden<'_>,
    case: &str,
    port: &str,
    frame: &PacketBuilder,
    expected: impl Fn(u32) -> PacketBuilder,
    also: &[&str],
) -> u32 {
    let first = node.send(port, frame);
    assert_eq!(first.verdict, Verdict::Redirect, "{case}: {:?}", first.moved);
    let label = flow_label(&first.frame);
    assert_ne!(label, 0, "{case}: RFC 6437 wants a flow label");
    node.forwards(case, port, frame, &expected(label), also);
    label
}

/// A segment that opens a connection: the case, its flags, and its options as they come and as they leave, over IPv6 and over IPv4.
type Opening<'a> = (&'a str, u8, [Vec<u8>; 2], [Vec<u8>; 2]);

/// TCP connections are opened for packets that fit: of segments with SYN the MSS option is lowered, and nothing else of any packet.
#[test]
#[ignore = "needs root"]
fn connections_into_a_policy_are_opened_for_packets_that_fit() {
    let network = Network::new();
    let text = configuration(DOMAIN);
    let clamped = text.replace("{name: full,", "{name: full, mss_clamp: 1400,");
    assert_ne!(clamped, text);
    let node = Golden::load(&network, &clamped);
    let list = segments(&[0xa, 0xb, 0xc]);
    let mss = |octets: u16| vec![2, 4, (octets >> 8) as u8, octets as u8];
    // Behind an odd number of octets, and among others.
    let odd = |octets: u16| [vec![1], mss(octets), vec![4, 2, 1]].concat();
    let among = |octets: u16| [vec![4, 2, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8], mss(octets), vec![1, 0]].concat();
    let segment = |flags: u8, options: Vec<u8>| TcpRepr { options, window: 1000, ..TcpRepr::new(40_000, 80, flags) };
    let (syn, syn_ack) = (0x02, 0x12);
    let cases: [Opening<'_>; 6] = [
        ("SYN", syn, [mss(1440), mss(1340)], [mss(1460), mss(1360)]),
        ("SYN and ACK", syn_ack, [mss(8940), mss(1340)], [mss(8960), mss(1360)]),
        ("at an odd place", syn, [odd(1440), odd(1340)], [odd(1460), odd(1360)]),
        ("among others", syn, [among(65_535), among(1340)], [among(65_535), among(1360)]),
        ("small enough", syn, [mss(1340), mss(1340)], [mss(1360), mss(1360)]),
        ("none", syn, [vec![1, 1, 4, 2], vec![1, 1, 4, 2]], [vec![], vec![]]),
    ];
    for (case, flags, [six_in, six_out], [four_in, four_out]) in cases {
        let inner6 = |packet: PacketBuilder, hop_limit: u8, options: Vec<u8>| {
            let repr = Ipv6Repr {
                hop_limit,
                traffic_class: 0x29,
                flow_label: 0x54321,
                ..Ipv6Repr::new(CLIENT, destination6(0xe0))
            };
            packet.inner_ipv6(repr).tcp(segment(flags, options)).payload(b"opened")
        };
        let outer = |packet: PacketBuilder| packet.ipv6(outer6(list[0])).srh(SrhRepr::new(&list));
        node.forwards(
            case,
            "acc0",
            &inner6(arriving("acc0"), 64, six_in),
            &inner6(outer(leaving("core1")), 63, six_out),
            &["list full/0", "rule full6"],
        );
        let inner4 = |packet: PacketBuilder, time_to_live: u8, options: Vec<u8>| {
            let repr = Ipv4Repr { time_to_live, type_of_service: 0xb9, ..Ipv4Repr::new(CLIENT4, destination4(0)) };
            packet.inner_ipv4(repr).tcp(segment(flags, options)).payload(b"opened")
        };
        let outer = |packet: PacketBuilder, flow_label: u32| {
            let repr = Ipv6Repr { traffic_class: 0xb9, flow_label, hop_limit: 64, ..Ipv6Repr::new(NODE, list[0]) };
            packet.ipv6(repr).srh(SrhRepr::new(&list))
        };
        encapsulated(
            &node,
            case,
            "acc0",
            &inner4(arriving("acc0"), 64, four_in),
            |label| inner4(outer(leaving("core1"), label), 63, four_out.clone()),
            &["list full/0", "rule full4"],
        );
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a30_a32_encapsulation_of_ipv6() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = segments(&[0xa, 0xb, 0xc]);
    let full = |packet: PacketBuilder| packet.ipv6(outer6(list[0])).srh(SrhRepr::new(&list));
    let to = destination6(0xe0);
    node.forwards(
        "H.Encaps, three segments",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(full(leaving("core1")), to, 63),
        &["list full/0", "rule full6"],
    );
    node.forwards(
        "inner hop limit 2",
        "acc0",
        &six(arriving("acc0"), to, 2),
        &six(full(leaving("core1")), to, 1),
        &["list full/0", "rule full6"],
    );
    let to = destination6(0xe1);
    node.forwards(
        "H.Encaps.Red, three segments",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(leaving("core1").ipv6(outer6(list[0])).srh(SrhRepr::reduced(&list)), to, 63),
        &["list reduced/0", "rule reduced6"],
    );
    let to = destination6(0xe2);
    let source: Ipv6Addr = "fd00:0:1::5".parse().expect("an address");
    node.forwards(
        "H.Encaps.Red, one segment: no SRH; source address and hop limit of the policy",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(leaving("core1").ipv6(Ipv6Repr { hop_limit: 33, source, ..outer6(list[0]) }), to, 63),
        &["list one/0", "rule one6"],
    );
    let to = destination6(0xe3);
    let one = SrhRepr::new(&list[..1]);
    node.forwards(
        "H.Encaps, one segment",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(leaving("core1").ipv6(outer6(list[0])).srh(one), to, 63),
        &["list one-full/0", "rule onefull6"],
    );
    let to = destination6(0xeb);
    let ten = segments(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 0xa]);
    node.forwards(
        "H.Encaps, ten segments",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(leaving("core1").ipv6(outer6(ten[0])).srh(SrhRepr::new(&ten)), to, 63),
        &["list ten/0", "rule ten6"],
    );
    let to = destination6(0xe5);
    let dscp = Ipv6Repr { traffic_class: 46 << 2 | 1, ..outer6(list[0]) };
    node.forwards(
        "A33: DSCP of the policy, ECN of the inner packet",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(leaving("core1").ipv6(dscp).srh(SrhRepr::reduced(&list[..2])), to, 63),
        &["list dscp/0", "rule dscp6"],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a30_a31_encapsulation_of_ipv4() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = segments(&[0xa, 0xb, 0xc]);
    let outer =
        |flow_label| Ipv6Repr { traffic_class: 0xb9, flow_label, hop_limit: 64, ..Ipv6Repr::new(NODE, list[0]) };
    let to = destination4(0);
    let expected = |label| four(leaving("core1").ipv6(outer(label)).srh(SrhRepr::new(&list)), to, 63);
    let frame = four(arriving("acc0"), to, 64);
    let label = encapsulated(&node, "H.Encaps", "acc0", &frame, expected, &["list full/0", "rule full4"]);
    let expected = |label| four(leaving("core1").ipv6(outer(label)).srh(SrhRepr::reduced(&list)), destination4(1), 63);
    let frame = four(arriving("acc0"), destination4(1), 64);
    encapsulated(&node, "H.Encaps.Red", "acc0", &frame, expected, &["list reduced/0", "rule reduced4"]);
    let source: Ipv6Addr = "fd00:0:1::5".parse().expect("an address");
    let expected =
        |label| four(leaving("core1").ipv6(Ipv6Repr { hop_limit: 33, source, ..outer(label) }), destination4(2), 63);
    let frame = four(arriving("acc0"), destination4(2), 64);
    encapsulated(&node, "one segment", "acc0", &frame, expected, &["list one/0", "rule one4"]);
    let mut labels = BTreeSet::from([label]);
    for port in 1..200 {
        let packet = arriving("acc0").ipv4(Ipv4Repr::new(CLIENT4, to)).udp(UdpRepr::new(port, 40_001));
        labels.insert(flow_label(&node.send("acc0", &packet).frame));
    }
    assert!(labels.len() > 190, "200 flows have only {} flow labels", labels.len());
    assert!(!labels.contains(&0));
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a31_flow_label_of_ipv6_without_one() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = segments(&[0xa, 0xb, 0xc]);
    let inner = |packet: PacketBuilder, hop_limit| {
        let repr = Ipv6Repr { hop_limit, ..Ipv6Repr::new(CLIENT, destination6(0xe1)) };
        packet.inner_ipv6(repr).tcp(TcpRepr::new(40_000, 40_001, 2))
    };
    let outer = |flow_label| Ipv6Repr { flow_label, hop_limit: 64, ..Ipv6Repr::new(NODE, list[0]) };
    let expected = |label| inner(leaving("core1").ipv6(outer(label)).srh(SrhRepr::reduced(&list)), 63);
    let frame = inner(arriving("acc0"), 64);
    encapsulated(&node, "from the flow's hash", "acc0", &frame, expected, &["list reduced/0", "rule reduced6"]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn weighted_lists_share_the_flows_and_keep_each_on_one() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let mut taken = [0_u32; 2];
    for port in 0..4000_u16 {
        let packet = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination6(0xec))).udp(UdpRepr::new(port, 9));
        let frame = packet.build();
        let (verdict, first) = node.node().run("acc0", &frame);
        assert_eq!(verdict, Verdict::Redirect);
        let function = u16::from_be_bytes([first[14 + 24 + 6], first[14 + 24 + 7]]);
        taken[usize::from(function == 0xb)] += 1;
        if port % 100 == 0 {
            assert_eq!(node.node().run("acc0", &frame).1, first, "the same flow takes the same list");
        }
    }
    // Weights 1 and 3: 1000 and 3000 of 4000, with a standard deviation of 27.
    assert!((850..1150).contains(&taken[0]), "{taken:?}");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a35_whole_frames() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = segments(&[0xa, 0xb]);
    let tagged = |packet: PacketBuilder| {
        packet
            .inner_ethernet([0x0a, 0, 0, 0, 0, 1], [0x0a, 0, 0, 0, 0, 2])
            .vlan_repr(VlanRepr { priority: 5, vlan_id: 77, ..VlanRepr::default() })
            .ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
            .udp(UdpRepr::new(40_000, 40_001))
            .payload(b"tagged")
    };
    let plain = |packet: PacketBuilder| {
        packet
            .inner_ethernet([0x0a, 0, 0, 0, 0, 1], [0x0a, 0, 0, 0, 0, 2])
            .ipv6(Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(CLIENT, SERVER) })
            .udp(UdpRepr::new(40_000, 40_001))
    };
    let broadcast = |packet: PacketBuilder| {
        let header = EthernetRepr {
            destination: MacAddress::BROADCAST,
            source: MacAddress([0x0a, 0, 0, 0, 0, 1]),
            ethertype: 0x88b5,
        };
        packet.ethernet_repr(header).payload(&[0x11; 46])
    };
    for (case, frame, wrapped) in [
        ("VLAN tag", tagged(PacketBuilder::new()), &tagged as &dyn Fn(PacketBuilder) -> PacketBuilder),
        ("hop limit 1 is not looked at", plain(PacketBuilder::new()), &plain),
        ("broadcast", broadcast(PacketBuilder::new()), &broadcast),
    ] {
        let frame = frame.build();
        let found = node.node().send("wire0", &frame);
        assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
        let outer = Ipv6Repr { flow_label: flow_label(&found.frame), ..Ipv6Repr::new(NODE, list[0]) };
        assert_ne!(outer.flow_label, 0, "{case}");
        let expected = wrapped(leaving("core1").ipv6(outer).srh(SrhRepr::new(&list))).build();
        assert_eq!(found.frame, expected, "{case}");
        let octets = frame.len() as u64;
        assert_eq!(found.moved.get("list l2/0").map(|moved| moved.0), Some(1), "{case}: {:?}", found.moved);
        assert_eq!(found.moved.get("wire0 forwarded"), Some(&(1, octets)), "{case}: {:?}", found.moved);
        assert_eq!(found.moved.len(), 2, "{case}: {:?}", found.moved);
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn insertion() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let to = destination6(0xe4);
    let list = [behind_core1(0xa), behind_core1(0xb), to];
    let packet = |front: PacketBuilder, destination, hop_limit, srh: Option<SrhRepr>| {
        let repr = Ipv6Repr { hop_limit, traffic_class: 7, flow_label: 0x11111, ..Ipv6Repr::new(CLIENT, destination) };
        let front = front.ipv6(repr);
        let front = srh.into_iter().fold(front, PacketBuilder::srh);
        // The checksum covers the final destination: the same before and after.
        front.udp(UdpRepr::new(40_000, 40_001)).payload(b"inline")
    };
    node.forwards(
        "H.Insert, two segments",
        "acc0",
        &packet(arriving("acc0"), to, 64, None),
        &packet(leaving("core1"), list[0], 63, Some(SrhRepr::new(&list))),
        &["list insert/0", "rule insert6"],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a34_packets_that_do_not_fit_after_encapsulation() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [behind_core2(0xa), behind_core2(0xb)];
    // core2 has an MTU of 1400; IPv6 and an SRH with one segment are 64 octets.
    const FITS: usize = 1400 - 64;
    let six = |packet: PacketBuilder, octets: usize, hop_limit| {
        let repr = Ipv6Repr { hop_limit, flow_label: 5, ..Ipv6Repr::new(CLIENT, destination6(0xe6)) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 48])
    };
    let outer = Ipv6Repr { flow_label: 5, ..Ipv6Repr::new(NODE, list[0]) };
    node.forwards(
        "IPv6 fits",
        "acc0",
        &six(arriving("acc0"), FITS, 64),
        &six(leaving("core2").ipv6(outer).srh(SrhRepr::reduced(&list)), FITS, 63),
        &["list narrow/0", "rule narrow6"],
    );
    let packet = Icmpv6Repr::quote(&six(PacketBuilder::new(), FITS + 1, 64).build()).to_vec();
    let reply = leaving("acc0")
        .ipv6(Ipv6Repr::new(port_ipv6("acc0"), CLIENT))
        .icmpv6(Icmpv6Repr::PacketTooBig { mtu: FITS as u32, packet });
    let frame = six(arriving("acc0"), FITS + 1, 64).build();
    node.answers_counted("IPv6 one octet more", "acc0", &frame, &reply, &["drop_too_big"], "too_big");
    let four = |packet: PacketBuilder, octets: usize, dont_fragment| {
        let repr = Ipv4Repr { dont_fragment, ..Ipv4Repr::new(CLIENT4, destination4(6)) };
        packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(&vec![0xa5; octets - 28])
    };
    let fits = node.send("acc0", &four(arriving("acc0"), FITS, true));
    assert_eq!((fits.verdict, fits.frame.len()), (Verdict::Redirect, 1414), "IPv4 fits");
    let mut packet = four(PacketBuilder::new(), FITS + 1, true).build();
    packet.truncate(548);
    let header = Ipv4Repr { type_of_service: 0xc0, dont_fragment: true, ..Ipv4Repr::new(port_ipv4("acc0"), CLIENT4) };
    let message = Icmpv4Repr::DestinationUnreachable { code: 4, next_hop_mtu: FITS as u16, packet };
    let reply = leaving("acc0").ipv4(header).icmpv4(message);
    let frame = four(arriving("acc0"), FITS + 1, true).build();
    node.answers_counted("IPv4 one octet more", "acc0", &frame, &reply, &["drop_too_big"], "too_big");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a32_hop_limit_of_the_inner_packet_exceeded() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for hop_limit in [0, 1] {
        let packet = six(PacketBuilder::new(), destination6(0xe0), hop_limit).build();
        let reply = leaving("acc0")
            .ipv6(Ipv6Repr::new(port_ipv6("acc0"), CLIENT))
            .icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet });
        let frame = six(arriving("acc0"), destination6(0xe0), hop_limit).build();
        let counters = ["drop_hop_limit_exceeded"];
        node.answers_counted("IPv6", "acc0", &frame, &reply, &counters, "time_exceeded");
        let packet = four(PacketBuilder::new(), destination4(0), hop_limit).build();
        let header =
            Ipv4Repr { type_of_service: 0xc0, dont_fragment: true, ..Ipv4Repr::new(port_ipv4("acc0"), CLIENT4) };
        let reply = leaving("acc0").ipv4(header).icmpv4(Icmpv4Repr::TimeExceeded { code: 0, packet });
        let frame = four(arriving("acc0"), destination4(0), hop_limit).build();
        let counters = ["drop_hop_limit_exceeded"];
        node.answers_counted("IPv4", "acc0", &frame, &reply, &counters, "time_exceeded");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn steering_picks_the_rule() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let tcp = |port: &str, source: [u8; 4], destination: [u8; 4], destination_port| {
        arriving(port).ipv4(Ipv4Repr::new(source.into(), destination.into())).tcp(TcpRepr::new(
            40_000,
            destination_port,
            2,
        ))
    };
    let low = [10, 1, 0, 2];
    let high = [10, 1, 0, 200];
    let to = [10, 21, 3, 4];
    let rule = |port: &str, frame: &PacketBuilder| {
        let found = node.send(port, frame);
        let rule = found.moved.keys().find_map(|name| name.strip_prefix("rule ")).map(str::to_owned);
        (found.verdict, rule)
    };
    let picked = |name: &str| (Verdict::Redirect, Some(name.to_owned()));
    for (case, port, frame, expected) in [
        ("port 80", "acc0", tcp("acc0", low, to, 80), picked("web")),
        ("port 8000", "acc0", tcp("acc0", low, to, 8000), picked("web")),
        ("port 8080", "acc0", tcp("acc0", low, to, 8080), picked("web")),
        ("port 8081", "acc0", tcp("acc0", low, to, 8081), (Verdict::Pass, None)),
        ("port 81", "acc0", tcp("acc0", low, to, 81), (Verdict::Pass, None)),
        ("by source", "acc0", tcp("acc0", high, to, 81), picked("web-from")),
        ("by ingress", "acc1", tcp("acc1", low, to, 81), picked("from-acc1")),
        ("an action: drop", "acc0", tcp("acc0", low, [10, 22, 9, 9], 80), (Verdict::Drop, Some("dropped".into()))),
        (
            "an action: pass, by a longer prefix",
            "acc0",
            tcp("acc0", low, [10, 22, 1, 9], 80),
            (Verdict::Pass, Some("passed".into())),
        ),
        ("no rule", "acc0", tcp("acc0", low, [10, 99, 0, 1], 80), (Verdict::Pass, None)),
    ] {
        assert_eq!(rule(port, &frame), expected, "{case}");
        assert_eq!(rule(port, &frame), expected, "{case}, from the flow cache");
    }
    let udp = arriving("acc0").ipv4(Ipv4Repr::new(low.into(), to.into())).udp(UdpRepr::new(40_000, 80));
    assert_eq!(rule("acc0", &udp), (Verdict::Pass, None), "UDP to port 80 is not TCP to port 80");
    for (more_fragments, fragment_offset) in [(true, 0), (true, 8), (false, 8)] {
        let repr = Ipv4Repr { more_fragments, fragment_offset, ..Ipv4Repr::new(low.into(), to.into()) };
        let frame = arriving("acc0").ipv4(repr).tcp(TcpRepr::new(40_000, 80, 2));
        assert_eq!(rule("acc0", &frame), (Verdict::Pass, None), "a fragment never matches a rule with ports");
    }
    let fragment = FragmentRepr { fragment_offset: 8, identification: 1, ..FragmentRepr::default() };
    let frame =
        arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination6(0xe0))).fragment(fragment).udp(UdpRepr::new(1, 2));
    assert_eq!(rule("acc0", &frame), picked("full6"), "a fragment matches a rule without ports");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn policies_and_routes_that_say_no() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let empty = node.send("acc0", &six(arriving("acc0"), destination6(0xe7), 64));
    assert_eq!(empty.verdict, Verdict::Drop, "a policy without a list");
    let names: Vec<&str> = empty.moved.keys().map(String::as_str).collect();
    assert_eq!(names, ["acc0 drop_policy_invalid", "rule empty6"]);
    let packet = six(PacketBuilder::new(), destination6(0xe8), 64).build();
    let reply = leaving("acc0")
        .ipv6(Ipv6Repr::new(port_ipv6("acc0"), CLIENT))
        .icmpv6(Icmpv6Repr::DestinationUnreachable { code: 0, packet });
    let frame = six(arriving("acc0"), destination6(0xe8), 64).build();
    node.answers_counted("the first segment is unreachable", "acc0", &frame, &reply, &["drop_no_route"], "unreachable");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_first_segment_without_a_neighbour_goes_to_the_kernel_whole() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [UNRESOLVED, behind_core1(0xb)];
    let to = destination6(0xe9);
    // The kernel takes one from the outer hop limit when it forwards.
    let outer = Ipv6Repr { hop_limit: 65, ..outer6(list[0]) };
    let up = PacketBuilder::ethernet([0; 6], [2, 0, 0, 0, 0, 0x40]).ipv6(outer).srh(SrhRepr::reduced(&list));
    node.passes(
        "no neighbour",
        "acc0",
        &six(arriving("acc0"), to, 64),
        &six(up, to, 63),
        "passed_no_neighbour",
        &["list unresolved/0", "rule unresolved6"],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_first_segment_of_this_node_is_processed_at_once() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = [local(END), behind_core1(0xb)];
    let to = destination6(0xea);
    let srh = SrhRepr::reduced(&list).with_segments_left(0);
    let frame = six(arriving("acc0"), to, 64).build();
    let expected = six(leaving("core1").ipv6(Ipv6Repr { hop_limit: 63, ..outer6(list[1]) }).srh(srh), to, 63);
    let found = node.send("acc0", &six(arriving("acc0"), to, 64));
    assert_eq!((found.verdict, found.frame), (Verdict::Redirect, expected.build()));
    let (inner, outer) = (frame.len() as u64 - 14, frame.len() as u64 - 14 + 64);
    // The endpoint gets the packet with its new header, and the port's outcome is counted there.
    let counters = [
        ("acc0 forwarded", (1, outer)),
        ("list local/0", (1, inner)),
        ("rule local6", (1, inner)),
        ("sid fc00:0:1:1::/64", (1, outer)),
    ];
    assert_eq!(found.moved, counters.map(|(name, moved)| (name.to_owned(), moved)).into());
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a36_b6_encaps_advances_then_wraps() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let list = segments(&[0xa, 0xb, 0xc]);
    for (function, new, counter) in
        [(END_B6, SrhRepr::new(&list), "list full/0"), (END_B6_RED, SrhRepr::reduced(&list), "list reduced/0")]
    {
        let path = [local(function), behind_core2(0x1), behind_core2(0x2)];
        let received = |packet: PacketBuilder, destination, hop_limit, segments_left| {
            let repr =
                Ipv6Repr { hop_limit, traffic_class: 0x12, flow_label: 0x777, ..Ipv6Repr::new(HEADEND, destination) };
            packet
                .ipv6(repr)
                .srh(SrhRepr::new(&path).with_segments_left(segments_left).with_tag(5))
                .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
                .udp(UdpRepr::new(40_000, 40_001))
                .payload(b"bound")
        };
        let outer = Ipv6Repr { traffic_class: 0x12, flow_label: 0x777, ..Ipv6Repr::new(NODE, list[0]) };
        let sid = format!("sid fc00:0:1:{function:x}::/64");
        node.forwards(
            "the received SRH is advanced and kept",
            "core0",
            &received(arriving("core0"), path[0], 64, 2),
            &received(leaving("core1").ipv6(outer).srh(new), path[1], 63, 1),
            &[counter, &sid],
        );
    }
    node.finish();
}
