//! Functions behind labels: static and dynamic SR proxies (draft-ietf-spring-sr-service-programming sections 6.1 and 6.2, SR-MPLS).

use std::net::Ipv6Addr;

use segue_model::service_label::label_key;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving, quote_with_stack};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

use crate::mutation;

/// Labels of the node under test.
pub const OWN: u32 = 16_001;
pub const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
pub const POP: u32 = 16_003;
pub const NARROW: u32 = 16_005;
pub const STATIC: u32 = 15_010;
pub const STATIC_LAST: u32 = 15_011;
const STATIC_BYPASS: u32 = 15_012;
pub const DYNAMIC: u32 = 15_020;
pub const FLOW: u32 = 15_021;
pub const FLOW_OTHER: u32 = 15_022;
pub const REROUTE: u32 = 15_030;

const LABELS: &str = "
labels:
  - {label: 16001, behaviour: node}
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - {label: 16003, behaviour: pop, next_hop: 'fd00:0:c1::2'}
  - {label: 16005, behaviour: swap, next_hop: 'fd00:0:c2::2'}
  - label: 15010
    behaviour: static_proxy
    next_hop_mac: '02:00:00:00:00:71'
    proxy: {inner: [IPv4, IPv6], to_function: fun0, from_function: fun1, labels: [16002, 70000], on_failure: bypass, watch: {}}
  - label: 15011
    behaviour: static_proxy
    table: 100
    next_hop_mac: '02:00:00:00:00:91'
    proxy: {inner: [IPv6], to_function: fun2, from_function: fun2}
  - label: 15012
    behaviour: static_proxy
    next_hop: 10.3.0.2
    proxy: {inner: [IPv4], to_function: fun0, from_function: fun3, other_types: bypass, labels: [16005]}
  - label: 15020
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:a9'
    proxy: {inner: [IPv4, IPv6], to_function: dyn0, from_function: dyn1, watch: {}}
  - label: 15021
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:b9'
    proxy: {inner: [IPv4, IPv6], to_function: flow0, from_function: flow0, memory: flow}
  - label: 15022
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:b9'
    proxy: {inner: [IPv4, IPv6], to_function: flow0, from_function: flow0, memory: flow}
  - label: 15030
    behaviour: dynamic_proxy
    next_hop_mac: '02:00:00:00:00:c9'
    proxy: {inner: [IPv6], to_function: mask0, from_function: mask0, on_failure: reroute, backup_label: 15020, watch: {}}
";

/// Policies that begin with a label of the node under test.
const POLICIES: &str = "
  - {name: here, mode: PUSH, ttl: TTL, segment_lists: [{labels: [15020, 16002, 70000]}]}
  - {name: here-static, mode: PUSH, ttl: TTL, segment_lists: [{labels: [16001, 15010, 16002, 70000]}]}
  - {name: here-on, mode: PUSH, ttl: TTL, segment_lists: [{labels: [16002, 70000]}]}
";

const STEERING: &str = "
  - {name: here-6, destination: 'fd00:0:f00::/48', policy: here}
  - {name: here-4, destination: 10.30.0.0/16, policy: here}
  - {name: here-static-6, destination: 'fd00:0:f01::/48', policy: here-static}
  - {name: here-on-6, destination: 'fd00:0:f02::/48', policy: here-on}
";

/// A node with functions behind labels; more labels may be written behind it.
pub fn functions(ttl: &str) -> String {
    let text = configuration(DOMAIN);
    let (before, after) = text.split_once("sids:").expect("SIDs");
    let (_, after) = after.split_once("policies:\n").expect("policies");
    let after = after.replacen("steering:\n", &STEERING.replacen('\n', "steering:\n", 1), 1);
    let policies = POLICIES.replace("TTL", ttl);
    format!(
        "{before}sids: []\npolicies:{policies}{after}mpls: {{srgb: ['16000-23999'], srlb: ['15000-15999'], ttl: {ttl}}}{LABELS}"
    )
}

