//! What is counted and may be there 100,000 times: SIDs, policies, steering rules. Which rows are whose, and the labels that they have
//! in metrics, is found out once for a configuration and kept until another one is applied; a scrape reads the counters and puts the
//! numbers behind the labels. Through the encoder that serves the rest it costs several times as much, most of it for names that are
//! the same as the last time.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, OnceLock, Weak},
};

use ipnet::Ipv6Net;
use segue_api::report::Counter;
use segue_dataplane::{Compiled, CompiledLabel, CompiledPolicy, Identity, Reader, Sums};
use segue_model::node::{NodeState, UdpEndpoint};
use segue_model::service_label::key_instance;

use crate::observe::{Texts, bindings, counter, label_members, label_name, shown};

/// What is counted under names: the labels of each, and the rows of its counters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Family {
    labels: String,
    rows: Vec<u32>,
    /// Where the labels and the rows of each end.
    ends: Vec<(usize, usize)>,
}

impl Family {
    fn add(&mut self, labels: &[(&str, &str)], rows: impl IntoIterator<Item = u32>) {
        for (position, (name, value)) in labels.iter().enumerate() {
            self.labels.push(if position == 0 { '{' } else { ',' });
            self.labels.push_str(name);
            self.labels.push_str("=\"");
            // Most have nothing to escape.
            if value.bytes().any(|octet| matches!(octet, b'\n' | b'\\' | b'"')) {
                value.chars().for_each(|c| match c {
                    '\n' => self.labels.push_str("\\n"),
                    '\\' | '"' => self.labels.extend(['\\', c]),
                    c => self.labels.push(c),
                });
            } else {
                self.labels.push_str(value);
            }
            self.labels.push('"');
        }
        self.labels.push('}');
        self.rows.extend(rows);
        self.ends.push((self.labels.len(), self.rows.len()));
    }

    /// The rows of one.
    fn rows(&self, position: usize) -> &[u32] {
        let begin = position.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, rows)| *rows);
        let end = self.ends.get(position).map_or(begin, |(_, rows)| *rows);
        &self.rows[begin..end]
    }

    /// The labels of each with what was counted.
    fn counted<'a>(&'a self, sums: &'a Sums) -> impl Iterator<Item = (&'a str, Counter)> {
        let begins = std::iter::once((0, 0)).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|((labels, rows), (labels_end, rows_end))| {
            let counter: Counter = self.rows[rows..*rows_end].iter().map(|row| counter(sums.counter(*row))).sum();
            (&self.labels[labels..*labels_end], counter)
        })
    }

    /// Two families of OpenMetrics: packets, and their layer 3 octets.
    fn write(&self, [packets, bytes, help]: [&str; 3], sums: &Sums, text: &mut String) {
        // Longer than any name beside a number.
        text.reserve(2 * self.labels.len() + 64 * 2 * self.ends.len());
        let _ = write!(text, "# HELP {packets} {help}\n# TYPE {packets} counter\n");
        for (labels, counter) in self.counted(sums) {
            line(text, [packets, "_total"], labels, counter.packets);
        }
        let _ = write!(
            text,
            "# HELP {bytes}_bytes {help}: layer 3 octets\n# TYPE {bytes}_bytes counter\n# UNIT {bytes}_bytes bytes\n"
        );
        for (labels, counter) in self.counted(sums) {
            line(text, [bytes, "_bytes_total"], labels, counter.bytes);
        }
    }
}

fn line(text: &mut String, [name, suffix]: [&str; 2], labels: &str, value: u64) {
    text.push_str(name);
    text.push_str(suffix);
    text.push_str(labels);
    match value {
        // Most.
        0 => text.push_str(" 0\n"),
        value => {
            let _ = writeln!(text, " {value}");
        }
    }
}

/// The names of one configuration.
#[derive(Debug)]
pub struct Names {
    state: Weak<NodeState>,
    configuration: Identity,
    sids: Family,
    policies: Family,
    steering: Family,
    returned: Family,
    /// Of each SID the row of what came back, and that of what is remembered; 0 for none.
    functions: Vec<(u32, u32)>,
    /// All their rows, in ascending order.
    rows: Vec<u32>,
    /// What reports say of SIDs and of policies beside the numbers; not made before it is asked for.
    sid_texts: OnceLock<Texts>,
    policy_texts: OnceLock<Texts>,
}

