//! Labels (RFC 3031, RFC 3032, RFC 3443, RFC 8660): pushed by a policy, swapped and popped on the way, taken off at the end.
//!
//! Longer than 500 lines: all tests share one configuration with labels of every kind, and the packets with labels that it meets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use segue_testkit::fixture::{
    DOMAIN, Network, address::*, arriving, configuration, leaving, port_ipv4, port_ipv6, quote_with_stack,
};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Icmpv4Repr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

use crate::mutation;

/// Labels of the node under test.
pub const OWN: u32 = 16_001;
const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
const POP: u32 = 16_003;
const NULL: u32 = 16_004;
const NARROW: u32 = 16_005;
const UNRESOLVED_HOP: u32 = 16_006;
const OUTSIDE: u32 = 16_007;
/// By core1, or without it by core2.
pub const PATHS: u32 = 16_010;
pub const PATHS_TO: u32 = 17_010;
const ADJACENCY: u32 = 15_001;
const TO_CLIENTS: u32 = 15_002;
const MAIN_TABLE: u32 = 15_100;
const TABLE_100: u32 = 15_101;
const HOP4: u32 = 15_200;

/// A protocol that nobody knows (RFC 3692).
const EXPERIMENT: u8 = 253;
const HOP6: u32 = 15_201;

const LABELS: &str = "
labels:
  - {label: 16001, behaviour: node}
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - {label: 16003, behaviour: pop, next_hop: 'fd00:0:c1::2', port: core1}
  - {label: 16004, behaviour: explicit_null, next_hop: 'fd00:0:c1::2'}
  - {label: 16005, behaviour: swap, next_hop: 'fd00:0:c2::2'}
  - {label: 16006, behaviour: swap, next_hop: 'fd00:0:c1::99'}
  - {label: 16007, behaviour: swap, next_hop: 10.2.0.2}
  - label: 16010
    behaviour: swap
    paths: [{next_hop: 'fd00:0:c1::2', out: 17010}, {next_hop: 'fd00:0:c2::2', out: 3}]
  - {label: 15001, behaviour: adjacency, next_hop: 'fd00:0:c1::2', port: core1}
  - {label: 15002, behaviour: adjacency, next_hop: 10.2.0.2}
  - {label: 15100, behaviour: table}
  - {label: 15101, behaviour: table, table: 100}
  - {label: 15200, behaviour: next_hop, next_hop: 10.2.0.2}
  - {label: 15201, behaviour: next_hop, next_hop: 'fd00:0:a1::2'}
";

const POLICIES: &str = "policies:
  - {name: push2, mode: PUSH, segment_lists: [{labels: [16002, 16003], next_hop: 'fd00:0:c1::2'}]}
  - {name: push-uniform, mode: PUSH, ttl: uniform, traffic_class: {dscp: 46}, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::2', port: core1}]}
  - {name: push-narrow, mode: PUSH, hop_limit: 33, segment_lists: [{labels: [1048575], next_hop: 'fd00:0:c2::2'}]}
  - {name: push-unresolved, mode: PUSH, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::99'}]}
  - {name: push-outside, mode: PUSH, segment_lists: [{labels: [99], next_hop: 10.2.0.2}]}
  - {name: push-weighted, mode: PUSH, segment_lists: [{labels: [100], weight: 1, next_hop: 'fd00:0:c1::2'}, {labels: [101], weight: 3, next_hop: 'fd00:0:c1::2'}]}
  - {name: push32, mode: PUSH, segment_lists: [{labels: [LIST], next_hop: 'fd00:0:c1::2'}]}
";

const STEERING: &str = "steering:
  - {name: push2-6, destination: 'fd00:0:f00::/48', policy: push2}
  - {name: push2-4, destination: 10.30.0.0/16, policy: push2}
  - {name: uniform-6, destination: 'fd00:0:f01::/48', policy: push-uniform}
  - {name: uniform-4, destination: 10.31.0.0/16, policy: push-uniform}
  - {name: narrow-6, destination: 'fd00:0:f02::/48', policy: push-narrow}
  - {name: narrow-4, destination: 10.32.0.0/16, policy: push-narrow}
  - {name: unresolved-6, destination: 'fd00:0:f03::/48', policy: push-unresolved}
  - {name: outside-6, destination: 'fd00:0:f04::/48', policy: push-outside}
  - {name: weighted-4, destination: 10.35.0.0/16, policy: push-weighted}
  - {name: push32-6, destination: 'fd00:0:f06::/48', policy: push32}
";

pub fn labelled(ttl: &str) -> String {
    let many: Vec<String> = many().iter().map(u32::to_string).collect();
    let text = configuration(DOMAIN);
    let text = text.replacen("policies:\n", &POLICIES.replace("LIST", &many.join(", ")), 1);
    let text = text.replacen("steering:\n", STEERING, 1);
    format!("{text}mpls: {{srgb: ['16000-23999'], srlb: ['15000-15999'], ttl: {ttl}}}{LABELS}")
}

fn many() -> Vec<u32> {
    (0..32).map(|number| 20_000 + number).collect()
}

/// A stack of labels with their TTLs; the last is the bottom. The TC is 5.
fn stack(entries: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 5,
        ..MplsEntry::default()
    };
    entries.iter().map(entry).collect()
}

/// An IPv6 packet of TTL `hops` to [`SERVER`] behind a stack, or behind nothing.
fn six(packet: PacketBuilder, entries: &[(u32, u8)], to: Ipv6Addr, hops: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit: hops, traffic_class: 0xb8, ..Ipv6Repr::new(CLIENT, to) };
    let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(entries)) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"behind labels")
}

