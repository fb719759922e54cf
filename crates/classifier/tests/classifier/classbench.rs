//! Rule sets of real make-up: the compiled structure finds what the interpreter finds.

use std::time::Instant;

use segue_classifier::classbench::{Family, Version, any_packet, generate, one_shape, packet, port_ranges};
use segue_classifier::compile::compile;
use segue_classifier::execute::Memory;
use segue_classifier::interpreter::classify;
use segue_classifier::random::Random;
use segue_classifier::{Key, Program};

/// Where the image lies: not at the beginning.
const BASE: u32 = 7;

fn compare(name: &str, program: &Program, version: Version, packets: usize) {
    let begin = Instant::now();
    let image = compile(program).unwrap_or_else(|error| panic!("{name}: {error}"));
    let took = begin.elapsed();
    let memory = Memory::new(&image, BASE);
    let mut random = Random::new(99);
    let rules = &program.chains[0].rules;
    let (mut nodes, mut compared, mut lines, mut hits, mut worst) = (0, 0, 0, 0, 0);
    for number in 0..packets {
        let key: Key = if number % 8 == 7 {
            any_packet(version, &mut random)
        } else {
            packet(random.pick(rules), version, &mut random)
        };
        let after = None; // all rules of these sets end the chain: nobody looks behind them
        let wanted = classify(program, 0, &key, after);
        let line = |rule: Option<usize>| rule.map_or(0, |rule| image.rule_line(0, rule, BASE));
        let (found, effort) = memory.measure(image.chain_line(0, BASE), &key, line(after));
        assert_eq!(found, line(wanted), "{name}: packet {number}: {key:?} after {after:?}: rule {wanted:?}");
        hits += usize::from(wanted.is_some());
        nodes += effort.nodes;
        compared += effort.rules;
        lines += effort.lines;
        worst = worst.max(effort.lines);
    }
    let mean = |sum: usize| sum as f64 / packets as f64;
    println!(
        "{name}: {} rules, {} KiB, compiled in {} ms; {:.2} nodes, {:.2} rules compared, {:.2} lines (most {worst}), {:.2} hit",
        rules.len(),
        image.octets() / 1024,
        took.as_millis(),
        mean(nodes),
        mean(compared),
        mean(lines),
        mean(hits)
    );
}

#[test]
fn sets_of_the_three_families() {
    for (family, name) in [(Family::Acl, "ACL"), (Family::Fw, "FW"), (Family::Ipc, "IPC")] {
        for (version, text) in [(Version::V4, "v4"), (Version::V6, "v6")] {
            for rules in [10, 1000, 10_000] {
                let program = generate(family, version, rules, 1 + rules as u64);
                compare(&format!("{name} {text}"), &program, version, 2000);
            }
        }
    }
}

#[test]
fn sets_of_one_shape() {
    for version in [Version::V4, Version::V6] {
        for rules in [1, 2, 16, 512, 4096] {
            compare("hosts", &one_shape(version, rules, 3), version, 2000);
            compare("port ranges", &port_ranges(version, rules, 4), version, 2000);
        }
    }
}