/// A stack of labels with their TTLs; the last is the bottom.
fn stack(traffic_class: u8, entries: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class,
        ..MplsEntry::default()
    };
    entries.iter().map(entry).collect()
}

/// An IPv6 packet of DSCP 46 behind a stack of TC `class`, or behind nothing.
fn six_of(class: u8, packet: PacketBuilder, entries: &[(u32, u8)], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit: hops, traffic_class: 0xb8, ..Ipv6Repr::new(CLIENT, SERVER) };
    let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(class, entries)) };
    packet.inner_ipv6(repr).udp(UdpRepr::new(port, 40_001)).payload(b"for a function")
}

fn six(packet: PacketBuilder, entries: &[(u32, u8)], hops: u8) -> PacketBuilder {
    six_of(5, packet, entries, 40_000, hops)
}

/// The same for IPv4.
fn four(packet: PacketBuilder, entries: &[(u32, u8)], hops: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: hops, type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(5, entries)) };
    packet.inner_ipv4(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"for a function")
}

fn out(node: &Golden<'_>, case: &str, frame: &PacketBuilder, expected: &PacketBuilder, label: u32) {
    let counter = format!("label {label}");
    node.leaves(case, "core0", &frame.build(), &expected.build(), "to_function", &[&counter]);
}

/// A packet comes back from a function and leaves as `expected`; each counter in `counters` moves by one packet.
fn back(node: &Golden<'_>, case: &str, port: &str, frame: &PacketBuilder, expected: &PacketBuilder, counters: &[&str]) {
    moves(node, case, (port, "forwarded"), frame, expected, counters);
}

/// A packet that comes in by a port leaves as `expected`, with that outcome; each counter in `counters` moves by one packet.
pub fn moves(
    node: &Golden<'_>,
    case: &str,
    (port, outcome): (&str, &str),
    frame: &PacketBuilder,
    expected: &PacketBuilder,
    counters: &[&str],
) {
    let found = node.send(port, frame);
    assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
    assert_eq!(found.frame, expected.build(), "{case}");
    let moved: Vec<(&str, u64)> = found.moved.iter().map(|(name, (packets, _))| (name.as_str(), *packets)).collect();
    let outcome = format!("{port} {outcome}");
    let mut counted: Vec<(&str, u64)> = counters.iter().chain([&outcome.as_str()]).map(|name| (*name, 1)).collect();
    counted.sort_unstable();
    assert_eq!(moved, counted, "{case}");
}

