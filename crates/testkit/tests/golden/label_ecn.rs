//! Congestion marks on labels (RFC 5129): put on with the labels, carried on where labels come off, and into the packet with the last one.

use segue_testkit::fixture::{Network, address::*, arriving, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

use crate::label_functions::{DYNAMIC, FLOW, REROUTE, STATIC, functions};
use crate::labels::{OWN, labelled};
use crate::mutation;

/// Of the pairs 0 and 1, 5 and 4, the second is the mark; 2, 3, 6 and 7 are in none.
const PAIRS: &str = ", ecn: [{class: 0, marked: 1}, {class: 5, marked: 4}]}";

const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
const POP: u32 = 16_003;
const NULL: u32 = 16_004;
const ADJACENCY: u32 = 15_001;
const TABLE: u32 = 15_100;
const HOP4: u32 = 15_200;
const HOP6: u32 = 15_201;
const COPYING: u32 = 15_300;
const TO_SIDS: u32 = 15_301;
const FIXED: u32 = 15_302;
const UNMARKABLE: u32 = 15_303;
const WIRE: u32 = 15_304;
const FIREWALL: u32 = 15_305;
const IN_UDP: u32 = 15_306;
const AWARE: u32 = 15_050;
/// Another node's.
const FURTHER: u32 = 70_000;
/// RFC 6790 section 3.
const INDICATOR: u32 = 7;
const CE: u8 = 3;

const LABELS: &str = "
  - {label: 15300, behaviour: binding, policy: push2}
  - {label: 15301, behaviour: binding, policy: reduced}
  - {label: 15302, behaviour: binding, policy: fixed}
  - {label: 15303, behaviour: binding, policy: unmarkable}
  - {label: 15304, behaviour: pseudowire, port: wire0}
  - {label: 15305, behaviour: firewall, firewall: fw}
  - {label: 15306, behaviour: adjacency, udp: {destination: 'fd00:0:c1::2'}}
";
const POLICIES: &str = "policies:
  - {name: fixed, mode: PUSH, traffic_class: {dscp: 46}, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::2'}]}
  - {name: unmarkable, mode: PUSH, traffic_class: {dscp: 24}, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::2'}]}
";
const SIDS: &str = "firewalls:
  - {name: fw, ipv6: {file: v6, text: RULES}, ipv4: {file: v4, text: RULES}}
sids:
  - {sid: 'fc00:0:1:503::/64', behaviour: End.DTM}
";
const RULES: &str =
    r#""*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n-A FORWARD -p udp --dport 9 -j DROP\nCOMMIT\n""#;

/// A node with labels of all kinds but for functions.
fn configured(pairs: &str) -> String {
    let text =
        labelled("pipe").replacen("policies:\n", POLICIES, 1).replacen("sids:\n", &SIDS.replace("RULES", RULES), 1);
    let more = format!("ttl: pipe, udp_endpoints: [{{address: 'fd00:0:1::1'}}]{pairs}");
    text.replacen("ttl: pipe}", &more, 1) + LABELS.trim_start_matches('\n')
}

/// Label, TTL and TC.
type Entry = (u32, u8, u8);

fn stack(front: PacketBuilder, entries: &[Entry]) -> PacketBuilder {
    let entry = |(label, time_to_live, traffic_class): &Entry| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: *traffic_class,
        ..MplsEntry::default()
    };
    if entries.is_empty() { front } else { front.mpls(&entries.iter().map(entry).collect::<Vec<_>>()) }
}

/// A packet of the family with this traffic class, behind a stack or behind nothing.
fn packet(front: PacketBuilder, entries: &[Entry], family: u8, class: u8, hops: u8) -> PacketBuilder {
    let front = stack(front, entries);
    let front = match family {
        4 => {
            front.inner_ipv4(Ipv4Repr { time_to_live: hops, type_of_service: class, ..Ipv4Repr::new(CLIENT4, SERVER4) })
        }
        _ => front.inner_ipv6(Ipv6Repr { hop_limit: hops, traffic_class: class, ..Ipv6Repr::new(CLIENT, SERVER) }),
    };
    front.udp(UdpRepr::new(40_000, 40_001)).payload(b"congested")
}

/// DSCP 46, whose TC is 5.
fn dscp46(ecn: u8) -> u8 {
    0xb8 | ecn
}

/// The packet leaves so, whatever else moves.
#[track_caller]
fn leaves(node: &Golden<'_>, port: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
    let found = node.send(port, frame);
    assert_eq!(found.frame, expected.build(), "{:?}", found.moved);
}

#[track_caller]
fn drops(node: &Golden<'_>, port: &str, frame: &PacketBuilder) {
    let found = node.send(port, frame);
    assert_eq!(found.verdict, Verdict::Drop, "{:?}", found.moved);
    // It may have come to the end of another label before.
    let outcomes: Vec<&str> = found.moved.keys().filter_map(|name| name.strip_prefix("core0 ")).collect();
    assert_eq!(outcomes, ["drop_ecn_not_capable"]);
}

const ON: [(&[Entry], &[Entry]); 21] = [
    // A swap keeps what is there; what comes off in front of it hands its mark on, in either pair.
    (&[(SWAP, 9, 4)], &[(SWAP_TO, 8, 4)]),
    (&[(SWAP, 9, 3), (FURTHER, 7, 4)], &[(SWAP_TO, 8, 3), (FURTHER, 7, 4)]),
    (&[(OWN, 9, 5), (SWAP, 9, 5)], &[(SWAP_TO, 8, 5)]),
    (&[(OWN, 9, 4), (SWAP, 9, 5)], &[(SWAP_TO, 8, 4)]),
    (&[(OWN, 9, 1), (SWAP, 9, 5)], &[(SWAP_TO, 8, 4)]),
    (&[(OWN, 9, 3), (SWAP, 9, 4)], &[(SWAP_TO, 8, 4)]),
    (&[(OWN, 9, 4), (OWN, 9, 5), (SWAP, 9, 0), (FURTHER, 7, 5)], &[(SWAP_TO, 8, 1), (FURTHER, 7, 5)]),
    (&[(INDICATOR, 9, 4), (80_000, 0, 5), (SWAP, 9, 5)], &[(SWAP_TO, 8, 4)]),
    // To the entry behind one that is popped, and no further.
    (&[(POP, 9, 4), (FURTHER, 7, 5)], &[(FURTHER, 7, 4)]),
    (&[(POP, 9, 4), (FURTHER, 7, 0), (FURTHER, 6, 5)], &[(FURTHER, 7, 1), (FURTHER, 6, 5)]),
    (&[(POP, 9, 5), (FURTHER, 7, 4)], &[(FURTHER, 7, 4)]),
    (&[(POP, 9, 3), (FURTHER, 7, 2)], &[(FURTHER, 7, 2)]),
    (&[(OWN, 9, 4), (POP, 9, 2), (FURTHER, 7, 5)], &[(FURTHER, 7, 4)]),
    (&[(ADJACENCY, 9, 1), (FURTHER, 7, 0)], &[(FURTHER, 7, 1)]),
    (&[(FIREWALL, 9, 1), (SWAP, 9, 0)], &[(SWAP_TO, 8, 1)]),
    (&[(FIREWALL, 9, 0), (INDICATOR, 9, 4), (80_000, 0, 5), (SWAP, 9, 0)], &[(SWAP_TO, 8, 1)]),
    // To the labels in its place.
    (&[(COPYING, 9, 4), (FURTHER, 7, 5)], &[(16_002, 8, 4), (16_003, 8, 4), (FURTHER, 7, 5)]),
    (&[(OWN, 9, 1), (COPYING, 9, 5)], &[(16_002, 8, 4), (16_003, 8, 4)]),
    (&[(FIXED, 9, 1), (FURTHER, 7, 0)], &[(99, 8, 4), (FURTHER, 7, 0)]),
    (&[(FIXED, 9, 0)], &[(99, 8, 5)]),
    (&[(UNMARKABLE, 9, 5)], &[(99, 8, 3)]),
];

/// What cannot have a mark does not go on without it.
const LOST: [&[Entry]; 7] = [
    &[(OWN, 9, 4), (SWAP, 9, 3)],
    &[(POP, 9, 1), (FURTHER, 7, 2)],
    &[(POP, 9, 1), (FURTHER, 7, 2), (FURTHER, 6, 5)],
    &[(UNMARKABLE, 9, 4)],
    &[(WIRE, 9, 1)],
    &[(OWN, 9, 4), (WIRE, 9, 0)],
    &[(FIREWALL, 9, 4), (SWAP, 9, 3)],
];

#[test]
#[ignore = "needs root"]
fn a86_marks_are_carried_from_label_to_label() {
    let network = Network::new();
    let node = Golden::load(&network, &configured(PAIRS));
    for (family, ecn) in [(6, 0), (6, 2), (4, 0), (4, 1)] {
        let send = |entries: &[Entry]| packet(arriving("core0"), entries, family, dscp46(ecn), 9);
        for (entries, left) in ON {
            leaves(&node, "core0", &send(entries), &packet(leaving("core1"), left, family, dscp46(ecn), 9));
        }
        let null = if family == 6 { 2 } else { 0 };
        let expected = packet(leaving("core1"), &[(null, 8, 4)], family, dscp46(ecn), 9);
        leaves(&node, "core0", &send(&[(OWN, 9, 1), (NULL, 9, 5)]), &expected);
        for entries in LOST {
            drops(&node, "core0", &send(entries));
        }
        // Behind a header of SIDs the mark is the next label's; the header itself is not ECN capable.
        let found = node.send("core0", &send(&[(TO_SIDS, 9, 4), (FURTHER, 7, 5)]));
        assert_eq!((found.frame[15] >> 4 & 3, found.frame[96] >> 1 & 7), (0, 4), "{:?}", found.moved);
        // In UDP too.
        let found = node.send("core0", &send(&[(IN_UDP, 9, 4), (FURTHER, 7, 5)]));
        assert_eq!((found.frame[15] >> 4 & 3, found.frame[64] >> 1 & 7), (0, 4), "{:?}", found.moved);
        // What comes out of UDP, or of SRv6, that was marked.
        let carried = packet(PacketBuilder::new(), &[(SWAP, 9, 5)], family, dscp46(ecn), 9).build();
        for marked in [0, CE] {
            let outer = |to| Ipv6Repr { traffic_class: marked, ..Ipv6Repr::new(HEADEND, to) };
            let own = "fd00:0:1::1".parse().expect("an address");
            let in_udp =
                |octets: &[u8]| arriving("core0").ipv6(outer(own)).udp(UdpRepr::new(0xc123, 6635)).payload(octets);
            let left = [(SWAP_TO, 8, if marked == CE { 4 } else { 5 })];
            let expected = packet(leaving("core1"), &left, family, dscp46(ecn), 9);
            leaves(&node, "core0", &in_udp(&carried), &expected);
            let in_srv6 = |entries: &[Entry]| {
                packet(arriving("core0").ipv6(outer(local(0x503))), entries, family, dscp46(ecn), 9)
            };
            leaves(&node, "core0", &in_srv6(&[(SWAP, 9, 5)]), &expected);
            if marked == CE {
                let unmarkable = packet(PacketBuilder::new(), &[(SWAP, 9, 3)], family, dscp46(ecn), 9).build();
                // Counted as it came.
                node.drops("UDP", "core0", &in_udp(&unmarkable), "drop_ecn_not_capable");
                node.drops("SRv6", "core0", &in_srv6(&[(SWAP, 9, 3)]), "drop_ecn_not_capable");
            }
        }
    }
    node.finish();
}

/// The stacks whose last label comes off here: by which port, and what the hop limit becomes. `mark`: TC of the first entry.
fn ends(mark: u8, family: u8) -> Vec<(Vec<Entry>, &'static str, u8)> {
    let null = if family == 6 { 2 } else { 0 };
    let hop = if family == 6 { HOP6 } else { HOP4 };
    let plain = if mark == 4 { 5 } else { 0 };
    vec![
        (vec![(POP, 9, mark)], "core1", 9),
        (vec![(TABLE, 9, mark)], "acc1", 8),
        (vec![(hop, 9, mark)], "acc1", 8),
        (vec![(OWN, 9, mark)], "acc1", 8),
        (vec![(null, 9, mark)], "acc1", 8),
        (vec![(OWN, 9, mark), (TABLE, 9, plain)], "acc1", 8),
        (vec![(OWN, 9, mark), (TABLE, 9, 3)], "acc1", 8),
        (vec![(FIREWALL, 9, mark), (TABLE, 9, plain)], "acc1", 8),
        (vec![(FIREWALL, 9, mark)], "acc1", 8),
        (vec![(TABLE, 9, mark), (INDICATOR, 9, plain), (80_000, 0, plain)], "acc1", 8),
        (vec![(TABLE, 9, plain), (INDICATOR, 9, mark), (80_000, 0, plain)], "acc1", 8),
        (vec![(INDICATOR, 9, mark), (80_000, 0, plain)], "acc1", 8),
        (vec![(FIREWALL, 9, plain), (INDICATOR, 9, mark), (80_000, 0, plain)], "acc1", 8),
    ]
}

#[test]
#[ignore = "needs root"]
fn a86_marks_end_in_the_packet() {
    let network = Network::new();
    for pairs in [PAIRS, "}"] {
        let node = Golden::load(&network, &configured(pairs));
        let marks = pairs == PAIRS;
        for (family, ecn) in [(6, 0), (6, 1), (6, 2), (6, 3), (4, 0), (4, 1), (4, 2), (4, 3)] {
            for class in [4, 1, 5, 0, 3] {
                let is_mark = marks && (class == 4 || class == 1);
                for (entries, port, hops) in ends(class, family) {
                    let frame = packet(arriving("core0"), &entries, family, dscp46(ecn), 9);
                    if is_mark && ecn == 0 {
                        drops(&node, "core0", &frame);
                        continue;
                    }
                    let ecn = if is_mark { CE } else { ecn };
                    leaves(&node, "core0", &frame, &packet(leaving(port), &[], family, dscp46(ecn), hops));
                }
                let sids = packet(arriving("core0"), &[(TO_SIDS, 9, class)], family, dscp46(ecn), 9);
                if is_mark && ecn == 0 {
                    drops(&node, "core0", &sids);
                } else {
                    let found = node.send("core0", &sids).frame;
                    let shift = if family == 6 { 4 } else { 0 };
                    let ecn = if is_mark { CE } else { ecn };
                    assert_eq!((found[15] >> 4 & 3, found[95] >> shift & 3), (ecn, ecn));
                }
            }
            // A headend: marked is what has met congestion, and nothing else, whatever its DSCP is. DSCP 32 would be a mark.
            for (dscp, [plain, marked]) in [(46, [5, 4]), (32, [5, 4]), (0, [0, 1]), (8, [0, 1]), (24, [3, 3])] {
                let class = match (marks, ecn) {
                    (false, _) => dscp >> 3,
                    (_, CE) => marked,
                    _ => plain,
                };
                let pushed = if marks && ecn == CE { 4 } else { 5 };
                for (network, left) in [
                    (0xf00, &[(16_002, 64, class), (16_003, 64, class)][..]),
                    (0xf01, &[(99, 8, pushed)]), // uniform, and DSCP 46 by the policy
                ] {
                    let to = |front: PacketBuilder, hops: u8| {
                        let front = match family {
                            4 => front.inner_ipv4(Ipv4Repr {
                                time_to_live: hops,
                                type_of_service: dscp << 2 | ecn,
                                ..Ipv4Repr::new(CLIENT4, [10, 30 + (network - 0xf00) as u8, 0, 7].into())
                            }),
                            _ => front.inner_ipv6(Ipv6Repr {
                                hop_limit: hops,
                                traffic_class: dscp << 2 | ecn,
                                ..Ipv6Repr::new(CLIENT, [0xfd00, 0, network, 0, 0, 0, 0, 7].into())
                            }),
                        };
                        front.udp(UdpRepr::new(1, 2)).payload(b"pushed")
                    };
                    leaves(&node, "acc0", &to(arriving("acc0"), 9), &to(stack(leaving("core1"), left), 8));
                }
            }
        }
        // Without the key labels say nothing of congestion.
        if !marks {
            let frame = packet(arriving("core0"), &[(POP, 9, 4), (FURTHER, 7, 5)], 6, 0, 9);
            leaves(&node, "core0", &frame, &packet(leaving("core1"), &[(FURTHER, 7, 5)], 6, 0, 9));
        }
        node.finish();
    }
}

const AWARE_LABEL: &str = "
  - label: 15050
    behaviour: sr_aware
    next_hop_mac: '02:00:00:00:00:d9'
    proxy: {to_function: aware0, from_function: aware0}
";

/// A function is told of congestion by the packet, and tells of it so; labels that it does not have tell of nothing meanwhile.
#[test]
#[ignore = "needs root"]
fn a86_functions_behind_labels_see_congestion_in_the_packet() {
    let network = Network::new();
    let text = functions("pipe").replacen("ttl: pipe}", &format!("ttl: pipe{PAIRS}"), 1);
    let node = Golden::load(&network, &format!("{}{AWARE_LABEL}", text.trim_end()));
    let sent = [(4, 5), (5, 4), (5, 5), (1, 5), (0, 1), (1, 0)];
    for (family, ecn) in [(6, 0), (6, 1), (6, 2), (6, 3), (4, 0), (4, 1), (4, 2), (4, 3)] {
        for (own, rest) in sent {
            let is_mark = [own, rest].iter().any(|class| [1, 4].contains(class));
            // The rest of the stack as it is without a mark, and with one.
            let [plain, marked] = if [4, 5].contains(&rest) { [5, 4] } else { [0, 1] };
            let to_function = if is_mark { CE } else { ecn };
            for (label, to, from) in [
                (STATIC, "fun0", "fun1"),
                (DYNAMIC, "dyn0", "dyn1"),
                (FLOW, "flow0", "flow0"),
                (AWARE, "aware0", "aware0"),
            ] {
                let entries = [(OWN, 9, 5), (label, 9, own), (SWAP, 64, rest), (FURTHER, 64, plain)];
                for entries in [&entries[..], &entries[1..]] {
                    let frame = packet(arriving("core0"), entries, family, dscp46(ecn), 7);
                    if is_mark && ecn == 0 {
                        drops(&node, "core0", &frame);
                        continue;
                    }
                    let seen: &[Entry] = match label {
                        AWARE => &[(SWAP, 64, if is_mark { plain } else { rest }), (FURTHER, 64, plain)],
                        _ => &[],
                    };
                    leaves(&node, "core0", &frame, &packet(leaving(to), seen, family, dscp46(to_function), 7));
                    // Static: TC is of the packet, and its TTLs too. What comes back may have met congestion meanwhile.
                    let [plain, marked] = if label == STATIC { [5, 4] } else { [plain, marked] };
                    for ecn in [to_function, CE, 2] {
                        let class = if ecn == CE { marked } else { plain };
                        let left = [(SWAP_TO, 63, class), (FURTHER, 64, class)];
                        let hops = if label == AWARE { 7 } else { 6 };
                        let frame = packet(arriving(from), seen, family, dscp46(ecn), 7);
                        leaves(&node, from, &frame, &packet(leaving("core1"), &left, family, dscp46(ecn), hops));
                    }
                }
            }
        }
    }
    // While a function is down, another label takes the place of its own.
    node.node().set_down(segue_model::service_label::label_key(REROUTE), true);
    for class in [4, 5] {
        let frame = packet(arriving("core0"), &[(REROUTE, 9, class), (SWAP, 9, 5)], 6, dscp46(1), 7);
        let ecn = if class == 4 { CE } else { 1 };
        leaves(&node, "core0", &frame, &packet(leaving("dyn0"), &[], 6, dscp46(ecn), 7));
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn a86_many_mutated_packets_with_marks() {
    let network = Network::new();
    let node = Node::load(&network.node, &configured(PAIRS));
    let packets = mutation::packets() / 8;
    let labels = [OWN, OWN, SWAP, POP, NULL, TABLE, COPYING, TO_SIDS, FIXED, WIRE, FIREWALL, IN_UDP, INDICATOR, 2];
    let mut random = Random::new(0x5129);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted = runner.outcomes("core0");
        for _ in 0..packets {
            let entries: Vec<Entry> = (0..1 + random.below(4))
                .map(|_| (*random.pick(&labels), 9, *random.pick(&[0, 1, 4, 5, 5, 3])))
                .collect();
            let family = *random.pick(&[4, 6]);
            let mut frame = packet(arriving("core0"), &entries, family, random.below(256) as u8, 9).build();
            if random.below(2) == 0 {
                mutate(&mut random, &mut frame);
            }
            seen[mutation::send(runner, &mut counted, "core0", &frame, &mut faults) as usize] += 1;
        }
    });
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    let [aborted, dropped, _, _, redirected] = seen;
    assert_eq!(aborted, 0);
    assert!(redirected > packets as u64 / 20 && dropped > packets as u64 / 20, "{seen:?}");
}
