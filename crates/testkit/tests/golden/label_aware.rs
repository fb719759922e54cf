//! Functions behind labels that see the stack: they get the packet with the rest of it, and give it back so or not at all.

use segue_model::service_label::label_key;
use segue_testkit::fixture::{Network, address::*, arriving, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::Node;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

use crate::label_functions::{OWN, POP, SWAP, functions, moves};
use crate::mutation;

const AWARE: u32 = 15_050;
/// By another port, in table 100.
const OTHER: u32 = 15_051;
const FURTHER: u32 = 70_000;
const INDICATOR: u32 = 7;

const LABELS: &str = "
  - label: 15050
    behaviour: sr_aware
    next_hop_mac: '02:00:00:00:00:d9'
    proxy: {to_function: aware0, from_function: aware0, on_failure: bypass, watch: {}}
  - label: 15051
    behaviour: sr_aware
    table: 100
    next_hop_mac: '02:00:00:00:00:d1'
    proxy: {to_function: mask1, from_function: mask1, on_failure: reroute, backup_label: 15050, watch: {}}
";

fn state(ttl: &str) -> String {
    format!("{}{LABELS}", functions(ttl).trim_end())
}

/// A label, its TTL and its TC.
type Entry = (u32, u8, u8);

fn six(front: PacketBuilder, entries: &[Entry], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, SERVER) };
    behind(front, entries).inner_ipv6(repr).udp(UdpRepr::new(port, 40_001)).payload(b"for one who sees labels")
}

fn four(front: PacketBuilder, entries: &[Entry], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: hops, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    behind(front, entries).inner_ipv4(repr).udp(UdpRepr::new(port, 40_001)).payload(b"for one who sees labels")
}

fn behind(front: PacketBuilder, entries: &[Entry]) -> PacketBuilder {
    let entry = |(label, time_to_live, traffic_class): &Entry| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: *traffic_class,
        ..MplsEntry::default()
    };
    if entries.is_empty() { front } else { front.mpls(&entries.iter().map(entry).collect::<Vec<_>>()) }
}

/// What a function may send of a flow that was sent to it with `SWAP` and `FURTHER`, both of TTL 9 and TC 5.
const SENT: [Entry; 2] = [(SWAP, 9, 5), (FURTHER, 9, 5)];

fn with_own(own: u32, entries: &[Entry]) -> Vec<Entry> {
    std::iter::once((own, 33, 5)).chain(entries.iter().copied()).collect()
}

fn into(node: &Golden<'_>, case: &str, own: u32, port: u16) {
    let to = if own == AWARE { "aware0" } else { "mask1" };
    let frame = six(arriving("core0"), &with_own(own, &SENT), port, 7);
    let counter = format!("label {own}");
    node.leaves(case, "core0", &frame.build(), &six(leaving(to), &SENT, port, 7).build(), "to_function", &[&counter]);
}

