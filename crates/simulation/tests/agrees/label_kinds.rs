//! A packet for each kind of label, without a data plane: what the simulation says of it, by a kernel that knows the links and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;
use segue_abi::Outcome;
use segue_dataplane::compile::{Input, compile};
use segue_dataplane::{
    Capabilities, Capacity, FibAnswer, FibQuestion, FibVerdict, Hook, Interface, Interfaces, MissingInterface,
};
use segue_model::service_label::{label_instance_key, label_key};
use segue_simulation::{Arrival, Kernel, Simulated, View, simulate};
use segue_testkit::fixture::{LINKS, Link, address::*, arriving, leaving};
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, MacAddress, PacketBuilder, UdpRepr};

use crate::labels::configuration;

/// The MAC address of the node's end of a link, or of the other one.
fn mac(link: &Link, far: bool) -> [u8; 6] {
    [2, 0, 0, 0, 0, link.number + u8::from(far)]
}

fn interfaces() -> Interfaces {
    let one = |(number, link): (u32, &Link)| {
        let addresses = [link.ipv6, link.ipv4].iter().filter_map(|address| address.parse().ok()).collect();
        let interface = Interface {
            ifindex: number,
            mtu: link.mtu,
            mac: mac(link, false),
            addresses,
            up: true,
            peer_elsewhere: true,
            vrf: None,
            ruled: false,
            hook: Hook::default(),
            takes_frames: true,
        };
        (link.name.to_owned(), interface)
    };
    let mut found: BTreeMap<_, _> = (2..).zip(&LINKS).map(one).collect();
    for (number, name) in
        (100..).zip(["nfw-nf", "nfe-nf", "segue-loop0", "segue-loop1", "west-a", "east-a", "west-b", "east-b"])
    {
        let link = Interface { ifindex: number, addresses: Vec::new(), ..found["core0"].clone() };
        found.insert(name.to_owned(), link);
    }
    Interfaces(found)
}

/// Whoever is on a link answers, but for those at `::99`.
struct Links(Interfaces);

impl Kernel for Links {
    fn fib(&mut self, question: &FibQuestion) -> FibAnswer {
        let on_link = |interface: &&Interface| {
            interface.addresses.iter().any(|address| address.contains(&question.destination))
                && (!question.is_output || interface.ifindex == question.ifindex)
        };
        let found = self.0.0.values().find(on_link);
        let silent = matches!(question.destination, IpAddr::V6(address) if address.segments()[7] == 0x99);
        let verdict = match found {
            None => FibVerdict::Kernel("no link leads there"),
            Some(_) if silent => FibVerdict::NoNeighbour,
            Some(_) => FibVerdict::Link,
        };
        let source_mac = found.map(|interface| interface.mac).unwrap_or_default();
        let mut destination_mac = source_mac;
        destination_mac[5] += 1;
        FibAnswer {
            verdict,
            ifindex: found.map_or(0, |interface| interface.ifindex),
            next_hop: question.destination,
            mtu: found.map_or(0, |interface| interface.mtu),
            source_mac,
            destination_mac,
        }
    }
}

/// What becomes of a packet. `down`: labels whose functions are.
fn simulated(ttl: &str, port: &str, frame: &PacketBuilder, down: &[u32], remembered: Option<u32>) -> Simulated {
    let down: Vec<Ipv6Net> = down.iter().copied().map(label_key).collect();
    simulated_in(&configuration(ttl), port, frame, &down, remembered.map(label_key))
}

