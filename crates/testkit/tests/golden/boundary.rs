//! Who a frame is for, and what leaves the domain.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{
    DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, macs, port_ipv6,
};
use segue_testkit::golden::Golden;
use segue_testkit::node::{can_run, on_socket_buffers};
use segue_wire::ipv6_extension::{FragmentRepr, OptionsRepr};
use segue_wire::{EthernetRepr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

/// Another host's on the same segment.
const STRANGER: MacAddress = MacAddress([2, 0, 0, 0, 0x77, 1]);

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn udp(packet: PacketBuilder) -> PacketBuilder {
    packet.udp(UdpRepr::new(40_000, 40_001)).payload(b"at the boundary")
}

/// Arrives at a port, for somebody else.
fn for_other(port: &str, destination: MacAddress) -> PacketBuilder {
    PacketBuilder::ethernet(macs(port).1, destination)
}

fn group(destination: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = destination.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}

/// By End from core0 to core1.
fn to_end(front: PacketBuilder) -> PacketBuilder {
    let srh = SrhRepr::new(&[local(END), behind_core1(0xa)]);
    udp(front.ipv6(Ipv6Repr::new(HEADEND, local(END))).srh(srh).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)))
}

fn from_end() -> PacketBuilder {
    let srh = SrhRepr::new(&[local(END), behind_core1(0xa)]).with_segments_left(0);
    let outer = Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(HEADEND, behind_core1(0xa)) };
    udp(leaving("core1").ipv6(outer).srh(srh).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)))
}

/// Through this node to another one's SID.
fn transit(front: PacketBuilder) -> PacketBuilder {
    udp(front.ipv6(Ipv6Repr::new(HEADEND, behind_core1(0xa))).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)))
}

/// Steered by `full6` where it comes from outside.
fn steered(front: PacketBuilder) -> PacketBuilder {
    udp(front.ipv6(Ipv6Repr::new(CLIENT, address("fd00:0:e0::7"))))
}

#[test]
#[ignore = "needs root"]
fn a_core_port_processes_only_its_own_frames() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let groups = [MacAddress::BROADCAST, group(address("ff02::1")), MacAddress([1, 0, 0x5e, 0, 0, 1])];
    let error = |front: PacketBuilder| {
        let packet = to_end(PacketBuilder::new()).build();
        front.ipv6(Ipv6Repr::new(HEADEND, NODE)).icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet })
    };
    node.forwards("its own", "core0", &to_end(arriving("core0")), &from_end(), &["sid fc00:0:1:1::/64"]);
    for (case, packet) in [("to End", &to_end as &dyn Fn(_) -> _), ("transit", &transit)] {
        // On a segment that is flooded, the node that it is for forwards it too.
        let frame = packet(for_other("core0", STRANGER));
        node.passes(&format!("{case}, for another"), "core0", &frame, &frame, "passed_other_host", &[]);
        for destination in groups {
            let case = format!("{case}, for {destination}");
            node.drops(&case, "core0", &packet(for_other("core0", destination)), "drop_group_frame");
        }
    }
    let frame = error(for_other("core0", STRANGER));
    node.passes("an error, for another", "core0", &frame, &frame, "passed_other_host", &[]);
    let cut = &to_end(for_other("core0", groups[0])).build()[..40];
    if can_run(cut) {
        node.drops_octets("cut, for all", "core0", cut, "drop_truncated");
    }
    node.finish();
}

