//! The classifier in BPF answers as the interpreter does. What a lookup costs: `segue bench cost --behaviour lookup`.

use segue_bench::lookup::{self, BASE, QUERIES};
use segue_classifier::classbench::{Family, Version, any_packet, generate, packet};
use segue_classifier::execute::Memory;
use segue_classifier::interpreter::classify;
use segue_classifier::program::Limit;
use segue_classifier::random::Random;
use segue_classifier::{Action, Chain, Condition, Extension, Field, Key, Program, Rule, Test, Verdict, arbitrary};

struct Question {
    key: Key,
    /// Rule of the chain behind which is looked.
    after: Option<usize>,
}

struct Classifier(lookup::Classifier);

impl Classifier {
    fn load(program: &Program) -> Self {
        Self(lookup::Classifier::load(program).expect("a valid program, which the kernel takes"))
    }

    fn line(&self, chain: usize, rule: Option<usize>) -> u32 {
        rule.map_or(0, |rule| self.0.image().rule_line(chain, rule, BASE))
    }

    /// Lines of the rules that are found.
    fn ask(&self, chain: usize, questions: &[Question]) -> Vec<u32> {
        let image = self.0.image();
        let asked: Vec<lookup::Question> = questions
            .iter()
            .map(|question| lookup::Question {
                key: question.key,
                chain: image.chain_line(chain, BASE),
                after: self.line(chain, question.after),
            })
            .collect();
        let answers = self.0.ask(&asked).expect("answers");
        for answer in answers.iter().filter(|answer| answer.line != 0) {
            let rule = (answer.line - image.rule_line(chain, 0, BASE)) as usize;
            assert_eq!(answer.number as usize, image.rule_number(chain, rule));
        }
        answers.iter().map(|answer| answer.line).collect()
    }
}

fn questions(program: &Program, version: Version, random: &mut Random, count: usize) -> Vec<Question> {
    let rules = &program.chains[0].rules;
    let question = |number: usize, random: &mut Random| Question {
        key: if number % 8 == 7 { any_packet(version, random) } else { packet(random.pick(rules), version, random) },
        after: None,
    };
    (0..count).map(|number| question(number, random)).collect()
}

#[test]
#[ignore = "needs root"]
fn answers_are_the_interpreters() {
    for (family, version, rules) in [
        (Family::Acl, Version::V4, 10),
        (Family::Acl, Version::V6, 3000),
        (Family::Fw, Version::V4, 3000),
        (Family::Fw, Version::V6, 1000),
        (Family::Ipc, Version::V4, 1000),
        (Family::Ipc, Version::V6, 3000),
    ] {
        let program = generate(family, version, rules, 11);
        let classifier = Classifier::load(&program);
        let memory = Memory::new(classifier.0.image(), BASE);
        let mut random = Random::new(5);
        let questions = questions(&program, version, &mut random, QUERIES);
        let answers = classifier.ask(0, &questions);
        let mut hits = 0;
        for (question, answer) in questions.iter().zip(answers) {
            let line = |rule| classifier.line(0, rule);
            let wanted = classify(&program, 0, &question.key, question.after);
            let chain = classifier.0.image().chain_line(0, BASE);
            assert_eq!(answer, line(wanted), "{family:?} {version:?} {rules}: {:?} {:?}", question.key, question.after);
            assert_eq!(answer, memory.classify(chain, &question.key, line(question.after)));
            hits += usize::from(wanted.is_some());
        }
        assert!(hits > QUERIES / 2, "{family:?} {version:?} {rules}: only {hits} packets matched a rule");
    }
}

/// A rule that lets a packet go on in its chain, so that one may look behind it.
fn goes_on(rule: &Rule) -> bool {
    !rule.action.leaves_chain() || !rule.extensions.is_empty()
}

/// Asks about packets in every chain, then behind what was found, as executing a program does.
fn compare_chains(program: &Program, keys: &[Key]) -> usize {
    let classifier = Classifier::load(program);
    let mut hits = 0;
    for (chain, rules) in program.chains.iter().map(|chain| &chain.rules).enumerate() {
        let mut questions = keys.iter().map(|key| Question { key: *key, after: None }).collect::<Vec<_>>();
        for _ in 0..4 {
            let answers = classifier.ask(chain, &questions);
            let mut behind = Vec::new();
            for (question, answer) in questions.iter().zip(answers) {
                let wanted = classify(program, chain, &question.key, question.after);
                let line = classifier.line(chain, wanted);
                assert_eq!(answer, line, "chain {chain} of {program:?}\n{:?} after {:?}", question.key, question.after);
                hits += usize::from(wanted.is_some());
                behind.extend(
                    wanted
                        .filter(|rule| goes_on(&rules[*rule]))
                        .map(|rule| Question { key: question.key, after: Some(rule) }),
                );
            }
            questions = behind;
        }
    }
    hits
}

#[test]
#[ignore = "needs root"]
fn programs_at_random() {
    let mut random = Random::new(77);
    let mut hits = 0;
    for round in 0..40 {
        let program = arbitrary::program(&mut random, if round % 10 == 0 { 300 } else { 15 });
        let keys = (0..400).map(|_| arbitrary::packet(&program, &mut random)).collect::<Vec<_>>();
        hits += compare_chains(&program, &keys);
    }
    assert!(hits > 10_000, "only {hits} packets matched a rule");
}

/// Leaves and lists of checks that are too long to be walked in place.
#[test]
#[ignore = "needs root"]
fn leaves_and_lists_of_any_length() {
    let limit = Extension::Limit(Limit { interval: 1, burst: 1 });
    let ports = |first: u128, count: u128| Condition {
        field: Field::DestinationPort,
        negated: false,
        test: Test::Ranges((0..count).map(|index| (first + 3 * index, first + 3 * index + 1)).collect()),
    };
    let rule = |conditions: Vec<Condition>, extensions: Vec<Extension>| Rule {
        conditions,
        extensions,
        action: Action::Accept,
        line: None,
        text: String::new(),
    };
    let mut rules = (0..100).map(|_| rule(vec![ports(0, 1)], vec![limit.clone()])).collect::<Vec<_>>();
    rules.extend((1..300).map(|count| rule(vec![ports(1000, count)], vec![limit.clone()])));
    rules.push(rule(Vec::new(), Vec::new()));
    let chain = Chain { name: "FORWARD".into(), rules, policy: Some(Verdict::Drop) };
    let program = Program { chains: vec![chain], sets: Vec::new() };
    let key = |port: u128| Key::new().with(Field::Protocol, 17).with(Field::DestinationPort, port);
    let keys = [0, 1, 2, 999, 1000, 1002, 1003, 1500, 1501, 1502, 1894, 1896, 1897, 65_535].map(key);
    assert!(compare_chains(&program, &keys) > 20);
}
