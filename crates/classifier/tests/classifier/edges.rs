//! Chains at the edges: empty, one rule, many alike, nothing to divide by, as large as they get.

use segue_classifier::classbench::{Family, Version, any_packet, generate, packet};
use segue_classifier::compile::{CompileError, compile};
use segue_classifier::execute::Memory;
use segue_classifier::interpreter::classify;
use segue_classifier::program::{Limit, Reason};
use segue_classifier::random::Random;
use segue_classifier::{Action, Chain, Condition, Extension, Field, Key, Program, Rule, Test, Verdict};

fn rule(action: Action, conditions: Vec<Condition>) -> Rule {
    Rule { conditions, extensions: Vec::new(), action, line: Some(1), text: String::new() }
}

fn is(field: Field, test: Test) -> Condition {
    Condition { field, negated: false, test }
}

fn not(field: Field, test: Test) -> Condition {
    Condition { field, negated: true, test }
}

fn program(rules: Vec<Rule>) -> Program {
    let chain = Chain { name: "FORWARD".into(), rules, policy: Some(Verdict::Drop) };
    Program { chains: vec![chain], sets: Vec::new() }
}

/// The rule that image and interpreter find.
fn find(program: &Program, key: &Key) -> Option<usize> {
    let image = compile(program).unwrap_or_else(|error| panic!("{error}"));
    let memory = Memory::new(&image, 1);
    let found = memory.classify(image.chain_line(0, 1), key, 0);
    let found = (found != 0).then(|| (found - image.rule_line(0, 0, 1)) as usize);
    assert_eq!(found, classify(program, 0, key, None), "{program:?} {key:?}");
    found
}

fn tcp(port: u128) -> Key {
    Key::new().with(Field::SourceIpv6, 1).with(Field::Protocol, 6).with(Field::DestinationPort, port)
}

#[test]
fn no_rule_and_one_rule() {
    assert_eq!(find(&program(Vec::new()), &tcp(1)), None);
    let all = program(vec![rule(Action::Accept, Vec::new())]);
    for key in [Key::new(), tcp(1), Key::new().with(Field::SourceIpv4, 1), Key::new().with(Field::Family, 7)] {
        assert_eq!(find(&all, &key), Some(0));
    }
}

#[test]
fn rules_that_are_all_alike() {
    let same = || rule(Action::Accept, vec![is(Field::DestinationPort, Test::equal(Field::DestinationPort, 80))]);
    let alike = program((0..10_000).map(|_| same()).collect());
    assert_eq!((find(&alike, &tcp(80)), find(&alike, &tcp(81))), (Some(0), None));
    // With extensions, every one of them may be asked for.
    let limited = || Rule { extensions: vec![Extension::Limit(Limit { interval: 1, burst: 1 })], ..same() };
    let alike = program((0..1000).map(|_| limited()).collect());
    let image = compile(&alike).expect("a valid program");
    let memory = Memory::new(&image, 0);
    let mut after = 0;
    for rule in 0..1000 {
        after = memory.classify(image.chain_line(0, 0), &tcp(80), after);
        assert_eq!(after, image.rule_line(0, rule, 0));
    }
    assert_eq!(memory.classify(image.chain_line(0, 0), &tcp(80), after), 0);
}

#[test]
fn a_later_fragment_matches_no_rule_about_ports() {
    let port = |test: Test| {
        program(vec![rule(
            Action::Accept,
            vec![is(Field::Protocol, Test::equal(Field::Protocol, 6)), not(Field::DestinationPort, test)],
        )])
    };
    let fragment = Key::new().with(Field::SourceIpv4, 1).with(Field::Protocol, 6).with(Field::FragmentOffset, 100);
    for test in [Test::equal(Field::DestinationPort, 80), Test::Ranges(vec![(1, 2), (5, 9)]), Test::AnyBit(1)] {
        assert_eq!(find(&port(test.clone()), &fragment), None, "{test:?}");
        assert_eq!(find(&port(test.clone()), &fragment.with(Field::DestinationPort, 90)), Some(0), "{test:?}");
    }
    let later =
        program(vec![rule(Action::Drop, vec![not(Field::FragmentOffset, Test::equal(Field::FragmentOffset, 0))])]);
    assert_eq!(find(&later, &fragment), Some(0));
    assert_eq!(find(&later, &Key::new().with(Field::SourceIpv4, 1).with(Field::FragmentOffset, 0)), None);
}