#[test]
#[ignore = "needs root"]
fn functions_see_the_rest_of_the_stack() {
    let network = Network::new();
    let node = Golden::load(&network, &state("pipe"));
    let counters = ["returned label 15050", "label 16002"];
    into(&node, "with the stack", AWARE, 1);
    let returned = [(17_002, 8, 5), (FURTHER, 9, 5)];
    node.forwards(
        "back",
        "aware0",
        &six(arriving("aware0"), &SENT, 1, 7),
        &six(leaving("core1"), &returned, 1, 7),
        &counters,
    );
    // As a router sends it on; and its payload, and the packet's own hop limit, are the function's.
    let routed = six(arriving("aware0"), &[(SWAP, 4, 5), (FURTHER, 9, 5)], 1, 3);
    let expected = six(leaving("core1"), &[(17_002, 3, 5), (FURTHER, 9, 5)], 1, 3);
    node.forwards("a lower TTL", "aware0", &routed, &expected, &counters);
    // Behind labels of the node itself, without an entropy label right behind its own, with one further down.
    let front = [
        (OWN, 9, 0),
        (AWARE, 9, 0),
        (INDICATOR, 9, 0),
        (80_000, 0, 0),
        (SWAP, 9, 5),
        (INDICATOR, 9, 0),
        (80_001, 0, 0),
    ];
    let frame = four(arriving("core0"), &front, 1, 7).build();
    let rest = &front[4..];
    node.leaves(
        "entropy",
        "core0",
        &frame,
        &four(leaving("aware0"), rest, 1, 7).build(),
        "to_function",
        &["label 15050"],
    );
    let expected = [(17_002, 8, 5), (INDICATOR, 9, 0), (80_001, 0, 0)];
    node.forwards(
        "entropy",
        "aware0",
        &four(arriving("aware0"), rest, 1, 7),
        &four(leaving("core1"), &expected, 1, 7),
        &counters,
    );
    // Nothing is left of the stack: it goes by its destination.
    let last = four(arriving("core0"), &[(AWARE, 9, 0)], 2, 7).build();
    node.leaves(
        "the last label",
        "core0",
        &last,
        &four(leaving("aware0"), &[], 2, 7).build(),
        "to_function",
        &["label 15050"],
    );
    let bare = four(arriving("aware0"), &[], 2, 7);
    node.forwards("by its destination", "aware0", &bare, &four(leaving("acc1"), &[], 2, 6), &["returned label 15050"]);
    let one = four(arriving("aware0"), &[], 2, 1).build();
    let found = node.node().send("aware0", &one);
    assert!(found.moved.contains_key("aware0 drop_hop_limit_exceeded"), "{:?}", found.moved);
    // Padding does not leave.
    let mut padded = four(arriving("core0"), &with_own(AWARE, &SENT), 3, 7).build();
    padded.extend([0xee; 9]);
    node.leaves(
        "padding",
        "core0",
        &padded,
        &four(leaving("aware0"), &SENT, 3, 7).build(),
        "to_function",
        &["label 15050"],
    );
    // What does not fit the function's link, with its labels, is told about.
    let long = |octets: usize| {
        behind(arriving("core0"), &with_own(AWARE, &SENT))
            .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
            .payload(&vec![1; octets])
    };
    let found = node.node().send("core0", &long(1700 - 8 - 40).build());
    assert!(found.moved.contains_key("core0 to_function"), "{:?}", found.moved);
    let found = node.node().send("core0", &long(1700 - 8 - 40 + 1).build());
    assert!(found.moved.contains_key("core0 drop_too_big"), "{:?}", found.moved);
    node.finish();
}