/// What a host must hear to be one: none of it is to a SID.
#[test]
#[ignore = "needs root"]
fn group_frames_that_the_kernel_needs_reach_it() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let multicast = |port: &str, source: Ipv6Addr, destination: &str| {
        let destination = address(destination);
        let header = Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(source, destination) };
        for_other(port, group(destination)).ipv6(header)
    };
    let link_local = address("fe80::2");
    let icmp = |message_type, body| Icmpv6Repr::Other { message_type, code: 0, body };
    for port in ["core0", "acc0"] {
        let arp = EthernetRepr { destination: MacAddress::BROADCAST, source: macs(port).1, ethertype: 0x0806 };
        for (case, frame) in [
            ("ARP", PacketBuilder::new().ethernet_repr(arp).payload(&[0; 46])),
            (
                "duplicate address detection",
                multicast(port, Ipv6Addr::UNSPECIFIED, "ff02::1:ff00:1").icmpv6(icmp(135, vec![0; 20])),
            ),
            ("neighbour solicitation", multicast(port, link_local, "ff02::1:ff00:1").icmpv6(icmp(135, vec![0; 20]))),
            ("neighbour advertisement", multicast(port, link_local, "ff02::1").icmpv6(icmp(136, vec![0; 20]))),
            ("router advertisement", multicast(port, link_local, "ff02::1").icmpv6(icmp(134, vec![0; 12]))),
            ("MLDv2 report", multicast(port, link_local, "ff02::16").icmpv6(icmp(143, vec![0; 24]))),
            ("DHCPv6", multicast(port, link_local, "ff02::1:2").udp(UdpRepr::new(546, 547)).payload(&[1; 20])),
            ("RIPng", multicast(port, link_local, "ff02::9").udp(UdpRepr::new(521, 521)).payload(&[2; 24])),
            ("OSPFv3", {
                let frame = multicast(port, link_local, "ff02::5").payload(&[3; 16]);
                frame.with_bytes(14 + 4, &[0, 16, 89])
            }),
            (
                "IS-IS",
                PacketBuilder::ethernet(macs(port).1, MacAddress([1, 0x80, 0xc2, 0, 0, 0x15]))
                    .payload(&[0xfe; 60])
                    .with_bytes(12, &[0, 60]),
            ),
            (
                "DHCP",
                for_other(port, MacAddress::BROADCAST)
                    .ipv4(Ipv4Repr::new([0, 0, 0, 0].into(), [255, 255, 255, 255].into()))
                    .udp(UdpRepr::new(68, 67))
                    .payload(&[1; 20]),
            ),
            // RFC 6085: a unicast frame with a packet to a group.
            ("in a unicast frame", {
                let header = Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(link_local, address("ff02::1")) };
                arriving(port).ipv6(header).icmpv6(icmp(134, vec![0; 12]))
            }),
        ] {
            node.passes(&format!("{case} at {port}"), port, &frame, &frame, "passed_not_for_segue", &[]);
        }
    }
    node.finish_with_faults();
}

#[test]
#[ignore = "needs root"]
fn an_access_port_steers_only_its_own_frames() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let sid = udp(for_other("acc0", STRANGER).ipv6(Ipv6Repr::new(CLIENT, local(END))));
    let srh = SrhRepr::new(&[local(END), behind_core1(1)]);
    for (case, frame) in [
        ("steered by a rule", steered(for_other("acc0", STRANGER))),
        ("dropped by a rule", { udp(for_other("acc0", STRANGER).ipv4(Ipv4Repr::new(CLIENT4, [10, 22, 0, 1].into()))) }),
        ("to a SID", sid),
        ("with an SRH", udp(for_other("acc0", STRANGER).ipv6(Ipv6Repr::new(CLIENT, SERVER)).srh(srh))),
        ("broken", steered(for_other("acc0", STRANGER)).with_bytes(14, &[0x45])),
    ] {
        node.passes(case, "acc0", &frame, &frame, "passed_other_host", &[]);
    }
    let found = node.send("acc0", &steered(arriving("acc0")));
    assert!(found.moved.contains_key("acc0 forwarded"), "{:?}", found.moved);
    // A wire takes every frame, whoever it is for.
    let found = node.send("wire0", &steered(for_other("wire0", STRANGER)));
    assert!(found.moved.contains_key("wire0 forwarded"), "{:?}", found.moved);
    node.finish();
}

/// acc0 has a firewall with these IPv6 rules.
fn with_firewall(rules: &[&str], port: &str) -> String {
    let text = format!("*filter\\n:FORWARD ACCEPT [0:0]\\n{}\\nCOMMIT\\n", rules.join("\\n"));
    configuration(DOMAIN)
        .replacen("sids:\n", &format!("firewalls: [{{name: fw, ipv6: {{file: v6, text: \"{text}\"}}}}]\nsids:\n"), 1)
        .replacen(&format!("{{name: {port},"), &format!("{{name: {port}, firewall: fw,"), 1)
}

