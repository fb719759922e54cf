//! Pseudowires: Ethernet frames behind labels (RFC 4448), with and without a control word (RFC 4385).

use segue_testkit::fixture::{Network, address::*, arriving, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict, in_buffer, make_runnable};
use segue_wire::mpls::MplsEntry;
use segue_wire::{EthernetRepr, Icmpv6Repr, Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, TcpRepr, UdpRepr, VlanRepr};

use crate::labels::{OWN, PATHS, labelled};
use crate::mutation;

/// Frames behind a control word go out of wire0.
const WIRE: u32 = 15_400;
/// Frames without one out of acc0.
const RAW: u32 = 15_401;
const FIREWALL: u32 = 15_402;
const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
const MAIN_TABLE: u32 = 15_100;
/// Into the policy of acc0.
const FAR: u32 = 99;
const ENTROPY_INDICATOR: u32 = 7;

const LABELS: &str = "
  - {label: 15400, behaviour: pseudowire, port: wire0}
  - {label: 15401, behaviour: pseudowire, port: acc0, control_word: false}
  - {label: 15402, behaviour: firewall, firewall: all}
";
/// By core2, of which the MTU is 1400, with an entropy label; and round to a label of this node.
const POLICIES: &str = "policies:
  - {name: wire, mode: PUSH, pseudowire: {}, hop_limit: 255, traffic_class: {dscp: 46}, segment_lists: [{labels: [16002, 15400], next_hop: 'fd00:0:c1::2'}]}
  - {name: raw, mode: PUSH, pseudowire: {control_word: false}, entropy_label: true, segment_lists: [{labels: [99], next_hop: 'fd00:0:c2::2'}]}
  - {name: around, mode: PUSH, pseudowire: {control_word: true}, segment_lists: [{labels: [16001, 15400]}]}
";
const FIREWALLS: &str = "firewalls:
  - {name: all, ipv6: {file: v6, text: \"*filter\\n:FORWARD ACCEPT\\nCOMMIT\\n\"}, ipv4: {file: v4, text: \"*filter\\n:FORWARD ACCEPT\\nCOMMIT\\n\"}}
";

fn configured(ttl: &str) -> String {
    let text = labelled(ttl)
        .replacen("policies:\n", &format!("{FIREWALLS}{POLICIES}"), 1)
        .replacen("l2_policy: l2}", "l2_policy: wire}", 1)
        .replacen("{name: acc0, role: access}", "{name: acc0, role: access, l2_policy: raw}", 1)
        .replacen("{name: acc1, role: access, accept_hmac: true}", "{name: acc1, role: access, l2_policy: around}", 1);
    text + LABELS.trim_start_matches('\n')
}

fn entry(label: u32, traffic_class: u8, time_to_live: u8) -> MplsEntry {
    MplsEntry { label, traffic_class, time_to_live, ..MplsEntry::default() }
}

/// Entries of TC 0 and TTL 9.
fn stack(labels: &[u32]) -> Vec<MplsEntry> {
    labels.iter().map(|label| entry(*label, 0, 9)).collect()
}

/// What a customer sends: plain, with one tag and two, to a group, of a type that nobody knows, with a hop limit of 1, and a packet
/// whose header says more than there is.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let (to, from) = (MacAddress([0x0a, 0, 0, 0, 0, 1]), MacAddress([0x0a, 0, 0, 0, 0, 2]));
    let front = || PacketBuilder::ethernet(from, to);
    let six = |front: PacketBuilder, hops| {
        let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, SERVER) };
        front.ipv6(repr).udp(UdpRepr::new(40_000, 40_001)).payload(b"of a customer").build()
    };
    let tag = |vlan_id| VlanRepr { priority: 5, drop_eligible: true, vlan_id, ethertype: 0x0800 };
    let four = Ipv4Repr::new(CLIENT4, SERVER4);
    let ethernet = |destination, ethertype| {
        PacketBuilder::new().ethernet_repr(EthernetRepr { destination, source: from, ethertype })
    };
    vec![
        ("plain", six(front(), 64)),
        ("hop limit 1", six(front(), 1)),
        ("a tag", front().vlan_repr(tag(7)).ipv4(four.clone()).tcp(TcpRepr::new(1, 80, 2)).build()),
        ("a priority tag", front().vlan_repr(tag(0)).ipv4(four.clone()).tcp(TcpRepr::new(1, 80, 2)).build()),
        ("two tags", front().vlan(7).vlan_repr(tag(8)).ipv4(four).tcp(TcpRepr::new(1, 80, 2)).build()),
        ("broadcast", ethernet(MacAddress::BROADCAST, 0x88b5).payload(&[0x11; 46]).build()),
        ("short", ethernet(to, 0x88b5).payload(&[0x22; 22]).build()),
        ("padded", six(front(), 64).into_iter().chain([0; 9]).collect()),
    ]
}

