//! Binding labels (RFC 8402 section 5), and chains that cross between labels and SRv6: End.BM (RFC 8986 section 4.15), End.DTM and
//! H.Encaps.M (draft-ietf-spring-srv6-mpls-interworking).

use segue_testkit::fixture::{Network, address::*, arriving, function::END, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Icmpv6Repr, Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

use crate::labels::{OWN, labelled};
use crate::mutation;

const TO_LABELS: u32 = 15_300;
const TO_SIDS: u32 = 15_301;
const TO_HERE: u32 = 15_302;
const TO_NARROW: u32 = 15_303;
const TO_ENTROPY: u32 = 15_304;
const TO_NOTHING: u32 = 15_305;
const TO_ONE_SID: u32 = 15_306;
const SWAP_TO: u32 = 17_002;
const MAIN_TABLE: u32 = 15_100;
/// End.BM and End.DTM of the node: `fc00:0:1:FUNCTION::/64`.
const END_BM: u16 = 0x501;
const END_BM_NARROW: u16 = 0x502;
const END_DTM: u16 = 0x503;
/// The source of what the node encapsulates.
const SELF: &str = "fd00:0:1::1";

const LABELS: &str = "
  - {label: 15300, behaviour: binding, policy: push2}
  - {label: 15301, behaviour: binding, policy: reduced}
  - {label: 15302, behaviour: binding, policy: here}
  - {label: 15303, behaviour: binding, policy: push-narrow}
  - {label: 15304, behaviour: binding, policy: entropy}
  - {label: 15305, behaviour: binding, policy: nothing}
  - {label: 15306, behaviour: binding, policy: one}
";
const POLICIES: &str = "policies:
  - {name: here, mode: PUSH, segment_lists: [{labels: [16001, 16002]}]}
  - {name: entropy, mode: PUSH, entropy_label: true, traffic_class: {dscp: 46}, segment_lists: [{labels: [99], next_hop: 'fd00:0:c1::2'}]}
  - {name: nothing, mode: PUSH, segment_lists: []}
  - {name: bound, mode: PUSH, binding_sid: 'fc00:0:1:504::', segment_lists: [{labels: [98], next_hop: 'fd00:0:c1::2'}]}
";
const SIDS: &str = "sids:
  - {sid: 'fc00:0:1:501::/64', behaviour: End.BM, policy: push2}
  - {sid: 'fc00:0:1:502::/64', behaviour: End.BM, policy: push-narrow}
  - {sid: 'fc00:0:1:503::/64', behaviour: End.DTM}
";

fn configured(ttl: &str) -> String {
    let inner = format!("ttl: {ttl}, allow_inner_sid: true}}");
    let text = labelled(ttl).replacen("policies:\n", POLICIES, 1).replacen("sids:\n", SIDS, 1);
    text.replacen(&format!("ttl: {ttl}}}"), &inner, 1) + LABELS.trim_start_matches('\n')
}

/// Entries of TC 5 with their TTLs.
fn stack(labels: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 5,
        ..MplsEntry::default()
    };
    labels.iter().map(entry).collect()
}

fn six(front: PacketBuilder, hops: u8) -> PacketBuilder {
    front
        .inner_ipv6(Ipv6Repr { hop_limit: hops, traffic_class: 0xb8, ..Ipv6Repr::new(CLIENT, SERVER) })
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(b"bound")
}

fn four(front: PacketBuilder, hops: u8) -> PacketBuilder {
    front
        .inner_ipv4(Ipv4Repr { time_to_live: hops, type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, SERVER4) })
        .udp(UdpRepr::new(40_000, 40_001))
        .payload(b"bound")
}