#[test]
#[ignore = "needs root"]
fn a_firewall_does_not_touch_what_is_between_others() {
    let network = Network::new();
    let rules = [
        "-A FORWARD -m state --state INVALID -j DROP",
        "-A FORWARD -p tcp --dport 22 -j REJECT --reject-with tcp-reset",
        "-A FORWARD -p udp --dport 53 -j REJECT",
        "-A FORWARD -j ACCEPT",
    ];
    let node = Golden::load(&network, &with_firewall(&rules, "acc0"));
    let tcp = |front: PacketBuilder, port| {
        front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(40_000, port, 2)).payload(b"")
    };
    let dns = |front: PacketBuilder| front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000, 53));
    for (case, frame) in [
        ("REJECT by a reset", tcp(for_other("acc0", STRANGER), 22)),
        ("REJECT by an error", dns(for_other("acc0", STRANGER))),
        ("ACCEPT", tcp(for_other("acc0", STRANGER), 80)),
        ("ACCEPT, and steered then", steered(for_other("acc0", STRANGER))),
    ] {
        node.drops(case, "acc0", &frame, "drop_other_host");
    }
    assert_eq!(node.node().connections(), vec![], "strangers' connections");
    for frame in [tcp(arriving("acc0"), 22), dns(arriving("acc0"))] {
        let found = node.send("acc0", &frame);
        assert!(found.moved.contains_key("acc0 drop_firewall_rejected"), "{:?}", found.moved);
    }
    let found = node.send("acc0", &tcp(arriving("acc0"), 80));
    assert!(found.moved.contains_key("acc0 passed_not_for_segue"), "{:?}", found.moved);
    assert_eq!(node.node().connections().len(), 1);
    // A solicitation for the port itself is a group's.
    let header = Ipv6Repr { hop_limit: 255, ..Ipv6Repr::new(address("fe80::2"), address("ff02::1:ff00:1")) };
    let frame = for_other("acc0", group(address("ff02::1:ff00:1"))).ipv6(header).icmpv6(Icmpv6Repr::Other {
        message_type: 135,
        code: 0,
        body: vec![0; 20],
    });
    node.passes("neighbour solicitation", "acc0", &frame, &frame, "passed_not_for_segue", &[]);
    node.finish_with_faults();
}

/// On a wire all frames are somebody else's, and the firewall filters them.
#[test]
#[ignore = "needs root"]
fn a_firewall_on_a_wire_filters_what_is_between_others() {
    let network = Network::new();
    let node = Golden::load(&network, &with_firewall(&["-A FORWARD -p udp --dport 53 -j DROP"], "wire0"));
    let to = |port| {
        for_other("wire0", STRANGER).ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000, port)).payload(b"?")
    };
    node.drops("DROP", "wire0", &to(53), "drop_firewall");
    let found = node.send("wire0", &to(54));
    assert!(found.moved.contains_key("wire0 forwarded"), "{:?}", found.moved);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_port_that_gets_another_mac_address_answers_to_that() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let sid = &["sid fc00:0:1:1::/64"];
    let changed = to_end(for_other("core0", STRANGER));
    node.passes("before", "core0", &changed, &changed, "passed_other_host", &[]);
    network.node.sh(&format!("ip link set core0 address {STRANGER}"));
    node.apply(&configuration(DOMAIN));
    node.forwards("afterwards", "core0", &changed, &from_end(), sid);
    let old = to_end(arriving("core0"));
    node.passes("the old one", "core0", &old, &old, "passed_other_host", &[]);
    node.finish();
}

/// `frame` with 802.1Q tags of VLAN 0 (priority tags), which the kernel takes off as if they were not there.
fn priority_tagged(frame: &PacketBuilder, tags: usize) -> Vec<u8> {
    let mut octets = frame.build();
    for tag in 0..tags {
        octets.splice(12..12, [if tag == 0 { 0x81 } else { 0x88 }, if tag == 0 { 0 } else { 0xa8 }, 0xa0, 0]);
    }
    octets
}

