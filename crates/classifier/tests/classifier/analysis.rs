//! Warnings, and explanations of a packet's way.

use std::time::Instant;

use segue_classifier::analysis::{Oddity, analyse};
use segue_classifier::arbitrary;
use segue_classifier::classbench::{Family, Version, generate};
use segue_classifier::explain::{FieldValue, StepResult, explain};
use segue_classifier::interpreter::{End, classify, run};
use segue_classifier::program::{Limit, Log};
use segue_classifier::random::Random;
use segue_classifier::{Action, Chain, Condition, Extension, Field, Key, Program, Rule, Test, Verdict};

fn rule(line: u32, action: Action, conditions: Vec<Condition>) -> Rule {
    Rule { conditions, extensions: Vec::new(), action, line: Some(line), text: String::new() }
}

fn is(field: Field, test: Test) -> Condition {
    Condition { field, negated: false, test }
}

fn not(field: Field, test: Test) -> Condition {
    Condition { field, negated: true, test }
}

fn chain(name: &str, policy: Option<Verdict>, rules: Vec<Rule>) -> Chain {
    Chain { name: name.into(), rules, policy }
}

fn net(octet: u32, length: u32) -> Condition {
    is(Field::SourceIpv4, Test::prefix(Field::SourceIpv4, (10 << 24 | octet << 16).into(), length))
}

fn port(first: u128, last: u128) -> Condition {
    is(Field::DestinationPort, Test::range(first, last))
}

/// Line and oddity of each warning.
fn oddities(chains: Vec<Chain>) -> Vec<(Option<u32>, Oddity)> {
    let program = Program { chains, sets: Vec::new() };
    program.check().expect("a valid program");
    analyse(&program).into_iter().map(|warning| (warning.line, warning.oddity)).collect()
}

fn shadowed(rule: usize, line: u32) -> Oddity {
    Oddity::Shadowed { rule, line: Some(line) }
}

#[test]
fn shadowed_rules_are_found() {
    let limited = Rule {
        extensions: vec![Extension::Limit(Limit { interval: 1, burst: 1 })],
        ..rule(3, Action::Accept, Vec::new())
    };
    let found = oddities(vec![chain(
        "FORWARD",
        Some(Verdict::Drop),
        vec![
            rule(1, Action::Log(Log::default()), Vec::new()),
            rule(2, Action::Accept, vec![net(1, 16), port(0, 1023)]),
            limited,
            rule(4, Action::Drop, vec![net(1, 24), port(80, 80)]),
            rule(5, Action::Drop, vec![net(1, 24), is(Field::DestinationPort, Test::Ranges(vec![(22, 22), (80, 90)]))]),
            rule(
                6,
                Action::Drop,
                vec![net(1, 24), is(Field::DestinationPort, Test::Ranges(vec![(22, 22), (1024, 1024)]))],
            ),
            rule(7, Action::Drop, vec![net(2, 24), port(80, 80)]),
            rule(8, Action::Drop, vec![net(1, 24)]),
            rule(9, Action::Drop, Vec::new()),
            rule(10, Action::Drop, vec![not(Field::Protocol, Test::equal(Field::Protocol, 6))]),
        ],
    )]);
    assert_eq!(found, [(Some(4), shadowed(1, 2)), (Some(5), shadowed(1, 2)), (Some(10), shadowed(8, 9))]);
}

#[test]
fn a_test_that_packets_without_the_field_fail_shadows_only_tests_of_that_field() {
    let any_port = port(0, 65_535);
    let found = oddities(vec![chain(
        "FORWARD",
        Some(Verdict::Drop),
        vec![
            rule(1, Action::Accept, vec![any_port]),
            rule(2, Action::Drop, Vec::new()),
            rule(3, Action::Drop, vec![port(1, 1)]),
        ],
    )]);
    assert_eq!(found, [(Some(3), shadowed(0, 1))]);
}

#[test]
fn conditions_that_exclude_each_other_are_found() {
    let impossible = [
        vec![port(1, 2), port(3, 4)],
        vec![
            net(1, 16),
            is(Field::FlowLabel, Test::equal(Field::FlowLabel, 1)),
            is(Field::Family, Test::equal(Field::Family, 6)),
        ],
        vec![net(1, 16), is(Field::SourceIpv6, Test::prefix(Field::SourceIpv6, 1 << 127, 1))],
        vec![is(Field::DestinationPort, Test::Ranges(Vec::new()))],
        vec![not(Field::Protocol, Test::prefix(Field::Protocol, 0, 0))],
        vec![is(Field::Mark, Test::Masked { value: 2, mask: 1 })],
        vec![is(Field::ConnectionState, Test::AnyBit(2)), is(Field::ConnectionState, Test::AnyBit(8))],
    ];
    for conditions in impossible {
        let found =
            oddities(vec![chain("INPUT", Some(Verdict::Drop), vec![rule(7, Action::Accept, conditions.clone())])]);
        assert_eq!(found, [(Some(7), Oddity::Unsatisfiable)], "{conditions:?}");
    }
}