/// The same for IPv4.
fn four(packet: PacketBuilder, entries: &[(u32, u8)], to: Ipv4Addr, hops: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: hops, type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, to) };
    let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(entries)) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"behind labels")
}

fn host6(network: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7)
}

/// A headend pushes the list of its policy: TC from the DSCP or fixed, TTL of its own or the packet's.
#[test]
#[ignore = "needs root"]
fn a80_a_policy_pushes_its_labels() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let pipe = [(16_002, 64), (16_003, 64)];
    let to = host6(0xf00);
    let counted = ["list push2/0", "rule push2-6"];
    node.forwards("IPv6", "acc0", &six(arriving("acc0"), &[], to, 9), &six(leaving("core1"), &pipe, to, 8), &counted);
    let to = Ipv4Addr::new(10, 30, 0, 7);
    let counted = ["list push2/0", "rule push2-4"];
    node.forwards("IPv4", "acc0", &four(arriving("acc0"), &[], to, 9), &four(leaving("core1"), &pipe, to, 8), &counted);
    // DSCP 46 is TC 5 too: here it is the policy's, and the packet's own is another one.
    let to = host6(0xf01);
    let inner = |packet: PacketBuilder, hops: u8| {
        let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, to) };
        packet.inner_ipv6(repr).tcp(TcpRepr::new(1, 80, 2))
    };
    let expected = inner(leaving("core1").mpls(&stack(&[(99, 41)])), 41);
    node.forwards(
        "uniform, IPv6",
        "acc0",
        &inner(arriving("acc0"), 42),
        &expected,
        &["list push-uniform/0", "rule uniform-6"],
    );
    let to = Ipv4Addr::new(10, 31, 0, 7);
    node.forwards(
        "uniform, IPv4",
        "acc0",
        &four(arriving("acc0"), &[], to, 255),
        &four(leaving("core1"), &[(99, 254)], to, 254),
        &["list push-uniform/0", "rule uniform-4"],
    );
    let to = host6(0xf06);
    let all: Vec<(u32, u8)> = many().into_iter().map(|label| (label, 64)).collect();
    let expected = six(leaving("core1"), &all, to, 8).build();
    let frame = six(arriving("acc0"), &[], to, 9).build();
    node.leaves("32 labels", "acc0", &frame, &expected, "forwarded", &["list push32/0", "rule push32-6"]);
    node.finish();
}

/// Octets behind the packet do not get labels either.
#[test]
#[ignore = "needs root"]
fn padding_is_cut_before_labels_are_pushed() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let to = host6(0xf00);
    let padded = six(arriving("acc0"), &[], to, 9).trailer(&[0xee; 9]);
    let expected = six(leaving("core1"), &[(16_002, 64), (16_003, 64)], to, 8);
    node.forwards("padded", "acc0", &padded, &expected, &["list push2/0", "rule push2-6"]);
    // Neither do they leave with the packet that the last label comes off.
    let padded = six(arriving("core0"), &[(MAIN_TABLE, 5)], SERVER, 9).trailer(&[0xee; 9]);
    let expected = six(leaving("acc1"), &[], SERVER, 8);
    node.forwards("at the end", "core0", &padded, &expected, &["label 15100"]);
    node.finish();
}