#[test]
#[ignore = "needs root"]
fn a_priority_tag_on_a_core_port_is_nothing() {
    let network = Network::new();
    let domain = "{sid_blocks: ['fc00::/16'], source_prefixes: ['fd00:0:9::/48']}";
    let node = Golden::load(&network, &configuration(domain));
    let outside = |front: PacketBuilder| udp(front.ipv6(Ipv6Repr::new(CLIENT, local(END))));
    for tags in [1, 2, 8] {
        let tagged = |frame: &PacketBuilder| node.node().send("core0", &priority_tagged(frame, tags));
        for (case, frame) in [
            ("from a source outside the domain", outside(arriving("core0"))),
            ("from within it", to_end(arriving("core0"))),
            ("transit", transit(arriving("core0"))),
            ("in a group frame", to_end(for_other("core0", MacAddress::BROADCAST))),
        ] {
            assert_eq!(tagged(&frame), node.send("core0", &frame), "{case}, {tags} tags");
        }
        assert!(tagged(&outside(arriving("core0"))).moved.contains_key("core0 drop_source_outside_domain"));
        // What is not for Segue keeps its tags.
        for (case, frame, outcome) in [
            ("for another", to_end(for_other("core0", STRANGER)), "core0 passed_not_for_segue"),
            ("IPv4", udp(arriving("core0").ipv4(Ipv4Repr::new(CLIENT4, SERVER4))), "core0 passed_not_for_segue"),
        ] {
            let found = tagged(&frame);
            // From a socket buffer to this node they have been taken, as the kernel does next.
            let kept = !on_socket_buffers() || case == "for another";
            let expected = if kept { priority_tagged(&frame, tags) } else { frame.build() };
            assert_eq!(found.frame, expected, "{case}, {tags} tags: {:?}", found.moved);
            assert!(found.moved.contains_key(outcome), "{case}, {tags} tags: {:?}", found.moved);
        }
    }
    let found = node.node().send("core0", &priority_tagged(&to_end(arriving("core0")), 9));
    assert!(found.moved.contains_key("core0 drop_recirculation"), "{:?}", found.moved);
    let mut other = priority_tagged(&to_end(arriving("core0")), 1);
    other[15] = 77;
    let found = node.node().send("core0", &other);
    assert_eq!(found.frame, other, "another VLAN is another link");
    node.finish();
}

/// SIDs that lie behind an access port: nobody there is of the domain.
const BEHIND_ACCESS: &str = "ip -6 route add fc00:0:8::/48 via fd00:0:a1::2
     ip -6 route add fc00:0:9::/48 via fd00:0:a1::99
     ip -6 route add fd00:0:88::/64 via fd00:0:a1::2";

#[test]
#[ignore = "needs root"]
fn no_srh_leaves_by_an_access_port() {
    let network = Network::new();
    network.node.script(BEHIND_ACCESS);
    let yaml = configuration(DOMAIN).replacen(
        "policies:",
        "policies:\n  - {name: out, segment_lists: [{segments: ['fc00:0:8:1::', 'fc00:0:2:b::']}]}\n  \
         - {name: out-one, segment_lists: [{segments: ['fc00:0:8:1::']}]}",
        1,
    );
    let yaml = yaml.replacen(
        "steering:",
        "steering:\n  - {destination: 'fd00:0:71::/64', policy: out}\n  - {destination: 'fd00:0:72::/64', policy: out-one}",
        1,
    );
    let node = Golden::load(&network, &yaml);
    let [behind, unresolved] = ["fc00:0:8:1::", "fc00:0:9:1::"].map(address);
    let host = SERVER;
    let to = |function: u16, path: &[Ipv6Addr]| {
        let outer = Ipv6Repr::new(HEADEND, local(function));
        let srh = SrhRepr::new(&[&[local(function)], path].concat());
        arriving("core0").ipv6(outer).srh(srh)
    };
    let inner = |packet: PacketBuilder| udp(packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)));
    for (case, packet) in [
        ("End", to(END, &[behind, behind_core1(1)])),
        ("End, the last segment", to(END, &[behind])),
        ("End, the last segment a host", to(END, &[host])),
        ("End, whose neighbour the kernel would ask for", to(END, &[unresolved])),
        ("End with PSP, segments left", to(END_PSP, &[behind, behind_core1(1)])),
        ("End.X with the next hop there", to(END_X_USD, &[behind_core1(1)])),
    ] {
        node.drops(case, "core0", &inner(packet), "drop_sr_leaves");
    }
    let frame = udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, behind)).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)));
    node.drops("transit", "core0", &frame, "drop_sr_leaves");
    for (case, destination) in [("H.Encaps", "fd00:0:71::1"), ("one segment, without SRH", "fd00:0:72::1")] {
        let frame = udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, address(destination))));
        node.drops(case, "acc0", &frame, "drop_sr_leaves");
    }
    // Without its SRH a packet may: that is where chains end.
    let found = node.send("core0", &udp(to(END_PSP, &[host])));
    assert!(found.moved.contains_key("core0 forwarded"), "{:?}", found.moved);
    let found = node.send("core0", &inner(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(END_DX6)))));
    assert!(found.moved.contains_key("core0 forwarded"), "{:?}", found.moved);
    node.finish();
}

