//! Firewalls: their names and files, and who names them.

use std::collections::HashMap;

use super::Check;
use crate::error::{KeyPath, Report};
use crate::firewall::Firewall;

impl Check<'_> {
    pub(super) fn firewalls(&mut self) {
        let firewalls = KeyPath::root().at("firewalls");
        let state = self.state;
        let mut names = HashMap::new();
        for (position, firewall) in state.firewalls.iter().enumerate() {
            let key = firewalls.at(position);
            if firewall.name.is_empty() {
                self.error(&key, "the key \"name\" is missing", "add `name:`");
            } else {
                self.display_name(&firewall.name, &key.at("name"));
            }
            if names.insert(firewall.name.as_str(), position).is_some() {
                self.error(&key.at("name"), format!("the firewall {:?} is there twice", firewall.name), "remove one");
            }
            firewall_values(firewall, &firewall.name, &key, &mut self.report);
        }
        for (position, port) in state.ports.iter().enumerate() {
            if let Some(name) = &port.firewall {
                self.firewall(name, &KeyPath::root().at("ports").at(position).at("firewall"));
            }
        }
    }

    /// The firewall of a name; an error if there is none.
    pub(super) fn firewall(&mut self, name: &str, key: &KeyPath) {
        if !self.firewalls.contains_key(name) {
            self.error(key, format!("there is no firewall {name:?}"), "add it to `firewalls`, or correct the name");
        }
    }
}

/// What a firewall says of itself, here and in a topology.
pub(crate) fn firewall_values(firewall: &Firewall, name: &str, key: &KeyPath, report: &mut Report) {
    if !["INPUT", "FORWARD", "OUTPUT"].contains(&firewall.hook.as_str()) {
        let message = format!("the table filter has no built-in chain {:?}", firewall.hook);
        report.error(&key.at("hook"), message, "write FORWARD, INPUT or OUTPUT");
    }
    if !(1..=32).contains(&firewall.argument_length) {
        let message = format!("an argument of {} bits is out of range", firewall.argument_length);
        report.error(&key.at("argument_length"), message, "choose 1 to 32");
    }
    if !(1..=10_000_000).contains(&firewall.conntrack.entries) {
        let message = format!("{} connections are out of range", firewall.conntrack.entries);
        report.error(&key.at("conntrack").at("entries"), message, "choose 1 to 10000000");
    }
    if firewall.conntrack.beginnings > 100_000_000 {
        let message = format!("{} beginnings are out of range", firewall.conntrack.beginnings);
        report.error(&key.at("conntrack").at("beginnings"), message, "choose 0 to 100000000");
    }
    if firewall.ipv4.is_none() && firewall.ipv6.is_none() && firewall.yaml.is_none() {
        let remedy = "add `ipv6:` or `ipv4:` with a file of ip6tables-save or iptables-save, or `yaml:`";
        report.error(key, format!("the firewall {name:?} has no rules"), remedy);
    }
}