/// Whether it ends sound for Wireshark is the customer's business: it is shown without what is behind it.
fn behind(front: PacketBuilder, control: &[u8], frame: &[u8]) -> Vec<u8> {
    front.payload(&[control, frame].concat()).build()
}

/// A frame gets the list's labels, TC and TTL of the policy's, and the control word; nothing of it is looked at or changed.
#[test]
#[ignore = "needs root"]
fn a84_frames_get_labels() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let sent = |case: &str, port: &str, frame: &[u8], expected: &dyn Fn(&[u8]) -> Vec<u8>, list: &str| {
        let found = node.node().send(port, frame);
        assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
        assert_eq!(found.frame, expected(&found.frame), "{case}");
        let counted = (1, frame.len() as u64);
        let moved = [(format!("list {list}/0"), counted), (format!("{port} forwarded"), counted)];
        assert_eq!(found.moved, moved.into_iter().collect(), "{case}");
    };
    for (case, frame) in frames() {
        let labels = [entry(SWAP, 5, 255), entry(WIRE, 5, 255)];
        sent(case, "wire0", &frame, &|_| behind(leaving("core1").mpls(&labels), &[0; 4], &frame), "wire");
        // The entropy label is that of the flow, which another test looks at.
        let raw = |found: &[u8]| {
            let entropy = MplsEntry::from_bytes(found[22..26].try_into().expect("an entry"));
            assert!(entropy.label >= 16, "{case}: {entropy:?}");
            let labels = [entry(FAR, 0, 64), entry(ENTROPY_INDICATOR, 0, 64), entry(entropy.label, 0, 0)];
            behind(leaving("core2").mpls(&labels), &[], &frame)
        };
        sent(case, "acc0", &frame, &raw, "raw");
        // Round to a label of this node, and out of a port at once.
        let found = node.node().send("acc1", &frame);
        assert_eq!(found.frame, in_buffer(&frame), "{case}: {:?}", found.moved);
        let names: Vec<&str> = found.moved.keys().map(String::as_str).collect();
        assert_eq!(names, ["acc1 forwarded", "label 15400", "list around/0"], "{case}");
    }
    node.finish();
}

