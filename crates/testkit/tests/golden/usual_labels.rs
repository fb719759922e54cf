//! The usual way of labels on XDP (bpf/lib/labels/fast.h, bpf/lib/labels/function_fast.h) against the general one (bpf/lib/labels/port.h,
//! bpf/lib/labels/function.h, bpf/lib/labels/back.h), as usual.rs does it for SRv6: the same packets by both, and verdicts, octets, outcomes and all
//! counters are the same.

use segue_testkit::fixture::{address::*, arriving};
use segue_testkit::mutation::{Random, mutate};
use segue_testkit::node::make_runnable;
use segue_wire::mpls::MplsEntry;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, UdpRepr};

use crate::label_functions::{
    DYNAMIC, FLOW, FLOW_OTHER, NARROW, OWN, POP, REROUTE, STATIC, STATIC_LAST, SWAP, functions,
};
use crate::usual::{Step, compare_ways, faults, inner};

const SEED: u64 = 0x5e9e_1abe;
const TABLE: u32 = 15_040;
const NEXT_HOP: u32 = 15_041;
const NULL: u32 = 16_006;
const PATHS: u32 = 16_011;
const FIREWALL: u32 = 15_042;
const STATEFUL: u32 = 15_043;

/// Labels at which the packet behind them goes on by itself, or with another label.
const LABELS: &str = "
  - {label: 15040, behaviour: table, table: 100}
  - {label: 15041, behaviour: next_hop, next_hop: 'fd00:0:c1::2'}
  - {label: 16006, behaviour: explicit_null, next_hop: 'fd00:0:c1::2'}
  - {label: 16011, behaviour: swap, paths: [{next_hop: 'fd00:0:c1::2'}, {next_hop: 'fd00:0:c2::2', out: 3}]}
  - {label: 15042, behaviour: firewall, firewall: fw}
  - {label: 15043, behaviour: firewall, firewall: state}
";

/// Rules on ports and on connections, for both families.
const FIREWALLS: [(&str, &[&str]); 2] = [
    (
        "fw",
        &["-p udp --sport 2 -j DROP", "-p udp --sport 3 -j REJECT", "-p udp --sport 4 -j MPLS --mpls-action skip-next"],
    ),
    ("state", &["-m conntrack --ctstate ESTABLISHED -j ACCEPT", "-p udp --sport 0:3 -j ACCEPT", "-j DROP"]),
];

/// Behind the faults of packets chosen by hand.
const PACKETS: usize = 20_000;

fn entry(label: u32, time_to_live: u8, traffic_class: u8) -> MplsEntry {
    MplsEntry { label, time_to_live, traffic_class, ..MplsEntry::default() }
}

/// An inner packet of one of a few flows, whose DSCP is of the class 5 or none.
fn of_flow(random: &mut Random, front: PacketBuilder) -> PacketBuilder {
    let (source, octets) = (random.below(6) as u16, vec![4; random.below(60)]);
    let traffic_class = *random.pick(&[0, 0xb8, 0xb8, 0x03]);
    match random.below(3) {
        0 => {
            let repr = Ipv4Repr { type_of_service: traffic_class, ..Ipv4Repr::new(CLIENT4, SERVER4) };
            front.inner_ipv4(repr).udp(UdpRepr::new(source, 7)).payload(&octets)
        }
        _ => {
            let repr = Ipv6Repr { traffic_class, ..Ipv6Repr::new(CLIENT, SERVER) };
            front.inner_ipv6(repr).udp(UdpRepr::new(source, 7)).payload(&octets)
        }
    }
}

/// A packet behind labels, mostly as the one before.
fn labelled(random: &mut Random) -> PacketBuilder {
    let firsts = [
        SWAP,
        SWAP,
        POP,
        POP,
        NULL,
        PATHS,
        TABLE,
        NEXT_HOP,
        DYNAMIC,
        DYNAMIC,
        DYNAMIC,
        FLOW,
        FLOW,
        FLOW_OTHER,
        STATIC,
        STATIC_LAST,
        FIREWALL,
        FIREWALL,
        STATEFUL,
    ];
    let others = [OWN, NARROW, REROUTE, 0, 2, 3, 70_000];
    let rare = random.below(8) == 0;
    let first = if rare { *random.pick(&others) } else { *random.pick(&firsts) };
    let class = if random.below(4) == 0 { *random.pick(&[0, 1, 5]) } else { 5 };
    let mut entries = vec![entry(first, if rare { *random.pick(&[0, 1, 2, 255]) } else { 64 }, class)];
    // Behind a function, mostly what goes on from there; behind others what nobody here looks at.
    let behind = match first {
        TABLE | NEXT_HOP if !rare => 0,
        _ if random.below(3) == 0 => random.below(7),
        _ => 2,
    };
    for position in 0..behind {
        let known =
            if random.below(6) == 0 { *random.pick(&[POP, OWN, DYNAMIC, TABLE, PATHS, FIREWALL]) } else { SWAP };
        let class = if random.below(12) == 0 { 2 } else { class };
        let hops = *random.pick(&[64, 64, 64, 64, 64, 63, 61, 50, 1]);
        entries.push(entry(if position == 0 { known } else { 70_000 + position as u32 }, hops, class));
    }
    let front = arriving("core0").mpls(&entries);
    if random.below(3) == 0 { inner(random, front) } else { of_flow(random, front) }
}

