//! Entropy labels (RFC 6790): put on by a policy, made anew behind functions, and taken off with the label above them.

use std::collections::BTreeSet;

use segue_model::service_label::label_key;
use segue_testkit::fixture::{Network, address::*, arriving, leaving};
use segue_testkit::golden::Golden;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

use crate::label_functions::{self, DYNAMIC, FLOW, functions};
use crate::labels::{OWN, labelled};

/// Entropy label indicator (RFC 6790 section 3).
const INDICATOR: u32 = 7;
/// An entropy label of another node's.
const ENTROPY: u32 = 0x5_4321;
const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
const POP: u32 = 16_003;
const MAIN_TABLE: u32 = 15_100;
const HOP4: u32 = 15_200;
const FLOWS: u16 = 256;

const POLICIES: &str = "policies:
  - {name: entropy, mode: PUSH, entropy_label: true, segment_lists: [{labels: [16002, 15100], next_hop: 'fd00:0:c1::2'}]}
  - {name: entropy-dscp, mode: PUSH, entropy_label: true, ttl: uniform, traffic_class: {dscp: 46}, segment_lists: [{labels: [LIST], next_hop: 'fd00:0:c1::2'}]}
";
const STEERING: &str = "steering:
  - {name: entropy-6, destination: 'fd00:0:f10::/48', policy: entropy}
  - {name: entropy-4, destination: 10.40.0.0/16, policy: entropy}
  - {name: dscp-6, destination: 'fd00:0:f11::/48', policy: entropy-dscp}
";

fn configured(ttl: &str) -> String {
    let many: Vec<String> = (20_000..20_030).map(|label: u32| label.to_string()).collect();
    let policies = POLICIES.replace("LIST", &many.join(", "));
    labelled(ttl).replacen("policies:\n", &policies, 1).replacen("steering:\n", STEERING, 1)
}

/// Entries of TC 0 with their TTLs.
fn entries(labels: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        ..MplsEntry::default()
    };
    labels.iter().map(entry).collect()
}

/// A packet of one flow behind labels, or behind nothing.
fn packet(front: PacketBuilder, labels: &[MplsEntry], family: u8, flow: u16, hops: u8, steered: bool) -> PacketBuilder {
    let front = if labels.is_empty() { front } else { front.mpls(labels) };
    let front = match family {
        6 => {
            let to = if steered { "fd00:0:f10::7".parse().expect("an address") } else { SERVER };
            front.inner_ipv6(Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, to) })
        }
        _ => {
            let to = if steered { [10, 40, 0, 7].into() } else { SERVER4 };
            front.inner_ipv4(Ipv4Repr { time_to_live: hops, ..Ipv4Repr::new(CLIENT4, to) })
        }
    };
    front.udp(UdpRepr::new(40_000 + flow, 40_001)).payload(b"a flow")
}

/// The entry at a place in the stack right behind the Ethernet header.
fn entry_at(frame: &[u8], place: usize) -> MplsEntry {
    MplsEntry::from_bytes(frame[14 + 4 * place..][..4].try_into().expect("an entry"))
}

/// Each flow has a label of its own, of which all but few differ, and none of special purpose; its TTL is 0.
#[test]
#[ignore = "needs root"]
fn a82_a_policy_puts_an_entropy_label_on() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    for family in [6, 4] {
        let mut seen = BTreeSet::new();
        for flow in 0..FLOWS {
            let found = node.send("acc0", &packet(arriving("acc0"), &[], family, flow, 9, true));
            let entropy = entry_at(&found.frame, 3);
            assert!(entropy.label >= 16 && entropy.bottom_of_stack, "{entropy:?}");
            let stack = entries(&[(SWAP, 64), (MAIN_TABLE, 64), (INDICATOR, 64), (entropy.label, 0)]);
            let expected = packet(leaving("core1"), &stack, family, flow, 8, true);
            let rule = format!("rule entropy-{family}");
            node.forwards(
                "a flow",
                "acc0",
                &packet(arriving("acc0"), &[], family, flow, 9, true),
                &expected,
                &["list entropy/0", &rule],
            );
            seen.insert(entropy.label);
        }
        assert!(seen.len() > usize::from(FLOWS) - 4, "{} labels for {FLOWS} flows", seen.len());
    }
    node.finish();
}

