//! Ten nodes, and in a long run (`SEGUE_LONG`) a hundred, come up with agents, and carry traffic.

use std::time::Instant;

use crate::common::TestLab;
use segue_lab::list;

/// A binary tree of nodes with hosts at two leaves far apart, and a chain over its root.
fn tree(nodes: usize) -> String {
    let mut text = String::from("nodes:\n");
    for node in 1..=nodes {
        text.push_str(&format!("  n{node}: {{}}\n"));
    }
    text.push_str(&format!("hosts:\n  left: {{ node: n{} }}\n  right: {{ node: n{nodes} }}\nlinks:\n", nodes / 2 + 1));
    for node in 2..=nodes {
        text.push_str(&format!("  - between: [n{}, n{node}]\n", node / 2));
    }
    text.push_str("chains:\n  c: { from: left, to: right, via: [\"node:n1\"] }\n");
    text
}

fn comes_up_and_works(nodes: usize) {
    let begun = Instant::now();
    let lab = TestLab::up("big", &tree(nodes));
    println!("{nodes} nodes with two hosts are up in {:.1} s", begun.elapsed().as_secs_f64());
    let status = list::status(&lab.roots, &lab.name).unwrap();
    assert_eq!(status.condition, list::Condition::Up);
    assert_eq!(status.nodes.iter().filter(|node| node.agent.is_some()).count(), nodes);
    for address in lab.addresses("right") {
        assert!(lab.try_sh("left", &format!("ping -n -c 3 -i 0.1 -w 5 {address}")), "no answer from {address}");
    }
    let begun = Instant::now();
    lab.down();
    println!("and down in {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
#[ignore = "needs root"]
fn ten_nodes() {
    comes_up_and_works(10);
}

#[test]
#[ignore = "needs root"]
fn a_hundred_nodes() {
    if std::env::var_os("SEGUE_LONG").is_none() {
        return;
    }
    comes_up_and_works(100);
}
