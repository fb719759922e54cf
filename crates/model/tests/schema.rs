//! The published JSON Schemas are those of the types. That they say about the examples what the types say: the planner's tests.

use std::path::{Path, PathBuf};

use serde_json::Value;

use segue_model::schema;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// To write the files anew: `SEGUE_UPDATE=1 cargo test -p segue-model --test schema`.
fn is_current(file: &str, schema: &Value) {
    let path = root().join("docs/schema").join(file);
    if std::env::var_os("SEGUE_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("directory")).expect("docs/schema");
        std::fs::write(&path, format!("{schema:#}\n")).expect("schema");
    }
    // As values: the order of keys depends on features that other crates may turn on.
    let published = std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    assert!(
        published.as_ref() == Some(schema),
        "docs/schema/{file} is not that of the types; run `SEGUE_UPDATE=1 cargo test -p segue-model --test schema` and commit it"
    );
}

#[test]
fn published_schemas_are_current() {
    is_current("node-state.json", &schema::node_state());
    is_current("topology.json", &schema::topology());
    is_current("nodes.json", &schema::nodes());
}
