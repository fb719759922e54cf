//! The chain, station by station, with the counters of the agents and of the functions.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::net::Ipv6Addr;
use std::ops::Add;
use std::path::PathBuf;

use ipnet::Ipv6Net;
use segue_host::Run;
use segue_model::label::LabelBehaviour;
use segue_plan::{Explanation, StepAction};
use segue_wiring::LabPlan;
use serde_json::Value;

use super::report::{Hop, Way};
use crate::agent;
use crate::error::Result;
use crate::explain::{stack, word};
use crate::names::LabPaths;

/// Packets and octets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Octets.
    pub octets: u64,
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, octets: self.octets + other.octets }
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// All counters of a lab at about one moment.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// What each Segue node's agent reports.
    agents: BTreeMap<String, Value>,
    /// Named nftables counters of each function; rules of firewalls, and policies, that packets have hit.
    functions: BTreeMap<String, BTreeMap<String, Count>>,
}

impl Counters {
    /// Asks everybody.
    ///
    /// # Errors
    /// If an agent does not answer or `nft` fails.
    pub fn read(paths: &LabPaths, plan: &LabPlan) -> Result<Self> {
        let mut counters = Self::default();
        for (name, node) in &plan.nodes {
            if node.state.is_some() {
                counters.agents.insert(name.clone(), agent::get(&paths.socket(name), name, agent::REPORT)?);
            }
        }
        for (name, _) in plan.functions.iter().filter(|(_, function)| function.has_namespace()) {
            let namespace = paths.namespace(name);
            let text = Run::new("nft", ["--json", "list", "counters"]).inside(&namespace).text()?;
            counters.functions.insert(name.clone(), nft_counters(&text));
        }
        for (name, function) in plan.functions.iter().filter(|(_, function)| function.inside) {
            let firewalls = agent::get(&paths.socket(&function.node), &function.node, agent::FIREWALLS)?;
            counters.functions.insert(name.clone(), rule_counters(&firewalls, name));
        }
        Ok(counters)
    }

    /// A named counter of a function's ruleset; of a firewall, a rule that some packet has hit, by its family and text.
    #[must_use]
    pub fn of_function(&self, function: &str, counter: &str) -> Option<Count> {
        self.functions.get(function)?.get(counter).copied()
    }

    /// Packets that were put into an SR policy. `None` where no agent counts.
    #[must_use]
    pub fn of_policy(&self, node: &str, policy: &str) -> Option<Count> {
        let policies = self.agents.get(node)?.get("policies")?.as_array()?;
        let found = policies.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(policy))?;
        let lists = found.get("segment_lists")?.as_array()?;
        lists.iter().map(|list| count(list.get("counter")?)).sum()
    }

    /// Packets that arrived for a SID, and those that came back from the function behind it.
    #[must_use]
    pub fn of_sid(&self, node: &str, sid: Ipv6Addr) -> Option<(Count, Option<Count>)> {
        let sids = self.agents.get(node)?.get("sids")?.as_array()?;
        let found =
            sids.iter().find(|one| one.get("sid").and_then(Value::as_str).is_some_and(|prefix| covers(prefix, sid)))?;
        Some((count(found.get("counter")?)?, found.get("returned").and_then(count)))
    }

    /// The same for a label.
    pub fn of_label(&self, node: &str, label: u32) -> Option<(Count, Option<Count>)> {
        let name = format!("label {label}");
        let sids = self.agents.get(node)?.get("sids")?.as_array()?;
        let found = sids.iter().find(|one| one.get("sid").and_then(Value::as_str) == Some(&name))?;
        Some((count(found.get("counter")?)?, found.get("returned").and_then(count)))
    }

    /// What a step's own label has counted. The label of a waypoint is off when packets get there.
    fn of_labels(&self, node: &str, labels: &[u32], behaviour: LabelBehaviour) -> Option<(Count, Option<Count>)> {
        let own = labels.last().filter(|_| behaviour != LabelBehaviour::Node)?;
        self.of_label(node, *own)
    }
}

/// Whether a SID as the agent writes it, a prefix or an address, is that of a segment: what lies behind is the argument.
fn covers(text: &str, segment: Ipv6Addr) -> bool {
    match text.parse::<Ipv6Net>() {
        Ok(prefix) => prefix.contains(&segment),
        Err(_) => text.parse() == Ok(segment),
    }
}