/// The function sees no label; what comes back gets the labels that are configured, and goes on by the first of them.
#[test]
#[ignore = "needs root"]
fn static_proxy_out_and_back() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    let stacks: [&[(u32, u8)]; 4] = [
        &[(STATIC, 64)],
        &[(STATIC, 1), (70_001, 9)],
        &[(OWN, 3), (STATIC, 9), (70_001, 9), (70_002, 9)],
        &[(0, 9), (STATIC, 9)],
    ];
    for entries in stacks {
        let case = format!("{entries:?}");
        out(&node, &case, &six(arriving("core0"), entries, 7), &six(leaving("fun0"), &[], 7), STATIC);
        out(&node, &case, &four(arriving("core0"), entries, 7), &four(leaving("fun0"), &[], 7), STATIC);
        let padded = six(arriving("core0"), entries, 7).trailer(&[0xee; 9]);
        out(&node, "padded", &padded, &six(leaving("fun0"), &[], 7), STATIC);
    }
    let left = [(SWAP_TO, 63), (70_000, 64)];
    let counters = ["label 16002", "list static_proxy 15010/0", "returned label 15010"];
    back(&node, "IPv6", "fun1", &six(arriving("fun1"), &[], 7), &six(leaving("core1"), &left, 6), &counters);
    back(&node, "IPv4", "fun1", &four(arriving("fun1"), &[], 7), &four(leaving("core1"), &left, 6), &counters);
    let padded = six(arriving("fun1"), &[], 7).trailer(&[0xee; 9]);
    back(&node, "padded", "fun1", &padded, &six(leaving("core1"), &left, 6), &counters);
    // Nothing is left of the stack behind it: by destination, in its table.
    let last = |packet: PacketBuilder, to: Ipv6Addr, hops: u8| {
        let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, to) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(1, 2)).payload(b"last")
    };
    let frame = last(arriving("core0").mpls(&stack(0, &[(STATIC_LAST, 2)])), IN_TABLE, 9);
    out(&node, "the last label", &frame, &last(leaving("fun2"), IN_TABLE, 9), STATIC_LAST);
    let expected = last(leaving("acc1"), IN_TABLE, 8);
    back(&node, "by destination", "fun2", &last(arriving("fun2"), IN_TABLE, 9), &expected, &["returned label 15011"]);
    node.drops("to a SID", "fun2", &last(arriving("fun2"), local(1), 9), "drop_from_function");
    // What it does not take.
    let frame = four(arriving("core0"), &[(STATIC_LAST, 9)], 7);
    node.drops("another family", "core0", &frame, "drop_inner_type");
    node.drops("another family, back", "fun2", &four(arriving("fun2"), &[], 7), "drop_inner_type");
    let found = node.send("core0", &six(arriving("core0"), &[(STATIC_BYPASS, 9), (SWAP, 8)], 7));
    assert_eq!(found.frame, six(leaving("core1"), &[(SWAP_TO, 7)], 7).build(), "bypassed: {:?}", found.moved);
    let found = node.send("core0", &six(arriving("core0"), &[(STATIC_BYPASS, 9)], 7));
    assert_eq!(found.frame, six(leaving("acc1"), &[], 6).build(), "bypassed at the end: {:?}", found.moved);
    node.finish();
}