/// What no link takes with its labels goes nowhere, since the kernel could only lead it around the policy.
#[test]
#[ignore = "needs root"]
fn a_packet_that_cannot_get_its_labels_goes_nowhere() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    node.drops("no neighbour", "acc0", &six(arriving("acc0"), &[], host6(0xf03), 9), "drop_no_neighbour");
    node.drops("out of the domain", "acc0", &six(arriving("acc0"), &[], host6(0xf04), 9), "drop_sr_leaves");
    let to = host6(0xf00);
    let expired = six(arriving("acc0"), &[], to, 1);
    let quote = Icmpv6Repr::quote(&expired.build()[14..]).to_vec();
    let reply = PacketBuilder::ethernet(segue_testkit::fixture::macs("acc0").0, segue_testkit::fixture::macs("acc0").1)
        .ipv6(Ipv6Repr { hop_limit: 64, ..Ipv6Repr::new(port_ipv6("acc0"), CLIENT) })
        .icmpv6(Icmpv6Repr::TimeExceeded { code: 0, packet: quote });
    node.answers("hop limit", "acc0", &expired, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    node.finish();
}

/// RFC 3032 section 3: the MTU is that of the link, less the labels.
#[test]
#[ignore = "needs root"]
fn a80_too_big_with_labels() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let big6 = |packet: PacketBuilder, hops: u8, octets: usize| {
        let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, host6(0xf02)) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(1, 2)).payload(&vec![7; octets - 48])
    };
    let entry = |ttl| [MplsEntry { label: 1_048_575, time_to_live: ttl, ..MplsEntry::default() }];
    let fits = big6(leaving("core2").mpls(&entry(33)), 63, 1396);
    node.forwards(
        "it fits",
        "acc0",
        &big6(arriving("acc0"), 64, 1396),
        &fits,
        &["list push-narrow/0", "rule narrow-6"],
    );
    let frame = big6(arriving("acc0"), 64, 1397);
    let answer = |mtu: u32, frame: &PacketBuilder, from: Ipv6Addr, to: Ipv6Addr, skip: usize| {
        let quote = Icmpv6Repr::quote(&frame.build()[skip..]).to_vec();
        leaving("acc0")
            .ipv6(Ipv6Repr { hop_limit: 64, ..Ipv6Repr::new(from, to) })
            .icmpv6(Icmpv6Repr::PacketTooBig { mtu, packet: quote })
    };
    let reply = answer(1396, &frame, port_ipv6("acc0"), CLIENT, 14);
    node.answers("it does not", "acc0", &frame, "drop_too_big", "too_big", &reply);
    let big4 = |packet: PacketBuilder, octets: usize| {
        let repr = Ipv4Repr { dont_fragment: true, ..Ipv4Repr::new(CLIENT4, [10, 32, 0, 7].into()) };
        packet.inner_ipv4(repr).udp(UdpRepr::new(1, 2)).payload(&vec![7; octets - 28])
    };
    let frame = big4(arriving("acc0"), 1397);
    let found = node.send("acc0", &frame);
    assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
    assert_eq!(found.frame[34..36], [3, 4], "fragmentation needed");
    assert_eq!(found.frame[40..42], 1396_u16.to_be_bytes(), "MTU");
    // On the way: the labels that stay count, those that come off do not.
    let transit = |own: usize| {
        let entries: Vec<(u32, u8)> = std::iter::repeat_n((OWN, 9), own).chain([(NARROW, 9), (70_000, 9)]).collect();
        big6(arriving("core0").mpls(&stack(&entries)), 64, 1393)
    };
    for own in [0, 2] {
        let found = node.send("core0", &transit(own));
        assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
        assert_eq!(found.frame[54..56], [2, 0], "Packet Too Big");
        assert_eq!(found.frame[58..62], 1392_u32.to_be_bytes(), "MTU behind {own} labels that come off");
        assert!(found.moved.contains_key("core0 drop_too_big"), "{:?}", found.moved);
    }
    node.finish();
}