fn count(value: &Value) -> Option<Count> {
    Some(Count { packets: value.get("packets")?.as_u64()?, octets: value.get("bytes")?.as_u64()? })
}

fn nft_counters(text: &str) -> BTreeMap<String, Count> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let objects = value.get("nftables").and_then(Value::as_array).cloned().unwrap_or_default();
    objects
        .iter()
        .filter_map(|object| object.get("counter"))
        .filter_map(|counter| Some((counter.get("name")?.as_str()?.to_owned(), count(counter)?)))
        .collect()
}

/// Rules and policies of a firewall that packets have hit.
fn rule_counters(firewalls: &Value, name: &str) -> BTreeMap<String, Count> {
    let all = firewalls.as_array().into_iter().flatten();
    let found = all.filter(|one| one.get("name").and_then(Value::as_str) == Some(name));
    let rows = found.flat_map(|one| ["rules", "policies"].map(|key| one.get(key).and_then(Value::as_array)));
    rows.flatten()
        .flatten()
        .filter_map(|row| Some((row.get("name")?.as_str()?.to_owned(), count(row)?)))
        .filter(|(_, count)| count.packets != 0)
        .collect()
}

/// Counters of one direction of a chain at each of its stations, in order.
#[must_use]
pub fn way(steps: &[Explanation], counters: &Counters) -> Way {
    let mut hops = Vec::new();
    let mut add = |node: &str, what: String, sid: String, count: Option<Count>| {
        let count = count.unwrap_or_default();
        hops.push(Hop { node: node.to_owned(), what, sid, packets: count.packets, octets: count.octets });
    };
    for step in steps {
        match &step.action {
            StepAction::Headend { mode, segments } => {
                let list: Vec<String> = segments.iter().map(ToString::to_string).collect();
                let count = counters.of_policy(&step.node, &step.policy);
                add(&step.node, word(mode), format!("<{}>", list.join(", ")), count);
            }
            StepAction::Push { labels, .. } => {
                let count = counters.of_policy(&step.node, &step.policy);
                add(&step.node, "PUSH".to_owned(), stack(labels), count);
            }
            StepAction::Segment { sid, behaviour, function } => {
                let count = counters.of_sid(&step.node, *sid);
                add(&step.node, word(behaviour), sid.to_string(), count.map(|(arrived, _)| arrived));
                at_function(step, function.as_deref(), count, counters, &mut add);
            }
            StepAction::Label { labels, behaviour, function } => {
                let count = counters.of_labels(&step.node, labels, *behaviour);
                add(&step.node, word(behaviour), stack(labels), count.map(|(arrived, _)| arrived));
                at_function(step, function.as_deref(), count, counters, &mut add);
            }
        }
    }
    let (chain, direction) =
        steps.first().map(|step| (step.chain.clone(), step.direction.to_string())).unwrap_or_default();
    Way { chain, direction, hops }
}

/// What a function has counted itself, and what came back from it.
fn at_function(
    step: &Explanation,
    function: Option<&str>,
    count: Option<(Count, Option<Count>)>,
    counters: &Counters,
    add: &mut impl FnMut(&str, String, String, Option<Count>),
) {
    let Some(function) = function else { return };
    let returned = count.and_then(|(_, returned)| returned);
    // A firewall is in its node: nothing comes back from anywhere.
    let what = if returned.is_some() { "nft counter" } else { "rule" };
    for (name, count) in counters.functions.get(function).into_iter().flatten() {
        add(function, format!("{what} {name}"), String::new(), Some(*count));
    }
    if returned.is_some() {
        add(&step.node, format!("back from {function}"), String::new(), returned);
    }
}

/// Where a direction's packets went missing: packets at the headend, into the function, back from it, at the egress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flow {
    /// Packets that the headend put the segment list on.
    pub headend: u64,
    /// Arrived at, and came back to, each segment in order; a segment without a proxy gives back what arrived.
    pub segments: Vec<(u64, u64)>,
}

