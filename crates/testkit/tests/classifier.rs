//! The classifier in BPF answers as the interpreter does, and what a lookup costs.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput};
use segue_classifier::classbench::{Family, Version, any_packet, generate, one_shape, packet, port_ranges};
use segue_classifier::compile::compile;
use segue_classifier::execute::Memory;
use segue_classifier::image::Image;
use segue_classifier::interpreter::classify;
use segue_classifier::program::Limit;
use segue_classifier::random::Random;
use segue_classifier::{Action, Chain, Condition, Extension, Field, Key, Program, Rule, Test, Verdict, arbitrary};
use segue_testkit::object;

/// `QUERIES` of bpf/test/classifier.bpf.c.
const QUERIES: usize = 4096;
/// Octets of its `struct query`: key, chain, after, line, reserved.
const QUERY: usize = 256 + 16;
/// Lookups of one measured run.
const ROUNDS: u32 = 1 << 18;
/// Where the image lies: not at the beginning.
const BASE: u32 = 3;

struct Question {
    key: Key,
    /// Rule of the chain behind which is looked.
    after: Option<usize>,
}

struct Classifier {
    object: Object,
    image: Image,
}

impl Classifier {
    fn load(directory: &str, program: &Program) -> Self {
        let image = compile(program).expect("a valid program");
        let lines = image.emit(BASE);
        let mut octets = vec![0; BASE as usize * 64];
        octets.extend(lines.into_iter().flatten());
        octets.resize(octets.len().next_power_of_two().max(4096), 0);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = object::compile(&object::repository().join("bpf/test/classifier.bpf.c"), &directory);
        let mut open = ObjectBuilder::default().open_file(file).expect("the object");
        set_size(&mut open, octets.len() as u32);
        let object = open.load().expect("the classifier loads");
        update(&object, "classifier", 0, &octets);
        Self { object, image }
    }

    fn ask(&self, chain: usize, questions: &[Question]) -> Vec<u32> {
        for (index, question) in questions.iter().enumerate() {
            let mut query = Vec::with_capacity(QUERY);
            query.extend(question.key.words.iter().flat_map(|word| word.to_ne_bytes()));
            let after = question.after.map_or(0, |after| self.image.rule_line(chain, after, BASE));
            for word in [self.image.chain_line(chain, BASE), after, u32::MAX, 0] {
                query.extend(word.to_ne_bytes());
            }
            update(&self.object, "queries", index as u32, &query);
        }
        self.order(questions.len() as u32, 0, 0);
        self.run("ask");
        let map = self.object.maps().find(|map| map.name() == "queries").expect("the map");
        let answer = |index: u32| {
            let query = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).expect("a lookup").expect("an entry");
            let word = |at: usize| u32::from_ne_bytes(query[at..at + 4].try_into().expect("four octets"));
            let (line, number) = (word(264), word(268));
            if line != 0 {
                let rule = (line - self.image.rule_line(chain, 0, BASE)) as usize;
                assert_eq!(number as usize, self.image.rule_number(chain, rule));
            }
            line
        };
        (0..questions.len() as u32).map(answer).collect()
    }

    fn order(&self, queries: u32, rounds: u32, chain: u32) {
        let mut order = Vec::new();
        for word in [queries, rounds, 0, chain, 0, 0] {
            order.extend(word.to_ne_bytes());
        }
        update(&self.object, "orders", 0, &order);
    }

    fn run(&self, name: &str) {
        let program = self.object.progs_mut().find(|program| program.name() == name).expect("the program");
        let frame = [0; 64];
        let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
        assert_eq!(program.test_run(input).expect("a run").return_value, 2, "XDP_PASS");
    }

    /// Clocks of the time stamp counter for each lookup of these keys in turn, which must be alike behind their first 64 octets.
    fn clocks(&self, keys: &[Key]) -> f64 {
        let queries = keys.len() as u32;
        for (index, key) in keys.iter().enumerate() {
            let hot = key.words[..8].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
            update(&self.object, "hots", index as u32, &hot);
        }
        let whole = keys[0].words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let map = self.object.maps().find(|map| map.name() == "keys").expect("the map");
        let processors = libbpf_rs::num_possible_cpus().expect("processors");
        map.update_percpu(&0_u32.to_ne_bytes(), &vec![whole; processors], MapFlags::ANY).expect("an update");

        let nanoseconds = |name: &str| {
            self.order(queries, ROUNDS, self.image.chain_line(0, BASE));
            self.run(name);
            let map = self.object.maps().find(|map| map.name() == "orders").expect("the map");
            let order = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("a lookup").expect("its entry");
            u64::from_ne_bytes(order[16..24].try_into().expect("eight octets")) as f64
        };
        // The least of several: the machine does other work.
        let least = |name: &str| (0..7).map(|_| nanoseconds(name)).fold(f64::INFINITY, f64::min);
        (least("measure") - least("measure_nothing")) / f64::from(ROUNDS) * clock_rate()
    }
}

