//! outcomes.def, its parser and docs/using/outcomes.md.

use std::path::PathBuf;

use segue_abi::{Outcome, OutcomeKind, SEGUE_OUTCOMES_MAX, markdown_table};

#[path = "../build/outcomes.rs"]
mod parser;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

const BEGIN: &str = "<!-- table begins: made from bpf/include/abi/outcomes.def -->\n";
const END: &str = "<!-- table ends -->\n";

/// `SEGUE_REGENERATE=1 cargo test -p segue-abi` writes the table anew.
#[test]
fn documentation_has_the_table_of_outcomes_def() {
    let path = repository("docs/using/outcomes.md");
    let page = std::fs::read_to_string(&path).expect("docs/using/outcomes.md");
    let (before, rest) = page.split_once(BEGIN).expect("the mark where the table begins");
    let (table, after) = rest.split_once(END).expect("the mark where the table ends");
    if std::env::var_os("SEGUE_REGENERATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", markdown_table()))
            .expect("writing docs/using/outcomes.md");
        return;
    }
    assert_eq!(
        table,
        markdown_table(),
        "docs/using/outcomes.md is older than outcomes.def: run SEGUE_REGENERATE=1 cargo test -p segue-abi --test outcomes"
    );
}

#[test]
fn enum_is_the_definition_file() {
    let text = std::fs::read_to_string(repository("bpf/include/abi/outcomes.def")).expect("outcomes.def");
    let definitions = parser::parse(&text).expect("a valid file");
    assert_eq!(definitions.len(), Outcome::ALL.len());
    for (definition, outcome) in definitions.iter().zip(Outcome::ALL) {
        assert_eq!(definition.number, outcome.number());
        assert_eq!(definition.name, outcome.name());
        assert_eq!(definition.kind.to_lowercase(), outcome.kind().name());
        assert_eq!(definition.text, outcome.text());
        assert_eq!(Outcome::from_number(outcome.number().into()), Some(outcome));
        assert_eq!(Outcome::from_name(outcome.name()), Some(outcome));
        assert!(u32::from(outcome.number()) < SEGUE_OUTCOMES_MAX);
    }
    assert_eq!(Outcome::from_number(63), None);
    assert_eq!(Outcome::from_number(256), None);
    assert_eq!(Outcome::from_name("no_such"), None);
    assert_eq!(Outcome::DropNoRoute.kind(), OutcomeKind::Dropped);
}

#[test]
fn generated_source_has_every_variant() {
    let definitions = parser::parse("OUTCOME(3, drop_it, DROPPED, \"gone\")").expect("valid");
    let source = parser::generate(&definitions);
    assert!(source.contains("DropIt = 3"), "{source}");
    assert!(source.contains("(\"drop_it\", OutcomeKind::Dropped, \"gone\")"), "{source}");
}

#[test]
fn bad_definition_is_refused_with_its_line() {
    let cases = [
        ("", "no OUTCOME line"),
        ("OUTCOME(1, a, FORWARDED)", "four fields"),
        ("OUTCOME(x, a, FORWARDED, \"t\")", "not decimal"),
        ("OUTCOME(128, a, FORWARDED, \"t\")", "below 128"),
        ("OUTCOME(1, aB, FORWARDED, \"t\")", "snake_case"),
        ("OUTCOME(1, a__b, FORWARDED, \"t\")", "snake_case"),
        ("OUTCOME(1, a, LOST, \"t\")", "kind must be"),
        ("OUTCOME(1, a, DROPPED, \"t\")", "start with"),
        ("OUTCOME(1, passed_a, FORWARDED, \"t\")", "start with"),
        ("OUTCOME(1, a, FORWARDED, t)", "in quotes"),
        ("OUTCOME(1, a, FORWARDED, \"\")", "not be empty"),
        ("OUTCOME(1, a, FORWARDED, \"x|y\")", "bars"),
        ("OUTCOME(1, a, FORWARDED, \"t\"", "expected OUTCOME("),
        ("/* c */\nOUTCOME(1, a, FORWARDED, \"t\")\nOUTCOME(1, b, FORWARDED, \"t\")", "line 3: this number"),
        ("/*\n * c */\n\nOUTCOME(1, a, FORWARDED, \"t\")\nOUTCOME(2, a, FORWARDED, \"t\")", "line 5: this name"),
    ];
    for (text, expected) in cases {
        let error = parser::parse(text).expect_err(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}
