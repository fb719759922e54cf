//! The node's own firewall behind a label: its rules on the packet that is behind the stack.

use std::time::Duration;

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::Random;
use segue_testkit::node::{Moved, Node, Verdict, make_runnable};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

use crate::usual::inner;

const SWAP: u32 = 16_002;
const SWAP_TO: u32 = 17_002;
const POP: u32 = 16_003;
/// To a link whose MTU is 1400.
const NARROW: u32 = 16_005;
const FIREWALL: u32 = 15_040;
const STATEFUL: u32 = 15_041;
/// Another node's.
const FAR: u32 = 70_000;

const LABELS: &str = "
labels:
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - {label: 16003, behaviour: pop, next_hop: 'fd00:0:c1::2'}
  - {label: 16005, behaviour: swap, next_hop: 'fd00:0:c2::2'}
  - {label: 15040, behaviour: firewall, firewall: fw}
  - {label: 15041, behaviour: firewall, firewall: stateful}
";

fn configured(ttl: &str) -> String {
    let rules = |lines: &[&str]| {
        let rules: String = lines.iter().map(|line| format!("-A FORWARD {line}\\n")).collect();
        format!("\"*filter\\n:INPUT ACCEPT\\n:FORWARD ACCEPT\\n:OUTPUT ACCEPT\\n{rules}COMMIT\\n\"")
    };
    let plain = rules(&[
        "-p udp --dport 2 -j DROP",
        "-p udp --dport 3 -j REJECT",
        "-p tcp --dport 4 -j REJECT --reject-with tcp-reset",
        "-p udp --dport 5 -j NFLOG --nflog-group 1 --nflog-size 64",
    ]);
    let state = rules(&["-m conntrack --ctstate ESTABLISHED -j ACCEPT", "-p tcp --dport 80 -j ACCEPT", "-j DROP"]);
    let both = |name: &str, text: &str| {
        format!("  - {{name: {name}, ipv6: {{file: v6, text: {text}}}, ipv4: {{file: v4, text: {text}}}}}\n")
    };
    let firewalls = format!("firewalls:\n{}{}", both("fw", &plain), both("stateful", &state));
    let text = configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n"), 1);
    format!("{text}mpls: {{ttl: {ttl}}}{LABELS}")
}

fn stack(packet: PacketBuilder, entries: &[(u32, u8)]) -> PacketBuilder {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 3,
        ..MplsEntry::default()
    };
    if entries.is_empty() { packet } else { packet.mpls(&entries.iter().map(entry).collect::<Vec<_>>()) }
}

fn six(packet: PacketBuilder, entries: &[(u32, u8)], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv6Repr { hop_limit: hops, ..Ipv6Repr::new(CLIENT, SERVER) };
    stack(packet, entries).inner_ipv6(repr).udp(UdpRepr::new(40_000, port)).payload(b"through rules")
}

