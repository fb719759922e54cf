//! Equal paths of a label: flows are divided, each stays on one, and each packet leaves as its path says.

use std::collections::BTreeMap;

use segue_testkit::fixture::{Network, address::*, arriving, leaving, macs};
use segue_testkit::golden::Golden;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, TcpRepr, UdpRepr};

use crate::labels::{OWN, PATHS, PATHS_TO, labelled};

/// Entropy label indicator (RFC 6790 section 3).
const INDICATOR: u32 = 7;
const FLOWS: u16 = 256;

fn entries(labels: &[(u32, u8)]) -> Vec<MplsEntry> {
    let entry = |(label, time_to_live): &(u32, u8)| MplsEntry {
        label: *label,
        time_to_live: *time_to_live,
        ..MplsEntry::default()
    };
    labels.iter().map(entry).collect()
}

/// A packet of one flow behind labels, or behind nothing.
fn packet(front: PacketBuilder, labels: &[(u32, u8)], family: u8, flow: u16) -> PacketBuilder {
    let front = if labels.is_empty() { front } else { front.mpls(&entries(labels)) };
    match family {
        6 => {
            front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)).udp(UdpRepr::new(40_000 + flow, 40_001)).payload(b"a flow")
        }
        _ => front
            .inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
            .tcp(TcpRepr { window: 1000, ..TcpRepr::new(40_000 + flow, 40_001, 0x10) })
            .payload(b"a flow"),
    }
}

/// By which link a packet leaves, which must be as the path there says; `behind`: what follows the label in the stack.
fn path(
    node: &Golden<'_>,
    frame: &PacketBuilder,
    behind: &[(u32, u8)],
    rest: impl Fn(PacketBuilder) -> PacketBuilder,
) -> u8 {
    let found = node.send("core0", frame);
    let counted = ["core0 forwarded", "label 16010"];
    assert!(counted.iter().all(|name| found.moved.contains_key(*name)), "{:?}", found.moved);
    let swapped: Vec<(u32, u8)> = [(PATHS_TO, 63)].into_iter().chain(behind.iter().copied()).collect();
    let by_core1 = rest(leaving("core1").mpls(&entries(&swapped))).build();
    let popped = if behind.is_empty() { leaving("core2") } else { leaving("core2").mpls(&entries(behind)) };
    let by_core2 = rest(popped).build();
    match &found.frame {
        frame if *frame == by_core1 => 1,
        frame if *frame == by_core2 => 2,
        frame => panic!("as by neither path: {frame:02x?}\nnot {by_core1:02x?}\nnor {by_core2:02x?}"),
    }
}

/// How many flows took each path.
fn divided(paths: impl Iterator<Item = u8>) -> BTreeMap<u8, usize> {
    let mut flows = BTreeMap::new();
    paths.for_each(|path| *flows.entry(path).or_default() += 1);
    flows
}

fn about_half(flows: &BTreeMap<u8, usize>) {
    let few = usize::from(FLOWS) / 3;
    assert!(flows.len() == 2 && flows.values().all(|number| *number > few), "{flows:?}");
}

#[test]
#[ignore = "needs root"]
fn a81_flows_are_divided_over_equal_paths() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    for family in [6, 4] {
        for behind in [&[][..], &[(70_000, 9)], &[(70_000, 9), (70_001, 8)]] {
            let labels: Vec<(u32, u8)> = [(OWN, 9), (PATHS, 64)].into_iter().chain(behind.iter().copied()).collect();
            let of_flow = |flow: u16, skip: usize| {
                let frame = packet(arriving("core0"), &labels[skip..], family, flow);
                path(&node, &frame, behind, |front| match family {
                    6 => front
                        .inner_ipv6(Ipv6Repr::new(CLIENT, SERVER))
                        .udp(UdpRepr::new(40_000 + flow, 40_001))
                        .payload(b"a flow"),
                    _ => front
                        .inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4))
                        .tcp(TcpRepr { window: 1000, ..TcpRepr::new(40_000 + flow, 40_001, 0x10) })
                        .payload(b"a flow"),
                })
            };
            let flows: Vec<u8> = (0..FLOWS).map(|flow| of_flow(flow, 1)).collect();
            about_half(&divided(flows.iter().copied()));
            // The same flow takes the same path, also by a label of the node itself in front.
            for flow in 0..16 {
                assert_eq!(of_flow(flow, 0), flows[usize::from(flow)], "flow {flow} of IPv{family}");
            }
        }
    }
    node.finish();
}

/// RFC 6790: what brings an entropy label along is told by that alone.
#[test]
#[ignore = "needs root"]
fn a81_an_entropy_label_says_which_flow_it_is() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let of = |entropy: u32, flow: u16| {
        let behind = [(70_000, 9), (INDICATOR, 9), (entropy, 0)];
        let labels: Vec<(u32, u8)> = [(PATHS, 64)].into_iter().chain(behind).collect();
        let rest = |front| packet(front, &[], 6, flow);
        path(&node, &packet(arriving("core0"), &labels, 6, flow), &behind, rest)
    };
    about_half(&divided((0..FLOWS).map(|flow| of(100_000 + u32::from(flow), 5))));
    let one = of(100_000, 0);
    assert!((1..64).all(|flow| of(100_000, flow) == one), "one entropy label, several paths");
    node.finish();
}

/// All fragments of datagrams between two hosts take one path; what is no IP packet takes that of its labels.
#[test]
#[ignore = "needs root"]
fn a81_fragments_and_what_is_not_ip_take_one_path() {
    let network = Network::new();
    let node = Golden::load(&network, &labelled("pipe"));
    let fragment = |offset: u16, front: PacketBuilder| {
        let repr = Ipv4Repr {
            identification: 77,
            more_fragments: offset == 0,
            fragment_offset: offset,
            protocol: 17,
            ..Ipv4Repr::new(CLIENT4, SERVER4)
        };
        front.inner_ipv4(repr).payload(&[offset as u8; 32])
    };
    let first = |offset: u16| {
        let frame = fragment(offset, arriving("core0").mpls(&entries(&[(PATHS, 64)])));
        path(&node, &frame, &[], |front| fragment(offset, front))
    };
    let paths = divided([0, 32, 64, 96].into_iter().map(first));
    assert_eq!(paths.len(), 1, "{paths:?}");

    let other = |number: u8, label: u32| {
        let behind = [(label, 9)];
        let rest = |front: PacketBuilder| front.payload(&[&[0x99, number][..], &[7; 40]].concat());
        let frame = rest(arriving("core0").mpls(&entries(&[(PATHS, 64), (label, 9)])));
        path(&node, &frame, &behind, rest)
    };
    about_half(&divided((0..FLOWS).map(|number| other(0, 70_000 + u32::from(number)))));
    let one = other(0, 70_000);
    assert!((1..32).all(|number| other(number, 70_000) == one));
    assert_ne!(macs("core1").1, macs("core2").1);
    node.finish_with_faults();
}