/// A frame that does not fit the link with its labels is dropped; nobody is told.
#[test]
#[ignore = "needs root"]
fn a84_frames_that_do_not_fit() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let frame = |octets: usize| {
        let front = PacketBuilder::ethernet([0x0a, 0, 0, 0, 0, 2], [0x0a, 0, 0, 0, 0, 1]);
        let six = front.ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2));
        six.payload(&vec![7; octets - 14 - 40 - 8]).build()
    };
    // By core2 1400 octets fit, of which three entries take 12; by core1 3000, two and the control word.
    for (port, most) in [("acc0", 1400 - 12), ("wire0", 3000 - 12)] {
        let found = node.node().send(port, &frame(most));
        assert!(found.moved.contains_key(&format!("{port} forwarded")), "{port}: {:?}", found.moved);
        let found = node.node().send(port, &frame(most + 1));
        assert_eq!(found.verdict, Verdict::Drop, "{port}");
        let names: Vec<&String> = found.moved.keys().collect();
        assert_eq!(names, [&format!("{port} drop_too_big")], "{port}");
    }
    // Out of a pseudowire: a tag does not count against the MTU of 1500.
    let out = |octets, labels: &[u32], control: &[u8]| {
        behind(arriving("core0").mpls(&stack(labels)), control, &frame(octets))
    };
    node.leaves("fits", "core0", &out(1518, &[RAW], &[]), &frame(1518), "forwarded", &["label 15401"]);
    node.drops_octets("too big", "core0", &out(1519, &[RAW], &[]), "drop_too_big");
    node.leaves("fits", "core0", &out(1518, &[WIRE], &[0; 4]), &frame(1518), "forwarded", &["label 15400"]);
    node.drops_octets("too big", "core0", &out(1519, &[WIRE], &[0; 4]), "drop_too_big");
    node.finish();
}

/// The end of a pseudowire: the frame goes out of the port as it is, whatever labels of the node and entropy labels were with its
/// label. What the control word says besides that data follows is nothing.
#[test]
#[ignore = "needs root"]
fn a84_frames_come_out_of_labels() {
    for ttl in ["pipe", "uniform"] {
        let network = Network::new();
        let node = Golden::load(&network, &configured(ttl));
        for (label, control) in [(RAW, &[][..]), (WIRE, &[0; 4]), (WIRE, &[0x0f, 0xff, 0x12, 0x34])] {
            let counted = format!("label {label}");
            let entropy = [ENTROPY_INDICATOR, 70_000];
            for labels in [
                vec![label],
                vec![OWN, label],
                [&[label], &entropy[..]].concat(),
                [&entropy, &[label][..]].concat(),
                [&[OWN], &entropy[..], &[label], &entropy].concat(),
            ] {
                for (case, frame) in frames() {
                    let packet = behind(arriving("core0").mpls(&stack(&labels)), control, &frame);
                    let case = format!("{ttl}, {labels:?}, {case}");
                    node.leaves(&case, "core0", &packet, &in_buffer(&frame), "forwarded", &[&counted]);
                }
            }
        }
        // On its way to another node nobody looks behind the labels.
        for (case, frame) in frames() {
            let packet = behind(arriving("core0").mpls(&stack(&[SWAP, WIRE])), &[0; 4], &frame);
            let labels = [entry(SWAP_TO, 0, 8), entry(WIRE, 0, 9)];
            let expected = behind(leaving("core1").mpls(&labels), &[0; 4], &frame);
            node.leaves(case, "core0", &packet, &expected, "forwarded", &["label 16002"]);
        }
        node.finish_with_faults();
    }
}

