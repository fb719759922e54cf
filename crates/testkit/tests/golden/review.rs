//! Faults that a review found: ways around the boundary and around steering, errors and hop limits of this node itself.

use std::net::Ipv6Addr;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*, port_ipv6};
use segue_testkit::golden::Golden;
use segue_testkit::node::Verdict;
use segue_wire::{EthernetRepr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, UdpRepr, VlanRepr};

fn udp(packet: PacketBuilder) -> PacketBuilder {
    packet.udp(UdpRepr::new(40_000, 40_001)).payload(b"from outside")
}

/// `frame` with 802.1Q tags of VLAN 0 (priority tags), which the kernel takes off as if they were not there.
fn priority_tagged(frame: &PacketBuilder, tags: usize) -> Vec<u8> {
    let mut octets = frame.build();
    for _ in 0..tags {
        octets.splice(12..12, [0x81, 0x00, 0xa0, 0x00]);
    }
    octets
}

#[test]
#[ignore = "needs root"]
fn a70_a_group_mac_address_is_no_way_around_the_boundary() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for mac in [MacAddress::BROADCAST, MacAddress([0x33, 0x33, 0, 0, 0, 1])] {
        for destination in [local(END_DX6), local(END), behind_core1(1)] {
            let header =
                EthernetRepr { destination: mac, source: MacAddress([2, 0, 0, 0, 0, 0x41]), ..EthernetRepr::default() };
            let frame = PacketBuilder::new()
                .ethernet_repr(header)
                .ipv6(Ipv6Repr::new(CLIENT, destination))
                .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER));
            node.drops(&format!("{destination} by {mac}"), "acc0", &udp(frame), "drop_sid_from_outside");
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a70_a_priority_tag_is_no_way_around_the_boundary() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let to = |destination| arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, destination));
    let steered: Ipv6Addr = "fd00:0:e0::7".parse().expect("an address");
    let untagged = node.send("acc0", &udp(to(steered)));
    assert_eq!(untagged.verdict, Verdict::Redirect);
    for tags in [1, 2, 3] {
        for (case, frame, outcome) in [
            ("to a SID", udp(to(local(END_DX6))), "acc0 drop_sid_from_outside"),
            ("with an SRH", udp(to(SERVER).srh(SrhRepr::new(&[SERVER, behind_core1(1)]))), "acc0 drop_sr_from_outside"),
            (
                "that a rule drops",
                udp(arriving("acc0").ipv4(Ipv4Repr::new(CLIENT4, [10, 22, 0, 1].into()))),
                "acc0 drop_steering_rule",
            ),
        ] {
            let found = node.node().send("acc0", &priority_tagged(&frame, tags));
            assert_eq!(found.verdict, Verdict::Drop, "{case}, {tags} tags: {:?}", found.moved);
            assert!(found.moved.contains_key(outcome), "{case}, {tags} tags: {:?}", found.moved);
        }
        let found = node.node().send("acc0", &priority_tagged(&udp(to(steered)), tags));
        assert_eq!(found, untagged, "a steered packet, {tags} tags");
    }
    let found = node.node().send("acc0", &priority_tagged(&udp(to(local(END_DX6))), 60));
    assert_eq!(found.verdict, Verdict::Drop, "more tags than Segue takes off: {:?}", found.moved);
    assert_eq!(found.moved.len(), 1, "{:?}", found.moved);
    let returned = udp(arriving("fun1").ipv6(Ipv6Repr::new(CLIENT, SERVER)));
    let untagged = node.send("fun1", &returned);
    assert_eq!(node.node().send("fun1", &priority_tagged(&returned, 1)), untagged, "from a function");
    let vlan = PacketBuilder::ethernet([2; 6], [2; 6])
        .vlan_repr(VlanRepr { vlan_id: 77, ..VlanRepr::default() })
        .payload(&[0; 46]);
    node.passes("another VLAN is another link", "acc0", &vlan, &vlan, "passed_not_for_segue", &[]);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a_function_does_not_reach_the_kernel_with_an_srh() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    for port in ["fun1", "fun3"] {
        for (case, destination) in
            [("link-local", "fe80::1".parse().expect("an address")), ("the port's own", port_ipv6("fun1"))]
        {
            if port == "fun3" && case != "link-local" {
                continue;
            }
            let frame = arriving(port)
                .ipv6(Ipv6Repr::new(CLIENT, destination))
                .srh(SrhRepr::new(&[destination, behind_core1(1)]));
            node.drops(&format!("{case} address at {port}"), port, &udp(frame), "drop_from_function");
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn an_error_about_a_packet_that_this_node_wrapped_is_told_to_its_source_and_nothing_of_the_domain() {
    let network = Network::new();
    let yaml = configuration(DOMAIN).replace(
        "{name: local, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:1:1::', 'fc00:0:2:b::']}]}",
        "{name: local, mode: H.Encaps.Red, segment_lists: [{segments: ['fc00:0:1:1::', 'fc00:0:5:1::']}]}",
    );
    assert!(yaml.contains("fc00:0:5:1::']}]}\n  - name: ten"));
    let node = Golden::load(&network, &yaml);
    // The second segment is unreachable: End's error would be to the node itself. The source of the inner packet hears of it (RFC 2473
    // section 8.2: address unreachable), and sees its own packet in it.
    let frame = udp(arriving("acc0").ipv6(Ipv6Repr::new(CLIENT, "fd00:0:ea::7".parse().expect("an address"))));
    let found = node.node().send("acc0", &frame.build());
    assert_eq!(found.verdict, Verdict::Redirect, "{:?} {:02x?}", found.moved, found.frame);
    assert!(found.moved.contains_key("acc0 drop_no_route"), "{:?}", found.moved);
    assert_eq!(found.moved.get("icmp unreachable"), Some(&(1, 0)), "{:?}", found.moved);
    assert_eq!(found.frame[38..54], CLIENT.octets(), "{:02x?}", found.frame);
    assert_eq!(found.frame[54..56], [1, 3], "Destination Unreachable, address unreachable");
    assert_eq!(found.frame[62 + 8..62 + 24], CLIENT.octets(), "what is quoted is the client's own packet");
    let of_the_domain = found.frame.windows(4).any(|octets| octets == [0xfc, 0, 0, 0]);
    assert!(!of_the_domain, "{:02x?}", found.frame);
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a25_hop_limit_1_is_enough_for_the_node_itself() {
    let network = Network::new();
    let node = Golden::load(&network, &configuration(DOMAIN));
    let outer = || arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(END_DT46)));
    let to_node =
        |packet: PacketBuilder| udp(packet.inner_ipv6(Ipv6Repr { hop_limit: 1, ..Ipv6Repr::new(CLIENT, NODE) }));
    let up = PacketBuilder::ethernet([0; 6], [2, 0, 0, 0, 0, 0x10]);
    let found = node.send("core0", &to_node(outer()));
    assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.moved);
    assert_eq!(found.frame, to_node(up).build());
    node.finish();
}