/// With 30 labels there are 32 entries. TC is that of the other labels.
#[test]
#[ignore = "needs root"]
fn a82_an_entropy_label_behind_many() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let to = "fd00:0:f11::7".parse().expect("an address");
    let frame = |front: PacketBuilder, hops: u8| {
        front
            .inner_ipv6(Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, to) })
            .udp(UdpRepr::new(1, 2))
            .payload(b"x")
    };
    let found = node.send("acc0", &frame(arriving("acc0"), 77));
    let entropy = entry_at(&found.frame, 31);
    let all = (20_000..20_030).map(|label| (label, 76)).chain([(INDICATOR, 76), (entropy.label, 0)]);
    let mut stack = entries(&all.collect::<Vec<_>>());
    stack.iter_mut().for_each(|entry| entry.traffic_class = 5);
    let expected = frame(leaving("core1").mpls(&stack), 76);
    node.leaves(
        "30 labels",
        "acc0",
        &frame(arriving("acc0"), 77).build(),
        &expected.build(),
        "forwarded",
        &["list entropy-dscp/0", "rule dscp-6"],
    );
    node.finish();
}

/// It comes off with the label above it; and alone, where the node before this one has popped that.
#[test]
#[ignore = "needs root"]
fn a82_an_entropy_label_comes_off_with_the_label_above_it() {
    for ttl in ["pipe", "uniform"] {
        let network = Network::new();
        let node = Golden::load(&network, &configured(ttl));
        let pair = [(INDICATOR, 21), (ENTROPY, 0)];
        for family in [6, 4] {
            let null = if family == 6 { 2 } else { 0 };
            let ends = [
                ("table", vec![(MAIN_TABLE, 21)], MAIN_TABLE),
                ("own label", vec![(OWN, 21)], OWN),
                ("two own labels", vec![(OWN, 21), (OWN, 21)], OWN),
                ("own label, table", vec![(OWN, 21), (MAIN_TABLE, 21)], MAIN_TABLE),
                ("explicit null", vec![(null, 21)], null),
                ("popped before", vec![], null),
            ];
            for (case, above, counts) in ends {
                let labels: Vec<(u32, u8)> = above.into_iter().chain(pair).collect();
                let hops = if ttl == "pipe" { 8 } else { 20 };
                node.forwards(
                    &format!("{ttl}, IPv{family}, {case}"),
                    "core0",
                    &packet(arriving("core0"), &entries(&labels), family, 0, 9, false),
                    &packet(leaving("acc1"), &[], family, 0, hops, false),
                    &[&format!("label {counts}")],
                );
            }
        }
        // To a next hop of one family.
        let hops = if ttl == "pipe" { 8 } else { 20 };
        let labels = entries(&[(HOP4, 21), pair[0], pair[1]]);
        let frame = packet(arriving("core0"), &labels, 4, 0, 9, false);
        node.forwards("next hop", "core0", &frame, &packet(leaving("acc1"), &[], 4, 0, hops, false), &["label 15200"]);
        // In the middle of a stack: the node goes on behind it. Labels of others keep theirs.
        let stays = 21 - 1;
        let frame = |labels: &[(u32, u8)]| packet(arriving("core0"), &entries(labels), 6, 0, 9, false);
        let leaves = |labels: &[(u32, u8)]| packet(leaving("core1"), &entries(labels), 6, 0, 9, false);
        let behind = [(70_000, 9), pair[0], pair[1]];
        let [a, b, c] = behind;
        node.forwards(
            "own pair, then on",
            "core0",
            &frame(&[(OWN, 21), pair[0], pair[1], (SWAP, 21), a, b, c]),
            &leaves(&[(SWAP_TO, stays), a, b, c]),
            &["label 16002"],
        );
        let handed = if ttl == "pipe" { 21 } else { stays };
        node.forwards(
            "popped in front of a pair",
            "core0",
            &frame(&[(POP, 21), (INDICATOR, 21), (ENTROPY, 0)]),
            &leaves(&[(INDICATOR, handed), (ENTROPY, 0)]),
            &["label 16003"],
        );
        node.finish();
    }
}