/// A list of labels takes the label's place, wherever in the stack that is; TTL and TC go on.
#[test]
#[ignore = "needs root"]
fn a83_a_list_of_labels_in_place_of_a_binding_label() {
    for ttl in ["pipe", "uniform"] {
        let network = Network::new();
        let node = Golden::load(&network, &configured(ttl));
        let bound = [(16_002, 20), (16_003, 20)];
        for behind in [&[][..], &[(70_000, 9)], &[(70_000, 9), (70_001, 8)]] {
            for own in 0..2 {
                let labels = std::iter::repeat_n((OWN, 21), own).chain([(TO_LABELS, 21)]).chain(behind.iter().copied());
                let labels: Vec<(u32, u8)> = labels.collect();
                let after: Vec<(u32, u8)> = bound.into_iter().chain(behind.iter().copied()).collect();
                let counted = ["label 15300", "list push2/0"];
                let case = format!("{ttl}, {own} own, {} behind", behind.len());
                let frame = six(arriving("core0").mpls(&stack(&labels)), 9);
                node.forwards(&case, "core0", &frame, &six(leaving("core1").mpls(&stack(&after)), 9), &counted);
                let frame = four(arriving("core0").mpls(&stack(&labels)), 9);
                node.forwards(&case, "core0", &frame, &four(leaving("core1").mpls(&stack(&after)), 9), &counted);
            }
        }
        // The list begins with a label of the node's own: it goes on here, and the TTL is lowered once.
        let frame = six(arriving("core0").mpls(&stack(&[(TO_HERE, 21), (70_000, 9)])), 9);
        let expected = six(leaving("core1").mpls(&stack(&[(SWAP_TO, 20), (70_000, 9)])), 9);
        let found = node.send("core0", &frame);
        assert_eq!(found.frame, expected.build(), "{:?}", found.moved);
        // One more label than came: an entropy label in the middle of a stack, with the policy's TC.
        let frame = six(arriving("core0").mpls(&stack(&[(TO_ENTROPY, 21), (70_000, 9)])), 9);
        let found = node.send("core0", &frame);
        let entropy = MplsEntry::from_bytes(found.frame[22..26].try_into().expect("an entry"));
        assert!(entropy.label >= 16, "{entropy:?}");
        let expected = stack(&[(99, 20), (7, 20), (entropy.label, 0), (70_000, 9)]);
        assert_eq!(found.frame, six(leaving("core1").mpls(&expected), 9).build(), "{:?}", found.moved);
        node.finish();
    }
}

#[test]
#[ignore = "needs root"]
fn a83_a_binding_label_that_leads_nowhere() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let frame = |labels: &[(u32, u8)]| six(arriving("core0").mpls(&stack(labels)), 9);
    node.drops("no list", "core0", &frame(&[(TO_NOTHING, 21)]), "drop_policy_invalid");
    for label in [TO_LABELS, TO_SIDS, TO_HERE] {
        let found = node.send("core0", &frame(&[(label, 1), (70_000, 9)]));
        assert!(found.moved.contains_key("core0 drop_label_ttl"), "{:?}", found.moved);
        assert_eq!(found.frame[54..56], [3, 0], "Time Exceeded");
    }
    let big = |labels: &[(u32, u8)], octets: usize| {
        let repr = Ipv6Repr::new(CLIENT, SERVER);
        arriving("core0").mpls(&stack(labels)).inner_ipv6(repr).udp(UdpRepr::new(1, 2)).payload(&vec![7; octets - 48])
    };
    // The link has an MTU of 1400.
    let found = node.send("core0", &big(&[(TO_NARROW, 9), (70_000, 9)], 1393));
    assert!(found.moved.contains_key("core0 drop_too_big"), "{:?}", found.moved);
    assert_eq!((&found.frame[54..56], &found.frame[58..62]), (&[2, 0][..], &1392_u32.to_be_bytes()[..]));
    let found = node.send("core0", &big(&[(TO_NARROW, 9), (70_000, 9)], 1392));
    assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
    // Behind core1 3000 octets fit, of which an IPv6 header and an SRH of two segments take 80, and the label 4.
    for (octets, fits) in [(2917, false), (2916, true)] {
        let found = node.send("core0", &big(&[(TO_SIDS, 9), (70_000, 9)], octets));
        let outcome = if fits { "core0 forwarded" } else { "core0 drop_too_big" };
        assert!(found.moved.contains_key(outcome), "{octets}: {:?}", found.moved);
        if !fits {
            assert_eq!((&found.frame[54..56], &found.frame[58..62]), (&[2, 0][..], &2916_u32.to_be_bytes()[..]));
        }
    }
    node.finish();
}