fn four(packet: PacketBuilder, entries: &[(u32, u8)], port: u16, hops: u8) -> PacketBuilder {
    let repr = Ipv4Repr { time_to_live: hops, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    stack(packet, entries).inner_ipv4(repr).udp(UdpRepr::new(40_000, port)).payload(b"through rules")
}

/// [`six`] or [`four`].
type Made = fn(PacketBuilder, &[(u32, u8)], u16, u8) -> PacketBuilder;

fn passes(node: &Golden<'_>, case: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
    let found = node.send("core0", frame);
    assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
    assert_eq!(found.frame, expected.build(), "{case}: {:?}", found.moved);
    assert_eq!(found.moved.get("core0 forwarded").map(|(packets, _)| *packets), Some(1), "{case}: {:?}", found.moved);
}

#[test]
#[ignore = "needs root"]
fn rules_hold_behind_a_label() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let sent = [(FIREWALL, 9), (SWAP, 20), (70_000, 30)];
    let left = [(SWAP_TO, 19), (70_000, 30)];
    passes(&node, "IPv6", &six(arriving("core0"), &sent, 1, 7), &six(leaving("core1"), &left, 1, 7));
    passes(&node, "IPv4", &four(arriving("core0"), &sent, 1, 7), &four(leaving("core1"), &left, 1, 7));
    let last = [(FIREWALL, 1)];
    passes(&node, "the last label", &six(arriving("core0"), &last, 1, 7), &six(leaving("acc1"), &[], 1, 6));
    passes(&node, "the last label", &four(arriving("core0"), &last, 1, 7), &four(leaving("acc1"), &[], 1, 6));
    for entries in [&sent[..], &last[..]] {
        for frame in [six(arriving("core0"), entries, 2, 7), four(arriving("core0"), entries, 2, 7)] {
            let found = node.send("core0", &frame);
            assert_eq!(found.verdict, Verdict::Drop, "{:?}", found.moved);
            assert!(found.moved.contains_key("core0 drop_firewall"), "{:?}", found.moved);
        }
        let frame = six(arriving("core0"), entries, 3, 7);
        let found = node.send("core0", &frame);
        assert!(found.moved.contains_key("core0 drop_firewall_rejected"), "{:?}", found.moved);
        assert_eq!(found.frame[54..56], [1, 4], "port unreachable, about the packet without labels");
        let without = six(PacketBuilder::new(), &[], 3, 7).build();
        assert_eq!(found.frame[62..], without[..], "as it came");
    }
    let both = [(FIREWALL, 9), (FIREWALL, 9), (SWAP, 20)];
    passes(&node, "twice", &six(arriving("core0"), &both, 1, 7), &six(leaving("core1"), &[(SWAP_TO, 19)], 1, 7));
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn connections_and_one_ttl_behind_a_label() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("uniform"));
    let frame = six(arriving("core0"), &[(FIREWALL, 40), (SWAP, 20)], 1, 7);
    passes(&node, "TTL", &frame, &six(leaving("core1"), &[(SWAP_TO, 39)], 1, 7));
    let last = six(arriving("core0"), &[(FIREWALL, 40)], 1, 7);
    passes(&node, "TTL, at the end", &last, &six(leaving("acc1"), &[], 1, 39));
    let tcp = |packet: PacketBuilder, entries: &[(u32, u8)], there: bool, flags: u8| {
        let repr = if there { Ipv6Repr::new(CLIENT, SERVER) } else { Ipv6Repr::new(SERVER, CLIENT) };
        let (from, to) = if there { (1000, 80) } else { (80, 1000) };
        stack(packet, entries).inner_ipv6(repr).tcp(TcpRepr::new(from, to, flags))
    };
    let (sent, left) = ([(STATEFUL, 9), (SWAP, 20)], [(SWAP_TO, 8)]);
    let answer = tcp(arriving("core0"), &sent, false, 0x12);
    assert!(node.send("core0", &answer).moved.contains_key("core0 drop_firewall"), "nobody has asked");
    passes(&node, "SYN", &tcp(arriving("core0"), &sent, true, 2), &tcp(leaving("core1"), &left, true, 2));
    passes(&node, "answer", &answer, &tcp(leaving("core1"), &left, false, 0x12));
    node.finish();
}

/// So many labels behind the two that matter: a short stack goes to the firewall and on from it by the usual way on XDP, a longer
/// one does not.
const TAILS: [usize; 3] = [0, 2, 6];

/// The label of the firewall, `next`, and a tail.
fn with_tail(next: &[(u32, u8)], tail: usize) -> Vec<(u32, u8)> {
    let tail = (0..tail).map(|number| (FAR + number as u32, 30));
    next.iter().copied().chain(tail).collect()
}

/// What a packet is counted as that leaves by core1: at the firewall's label with all its labels, then with those behind it.
fn counted(first: u32, next: u32, octets: u64) -> Moved {
    let rows = [(format!("label {first}"), octets), (format!("label {next}"), octets - 4)];
    let forwarded = ("core0 forwarded".to_owned(), octets - 4);
    rows.into_iter().chain([forwarded]).map(|(name, octets)| (name, (1, octets))).collect()
}

