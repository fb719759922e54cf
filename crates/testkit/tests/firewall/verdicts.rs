//! Verdicts that the data plane keeps in front of rules on connections: each packet is judged and counted as if there were none.
//! The packets of a test come several times, so that those which may be kept are.

use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration};
use segue_testkit::node::{Node, Verdict};
use segue_wire::{FragmentRepr, Icmpv6Repr, Ipv6Repr, PacketBuilder, SrhRepr, TcpRepr, UdpRepr};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// SIDs of two firewalls.
const ONE: u16 = 0xa1;
const OTHER: u16 = 0xa2;

/// Sends of each packet.
const TIMES: u64 = 4;

fn document(one: &[&str], other: &[&str]) -> String {
    let firewall = |name: &str, rules: &[&str]| {
        let text = format!("*filter\\n:FORWARD DROP [0:0]\\n:more - [0:0]\\n{}\\nCOMMIT\\n", rules.join("\\n"));
        format!("  - {{name: {name}, ipv6: {{file: v6, text: \"{text}\"}}, conntrack: {{entries: 64}}}}\n")
    };
    let sids = "  - {sid: 'fc00:0:1:a1::/64', behaviour: End.AN, firewall: one}\n  - {sid: 'fc00:0:1:a2::/64', behaviour: End.AN, firewall: other}\n";
    let firewalls = format!("firewalls:\n{}{}", firewall("one", one), firewall("other", other));
    configuration(DOMAIN).replacen("sids:\n", &format!("{firewalls}sids:\n{sids}"), 1)
}

fn steered(sid: u16, forward: bool) -> PacketBuilder {
    let srh = SrhRepr::new(&[local(sid), behind_core1(0xa), behind_core1(0xb)]);
    let inner = if forward { Ipv6Repr::new(CLIENT, SERVER) } else { Ipv6Repr::new(SERVER, CLIENT) };
    arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(sid))).srh(srh).inner_ipv6(inner)
}

fn udp(sid: u16, forward: bool, client: u16) -> Vec<u8> {
    let (from, to) = if forward { (client, 53) } else { (53, client) };
    steered(sid, forward).udp(UdpRepr::new(from, to)).payload(b"a name").build()
}

fn tcp(client: u16, forward: bool, flags: u8, numbers: (u32, u32)) -> Vec<u8> {
    let (from, to) = if forward { (client, 80) } else { (80, client) };
    let header = TcpRepr {
        sequence_number: numbers.0,
        acknowledgment_number: numbers.1,
        window: 60_000,
        ..TcpRepr::new(from, to, flags)
    };
    steered(ONE, forward).tcp(header).build()
}

/// Packets that each rule of the first firewall has counted, and in the end those that passed, for TIMES sends of the packet.
fn sent(node: &Node<'_>, packet: &[u8]) -> Vec<u64> {
    let count = || -> Vec<(u64, u64)> {
        let counters = node.firewall_counters();
        counters[0].rules.iter().map(|rule| (rule.counter.packets, rule.counter.bytes)).collect()
    };
    let before = count();
    let passed = node
        .run_many(|runner| (0..TIMES).filter(|_| runner.run("core0", packet).0 == Verdict::Redirect).count() as u64);
    let octets = (packet.len() - 14 - 40 - 56) as u64;
    let mut moved: Vec<u64> = Vec::new();
    for (before, after) in before.iter().zip(count()) {
        assert_eq!(after.1 - before.1, (after.0 - before.0) * octets, "octets and packets");
        moved.push(after.0 - before.0);
    }
    moved.push(passed);
    moved
}

const ALL: u64 = TIMES;
const STATES: [&str; 3] = [
    "-A FORWARD -m conntrack --ctstate INVALID -j DROP",
    "-A FORWARD -m conntrack --ctstate NEW -j ACCEPT",
    "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT",
];
const NEW: [u64; 4] = [0, ALL, 0, ALL];
const ESTABLISHED: [u64; 4] = [0, 0, ALL, ALL];
const INVALID: [u64; 4] = [ALL, 0, 0, 0];