/// An SRH behind the Fragment header of a first fragment, which whoever puts the datagram together would find.
fn hidden(front: PacketBuilder, destination: Ipv6Addr) -> PacketBuilder {
    let fragment = FragmentRepr { more_fragments: true, identification: 7, ..FragmentRepr::default() };
    let srh = SrhRepr::new(&[destination, behind_core1(1)]).with_segments_left(0);
    udp(front.fragment(fragment).srh(srh))
}

#[test]
#[ignore = "needs root"]
fn an_srh_behind_a_first_fragment_neither_enters_nor_leaves() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for destination in [SERVER, address("fd00:0:e0::7"), port_ipv6("acc0"), CLIENT] {
        let start = || arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination));
        node.drops("in", "acc0", &hidden(start(), destination), "drop_sr_from_outside");
        let behind = hidden(start().destination_options(OptionsRepr::default()), destination);
        node.drops("in, behind more", "acc0", &behind, "drop_sr_from_outside");
    }
    let fragment = |offset| FragmentRepr {
        more_fragments: true,
        fragment_offset: offset,
        identification: 7,
        ..FragmentRepr::default()
    };
    let plain =
        |offset| udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, address("fd00:0:e0::7"))).fragment(fragment(offset)));
    for offset in [0, 64] {
        let found = node.send("acc0", &plain(offset));
        assert!(found.moved.contains_key("acc0 forwarded"), "offset {offset}: {:?}", found.moved);
    }
    let out = |function| arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(function)));
    for function in [END_DX6, END_DT46, END_USD] {
        let inner = || out(function).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER));
        node.drops("out", "core0", &hidden(inner(), SERVER), "drop_sr_leaves");
        let srh = SrhRepr::new(&[SERVER, behind_core1(1)]).with_segments_left(0);
        node.drops("out, whole", "core0", &udp(inner().srh(srh)), "drop_sr_leaves");
        let found = node.send("core0", &udp(inner().fragment(fragment(0))));
        assert!(found.moved.contains_key("core0 forwarded"), "{:?}", found.moved);
    }
    let srh = SrhRepr::new(&[local(END_PSP), SERVER]);
    node.drops(
        "out, behind the one that PSP removes",
        "core0",
        &hidden(out(END_PSP).srh(srh), SERVER),
        "drop_sr_leaves",
    );
    node.finish_with_faults();
}

const INFRASTRUCTURE: &str =
    "{sid_blocks: ['fc00::/16'], infrastructure_prefixes: ['fd00:0:1::/48', 'fd00:0:c1::/64']}";

#[test]
#[ignore = "needs root"]
fn infrastructure_is_closed_on_access_ports() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let to = |front: PacketBuilder, destination| udp(front.ipv6(Ipv6Repr::new(CLIENT, destination)));
    let open = to(arriving("acc0"), NODE);
    node.passes("where nobody says so", "acc0", &open, &open, "passed_not_for_segue", &[]);
    node.apply(&configuration(INFRASTRUCTURE));
    for destination in [NODE, address("fd00:0:1::99"), port_ipv6("core1")] {
        for front in [arriving("acc0"), for_other("acc0", MacAddress::BROADCAST)] {
            let case = format!("to {destination}");
            node.drops(&case, "acc0", &to(front, destination), "drop_infrastructure_from_outside");
        }
    }
    for destination in [port_ipv6("acc0"), SERVER] {
        let frame = to(arriving("acc0"), destination);
        node.passes("not there", "acc0", &frame, &frame, "passed_not_for_segue", &[]);
    }
    let frame = udp(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, NODE)));
    node.passes("from inside", "core0", &frame, &frame, "passed_not_for_segue", &[]);
    node.finish();
}