/// A list of SIDs goes in front of the rest of the stack, or if nothing is left of it, of the packet.
#[test]
#[ignore = "needs root"]
fn a83_a_list_of_sids_in_place_of_a_binding_label() {
    for ttl in ["pipe", "uniform"] {
        let network = Network::new();
        let node = Golden::load(&network, &configured(ttl));
        let path = [behind_core1(0xa), behind_core1(0xb), behind_core1(0xc)];
        let counted = ["label 15301", "list reduced/0"];
        let outer = |found: &[u8], class: u8| {
            let flow_label = u32::from_be_bytes([0, found[15] & 15, found[16], found[17]]);
            let source = SELF.parse().expect("an address");
            Ipv6Repr { hop_limit: 64, traffic_class: class, flow_label, ..Ipv6Repr::new(source, path[0]) }
        };
        let own = [(OWN, 21), (TO_SIDS, 21)];
        for labels in [&own[..], &own[1..]] {
            let frame = six(arriving("core0").mpls(&stack(labels)), 9);
            let found = node.send("core0", &frame).frame;
            let hops = if ttl == "pipe" { 8 } else { 20 };
            let front = leaving("core1").ipv6(outer(&found, 0xb8)).srh(SrhRepr::reduced(&path));
            node.forwards("IPv6", "core0", &frame, &six(front, hops), &counted);
            let frame = four(arriving("core0").mpls(&stack(labels)), 9);
            let found = node.send("core0", &frame).frame;
            let front = leaving("core1").ipv6(outer(&found, 0xb8)).srh(SrhRepr::reduced(&path));
            node.forwards("IPv4", "core0", &frame, &four(front, hops), &counted);
            // H.Encaps.M: the rest of the stack is in it.
            let rest = [(70_000, 9), (70_001, 8)];
            let all: Vec<(u32, u8)> = labels.iter().copied().chain(rest).collect();
            let frame = six(arriving("core0").mpls(&stack(&all)), 9);
            let found = node.send("core0", &frame).frame;
            let handed = if ttl == "pipe" { 9 } else { 20 };
            let front = leaving("core1").ipv6(outer(&found, 0xa0)).srh(SrhRepr::reduced(&path));
            let expected = six(front.mpls(&stack(&[(70_000, handed), (70_001, 8)])), 9);
            node.forwards("labels", "core0", &frame, &expected, &counted);
        }
        // Without an SRH the IPv6 header says what follows.
        let frame = six(arriving("core0").mpls(&stack(&[(TO_ONE_SID, 21), (70_000, 9)])), 9);
        let found = node.send("core0", &frame).frame;
        let of = Ipv6Repr { hop_limit: 33, ..outer(&found, 0xa0) };
        let front = leaving("core1").ipv6(Ipv6Repr { source: "fd00:0:1::5".parse().expect("an address"), ..of });
        let handed = if ttl == "pipe" { 9 } else { 20 };
        let expected = six(front.mpls(&stack(&[(70_000, handed)])), 9);
        node.forwards("no SRH", "core0", &frame, &expected, &["label 15306", "list one/0"]);
        // A packet with no hops left is told so.
        if ttl == "pipe" {
            let found = node.send("core0", &six(arriving("core0").mpls(&stack(&[(TO_SIDS, 21)])), 1));
            assert!(found.moved.contains_key("core0 drop_hop_limit_exceeded"), "{:?}", found.moved);
            assert_eq!(found.frame[54..56], [3, 0], "Time Exceeded");
        }
        node.finish();
    }
}

