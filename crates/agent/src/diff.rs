//! What would change from one desired state to another.

use std::collections::BTreeMap;

use segue_api::state::{Change, ChangeKind};
use segue_model::node::NodeState;
use serde_json::Value;

/// By which key the elements of a list of the state are told apart; other lists are compared as a whole.
const IDENTITIES: [(&str, &str); 5] =
    [("ports", "name"), ("sids", "sid"), ("policies", "name"), ("steering", "name"), ("hmac_keys", "id")];

/// The differences; none if both mean the same. Without a state before, everything is new.
pub fn diff(before: Option<&NodeState>, after: &NodeState) -> Result<Vec<Change>, serde_json::Error> {
    let mut changes = Vec::new();
    if before != Some(after) {
        let before = before.map(serde_json::to_value).transpose()?.unwrap_or(Value::Object(serde_json::Map::new()));
        compare("", &before, &serde_json::to_value(after)?, &mut changes);
    }
    Ok(changes)
}

fn compare(key: &str, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (before, after) {
        let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for name in names {
            let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            let [before, after] = [before, after].map(|object| object.get(name).unwrap_or(&Value::Null));
            match identity(name).filter(|_| key.is_empty()) {
                Some(by) => compare_lists(&path, by, before, after, changes),
                None => compare(&path, before, after, changes),
            }
        }
        return;
    }
    let kind = match (before.is_null(), after.is_null()) {
        (true, _) => ChangeKind::Added,
        (_, true) => ChangeKind::Removed,
        _ => ChangeKind::Changed,
    };
    changes.push(Change { kind, key: key.to_owned(), before: before.clone(), after: after.clone() });
}

fn identity(list: &str) -> Option<&'static str> {
    IDENTITIES.iter().find(|(name, _)| *name == list).map(|(_, by)| *by)
}

fn compare_lists(key: &str, by: &str, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    let before = index(by, before);
    let after = index(by, after);
    for (name, value) in &before {
        let after = after.get(name).copied().unwrap_or(&Value::Null);
        if *value != after {
            compare(&format!("{key}[{name}]"), value, after, changes);
        }
    }
    for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        compare(&format!("{key}[{name}]"), &Value::Null, value, changes);
    }
}

/// The elements by their identity; by position where they have none.
fn index<'a>(by: &str, list: &'a Value) -> BTreeMap<String, &'a Value> {
    let elements = list.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
    elements
        .map(|(position, element)| {
            let name = match element.get(by) {
                Some(Value::String(name)) => name.clone(),
                Some(Value::Null) | None => position.to_string(),
                Some(other) => other.to_string(),
            };
            (name, element)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(value: serde_json::Value) -> NodeState {
        serde_json::from_value(value).unwrap()
    }

    fn example(behaviour: &str) -> NodeState {
        state(serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "sids": [{"sid": "fc00:1::/64", "behaviour": behaviour}],
        }))
    }

    #[test]
    fn equal_states_have_no_difference() {
        assert_eq!(diff(Some(&example("End")), &example("End")).unwrap(), []);
    }

    #[test]
    fn a_changed_key_is_named_with_both_values() {
        let changes = diff(Some(&example("End")), &example("End.DT6")).unwrap();
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].kind, ChangeKind::Changed);
        assert_eq!(changes[0].key, "sids[fc00:1::/64].behaviour");
        assert_eq!((&changes[0].before, &changes[0].after), (&Value::from("End"), &Value::from("End.DT6")));
    }

    #[test]
    fn elements_come_and_go_by_identity() {
        let mut after = example("End");
        after.sids[0].sid = "fc00:2::/64".parse().unwrap();
        let changes = diff(Some(&example("End")), &after).unwrap();
        let seen: Vec<_> = changes.iter().map(|change| (change.kind, change.key.as_str())).collect();
        assert_eq!(seen, [(ChangeKind::Removed, "sids[fc00:1::/64]"), (ChangeKind::Added, "sids[fc00:2::/64]")]);
    }

    #[test]
    fn without_a_state_everything_is_new() {
        let changes = diff(None, &example("End")).unwrap();
        assert!(changes.iter().all(|change| change.kind == ChangeKind::Added));
        assert!(changes.iter().any(|change| change.key == "sids[fc00:1::/64]"));
    }
}
