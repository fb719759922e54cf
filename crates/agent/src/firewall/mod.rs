//! Firewalls as the API shows them.

pub mod log;
mod mistakes;

use std::collections::HashMap;

pub use mistakes::mistakes;

use segue_api::firewall::{FirewallReport, RuleReport};
use segue_dataplane::{FirewallCounters, Reader};
use segue_model::firewall::{Firewall, FirewallMode};

use crate::observe::Snapshot;
use crate::problem::{Failure, Fault};
use crate::xdp;

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
}