#[test]
#[ignore = "needs root"]
fn an_answer_an_eviction_and_other_rules_are_seen_at_once() {
    let network = Network::new();
    let mut node = Node::load(&network.node, &document(&STATES, &[]));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), NEW, "a question, again and again");
    assert_eq!(sent(&node, &udp(ONE, false, 1)), ESTABLISHED, "its answers");
    assert_eq!(sent(&node, &udp(ONE, true, 1)), ESTABLISHED, "it has been answered");
    assert_eq!(sent(&node, &udp(OTHER, true, 1)), [0, 0, 0, 0], "another firewall, without rules");
    // What was answered is worth least: so many beginnings push it out of both its buckets.
    let flood: Vec<Vec<u8>> = (2..400).map(|client| udp(ONE, true, client)).collect();
    let flood = |runner: &mut segue_testkit::node::Runner<'_>| {
        flood.iter().for_each(|packet| {
            runner.run("core0", packet);
        })
    };
    node.run_many(flood);
    assert!(node.connections().iter().all(|(_, entry)| entry.key.ports & 0xffff != 1 && entry.key.ports >> 16 != 1));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), NEW, "nobody remembers the answer");
    assert_eq!(sent(&node, &udp(ONE, false, 1)), ESTABLISHED);
    node.apply(&document(&STATES[..2], &[]));
    assert_eq!(sent(&node, &udp(ONE, false, 1)), [0, 0, 0], "the rule is gone");
    assert_eq!(sent(&node, &udp(ONE, true, 1)), [0, 0, 0]);
    node.apply(&document(&STATES, &[]));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), ESTABLISHED, "and there again");
    // Packets of one flow that differ.
    let cut = |mut packet: Vec<u8>| {
        packet[14 + 40 + 56 + 40 + 5] += 1; // a UDP Length beyond the packet
        packet
    };
    assert_eq!(sent(&node, &cut(udp(ONE, true, 1))), INVALID);
    assert_eq!(sent(&node, &udp(ONE, true, 1)), ESTABLISHED);
}

/// Two tenants with a firewall each, whose hosts have the same addresses and ports: what one has said, and what is kept of it on this
/// CPU, is nothing to the other, also if that one forges answers and errors about it.
#[test]
#[ignore = "needs root"]
fn a_neighbours_connection_is_nothing_here() {
    let network = Network::new();
    let rules = [STATES[0], STATES[1], "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"];
    let mut node = Node::load(&network.node, &document(&rules, &rules));
    let neighbour = |node: &Node<'_>| {
        let talk = [udp(OTHER, true, 1), udp(OTHER, false, 1), udp(OTHER, true, 1)];
        node.run_many(|runner| {
            let mut run = || talk.iter().filter(|packet| runner.run("core0", packet).0 == Verdict::Redirect).count();
            assert_eq!((0..TIMES).map(|_| run()).sum::<usize>() as u64, TIMES * 3);
        });
    };
    let error = || {
        let quoted = PacketBuilder::new().ipv6(Ipv6Repr::new(CLIENT, SERVER));
        let quoted = quoted.udp(UdpRepr::new(1, 53)).payload(b"a name").build();
        let message = Icmpv6Repr::DestinationUnreachable { code: 4, packet: quoted };
        steered(ONE, false).icmpv6(message).build()
    };
    neighbour(&node);
    assert_eq!(sent(&node, &error()), INVALID, "about the neighbour's connection");
    assert_eq!(sent(&node, &udp(ONE, false, 1)), NEW, "an answer to the neighbour's question");
    neighbour(&node);
    assert_eq!(sent(&node, &udp(ONE, false, 1)), NEW, "the neighbour's answer is none here");
    assert_eq!(sent(&node, &udp(ONE, true, 1)), ESTABLISHED, "one of its own");
    // It went out the other way, so an error about it is one about the answer that went to the client's port.
    assert_eq!(sent(&node, &error()), ESTABLISHED, "about its own connection");
    // The neighbour's rules change: its verdicts end, and these do not.
    node.apply(&document(&rules, &rules[..1]));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), ESTABLISHED);
    let closed = node.run("core0", &udp(OTHER, true, 1)).0;
    assert_eq!(closed, Verdict::Drop, "a verdict that was kept under the old rules");
}

