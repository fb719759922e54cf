//! Steering rules.

use std::collections::HashSet;

use crate::check;
use crate::error::KeyPath;
use crate::node::{HeadendMode, PortRole, SteeringRule};

use super::Check;

impl Check<'_> {
    pub(super) fn steering(&mut self) {
        let steering = KeyPath::root().at("steering");
        let mut names = HashSet::new();
        for (position, rule) in self.state.steering.iter().enumerate() {
            let key = steering.at(position);
            if let Some(name) = &rule.name {
                self.display_name(name, &key.at("name"));
                if !names.insert(name.as_str()) {
                    self.error(&key.at("name"), format!("the rule {name:?} is there twice"), "rename or remove one");
                }
            }
            self.rule_match(rule, &key);
            self.rule_action(rule, &key);
        }
    }

    fn rule_match(&mut self, rule: &SteeringRule, key: &KeyPath) {
        self.truncated(rule.destination, &key.at("destination"));
        if let Some(source) = rule.source {
            self.truncated(source, &key.at("source"));
            if source.addr().is_ipv4() != rule.destination.addr().is_ipv4() {
                let message =
                    format!("{source} is of another address family than the destination {}", rule.destination);
                self.error(&key.at("source"), message, "make one rule for each family");
            }
        }
        for (name, ports) in [("source_ports", &rule.source_ports), ("destination_ports", &rule.destination_ports)] {
            if !ports.is_empty() && !rule.protocol.is_some_and(|protocol| protocol.has_ports()) {
                let message = "ports are given, but no protocol that has ports";
                self.error(&key.at(name), message, "add `protocol: tcp`, udp or sctp, or remove the ports");
            }
        }
        self.rule_ranges(rule, key);
        if let Some(ingress) = &rule.ingress {
            let key = key.at("ingress");
            if let Some(port) = self.port(ingress, &key)
                && port.role != PortRole::Access
            {
                let message = format!("{ingress:?} is not an access port, and only traffic of those is steered");
                self.error(&key, message, "name an access port, or remove the key");
            }
        }
    }

    fn rule_ranges(&mut self, rule: &SteeringRule, key: &KeyPath) {
        let is_ipv4 = rule.destination.addr().is_ipv4();
        for (name, range) in [("source_range", rule.source_range), ("destination_range", rule.destination_range)] {
            let Some(range) = range.filter(|range| range.first().is_ipv4() != is_ipv4) else { continue };
            let message = format!("{range} is of another address family than the destination {}", rule.destination);
            self.error(&key.at(name), message, "make one rule for each family");
        }
        for (name, values, max) in check::header_values(&rule.dscp, &rule.flow_labels) {
            if let Some((message, remedy)) = check::value_problem(values, max) {
                self.error(&key.at(name), message, remedy);
            }
        }
        if is_ipv4 && !rule.flow_labels.is_empty() {
            let message = "IPv4 packets have no flow label";
            self.error(&key.at("flow_labels"), message, "remove the key, or steer IPv6 destinations");
        }
    }

    fn rule_action(&mut self, rule: &SteeringRule, key: &KeyPath) {
        match (&rule.policy, rule.action) {
            (None, None) => self.error(key, "the rule says not what to do", "add `policy:` or `action: pass` or drop"),
            (Some(_), Some(_)) => {
                self.error(&key.at("action"), "the rule has both a policy and an action", "keep one of the two");
            }
            _ => {}
        }
        let Some(name) = &rule.policy else { return };
        let key = key.at("policy");
        let Some(policy) = self.policy(name, &key) else { return };
        if policy.carries_frames() {
            let message = format!("the policy {name:?} carries Ethernet frames, not packets chosen by address");
            let remedy = match policy.pseudowire {
                Some(_) => "name it as `l2_policy` of a port, or remove its `pseudowire`",
                None => "name it as `l2_policy` of a port, or change its mode",
            };
            self.error(&key, message, remedy);
        }
        if policy.mode == HeadendMode::HInsert && rule.destination.addr().is_ipv4() {
            let message = format!("the policy {name:?} inserts an SRH, which IPv4 packets cannot have");
            self.error(&key, message, "change the policy's mode to H.Encaps.Red, or steer IPv6 destinations only");
        }
    }
}
