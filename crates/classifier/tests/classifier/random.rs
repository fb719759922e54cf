//! Programs at random over all fields, tests and actions: image and interpreter agree, rule by rule.

use segue_classifier::arbitrary::{packet, program};
use segue_classifier::compile::compile;
use segue_classifier::execute::Memory;
use segue_classifier::interpreter::{End, classify, run, run_with};
use segue_classifier::random::Random;
use segue_classifier::{Extension, Key, Program};

/// A line to put the image at; not the first.
const BASE: u32 = 1000;

/// Extensions that hold in about half of the cases, the same for the same question.
fn extension(chain: usize, rule: usize, _: &Extension, key: &Key) -> bool {
    let mix =
        key.words.iter().fold((chain * 31 + rule) as u64, |mix, word| (mix ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mix >> 63 == 0
}

fn agree(program: &Program, packets: usize, random: &mut Random, ends: &mut Vec<End>) {
    let image = compile(program).unwrap_or_else(|error| panic!("{error}"));
    let memory = Memory::new(&image, BASE);
    let line = |chain: usize, rule: Option<usize>| rule.map_or(0, |rule| image.rule_line(chain, rule, BASE));
    let first_match = |chain: usize, key: &Key, after: Option<usize>| {
        let found = memory.classify(image.chain_line(chain, BASE), key, line(chain, after));
        (found != 0).then(|| (found - image.rule_line(chain, 0, BASE)) as usize)
    };
    for _ in 0..packets {
        let key = packet(program, random);
        for chain in 0..program.chains.len() {
            assert_eq!(
                first_match(chain, &key, None),
                classify(program, chain, &key, None),
                "chain {chain} of {program:?}\n{key:?}"
            );
        }
        let wanted = run(program, 0, &key, extension);
        let found = run_with(program, 0, &key, extension, first_match);
        assert_eq!(found, wanted, "{program:?}\n{key:?}");
        ends.push(wanted.end);
    }
}

#[test]
fn small_programs() {
    let mut random = Random::new(2026);
    let mut ends = Vec::new();
    for _ in 0..1500 {
        let program = program(&mut random, 12);
        agree(&program, 60, &mut random, &mut ends);
    }
    for end in [End::Accept, End::Drop, End::Policy(3)] {
        let count = ends.iter().filter(|other| **other == end).count();
        assert!(count > 300, "{end:?}: only {count} of {}", ends.len());
    }
}

#[test]
fn large_programs() {
    let mut random = Random::new(7);
    for rules in [200, 1000] {
        for _ in 0..8 {
            let program = program(&mut random, rules);
            agree(&program, 200, &mut random, &mut Vec::new());
        }
    }
}
