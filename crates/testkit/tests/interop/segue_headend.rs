//! Segue as headend, the kernel's `seg6local` as endpoints: what Segue wraps is followed and unwrapped by Linux, and the
//! customer's packet comes out whole at a plain receiver.
//!
//! ```text
//! world (acc0, wire0) --- headend: Segue --- (core1) first: Linux --- second: Linux --- world (out0, out1)
//! ```
//!
//! Segue lowers the inner hop limit when it wraps (RFC 8986 section 5.1 S05), and the node that unwraps when it forwards:
//! what was sent with 64 arrives with 62.

#![allow(clippy::needless_range_loop)] // a way's number names its network too

use std::net::Ipv6Addr;

use crate::receivers::{Receivers, four, link, link_macs, six, take};
use segue_testkit::fixture::{Network, address::*, arriving};
use segue_testkit::netns::Netns;
use segue_testkit::node::Node;
use segue_wire::{Ipv6Packet, PacketBuilder};

/// Between the two Linux nodes, and from each of them to the world.
const BETWEEN: u8 = 0xd1;
const FIRST_OUT: u8 = 0xd2;
const SECOND_OUT: u8 = 0xd3;

const HEADEND: &str = "
node: headend
source_address: 'fd00:0:1::1'
domain: {sid_blocks: ['fc00::/16']}
ports:
  - {name: core1, role: core}
  - {name: acc0, role: access}
  - {name: wire0, role: access, l2_policy: frames}
policies:
  - {name: frames, mode: H.Encaps.L2.Red, segment_lists: [{segments: [FRAMES]}]}
";

/// One steered network for each way through the domain: mode, and the segments.
const WAYS: [(&str, &[&str]); 14] = [
    ("H.Encaps", &["fc00:0:2:6::"]),
    ("H.Encaps.Red", &["fc00:0:2:6::"]),
    ("H.Encaps", &["fc00:0:2:1::", "fc00:0:3:6::"]),
    ("H.Encaps.Red", &["fc00:0:2:1::", "fc00:0:3:6::"]),
    ("H.Encaps", &["fc00:0:2:2::", "fc00:0:3:6::"]),
    ("H.Encaps.Red", &["fc00:0:2:2::", "fc00:0:3:6::"]),
    ("H.Encaps.Red", &["fc00:0:2:3::", "fc00:0:3:7::"]),
    ("H.Encaps", &["fc00:0:2:1::", "fc00:0:2:3::", "fc00:0:3:2::", "fc00:0:3:7::"]),
    ("H.Encaps.Red", &["fc00:0:2:1::", "fc00:0:2:3::", "fc00:0:3:2::", "fc00:0:3:7::"]),
    ("H.Encaps.Red", &["fc00:0:3:4::"]),
    ("H.Encaps", &["fc00:0:2:1::", "fc00:0:3:4::"]),
    ("H.Encaps.Red", &["fc00:0:2:2::", "fc00:0:3:4::"]),
    ("H.Insert", &["fc00:0:2:1::", "fc00:0:3:2::"]),
    ("H.Insert", &["fc00:0:2:2::"]),
];

fn configuration(frames: &str) -> String {
    let mut policies = HEADEND.replace("FRAMES", frames);
    let mut steering = String::from("steering:\n");
    for (number, (mode, segments)) in WAYS.iter().enumerate() {
        let list: Vec<String> = segments.iter().map(|segment| format!("'{segment}'")).collect();
        let list = list.join(", ");
        policies += &format!("  - {{name: p{number}, mode: {mode}, segment_lists: [{{segments: [{list}]}}]}}\n");
        steering += &format!("  - {{name: six{number}, destination: '{}/64', policy: p{number}}}\n", network(number));
        if !mode.contains("Insert") {
            steering += &format!("  - {{name: four{number}, destination: 10.77.{number}.0/24, policy: p{number}}}\n");
        }
    }
    policies + &steering
}

fn network(number: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0x7700 + number as u16, 0, 0, 0, 0, 0)
}

struct Domain {
    network: Network,
    first: Netns,
    second: Netns,
}

