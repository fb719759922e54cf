//! Labels with several instances of a function: flows are spread over them, stay where they are, and go elsewhere when one is down.

use segue_model::instances::instance_number;
use segue_model::service_label::{label_instance_key, label_key};
use segue_testkit::fixture::{Network, address::*, arriving, leaving};
use segue_testkit::golden::Golden;
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::{Node, Verdict};
use segue_wire::mpls::MplsEntry;
use segue_wire::tcp::control;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

use crate::label_functions::moves;
use crate::mutation;

const FORWARD: u32 = 15_040;
const REVERSE: u32 = 15_041;
const ADDRESSES: u32 = 15_042;
const SWAP: u32 = 16_002;
/// The server's port.
const SERVICE: u16 = 40_001;

/// Instances are machines, whose links are those of the network. `B`: what else is said of one, `MORE`: of the function.
const STATE: &str = "
node: golden
source_address: 'fd00:0:1::1'
source_address_ipv4: 192.0.2.1
locator: 'fc00:0:1::/48'
domain: {sid_blocks: ['fc00::/16']}
ports:
  - {name: core0, role: core}
  - {name: core1, role: core}
  - {name: acc0, role: access}
  - {name: acc1, role: access}
functions:
  fw:
    instances:
      a: {vm: {west: {interface: fun0, mac: '02:00:00:00:00:71'}, east: {interface: fun1, mac: '02:00:00:00:00:81'}}}
      b: {vm: {west: {interface: dyn0, mac: '02:00:00:00:00:a9'}, east: {interface: dyn1, mac: '02:00:00:00:00:b1'}}B}
MOREmpls: {srgb: ['16000-23999'], srlb: ['15000-15999'], ttl: TTL}
labels:
  - {label: 16001, behaviour: node}
  - {label: 16002, behaviour: swap, out: 17002, next_hop: 'fd00:0:c1::2'}
  - label: 15040
    behaviour: dynamic_proxy
    proxy: {inner: [IPv4, IPv6], function: fw, memory: flow, on_failure: reroute, backup_label: 16002}
  - label: 15041
    behaviour: static_proxy
    proxy: {inner: [IPv4, IPv6], function: fw, direction: reverse, labels: [16002, 70000], on_failure: bypass}
";

fn state(ttl: &str, of_b: &str, more: &str) -> String {
    STATE.replace("TTL", ttl).replace("B}\n", &format!("{of_b}}}\n")).replace("MORE", more)
}

fn stack(entries: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        ..MplsEntry::default()
    };
    entries.iter().map(entry).collect()
}

/// Which way a flow goes.
#[derive(Clone, Copy)]
enum Way {
    There,
    Back,
}

/// A packet of the flow from the client's port, of TCP with these flags or of UDP, of IPv6 or of IPv4.
fn packet(front: PacketBuilder, labels: &[(u32, u8)], way: Way, port: u16, tcp: Option<u8>) -> PacketBuilder {
    let front = if labels.is_empty() { front } else { front.mpls(&stack(labels)) };
    let (ports, addresses) = match way {
        Way::There => ((port, SERVICE), (CLIENT, SERVER)),
        Way::Back => ((SERVICE, port), (SERVER, CLIENT)),
    };
    let front = front.inner_ipv6(Ipv6Repr { hop_limit: 9, ..Ipv6Repr::new(addresses.0, addresses.1) });
    match tcp {
        Some(control_bits) => front.tcp(TcpRepr::new(ports.0, ports.1, control_bits)),
        None => front.udp(UdpRepr::new(ports.0, ports.1)),
    }
    .payload(b"one of several")
}

fn four(front: PacketBuilder, labels: &[(u32, u8)], port: u16) -> PacketBuilder {
    let front = front.mpls(&stack(labels));
    front.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)).udp(UdpRepr::new(port, SERVICE)).payload(b"one of several")
}

fn member(label: u32, name: &str) -> String {
    format!("label {label}/{:x}", instance_number(name))
}