/// What comes back gets the rest of the stack that the last packet had, as it was.
#[test]
#[ignore = "needs root"]
fn dynamic_proxy_out_and_back() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    node.drops("nothing remembered yet", "dyn1", &six(arriving("dyn1"), &[], 7), "drop_proxy_empty");
    let many: Vec<(u32, u8)> = (0..31).map(|number| (70_000 + number, 100 + number as u8)).collect();
    let with = |rest: &[(u32, u8)]| [&[(SWAP, 33)], rest].concat();
    for rest in [vec![], vec![(70_000, 20)], vec![(70_000, 20), (OWN, 1)], many] {
        let (sent, left) = ([&[(DYNAMIC, 1)], &with(&rest)[..]].concat(), [&[(SWAP_TO, 32)], &rest[..]].concat());
        let case = format!("{} labels behind it", rest.len() + 1);
        out(&node, &case, &six(arriving("core0"), &sent, 7), &six(leaving("dyn0"), &[], 7), DYNAMIC);
        let counters = ["label 16002", "returned label 15020"];
        back(&node, &case, "dyn1", &six(arriving("dyn1"), &[], 7), &six(leaving("core1"), &left, 6), &counters);
        back(&node, &case, "dyn1", &four(arriving("dyn1"), &[], 7), &four(leaving("core1"), &left, 6), &counters);
        // TC that is not the packet's stays as it was.
        let frame = six_of(2, arriving("core0"), &sent, 40_000, 7);
        out(&node, &case, &frame, &six(leaving("dyn0"), &[], 7), DYNAMIC);
        let expected = six_of(2, leaving("core1"), &left, 40_000, 6);
        back(&node, &case, "dyn1", &six(arriving("dyn1"), &[], 7), &expected, &counters);
        out(&node, &case, &four(arriving("core0"), &sent, 7), &four(leaving("dyn0"), &[], 7), DYNAMIC);
        back(&node, &case, "dyn1", &six(arriving("dyn1"), &[], 7), &six(leaving("core1"), &left, 6), &counters);
    }
    // Labels of this node itself behind it, and others that come off.
    type Case<'a> = (&'a [(u32, u8)], &'a [(u32, u8)], &'a str);
    let cases: [Case<'_>; 4] = [
        (&[(DYNAMIC, 9), (OWN, 9), (0, 9), (SWAP, 33)], &[(SWAP_TO, 32)], "label 16002"),
        (&[(DYNAMIC, 9), (POP, 9), (70_000, 33)], &[(70_000, 33)], "label 16003"),
        (&[(DYNAMIC, 9), (POP, 9)], &[], "label 16003"),
        (&[(DYNAMIC, 9), (OWN, 9), (OWN, 9)], &[], "label 16001"),
    ];
    for (sent, left, label) in cases {
        let case = format!("{sent:?}");
        out(&node, &case, &six(arriving("core0"), sent, 7), &six(leaving("dyn0"), &[], 7), DYNAMIC);
        out(&node, &case, &four(arriving("core0"), sent, 7), &four(leaving("dyn0"), &[], 7), DYNAMIC);
        let (egress, less) = if label == "label 16001" { ("acc1", 5) } else { ("core1", 6) };
        let counters = [label, "returned label 15020"];
        back(&node, &case, "dyn1", &six(arriving("dyn1"), &[], 7), &six(leaving(egress), left, less), &counters);
        back(&node, &case, "dyn1", &four(arriving("dyn1"), &[], 7), &four(leaving(egress), left, less), &counters);
    }
    // A TTL that differs by less than the margin is the one that was remembered.
    let rest = |ttl: u8| [(DYNAMIC, 9), (SWAP, ttl)];
    for (ttl, remembered) in [(80, 79), (87, 79), (73, 79), (72, 71)] {
        out(&node, "TTL", &six(arriving("core0"), &rest(ttl), 7), &six(leaving("dyn0"), &[], 7), DYNAMIC);
        let expected = six(leaving("core1"), &[(SWAP_TO, remembered)], 6);
        let counters = ["label 16002", "returned label 15020"];
        back(&node, &format!("TTL {ttl}"), "dyn1", &six(arriving("dyn1"), &[], 7), &expected, &counters);
    }
    // The last label of its stack: by destination.
    out(&node, "last", &four(arriving("core0"), &[(DYNAMIC, 9)], 7), &four(leaving("dyn0"), &[], 7), DYNAMIC);
    let expected = four(leaving("acc1"), &[], 6);
    back(&node, "by destination", "dyn1", &four(arriving("dyn1"), &[], 7), &expected, &["returned label 15020"]);
    // Another function of this node is next.
    let both = [(DYNAMIC, 9), (STATIC, 9)];
    out(&node, "first of two", &six(arriving("core0"), &both, 7), &six(leaving("dyn0"), &[], 7), DYNAMIC);
    let found = node.send("dyn1", &six(arriving("dyn1"), &[], 7));
    assert_eq!(found.frame, six(leaving("fun0"), &[], 6).build(), "second of two: {:?}", found.moved);
    assert!(found.moved.contains_key("dyn1 to_function"), "{:?}", found.moved);
    node.finish();
}