/// A policy's lists share the flows by weight.
#[test]
#[ignore = "needs root"]
fn lists_of_labels_share_flows_by_weight() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let mut by_label: BTreeMap<u32, u32> = BTreeMap::new();
    for number in 0..400_u16 {
        let repr = Ipv4Repr::new(CLIENT4, [10, 35, (number >> 8) as u8, number as u8].into());
        let frame = arriving("acc0").ipv4(repr).udp(UdpRepr::new(1, 2));
        let found = node.send("acc0", &frame);
        assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
        let word = u32::from_be_bytes(found.frame[14..18].try_into().expect("four octets"));
        *by_label.entry(word >> 12).or_default() += 1;
        assert_eq!(word & 0x1ff, 0x100 | 64, "bottom of the stack, and its TTL");
    }
    let [first, second] = [100, 101].map(|label| by_label.get(&label).copied().unwrap_or_default());
    assert_eq!(first + second, 400);
    assert!((60..=140).contains(&first), "a quarter of the flows: {first}");
    node.finish();
}

/// CONTINUE: the label changes, TC and S stay, the TTL is one less; own labels in front come off.
#[test]
#[ignore = "needs root"]
fn a80_labels_are_swapped() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let forwards = |case: &str, sent: &[(u32, u8)], left: &[(u32, u8)], label: &str| {
        let (frame, expected) = (six(arriving("core0"), sent, SERVER, 7), six(leaving("core1"), left, SERVER, 7));
        node.forwards(case, "core0", &frame, &expected, &[label]);
        let (frame, expected) = (four(arriving("core0"), sent, SERVER4, 7), four(leaving("core1"), left, SERVER4, 7));
        node.forwards(&format!("{case}, IPv4"), "core0", &frame, &expected, &[label]);
    };
    forwards("at the bottom", &[(SWAP, 64)], &[(SWAP_TO, 63)], "label 16002");
    forwards("with more behind it", &[(SWAP, 2), (70_000, 9)], &[(SWAP_TO, 1), (70_000, 9)], "label 16002");
    forwards("behind one of our own", &[(OWN, 200), (SWAP, 50)], &[(SWAP_TO, 49)], "label 16002");
    forwards("behind explicit null", &[(0, 200), (2, 4), (SWAP, 50)], &[(SWAP_TO, 49)], "label 16002");
    // What is behind the labels is nobody's business here.
    let odd = |packet: PacketBuilder, entry: (u32, u8)| packet.mpls(&stack(&[entry])).payload(&[0x99; 30]);
    let expected = odd(leaving("core1"), (SWAP_TO, 63)).build();
    node.leaves(
        "no IP",
        "core0",
        &odd(arriving("core0"), (SWAP, 64)).build(),
        &expected,
        "forwarded",
        &["label 16002"],
    );
    node.finish_with_faults();
}

/// The last hop but one, and adjacencies: the label comes off.
#[test]
#[ignore = "needs root"]
fn a80_labels_are_popped() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    for label in [POP, ADJACENCY] {
        let counter = format!("label {label}");
        let frame = six(arriving("core0"), &[(label, 9), (70_000, 33), (70_001, 34)], SERVER, 7);
        let expected = six(leaving("core1"), &[(70_000, 33), (70_001, 34)], SERVER, 7);
        node.forwards("labels behind it", "core0", &frame, &expected, &[&counter]);
        let frame = six(arriving("core0"), &[(label, 9)], SERVER, 7);
        node.forwards("IPv6", "core0", &frame, &six(leaving("core1"), &[], SERVER, 7), &[&counter]);
        let frame = four(arriving("core0"), &[(OWN, 1), (label, 9)], SERVER4, 7);
        node.forwards("IPv4", "core0", &frame, &four(leaving("core1"), &[], SERVER4, 7), &[&counter]);
    }
    // A link out of the domain is one for packets, and none for labels.
    let frame = six(arriving("core0"), &[(TO_CLIENTS, 9)], SERVER, 7);
    node.forwards("out of the domain", "core0", &frame, &six(leaving("acc1"), &[], SERVER, 7), &["label 15002"]);
    node.drops(
        "labels",
        "core0",
        &six(arriving("core0"), &[(TO_CLIENTS, 9), (70_000, 9)], SERVER, 7),
        "drop_sr_leaves",
    );
    node.drops("a swap", "core0", &six(arriving("core0"), &[(OUTSIDE, 9)], SERVER, 7), "drop_sr_leaves");
    node.drops(
        "no neighbour",
        "core0",
        &six(arriving("core0"), &[(UNRESOLVED_HOP, 9)], SERVER, 7),
        "drop_no_neighbour",
    );
    for (inner, null) in [(true, 2), (false, 0)] {
        let packet = |packet, entries: &[(u32, u8)]| match inner {
            true => six(packet, entries, SERVER, 7),
            false => four(packet, entries, SERVER4, 7),
        };
        let frame = packet(arriving("core0"), &[(NULL, 64)]);
        node.forwards("explicit null", "core0", &frame, &packet(leaving("core1"), &[(null, 63)]), &["label 16004"]);
    }
    node.finish();
}

