//! Who a frame is for, and what leaves the domain: issue 8, points 8 and 9.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, leaving, macs};
use segue_testkit::golden::Golden;
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
    node.drops_octets("cut, for all", "core0", cut, "drop_truncated");
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