impl Domain {
    fn new() -> Self {
        let (network, first, second) = (Network::new(), Netns::new(), Netns::new());
        take(&network, "core1", &first);
        link((&first, "next0"), (&second, "back0"), BETWEEN, 3000);
        link((&first, "out0"), (&network.world, "first0"), FIRST_OUT, 1500);
        link((&second, "out0"), (&network.world, "second0"), SECOND_OUT, 1500);
        first.script(
            "ip -6 route add fc00:0:3::/48 via fd00:0:d1::2
             ip -6 route add fc00:0:2:1::/64 encap seg6local action End dev next0
             ip -6 route add fc00:0:2:2::/64 encap seg6local action End flavors psp dev next0
             ip -6 route add fc00:0:2:3::/64 encap seg6local action End.X nh6 fd00:0:d1::2 dev next0
             ip -6 route add fc00:0:2:6::/64 encap seg6local action End.DX6 nh6 fd00:0:d2::2 dev next0
             ip -6 route add fc00:0:2:d::/64 encap seg6local action End.DX2 oif out0 dev next0
             ip -6 route add fd00:0:7700::/40 via fd00:0:d1::2",
        );
        // Linux only takes End.DX4's next hop as its own when that lies behind a gateway: of a neighbour it takes the link, and
        // asks there for the inner destination's address.
        second.script(
            "ip -4 route add 10.212.0.0/24 via 10.211.0.2
             ip -6 route add fc00:0:3:2::/64 encap seg6local action End flavors psp dev out0
             ip -6 route add fc00:0:3:4::/64 encap seg6local action End.DX4 nh4 10.212.0.1 dev out0
             ip -6 route add fc00:0:3:6::/64 encap seg6local action End.DX6 nh6 fd00:0:d3::2 dev out0
             ip -6 route add fc00:0:3:7::/64 encap seg6local action End.DT6 table 254 dev out0
             ip -6 route add fc00:0:3:d::/64 encap seg6local action End.DX2 oif out0 dev out0
             ip -6 route add fd00:0:7700::/40 via fd00:0:d3::2",
        );
        // A plain neighbour is where the fixture's node sends these; both of its locators lie behind it here.
        network.node.script(
            "ip -6 route del fc00:0:3::/48
             ip -6 route add fc00:0:3::/48 via fd00:0:c1::2",
        );
        // `link` gives no neighbours to ends without addresses: the world's MAC addresses are still the link's.
        for (netns, number) in [(&first, FIRST_OUT), (&second, SECOND_OUT)] {
            let addresses = [format!("fd00:0:{number:x}::2"), format!("10.{number}.0.2")];
            for address in addresses {
                netns.sh(&format!(
                    "ip neigh replace {address} lladdr 02:00:00:01:{number:02x}:02 nud permanent dev out0"
                ));
            }
        }
        Self { network, first, second }
    }

    fn receivers(&self) -> Receivers {
        let world = &self.network.world;
        Receivers::at(&[
            ("acc0", world, "acc0-far".to_owned()),
            ("wire0", world, "wire0-far".to_owned()),
            ("first", world, "first0".to_owned()),
            ("second", world, "second0".to_owned()),
        ])
    }
}

/// The frame that a Linux node sends to the world.
fn leaving(number: u8) -> PacketBuilder {
    let (node, world) = link_macs(number);
    PacketBuilder::ethernet(node, world)
}

/// How a case is called.
fn way(number: usize) -> String {
    let (mode, segments) = WAYS[number];
    format!("{mode} {segments:?}")
}

fn place(number: usize) -> (&'static str, PacketBuilder) {
    if WAYS[number].1 == ["fc00:0:2:6::"] { ("first", leaving(FIRST_OUT)) } else { ("second", leaving(SECOND_OUT)) }
}

#[test]
#[ignore = "needs root"]
fn ipv6() {
    let domain = Domain::new();
    let _headend = Node::load(&domain.network.node, &configuration("'fc00:0:2:d::'"));
    let receivers = domain.receivers();
    for number in 0..9 {
        let to = Ipv6Addr::from(u128::from(network(number)) + 7);
        let (at, expected) = place(number);
        let case = way(number);
        receivers.arrives(&case, "acc0", &six(arriving("acc0"), to, 64), at, &six(expected, to, 62));
    }
}