/// The end of the stack: by a table, to a next hop, by the node's own label, by explicit null.
#[test]
#[ignore = "needs root"]
fn a80_the_last_label_comes_off() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let both = |label: u32, six_to: Ipv6Addr, four_to: Ipv4Addr| {
        let counter = format!("label {label}");
        for ttl in [1, 255] {
            let frame = six(arriving("core0"), &[(label, ttl)], six_to, 7);
            node.forwards(&counter, "core0", &frame, &six(leaving("acc1"), &[], six_to, 6), &[&counter]);
            let frame = four(arriving("core0"), &[(OWN, 3), (label, ttl)], four_to, 7);
            node.forwards(&counter, "core0", &frame, &four(leaving("acc1"), &[], four_to, 6), &[&counter]);
        }
    };
    both(OWN, SERVER, SERVER4);
    both(MAIN_TABLE, SERVER, SERVER4);
    both(TABLE_100, IN_TABLE, IN_TABLE4);
    let (elsewhere6, elsewhere4) = (host6(0x77), Ipv4Addr::new(10, 77, 0, 7));
    let frame = four(arriving("core0"), &[(HOP4, 1)], elsewhere4, 7);
    node.forwards("next hop", "core0", &frame, &four(leaving("acc1"), &[], elsewhere4, 6), &["label 15200"]);
    let frame = six(arriving("core0"), &[(HOP6, 1)], elsewhere6, 7);
    node.forwards("next hop", "core0", &frame, &six(leaving("acc1"), &[], elsewhere6, 6), &["label 15201"]);
    node.drops("other family", "core0", &six(arriving("core0"), &[(HOP4, 9)], SERVER, 7), "drop_inner_type");
    node.drops("other family", "core0", &four(arriving("core0"), &[(HOP6, 9)], SERVER4, 7), "drop_inner_type");
    let frame = four(arriving("core0"), &[(0, 1)], SERVER4, 7);
    node.forwards("IPv4 explicit null", "core0", &frame, &four(leaving("acc1"), &[], SERVER4, 6), &["label 0"]);
    let frame = six(arriving("core0"), &[(2, 1)], SERVER, 7);
    node.forwards("IPv6 explicit null", "core0", &frame, &six(leaving("acc1"), &[], SERVER, 6), &["label 2"]);
    node.drops("null lies", "core0", &six(arriving("core0"), &[(0, 9)], SERVER, 7), "drop_label_reserved");
    // To this node itself: the kernel's, whatever its hop limit is.
    let own = six(arriving("core0"), &[(OWN, 9)], NODE, 1);
    let found = node.send("core0", &own);
    assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.moved);
    assert_eq!(found.frame[14..], six(PacketBuilder::new(), &[], NODE, 1).build()[..], "complete, without a label");
    assert!(found.moved.contains_key("core0 passed_route"), "{:?}", found.moved);
    node.drops("to a SID", "core0", &six(arriving("core0"), &[(OWN, 9)], local(1), 7), "drop_inner_to_sid");
    node.finish();
}

