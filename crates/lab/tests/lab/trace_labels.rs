//! Traces along chains of labels: the simulation follows stacks from node to node, and what it is certain of is what happens.

use std::collections::BTreeSet;

use segue_api::client::{Client, Condition};
use segue_lab::trace::event::{Trace, Verdict};
use segue_lab::trace::{TraceArguments, text::text, trace};
use segue_model::node::NodeState;
use segue_testkit::mutation::Random;

use crate::common::TestLab;

const TOPOLOGY: &str = "
domain: { dataplane: sr-mpls }
nodes: { edge1: {}, transit: {}, nfv1: {}, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, transit] }, { between: [transit, nfv1] }, { between: [nfv1, edge2] }]
functions:
  mid: { node: nfv1 }
  rules: { node: nfv1, netfilter: {} }
  wall:
    node: nfv1
    firewall: { ipv6: { file: rules.v6, text: \"*filter\\n:FORWARD ACCEPT [0:0]\\n-A FORWARD -p tcp --dport 23 -j DROP\\nCOMMIT\\n\" } }
chains:
  plain: { from: client, to: server, via: [mid], match: { protocol: udp, destination_ports: ['1000-65535'] } }
  filtered: { from: client, to: server, via: [rules], match: { protocol: udp, destination_ports: ['1-999'] } }
  walled: { from: client, to: server, via: [wall], match: { protocol: tcp } }
";

fn traced(lab: &TestLab, arguments: &TraceArguments) -> Trace {
    trace(&lab.roots, &lab.name, arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Simulation and live trace end so. What broke, and who is a neighbour, takes a moment to be known everywhere.
#[track_caller]
fn expect(lab: &TestLab, arguments: &TraceArguments, expected: (Verdict, &str, &str)) -> Trace {
    let fits = |trace: &Trace| {
        let simulation = trace.simulation.as_ref().unwrap();
        (simulation.verdict, simulation.station.as_str(), simulation.reason.as_str()) == expected
            && (trace.verdict, trace.station.as_str(), trace.reason.as_str()) == expected
            && trace.differs.is_none()
    };
    for _ in 0..5 {
        let found = traced(lab, arguments);
        if fits(&found) {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    panic!("expected {expected:?}:\n{}", text(&traced(lab, arguments)));
}

/// Each station of the simulation sends the headers on that are seen there.
#[track_caller]
fn same_headers(found: &Trace) {
    let simulation = found.simulation.as_ref().unwrap();
    let simulated: Vec<(&str, &str)> =
        simulation.hops.iter().map(|hop| (hop.station.as_str(), hop.headers.as_str())).collect();
    let seen: Vec<(&str, &str)> =
        found.hops.iter().skip(1).map(|hop| (hop.station.as_str(), hop.headers.as_str())).collect();
    assert_eq!(simulated, seen, "{}", text(found));
}

/// Through a function on the kernel's path more is seen of the node, of which that is a part.
#[track_caller]
fn same_stacks(found: &Trace) {
    let mut seen = found.hops.iter();
    for hop in found.simulation.as_ref().unwrap().hops.iter().filter(|hop| !hop.labels.is_empty()) {
        let is_same = seen.any(|seen| seen.station == hop.station && seen.headers == hop.headers);
        assert!(is_same, "{} at {}:\n{}", hop.headers, hop.station, text(found));
    }
}

/// Some flow of a chain.
fn by_chance(random: &mut Random) -> TraceArguments {
    let chain = *random.pick(&["plain", "filtered", "walled"]);
    TraceArguments {
        ipv4: random.below(2) == 0,
        source_port: Some(20_000 + random.below(20_000) as u16),
        dscp: Some(random.below(64) as u8),
        // `mid` lowers it too, so that it must not end there.
        hop_limit: *random.pick(&[1, 8, 64, 64]),
        length: *random.pick(&[0, 0, 500, 1500, 1501]),
        ..TraceArguments::of_chain(chain)
    }
}

/// How the simulation says that a flow ends is how it ends.
#[track_caller]
fn ends_alike(lab: &TestLab, arguments: &TraceArguments) -> String {
    let found = traced(lab, arguments);
    let simulation = found.simulation.as_ref().unwrap();
    let same =
        (simulation.verdict, &simulation.station, &simulation.reason) == (found.verdict, &found.station, &found.reason);
    assert!(same && found.differs.is_none(), "{arguments:?}\n{}", text(&found));
    found.reason
}

/// Changes a node's desired state, and takes that back afterwards.
fn with(lab: &TestLab, node: &str, change: impl FnOnce(&mut NodeState), look: impl FnOnce()) {
    let agent = Client::new(lab.paths().socket(node));
    let (whole, _) = agent.state().unwrap();
    let mut changed = whole.clone();
    change(&mut changed);
    agent.apply(&changed, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
    look();
    agent.apply(&whole, &Condition::Always, false).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
#[ignore = "needs root"]
fn labels_are_followed() {
    let lab = TestLab::up("trl", TOPOLOGY);
    let arrived = (Verdict::Delivered, "server", "arrived");
    let tcp = |port| TraceArguments { destination_port: Some(port), ..TraceArguments::of_chain("walled") };
    let whole = expect(&lab, &TraceArguments::of_chain("plain"), arrived);
    same_headers(&whole);
    let simulation = whole.simulation.as_ref().unwrap();
    let stations: Vec<&str> = simulation.hops.iter().map(|hop| hop.station.as_str()).collect();
    assert_eq!(stations, ["edge1", "transit", "nfv1", "mid", "nfv1", "edge2", "server"], "{}", text(&whole));
    let labels: Vec<usize> = simulation.hops.iter().map(|hop| hop.labels.len()).collect();
    assert!(labels[0] > 1 && labels[4] > 0 && labels[3] == 0 && labels[6] == 0, "{labels:?}");
    assert!(text(&whole).contains("labels ") && text(&whole).contains("MPLS ["), "{}", text(&whole));
    for (chain, ipv4) in [("plain", true), ("walled", false), ("walled", true)] {
        same_headers(&expect(&lab, &TraceArguments { ipv4, ..TraceArguments::of_chain(chain) }, arrived));
    }
    for ipv4 in [false, true] {
        same_stacks(&expect(&lab, &TraceArguments { ipv4, ..TraceArguments::of_chain("filtered") }, arrived));
    }
    let back = TraceArguments { reverse: true, ..TraceArguments::of_chain("plain") };
    expect(&lab, &back, (Verdict::Delivered, "client", "arrived"));
    let certain = expect(&lab, &tcp(80), arrived);
    assert!(certain.simulation.as_ref().unwrap().certain, "nobody's doings are not known: {}", text(&certain));
    expect(&lab, &tcp(23), (Verdict::Vanished, "nfv1", "drop_firewall"));
    let mut random = Random::new(15);
    let ends: BTreeSet<String> = (0..12).map(|_| ends_alike(&lab, &by_chance(&mut random))).collect();
    assert!(ends.len() > 2, "{ends:?}");

    let short = |state: &mut NodeState| state.policies.iter_mut().for_each(|policy| policy.hop_limit = 1);
    with(&lab, "edge1", short, || {
        expect(&lab, &tcp(80), (Verdict::Vanished, "transit", "drop_label_ttl"));
    });
    let none = |state: &mut NodeState| state.labels.retain(|label| label.behaviour.of_sid().is_none());
    with(&lab, "nfv1", none, || {
        expect(&lab, &tcp(80), (Verdict::Vanished, "nfv1", "drop_label_unknown"));
    });
    lab.sh("transit", "ip link set nfv1 mtu 1400");
    let long = TraceArguments { length: 1450, ..tcp(80) };
    expect(&lab, &long, (Verdict::Vanished, "transit", "drop_too_big"));
    lab.sh("transit", "ip link set nfv1 mtu 9000");
    expect(&lab, &long, arrived);
    lab.down();
}
