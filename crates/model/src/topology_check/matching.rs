//! What a chain takes of the traffic between its ends.

use super::Check;
use crate::check;
use crate::error::KeyPath;
use crate::topology::Match;

impl Check<'_> {
    pub(super) fn matching(&mut self, matching: &Match, key: &KeyPath) {
        let ports = [("destination_ports", &matching.destination_ports), ("source_ports", &matching.source_ports)];
        for (name, ranges) in ports {
            if !ranges.is_empty() && !matching.protocol.is_some_and(|protocol| protocol.has_ports()) {
                let message = "ports are given, but no protocol that has ports";
                self.report.error(&key.at(name), message, "add `protocol: tcp`, udp or sctp, or remove the ports");
            }
        }
        for (name, values, max) in check::header_values(&matching.dscp, &matching.flow_labels) {
            if let Some((message, remedy)) = check::value_problem(values, max) {
                self.report.error(&key.at(name), message, remedy);
            }
        }
    }
}