/// RFC 3443, uniform: the TTL goes from the packet to the labels, from label to label, and back.
#[test]
#[ignore = "needs root"]
fn a80_one_ttl_for_all() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("uniform"));
    let frame = six(arriving("core0"), &[(POP, 20), (70_000, 99)], SERVER, 7);
    let expected = six(leaving("core1"), &[(70_000, 19)], SERVER, 7);
    node.forwards("popped", "core0", &frame, &expected, &["label 16003"]);
    let frame = six(arriving("core0"), &[(POP, 20)], SERVER, 7);
    node.forwards("popped, IPv6", "core0", &frame, &six(leaving("core1"), &[], SERVER, 19), &["label 16003"]);
    let frame = four(arriving("core0"), &[(POP, 20)], SERVER4, 7);
    node.forwards("popped, IPv4", "core0", &frame, &four(leaving("core1"), &[], SERVER4, 19), &["label 16003"]);
    // That of the first of several which come off replaces the others'.
    let frame = six(arriving("core0"), &[(OWN, 20), (SWAP, 99)], SERVER, 7);
    node.forwards("swapped", "core0", &frame, &six(leaving("core1"), &[(SWAP_TO, 19)], SERVER, 7), &["label 16002"]);
    let frame = four(arriving("core0"), &[(OWN, 20), (MAIN_TABLE, 99)], SERVER4, 7);
    node.forwards("at the end", "core0", &frame, &four(leaving("acc1"), &[], SERVER4, 19), &["label 15100"]);
    let expired = four(arriving("core0"), &[(MAIN_TABLE, 1)], SERVER4, 7);
    let found = node.send("core0", &expired);
    assert!(found.moved.contains_key("core0 drop_hop_limit_exceeded"), "{:?}", found.moved);
    node.finish();
}

/// RFC 3032 section 2.3: who sent the packet behind the labels is told, and of which labels it had (RFC 4950).
#[test]
#[ignore = "needs root"]
fn a80_a_label_expires() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    for entries in [vec![(SWAP, 1)], vec![(POP, 1), (70_000, 9)], vec![(OWN, 9), (ADJACENCY, 0)], vec![(OWN, 0)]] {
        let case = format!("{entries:?}");
        let frame = six(arriving("core0"), &entries, SERVER, 7);
        node.answers(&case, "core0", &frame, "drop_label_ttl", "time_exceeded", &expired6(&frame));
        let frame = four(arriving("core0"), &entries, SERVER4, 7);
        node.answers(&case, "core0", &frame, "drop_label_ttl", "time_exceeded", &expired4(&frame));
    }
    // Nobody knows whom to tell.
    let odd = arriving("core0").mpls(&stack(&[(SWAP, 1)])).payload(&[0x99; 40]);
    node.drops("no IP", "core0", &odd, "drop_label_ttl");
    node.finish();
}