#[test]
fn both_families_in_one_chain() {
    let four = is(Field::SourceIpv4, Test::prefix(Field::SourceIpv4, 0x0a00_0000, 8));
    let six = is(Field::SourceIpv6, Test::prefix(Field::SourceIpv6, 0x2001_0db8 << 96, 32));
    let mixed = program(vec![
        rule(Action::Accept, vec![four]),
        rule(Action::Accept, vec![six]),
        rule(Action::Accept, vec![is(Field::SourcePort, Test::range(0, 65_535))]),
        rule(Action::Accept, vec![not(Field::SourceIpv6, Test::prefix(Field::SourceIpv6, 0, 0))]),
        rule(Action::Accept, vec![not(Field::Family, Test::equal(Field::Family, 4))]),
    ]);
    assert_eq!(find(&mixed, &Key::new().with(Field::SourceIpv4, 0x0a01_0203)), Some(0));
    assert_eq!(find(&mixed, &Key::new().with(Field::SourceIpv6, 0x2001_0db8 << 96)), Some(1));
    assert_eq!(find(&mixed, &Key::new().with(Field::SourceIpv4, 0x0b01_0203)), None);
    assert_eq!(find(&mixed, &Key::new().with(Field::SourceIpv4, 0x0b01_0203).with(Field::SourcePort, 0)), Some(2));
    // The upper half of an IPv6 address as an IPv4 address: no IPv4 rule matches it.
    assert_eq!(find(&mixed, &Key::new().with(Field::SourceIpv6, 0x0a01_0203 << 64)), Some(4));
    assert_eq!(find(&mixed, &Key::new()), Some(4));
}

#[test]
fn lists_and_ranges_over_whole_addresses() {
    let range = |first: u128, last: u128| is(Field::SourceIpv6, Test::range(first, last));
    let spans = [(1 << 64, (5 << 64) + 7), (3 << 64 | 5, 3 << 64 | 9), ((9 << 64) - 1, 9 << 64), (0, u128::MAX)];
    for (first, last) in spans {
        let one = program(vec![rule(Action::Accept, vec![range(first, last)])]);
        for value in
            [first, last, first.wrapping_add(1), last.wrapping_sub(1), first.wrapping_sub(1), last.wrapping_add(1)]
        {
            let expected = (first..=last).contains(&value).then_some(0);
            assert_eq!(
                find(&one, &Key::new().with(Field::SourceIpv6, value)),
                expected,
                "{first:#x} {last:#x} {value:#x}"
            );
        }
    }
}

#[test]
fn a_list_that_is_too_long_is_refused_with_its_line() {
    let ranges = (0..70_000_u128).map(|index| (index << 97, index << 97)).collect();
    let long = program(vec![Rule {
        line: Some(12),
        ..rule(Action::Accept, vec![is(Field::SourceIpv6, Test::Ranges(ranges))])
    }]);
    let error = compile(&long).expect_err("too many comparisons");
    assert!(matches!(error, CompileError::Checks { line: Some(12), .. }), "{error:?}");
    assert!(error.to_string().starts_with("line 12: chain FORWARD: "), "{error}");
}

#[test]
fn loops_and_depth_are_refused_with_the_line() {
    let user = |name: &str, action: Action| Chain {
        name: name.into(),
        rules: vec![Rule { line: Some(9), ..rule(action, Vec::new()) }],
        policy: None,
    };
    let mut chains = vec![Chain { policy: Some(Verdict::Accept), ..user("INPUT", Action::Jump(1)) }];
    chains.extend((1..9).map(|index| user(&format!("c{index}"), Action::Jump(index + 1))));
    chains.push(user("c9", Action::Accept));
    let error = Program { chains: chains.clone(), sets: Vec::new() }.check().expect_err("ten deep");
    assert!(matches!(error.reason, Reason::Depth(_)) && error.line == Some(9), "{error}");
    chains.truncate(3);
    chains[2].rules[0].action = Action::Goto(1);
    let error = Program { chains, sets: Vec::new() }.check().expect_err("a loop");
    assert_eq!(
        error.to_string(),
        "line 9: chain c2: loop: INPUT -> c1 -> c2 -> c1; a packet could stay in it for ever, remove one of these jumps"
    );
}

/// A hundred thousand flow descriptors for steering: 5-tuples of which parts are open.
#[test]
fn a_hundred_thousand_descriptors() {
    let mut random = Random::new(4);
    let means = [10, 100_000].map(|count| {
        let descriptors = generate(Family::Acl, Version::V6, count, 12);
        let begin = std::time::Instant::now();
        let image = compile(&descriptors).expect("a valid program");
        println!("{count} descriptors: {} KiB in {} ms", image.octets() / 1024, begin.elapsed().as_millis());
        let memory = Memory::new(&image, 0);
        let rules = &descriptors.chains[0].rules;
        let mut lines = 0;
        for number in 0..300 {
            let key = match number % 8 {
                0 => any_packet(Version::V6, &mut random),
                _ => packet(random.pick(rules), Version::V6, &mut random),
            };
            let (found, effort) = memory.measure(image.chain_line(0, 0), &key, 0);
            let wanted = classify(&descriptors, 0, &key, None);
            assert_eq!(found, wanted.map_or(0, |rule| image.rule_line(0, rule, 0)));
            lines += effort.lines;
        }
        lines as f64 / 300.0
    });
    println!("lines touched: {means:?}");
    assert!(means[1] < 25.0, "{means:?}");
}