#[test]
#[ignore = "needs root"]
fn segments_are_judged_by_their_windows_and_flags() {
    let network = Network::new();
    let mut rules = STATES.to_vec();
    rules[2] = "-A FORWARD -p tcp -m tcp --tcp-flags PSH PSH -m conntrack --ctstate ESTABLISHED -j ACCEPT";
    rules.push("-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT");
    let mut node = Node::load(&network.node, &document(&rules, &[]));
    let ack = tcp(1, true, ACK, (1001, 5001));
    let once = |packet: Vec<u8>| node.run_many(|runner| runner.run("core0", &packet).0 == Verdict::Redirect);
    assert!(once(tcp(1, true, SYN, (1000, 0))) && once(tcp(1, false, SYN | ACK, (5000, 1001))) && once(ack.clone()));
    for _ in 0..3 {
        assert_eq!(sent(&node, &ack), [0, 0, 0, ALL, ALL]);
        assert_eq!(sent(&node, &tcp(1, true, PSH | ACK, (1001, 5001))), [0, 0, ALL, 0, ALL]);
        assert_eq!(sent(&node, &tcp(1, true, ACK, (900_000, 5001))), [ALL, 0, 0, 0, 0], "outside of the window");
        assert_eq!(sent(&node, &tcp(1, false, ACK, (5001, 1001))), [0, 0, 0, ALL, ALL]);
    }
    // Fragments of the next segment: what comes behind the first one finds it.
    let part = |identification, offset: u16| {
        let header =
            FragmentRepr { next_header: 6, fragment_offset: offset, more_fragments: offset == 0, identification };
        steered(ONE, true).fragment(header)
    };
    for identification in 0..3 {
        let header =
            TcpRepr { sequence_number: 1001, acknowledgment_number: 5001, window: 60_000, ..TcpRepr::new(1, 80, ACK) };
        assert!(once(part(identification, 0).tcp(header).payload(&[0; 28]).build()));
        assert!(once(part(identification, 48).payload(&[0; 8]).build()), "the rest of it");
    }
    // Picked up in the middle: NEW until the other side speaks.
    let joined = |forward| tcp(2, forward, ACK, if forward { (7, 9) } else { (9, 7) });
    assert_eq!(sent(&node, &joined(true)), [0, ALL, 0, 0, ALL]);
    assert_eq!(sent(&node, &joined(false)), [0, 0, 0, ALL, ALL]);
    assert_eq!(sent(&node, &joined(true)), [0, 0, 0, ALL, ALL]);
    assert_eq!(sent(&node, &tcp(2, true, FIN | ACK, (7, 9))), [0, 0, 0, ALL, ALL]);
    node.apply(&document(&rules[..2], &[]));
    assert_eq!(sent(&node, &ack), [0, 0, 0]);
}

#[test]
#[ignore = "needs root"]
fn what_follows_from_more_than_the_key_is_asked_each_time() {
    let network = Network::new();
    let rules = [
        "-A FORWARD -p udp -m conntrack --ctstate NEW,ESTABLISHED -m limit --limit 1/hour --limit-burst 3 -j ACCEPT",
        "-A FORWARD -p udp -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT",
    ];
    let mut node = Node::load(&network.node, &document(&rules, &[]));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), [3, ALL - 3, ALL]);
    assert_eq!(sent(&node, &udp(ONE, true, 1)), [0, ALL, ALL]);
    // A packet is judged before it is noted.
    node.apply(&document(
        &[
            "-A FORWARD -p udp -m conntrack --ctstate NEW,ESTABLISHED -m recent --name seen --rcheck --hitcount 3 --rsource -j DROP",
            "-A FORWARD -p udp -m conntrack --ctstate NEW,ESTABLISHED -m recent --name seen --set --rsource -j ACCEPT",
        ],
        &[],
    ));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), [ALL - 3, 3, 3]);
    // Packets of one flow, of different lengths.
    node.apply(&document(
        &["-A FORWARD -p udp -m conntrack --ctstate NEW,ESTABLISHED -m length --length 0:60 -j ACCEPT"],
        &[],
    ));
    let long = steered(ONE, true).udp(UdpRepr::new(1, 53)).payload(&[0; 100]).build();
    for _ in 0..3 {
        assert_eq!(sent(&node, &udp(ONE, true, 1)), [ALL, ALL]);
        assert_eq!(sent(&node, &long), [0, 0]);
    }
}

/// A verdict is kept with so many counters as it has room for; what more rules have counted is counted by them each time.
#[test]
#[ignore = "needs root"]
fn every_rule_on_the_way_counts_every_packet() {
    let network = Network::new();
    let mut node = Node::load(&network.node, &document(&STATES, &[]));
    assert_eq!(sent(&node, &udp(ONE, true, 1)), NEW);
    for counting in 0..7 {
        let mut rules = vec!["-A FORWARD -p udp -j more", "-A FORWARD -p tcp -m conntrack --ctstate NEW -j ACCEPT"];
        rules.extend(vec!["-A more -p udp"; counting]);
        rules.push("-A more -p tcp -j DROP");
        rules.push("-A more -m conntrack --ctstate NEW -j RETURN");
        let mut expected = vec![ALL, 0];
        expected.extend(vec![ALL; counting]);
        expected.extend([0, ALL, 0]);
        node.apply(&document(&rules, &[]));
        let policy = || node.firewall_counters()[0].policies.iter().map(|policy| policy.counter.packets).sum::<u64>();
        let before = policy();
        assert_eq!(sent(&node, &udp(ONE, true, 1)), expected, "{counting} rules that only count");
        assert_eq!(policy() - before, ALL);
    }
}