/// What an error tells of labels is whole, however long the packet and its stack are.
#[test]
#[ignore = "needs root"]
fn a80_an_error_shows_the_stack() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let deep =
        |depth: u32| [(SWAP, 1)].into_iter().chain((1..depth).map(|label| (80_000 + label, 77))).collect::<Vec<_>>();
    // A protocol without a checksum: Wireshark reads on behind what an ICMPv6 error says is quoted.
    let six = Ipv6Repr { next_header: EXPERIMENT, ..Ipv6Repr::new(CLIENT, SERVER) };
    let four = Ipv4Repr { protocol: EXPERIMENT, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    for depth in [1, 2, 31, 32, 33, 65] {
        for octets in [0, 1, 88, 89, 108, 109, 1200] {
            let case = format!("{depth} labels, {octets} octets");
            let front = || arriving("core0").mpls(&stack(&deep(depth)));
            let payload = vec![0xa5; octets];
            let frame = front().inner_ipv6(six).payload(&payload);
            node.answers(&case, "core0", &frame, "drop_label_ttl", "time_exceeded", &expired6(&frame));
            let frame = front().inner_ipv4(four.clone()).payload(&payload);
            node.answers(&case, "core0", &frame, "drop_label_ttl", "time_exceeded", &expired4(&frame));
        }
    }
    // Nothing of the frame's padding is told.
    let frame = self::four(arriving("core0"), &[(SWAP, 1)], SERVER4, 7);
    let padded = self::four(arriving("core0"), &[(SWAP, 1)], SERVER4, 7).trailer(&[0xee; 9]);
    node.answers("padding", "core0", &padded, "drop_label_ttl", "time_exceeded", &expired4(&frame));
    // A stack whose end is not looked for.
    let deeper = self::six(arriving("core0"), &deep(66), SERVER, 7);
    node.drops("66 labels", "core0", &deeper, "drop_label_ttl");
    // Nor does the next error have anything of it that is about no labels.
    let frame = self::four(arriving("acc0"), &[], [10, 30, 0, 7].into(), 1);
    let reply = four_error("acc0").icmpv4(Icmpv4Repr::TimeExceeded { code: 0, packet: frame.build()[14..].to_vec() });
    node.answers("no labels", "acc0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    node.finish();
}

/// The Time Exceeded about an IPv6 packet with labels.
fn expired6(frame: &PacketBuilder) -> PacketBuilder {
    // 128 octets in units of 64 bits.
    let body = [&[16, 0, 0, 0][..], &quote_with_stack(&frame.build())].concat();
    leaving("acc0").ipv6(Ipv6Repr { hop_limit: 64, ..Ipv6Repr::new(NODE, CLIENT) }).icmpv6(Icmpv6Repr::Other {
        message_type: 3,
        code: 0,
        body,
    })
}

/// The same about IPv4.
fn expired4(frame: &PacketBuilder) -> PacketBuilder {
    // 128 octets in units of 32 bits.
    let body = [&[0, 32, 0, 0][..], &quote_with_stack(&frame.build())].concat();
    four_error("core0").icmpv4(Icmpv4Repr::Other { message_type: 11, code: 0, body })
}

/// The headers of an error about IPv4 that is found at this port.
fn four_error(port: &str) -> PacketBuilder {
    let from = if port == "core0" { [192, 0, 2, 1].into() } else { port_ipv4(port) };
    leaving("acc0").ipv4(Ipv4Repr {
        time_to_live: 64,
        type_of_service: 0xc0,
        dont_fragment: true,
        ..Ipv4Repr::new(from, CLIENT4)
    })
}

/// What is not as it says, and labels that mean nothing here.
#[test]
#[ignore = "needs root"]
fn a80_labels_that_lie() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let behind = |entries: &[(u32, u8)]| six(arriving("core0"), entries, SERVER, 7);
    node.drops("unknown", "core0", &behind(&[(70_000, 9)]), "drop_label_unknown");
    node.drops("unknown behind our own", "core0", &behind(&[(OWN, 9), (70_000, 9)]), "drop_label_unknown");
    for reserved in [1, 3, 4, 8, 13, 14, 15] {
        node.drops("special-purpose", "core0", &behind(&[(reserved, 9), (SWAP, 9)]), "drop_label_reserved");
    }
    for label in [MAIN_TABLE, TABLE_100, HOP6] {
        node.drops("more behind the last", "core0", &behind(&[(label, 9), (70_000, 9)]), "drop_label_bottom");
    }
    node.drops("own without end", "core0", &behind(&[(OWN, 9); 9]), "drop_label_depth");
    let expected = six(leaving("acc1"), &[], SERVER, 6);
    node.forwards("as many as are looked at", "core0", &behind(&[(OWN, 9); 8]), &expected, &["label 16001"]);
    let no_ip = |label| arriving("core0").mpls(&stack(&[(label, 9)])).payload(&[0x99; 40]);
    for label in [OWN, MAIN_TABLE, POP] {
        node.drops("no IP", "core0", &no_ip(label), "drop_label_not_ip");
    }
    // S is not set where the stack ends.
    let mut frame = behind(&[(OWN, 9)]).build();
    frame[16] &= !1;
    frame.truncate(18);
    node.drops_octets("the frame ends first", "core0", &frame, "drop_label_bottom");
    let mut frame = behind(&[(MAIN_TABLE, 9)]).build();
    frame[18] = 0x70;
    node.drops_octets("another version", "core0", &frame, "drop_label_not_ip");
    let mut frame = behind(&[(MAIN_TABLE, 9)]).build();
    frame[22] = 0xff;
    node.drops_octets("longer than the frame", "core0", &frame, "drop_bad_length");
    let mut frame = four(arriving("core0"), &[(MAIN_TABLE, 9)], SERVER4, 7).build();
    frame[28] ^= 1;
    node.drops_octets("checksum", "core0", &frame, "drop_bad_checksum");
    node.finish();
}

