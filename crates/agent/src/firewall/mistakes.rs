//! What is wrong in the rule files of a state that the data plane did not take.

use segue_firewall::{Error, Source};
use segue_model::firewall::{Firewall, RuleFile};
use segue_model::node::NodeState;

use crate::problem::Problem;

/// All mistakes in rule files, each with file and line where it has one. The files are read again: only after a refusal.
pub fn mistakes(state: &NodeState) -> Vec<Problem> {
    let of_firewall = |(position, firewall): (usize, &Firewall)| {
        let read = Source::parse(firewall).and_then(|source| source.lower(&source.named_interfaces()).map(drop));
        read.err().map(|error| problems(position, firewall, &error)).unwrap_or_default()
    };
    state.firewalls.iter().enumerate().flat_map(of_firewall).collect()
}

fn problems(position: usize, firewall: &Firewall, error: &Error) -> Vec<Problem> {
    let (file, key) = match error {
        Error::Rules(errors) => {
            let key = key(position, firewall, &errors.file);
            let told = errors.errors.iter().map(|error| {
                let word = if error.word.is_empty() { String::new() } else { format!("`{}`: ", error.word) };
                Problem {
                    file: Some(errors.file.clone()),
                    line: Some(error.position.line.into()),
                    ..Problem::new(
                        key.clone(),
                        format!("column {}: {word}{}", error.position.column, error.reason),
                        error.remedy.clone(),
                    )
                }
            });
            return told.collect();
        }
        Error::NoText { file }
        | Error::TwoFiles { file, .. }
        | Error::TwoSets { file, .. }
        | Error::NoHook { file, .. } => (Some(file.clone()), key(position, firewall, file)),
        Error::File { .. } => (None, format!("firewalls[{position}]")),
    };
    let text = error.to_string();
    // The file has a place of its own.
    let text = file.as_ref().and_then(|file| text.strip_prefix(&format!("{file}: "))).unwrap_or(&text);
    let (message, remedy) = text.split_once("; ").unwrap_or((text, "correct the rule file, and apply again"));
    vec![Problem { file, ..Problem::new(key, message, remedy) }]
}

/// The key by which the state names a rule file.
fn key(position: usize, firewall: &Firewall, file: &str) -> String {
    let is_it = |rules: &RuleFile| rules.name() == file;
    let single = [("ipv4", &firewall.ipv4), ("ipv6", &firewall.ipv6), ("yaml", &firewall.yaml)];
    let single = single.into_iter().find(|(_, rules)| rules.as_ref().is_some_and(is_it));
    match (single, firewall.sets.iter().position(is_it)) {
        (Some((key, _)), _) => format!("firewalls[{position}].{key}"),
        (None, Some(set)) => format!("firewalls[{position}].sets[{set}]"),
        (None, None) => format!("firewalls[{position}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(firewall: serde_json::Value) -> Vec<String> {
        let state = serde_json::json!({"node": "n", "source_address": "fc00::1", "firewalls": [firewall]});
        mistakes(&serde_json::from_value(state).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_mistake_has_its_file_and_line() {
        let rules =
            "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -p tcp --dport x -j ACCEPT\n-A FORWARD -j NOWHERE\nCOMMIT\n";
        let all = told(serde_json::json!({"name": "fw", "ipv4": {"file": "rules.v4", "text": rules}}));
        assert!(!all.is_empty());
        assert!(all.iter().any(|text| text.starts_with("rules.v4:3: firewalls[0].ipv4: column 27: `x`: ")), "{all:#?}");
        assert!(all.iter().all(|text| text.contains("; ") && !text.contains("log")), "{all:#?}");
    }

    #[test]
    fn what_concerns_a_whole_file_names_it() {
        let rules = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n";
        let file = |name: &str| serde_json::json!({"file": name, "text": rules});
        assert_eq!(
            told(serde_json::json!({"name": "fw", "hook": "NAT", "ipv6": file("rules.v6")})),
            ["rules.v6: firewalls[0].ipv6: the table filter has no chain NAT; add it, or change `hook`"]
        );
        assert_eq!(
            told(serde_json::json!({"name": "fw", "ipv6": "rules.v6"})),
            [
                "rules.v6: firewalls[0].ipv6: the agent got the path but not the file; apply the document with `segue apply`"
            ]
        );
        assert_eq!(told(serde_json::json!({"name": "fw", "ipv6": file("rules.v6")})), [""; 0]);
    }
}