fn steps() -> Vec<Step> {
    let mut random = Random::new(SEED);
    let mut steps = Vec::new();
    let valid = |port, frame: PacketBuilder| Step { port, frame: frame.build(), echo: None };
    let chosen: [(&'static str, &[u32]); 10] = [
        ("core0", &[SWAP, 70_000]),
        ("core0", &[POP, 70_000]),
        ("core0", &[TABLE]),
        ("core0", &[NEXT_HOP]),
        ("core0", &[DYNAMIC, SWAP, 70_000]),
        ("dyn1", &[]),
        ("core0", &[FLOW, SWAP]),
        ("flow0", &[]),
        ("core0", &[STATIC, SWAP, 70_000]),
        ("core0", &[FIREWALL, SWAP, 70_000]),
    ];
    for (number, (port, labels)) in chosen.into_iter().enumerate() {
        let entries: Vec<MplsEntry> = labels.iter().map(|label| entry(*label, 64, 5)).collect();
        let front = if entries.is_empty() { arriving(port) } else { arriving(port).mpls(&entries) };
        let whole = if number % 4 == 2 {
            front.inner_ipv4(Ipv4Repr { type_of_service: 0xb8, ..Ipv4Repr::new(CLIENT4, SERVER4) })
        } else {
            front.inner_ipv6(Ipv6Repr { traffic_class: 0xb8, ..Ipv6Repr::new(CLIENT, SERVER) })
        };
        faults(&mut steps, &valid(port, whole.udp(UdpRepr::new(1, 7)).payload(&[1; 9])));
    }
    let end = steps.len() + PACKETS;
    while steps.len() < end {
        let mut step = match random.below(16) {
            0..=8 => valid("core0", labelled(&mut random)),
            9..=10 => valid("dyn1", inner(&mut random, arriving("dyn1"))),
            11 => valid("dyn1", of_flow(&mut random, arriving("dyn1"))),
            12..=13 => valid("flow0", of_flow(&mut random, arriving("flow0"))),
            _ => {
                let port = *random.pick(&["fun1", "fun1", "fun1", "fun2", "fun3"]);
                valid(port, inner(&mut random, arriving(port)))
            }
        };
        if random.below(4) == 0 {
            mutate(&mut random, &mut step.frame);
        }
        steps.push(step);
    }
    steps.iter_mut().for_each(|step| make_runnable(&mut step.frame));
    steps
}

/// With firewalls in front of all that is configured.
fn configured(ttl: &str) -> String {
    let firewalls: String = FIREWALLS.iter().fold("firewalls:\n".to_owned(), |text, (name, lines)| {
        let lines: String = lines.iter().map(|line| format!("-A FORWARD {line}\\n")).collect();
        let rules = format!("\"*filter\\n:INPUT ACCEPT\\n:FORWARD ACCEPT\\n:OUTPUT ACCEPT\\n{lines}COMMIT\\n\"");
        format!("{text}  - {{name: {name}, ipv6: {{file: v6, text: {rules}}}, ipv4: {{file: v4, text: {rules}}}}}\n")
    });
    let known = functions(ttl);
    assert_eq!(known.matches("\npolicies:").count(), 1);
    format!("{}{LABELS}", known.replacen("\npolicies:", &format!("\n{firewalls}policies:"), 1))
}

fn compare(configuration: &str) {
    compare_ways(configuration, &steps(), |port, frame| match port {
        // What has no labels any more goes another way.
        "core0" if frame.get(12..14) == Some(&[0x88, 0x47]) => "segue_labels",
        "core0" => "segue_again",
        _ => "segue_labels_back",
    });
}

#[test]
#[ignore = "needs root"]
fn the_usual_way_of_labels_does_what_the_general_one_does() {
    compare(&configured("pipe"));
}

#[test]
#[ignore = "needs root"]
fn and_with_one_ttl_for_all() {
    compare(&configured("uniform"));
}

/// TTLs of the first label that differ by less than the margin are the same.
#[test]
#[ignore = "needs root"]
fn and_with_a_margin() {
    let known = configured("pipe");
    let memory = "from_function: dyn1, watch: {}}";
    assert_eq!(known.matches(memory).count(), 1);
    let changed = known.replace(memory, "from_function: dyn1, hop_limit_margin: 4, watch: {}}");
    compare(&changed);
}

/// What a firewall has let pass goes on at once where it can, else by a stage: as that stage does it for all.
#[test]
#[ignore = "needs root"]
fn and_past_a_firewall() {
    let mut random = Random::new(SEED);
    let frames = (0..PACKETS / 10).map(|_| {
        let nexts = [SWAP, SWAP, POP, POP, NULL, PATHS, NARROW, TABLE, OWN, DYNAMIC, FIREWALL, 7, 70_000];
        let hops = *random.pick(&[64, 64, 64, 255, 2, 1, 0]);
        let mut entries = vec![entry(FIREWALL, *random.pick(&[64, 1]), 5), entry(*random.pick(&nexts), hops, 3)];
        let behind = random.below(7);
        entries.extend((0..behind).map(|number| entry(70_000 + number as u32, 9, 0)));
        let front = arriving("core0").mpls(&entries);
        let octets = vec![4; *random.pick(&[1, 30, 1300, 1340, 1344, 1348, 1352, 1360])];
        let front = match random.below(2) {
            0 => front.inner_ipv4(Ipv4Repr::new(CLIENT4, SERVER4)),
            _ => front.inner_ipv6(Ipv6Repr::new(CLIENT, SERVER)),
        };
        let mut frame = front.udp(UdpRepr::new(1, 7)).payload(&octets).build();
        make_runnable(&mut frame);
        Step { port: "core0", frame, echo: None }
    });
    let steps: Vec<Step> = frames.collect();
    compare_ways(&configured("pipe"), &steps, |_, _| "segue_labels_passed");
}