#[test]
#[ignore = "needs root"]
fn ipv4() {
    let domain = Domain::new();
    let _headend = Node::load(&domain.network.node, &configuration("'fc00:0:2:d::'"));
    let receivers = domain.receivers();
    for number in 9..12 {
        let to = [10, 77, number as u8, 7].into();
        let case = way(number);
        let expected = four(leaving(SECOND_OUT), to, 62);
        receivers.arrives(&case, "acc0", &four(arriving("acc0"), to, 64), "second", &expected);
    }
}

/// An inserted SRH is the packet's own, so every node on the way lowers the one hop limit: the headend and both others.
#[test]
#[ignore = "needs root"]
fn inserted_headers() {
    let domain = Domain::new();
    let _headend = Node::load(&domain.network.node, &configuration("'fc00:0:2:d::'"));
    let receivers = domain.receivers();
    for number in 12..14 {
        let to = Ipv6Addr::from(u128::from(network(number)) + 7);
        let case = way(number);
        let expected = six(leaving(SECOND_OUT), to, 61);
        receivers.arrives(&case, "acc0", &six(arriving("acc0"), to, 64), "second", &expected);
    }
}

#[test]
#[ignore = "needs root"]
fn frames() {
    let domain = Domain::new();
    let receivers = domain.receivers();
    let customer = PacketBuilder::ethernet([2, 0xc, 0, 0, 0, 1], [2, 0xc, 0, 0, 0, 2]);
    let mut node = Node::load(&domain.network.node, &configuration("'fc00:0:2:d::'"));
    for (mode, segments, at) in [
        ("H.Encaps.L2.Red", "'fc00:0:2:d::'", "first"),
        ("H.Encaps.L2", "'fc00:0:2:d::'", "first"),
        ("H.Encaps.L2.Red", "'fc00:0:2:1::', 'fc00:0:3:d::'", "second"),
        ("H.Encaps.L2", "'fc00:0:2:2::', 'fc00:0:3:d::'", "second"),
    ] {
        node.apply(
            &configuration(segments)
                .replace("name: frames, mode: H.Encaps.L2.Red", &format!("name: frames, mode: {mode}")),
        );
        for (what, frame) in [
            ("IPv6", six(customer.clone(), SERVER, 1)),
            ("IPv4", four(customer.clone(), SERVER4, 1)),
            ("802.1Q", six(customer.clone().vlan(7), SERVER, 1)),
            ("802.1ad", four(customer.clone().vlan(7).vlan(8), SERVER4, 1)),
        ] {
            let case = format!("{mode} [{segments}], {what}: the frame as it was");
            receivers.arrives(&case, "wire0", &frame, at, &frame);
        }
    }
}

/// What the first Linux node gets from Segue, and that flows keep their labels.
#[test]
#[ignore = "needs root"]
fn labels_of_flows() {
    let domain = Domain::new();
    let _headend = Node::load(&domain.network.node, &configuration("'fc00:0:2:d::'"));
    let receivers = Receivers::at(&[
        ("acc0", &domain.network.world, "acc0-far".to_owned()),
        ("core1", &domain.first, "core1-far".to_owned()),
    ]);
    let label = |port: u16| {
        let to: std::net::Ipv4Addr = [10, 77, 9, 7].into();
        let packet = arriving("acc0").ipv4(segue_wire::Ipv4Repr::new(CLIENT4, to));
        let frame = packet.udp(segue_wire::UdpRepr::new(port, 53)).payload(b"?").build();
        let (_, found) = receivers.send("a flow's label", "acc0", &frame);
        Ipv6Packet::new_checked(&found[14..]).expect("an IPv6 packet").flow_label()
    };
    let labels: Vec<u32> = (1..=20).map(|flow| label(40_000 + flow)).collect();
    let again: Vec<u32> = (1..=20).map(|flow| label(40_000 + flow)).collect();
    assert_eq!(labels, again, "a flow keeps its label");
    let different: std::collections::BTreeSet<_> = labels.iter().collect();
    assert!(different.len() >= 19 && labels.iter().all(|label| *label != 0), "{labels:x?}");
    // It is not the headend alone that forwards: the second node got nothing of these.
    drop(domain.second);
}