/// What comes to the label of a pseudowire and is none of its frames.
#[test]
#[ignore = "needs root"]
fn a84_what_is_no_frame_of_a_pseudowire() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let (_, frame) = frames().swap_remove(0);
    let to = |labels: &[u32], control: &[u8]| behind(arriving("core0").mpls(&stack(labels)), control, &frame);
    for first in [2, 3, 4, 6, 0xf] {
        node.drops_octets("no control word", "core0", &to(&[WIRE], &[first << 4, 0, 0, 0]), "drop_control_word");
    }
    let channel = [0x10, 0, 0, 0x21];
    node.drops_octets("VCCV with IPv4", "core0", &to(&[WIRE], &channel), "drop_associated_channel");
    let entropy = [WIRE, ENTROPY_INDICATOR, 70_000];
    node.drops_octets("VCCV behind entropy", "core0", &to(&entropy, &channel), "drop_associated_channel");
    for labels in [&[WIRE, RAW][..], &[RAW, 70_000], &[RAW, ENTROPY_INDICATOR, 70_000, 70_000]] {
        node.drops_octets("a label behind it", "core0", &to(labels, &[0; 4]), "drop_label_bottom");
    }
    node.drops_octets("half an entropy label", "core0", &to(&[RAW, ENTROPY_INDICATOR], &[]), "drop_label_bottom");
    // Ends within the control word, or within the frame's Ethernet header.
    for (label, octets) in [(WIRE, 3), (WIRE, 4), (WIRE, 17), (RAW, 13)] {
        let short = arriving("core0").mpls(&stack(&[OWN, label])).payload(&vec![0; octets]).build();
        node.drops_octets(&format!("{octets} octets"), "core0", &short, "drop_truncated");
    }
    for (label, octets) in [(WIRE, 18), (RAW, 14)] {
        let least = arriving("core0").mpls(&stack(&[OWN, label])).payload(&vec![0; octets]).build();
        node.leaves("only a header", "core0", &least, &[0; 14], "forwarded", &[&format!("label {label}")]);
    }
    // A frame is for the pseudowire of one customer: an access port is no way in for labels, but a way into its own pseudowire.
    let inside = to(&[WIRE], &[0; 4]);
    let found = node.node().send("wire0", &inside);
    let labels = [entry(SWAP, 5, 255), entry(WIRE, 5, 255)];
    assert_eq!(found.frame, behind(leaving("core1").mpls(&labels), &[0; 4], &inside), "{:?}", found.moved);
    node.finish_with_faults();
}

/// The octets of a frame may look like an IP packet. Where the label says that it is none, nothing takes it for one.
#[test]
#[ignore = "needs root"]
fn a84_a_frame_is_no_packet_whatever_it_looks_like() {
    for ttl in ["pipe", "uniform"] {
        let network = Network::new();
        let node = Golden::load(&network, &configured(ttl));
        let six = PacketBuilder::new().ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(1, 2)).payload(&[7; 40]);
        let four = PacketBuilder::new().ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(1, 2)).payload(&[7; 40]);
        for frame in [six.build(), four.build()] {
            let of = |entries: &[MplsEntry]| behind(arriving("core0").mpls(entries), &[], &frame);
            // It goes out as it is, its hop limit too.
            node.leaves("out", "core0", &of(&stack(&[RAW])), &frame, "forwarded", &["label 15401"]);
            // No error about it, by the label itself or one of the node's own above it.
            for entries in [&[entry(RAW, 0, 0)][..], &[entry(OWN, 0, 0), entry(RAW, 0, 9)]] {
                node.drops_octets("TTL 0", "core0", &of(entries), "drop_label_ttl");
            }
            // Nor does a function get it.
            node.drops_octets("firewall", "core0", &of(&stack(&[FIREWALL, RAW])), "drop_inner_type");
            node.drops_octets("firewall", "core0", &of(&stack(&[OWN, FIREWALL, OWN, RAW])), "drop_inner_type");
        }
        // Where another node's label leads away, what is behind it is another node's too: as RFC 3032 says, the packet is looked for.
        let transit = behind(arriving("core0").mpls(&[entry(SWAP, 0, 1), entry(RAW, 0, 9)]), &[], &six.build());
        let found = node.node().send("core0", &transit);
        assert!(found.moved.contains_key("core0 drop_label_ttl"), "{:?}", found.moved);
        assert_eq!(found.moved.get("icmp time_exceeded").map(|moved| moved.0), Some(1), "{:?}", found.moved);
        // And a firewall gets packets, whose label says that they are packets.
        let packet = behind(arriving("core0").mpls(&stack(&[FIREWALL, MAIN_TABLE])), &[], &six.build());
        let found = node.node().send("core0", &packet);
        assert!(found.moved.contains_key("label 15100"), "{:?}", found.moved);
        node.finish_with_faults();
    }
}