/// Each flow gets the rest of its own chain.
#[test]
#[ignore = "needs root"]
fn flows_of_several_chains_get_their_own_rest() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    node.drops("a flow that never went there", "flow0", &six(arriving("flow0"), &[], 7), "drop_unknown_flow");
    let chain = |number: u16| (if number.is_multiple_of(2) { FLOW } else { FLOW_OTHER }, 80_000 + u32::from(number));
    for number in 0..40 {
        let (label, last) = chain(number);
        let frame = six_of(5, arriving("core0"), &[(label, 9), (SWAP, 50), (last, 60)], number, 7);
        out(&node, "out", &frame, &six_of(5, leaving("flow0"), &[], number, 7), label);
    }
    for number in (0..40).rev() {
        let (_, last) = chain(number);
        let expected = six_of(5, leaving("core1"), &[(SWAP_TO, 49), (last, 60)], number, 6);
        let counters = ["label 16002", "returned label 15021"];
        back(&node, "back", "flow0", &six_of(5, arriving("flow0"), &[], number, 7), &expected, &counters);
    }
    // A flow whose chain changes.
    let frame = six_of(5, arriving("core0"), &[(FLOW, 9), (SWAP, 50), (99_999, 60)], 4, 7);
    out(&node, "another chain", &frame, &six_of(5, leaving("flow0"), &[], 4, 7), FLOW);
    let expected = six_of(5, leaving("core1"), &[(SWAP_TO, 49), (99_999, 60)], 4, 6);
    let counters = ["label 16002", "returned label 15021"];
    back(&node, "back", "flow0", &six_of(5, arriving("flow0"), &[], 4, 7), &expected, &counters);
    let tcp = arriving("flow0").inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).tcp(TcpRepr::new(4, 40_001, 2));
    node.drops("another protocol", "flow0", &tcp, "drop_unknown_flow");
    node.finish();
}

/// RFC 3443, uniform: the TTL of the label that comes off goes on, to the next label or to the packet.
#[test]
#[ignore = "needs root"]
fn one_ttl_for_all_through_functions() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("uniform"));
    let frame = six(arriving("core0"), &[(OWN, 20), (DYNAMIC, 99), (SWAP, 33), (70_000, 44)], 7);
    out(&node, "to the next label", &frame, &six(leaving("dyn0"), &[], 7), DYNAMIC);
    let expected = six(leaving("core1"), &[(SWAP_TO, 19), (70_000, 44)], 6);
    let counters = ["label 16002", "returned label 15020"];
    back(&node, "to the next label", "dyn1", &six(arriving("dyn1"), &[], 7), &expected, &counters);
    for label in [DYNAMIC, STATIC_LAST] {
        let to = if label == DYNAMIC { "dyn0" } else { "fun2" };
        let frame = six(arriving("core0"), &[(label, 20)], 7);
        out(&node, "to the packet", &frame, &six(leaving(to), &[], 20), label);
    }
    // Configured labels begin with the packet's, as those of a policy do.
    let counters = ["label 16002", "list static_proxy 15010/0", "returned label 15010"];
    let expected = six(leaving("core1"), &[(SWAP_TO, 40), (70_000, 41)], 41);
    back(&node, "static", "fun1", &six(arriving("fun1"), &[], 42), &expected, &counters);
    node.finish();
}