/// Half an entropy label is none, and one is no end of a stack that goes on.
#[test]
#[ignore = "needs root"]
fn a82_halves_of_entropy_labels() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let frame = |labels: &[(u32, u8)]| packet(arriving("core0"), &entries(labels), 6, 0, 9, false);
    node.drops("indicator alone", "core0", &frame(&[(INDICATOR, 9)]), "drop_label_reserved");
    node.drops("behind its own", "core0", &frame(&[(OWN, 9), (INDICATOR, 9)]), "drop_label_reserved");
    node.drops("behind a table", "core0", &frame(&[(MAIN_TABLE, 9), (INDICATOR, 9)]), "drop_label_bottom");
    let labels = [(MAIN_TABLE, 9), (INDICATOR, 9), (ENTROPY, 0), (SWAP, 9)];
    node.drops("a label behind the pair", "core0", &frame(&labels), "drop_label_bottom");
    let frame = arriving("core0").mpls(&entries(&[(INDICATOR, 9), (ENTROPY, 0)])).payload(&[0x55; 40]);
    node.drops("no IP behind it", "core0", &frame, "drop_label_not_ip");
    let mut pairs = [(INDICATOR, 9), (ENTROPY, 0)].repeat(8);
    pairs.push((MAIN_TABLE, 9));
    let frame = packet(arriving("core0"), &entries(&pairs), 6, 0, 9, false);
    node.drops("too many", "core0", &frame, "drop_label_depth");
    node.finish();
}

/// The rest of a stack that a function's packets get again has the entropy label of each packet's own flow.
#[test]
#[ignore = "needs root"]
fn a82_behind_a_function_each_flow_has_its_own_again() {
    let network = Network::new();
    let node = Golden::load(&network, &functions("pipe"));
    for (label, to, from) in [(DYNAMIC, "dyn0", "dyn1"), (FLOW, "flow0", "flow0")] {
        let mut seen = BTreeSet::new();
        for flow in 0..64 {
            let own = 0x1_0000 + u32::from(flow);
            let rest = [(label_functions::SWAP, 64), (70_000, 64), (INDICATOR, 64), (own, 0)];
            let stack: Vec<(u32, u8)> = [(label, 64)].into_iter().chain(rest).collect();
            let frame = packet(arriving("core0"), &entries(&stack), 6, flow, 9, false);
            let expected = packet(leaving(to), &[], 6, flow, 9, false).build();
            let counter = format!("label {label}");
            node.leaves("to the function", "core0", &frame.build(), &expected, "to_function", &[&counter]);
            let found = node.send(from, &packet(arriving(from), &[], 6, flow, 9, false));
            let entropy = entry_at(&found.frame, 3);
            assert!(entropy.label >= 16, "{entropy:?}");
            let stack = entries(&[(SWAP_TO, 63), (70_000, 64), (INDICATOR, 64), (entropy.label, 0)]);
            assert_eq!(found.frame, packet(leaving("core1"), &stack, 6, flow, 8, false).build());
            seen.insert(entropy.label);
        }
        assert!(seen.len() > 60, "{seen:?}");
        // What is remembered is the same for all flows of a chain.
        if label == DYNAMIC {
            let memory = node.node().memory(&label_key(DYNAMIC).to_string());
            assert_eq!(memory.renewed, 1, "the rest of the stack was remembered anew for a flow: {memory:?}");
        }
    }
    // Right behind the function's own label it comes off with that.
    let frame = packet(
        arriving("core0"),
        &entries(&[(DYNAMIC, 64), (INDICATOR, 64), (ENTROPY, 0), (label_functions::SWAP, 64), (70_000, 64)]),
        6,
        0,
        9,
        false,
    );
    let expected = packet(leaving("dyn0"), &[], 6, 0, 9, false).build();
    node.leaves("a pair of its own", "core0", &frame.build(), &expected, "to_function", &["label 15020"]);
    let found = node.send("dyn1", &packet(arriving("dyn1"), &[], 6, 0, 9, false));
    let stack = entries(&[(SWAP_TO, 63), (70_000, 64)]);
    assert_eq!(found.frame, packet(leaving("core1"), &stack, 6, 0, 8, false).build());
    node.finish();
}