impl Names {
    /// Those of what is applied.
    pub fn new(state: &Arc<NodeState>, reader: Option<&Reader>) -> Self {
        let compiled = reader.and_then(Reader::applied);
        let mut names = Self {
            state: Arc::downgrade(state),
            configuration: reader.map(Reader::identity).unwrap_or_default(),
            sids: Family::default(),
            policies: Family::default(),
            steering: Family::default(),
            returned: Family::default(),
            functions: Vec::new(),
            rows: Vec::new(),
            sid_texts: OnceLock::new(),
            policy_texts: OnceLock::new(),
        };
        names.fill(state, compiled);
        names
    }

    /// Whether these are the names of what is applied.
    pub fn are_of(&self, state: &Arc<NodeState>, reader: Option<&Reader>) -> bool {
        Weak::ptr_eq(&self.state, &Arc::downgrade(state))
            && self.configuration == reader.map(Reader::identity).unwrap_or_default()
    }

    fn fill(&mut self, state: &NodeState, compiled: Option<&Compiled>) {
        let node = ("node", state.node.as_str());
        let sids = compiled.map(|compiled| compiled.sids.as_slice()).unwrap_or_default();
        // They are in the order of their prefixes.
        let by_sid =
            |prefix: &Ipv6Net| sids.binary_search_by_key(prefix, |sid| sid.prefix).ok().map(|position| &sids[position]);
        let local = state.sids.iter().map(|sid| (sid.sid.trunc(), sid.behaviour.name()));
        for (prefix, behaviour) in local.chain(bindings(state).map(|(_, prefix, behaviour)| (prefix, behaviour))) {
            let (found, sid) = (by_sid(&prefix), shown(prefix));
            self.sids.add(&[node, ("sid", &sid), ("behaviour", behaviour)], found.map(|sid| sid.entry.counter));
            let returned = found.and_then(|sid| sid.returned());
            if let Some(row) = returned {
                self.returned.add(&[node, ("sid", &sid)], [row]);
            }
            self.functions.push((returned.unwrap_or(0), found.map_or(0, |sid| sid.scope())));
        }
        let labels = compiled.map(|compiled| compiled.labels.as_slice()).unwrap_or_default();
        let own = state.labels.iter().map(|label| ((label.label, 0), label_name(label.label), label.behaviour.name()));
        let members = label_members(state);
        let members = members.iter().map(|member| {
            let key = (member.label().unwrap_or_default(), key_instance(&member.sid));
            (key, shown(member.sid), member.behaviour_name())
        });
        for (key, name, behaviour) in own.chain(members) {
            let found = labels.binary_search_by_key(&key, CompiledLabel::key).ok().map(|at| &labels[at]);
            let of = [node, ("sid", name.as_str()), ("behaviour", behaviour)];
            self.sids.add(&of, found.map(|label| label.entry.counter));
            let returned = found.map_or(0, |label| label.entry.counter_return);
            if returned != 0 {
                self.returned.add(&[node, ("sid", name.as_str())], [returned]);
            }
            self.functions.push((returned, found.map_or(0, |label| label.entry.scope_row())));
        }
        for endpoint in state.udp_endpoints() {
            let (found, name) = (by_sid(&endpoint.key()), endpoint.name());
            let of = [node, ("sid", name.as_str()), ("behaviour", UdpEndpoint::BEHAVIOUR)];
            self.sids.add(&of, found.map(|sid| sid.entry.counter));
            self.functions.push((0, 0));
        }
        let policies = compiled.map(|compiled| compiled.policies.as_slice()).unwrap_or_default();
        let by_name: HashMap<&str, &CompiledPolicy> =
            policies.iter().map(|policy| (policy.name.as_str(), policy)).collect();
        for policy in &state.policies {
            let lists = by_name.get(policy.name.as_str()).into_iter().flat_map(|policy| &policy.lists);
            self.policies.add(&[node, ("policy", &policy.name)], lists.map(|list| list.entry.counter));
        }
        for (position, rule) in state.steering.iter().enumerate() {
            let name = segue_dataplane::compile::rule_name(rule, position);
            let row = compiled.and_then(|compiled| compiled.steering_counters.get(&name));
            self.steering.add(&[node, ("rule", &name)], row.copied());
        }
        for family in [&self.sids, &self.policies, &self.steering, &self.returned] {
            self.rows.extend(&family.rows);
        }
        self.rows.sort_unstable();
        self.rows.dedup();
    }

    /// The row of a SID, by its position in the state; binding SIDs follow those that are configured, labels these, and addresses
    /// that take labels in UDP come last.
    pub fn sid(&self, position: usize) -> &[u32] {
        self.sids.rows(position)
    }

    /// The row of what came back from the function of a SID, and that of what is remembered there; 0 for none.
    pub fn function(&self, position: usize) -> (u32, u32) {
        self.functions.get(position).copied().unwrap_or_default()
    }

