//! Every error in what an operator writes, with its line, its key and its remedy.
//!
//! `tests/bad/*.txt` hold one case after another: `=== name`, the document, `--- expected`, the errors. To write the expected
//! part anew after a change of wording: `SEGUE_UPDATE=1 cargo test -p segue-model --test errors`, then read the difference.

#[path = "bad/cases.rs"]
mod cases;

use segue_model::load;

#[test]
fn node_states() {
    cases::check(env!("CARGO_MANIFEST_DIR"), "node_states.txt", 73, |source| {
        load::load_node_state(source, cases::FILE).map(drop)
    });
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