/// Senders are told what SRv6 proxies tell them, about the packet behind the labels.
#[test]
#[ignore = "needs root"]
fn errors_at_functions_behind_labels() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    let big = |packet: PacketBuilder, entries: &[(u32, u8)], octets: usize| {
        let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(0, entries)) };
        packet.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&vec![7; octets - 48])
    };
    let told = |message: Icmpv6Repr| {
        leaving("acc0").ipv6(Ipv6Repr { hop_limit: 64, ..Ipv6Repr::new(NODE, CLIENT) }).icmpv6(message)
    };
    let quote = |frame: &PacketBuilder, at: usize| Icmpv6Repr::quote(&frame.build()[at..]).to_vec();
    let entries = [(OWN, 9), (DYNAMIC, 9), (SWAP, 9)];
    let fits = big(arriving("core0"), &entries, 1500);
    out(&node, "it fits the function's link", &fits, &big(leaving("dyn0"), &[], 1500), DYNAMIC);
    let frame = big(arriving("core0"), &entries, 1501);
    let reply = told(Icmpv6Repr::PacketTooBig { mtu: 1500, packet: quote(&frame, 14 + 12) });
    node.answers("it does not", "core0", &frame, "drop_too_big", "too_big", &reply);
    let frame = six(arriving("core0"), &[(STATIC, 0)], 7);
    let body = [&[16, 0, 0, 0][..], &quote_with_stack(&frame.build())].concat();
    let reply = told(Icmpv6Repr::Other { message_type: 3, code: 0, body });
    node.answers("TTL 0", "core0", &frame, "drop_label_ttl", "time_exceeded", &reply);
    // Back from the function.
    let frame = six(arriving("dyn1"), &[], 1);
    let reply = told(Icmpv6Repr::TimeExceeded { code: 0, packet: quote(&frame, 14) });
    node.answers("hop limit", "dyn1", &frame, "drop_hop_limit_exceeded", "time_exceeded", &reply);
    let frame = big(arriving("core0"), &[(DYNAMIC, 9), (NARROW, 9), (70_000, 9)], 1393);
    out(&node, "a narrow link behind it", &frame, &big(leaving("dyn0"), &[], 1393), DYNAMIC);
    let found = node.send("dyn1", &big(arriving("dyn1"), &[], 1392));
    assert_eq!(found.frame.len(), 14 + 1400, "it fits: {:?}", found.moved);
    let found = node.send("dyn1", &big(arriving("dyn1"), &[], 1393));
    assert!(found.moved.contains_key("dyn1 drop_too_big"), "{:?}", found.moved);
    assert_eq!(
        (&found.frame[54..56], &found.frame[58..62]),
        (&[2, 0][..], &1392_u32.to_be_bytes()[..]),
        "less by two labels"
    );
    node.finish();
}

/// A policy whose first label is the node's own: the packet is behind it here, as if it had come with its labels.
#[test]
#[ignore = "needs root"]
fn a_policy_begins_with_a_label_of_its_own_node() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    let to6 = |network: u16| Ipv6Addr::new(0xfd00, 0, network, 0, 0, 0, 0, 7);
    let six = |packet: PacketBuilder, entries: &[(u32, u8)], network: u16, hops: u8, octets: usize| {
        let repr = Ipv6Repr { hop_limit: hops, traffic_class: 0xb8, ..Ipv6Repr::new(CLIENT, to6(network)) };
        let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(5, entries)) };
        packet.inner_ipv6(repr).udp(UdpRepr::new(1, 2)).payload(&vec![7; octets - 48])
    };
    let four = |packet: PacketBuilder, entries: &[(u32, u8)], hops: u8| {
        let to = [10, 30, 0, 7].into();
        let repr = Ipv4Repr { time_to_live: hops, type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, to) };
        let packet = if entries.is_empty() { packet } else { packet.mpls(&stack(5, entries)) };
        packet.inner_ipv4(repr).udp(UdpRepr::new(1, 2)).payload(b"from here")
    };
    // Octets are counted with the labels, as of what comes with them.
    let into = |case: &str, frame: &PacketBuilder, expected: &PacketBuilder, counters: &[&str]| {
        moves(&node, case, ("acc0", "to_function"), frame, expected, counters);
    };
    let forwards = |case: &str, frame: &PacketBuilder, expected: &PacketBuilder, counters: &[&str]| {
        moves(&node, case, ("acc0", "forwarded"), frame, expected, counters);
    };
    let left = [(SWAP_TO, 63), (70_000, 64)];
    let counters = ["list here/0", "rule here-6", "label 15020"];
    into("IPv6", &six(arriving("acc0"), &[], 0xf00, 9, 99), &six(leaving("dyn0"), &[], 0xf00, 8, 99), &counters);
    let frame = six(arriving("dyn1"), &[], 0xf00, 8, 99);
    let counters = ["label 16002", "returned label 15020"];
    back(&node, "IPv6", "dyn1", &frame, &six(leaving("core1"), &left, 0xf00, 7, 99), &counters);
    let counted = ["list here/0", "rule here-4", "label 15020"];
    into("IPv4", &four(arriving("acc0"), &[], 9), &four(leaving("dyn0"), &[], 8), &counted);
    back(&node, "IPv4", "dyn1", &four(arriving("dyn1"), &[], 8), &four(leaving("core1"), &left, 7), &counters);
    let counters = ["list here-static/0", "rule here-static-6", "label 15010"];
    into("static", &six(arriving("acc0"), &[], 0xf01, 9, 99), &six(leaving("fun0"), &[], 0xf01, 8, 99), &counters);
    // No function: the label is swapped here.
    let expected = six(leaving("core1"), &left, 0xf02, 8, 99);
    let counters = ["list here-on/0", "rule here-on-6", "label 16002"];
    forwards("on", &six(arriving("acc0"), &[], 0xf02, 9, 99), &expected, &counters);
    // What the function's link does not take, its sender is told, as of the packet itself.
    let found = node.send("acc0", &six(arriving("acc0"), &[], 0xf00, 9, 1501));
    assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
    assert_eq!((&found.frame[54..56], &found.frame[58..62]), (&[2, 0][..], &1500_u32.to_be_bytes()[..]), "too big");
    assert!(found.moved.contains_key("acc0 drop_too_big"), "{:?}", found.moved);
    node.drops(
        "labels of its own",
        "acc0",
        &six(arriving("acc0"), &[(DYNAMIC, 9)], 0xf00, 9, 99),
        "drop_labels_from_outside",
    );
    node.finish();
}