impl Flow {
    /// The counters of one direction; `None` if a station has no counter.
    #[must_use]
    pub fn of(steps: &[Explanation], counters: &Counters) -> Option<Self> {
        let mut flow = Self::default();
        for step in steps {
            match &step.action {
                StepAction::Headend { .. } | StepAction::Push { .. } => {
                    let packets = counters.of_policy(&step.node, &step.policy)?.packets;
                    match step.step {
                        0 => flow.headend = packets,
                        _ => flow.segments.push((packets, packets)),
                    }
                }
                StepAction::Segment { sid, .. } => {
                    let (arrived, returned) = counters.of_sid(&step.node, *sid)?;
                    flow.segments.push((arrived.packets, returned.unwrap_or(arrived).packets));
                }
                StepAction::Label { behaviour: LabelBehaviour::Node, .. } => {}
                StepAction::Label { labels, behaviour, .. } => {
                    let (arrived, returned) = counters.of_labels(&step.node, labels, *behaviour)?;
                    flow.segments.push((arrived.packets, returned.unwrap_or(arrived).packets));
                }
            }
        }
        Some(flow)
    }

    /// Packets that left a station and did not arrive at the next one.
    #[must_use]
    pub fn lost_between_stations(&self) -> u64 {
        let mut left = self.headend;
        let mut lost = 0;
        for (arrived, returned) in &self.segments {
            lost += left.abs_diff(*arrived);
            left = *returned;
        }
        lost
    }

    /// Packets that functions did not give back.
    #[must_use]
    pub fn kept_by_functions(&self) -> u64 {
        self.segments.iter().map(|(arrived, returned)| arrived.saturating_sub(*returned)).sum()
    }
}

/// Sockets of the plan's agents.
#[must_use]
pub fn sockets(paths: &LabPaths, plan: &LabPlan) -> Vec<(String, PathBuf)> {
    let with_agent = plan.nodes.iter().filter(|(_, node)| node.state.is_some());
    with_agent.map(|(name, _)| (name.clone(), paths.socket(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_nft() {
        let text = r#"{"nftables":[{"metainfo":{}},{"counter":{"family":"inet","name":"telnet","table":"f","handle":1,"packets":3,"bytes":180}}]}"#;
        assert_eq!(nft_counters(text), BTreeMap::from([("telnet".to_owned(), Count { packets: 3, octets: 180 })]));
        assert!(nft_counters("no json").is_empty());
    }

    #[test]
    fn counters_of_a_firewall_are_those_that_moved() {
        let row =
            |name: &str, packets: u64| serde_json::json!({"name": name, "packets": packets, "bytes": 2 * packets});
        let firewall = |name: &str| {
            serde_json::json!({"name": name, "rules": [row("IPv6 -A FORWARD -j DROP", 3), row("never", 0)],
                               "policies": [row("IPv6 policy of FORWARD", 4)]})
        };
        let found = rule_counters(&serde_json::json!([firewall("other"), firewall("fw")]), "fw");
        let expected = [("IPv6 -A FORWARD -j DROP", 3), ("IPv6 policy of FORWARD", 4)];
        assert_eq!(
            found,
            expected.map(|(name, packets)| (name.to_owned(), Count { packets, octets: 2 * packets })).into()
        );
        assert!(rule_counters(&Value::Null, "fw").is_empty());
    }

    #[test]
    fn a_policy_counts_by_its_lists() {
        let list = |packets: u64| serde_json::json!({"counter": {"packets": packets, "bytes": 100 * packets}});
        let agent = serde_json::json!({"policies": [{"name": "p", "segment_lists": [list(3), list(4)]}]});
        let counters = Counters { agents: BTreeMap::from([("n".to_owned(), agent)]), ..Counters::default() };
        assert_eq!(counters.of_policy("n", "p"), Some(Count { packets: 7, octets: 700 }));
        assert_eq!(counters.of_policy("n", "q"), None);
    }

    #[test]
    fn loss_is_found_between_the_right_stations() {
        let whole = Flow { headend: 10, segments: vec![(10, 8), (8, 8)] };
        assert_eq!((whole.lost_between_stations(), whole.kept_by_functions()), (0, 2));
        let lossy = Flow { headend: 10, segments: vec![(9, 9), (9, 9)] };
        assert_eq!((lossy.lost_between_stations(), lossy.kept_by_functions()), (1, 0));
    }

    #[test]
    fn sids_are_prefixes_or_addresses() {
        let segment = "fc00:0:1:5::".parse().unwrap();
        assert!(covers("fc00:0:1::/48", segment) && covers("fc00:0:1:5::", segment));
        assert!(!covers("fc00:0:1::", segment) && !covers("x", segment));
    }
}