/// A function leads no packet anywhere but where its own stack leads.
#[test]
#[ignore = "needs root"]
fn functions_choose_no_labels() {
    let network = Network::new();
    let mut node = Golden::load(&network, &state("pipe"));
    into(&node, "sent", AWARE, 1);
    let last = four(arriving("core0"), &[(AWARE, 9, 0)], 2, 7).build();
    node.leaves("sent", "core0", &last, &four(leaving("aware0"), &[], 2, 7).build(), "to_function", &["label 15050"]);
    let changed: [(&str, &[Entry]); 14] = [
        ("a higher TTL", &[(SWAP, 10, 5), (FURTHER, 9, 5)]),
        ("another TTL further down", &[(SWAP, 9, 5), (FURTHER, 8, 5)]),
        ("another TC", &[(SWAP, 9, 4), (FURTHER, 9, 5)]),
        ("another label", &[(POP, 9, 5), (FURTHER, 9, 5)]),
        ("another label further down", &[(SWAP, 9, 5), (FURTHER + 1, 9, 5)]),
        ("another order", &[(FURTHER, 9, 5), (SWAP, 9, 5)]),
        ("a label less", &[(FURTHER, 9, 5)]),
        ("the bottom too early", &[(SWAP, 9, 5)]),
        ("a label more", &[(SWAP, 9, 5), (FURTHER, 9, 5), (FURTHER, 9, 5)]),
        ("a label more in front", &[(SWAP, 9, 5), (SWAP, 9, 5), (FURTHER, 9, 5)]),
        ("its own label again", &[(AWARE, 9, 5), (SWAP, 9, 5), (FURTHER, 9, 5)]),
        ("explicit null in front", &[(0, 9, 5), (SWAP, 9, 5), (FURTHER, 9, 5)]),
        ("an entropy label", &[(SWAP, 9, 5), (INDICATOR, 9, 5), (80_000, 0, 5), (FURTHER, 9, 5)]),
        ("no labels", &[]),
    ];
    for (case, entries) in changed {
        node.drops(case, "aware0", &six(arriving("aware0"), entries, 1, 7), "drop_header_changed");
    }
    node.drops("labels of its own", "aware0", &four(arriving("aware0"), &SENT, 2, 7), "drop_header_changed");
    // Flows that were never sent, or to another function.
    node.drops("another flow", "aware0", &six(arriving("aware0"), &SENT, 3, 7), "drop_unknown_flow");
    node.drops("another function's", "mask1", &six(arriving("mask1"), &SENT, 1, 7), "drop_unknown_flow");
    node.drops("of its own", "aware0", &six(arriving("aware0"), &[], 3, 7), "drop_unknown_flow");
    // The kernel gets no labels, and nobody else.
    let with_mac = |mac: [u8; 6]| {
        let mut frame = six(arriving("aware0"), &SENT, 1, 7).build();
        frame[..6].copy_from_slice(&mac);
        frame
    };
    node.drops_octets("to a group", "aware0", &with_mac([0xff; 6]), "drop_from_function");
    node.drops_octets("to somebody else", "aware0", &with_mac([2, 0, 0, 0, 0, 1]), "drop_from_function");
    let octets = six(arriving("aware0"), &SENT, 1, 7).build();
    for (length, outcome) in
        [(14, "drop_label_bottom"), (18, "drop_label_bottom"), (22, "drop_label_bottom"), (40, "drop_truncated")]
    {
        node.drops_octets("the frame ends first", "aware0", &octets[..length], outcome);
    }
    let no_ip = behind(arriving("aware0"), &SENT).payload(&[0x99; 40]);
    node.drops("no IP", "aware0", &no_ip, "drop_label_not_ip");
    let deep = [(SWAP, 9, 5); 33];
    node.drops("33 labels", "aware0", &six(arriving("aware0"), &deep, 1, 7), "drop_header_changed");
    let deep = [(SWAP, 9, 5); 34];
    node.drops("34 labels", "aware0", &six(arriving("aware0"), &deep, 1, 7), "drop_label_depth");
    node.drops("34 labels", "core0", &six(arriving("core0"), &with_own(AWARE, &deep[1..]), 1, 7), "drop_label_depth");
    // A TTL that was higher once is not given back: the last one counts.
    let lower = with_own(AWARE, &[(SWAP, 5, 5), (FURTHER, 9, 5)]);
    let expected = six(leaving("aware0"), &lower[1..], 1, 7).build();
    node.leaves(
        "a lower TTL",
        "core0",
        &six(arriving("core0"), &lower, 1, 7).build(),
        &expected,
        "to_function",
        &["label 15050"],
    );
    node.drops("the TTL of before", "aware0", &six(arriving("aware0"), &SENT, 1, 7), "drop_header_changed");
    node.apply(&rewriting("pipe"));
    one_that_rewrites_flows_takes_a_stack_that_was_sent(&node, &changed);
    node.finish();
}

fn rewriting(ttl: &str) -> String {
    state(ttl).replace("from_function: aware0,", "from_function: aware0, may_rewrite: [addresses],")
}

fn one_that_rewrites_flows_takes_a_stack_that_was_sent(node: &Golden<'_>, changed: &[(&str, &[Entry])]) {
    let counters = ["returned label 15050", "label 16002"];
    into(node, "sent", AWARE, 1);
    let last = four(arriving("core0"), &[(AWARE, 9, 0)], 2, 7).build();
    node.leaves("sent", "core0", &last, &four(leaving("aware0"), &[], 2, 7).build(), "to_function", &["label 15050"]);
    for (case, ttl) in [("another flow", 9), ("as a router", 8)] {
        let (sent, expected) = ([(SWAP, ttl, 5), SENT[1]], [(17_002, ttl - 1, 5), SENT[1]]);
        let (frame, out) = (six(arriving("aware0"), &sent, 3, 7), six(leaving("core1"), &expected, 3, 7));
        node.forwards(case, "aware0", &frame, &out, &counters);
        let (frame, out) = (four(arriving("aware0"), &sent, 3, 7), four(leaving("core1"), &expected, 3, 7));
        node.forwards(case, "aware0", &frame, &out, &counters);
    }
    // The flow that was sent with no labels left, too: the stack is one that was sent.
    let (frame, out) =
        (four(arriving("aware0"), &SENT, 2, 7), four(leaving("core1"), &[(17_002, 8, 5), SENT[1]], 2, 7));
    node.forwards("a flow of another stack", "aware0", &frame, &out, &counters);
    for (case, entries) in changed {
        node.drops(case, "aware0", &six(arriving("aware0"), entries, 1, 7), "drop_header_changed");
        node.drops(case, "aware0", &six(arriving("aware0"), entries, 3, 7), "drop_unknown_flow");
    }
    let low = [(SWAP, 7, 5), SENT[1]];
    node.drops("TTL two lower", "aware0", &six(arriving("aware0"), &low, 3, 7), "drop_unknown_flow");
    node.drops("another function's", "mask1", &six(arriving("mask1"), &SENT, 1, 7), "drop_unknown_flow");
    let deep = [(SWAP, 9, 5); 33];
    node.drops("33 labels", "aware0", &six(arriving("aware0"), &deep, 3, 7), "drop_unknown_flow");
}