/// What nobody may choose, and what is no stack.
#[test]
#[ignore = "needs root"]
fn functions_choose_no_labels_and_stacks_must_end() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    for port in ["fun1", "dyn1", "flow0"] {
        node.drops("labels of its own", port, &six(arriving(port), &[(SWAP, 9)], 7), "drop_from_function");
    }
    let no_ip = arriving("core0").mpls(&stack(0, &[(DYNAMIC, 9), (SWAP, 9)])).payload(&[0x99; 40]);
    node.drops("no IP", "core0", &no_ip, "drop_label_not_ip");
    let deep: Vec<(u32, u8)> = std::iter::once((DYNAMIC, 9)).chain((0..33).map(|_| (SWAP, 9))).collect();
    node.drops("too many labels", "core0", &six(arriving("core0"), &deep, 7), "drop_label_depth");
    let mut frame = six(arriving("core0"), &[(DYNAMIC, 9)], 7).build();
    frame[16] &= !1;
    frame.truncate(18);
    node.drops_octets("the frame ends first", "core0", &frame, "drop_label_bottom");
    let mut frame = four(arriving("core0"), &[(DYNAMIC, 9)], 7).build();
    frame[28] ^= 1;
    node.drops_octets("checksum", "core0", &frame, "drop_bad_checksum");
    // The rest leads nowhere.
    out(
        &node,
        "unknown",
        &six(arriving("core0"), &[(DYNAMIC, 9), (70_000, 9)], 7),
        &six(leaving("dyn0"), &[], 7),
        DYNAMIC,
    );
    let found = node.send("dyn1", &six(arriving("dyn1"), &[], 7));
    assert!(found.moved.contains_key("dyn1 drop_label_unknown"), "{:?}", found.moved);
    node.finish();
}

