//! Budgets of the data plane's programs: instructions and stack, read from the compiled objects, against those of `bpf/budget.txt`. So
//! growth is seen where it is made, and not when the oldest kernel's verifier refuses a program. The file is made anew by
//! `SEGUE_UPDATE=1 cargo test -p segue-dataplane --test budget`; a commit that does so says why.

#[path = "budget/elf.rs"]
mod elf;
#[path = "budget/measure.rs"]
mod measure;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use measure::{Measured, measure};

const OBJECTS: [(&str, &[u8]); 2] = [
    ("segue", include_bytes!(concat!(env!("OUT_DIR"), "/segue.bpf.o"))),
    ("segue_skb", include_bytes!(concat!(env!("OUT_DIR"), "/segue_skb.bpf.o"))),
];

/// Instructions may change by so much without a word.
const SLACK_PERCENT: u32 = 3;
const SLACK_LEAST: u32 = 8;

/// Frames of a call chain together (MAX_BPF_STACK).
const STACK_MAX: u32 = 512;
/// What `segue_port` calls needs the rest.
const STACK_OWN_MAX: [(&str, u32); 1] = [("segue_port", 320)];

const RENEW: &str =
    "If it is meant: SEGUE_UPDATE=1 cargo test -p segue-dataplane --test budget, and say why in the commit.";

/// `OBJECT PROGRAM-OR-FUNCTION` -> what it needs.
type Rows = BTreeMap<String, Measured>;

fn measured() -> Rows {
    let mut rows = Rows::new();
    for (object, bytes) in OBJECTS {
        for (name, needs) in measure(bytes) {
            rows.insert(format!("{object} {name}"), needs);
        }
    }
    rows
}

fn compiler() -> String {
    let compilers = OBJECTS.map(|(_, bytes)| elf::find_text(bytes, "clang version ").unwrap_or_default());
    assert_eq!(compilers[0], compilers[1], "two compilers");
    compilers[0].clone()
}

fn written(rows: &Rows) -> String {
    let mut text = String::from(
        "# What the data plane's programs and functions need, as crates/dataplane/tests/budget.rs measures and compares it.\n\
         # Made by: SEGUE_UPDATE=1 cargo test -p segue-dataplane --test budget\n\
         # own: instructions of its own; all: with each function that it calls once; stack: octets of its own frame;\n\
         # chain: octets of the deepest chain of calls, each frame rounded up to 32 (the kernel allows 512)\n",
    );
    writeln!(text, "compiler {}", compiler()).expect("a string");
    writeln!(text, "{:<10} {:<28} {:>6} {:>6} {:>6} {:>6}", "object", "function", "own", "all", "stack", "chain")
        .expect("a string");
    for (key, needs) in rows {
        let (object, name) = key.split_once(' ').expect("object and name");
        let Measured { own, all, stack, chain, .. } = needs;
        writeln!(text, "{object:<10} {name:<28} {own:>6} {all:>6} {stack:>6} {chain:>6}").expect("a string");
    }
    text
}

fn read(text: &str) -> (String, Rows) {
    let mut compiler = String::new();
    let mut rows = Rows::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("object ")) {
        if let Some(found) = line.strip_prefix("compiler ") {
            found.clone_into(&mut compiler);
            continue;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        let [object, name, own, all, stack, chain] = words[..] else { panic!("{line:?} is no row") };
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("{line:?}: {word:?} is no number"));
        let needs = Measured { own: number(own), all: number(all), stack: number(stack), chain: number(chain) };
        rows.insert(format!("{object} {name}"), needs);
    }
    (compiler, rows)
}

fn differs(now: u32, recorded: u32) -> bool {
    now.abs_diff(recorded) > (recorded * SLACK_PERCENT / 100).max(SLACK_LEAST)
}

/// What of a row is not as recorded.
fn changes(name: &str, now: Measured, recorded: Option<&Measured>) -> Vec<String> {
    let Some(recorded) = recorded else { return vec![format!("{name}: is not in the file")] };
    let mut found = Vec::new();
    for (what, now, recorded) in [("own", now.own, recorded.own), ("all", now.all, recorded.all)] {
        if differs(now, recorded) {
            found.push(format!("{name}: {what} {now} instructions, recorded {recorded}"));
        }
    }
    for (what, now, recorded) in [("stack", now.stack, recorded.stack), ("chain", now.chain, recorded.chain)] {
        if now.next_multiple_of(32) != recorded.next_multiple_of(32) {
            found.push(format!("{name}: {what} {now} octets, recorded {recorded}"));
        }
    }
    found
}

#[test]
fn stack_is_within_what_the_kernel_allows() {
    let rows = measured();
    for (name, needs) in &rows {
        assert!(needs.chain <= STACK_MAX, "{name}: {needs:?}");
    }
    for (name, most) in STACK_OWN_MAX {
        let needs = rows[&format!("segue {name}")];
        assert!(needs.stack <= most, "{name} has {} octets of stack, {most} is the most: {needs:?}", needs.stack);
    }
}

#[test]
fn programs_are_as_recorded() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/budget.txt");
    let rows = measured();
    if std::env::var_os("SEGUE_UPDATE").is_some() {
        std::fs::write(&path, written(&rows)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (compiled_by, recorded) = read(&text);
    if compiled_by != compiler() {
        // Another compiler makes other code: its limits are the kernel's, which the other test asks for.
        eprintln!("not compared: bpf/budget.txt is by {compiled_by}, the objects by {}", compiler());
        return;
    }
    let mut found: Vec<_> = rows.iter().flat_map(|(name, now)| changes(name, *now, recorded.get(name))).collect();
    found.extend(recorded.keys().filter(|name| !rows.contains_key(*name)).map(|name| format!("{name}: is gone")));
    assert!(found.is_empty(), "not as in bpf/budget.txt:\n{}\n{RENEW}", found.join("\n"));
}

#[test]
fn growth_is_seen() {
    let recorded = Measured { own: 1000, all: 2000, stack: 100, chain: 200 };
    assert!(changes("same", recorded, Some(&recorded)).is_empty());
    assert!(changes("slack", Measured { own: 1030, stack: 128, ..recorded }, Some(&recorded)).is_empty());
    assert_eq!(changes("own", Measured { own: 1031, ..recorded }, Some(&recorded)).len(), 1);
    assert_eq!(changes("all", Measured { all: 1900, ..recorded }, Some(&recorded)).len(), 1);
    assert_eq!(changes("stack", Measured { stack: 129, ..recorded }, Some(&recorded)).len(), 1);
    assert_eq!(changes("new", recorded, None).len(), 1);
    let rows = Rows::from([("segue a".to_owned(), recorded)]);
    assert_eq!(read(&written(&rows)), (compiler(), rows));
}
