//! Runs documents that must be refused: for the tests of this crate and of those that check more than it does.

use std::fmt::Write;
use std::path::Path;

use segue_model::error::Errors;

/// The name that the documents have in errors.
pub const FILE: &str = "x.yaml";

/// Runs all cases of a file below a crate's directory; each must fail as expected.
pub fn check(directory: &str, name: &str, at_least: usize, load: impl Fn(&str) -> Result<(), Errors>) {
    let path = Path::new(directory).join("tests/bad").join(name);
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