/// While it is down; and with one TTL for all.
#[test]
#[ignore = "needs root"]
fn labels_of_functions_that_see_the_stack_and_are_down() {
    let network = Network::new();
    let mut node = Golden::load(&network, &state("pipe"));
    node.node().set_down(label_key(OTHER), true);
    let behind_other = six(arriving("core0"), &with_own(OTHER, &SENT), 1, 7);
    let frame = behind_other.build();
    let counters = ["label 15050", "label 15051"];
    node.leaves("rerouted", "core0", &frame, &six(leaving("aware0"), &SENT, 1, 7).build(), "to_function", &counters);
    node.node().set_down(label_key(AWARE), true);
    let expected = six(leaving("core1"), &[(17_002, 8, 5), (FURTHER, 9, 5)], 1, 7);
    let counters = ["label 15050", "label 15051", "label 16002"];
    moves(&node, "bypassed", ("core0", "forwarded"), &behind_other, &expected, &counters);
    node.node().set_down(label_key(AWARE), false);
    node.node().set_down(label_key(OTHER), false);
    into(&node, "up again", OTHER, 1);
    node.apply(&state("uniform"));
    let frame = six(arriving("core0"), &with_own(AWARE, &SENT), 1, 7).build();
    let rest = [(SWAP, 33, 5), (FURTHER, 9, 5)];
    node.leaves(
        "one TTL",
        "core0",
        &frame,
        &six(leaving("aware0"), &rest, 1, 7).build(),
        "to_function",
        &["label 15050"],
    );
    let expected = six(leaving("core1"), &[(17_002, 32, 5), (FURTHER, 9, 5)], 1, 7);
    node.forwards(
        "back",
        "aware0",
        &six(arriving("aware0"), &rest, 1, 7),
        &expected,
        &["returned label 15050", "label 16002"],
    );
    let last = six(arriving("core0"), &[(AWARE, 33, 0)], 1, 7).build();
    node.leaves(
        "the last",
        "core0",
        &last,
        &six(leaving("aware0"), &[], 1, 33).build(),
        "to_function",
        &["label 15050"],
    );
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn many_mutated_packets_at_functions_that_see_the_stack() {
    let network = Network::new();
    let node = Node::load(&network.node, &rewriting("uniform"));
    let packets = mutation::packets() / 4;
    let ports = ["core0", "core0", "aware0", "mask1"];
    let mut random = Random::new(0xa_3a2e);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted: Vec<Vec<u64>> = ports.iter().map(|port| runner.outcomes(port)).collect();
        for _ in 0..packets {
            let port = *random.pick(&ports);
            let own = *random.pick(&[AWARE, OTHER]);
            let rest =
                &[(SWAP, 33, 5), (FURTHER, 9, 5), (INDICATOR, 9, 0), (80_000, 0, 0)][..*random.pick(&[0, 1, 2, 4])];
            let entries = if port == "core0" { with_own(own, rest) } else { rest.to_vec() };
            let flow = random.below(4) as u16;
            let mut frame = match random.below(2) {
                0 => six(arriving(port), &entries, flow, 7).build(),
                _ => four(arriving(port), &entries, flow, 7).build(),
            };
            if random.below(3) == 0 {
                mutate(&mut random, &mut frame);
            }
            let first = ports.iter().position(|other| *other == port).expect("it is there");
            seen[mutation::send(runner, &mut counted[first], port, &frame, &mut faults) as usize] += 1;
        }
    });
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    let [aborted, dropped, _, _, redirected] = seen;
    assert_eq!(aborted, 0);
    assert!(redirected > packets as u64 / 20 && dropped > packets as u64 / 20, "{seen:?}");
}