/// A Packet Too Big about a packet that this node has sent to `segment`, with an inner packet that would be told.
fn too_big_about(segment: Ipv6Addr) -> Icmpv6Repr {
    let path = [segment, behind_core1(0xb)];
    let packet = PacketBuilder::new().ipv6(Ipv6Repr::new(NODE, segment)).srh(SrhRepr::reduced(&path));
    let packet = packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&[7; 1400]);
    Icmpv6Repr::PacketTooBig { mtu: 1300, packet: Icmpv6Repr::quote(&packet.build()).to_vec() }
}

#[test]
#[ignore = "needs root"]
fn errors_about_the_domain_come_from_inside_it() {
    let network = Network::new();
    let mut node = Golden::load(&network, &configuration(DOMAIN));
    let forged = |front: PacketBuilder, destination| {
        front.ipv6(Ipv6Repr::new(CLIENT, destination)).icmpv6(too_big_about(behind_core1(0xa)))
    };
    let unrelated = |front: PacketBuilder| {
        let packet = PacketBuilder::new().ipv6(Ipv6Repr::new(SERVER, CLIENT)).udp(UdpRepr::new(1, 2)).build();
        front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1300, packet })
    };
    let from_outside = "drop_error_from_outside";
    // To the node itself, and through a chain, to another node.
    for destination in [NODE, port_ipv6("acc0"), SERVER, address("fd00:0:e0::7")] {
        node.drops(&format!("to {destination}"), "acc0", &forged(arriving("acc0"), destination), from_outside);
        let group = forged(for_other("acc0", MacAddress::BROADCAST), destination);
        node.drops(&format!("to {destination}, by a group frame"), "acc0", &group, from_outside);
        let optional = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination));
        let optional = optional.destination_options(OptionsRepr::default()).icmpv6(too_big_about(behind_core1(0xa)));
        node.drops(&format!("to {destination}, behind options"), "acc0", &optional, from_outside);
        let fragment = FragmentRepr { more_fragments: true, identification: 7, ..FragmentRepr::default() };
        let fragment = arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination)).fragment(fragment);
        let fragment = fragment.icmpv6(too_big_about(behind_core1(0xa)));
        node.drops(&format!("to {destination}, in fragments"), "acc0", &fragment, from_outside);
    }
    let frame = unrelated(arriving("acc0"));
    node.passes("about somebody else's", "acc0", &frame, &frame, "passed_not_for_segue", &[]);
    // Out of a steering header it comes from whoever sent the inner packet: a host or function at the chain's other end.
    let chain = |function: u16| arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(function)));
    for function in [END_DT46, END_DX6, END_USD] {
        let inner = chain(function).inner_ipv6(Ipv6Repr::new(CLIENT, NODE)).icmpv6(too_big_about(behind_core1(0xa)));
        node.drops("out of a chain", "core0", &inner, from_outside);
    }
    let frame = chain(END_DX6).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).icmpv6(Icmpv6Repr::PacketTooBig {
        mtu: 1300,
        packet: PacketBuilder::new().ipv6(Ipv6Repr::new(SERVER, CLIENT)).udp(UdpRepr::new(1, 2)).build(),
    });
    let found = node.send("core0", &frame);
    assert!(found.moved.contains_key("core0 forwarded"), "{:?}", found.moved);
    // On a core port: believed, unless the operator says where the domain's nodes are, and this is none.
    let error =
        |source: Ipv6Addr| arriving("core1").ipv6(Ipv6Repr::new(source, NODE)).icmpv6(too_big_about(behind_core1(0xa)));
    let router = address("fd00:0:c1::2");
    for source in [router, CLIENT] {
        let found = node.send("core1", &error(source));
        assert!(found.moved.contains_key("core1 icmp_relayed"), "from {source}: {:?}", found.moved);
    }
    node.apply(&configuration(INFRASTRUCTURE));
    for source in [router, behind_core1(0xa)] {
        let found = node.send("core1", &error(source));
        assert!(found.moved.contains_key("core1 icmp_relayed"), "from {source}: {:?}", found.moved);
    }
    node.drops("from a core port, from outside", "core1", &error(CLIENT), from_outside);
    node.finish();
}
