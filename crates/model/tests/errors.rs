//! Every error in what an operator writes, with its line, its key and its remedy.
//!
//! `tests/bad/*.txt` hold one case after another: `=== name`, the document, `--- expected`, the errors. To write the expected
//! part anew after a change of wording: `SEGUE_UPDATE=1 cargo test -p segue-model --test errors`, then read the difference.

use std::fmt::Write;
use std::path::Path;

use segue_model::error::Errors;
use segue_model::load;

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
fn node_states() {
    check("node_states.txt", 70, |source| load::load_node_state(source, FILE).map(drop));
}

#[test]
fn a_value_from_json_gets_the_same_errors_without_a_place() {
    let json = r#"{"node": "n", "source_address": "fc00::1", "sids": [{"sid": "fc00:1::", "behaviour": "End.X"}]}"#;
    let state: segue_model::node::NodeState = serde_json::from_str(json).expect("types fit");
    let errors = state.validate().expect_err("End.X without next hop");
    assert_eq!(errors.to_string(), "sids[0]: End.X needs the key \"next_hop\"; add `next_hop:`");
    assert_eq!(
        serde_json::to_value(&errors).expect("JSON"),
        serde_json::json!([{"key": "sids[0]", "message": "End.X needs the key \"next_hop\"", "remedy": "add `next_hop:`"}])
    );
    let errors = load::locate(errors, json, "state.json");
    assert_eq!(errors.to_string(), "state.json:1:53: sids[0]: End.X needs the key \"next_hop\"; add `next_hop:`");
}
