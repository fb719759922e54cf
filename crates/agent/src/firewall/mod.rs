//! Firewalls as the API shows them, and the reading of rule files that a document names.

pub mod log;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use segue_dataplane::{FirewallCounters, Reader};
use segue_model::firewall::{Firewall, FirewallMode, RuleFile};
use segue_model::node::NodeState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::observe::Snapshot;
use crate::problem::{Failure, Fault};
use crate::xdp;

/// A rule with its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuleReport {
    /// Family and text of the rule, or which chain's policy it is.
    pub name: String,
    /// The file that it comes from, as the desired state calls it.
    pub file: String,
    /// Line of that file; policies have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Packets that hit it.
    pub packets: u64,
    /// Their layer 3 octets: those of the inner packet where there is one.
    pub bytes: u64,
}

/// A firewall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FirewallReport {
    /// Its name.
    pub name: String,
    /// `basic` or `advanced`.
    pub mode: String,
    /// The switch: false lets every packet pass.
    pub basic: bool,
    /// Its rules in the order of their files, IPv4 first.
    pub rules: Vec<RuleReport>,
    /// Policies of its built-in chains that packets meet.
    pub policies: Vec<RuleReport>,
    /// As `iptables -L -n -v --line-numbers` prints it.
    pub listing: String,
    /// As `iptables-save -c` prints it.
    pub save: String,
}

/// All firewalls of the node with what they have counted.
///
/// # Errors
/// A map that cannot be read.
pub fn counted(taken: &Snapshot) -> Result<Vec<(Firewall, FirewallCounters)>, Failure> {
    let failed = |error| Failure::one(Fault::Kernel, xdp::problem(&error));
    let all = taken.reader.as_ref().map(Reader::firewall_counters).transpose().map_err(failed)?.unwrap_or_default();
    let firewalls = taken.state.as_ref().map(|state| state.firewalls.as_slice()).unwrap_or_default();
    let by_name: HashMap<&str, &Firewall> =
        firewalls.iter().map(|firewall| (firewall.name.as_str(), firewall)).collect();
    let found = all.into_iter().filter_map(|counters| {
        let firewall = by_name.get(counters.name.as_str())?;
        Some(((*firewall).clone(), counters))
    });
    Ok(found.collect())
}

/// As the API shows them. It reads the rule files, which may take a while: not for the node's thread.
pub fn report(counted: Vec<(Firewall, FirewallCounters)>) -> Vec<FirewallReport> {
    let mut reports = Vec::new();
    for (firewall, counters) in counted {
        // They were read when they were applied.
        let Some(listing) = segue_dataplane::firewall_listing(&firewall, &counters) else { continue };
        let rules = |counted: Vec<segue_dataplane::RuleCounters>| {
            counted
                .into_iter()
                .map(|rule| RuleReport {
                    file: file_of(&firewall, &rule.name),
                    name: rule.name,
                    line: rule.line,
                    packets: rule.counter.packets,
                    bytes: rule.counter.bytes,
                })
                .collect()
        };
        reports.push(FirewallReport {
            name: counters.name,
            mode: match firewall.mode {
                FirewallMode::Basic => "basic",
                FirewallMode::Advanced => "advanced",
            }
            .to_owned(),
            basic: firewall.basic,
            rules: rules(counters.rules),
            policies: rules(counters.policies),
            listing: listing.listing,
            save: listing.save,
        });
    }
    reports
}

/// The file of a rule or policy: its name begins with its family.
fn file_of(firewall: &Firewall, rule: &str) -> String {
    let of_family = if rule.starts_with("IPv4 ") { &firewall.ipv4 } else { &firewall.ipv6 };
    let file = of_family.as_ref().or(firewall.yaml.as_ref());
    file.map(|file| file.name().to_owned()).unwrap_or_default()
}

/// Replaces the paths of rule files, which are relative to the document at `document`, by what the files hold.
///
/// # Errors
/// The firewall and the file that cannot be read.
pub fn read_files(state: &mut NodeState, document: &Path) -> Result<(), String> {
    let directory = document.parent().unwrap_or(Path::new(""));
    for firewall in &mut state.firewalls {
        let name = firewall.name.clone();
        for rules in firewall.files_mut() {
            if let RuleFile::Path(path) = rules {
                let place = directory.join(&*path);
                let text = fs::read_to_string(&place).map_err(|error| {
                    format!("firewall {name}: {}: {error}; give a file that can be read", place.display())
                })?;
                *rules = RuleFile::Text { file: path.clone(), text };
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_from_the_file_of_their_family() {
        let firewall = |keys: &str| serde_json::from_str::<Firewall>(keys).unwrap();
        let both = firewall(r#"{"ipv4": "a.v4", "ipv6": "a.v6"}"#);
        assert_eq!(file_of(&both, "IPv4 -A FORWARD -j DROP"), "a.v4");
        assert_eq!(file_of(&both, "IPv6 policy of FORWARD"), "a.v6");
        // The form in YAML is for the family that has no file of its own.
        let mixed = firewall(r#"{"ipv4": "a.v4", "yaml": "a.yaml"}"#);
        assert_eq!(file_of(&mixed, "IPv4 -A FORWARD -j DROP"), "a.v4");
        assert_eq!(file_of(&mixed, "IPv6 -A FORWARD -j DROP"), "a.yaml");
    }

    #[test]
    fn rule_files_are_read_beside_the_document() {
        let directory = std::env::temp_dir().join(format!("segue-firewall-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("rules.v6"), "*filter\nCOMMIT\n").unwrap();
        let yaml = "node: n\nsource_address: fd00::1\nfirewalls: [{name: fw, ipv6: rules.v6}]\n";
        let mut state = segue_model::load::load_node_state(yaml, "node.yaml").unwrap();
        read_files(&mut state, &directory.join("node.yaml")).unwrap();
        assert_eq!(state.firewalls[0].ipv6.as_ref().and_then(RuleFile::text), Some("*filter\nCOMMIT\n"));
        state.firewalls[0].ipv6 = Some(RuleFile::Path("missing.v6".into()));
        let error = read_files(&mut state, &directory.join("node.yaml")).unwrap_err();
        assert!(error.contains("firewall fw") && error.contains("missing.v6"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