fn srv6(front: PacketBuilder, first: std::net::Ipv6Addr, hops: u8, srh: SrhRepr) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit: hops, traffic_class: 0xb8, ..Ipv6Repr::new(HEADEND, first) };
    six(front.ipv6(repr).srh(srh), 9)
}

/// End.BM: the packet goes on to its next segment behind the policy's labels; where they end it goes on by itself.
#[test]
#[ignore = "needs root"]
fn a83_labels_in_front_of_an_srv6_packet() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let [next, last] = [behind_core1(0xa), behind_core1(0xb)];
    for (function, sid, labels, list) in [
        (END_BM, "sid fc00:0:1:501::/64", &[(16_002, 64), (16_003, 64)][..], "list push2/0"),
        (0x504, "sid fc00:0:1:504::/128", &[(98, 64)], "list bound/0"),
    ] {
        let srh = SrhRepr::new(&[local(function), next, last]);
        let frame = srv6(arriving("core0"), local(function), 9, srh.clone());
        let expected = srv6(leaving("core1").mpls(&stack(labels)), next, 8, srh.clone().with_segments_left(1));
        node.forwards("End.BM", "core0", &frame, &expected, &[sid, list]);
        let frame = srv6(arriving("core0"), local(function), 1, srh.clone());
        let found = node.send("core0", &frame);
        assert!(found.moved.contains_key("core0 drop_hop_limit_exceeded"), "{:?}", found.moved);
        // Without a next segment there is nothing to bind.
        let frame = srv6(arriving("core0"), local(function), 9, srh.with_segments_left(0));
        let found = node.send("core0", &frame);
        assert!(found.moved.contains_key("core0 drop_upper_layer"), "{:?}", found.moved);
    }
    // Its errors are about the packet as it came, with the MTU of the link less the labels.
    let srh = SrhRepr::new(&[local(END_BM_NARROW), next]);
    let big = |front: PacketBuilder, octets: usize| {
        let outer = Ipv6Repr::new(HEADEND, local(END_BM_NARROW));
        let front = front.ipv6(outer).srh(srh.clone()).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER));
        front.udp(UdpRepr::new(1, 2)).payload(&vec![7; octets - 40 - 40 - 48])
    };
    let frame = big(arriving("core0"), 1397);
    let quote = Icmpv6Repr::quote(&frame.build()[14..]).to_vec();
    let reply = leaving("core0")
        .ipv6(Ipv6Repr { hop_limit: 64, ..Ipv6Repr::new(SELF.parse().expect("an address"), HEADEND) })
        .icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1396, packet: quote });
    node.answers("too big", "core0", &frame, "drop_too_big", "too_big", &reply);
    // Where the labels end, the packet goes by its destination, which is a SID: also of this node.
    let srh = SrhRepr::new(&[next, last]);
    for labels in [&[(MAIN_TABLE, 9)][..], &[(OWN, 9)], &[(16_003, 9)]] {
        let frame = srv6(arriving("core0").mpls(&stack(labels)), next, 9, srh.clone());
        let hops = if labels[0].0 == 16_003 { 9 } else { 8 };
        let expected = srv6(leaving("core1"), next, hops, srh.clone());
        let label = format!("label {}", labels[0].0);
        node.forwards("on by the SID", "core0", &frame, &expected, &[&label]);
    }
    let srh = SrhRepr::new(&[local(END), next]);
    let frame = srv6(arriving("core0").mpls(&stack(&[(MAIN_TABLE, 9)])), local(END), 9, srh.clone());
    let found = node.send("core0", &frame);
    assert_eq!(found.frame, srv6(leaving("core1"), next, 7, srh.with_segments_left(0)).build(), "{:?}", found.moved);
    node.finish();
}