/// While a function is down, packets to its label do what the operator wants, and then again what they did.
#[test]
#[ignore = "needs root"]
fn labels_of_functions_that_are_down() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    let set =
        |down| [DYNAMIC, STATIC, REROUTE].into_iter().for_each(|label| node.node().set_down(label_key(label), down));
    set(true);
    let behind = |label: u32| six(arriving("core0"), &[(label, 9), (SWAP, 9)], 7);
    node.drops("dropped", "core0", &behind(DYNAMIC), "drop_function_down");
    let counters = ["label 15010", "label 16002"];
    let expected = six(leaving("core1"), &[(SWAP_TO, 8)], 7);
    back(&node, "bypassed", "core0", &behind(STATIC), &expected, &counters);
    let last = four(arriving("core0"), &[(STATIC, 9)], 7);
    back(&node, "bypassed at the end", "core0", &last, &four(leaving("acc1"), &[], 6), &["label 15010"]);
    // The backup is down too, until it is not.
    let found = node.send("core0", &behind(REROUTE));
    assert!(found.moved.contains_key("core0 drop_function_down"), "{:?}", found.moved);
    node.node().set_down(label_key(DYNAMIC), false);
    let found = node.send("core0", &behind(REROUTE));
    assert_eq!(found.frame, six(leaving("dyn0"), &[], 7).build(), "rerouted: {:?}", found.moved);
    assert!(found.moved.contains_key("label 15030") && found.moved.contains_key("label 15020"), "{:?}", found.moved);
    set(false);
    out(&node, "up again", &behind(STATIC), &six(leaving("fun0"), &[], 7), STATIC);
    out(&node, "up again", &behind(REROUTE), &six(leaving("mask0"), &[], 7), REROUTE);
    node.finish();
}

/// What is remembered stays with its labels, whatever else is configured.
#[test]
#[ignore = "needs root"]
fn what_is_remembered_stays_over_generations() {
    let network = Network::new();
    let mut node = Golden::load(&network, &functions("pipe"));
    let frame = four(arriving("core0"), &[(DYNAMIC, 9), (SWAP, 9)], 7);
    out(&node, "before", &frame, &four(leaving("dyn0"), &[], 7), DYNAMIC);
    node.apply(&functions("pipe").replace("out: 17002", "out: 17003"));
    let expected = four(leaving("core1"), &[(17_003, 8)], 6);
    let counters = ["label 16002", "returned label 15020"];
    back(&node, "after", "dyn1", &four(arriving("dyn1"), &[], 7), &expected, &counters);
    node.finish();
}

/// Packets to and from functions behind labels that went wrong: one outcome each, which fits the verdict.
#[test]
#[ignore = "needs root"]
fn many_mutated_packets_at_functions_behind_labels() {
    let network = Network::new();
    let node = Node::load(&network.node, &functions("uniform"));
    let packets = mutation::packets();
    let labels =
        [OWN, SWAP, POP, NARROW, STATIC, STATIC_LAST, STATIC_BYPASS, DYNAMIC, FLOW, FLOW_OTHER, REROUTE, 0, 2, 70_000];
    let ports = ["core0", "core0", "core0", "fun1", "fun2", "fun3", "dyn1", "flow0", "acc0"];
    let mut random = Random::new(0x1abe_1f00);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted: Vec<Vec<u64>> = ports.iter().map(|port| runner.outcomes(port)).collect();
        for _ in 0..packets {
            let port = *random.pick(&ports);
            let depth = if port == "core0" { 1 + random.below(5) } else { 0 };
            let entries: Vec<(u32, u8)> =
                (0..depth).map(|_| (*random.pick(&labels), *random.pick(&[0_u8, 1, 2, 64, 255]))).collect();
            let mut frame = match random.below(2) {
                0 => six(arriving(port), &entries, 7).build(),
                _ => four(arriving(port), &entries, 7).build(),
            };
            if port == "acc0" && frame[14] >> 4 == 6 {
                // Into one of the policies that begin here: the destination's fifth and sixth octets.
                frame[42..44].copy_from_slice(&(0xf00 + random.below(3) as u16).to_be_bytes());
            }
            if random.below(3) != 0 {
                mutate(&mut random, &mut frame);
            }
            // Packets of one port are counted in one row.
            let first = ports.iter().position(|other| *other == port).expect("it is there");
            seen[mutation::send(runner, &mut counted[first], port, &frame, &mut faults) as usize] += 1;
        }
    });
    println!("{packets} packets: {seen:?}");
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    let [aborted, dropped, _, _, redirected] = seen;
    assert_eq!(aborted, 0);
    assert!(redirected > packets as u64 / 20 && dropped > packets as u64 / 20, "{seen:?}");
}