/// The same at any node that has these links.
fn simulated_in(
    text: &str,
    port: &str,
    frame: &PacketBuilder,
    down: &[Ipv6Net],
    remembered: Option<Ipv6Net>,
) -> Simulated {
    let state = segue_model::load::load_node_state(text, "test.yaml").unwrap().written_out();
    let interfaces = interfaces();
    let compiled = compile(&Input {
        state: &state,
        interfaces: &interfaces,
        missing: MissingInterface::Refuse,
        capabilities: &Capabilities { fib_table: true, redirect_multi_buffer: true, hz: 250 },
        capacity: &Capacity { ports: 32, ..Capacity::default().for_memories_of(&state) },
        previous: None,
        generation: 1,
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let down: BTreeSet<_> = down.iter().copied().collect();
    let view = View { compiled: &compiled, state: &state, interfaces: &interfaces, down: &down, path_mtus: &[] };
    let arrival = Arrival { frame: frame.build(), remembered };
    simulate(view, &mut Links(interfaces.clone()), port, &arrival).unwrap()
}

fn stack(entries: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        traffic_class: 5,
        ..MplsEntry::default()
    };
    entries.iter().map(entry).collect()
}

/// An IPv6 packet to the server, behind labels with their TTLs or behind nothing.
fn six(front: PacketBuilder, entries: &[(u32, u8)], hops: u8) -> PacketBuilder {
    six_to(front, entries, hops, SERVER)
}

fn six_to(front: PacketBuilder, entries: &[(u32, u8)], hops: u8, to: Ipv6Addr) -> PacketBuilder {
    let front = if entries.is_empty() { front } else { front.mpls(&stack(entries)) };
    let repr = Ipv6Repr { hop_limit: hops, traffic_class: 0xb8, ..Ipv6Repr::new(CLIENT, to) };
    front.inner_ipv6(repr).udp(UdpRepr::new(7, 40_001)).payload(b"labels")
}

fn four(front: PacketBuilder, entries: &[(u32, u8)], hops: u8) -> PacketBuilder {
    let front = if entries.is_empty() { front } else { front.mpls(&stack(entries)) };
    let repr = Ipv4Repr { time_to_live: hops, ..Ipv4Repr::new(CLIENT4, SERVER4) };
    front.inner_ipv4(repr).udp(UdpRepr::new(7, 40_001)).payload(b"labels")
}

/// It is certain that the packet leaves so.
#[track_caller]
fn leaves(found: &Simulated, outcome: Outcome, expected: &PacketBuilder) {
    assert_eq!(found.end.outcome, outcome, "{found:?}");
    assert!(found.end.certain, "{found:?}");
    assert_eq!(found.frame, expected.build(), "{found:?}");
}

#[track_caller]
fn drops(found: &Simulated, outcome: Outcome) {
    assert_eq!((found.end.outcome, found.end.certain), (outcome, true), "{found:?}");
}

/// In by core0, in pipe mode.
fn core(entries: &[(u32, u8)], hops: u8) -> Simulated {
    simulated("pipe", "core0", &six(arriving("core0"), entries, hops), &[], None)
}

#[test]
fn labels_are_swapped_and_popped() {
    let rest = (70_000, 9);
    let out = |entries: &[(u32, u8)]| six(leaving("core1"), entries, 5);
    let forwarded = Outcome::Forwarded;
    leaves(&core(&[(16_002, 20), rest], 5), forwarded, &out(&[(17_002, 19), rest]));
    leaves(&core(&[(16_001, 1), (16_002, 20), rest], 5), forwarded, &out(&[(17_002, 19), rest]));
    leaves(&core(&[(16_003, 20), rest], 5), forwarded, &out(&[rest]));
    leaves(&core(&[(16_003, 20)], 5), forwarded, &out(&[]));
    leaves(&core(&[(15_001, 20), rest], 5), forwarded, &out(&[rest]));
    leaves(&core(&[(16_004, 20)], 5), forwarded, &out(&[(2, 19)]));
    leaves(&core(&[(16_004, 20), rest], 5), forwarded, &out(&[(0, 19), rest]));
    let ipv4 = simulated("pipe", "core0", &four(arriving("core0"), &[(16_004, 20)], 5), &[], None);
    leaves(&ipv4, forwarded, &four(leaving("core1"), &[(0, 19)], 5));
    let step = core(&[(16_002, 20), rest], 5).steps.into_iter().find(|step| step.what == "label").unwrap();
    assert_eq!((step.name.as_str(), step.detail.as_str(), step.counters.len()), ("16002", "swap, out 17002", 1));
}

#[test]
fn the_last_label_says_where_the_packet_goes() {
    let out = six(leaving("acc1"), &[], 4);
    for last in [15_100, 15_201, 16_001, 2] {
        leaves(&core(&[(last, 1)], 5), Outcome::Forwarded, &out);
    }
    leaves(&core(&[(16_001, 64), (15_100, 1)], 5), Outcome::Forwarded, &out);
    let ipv4 = simulated("pipe", "core0", &four(arriving("core0"), &[(15_200, 3)], 5), &[], None);
    leaves(&ipv4, Outcome::Forwarded, &four(leaving("acc1"), &[], 4));
}

#[test]
fn what_labels_do_not_allow_is_dropped() {
    let long: Vec<(u32, u8)> = vec![(16_001, 9); 9];
    for (entries, hops, outcome) in [
        (&[(16_002, 1), (70_000, 9)][..], 5, Outcome::DropLabelTtl),
        (&[(15_100, 0)], 5, Outcome::DropLabelTtl),
        (&[(70_000, 9)], 5, Outcome::DropLabelUnknown),
        (&[(1, 9), (15_100, 9)], 5, Outcome::DropLabelReserved),
        (&[(0, 9)], 5, Outcome::DropLabelReserved),
        (&[(15_100, 9), (15_100, 9)], 5, Outcome::DropLabelBottom),
        (&long, 5, Outcome::DropLabelDepth),
        (&[(15_200, 9)], 5, Outcome::DropInnerType),
        (&[(15_100, 9)], 1, Outcome::DropHopLimitExceeded),
        (&[(16_006, 9)], 5, Outcome::DropNoNeighbour),
        (&[(16_007, 9)], 5, Outcome::DropSrLeaves),
    ] {
        drops(&core(entries, hops), outcome);
    }
    let mut frame = arriving("core0").mpls(&stack(&[(15_100, 9)])).payload(&[0x50; 40]);
    drops(&simulated("pipe", "core0", &frame, &[], None), Outcome::DropLabelNotIp);
    frame = six(arriving("acc0"), &[(15_100, 9)], 5);
    drops(&simulated("pipe", "acc0", &frame, &[], None), Outcome::DropLabelsFromOutside);
    frame = six(arriving("core0"), &[(16_005, 9)], 5).payload(&[0; 1400]);
    drops(&simulated("pipe", "core0", &frame, &[], None), Outcome::DropTooBig);
}

#[test]
fn a_flow_takes_one_of_equal_paths() {
    let mut taken = BTreeSet::new();
    for port in 0..64 {
        let repr = || Ipv6Repr::new(CLIENT, SERVER);
        let packet = |front: PacketBuilder| front.inner_ipv6(repr()).udp(UdpRepr::new(port, 9)).payload(b"flow");
        let found = simulated("pipe", "core0", &packet(arriving("core0").mpls(&stack(&[(16_010, 9)]))), &[], None);
        let [swapped, popped] =
            [packet(leaving("core1").mpls(&stack(&[(17_010, 8)]))), packet(leaving("core2"))].map(|way| way.build());
        assert!(found.end.certain && [&swapped, &popped].contains(&&found.frame), "{found:?}");
        taken.insert(found.frame == swapped);
    }
    assert_eq!(taken.len(), 2, "both");
}

#[test]
fn ttls_are_carried_on_in_the_uniform_model() {
    let uniform =
        |entries: &[(u32, u8)], hops| simulated("uniform", "core0", &six(arriving("core0"), entries, hops), &[], None);
    leaves(
        &uniform(&[(16_001, 7), (16_003, 60), (70_000, 61)], 62),
        Outcome::Forwarded,
        &six(leaving("core1"), &[(70_000, 6)], 62),
    );
    leaves(&uniform(&[(16_001, 7), (15_100, 60)], 62), Outcome::Forwarded, &six(leaving("acc1"), &[], 6));
    let pushed = |ttl: &str| {
        let to = Ipv6Addr::new(0xfd00, 0, 0xf02, 0, 0, 0, 0, 7);
        let found = simulated(ttl, "acc0", &six_to(arriving("acc0"), &[], 9, to), &[], None);
        let label = if ttl == "pipe" { 33 } else { 8 };
        leaves(&found, Outcome::Forwarded, &six_to(leaving("core2"), &[(1_048_575, label)], 8, to));
    };
    pushed("pipe");
    pushed("uniform");
}

#[test]
fn functions_get_the_packet_and_give_it_back() {
    let entries = [(15_010, 9), (16_003, 60), (70_000, 61)];
    let into = |link: &str, number: u8| {
        let own = LINKS.iter().find(|known| known.name == link).unwrap();
        PacketBuilder::ethernet(MacAddress(mac(own, false)), MacAddress([2, 0, 0, 0, 0, number]))
    };
    let given = core(&entries, 5);
    leaves(&given, Outcome::ToFunction, &six(into("fun0", 0x71), &[], 5));
    let visit = given.end.visit.unwrap();
    assert_eq!((visit.sid, visit.back_by.as_deref(), visit.steered), (label_key(15_010), Some("fun1"), None));
    // Back from a static one with the labels that are configured, of which the first is swapped here.
    let back = simulated("pipe", "fun1", &six(arriving("fun1"), &[], 5), &[], None);
    leaves(&back, Outcome::Forwarded, &six(leaving("core1"), &[(17_002, 63), (70_000, 64)], 4));
    // A dynamic one remembers the rest.
    let entries = [(15_020, 9), (16_003, 60), (70_000, 61)];
    let given = core(&entries, 5);
    let visit = given.end.visit.unwrap();
    assert_eq!(visit.steered, Some(six(arriving("core0"), &entries, 5).build()));
    let frame = six(arriving("dyn1"), &entries, 5);
    let back = simulated("pipe", "dyn1", &frame, &[], Some(15_020));
    assert_eq!((back.end.outcome, back.end.certain), (Outcome::Forwarded, false), "{back:?}");
    assert_eq!(back.frame, six(leaving("core1"), &[(70_000, 61)], 4).build());
    let labels = six(arriving("fun1"), &[(16_002, 9)], 5);
    drops(&simulated("pipe", "fun1", &labels, &[], None), Outcome::DropFromFunction);
}

#[test]
fn functions_that_are_down_are_passed_by_replaced_or_missed() {
    let down = [15_010, 15_020, 15_030];
    let found = |first: u32, down: &[u32]| {
        simulated("pipe", "core0", &six(arriving("core0"), &[(first, 9), (16_002, 60)], 5), down, None)
    };
    leaves(&found(15_010, &down), Outcome::Forwarded, &six(leaving("core1"), &[(17_002, 59)], 5));
    drops(&found(15_020, &down), Outcome::DropFunctionDown);
    drops(&found(15_030, &down), Outcome::DropFunctionDown);
    let backup = found(15_030, &down[2..]);
    assert_eq!(backup.end.visit.map(|visit| visit.sid), Some(label_key(15_020)), "the other one in its place");
}

#[test]
fn functions_that_see_the_stack_get_it_and_give_it_back() {
    let entries = [(15_070, 9), (16_002, 60), (70_000, 61)];
    let given = core(&entries, 5);
    let mask1 = LINKS.iter().find(|known| known.name == "mask1").unwrap();
    let into = PacketBuilder::ethernet(MacAddress(mac(mask1, false)), MacAddress([2, 0, 0, 0, 0, 0xd1]));
    assert_eq!(given.end.outcome, Outcome::ToFunction);
    assert_eq!(given.frame, six(into.clone(), &entries[1..], 5).build());
    let visit = given.end.visit.unwrap();
    assert_eq!((visit.sid, visit.back_by.as_deref()), (label_key(15_070), Some("mask1")));
    assert_eq!(visit.steered, Some(six(arriving("core0"), &entries, 5).build()));
    let back = simulated("pipe", "mask1", &six(arriving("mask1"), &entries, 5), &[], Some(15_070));
    assert_eq!((back.end.outcome, back.end.certain), (Outcome::Forwarded, false), "{back:?}");
    assert_eq!(back.frame, six(leaving("core1"), &[(17_002, 59), (70_000, 61)], 5).build());
    // Nothing is left of the stack.
    let last = core(&entries[..1], 5);
    assert_eq!(last.frame, six(into, &[], 5).build());
    let back = simulated("pipe", "mask1", &six(arriving("mask1"), &entries[..1], 5), &[], Some(15_070));
    assert_eq!(back.frame, six(leaving("acc1"), &[], 4).build(), "{back:?}");
    let unknown = simulated("pipe", "mask1", &six(arriving("mask1"), &entries[1..], 5), &[], None);
    assert_eq!((unknown.end.outcome, unknown.end.certain), (Outcome::DropUnknownFlow, false));
}

/// A label with two instances behind it.
const INSTANCES: &str = "
functions:
  fw:
    instances:
      a: {vm: {west: {interface: west-a}, east: {interface: east-a}}}
      b: {vm: {west: {interface: west-b}, east: {interface: east-b}}}
labels:
  - {label: 15075, behaviour: dynamic_proxy, proxy: {function: fw, inner: [IPv4, IPv6], on_failure: reroute, backup_label: 16002}}
";

#[test]
fn flows_are_at_one_of_several_instances_that_are_up() {
    let text = configuration("pipe").replacen("\nlabels:\n", INSTANCES, 1);
    let frame = six(arriving("core0"), &[(15_075, 9), (16_002, 60)], 5);
    let [a, b] = ["a", "b"].map(|name| label_instance_key(15_075, name));
    let found = |down: &[Ipv6Net]| simulated_in(&text, "core0", &frame, down, None);
    let either = found(&[]);
    assert_eq!((either.end.outcome, either.end.certain), (Outcome::ToFunction, false), "{either:?}");
    assert!(either.assumed.iter().any(|one| one.contains("of the instances")), "{:?}", either.assumed);
    for (up, down) in [(a, b), (b, a)] {
        let found = found(&[down]);
        assert_eq!(found.end.visit.map(|visit| visit.sid), Some(up));
    }
    leaves(&found(&[a, b]), Outcome::Forwarded, &six(leaving("core1"), &[(17_002, 8), (16_002, 60)], 5));
}

#[test]
fn a_firewall_behind_a_label_looks_at_the_packet() {
    let packet = |port: u16| {
        let entries = [(15_040, 9), (16_002, 60)];
        let front = arriving("core0").mpls(&stack(&entries)).inner_ipv6(Ipv6Repr::new(CLIENT, SERVER));
        simulated("pipe", "core0", &front.udp(UdpRepr::new(7, port)).payload(b"rules"), &[], None)
    };
    assert_eq!(packet(1).end.outcome, Outcome::Forwarded);
    drops(&packet(2), Outcome::DropFirewall);
    drops(&packet(3), Outcome::DropFirewallRejected);
}

#[test]
fn a_list_may_begin_with_labels_of_the_node() {
    let to = Ipv6Addr::new(0xfd00, 0, 0xf06, 0, 0, 0, 0, 7);
    let found = simulated("pipe", "acc0", &six_to(arriving("acc0"), &[], 9, to), &[], None);
    assert_eq!((found.end.outcome, found.end.certain), (Outcome::ToFunction, true), "{found:?}");
    let looked_at: Vec<(&str, &str)> = found.steps.iter().map(|step| (step.what, step.name.as_str())).collect();
    let labels = [("policy", "labels-here"), ("label", "16001"), ("label", "15010"), ("function", "label 15010")];
    assert!(looked_at.ends_with(&labels), "{looked_at:?}");
}
