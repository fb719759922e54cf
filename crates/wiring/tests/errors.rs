//! Every error in a topology, the planner's too, with its line, its key and its remedy.
//!
//! `tests/bad/topologies.txt` holds one case after another: `=== name`, the document, `--- expected`, the errors. To write the expected
//! part anew after a change of wording: `SEGUE_UPDATE=1 cargo test -p segue-wiring --test errors`, then read the difference.

use std::fmt::Write;
use std::path::Path;

use segue_model::error::Errors;

const FILE: &str = "x.yaml";

/// Runs all cases of a file; each must fail as expected.
fn check(name: &str, at_least: usize, load: impl Fn(&str) -> Result<(), Errors>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad").join(name);
    let text = std::fs::read_to_string(&path).expect("fixture");
    let mut cases = 0;
    let mut actual = String::new();
    for case in text.split("=== ").skip(1) {
        let (head, expected_before) = case.split_once("--- expected\n").expect("two parts");
        let (title, document) = head.split_once('\n').expect("title");
        let errors = match load(document) {
            Ok(()) => panic!("{title}: accepted\n{document}"),
            Err(errors) => errors,
        };
        for error in &errors {
            assert_eq!(error.file.as_deref(), Some(FILE), "{title}");
            assert!(error.position.is_some(), "{title}: no place: {error}");
            assert!(!error.message.is_empty() && !error.remedy.is_empty(), "{title}: {error}");
        }
        let expected = errors.to_string().replace(&format!("{FILE}:"), "");
        if std::env::var_os("SEGUE_UPDATE").is_none() {
            assert_eq!(expected, expected_before.trim_end(), "{title}\n{document}");
        }
        write!(actual, "=== {title}\n{document}--- expected\n{expected}\n\n").expect("string");
        cases += 1;
    }
    assert!(cases >= at_least, "{cases} cases only");
    if std::env::var_os("SEGUE_UPDATE").is_some() {
        std::fs::write(&path, actual).expect("fixture");
    }
}

#[test]
fn topologies() {
    check("topologies.txt", 60, |source| segue_wiring::load_plan(source, FILE).map(drop));
}
