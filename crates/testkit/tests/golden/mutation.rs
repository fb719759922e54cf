//! A million packets that went wrong: each is accounted for by exactly one outcome, none aborts the program, none leaves with
//! octets of the one before.

use std::collections::BTreeMap;

use segue_testkit::fixture::{DOMAIN, Network, configuration};
use segue_testkit::is_long;
use segue_testkit::mutation::{Random, Seed, mutate, seeds};
use segue_testkit::node::{Node, Runner, Verdict, on_socket_buffers};

/// Of each further kind of packets a million in a long run, 300,000 else. On socket buffers, whose programs are the same ones compiled once more, a tenth of a million.
pub fn packets() -> usize {
    match (on_socket_buffers(), is_long()) {
        (true, _) => 100_000,
        (false, true) => 1_000_000,
        (false, false) => 300_000,
    }
}

fn hexadecimal(frame: &[u8]) -> String {
    frame.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// What is wrong with how a packet was accounted for, by kind, with the first such packet.
pub type Faults = BTreeMap<String, String>;

/// Which outcomes have more packets than before, and how many more.
fn moved(before: &[u64], now: &[u64]) -> Vec<(usize, u64)> {
    const PART: usize = 16;
    let mut moved = Vec::new();
    // Parts that are the same are known at a glance: it is done for each of millions of packets, and hardly optimised.
    for (part, (before, now)) in before.chunks(PART).zip(now.chunks(PART)).enumerate().filter(|(_, (a, b))| a != b) {
        let changed = before.iter().zip(now).enumerate().filter(|(_, (before, now))| before != now);
        moved.extend(changed.map(|(at, (before, now))| (part * PART + at, now - before)));
    }
    moved
}

/// Sends one packet and checks that exactly one outcome moved, by one packet, and fits the verdict.
pub fn send(runner: &mut Runner<'_>, counted: &mut Vec<u64>, port: &str, frame: &[u8], faults: &mut Faults) -> Verdict {
    let (verdict, _) = runner.run(port, frame);
    let now = runner.outcomes(port);
    let moved = moved(counted, &now);
    let fits = match (verdict, &moved[..]) {
        (Verdict::Drop, [(outcome, 1)]) => *outcome >= 16,
        (Verdict::Pass, [(outcome, 1)]) => (2..8).contains(outcome) || *outcome == 10,
        // Dropped packets may be answered: then a message leaves in their place.
        (Verdict::Transmit | Verdict::Redirect, [(outcome, 1)]) => !(2..8).contains(outcome) && *outcome != 10,
        _ => false,
    };
    if !fits {
        let kind = format!("{port}: {verdict:?} with outcomes (number, packets) {moved:?}");
        faults.entry(kind).or_insert_with(|| hexadecimal(frame));
    }
    *counted = now;
    verdict
}

#[test]
#[ignore = "needs root"]
fn a_million_mutated_packets() {
    let packets = if on_socket_buffers() { 100_000 } else { 1_000_000 };
    let network = Network::new();
    let node = Node::load(&network.node, &configuration(DOMAIN));
    let seeds = seeds();
    let ports: std::collections::BTreeSet<&str> = seeds.iter().map(|seed| seed.port).collect();
    let mut seen = [0_u64; 5];
    let mut faults = Faults::new();
    node.run_many(|runner| {
        for port in &ports {
            let mut random = Random::new(0x5e90_0e00 + port.len() as u64);
            let mine: Vec<&Seed> = seeds.iter().filter(|seed| seed.port == *port).collect();
            let mut counted = runner.outcomes(port);
            let share = packets * mine.len() / seeds.len() + 1;
            for _ in 0..share {
                let mut frame = random.pick(&mine).frame.clone();
                mutate(&mut random, &mut frame);
                seen[send(runner, &mut counted, port, &frame, &mut faults) as usize] += 1;
            }
        }
    });
    let [aborted, dropped, passed, transmitted, redirected] = seen;
    let total: u64 = seen.iter().sum();
    println!(
        "{total} packets: {dropped} dropped, {passed} passed, {redirected} redirected, {transmitted} sent back, {aborted} aborted"
    );
    assert!(faults.is_empty(), "not accounted for by exactly one outcome that fits: {faults:#?}");
    assert!(total >= packets as u64);
    assert_eq!(aborted, 0);
    // A mutation that breaks everything would prove nothing about what happens behind the first check.
    assert!(redirected > total / 20 && dropped > total / 20, "{seen:?}");
}

/// The program must not let octets of an earlier packet out: the same packet gives the same output, whatever came before it.
#[test]
#[ignore = "needs root"]
fn outputs_do_not_depend_on_the_packet_before() {
    let network = Network::new();
    let node = Node::load(&network.node, &configuration(DOMAIN));
    let seeds = seeds();
    let mut compared = 0;
    node.run_many(|runner| {
        let mut random = Random::new(0x0dd_ba11);
        for number in 0..40_000 {
            let seed = random.pick(&seeds).clone();
            let mut frame = seed.frame.clone();
            if number >= seeds.len() {
                mutate(&mut random, &mut frame);
            }
            // Pages are used again: what they held is 0xaa the first time and 0x55 the second.
            let mut outputs = [0xaa_u8, 0x55].map(|fill| {
                let before = random.pick(&seeds);
                let mut other = before.frame.clone();
                for octet in other.iter_mut().skip(14) {
                    *octet = fill;
                }
                other.resize(1_900, fill);
                runner.run(before.port, &other);
                runner.run(seed.port, &frame)
            });
            assert_eq!(outputs[0].0, outputs[1].0, "packet {number}: {}", hexadecimal(&frame));
            if outputs[0].0 == Verdict::Drop {
                continue; // Nobody sees its octets.
            }
            compared += 1;
            let [first, second] = &mut outputs;
            assert_eq!(
                hexadecimal(&first.1),
                hexadecimal(&second.1),
                "packet {number} at {}: {}",
                seed.port,
                hexadecimal(&frame)
            );
        }
    });
    assert!(compared > 10_000, "only {compared} packets left");
}
