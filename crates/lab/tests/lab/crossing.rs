//! Chains that cross between labels and SIDs carry traffic, and are followed.

use segue_lab::trace::event::Verdict;
use segue_lab::trace::{TraceArguments, text::text, trace};
use segue_plan::{Approach, Direction};

use crate::common::TestLab;
use crate::examples_traffic::{Kind, approach, chain_carries, example, nothing_dropped};

/// A trace arrives, in the simulation as on the wire. With more to do than processors, what is seen of it may come in disorder.
fn is_followed(lab: &TestLab, arguments: &TraceArguments, to: &str) {
    let mut last = String::new();
    for _ in 0..5 {
        let found = trace(&lab.roots, &lab.name, arguments).unwrap_or_else(|error| panic!("{error}"));
        let simulation = found.simulation.as_ref().unwrap();
        assert_eq!((simulation.verdict, simulation.station.as_str()), (Verdict::Delivered, to), "{}", text(&found));
        if (found.verdict, found.station.as_str()) == (Verdict::Delivered, to) && found.differs.is_none() {
            return;
        }
        last = text(&found);
    }
    panic!("{last}");
}

/// From labels to SIDs and back, with functions in both parts; and from the border itself to SIDs, and by labels to its other side.
#[test]
#[ignore = "needs root"]
fn crossing() {
    let lab = example("crossing");
    assert_eq!([approach(&lab, "filter"), approach(&lab, "scan")], [Approach::Static, Approach::Exact]);
    let moved = chain_carries(&lab, "web", Kind::Web);
    let packets = |policy: &str, direction| moved[&(direction, policy.to_owned())][0].1;
    for direction in [Direction::Forward, Direction::Reverse] {
        let [first, second] = ["", "-part2"].map(|part| packets(&format!("web-{direction}{part}"), direction));
        assert!(first > 100 && first == second, "{direction}: {moved:?}");
    }
    chain_carries(&lab, "rest", Kind::Udp);
    chain_carries(&lab, "around", Kind::Udp);
    // What crosses is no larger than what hosts send: the largest packet comes through, unfragmented.
    for host in [("left", "right"), ("right", "left")] {
        let address = &lab.addresses(host.1)[0];
        lab.sh(
            host.0,
            &format!("ping -c 1 -W 3 -M do -s {} {address}", if address.contains(':') { 1452 } else { 1472 }),
        );
    }
    for (chain, reverse, ipv4, to) in
        [("web", false, true, "right"), ("web", true, false, "left"), ("around", false, false, "left")]
    {
        is_followed(&lab, &TraceArguments { reverse, ipv4, ..TraceArguments::of_chain(chain) }, to);
    }
    nothing_dropped(&lab);
    lab.down();
}

/// Islands of labels, which SIDs join over an IPv6 router that knows nothing of either; and the kernel as headend and egress of the SIDs.
#[test]
#[ignore = "needs root"]
fn islands_of_labels() {
    let lab = TestLab::up(
        "isl",
        "
nodes:
  near: { sr_dataplane: sr-mpls }
  shore: { sr_dataplane: both }
  sea: { dataplane: plain }
  coast: { sr_dataplane: both }
  far: { sr_dataplane: sr-mpls }
  ship: { dataplane: kernel }
hosts: { one: { node: near }, two: { node: far }, crew: { node: ship } }
links: [{ between: [near, shore] }, { between: [shore, sea] }, { between: [sea, coast] }, { between: [coast, far] }, { between: [sea, ship] }]
functions: { filter: { node: far, netfilter: {} }, scan: { node: shore } }
chains:
  over: { from: one, to: two, via: [filter] }
  board: { from: one, to: crew, via: [scan] }
",
    );
    let moved = chain_carries(&lab, "over", Kind::Udp);
    assert_eq!(moved.len(), 6, "three parts each way: {moved:?}");
    chain_carries(&lab, "board", Kind::Udp);
    nothing_dropped(&lab);
    lab.down();
}
