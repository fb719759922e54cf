//! What labels carry and what carries them: frames between two hosts, and UDP where the network between two nodes knows no labels.

use segue_lab::agent;
use segue_lab::trace::event::Verdict;
use segue_lab::trace::{TraceArguments, text::text, trace};
use segue_model::topology::SrDataplane;
use segue_plan::Direction;

use crate::common::TestLab;
use crate::examples_traffic::{Kind, chain_carries, dropped, example, nothing_dropped};

/// The largest packets, and neighbours that find each other: as on one cable. Beside it a chain of IP packets.
fn is_one_link(lab: &TestLab) {
    let mac = lab.loaded.plan.hosts["right"].interface.mac.to_string();
    for address in &lab.addresses("right") {
        let largest = if address.contains(':') { 1452 } else { 1472 };
        lab.sh("left", &format!("ping -c 3 -i 0.01 -W 3 -M do -s {largest} {address}"));
        let neighbour = lab.sh("left", &format!("ip neigh show {address}"));
        assert!(neighbour.contains(&mac), "the host itself answers: {neighbour}");
    }
    // Hosts send by themselves as soon as they are up, before a node knows where the next one is.
    let before = dropped(lab);
    assert!(before.iter().all(|drop| drop.contains("drop_no_neighbour")), "{before:?}");
    let moved = chain_carries(lab, "wire", Kind::Web);
    for direction in [Direction::Forward, Direction::Reverse] {
        assert!(moved[&(direction, format!("wire-{direction}"))][0].1 > 100, "{moved:?}");
    }
    // Hosts find neighbours again when they like, so that what the frames' counters say beside other traffic is no test.
    for address in &lab.addresses("two") {
        lab.sh("one", &format!("ping -c 3 -i 0.01 -W 3 {address}"));
    }
    assert_eq!(dropped(lab), before);
}

#[test]
#[ignore = "needs root"]
fn frames_go_through_a_chain_as_over_one_link() {
    let lab = example("ethernet");
    is_one_link(&lab);
    // It is followed, in the simulation as on the wire.
    let found =
        trace(&lab.roots, &lab.name, &TraceArguments::of_chain("wire")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (found.verdict, found.station.as_str(), &found.differs),
        (Verdict::Delivered, "right", &None),
        "{}",
        text(&found)
    );
    lab.down();
}

/// The same topology, but for one line.
#[test]
#[ignore = "needs root"]
fn frames_go_through_a_chain_of_sids_as_over_one_link() {
    let file = std::fs::read_to_string(crate::common::repository("examples/ethernet.yaml")).unwrap();
    let text = file.replace("name: ethernet\n", "").replace("dataplane: sr-mpls", "dataplane: srv6");
    let lab = TestLab::up("l2s", &text);
    assert_eq!(lab.loaded.topology.domain.dataplane, SrDataplane::Srv6);
    is_one_link(&lab);
    lab.down();
}

#[test]
#[ignore = "needs root"]
fn labels_cross_a_network_without_labels() {
    let lab = example("labels-udp");
    // A router on the way sees UDP alone, and no labels.
    let rules = "add chain ip6 seen forwarded { type filter hook forward priority 0; }; \
                 add rule ip6 seen forwarded udp dport 6635 counter; add rule ip6 seen forwarded counter";
    lab.sh("sea", &format!("nft 'add table ip6 seen; {rules}'"));
    chain_carries(&lab, "through", Kind::Web);
    let moved = chain_carries(&lab, "visit", Kind::Udp);
    assert!(moved.values().all(|stations| stations[0].1 > 0), "{moved:?}");
    let seen = lab.sh("sea", "nft list table ip6 seen");
    let counts: Vec<u64> =
        seen.split("packets ").skip(1).map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect();
    let [udp, all] = counts[..] else { panic!("{seen}") };
    assert!(udp > 500 && udp == all, "{seen}");
    for address in &lab.addresses("server") {
        let largest = if address.contains(':') { 1452 } else { 1472 };
        lab.sh("client", &format!("ping -c 1 -W 3 -M do -s {largest} {address}"));
    }
    for chain in ["through", "visit"] {
        let found =
            trace(&lab.roots, &lab.name, &TraceArguments::of_chain(chain)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.verdict, &found.differs), (Verdict::Delivered, &None), "{}", text(&found));
    }
    nothing_dropped(&lab);
    // Where labels are taken is closed to hosts, those of other nodes too.
    let coast = lab.loaded.plan.nodes["coast"].loopback;
    assert!(!lab.try_sh("client", &format!("ping -c 1 -W 0.2 {coast}")));
    let drops = agent::get(&lab.paths().socket("near"), "near", "/v1/drops").unwrap();
    assert!(drops.to_string().contains("drop_infrastructure_from_outside"), "{drops}");
    lab.down();
}
