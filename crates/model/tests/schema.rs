//! The published JSON Schemas are those of the types, and say about the examples what the types say.

use std::path::{Path, PathBuf};

use serde_json::Value;

use segue_model::{load, schema};

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
}

/// Every key of a value that a schema knows as an object is among its properties, through references.
fn check_keys(value: &Value, part: &Value, whole: &Value, path: &str, checked: &mut usize) {
    if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
        let target = whole.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}"));
        return check_keys(value, target, whole, path, checked);
    }
    if let Some(Value::Array(any)) = part.get("anyOf").or_else(|| part.get("oneOf")) {
        for part in any {
            check_keys(value, part, whole, path, checked);
        }
        return;
    }
    match value {
        Value::Object(keys) => {
            let Some(properties) = part.get("properties") else {
                if let Some(values) = part.get("additionalProperties").filter(|schema| schema.is_object()) {
                    keys.iter()
                        .for_each(|(key, value)| check_keys(value, values, whole, &format!("{path}.{key}"), checked));
                }
                return;
            };
            assert_eq!(part.get("additionalProperties"), Some(&Value::Bool(false)), "{path}: unknown keys are errors");
            for (key, value) in keys {
                let property = properties.get(key).unwrap_or_else(|| panic!("{path}.{key} is not in the schema"));
                *checked += 1;
                check_keys(value, property, whole, &format!("{path}.{key}"), checked);
            }
        }
        Value::Array(items) => {
            if let Some(item) = part.get("items") {
                items.iter().for_each(|value| check_keys(value, item, whole, path, checked));
            }
        }
        _ => {}
    }
}

#[test]
fn schemas_know_every_key_of_the_examples() {
    let mut checked = 0;
    for entry in std::fs::read_dir(root().join("examples")).expect("examples") {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("example");
        let file = path.display().to_string();
        if !source.lines().any(|line| line.starts_with("nodes:")) {
            load::load_node_state(&source, &file).unwrap_or_else(|errors| panic!("{errors}"));
            continue;
        }
        let (topology, plan) = load::load_plan(&source, &file).unwrap_or_else(|errors| panic!("{errors}"));
        let value = serde_json::to_value(&topology).expect("JSON");
        check_keys(&value, &schema::topology(), &schema::topology(), &file, &mut checked);
        for state in plan.nodes.values().filter_map(|node| node.state.as_ref()) {
            let value = serde_json::to_value(state).expect("JSON");
            check_keys(&value, &schema::node_state(), &schema::node_state(), &file, &mut checked);
        }
    }
    assert!(checked > 200, "only {checked} keys");
}
