//! Links that delay, lose, duplicate and reorder, by the lab's relay.

use std::time::Instant;

use segue_lab::relay::decide::Fates;
use segue_model::topology::Impairment;

use crate::common::TestLab;

const PINGS: usize = 100;

/// The echo requests that are answered, and how often, where both directions lose and duplicate.
fn answers(impairment: &Impairment) -> usize {
    let (mut there, mut back) = (Fates::new(impairment, 0, 0), Fates::new(impairment, 0, 1));
    let copies = |fates: &mut Fates| match fates.next_fate() {
        fate if fate.lost => 0,
        fate if fate.twice => 2,
        _ => 1,
    };
    (0..PINGS).map(|_| (0..copies(&mut there)).map(|_| copies(&mut back)).sum::<usize>()).sum()
}

/// Losses and duplicates are exactly those of the seed, through XDP on both ends and the kernel's own forwarding; what a link delays takes as long.
#[test]
#[ignore = "needs root"]
fn a_seed_decides_which_packets_are_lost_and_doubled() {
    let impaired = |keys: &str| {
        format!(
            "nodes: {{ a: {{}}, b: {{}}, c: {{ dataplane: plain }} }}
hosts: {{ ha: {{ node: a }}, hb: {{ node: b }}, hc: {{ node: c }} }}
links:
  - {{ between: [a, b], impaired: {{ loss_percent: 20, duplicate_percent: 10, seed: 3 }} }}
  - {{ between: [b, c], impaired: {{ delay_ms: 30, jitter_ms: 10, reorder_percent: 20{keys} }} }}
chains: {{ web: {{ from: ha, to: hb, via: [] }} }}
"
        )
    };
    let lab = TestLab::up("imp", &impaired(""));
    let seed = Impairment { loss_percent: 20.0, duplicate_percent: 10.0, seed: 3, ..Impairment::default() };
    let expected = answers(&seed);
    assert!(expected < PINGS, "{expected}");
    let hb = &lab.addresses("hb")[1];
    let output = lab.sh("ha", &format!("ping -n -c {PINGS} -i 0.01 -W 1 {hb}"));
    let lines = output.lines().filter(|line| line.contains("bytes from")).count();
    assert_eq!(lines, expected, "{output}");
    // Two directions of at least 20 ms, of a node that forwards and a router that knows nothing of Segment Routing.
    let hc = &lab.addresses("hc")[1];
    let begun = Instant::now();
    let output = lab.sh("hb", &format!("ping -n -c 20 -i 0.002 -W 2 {hc}"));
    assert!(output.contains("20 received"), "{output}");
    let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse::<f64>().ok();
    let times: Vec<f64> = output.lines().filter_map(time).collect();
    assert!(times.len() == 20 && times.iter().all(|time| *time >= 40.0), "{output}");
    assert!(begun.elapsed().as_millis() >= 40);
    let order: Vec<u32> =
        output.lines().filter_map(|line| line.split("icmp_seq=").nth(1)?.split(' ').next()?.parse().ok()).collect();
    assert!(order.windows(2).any(|pair| pair[0] > pair[1]), "none was overtaken: {order:?}");
    lab.down();
}
