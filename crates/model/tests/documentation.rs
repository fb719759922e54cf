//! The examples in docs/using/configuration.md are accepted, and show every key; [`pages`] is about all pages.

use std::path::Path;

use serde_json::Value;

use segue_model::{load, schema};

#[path = "documentation/imports.rs"]
mod imports;
#[path = "documentation/pages.rs"]
mod pages;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/using/configuration.md");
    std::fs::read_to_string(path).expect("docs/using/configuration.md")
}

fn documented() -> (String, String) {
    let text = page();
    let blocks: Vec<&str> = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [node_state, topology] = blocks.as_slice() else { panic!("{} examples", blocks.len()) };
    ((*node_state).to_owned(), (*topology).to_owned())
}

/// Every property of the schema is written somewhere in the example; those that stand for others there, in the page's tables.
fn shows_every_key(example: &str, schema: &Value, but: &[&str]) {
    let page = page();
    for key in but {
        let written = [format!("{key}:"), format!("`{key}`")].iter().any(|form| page.contains(form));
        assert!(written, "the key {key} is nowhere on the page");
    }
    let definitions = schema["$defs"].as_object().expect("definitions").values();
    for part in definitions.chain([schema]) {
        for key in
            part.get("properties").and_then(Value::as_object).into_iter().flat_map(|properties| properties.keys())
        {
            assert!(but.contains(&key.as_str()) || example.contains(&format!("{key}:")), "the key {key} is not shown");
        }
    }
}

#[test]
fn documented_node_state() {
    let (source, _) = documented();
    load::load_node_state(&source, "docs/using/configuration.md").unwrap_or_else(|errors| panic!("{errors}"));
    let other_behaviours =
        ["next_hop", "port", "policy", "endpoint", "answer_echo", "allow_inner_sid", "comment", "name"];
    shows_every_key(
        &source,
        &schema::node_state(),
        &[&other_behaviours[..], &["source_ports", "outside_locator"]].concat(),
    );
}

#[test]
fn documented_topology() {
    let (_, source) = documented();
    load::load_topology(&source, "docs/using/configuration.md").unwrap_or_else(|errors| panic!("{errors}"));
    shows_every_key(&source, &schema::topology(), &["aware", "behaviour", "source_ports", "prefixes"]);
}