/// RFC 8402 section 8.1: labels do not come in from outside; those in frames for others are theirs.
#[test]
#[ignore = "needs root"]
fn labels_from_outside_and_for_others() {
    let network = Network::new();
    let mut node = Golden::load(&network, &labelled("pipe"));
    node.drops("from outside", "acc0", &six(arriving("acc0"), &[(SWAP, 9)], SERVER, 7), "drop_labels_from_outside");
    let other = |destination: [u8; 6]| {
        six(PacketBuilder::ethernet([2, 0, 0, 0, 0, 0x11], destination), &[(SWAP, 9)], SERVER, 7)
    };
    let frame = other([2, 9, 9, 9, 9, 9]);
    node.passes("for another", "core0", &frame, &frame, "passed_not_for_segue", &[]);
    node.drops("for all", "core0", &other([0xff; 6]), "drop_group_frame");
    // A node without labels leaves them to the kernel.
    node.apply(&configuration(DOMAIN));
    for port in ["core0", "acc0"] {
        let frame = six(arriving(port), &[(SWAP, 9)], SERVER, 7);
        node.passes("no labels here", port, &frame, &frame, "passed_not_for_segue", &[]);
    }
    node.finish();
}

/// Next generation, other labels: none is left of the one before.
#[test]
#[ignore = "needs root"]
fn labels_change_with_the_generation() {
    let network = Network::new();
    let mut node = Golden::load(&network, &labelled("pipe"));
    let frame = six(arriving("core0"), &[(SWAP, 9)], SERVER, 7);
    node.forwards("before", "core0", &frame, &six(leaving("core1"), &[(SWAP_TO, 8)], SERVER, 7), &["label 16002"]);
    node.apply(&labelled("pipe").replace("out: 17002", "out: 17003"));
    node.forwards("after", "core0", &frame, &six(leaving("core1"), &[(17_003, 8)], SERVER, 7), &["label 16002"]);
    node.apply(
        &labelled("pipe")
            .replace("{label: 16002, behaviour: swap, out: 17002", "{label: 16102, behaviour: swap, out: 17002"),
    );
    node.drops("gone", "core0", &frame, "drop_label_unknown");
    node.finish();
}

/// Packets with labels that went wrong: one outcome each, which fits the verdict.
#[test]
#[ignore = "needs root"]
fn many_mutated_packets_with_labels() {
    let network = Network::new();
    let node = Node::load(&network.node, &labelled("uniform"));
    let packets = mutation::packets();
    let labels = [
        OWN,
        SWAP,
        POP,
        NULL,
        NARROW,
        UNRESOLVED_HOP,
        OUTSIDE,
        PATHS,
        PATHS,
        7,
        ADJACENCY,
        TO_CLIENTS,
        MAIN_TABLE,
        TABLE_100,
        HOP4,
        HOP6,
        0,
        2,
    ];
    let mut random = Random::new(0x1abe_1000);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted = runner.outcomes("core0");
        for _ in 0..packets {
            let depth = 1 + random.below(5);
            let entries: Vec<(u32, u8)> =
                (0..depth).map(|_| (*random.pick(&labels), *random.pick(&[0_u8, 1, 2, 64, 255]))).collect();
            let mut frame = match random.below(2) {
                0 => six(arriving("core0"), &entries, SERVER, 7).build(),
                _ => four(arriving("core0"), &entries, SERVER4, 7).build(),
            };
            if random.below(3) != 0 {
                mutate(&mut random, &mut frame);
            }
            seen[mutation::send(runner, &mut counted, "core0", &frame, &mut faults) as usize] += 1;
        }
    });
    println!("{packets} packets: {seen:?}");
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    let [aborted, dropped, _, _, redirected] = seen;
    assert_eq!(aborted, 0);
    assert!(redirected > packets as u64 / 20 && dropped > packets as u64 / 20, "{seen:?}");
}

/// The node's addresses are those that errors come from.
#[test]
#[ignore = "needs root"]
fn errors_about_ipv4_come_from_the_access_port() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let frame = four(arriving("acc0"), &[], [10, 30, 0, 7].into(), 1);
    let reply = four_error("acc0").icmpv4(Icmpv4Repr::TimeExceeded { code: 0, packet: frame.build()[14..].to_vec() });
    node.answers("TTL", "acc0", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    node.finish();
}