/// End.DTM: what is in the packet goes on by its labels.
#[test]
#[ignore = "needs root"]
fn a83_a_packet_with_labels_comes_out_of_srv6() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let outer = Ipv6Repr { traffic_class: 0xb8, ..Ipv6Repr::new(HEADEND, local(END_DTM)) };
    let used = SrhRepr::new(&[local(END), local(END_DTM)]).with_segments_left(0);
    for case in ["no SRH", "used SRH"] {
        let front = || {
            let front = arriving("core0").ipv6(outer);
            if case == "no SRH" { front } else { front.srh(used.clone()) }
        };
        let labels = stack(&[(OWN, 9), (16_002, 9), (70_000, 9)]);
        let expected = six(leaving("core1").mpls(&stack(&[(SWAP_TO, 8), (70_000, 9)])), 9);
        let counted = ["sid fc00:0:1:503::/64", "label 16002"];
        let found = node.send("core0", &six(front().mpls(&labels), 9));
        assert_eq!(found.frame, expected.build(), "{case}: {:?}", found.moved);
        assert!(counted.iter().all(|name| found.moved.contains_key(*name)), "{case}: {:?}", found.moved);
        for (family, short) in [(6, false), (4, true)] {
            let front = front().mpls(&stack(&[(MAIN_TABLE, 9)]));
            let (frame, expected) = match (family, short) {
                (6, _) => (six(front, 9), six(leaving("acc1"), 8)),
                _ => (four(front, 9), four(leaving("acc1"), 8)),
            };
            let found = node.send("core0", &frame);
            assert_eq!(found.frame, expected.build(), "{case}, IPv{family}: {:?}", found.moved);
        }
    }
    // No labels are in it, or segments are left.
    let found = node.send("core0", &six(arriving("core0").ipv6(outer), 9));
    assert!(found.moved.contains_key("core0 drop_upper_layer"), "{:?}", found.moved);
    let left = SrhRepr::new(&[local(END_DTM), behind_core1(0xa)]);
    let found = node.send("core0", &six(arriving("core0").ipv6(outer).srh(left).mpls(&stack(&[(OWN, 9)])), 9));
    assert!(found.moved.contains_key("core0 drop_segments_left"), "{:?}", found.moved);
    let found = node.send("core0", &arriving("core0").ipv6(outer).mpls(&stack(&[(OWN, 9)])).payload(&[]));
    assert!(found.moved.keys().any(|name| name.starts_with("core0 drop_")), "{:?}", found.moved);
    node.finish();
}

/// Packets to binding labels, End.BM and End.DTM that went wrong: one outcome each, which fits the verdict.
#[test]
#[ignore = "needs root"]
fn many_mutated_packets_between_labels_and_srv6() {
    let network = Network::new();
    let node = Node::load(&network.node, &configured("uniform"));
    let packets = mutation::packets();
    let labels =
        [TO_LABELS, TO_SIDS, TO_HERE, TO_NARROW, TO_ENTROPY, TO_NOTHING, TO_ONE_SID, OWN, 7, 7, MAIN_TABLE, 70_000, 2];
    let functions = [END, END_BM, END_BM_NARROW, END_DTM, END_DTM];
    let mut random = Random::new(0x1abe_1001);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted = runner.outcomes("core0");
        for _ in 0..packets {
            let count = 1 + random.below(4);
            let entries: Vec<(u32, u8)> =
                (0..count).map(|_| (*random.pick(&labels), *random.pick(&[0_u8, 1, 2, 64, 255]))).collect();
            let path = [local(*random.pick(&functions)), local(*random.pick(&functions)), behind_core1(1)];
            let left = random.below(3) as u8;
            let first = Ipv6Repr::new(HEADEND, path[2 - usize::from(left)]);
            let front = match random.below(3) {
                0 => arriving("core0").ipv6(first).srh(SrhRepr::new(&path).with_segments_left(left)),
                1 => arriving("core0")
                    .mpls(&stack(&entries))
                    .ipv6(first)
                    .srh(SrhRepr::new(&path).with_segments_left(left)),
                _ => arriving("core0"),
            };
            let front = if random.below(4) == 0 { front } else { front.mpls(&stack(&entries)) };
            let mut frame = if random.below(2) == 0 { six(front, 7) } else { four(front, 7) }.build();
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