#[test]
fn chains_that_nothing_leads_to_are_found() {
    let chains = vec![
        chain(
            "INPUT",
            Some(Verdict::Accept),
            vec![
                rule(1, Action::Jump(1), Vec::new()),
                rule(2, Action::Drop, Vec::new()),
                rule(3, Action::Jump(2), Vec::new()),
            ],
        ),
        chain("used", None, Vec::new()),
        chain("behind", None, vec![rule(4, Action::Goto(3), Vec::new())]),
        chain("far", None, vec![rule(5, Action::Drop, Vec::new())]),
        // Without rules: nothing in it is never hit.
        chain("empty", None, Vec::new()),
    ];
    let program = Program { chains, sets: Vec::new() };
    let text = analyse(&program).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        text,
        [
            "line 3: chain INPUT, rule 3: never hit: rule 2 (line 2) takes every packet that it matches",
            "chain behind: never entered: no rule that can be hit leads to it",
            "chain far: never entered: no rule that can be hit leads to it",
        ]
    );
}

#[test]
fn too_many_rules_for_one_packet_are_found() {
    let log = |line| rule(line, Action::Log(Log::default()), Vec::new());
    let chains = vec![
        chain("INPUT", Some(Verdict::Accept), (0..10).map(|line| rule(line, Action::Jump(1), Vec::new())).collect()),
        chain("logs", None, (10..60).map(log).collect()),
    ];
    assert_eq!(oddities(chains), [(None, Oddity::Steps(510))]);
}

/// What is said to be never hit is never hit.
#[test]
fn no_packet_hits_a_rule_that_was_warned_of() {
    let mut random = Random::new(31);
    let mut warned = 0;
    for _ in 0..600 {
        let program = arbitrary::program(&mut random, 25);
        let warnings = analyse(&program);
        let dead = warnings.iter().filter_map(|warning| {
            let chain = program.chain(&warning.chain)?;
            matches!(warning.oddity, Oddity::Unsatisfiable | Oddity::Shadowed { .. }).then_some((chain, warning.rule?))
        });
        let dead = dead.collect::<Vec<_>>();
        warned += dead.len();
        for _ in 0..200 {
            let key = arbitrary::packet(&program, &mut random);
            let walk = run(&program, 0, &key, |_, _, _, _| true);
            for hit in &walk.hits {
                assert!(!dead.contains(hit), "{hit:?} of {program:?}\n{key:?}");
            }
        }
    }
    assert!(warned > 500, "only {warned} rules");
}

#[test]
fn ten_thousand_rules_are_analysed() {
    for family in [Family::Acl, Family::Fw, Family::Ipc] {
        let program = generate(family, Version::V6, 10_000, 5);
        let begin = Instant::now();
        let warnings = analyse(&program);
        println!("{family:?}: {} warnings in {} ms", warnings.len(), begin.elapsed().as_millis());
    }
}

#[test]
fn an_explanation_names_the_first_condition_that_failed() {
    let limited = Rule {
        extensions: vec![Extension::Limit(Limit { interval: 1, burst: 1 })],
        ..rule(4, Action::Accept, vec![port(80, 80)])
    };
    let program = Program {
        chains: vec![
            chain(
                "INPUT",
                Some(Verdict::Drop),
                vec![
                    rule(1, Action::Accept, vec![net(2, 16), port(443, 443)]),
                    rule(2, Action::Jump(1), vec![net(1, 16)]),
                    rule(3, Action::Accept, vec![not(Field::IcmpType, Test::equal(Field::IcmpType, 8))]),
                    limited,
                ],
            ),
            chain("user", None, vec![rule(5, Action::Accept, vec![port(443, 443)])]),
        ],
        sets: Vec::new(),
    };
    let key = Key::new().with(Field::SourceIpv4, (10 << 24 | 1 << 16) + 1).with(Field::DestinationPort, 80);
    let told = explain(&program, 0, &key, |_, _, _, _| false);
    let steps = told.steps.iter().map(|step| (step.chain, step.rule, step.result.clone())).collect::<Vec<_>>();
    let failed = |index, value| StepResult::Condition { index, value };
    assert_eq!(
        steps,
        [
            (0, 0, failed(0, Some((10 << 24 | 1 << 16) + 1))),
            (0, 1, StepResult::Hit),
            (1, 0, failed(0, Some(80))),
            (0, 2, failed(0, None)),
            (0, 3, StepResult::Extension(0)),
        ]
    );
    assert_eq!(told.walk, run(&program, 0, &key, |_, _, _, _| false));
    assert_eq!((told.walk.end, told.walk.hits), (End::Drop, vec![(0, 1)]));
    let conditions = &program.chains[0].rules[0].conditions;
    assert_eq!(conditions[0].to_string(), "SourceIpv4 10.2.0.0/255.255.0.0");
    assert_eq!(conditions[1].to_string(), "DestinationPort in 443");
    assert_eq!(FieldValue(Field::SourceMac, 0x0200_0000_0001).to_string(), "02:00:00:00:00:01");
}

#[test]
fn explanations_of_any_program_agree_with_the_interpreter() {
    let mut random = Random::new(8);
    for _ in 0..300 {
        let program = arbitrary::program(&mut random, 12);
        let key = arbitrary::packet(&program, &mut random);
        let told = explain(&program, 0, &key, |_, rule, _, _| rule % 2 == 0);
        assert_eq!(told.walk, run(&program, 0, &key, |_, rule, _, _| rule % 2 == 0));
        for step in &told.steps {
            let first = classify(&program, step.chain, &key, step.rule.checked_sub(1));
            if told.walk.mark == 0 && step.result == StepResult::Hit {
                assert_eq!(first, Some(step.rule));
            }
        }
    }
}
