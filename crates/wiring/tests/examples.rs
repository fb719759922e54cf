//! The examples and the documented topology are planned, and the published JSON Schemas say about them what the types say.

use std::path::{Path, PathBuf};

use serde_json::Value;

use segue_model::{load, schema};
use segue_wiring::load_plan;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_documented_topology_is_planned() {
    let text =
        std::fs::read_to_string(root().join("docs/using/configuration.md")).expect("docs/using/configuration.md");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let topologies: Vec<&str> = blocks.filter(|block| block.lines().any(|line| line.starts_with("nodes:"))).collect();
    assert_eq!(topologies.len(), 1);
    load_plan(topologies[0], "docs/using/configuration.md").unwrap_or_else(|errors| panic!("{errors}"));
}

/// Every key of a value that a schema knows as an object is among its properties, through references.
fn check_keys(value: &Value, part: &Value, whole: &Value, path: &str, checked: &mut usize) {
    if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
        let target = whole.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}"));
        return check_keys(value, target, whole, path, checked);
    }
    // Beside properties, they say which of these go together.
    let alternatives = part.get("anyOf").or_else(|| part.get("oneOf")).filter(|_| part.get("properties").is_none());
    if let Some(Value::Array(any)) = alternatives {
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
        let (topology, plan) = load_plan(&source, &file).unwrap_or_else(|errors| panic!("{errors}"));
        let value = serde_json::to_value(&topology).expect("JSON");
        check_keys(&value, &schema::topology(), &schema::topology(), &file, &mut checked);
        for state in plan.nodes.values().filter_map(|node| node.state.as_ref()) {
            let value = serde_json::to_value(state).expect("JSON");
            check_keys(&value, &schema::node_state(), &schema::node_state(), &file, &mut checked);
        }
    }
    assert!(checked > 200, "only {checked} keys");
}

/// The stacks that its comment names; and with one line changed the same chains go by SIDs.
#[test]
fn the_chains_of_p4_sfc_go_by_labels_and_by_sids() {
    let text = std::fs::read_to_string(root().join("examples/p4-sfc.yaml")).expect("the example");
    let (_, plan) = load_plan(&text, "p4-sfc.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    let border = plan.nodes["border"].state.as_ref().expect("Segue is on it");
    for (chain, to_functions) in [
        ("a", &[16_002, 30_201][..]),
        ("b", &[16_003, 30_301, 30_302]),
        ("c", &[16_002, 30_203, 16_003, 16_004, 30_401]),
    ] {
        let policy = border.policies.iter().find(|policy| policy.name == format!("{chain}-forward")).expect("a policy");
        assert_eq!(policy.segment_lists[0].labels, [to_functions, &[16_001, 30_100]].concat(), "{chain}");
        let words: Vec<String> = to_functions.iter().map(ToString::to_string).collect();
        let line = text.lines().find(|line| line.starts_with(&format!("#   {chain} "))).expect("a line for the chain");
        assert!(line.ends_with(&format!(" {}", words.join(" "))), "{line}");
    }
    let by_sids = text.replace("  dataplane: sr-mpls\n", "  dataplane: srv6\n");
    assert_ne!(by_sids, text);
    let (_, plan) = load_plan(&by_sids, "p4-sfc.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    let border = plan.nodes["border"].state.as_ref().expect("Segue is on it");
    let segments: Vec<usize> = border.policies.iter().map(|policy| policy.segment_lists[0].segments.len()).collect();
    assert_eq!(segments, [2, 2, 3, 3, 4, 4], "the functions and waypoints of each direction, and the egress");
}