/// The instance that a labelled packet goes to, and that nothing else counts it.
fn at(node: &Golden<'_>, label: u32, frame: &PacketBuilder) -> &'static str {
    let found = node.node().send("core0", &frame.build());
    assert_eq!(found.verdict, Verdict::Redirect, "{:?}", found.moved);
    let names = ["a", "b"];
    let counted: Vec<_> = names.into_iter().filter(|name| found.moved.contains_key(&member(label, name))).collect();
    assert_eq!(counted.len(), 1, "{:?}", found.moved);
    let all = ["core0 to_function".to_owned(), format!("label {label}"), member(label, counted[0])];
    assert!(all.iter().all(|name| found.moved.contains_key(name)), "{:?}", found.moved);
    assert_eq!(found.moved.len(), all.len(), "{:?}", found.moved);
    let expected = match (label, counted[0]) {
        (FORWARD | ADDRESSES, "a") => "fun0",
        (FORWARD | ADDRESSES, _) => "dyn0",
        (_, "a") => "fun1",
        _ => "dyn1",
    };
    let front = leaving(expected).build();
    assert_eq!(found.frame[..12], front[..12], "it leaves by {expected}");
    counted[0]
}

/// Ports of the client.
const FLOWS: std::ops::RangeInclusive<u16> = 1000..=1023;

fn there(port: u16) -> PacketBuilder {
    packet(arriving("core0"), &[(FORWARD, 9), (SWAP, 9), (70_000, 9)], Way::There, port, None)
}

fn back(port: u16) -> PacketBuilder {
    packet(arriving("core0"), &[(REVERSE, 9), (SWAP, 9)], Way::Back, port, None)
}

#[test]
#[ignore = "needs root"]
fn flows_behind_labels_are_at_one_of_several_instances() {
    let network = Network::new();
    let mut node = Golden::load(&network, &state("pipe", "", ""));
    let first: Vec<_> = FLOWS.map(|port| at(&node, FORWARD, &there(port))).collect();
    for name in ["a", "b"] {
        assert!(first.iter().filter(|at| **at == name).count() >= first.len() / 5, "{first:?}");
    }
    // Both directions alike, whatever the labels around are; and an entropy label behind the function's is no part of what it gets.
    let backwards: Vec<_> = FLOWS.map(|port| at(&node, REVERSE, &back(port))).collect();
    assert_eq!(backwards, first);
    let entropy = [(16_001, 9), (FORWARD, 9), (7, 9), (70_001, 0), (SWAP, 9)];
    for (port, known) in FLOWS.zip(&first).take(8) {
        assert_eq!(at(&node, FORWARD, &packet(arriving("core0"), &entropy, Way::There, port, None)), *known);
        let last = packet(arriving("core0"), &[(REVERSE, 9)], Way::There, port, None);
        assert_eq!(at(&node, REVERSE, &last), *known, "the label is the last one");
    }
    // What goes in is the packet alone, and what comes back has the rest of its own stack.
    for (port, known) in FLOWS.zip(&first) {
        let (into, from) = if *known == "a" { ("fun0", "fun1") } else { ("dyn0", "dyn1") };
        let case = format!("flow {port}");
        let bare = packet(leaving(into), &[], Way::There, port, None);
        let counters = [format!("label {FORWARD}"), member(FORWARD, known)];
        let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
        node.leaves(&case, "core0", &there(port).build(), &bare.build(), "to_function", &counters);
        let found = node.node().send(from, &packet(arriving(from), &[], Way::There, port, None).build());
        assert_eq!(found.verdict, Verdict::Redirect, "{case}: {:?}", found.moved);
        let counter = format!("returned {}", member(FORWARD, known));
        assert!(found.moved.contains_key(&counter) && found.moved.contains_key("label 16002"), "{:?}", found.moved);
        let mut expected = packet(leaving("core1"), &[(17_002, 8), (70_000, 9)], Way::There, port, None).build();
        expected[14 + 8 + 7] -= 1;
        assert_eq!(found.frame, expected, "{case}");
    }
    // One is down: its flows go to the other, and stay there.
    node.node().set_down(label_instance_key(FORWARD, "a"), true);
    assert!(FLOWS.into_iter().all(|port| at(&node, FORWARD, &there(port)) == "b"));
    node.node().set_down(label_instance_key(FORWARD, "a"), false);
    assert!(FLOWS.into_iter().all(|port| at(&node, FORWARD, &there(port)) == "b"));
    // What opens a connection, and what answers that.
    let flags = |flags: u8, port: u16, way: Way| {
        let label = if matches!(way, Way::There) { FORWARD } else { REVERSE };
        at(&node, label, &packet(arriving("core0"), &[(label, 9), (SWAP, 9)], way, port, Some(flags)))
    };
    let opened: Vec<_> = FLOWS.map(|port| flags(control::SYN, port, Way::There)).collect();
    let answered: Vec<_> = FLOWS.map(|port| flags(control::SYN | control::ACK, port, Way::Back)).collect();
    assert_eq!(answered, opened);
    // One leaves: it keeps what it has, and gets no more.
    node.apply(&state("pipe", ", drain: true", ""));
    assert!(FLOWS.into_iter().all(|port| at(&node, FORWARD, &there(port)) == "b"));
    assert!((2000..2012).all(|port| at(&node, FORWARD, &there(port)) == "a"));
    assert!((2000..2012).all(|port| at(&node, REVERSE, &back(port)) == "a"));
    // By addresses alone, all between two hosts is at one.
    node.apply(&state("pipe", "", "    tell_flows_by: addresses\n"));
    let together: std::collections::BTreeSet<_> = (3000..3016).map(|port| at(&node, REVERSE, &back(port))).collect();
    assert_eq!(together.len(), 1, "{together:?}");
    node.finish();
}

/// Without an instance that is up, the label does what it says for that; what is no packet for any is dropped, and counted once.
#[test]
#[ignore = "needs root"]
fn labels_whose_instances_are_all_down() {
    let network = Network::new();
    let node = Golden::load(&network, &state("pipe", "", ""));
    for (label, name) in [(FORWARD, "a"), (FORWARD, "b"), (REVERSE, "a"), (REVERSE, "b")] {
        node.node().set_down(label_instance_key(label, name), true);
    }
    let rerouted = packet(leaving("core1"), &[(17_002, 8), (SWAP, 9), (70_000, 9)], Way::There, 7, None);
    node.leaves(
        "rerouted",
        "core0",
        &there(7).build(),
        &rerouted.build(),
        "forwarded",
        &["label 15040", "label 16002"],
    );
    let bypassed = packet(leaving("core1"), &[(17_002, 8)], Way::Back, 7, None);
    moves(&node, "bypassed", ("core0", "forwarded"), &back(7), &bypassed, &["label 15041", "label 16002"]);
    let last = packet(arriving("core0"), &[(REVERSE, 9)], Way::There, 7, None);
    let found = node.node().send("core0", &last.build());
    let mut expected = packet(leaving("acc1"), &[], Way::There, 7, None).build();
    expected[14 + 7] -= 1;
    assert_eq!(found.frame, expected, "bypassed at the end: {:?}", found.moved);
    assert!(
        found.moved.contains_key("core0 forwarded") && found.moved.contains_key("label 15041"),
        "{:?}",
        found.moved
    );
    for label in [FORWARD, REVERSE] {
        node.node().set_down(label_instance_key(label, "b"), false);
    }
    assert_eq!(at(&node, FORWARD, &there(7)), "b");
    // The label itself has no function of its own.
    node.node().set_down(label_key(FORWARD), false);
    let no_ip = arriving("core0").mpls(&stack(&[(FORWARD, 9), (SWAP, 9)])).payload(&[0x99; 40]);
    node.drops("no IP", "core0", &no_ip, "drop_label_not_ip");
    let deep: Vec<(u32, u8)> = std::iter::once((FORWARD, 9)).chain((0..33).map(|_| (SWAP, 9))).collect();
    node.drops("too many labels", "core0", &packet(arriving("core0"), &deep, Way::There, 7, None), "drop_label_depth");
    let mut frame = there(7).build();
    frame.truncate(14 + 12);
    node.drops_octets("the frame ends first", "core0", &frame, "drop_label_bottom");
    let mut frame = packet(arriving("core0"), &[(FORWARD, 9)], Way::There, 7, None).build();
    frame.truncate(14 + 4 + 30);
    // It is counted by the label too, which has led it to an instance; by that one's not.
    let led = |case: &str, frame: &[u8], outcome: &str| {
        let found = node.node().send("core0", frame);
        let moved: Vec<&str> = found.moved.keys().map(String::as_str).collect();
        assert_eq!((found.verdict, moved), (Verdict::Drop, vec![outcome, "label 15040"]), "{case}");
    };
    led("the inner header is cut", &frame, "core0 drop_truncated");
    let found = node.node().send("core0", &packet(arriving("core0"), &[(FORWARD, 0)], Way::There, 7, None).build());
    assert!(
        found.moved.contains_key("core0 drop_label_ttl") && !found.moved.contains_key("label 15040"),
        "{:?}",
        found.moved
    );
    let mut frame = four(arriving("core0"), &[(FORWARD, 9)], 7).build();
    frame[14 + 4 + 10] ^= 1;
    led("checksum", &frame, "core0 drop_bad_checksum");
    node.finish();
}

#[test]
#[ignore = "needs root"]
fn many_mutated_packets_to_labels_with_instances() {
    let network = Network::new();
    let node = Node::load(&network.node, &state("uniform", "", ""));
    node.set_down(label_instance_key(REVERSE, "a"), true);
    let packets = mutation::packets() / 4;
    let labels = [FORWARD, FORWARD, REVERSE, REVERSE, SWAP, 16_001, 7, 0, 70_000];
    let mut random = Random::new(0x1abe_1e57);
    let mut faults = mutation::Faults::new();
    let mut seen = [0_u64; 5];
    node.run_many(|runner| {
        let mut counted = runner.outcomes("core0");
        for _ in 0..packets {
            let entries: Vec<(u32, u8)> =
                (0..=random.below(4)).map(|_| (*random.pick(&labels), *random.pick(&[0_u8, 1, 64, 255]))).collect();
            let port = random.below(64) as u16;
            let mut frame = match random.below(2) {
                0 => packet(arriving("core0"), &entries, Way::There, port, Some(control::FIN)).build(),
                _ => four(arriving("core0"), &entries, port).build(),
            };
            if random.below(3) != 0 {
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