    /// The rows of a policy's lists, by its position in the state.
    pub fn policy(&self, position: usize) -> &[u32] {
        self.policies.rows(position)
    }

    /// The row of a steering rule, by its position in the state.
    pub fn steering(&self, position: usize) -> &[u32] {
        self.steering.rows(position)
    }

    /// What reports say of SIDs; `make` makes it once for a configuration.
    pub fn sid_texts(&self, make: impl FnOnce() -> Texts) -> &Texts {
        self.sid_texts.get_or_init(make)
    }

    /// The same for policies.
    pub fn policy_texts(&self, make: impl FnOnce() -> Texts) -> &Texts {
        self.policy_texts.get_or_init(make)
    }

    /// All rows that these names have, in ascending order.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Those of SIDs, and of what came back from their functions; of policies; of steering rules. In ascending order.
    pub fn rows_of(&self, [sids, policies, steering]: [bool; 3]) -> Vec<u32> {
        let families =
            [(sids, &self.sids), (sids, &self.returned), (policies, &self.policies), (steering, &self.steering)];
        let asked = families.into_iter().filter(|(asked, _)| *asked);
        let mut rows: Vec<u32> = asked.flat_map(|(_, family)| &family.rows).copied().collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Adds everything with its numbers.
    pub fn write(&self, sums: &Sums, text: &mut String) {
        self.sids.write(["segue_sid_packets", "segue_sid_traffic", "Packets for a local SID"], sums, text);
        let names = ["segue_policy_packets", "segue_policy_traffic", "Packets put into an SR policy"];
        self.policies.write(names, sums, text);
        let names = ["segue_steering_packets", "segue_steering_traffic", "Packets that a steering rule matched"];
        self.steering.write(names, sums, text);
        let help = "Packets that came back from the function behind a proxy SID";
        self.returned.write(["segue_proxy_returned_packets", "segue_proxy_returned_traffic", help], sums, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Arc<NodeState> {
        let state = serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "sids": [{"sid": "fc00:1::/64", "behaviour": "End"}, {"sid": "fc00:2::", "behaviour": "End.DT46"}],
            "policies": [{"name": "p", "binding_sid": "fc00:3::", "segment_lists": [{"segments": ["fc00:4::"]}]}],
            "steering": [{"destination": "2001:db8::/32", "action": "pass"}],
        });
        Arc::new(serde_json::from_value(state).unwrap())
    }

    #[test]
    fn everything_has_its_row_before_it_counts() {
        let mut text = String::new();
        Names::new(&state(), None).write(&Sums::default(), &mut text);
        for line in [
            r#"segue_sid_packets_total{node="n",sid="fc00:1::/64",behaviour="End"} 0"#,
            r#"segue_sid_traffic_bytes_total{node="n",sid="fc00:2::",behaviour="End.DT46"} 0"#,
            r#"segue_sid_packets_total{node="n",sid="fc00:3::",behaviour="End.B6.Encaps.Red"} 0"#,
            r#"segue_policy_packets_total{node="n",policy="p"} 0"#,
            r#"segue_steering_packets_total{node="n",rule="rule 1"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn names_hold_for_what_they_were_made_from_only() {
        let (one, same) = (state(), state());
        let names = Names::new(&one, None);
        assert!(names.are_of(&one, None));
        assert!(!names.are_of(&same, None), "it may be another configuration that looks alike");
        assert_eq!(Arc::strong_count(&one), 1, "they keep nothing");
    }

    #[test]
    fn families_are_written_as_the_library_writes_them() {
        let rows = [(["n", "a\"b\\c\nd"], [0, 0]), (["n", "e"], [7, u64::MAX])];
        let mut family = Family::default();
        for (row, ([node, sid], _)) in (1..).zip(rows) {
            family.add(&[("node", node), ("sid", sid)], [row, row + 10]);
        }
        let halves =
            |[packets, bytes]: [u64; 2]| [[packets / 2, bytes / 2], [packets - packets / 2, bytes - bytes / 2]];
        let counted = (1..).zip(rows).flat_map(|(row, (_, counted))| [row, row + 10].into_iter().zip(halves(counted)));
        let sums: Sums = counted.collect();
        let names = ["segue_sid_packets", "segue_sid_traffic", "Packets for a local SID"];
        let mut text = String::new();
        family.write(names, &sums, &mut text);
        text.push_str("# EOF\n");
        let counters = rows.map(|(names, [packets, bytes])| (names, Counter { packets, bytes }));
        assert_eq!(text, super::super::tests::by_library(names, counters));
    }
}