#[test]
#[ignore = "needs root"]
fn what_passes_is_the_same_whatever_the_stack_is() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let packets: [Made; 2] = [six, four];
    for (tail, packet) in TAILS.into_iter().flat_map(|tail| packets.map(|packet| (tail, packet))) {
        let send = |next: (u32, u8)| packet(arriving("core0"), &with_tail(&[(FIREWALL, 9), next], tail), 1, 7);
        let expect = |case: &str, next: u32, left: &[(u32, u8)]| {
            let (case, frame) = (format!("{case}, {tail} behind"), send((next, 20)));
            let octets = frame.build().len() as u64 - 14;
            let found = node.send("core0", &frame);
            let expected = packet(leaving("core1"), &with_tail(left, tail), 1, 7).build();
            assert_eq!(found.frame, expected, "{case}: {:?}", found.moved);
            assert_eq!(found.moved, counted(FIREWALL, next, octets), "{case}");
            // With padding behind it, which is cut.
            let padded = [frame.build(), vec![0x99; 40]].concat();
            let found = node.node().send("core0", &padded);
            assert_eq!((found.frame, found.moved), (expected, counted(FIREWALL, next, octets)), "{case}, padded");
        };
        expect("swapped", SWAP, &[(SWAP_TO, 19)]);
        if tail > 0 {
            expect("popped", POP, &[]);
        }
        let ends = |case: &str, next: (u32, u8), outcome: &str, also: &[&str]| {
            let found = node.send("core0", &send(next));
            let moved: Vec<&str> = found.moved.keys().map(String::as_str).collect();
            let outcome = format!("core0 {outcome}");
            let mut expected = [also, &[outcome.as_str()]].concat();
            expected.sort_unstable();
            assert_eq!(moved, expected, "{case}, {tail} behind");
        };
        ends("unknown", (FAR, 20), "drop_label_unknown", &["label 15040"]);
        ends("no TTL", (SWAP, 0), "drop_label_ttl", &["label 15040", "icmp time_exceeded"]);
        ends("its last TTL", (SWAP, 1), "drop_label_ttl", &["label 15040", "icmp time_exceeded"]);
        ends("its last TTL", (POP, 1), "drop_label_ttl", &["label 15040", "icmp time_exceeded"]);
        // As many octets as fit the link behind the label, and one more.
        for (more, fits) in [(0, true), (1, false)] {
            let without = send((NARROW, 20)).build().len() - 18;
            let frame = send((NARROW, 20)).payload(&vec![7; 1400 - without + more]);
            let found = node.send("core0", &frame);
            let outcome = if fits { "core0 forwarded" } else { "core0 drop_too_big" };
            assert!(found.moved.contains_key(outcome), "{more} more, {tail} behind: {:?}", found.moved);
            assert_eq!(found.moved.contains_key("icmp too_big"), !fits, "{:?}", found.moved);
        }
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn answers_and_logs_are_about_the_packet_behind_the_stack() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let mut logs = node.node().inside(|dataplane| dataplane.firewall_log_source().unwrap()).open().unwrap();
    let segment = |front: PacketBuilder, is_six: bool| {
        let front = if is_six {
            front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
        } else {
            front.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
        };
        front.tcp(TcpRepr::new(1000, 4, 2))
    };
    for is_six in [true, false] {
        let mut answers = Vec::new();
        for (tail, pad) in TAILS.into_iter().flat_map(|tail| [(tail, 0), (tail, 40)]) {
            let entries = with_tail(&[(FIREWALL, 9), (SWAP, 20)], tail);
            let padded = |frame: PacketBuilder| [frame.build(), vec![0x99; pad]].concat();
            let found = node.node().send("core0", &padded(segment(stack(arriving("core0"), &entries), is_six)));
            assert!(found.moved.contains_key("icmp tcp_reset"), "{:?}", found.moved);
            let packet = if is_six { six } else { four };
            let refused = node.node().send("core0", &padded(packet(arriving("core0"), &entries, 3, 7)));
            assert!(refused.moved.contains_key("icmp unreachable"), "{:?}", refused.moved);
            assert!(refused.moved.contains_key("core0 drop_firewall_rejected"), "{:?}", refused.moved);
            answers.push((found.frame, refused.frame));
            // The record says where in the frame the packet is, and has what the rule asks for behind the labels.
            let (logged, whole) = (packet(arriving("core0"), &entries, 5, 7), packet(PacketBuilder::new(), &[], 5, 7));
            assert!(node.send("core0", &logged).moved.contains_key("core0 forwarded"));
            let records = logs.read(Duration::from_secs(5)).unwrap();
            let [record] = &records[..] else { panic!("{records:?}") };
            let stack = 4 * entries.len();
            assert_eq!((record.offset, record.family), (14 + stack, if is_six { 6 } else { 4 }));
            assert_eq!(record.bytes.len(), stack + 64.min(14 + whole.build().len()));
            assert!(whole.build().starts_with(&record.bytes[record.offset..]), "{record:?}");
        }
        let first = answers[0].clone();
        assert!(answers.iter().all(|answer| *answer == first), "{answers:x?}");
        let reset = if is_six { &first.0[54..] } else { &first.0[34..] };
        assert_eq!((&reset[..4], reset[13]), (&[0, 4, 3, 232][..], 0x14), "RST and ACK, from the port to the port");
    }
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn connections_are_the_same_behind_any_stack() {
    let network = Network::new();
    let node = Golden::load(&network, &configured("pipe"));
    let tcp = |packet: PacketBuilder, entries: &[(u32, u8)], from: u16, there: bool, flags: u8| {
        let repr = if there { Ipv4Repr::new(CLIENT4, SERVER4) } else { Ipv4Repr::new(SERVER4, CLIENT4) };
        let (from, to) = if there { (from, 80) } else { (80, from) };
        // As segments of one connection, of which the SYN alone has a number before the others'.
        let number = u32::from(flags & 2 == 0);
        let segment = TcpRepr {
            window: 1000,
            sequence_number: number,
            acknowledgment_number: u32::from(flags & 0x10 != 0),
            ..TcpRepr::new(from, to, flags)
        };
        stack(packet, entries).inner_ipv4(repr).tcp(segment)
    };
    for (port, (there, back)) in (1000..).zip([(0, 0), (0, 6), (6, 0), (2, 6)]) {
        let send = |case: &str, is_there: bool, flags: u8| {
            let tail = if is_there { there } else { back };
            let entries = with_tail(&[(STATEFUL, 9), (SWAP, 20)], tail);
            let left = with_tail(&[(SWAP_TO, 19)], tail);
            let frame = tcp(arriving("core0"), &entries, port, is_there, flags);
            passes(&node, case, &frame, &tcp(leaving("core1"), &left, port, is_there, flags));
        };
        let early = tcp(arriving("core0"), &with_tail(&[(STATEFUL, 9), (SWAP, 20)], back), port, false, 0x12);
        assert!(node.send("core0", &early).moved.contains_key("core0 drop_firewall"), "nobody has asked");
        send("SYN", true, 2);
        send("its answer", false, 0x12);
        // Again and again: the verdict is kept.
        for _ in 0..2 {
            send("ACK", true, 0x10);
            send("ACK back", false, 0x10);
        }
    }
    node.finish();
}

/// Conditions on what is read of a packet, of rules that only count. Twice: of a firewall behind a label, and on a port.
const READ: [&str; 16] = [
    "-p udp --sport 0:9999",
    "-p udp --dport 10000:",
    "-p tcp --dport 30000:",
    "-p tcp --tcp-flags ALL FIN",
    "-p tcp --tcp-option 2",
    "-m length --length 0:100",
    "-m length --length 500:1000",
    "-p IPTTL 1:64",
    "-m dscp --dscp 10",
    "-m mac --mac-source 02:00:00:00:00:12",
    "-s SOURCE",
    "-d DESTINATION",
    "-p ICMP",
    "-p FRAGMENT",
    "-p 6",
    "-p 17",
];

/// The firewall's rules of one family.
fn reading(is_six: bool) -> String {
    let lines = READ.iter().map(|condition| {
        let words: [(&str, &str); 5] = if is_six {
            [
                ("-p IPTTL 1:64", "-m hl --hl-lt 64"),
                ("SOURCE", "CLIENT/128"),
                ("DESTINATION", "SERVER/128"),
                ("-p ICMP", "-p icmpv6 --icmpv6-type 128"),
                ("-p FRAGMENT", "-m frag --fragid 0:"),
            ]
        } else {
            [
                ("-p IPTTL 1:64", "-m ttl --ttl-lt 64"),
                ("SOURCE", "CLIENT/32"),
                ("DESTINATION", "SERVER/32"),
                ("-p ICMP", "-p icmp --icmp-type 8"),
                ("-p FRAGMENT", "-f"),
            ]
        };
        let text = words.iter().fold((*condition).to_owned(), |text, (word, meaning)| text.replace(word, meaning));
        let addresses =
            if is_six { (CLIENT.to_string(), SERVER.to_string()) } else { (CLIENT4.to_string(), SERVER4.to_string()) };
        format!("-A FORWARD {}\\n", text.replace("CLIENT", &addresses.0).replace("SERVER", &addresses.1))
    });
    format!("\"*filter\\n:INPUT ACCEPT\\n:FORWARD ACCEPT\\n:OUTPUT ACCEPT\\n{}COMMIT\\n\"", lines.collect::<String>())
}

/// What each of the two firewalls has counted.
fn rules_counted(node: &Node<'_>) -> [Vec<(u64, u64)>; 2] {
    let all = node.firewall_counters();
    ["label", "port"].map(|name| {
        let firewall = all.iter().find(|firewall| firewall.name == name).expect("a firewall");
        firewall.rules.iter().chain(&firewall.policies).map(|rule| (rule.counter.packets, rule.counter.bytes)).collect()
    })
}

/// The same octets behind a label and in by a port, whole and with faults: rules see the same of them, and what is too broken for any
/// rule is so at both.
#[test]
#[ignore = "needs root"]
fn rules_read_a_packet_behind_labels_as_on_a_port() {
    let network = Network::new();
    let firewalls = ["label", "port"].map(|name| {
        format!(
            "  - {{name: {name}, ipv6: {{file: v6, text: {}}}, ipv4: {{file: v4, text: {}}}}}\n",
            reading(true),
            reading(false)
        )
    });
    let text = configuration(DOMAIN)
        .replacen("sids:\n", &format!("firewalls:\n{}sids:\n", firewalls.concat()), 1)
        .replacen("{name: core2, role: core}", "{name: core2, role: core, firewall: port}", 1);
    let labels = LABELS.replace("fw}", "label}").replace("stateful}", "label}");
    let node = Node::load(&network.node, &format!("{text}mpls: {{ttl: pipe}}{labels}"));
    let mut random = Random::new(0xf12e_3a11);
    let (mut judged, mut refused) = (0, 0);
    for _ in 0..600 {
        let mut packet = inner(&mut random, PacketBuilder::new()).build();
        for _ in 0..random.below(3) {
            let at = random.below(packet.len().min(70));
            packet[at] ^= 1 << random.below(8);
        }
        // It ends in its headers, and the frame does not.
        if packet[0] >> 4 == 6 && random.below(4) == 0 {
            packet[4..6].copy_from_slice(&(random.below(24) as u16).to_be_bytes());
        }
        let behind = random.below(8);
        let entries = with_tail(&[(FIREWALL, 9), (SWAP, 20)], behind);
        let ethertype: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let mut by_label = [&stack(arriving("core0"), &entries).build()[..], &packet].concat();
        let mut by_port = [&arriving("core2").build()[..12], &ethertype, &packet].concat();
        [&mut by_label, &mut by_port].into_iter().for_each(make_runnable);
        let before = rules_counted(&node);
        let (label, port) = (node.send("core0", &by_label), node.send("core2", &by_port));
        let after = rules_counted(&node);
        let moved = [0, 1].map(|which| {
            let rules = before[which].iter().zip(&after[which]);
            rules.map(|(before, after)| (after.0 - before.0, after.1 - before.1)).collect::<Vec<_>>()
        });
        let case = || format!("{packet:x?} behind {entries:?}: {:?} and {:?}", label.moved, port.moved);
        if moved[0].iter().any(|counter| *counter != (0, 0)) {
            assert_eq!(moved[0], moved[1], "{}", case());
            judged += 1;
            continue;
        }
        // Else the label may have more to refuse, but not the rules.
        for outcome in ["drop_layer4_header", "drop_too_many_headers", "drop_multi_buffer_header"] {
            if label.moved.contains_key(&format!("core0 {outcome}")) {
                assert!(port.moved.contains_key(&format!("core2 {outcome}")), "{}", case());
                refused += 1;
            }
        }
    }
    assert!(judged > 300 && refused > 3, "{judged} {refused}");
}