fn set_size(open: &mut OpenObject, octets: u32) {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "classifier" {
            map.set_value_size(octets).expect("a size");
        } else if name.ends_with(".rodata") {
            // The only constant of the test's object.
            let constants = map.initial_value_mut().expect("constants");
            assert_eq!(constants.len(), 4, "bpf/test/classifier.bpf.c has one constant, classifier_size");
            constants.copy_from_slice(&octets.to_ne_bytes());
        }
    }
}

fn update(object: &Object, name: &str, index: u32, value: &[u8]) {
    let map = object.maps().find(|map| map.name() == name).expect("the map");
    map.update(&index.to_ne_bytes(), value, MapFlags::ANY).unwrap_or_else(|error| panic!("map {name}: {error}"));
}

/// Ticks of the time stamp counter in a nanosecond.
fn clock_rate() -> f64 {
    let information = std::fs::read_to_string("/proc/cpuinfo").expect("/proc/cpuinfo");
    let line = information.lines().find(|line| line.starts_with("bogomips")).expect("bogomips");
    // Linux sets it to twice the megahertz of the counter.
    line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number") / 2000.0
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
        let classifier = Classifier::load("classifier-answers", &program);
        let memory = Memory::new(&classifier.image, BASE);
        let mut random = Random::new(5);
        let questions = questions(&program, version, &mut random, QUERIES);
        let answers = classifier.ask(0, &questions);
        let mut hits = 0;
        for (question, answer) in questions.iter().zip(answers) {
            let line = |rule: Option<usize>| rule.map_or(0, |rule| classifier.image.rule_line(0, rule, BASE));
            let wanted = classify(&program, 0, &question.key, question.after);
            let chain = classifier.image.chain_line(0, BASE);
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
fn compare_chains(directory: &str, program: &Program, keys: &[Key]) -> usize {
    let classifier = Classifier::load(directory, program);
    let mut hits = 0;
    for (chain, rules) in program.chains.iter().map(|chain| &chain.rules).enumerate() {
        let mut questions = keys.iter().map(|key| Question { key: *key, after: None }).collect::<Vec<_>>();
        for _ in 0..4 {
            let answers = classifier.ask(chain, &questions);
            let mut behind = Vec::new();
            for (question, answer) in questions.iter().zip(answers) {
                let wanted = classify(program, chain, &question.key, question.after);
                let line = wanted.map_or(0, |rule| classifier.image.rule_line(chain, rule, BASE));
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
        hits += compare_chains("classifier-random", &program, &keys);
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
    assert!(compare_chains("classifier-long", &program, &keys) > 20);
}

#[test]
#[ignore = "needs root"]
fn cost() {
    println!("TSC clocks for each lookup: 4096 packets in turn, 1 packet over and over, and what a walk takes");
    let measure = |name: &str, program: &Program, version: Version, only_last: bool| {
        let classifier = Classifier::load("classifier-cost", program);
        let memory = Memory::new(&classifier.image, BASE);
        let mut random = Random::new(6);
        let rules = &program.chains[0].rules;
        let pick =
            |random: &mut Random| if only_last { &rules[rules.len() - 1] } else { &rules[random.below(rules.len())] };
        let keys = (0..QUERIES).map(|_| packet(pick(&mut random), version, &mut random)).collect::<Vec<_>>();
        let (varying, same) = (classifier.clocks(&keys), classifier.clocks(&keys[..1]));
        let (mut nodes, mut compared, mut lines) = (0, 0, 0);
        for key in &keys {
            let effort = memory.measure(classifier.image.chain_line(0, BASE), key, 0).1;
            nodes += effort.nodes;
            compared += effort.rules;
            lines += effort.lines;
        }
        let mean = |sum: usize| sum as f64 / keys.len() as f64;
        println!(
            "{name:24} {:6} rules {:7} KiB {varying:6.0} {same:6.0}   {:.2} nodes {:.2} rules {:.2} lines",
            rules.len(),
            classifier.image.octets() / 1024,
            mean(nodes),
            mean(compared),
            mean(lines)
        );
    };
    for (version, text) in [(Version::V4, "v4"), (Version::V6, "v6")] {
        for rules in [1, 512] {
            measure(&format!("hosts {text}, last matches"), &one_shape(version, rules, 3), version, true);
        }
        measure(&format!("hosts {text}, any matches"), &one_shape(version, 512, 3), version, false);
        measure(&format!("port ranges {text}"), &port_ranges(version, 512, 4), version, false);
        for (family, name) in [(Family::Acl, "ACL"), (Family::Fw, "FW"), (Family::Ipc, "IPC")] {
            measure(&format!("{name} {text}"), &generate(family, version, 10_000, 10_001), version, false);
        }
    }
}