/// A control word is no beginning of an IP packet, so that frames of one pseudowire stay on one of several paths.
#[test]
#[ignore = "needs root"]
fn a84_frames_behind_a_control_word_take_one_path() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let mut ways = std::collections::BTreeSet::new();
    for host in 0..32_u8 {
        let front = PacketBuilder::ethernet([0x0a, 0, 0, 0, 0, host], [0x4a, 0, 0, 0, host, 1]);
        let frame =
            front.ipv4(Ipv4Repr::new([10, 1, 0, host].into(), SERVER4)).udp(UdpRepr::new(host.into(), 2)).build();
        let found = node.node().send("core0", &behind(arriving("core0").mpls(&stack(&[PATHS, WIRE])), &[0; 4], &frame));
        assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
        ways.insert(found.frame[..14].to_vec());
    }
    assert_eq!(ways.len(), 1, "{ways:?}");
    node.finish();
}

/// Frames into pseudowires and packets to their labels that went wrong: one outcome each, which fits the verdict.
#[test]
#[ignore = "needs root"]
fn many_mutated_packets_of_pseudowires() {
    let network = Network::new();
    let node = Node::load(&network.node, &configured("uniform"));
    let packets = mutation::packets() / 3;
    let labels = [WIRE, WIRE, WIRE, RAW, RAW, OWN, FIREWALL, ENTROPY_INDICATOR, SWAP, MAIN_TABLE, 70_000];
    let controls: [&[u8]; 5] = [&[], &[0; 4], &[0; 4], &[0x10, 0, 0, 7], &[0x60, 0, 0, 0]];
    let mut random = Random::new(0x4448);
    let mut faults = mutation::Faults::new();
    let (mut seen, mut out) = ([0_u64; 5], 0_u64);
    node.run_many(|runner| {
        let ports = ["core0", "wire0", "acc0", "acc1"];
        let mut counted: Vec<Vec<u64>> = ports.iter().map(|port| runner.outcomes(port)).collect();
        for _ in 0..packets {
            let (_, mut frame) = frames().swap_remove(random.below(8));
            let port = if random.below(4) == 0 { 1 + random.below(3) } else { 0 };
            if port == 0 {
                let ttl = |random: &mut Random| *random.pick(&[0, 1, 64, 64]);
                let entries: Vec<MplsEntry> = (0..1 + random.below(4))
                    .map(|_| entry(*random.pick(&labels), random.below(8) as u8, ttl(&mut random)))
                    .collect();
                let control = *random.pick(&controls);
                frame = behind(arriving("core0").mpls(&entries), control, &frame);
            }
            if random.below(3) != 0 {
                mutate(&mut random, &mut frame);
                make_runnable(&mut frame);
            }
            let verdict = mutation::send(runner, &mut counted[port], ports[port], &frame, &mut faults);
            seen[verdict as usize] += 1;
            out += u64::from(port == 0 && verdict == Verdict::Redirect);
        }
    });
    println!("{packets} packets: {seen:?}, {out} out of the core");
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    let [aborted, dropped, ..] = seen;
    assert_eq!(aborted, 0);
    assert!(out > packets as u64 / 20 && dropped > packets as u64 / 20, "{seen:?}, {out}");
}

/// Errors about packets in the core are not sent into pseudowires: nothing here makes one; but what a customer sends about it is his.
#[test]
#[ignore = "needs root"]
fn a84_errors_of_customers_are_carried_as_they_are() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let front = PacketBuilder::ethernet([0x0a, 0, 0, 0, 0, 2], [0x0a, 0, 0, 0, 0, 1]);
    let packet = PacketBuilder::new().ipv6(Ipv6Repr::new(CLIENT, local(1))).udp(UdpRepr::new(1, 2)).build();
    let error = front.ipv6(Ipv6Repr::new(SERVER, local(1))).icmpv6(Icmpv6Repr::PacketTooBig { mtu: 1300, packet });
    let frame = error.build();
    let labels = [entry(SWAP, 5, 255), entry(WIRE, 5, 255)];
    let found = node.node().send("wire0", &frame);
    assert_eq!(found.frame, behind(leaving("core1").mpls(&labels), &[0; 4], &frame), "{:?}", found.moved);
    node.finish_with_faults();
}
