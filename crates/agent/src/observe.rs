//! The desired state and the live counters put together, by name.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use ipnet::Ipv6Net;
use nix::time::{ClockId, clock_gettime};
use segue_abi::{Outcome, OutcomeKind};
use segue_dataplane::{
    AttachMode, Counters, Interfaces, MemoryCounters, PolicyCounters, PortCounters, Reader, SidCounters,
};
use segue_model::node::{NodeState, Policy, Port, Sid, SteeringRule};
use serde::Serialize;

use crate::{
    kernel::{Kernel, LinuxKernel, SidRoute},
    node::Node,
    problem::{Failure, Fault},
    report::{
        ChainPart, ChainReport, Counter, DropReport, IcmpReport, LastDrop, MemoryReport, OutcomeReport, PolicyReport,
        PortReport, Report, SegmentListReport, SidReport, SteeringReport,
    },
    xdp,
};

impl From<segue_dataplane::Counter> for Counter {
    fn from(counter: segue_dataplane::Counter) -> Self {
        Self { packets: counter.packets, bytes: counter.bytes }
    }
}

impl From<&MemoryCounters> for MemoryReport {
    fn from(counters: &MemoryCounters) -> Self {
        Self {
            shared: counters.shared.clone(),
            renewed: counters.renewed,
            created: counters.created,
            removed: counters.removed,
            present: counters.present,
            evicted: counters.evicted,
            unknown: counters.unknown,
            conflicts: counters.conflicts,
            overwritten: counters.overwritten,
        }
    }
}

/// What a report is made of, taken from the node at one instant: the rest takes long where there is much, and is done elsewhere.
#[derive(Debug)]
pub struct Snapshot {
    state: Option<Arc<NodeState>>,
    reader: Option<Reader>,
    generation: u32,
}

/// What a report is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Names and numbers only: 100,000 SIDs are asked for their counters several times a minute.
    Metrics,
    /// Everything that an operator may want to know.
    Full,
}

/// Takes what a report is made of.
///
/// # Errors
/// None; the type is that of jobs.
pub fn snapshot(node: &mut Node) -> Result<Snapshot, Failure> {
    Ok(Snapshot { state: node.shared_state(), reader: node.plane.reader(), generation: node.outcome().generation })
}

impl Snapshot {
    /// Whether nothing else has been applied since: if something has, counters may have got other owners.
    pub fn is_current(&self) -> bool {
        self.reader.as_ref().is_none_or(|reader| reader.is_current().unwrap_or(true))
    }

    fn counters(&self) -> Result<Counters, Failure> {
        let read = self.reader.as_ref().map(Reader::counters).transpose();
        Ok(read.map_err(failed)?.unwrap_or_default())
    }

    /// Everything that counts.
    ///
    /// # Errors
    /// A map or a route table that can not be read.
    pub fn report(&self, detail: Detail) -> Result<Report, Failure> {
        let Some(state) = &self.state else {
            return Ok(Report { time: now(), ..Report::default() });
        };
        let counters = self.counters()?;
        let time = now();
        let modes = self.reader.as_ref().map(Reader::modes).unwrap_or_default();
        let of_kernel = |step, error| crate::apply::kernel_failure(step, &error);
        let (links, routes) = match detail {
            Detail::Full => {
                let mut kernel = LinuxKernel::open().map_err(|error| of_kernel("kernel routes", error))?;
                let links = kernel.links().map_err(|error| of_kernel("interfaces", error))?;
                (links, kernel.own_routes().map_err(|error| of_kernel("kernel routes", error))?)
            }
            Detail::Metrics => {
                let links = Interfaces::query().map_err(|error| Failure::one(Fault::Kernel, xdp::problem(&error)))?;
                (links, Vec::new())
            }
        };
        let by_port: HashMap<&str, &PortCounters> =
            counters.ports.iter().map(|counted| (counted.port.as_str(), counted)).collect();
        Ok(Report {
            node: state.node.clone(),
            time,
            generation: self.generation,
            // Those that the agent made, too.
            ports: state.all_ports().iter().map(|port| port_report(port, &links, &modes, &by_port)).collect(),
            sids: sid_reports(state, &routes, &counters, detail),
            policies: policy_reports(state, &counters, detail),
            steering: steering_reports(&state.steering, &counters),
            outcomes: counters.ports.iter().flat_map(outcome_reports).collect(),
            icmp: icmp_report(&counters),
        })
    }

    /// Drops by port and reason, most frequent first.
    ///
    /// # Errors
    /// A map that can not be read.
    pub fn drops(&self) -> Result<Vec<DropReport>, Failure> {
        let counters = self.counters()?;
        let last = self.reader.as_ref().map(Reader::last_drops).transpose().map_err(failed)?.unwrap_or_default();
        Ok(drops(&counters, &last, now()))
    }
}

fn failed(error: segue_dataplane::Error) -> Failure {
    Failure::one(Fault::Kernel, xdp::problem(&error))
}

/// Nanoseconds of the monotonic clock, which the data plane uses too.
fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        .unwrap_or_default()
}

/// A value of the model by the name that an operator writes.
fn name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

fn port_report(
    port: &Port,
    links: &Interfaces,
    modes: &BTreeMap<u32, Option<AttachMode>>,
    counters: &HashMap<&str, &PortCounters>,
) -> PortReport {
    let link = links.get(&port.name);
    let total = |kind: OutcomeKind| {
        let outcomes = counters.get(port.name.as_str()).into_iter().flat_map(|found| &found.outcomes);
        let of_kind =
            outcomes.filter(|(name, _)| Outcome::from_name(name).is_some_and(|outcome| outcome.kind() == kind));
        of_kind.map(|(_, counter)| Counter::from(*counter)).sum()
    };
    let ifindex = link.map_or(0, |link| link.ifindex);
    let mac = link.map(|link| link.mac.map(|octet| format!("{octet:02x}")).join(":"));
    PortReport {
        name: port.name.clone(),
        role: name(&port.role),
        ifindex,
        up: link.is_some_and(|link| link.up),
        mtu: link.map_or(0, |link| link.mtu),
        mac: mac.unwrap_or_default(),
        xdp: match modes.get(&ifindex) {
            Some(Some(AttachMode::Native)) => "native",
            Some(Some(AttachMode::Generic)) => "generic",
            Some(None) => "unknown",
            None => "none",
        }
        .to_owned(),
        forwarded: total(OutcomeKind::Forwarded),
        passed: total(OutcomeKind::Passed),
        dropped: total(OutcomeKind::Dropped),
    }
}

fn sid_reports(state: &NodeState, routes: &[SidRoute], counters: &Counters, detail: Detail) -> Vec<SidReport> {
    let by_prefix: HashMap<Ipv6Net, &SidRoute> = routes.iter().map(|route| (route.prefix, route)).collect();
    let kernel_route = |prefix: Ipv6Net| match detail {
        Detail::Metrics => String::new(),
        Detail::Full => by_prefix.get(&prefix).map_or_else(|| "missing".to_owned(), |route| route.target.to_string()),
    };
    let by_sid: HashMap<Ipv6Net, &SidCounters> = counters.sids.iter().map(|counted| (counted.sid, counted)).collect();
    let counted = |prefix: Ipv6Net| by_sid.get(&prefix).copied();
    let counter = |prefix| counted(prefix).map(|counted| counted.counter.into()).unwrap_or_default();
    let full = detail == Detail::Full;
    let sids = state.sids.iter().map(|sid| {
        let prefix = sid.sid.trunc();
        SidReport {
            sid: shown(prefix),
            behaviour: name(&sid.behaviour),
            flavours: if !full { Vec::new() } else { sid.flavours.iter().map(name).collect() },
            to: if full { destination(sid) } else { String::new() },
            kernel_route: kernel_route(prefix),
            counter: counter(prefix),
            returned: counted(prefix).and_then(|counted| counted.returned).map(Counter::from),
            memory: counted(prefix).and_then(|counted| counted.memory.as_ref()).map(MemoryReport::from),
            comment: sid.comment.clone().filter(|_| full),
        }
    });
    let binding = state.policies.iter().filter_map(|policy| Some((policy, Ipv6Net::from(policy.binding_sid?))));
    let binding = binding.map(|(policy, prefix)| SidReport {
        sid: shown(prefix),
        behaviour: match policy.mode {
            segue_model::node::HeadendMode::HEncaps => "End.B6.Encaps".to_owned(),
            _ => "End.B6.Encaps.Red".to_owned(),
        },
        flavours: Vec::new(),
        to: format!("policy {}", policy.name),
        kernel_route: kernel_route(prefix),
        counter: counter(prefix),
        returned: None,
        memory: None,
        comment: Some(format!("binding SID of policy {}", policy.name)),
    });
    sids.chain(binding).collect()
}

/// A whole address without its length, as operators write it.
fn shown(prefix: Ipv6Net) -> String {
    if prefix.prefix_len() == 128 { prefix.addr().to_string() } else { prefix.to_string() }
}

/// Where a SID's packets go, in words.
fn destination(sid: &Sid) -> String {
    let mut parts = Vec::new();
    if let Some(proxy) = &sid.proxy {
        parts.push(format!("function {}/{}", proxy.to_function, proxy.from_function));
    }
    if let Some(netfilter) = &sid.netfilter {
        parts.push(format!("netfilter in {}", netfilter.namespace));
    }
    parts.extend(sid.firewall.as_ref().map(|firewall| format!("firewall {firewall}")));
    parts.extend(sid.next_hop.map(|next_hop| next_hop.to_string()));
    if sid.next_hop.is_none() {
        parts.extend(sid.next_hop_mac.as_ref().map(name));
    }
    parts.extend(sid.port.as_ref().map(|port| format!("port {port}")));
    parts.extend(sid.table.map(|table| format!("table {table}")));
    parts.extend(sid.policy.as_ref().map(|policy| format!("policy {policy}")));
    parts.join(" ")
}

fn policy_reports(state: &NodeState, counters: &Counters, detail: Detail) -> Vec<PolicyReport> {
    let by_name: HashMap<&str, &PolicyCounters> =
        counters.policies.iter().map(|counted| (counted.policy.as_str(), counted)).collect();
    let report = |policy: &Policy| policy_report(policy, by_name.get(policy.name.as_str()).copied(), detail);
    state.policies.iter().map(report).collect()
}

fn policy_report(policy: &Policy, counted: Option<&PolicyCounters>, detail: Detail) -> PolicyReport {
    if detail == Detail::Metrics {
        return PolicyReport {
            name: policy.name.clone(),
            color: None,
            endpoint: None,
            binding_sid: None,
            mode: String::new(),
            counter: counted.map(|counted| counted.counter.into()).unwrap_or_default(),
            segment_lists: Vec::new(),
        };
    }
    let lists = policy.segment_lists.iter().enumerate().map(|(position, list)| SegmentListReport {
        weight: list.weight,
        segments: list.segments.iter().map(ToString::to_string).collect(),
        counter: counted
            .and_then(|counted| counted.lists.get(position))
            .map(|list| list.counter.into())
            .unwrap_or_default(),
    });
    PolicyReport {
        name: policy.name.clone(),
        color: policy.color,
        endpoint: policy.endpoint.map(|endpoint| endpoint.to_string()),
        binding_sid: policy.binding_sid.map(|sid| sid.to_string()),
        mode: name(&policy.mode),
        counter: counted.map(|counted| counted.counter.into()).unwrap_or_default(),
        segment_lists: lists.collect(),
    }
}

fn steering_reports(rules: &[SteeringRule], counters: &Counters) -> Vec<SteeringReport> {
    let by_name: std::collections::HashMap<&str, _> =
        counters.steering.iter().map(|counted| (counted.rule.as_str(), counted)).collect();
    let mut reports = Vec::new();
    for (position, rule) in rules.iter().enumerate() {
        let name_of = segue_dataplane::compile::rule_name(rule, position);
        let counted = by_name.get(name_of.as_str());
        reports.push(SteeringReport {
            matches: matches(rule),
            action: match (&rule.policy, &rule.action) {
                (Some(policy), _) => format!("policy {policy}"),
                (None, action) => action.as_ref().map(name).unwrap_or_default(),
            },
            counter: counted.map(|counted| counted.counter.into()).unwrap_or_default(),
            name: name_of,
        });
    }
    reports
}

fn matches(rule: &SteeringRule) -> String {
    let mut parts = vec![format!("to {}", rule.destination)];
    parts.extend(rule.source.map(|source| format!("from {source}")));
    parts.extend(rule.protocol.as_ref().map(name));
    let list = |what: &str, ranges: &[segue_model::value::PortRange]| {
        let ranges: Vec<_> = ranges.iter().map(name).collect();
        (!ranges.is_empty()).then(|| format!("{what} {}", ranges.join(",")))
    };
    parts.extend(list("source port", &rule.source_ports));
    parts.extend(list("destination port", &rule.destination_ports));
    parts.extend(rule.ingress.as_ref().map(|port| format!("in by {port}")));
    parts.extend(rule.source_range.map(|range| format!("from {range}")));
    parts.extend(rule.destination_range.map(|range| format!("to {range}")));
    for (what, values) in [("DSCP", &rule.dscp), ("flow label", &rule.flow_labels)] {
        let values: Vec<_> = values.iter().map(ToString::to_string).collect();
        parts.extend((!values.is_empty()).then(|| format!("{what} {}", values.join(","))));
    }
    parts.extend((rule.priority != 0).then(|| format!("priority {}", rule.priority)));
    parts.join(" ")
}

fn outcome_reports(port: &PortCounters) -> Vec<OutcomeReport> {
    let report = |(name, counter): (&&'static str, &segue_dataplane::Counter)| {
        let outcome = Outcome::from_name(name)?;
        Some(OutcomeReport {
            port: port.port.clone(),
            outcome: outcome.name().to_owned(),
            kind: outcome.kind().name().to_owned(),
            text: outcome.text().to_owned(),
            counter: (*counter).into(),
        })
    };
    port.outcomes.iter().filter_map(report).collect()
}

fn icmp_report(counters: &Counters) -> IcmpReport {
    let icmp = &counters.icmp;
    IcmpReport {
        unreachable: icmp.unreachable,
        too_big: icmp.too_big,
        time_exceeded: icmp.time_exceeded,
        parameter_problem: icmp.parameter_problem,
        echo_reply: icmp.echo_reply,
        relayed: icmp.relayed,
        tcp_reset: icmp.tcp_reset,
        rate_limited: icmp.rate_limited,
        not_sent: icmp.not_sent,
    }
}

fn drops(counters: &Counters, last: &[segue_dataplane::LastDrop], time: u64) -> Vec<DropReport> {
    let last: HashMap<(&str, &str), &segue_dataplane::LastDrop> =
        last.iter().rev().map(|last| ((last.port.as_str(), last.outcome.name()), last)).collect();
    let dropped = counters.ports.iter().flat_map(outcome_reports).filter(|row| row.kind == OutcomeKind::Dropped.name());
    let mut drops: Vec<_> = dropped
        .map(|row| {
            let last = last.get(&(row.port.as_str(), row.outcome.as_str())).copied();
            DropReport {
                port: row.port,
                reason: row.outcome,
                text: row.text,
                counter: row.counter,
                last: last.map(|last| last_drop(last, time)),
            }
        })
        .collect();
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.counter.packets));
    drops
}

fn last_drop(last: &segue_dataplane::LastDrop, now: u64) -> LastDrop {
    LastDrop {
        seconds_ago: now.saturating_sub(last.time_ns) / 1_000_000_000,
        length: last.length,
        headers: segue_wire::Snapshot::new(&last.bytes, last.length as usize).to_string(),
        bytes: last.bytes.iter().map(|octet| format!("{octet:02x}")).collect(),
    }
}

/// What the node does for each chain, by the planner's names: policies `CHAIN-forward` and `CHAIN-reverse`, and SIDs whose
/// comment begins with `chain CHAIN `. A policy with another name is a chain of its own.
pub fn chains(report: &Report) -> Vec<ChainReport> {
    let mut chains = BTreeMap::<String, Vec<ChainPart>>::new();
    for policy in &report.policies {
        let detail = policy.segment_lists.iter().map(|list| list.segments.join(" > ")).collect::<Vec<_>>().join(" | ");
        let part = ChainPart { what: policy.mode.clone(), name: policy.name.clone(), detail, counter: policy.counter };
        chains.entry(chain_of_policy(&policy.name).to_owned()).or_default().push(part);
    }
    for sid in &report.sids {
        let Some((chain, detail)) = sid.comment.as_deref().and_then(chain_of_comment) else { continue };
        let part =
            |what: String, counter| ChainPart { what, name: sid.sid.clone(), detail: detail.to_owned(), counter };
        let parts = chains.entry(chain.to_owned()).or_default();
        parts.push(part(sid.behaviour.clone(), sid.counter));
        parts.extend(sid.returned.map(|counter| part(format!("{} back", sid.behaviour), counter)));
    }
    chains.into_iter().map(|(name, parts)| ChainReport { name, parts }).collect()
}

fn chain_of_policy(policy: &str) -> &str {
    let family = policy.strip_suffix("-ipv4").or_else(|| policy.strip_suffix("-ipv6")).unwrap_or(policy);
    family.strip_suffix("-forward").or_else(|| family.strip_suffix("-reverse")).unwrap_or(policy)
}

/// `chain web forward, function fw`: the name, and the rest.
fn chain_of_comment(comment: &str) -> Option<(&str, &str)> {
    comment.strip_prefix("chain ")?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_known_by_the_planner_s_names() {
        assert_eq!(chain_of_policy("web-forward"), "web");
        assert_eq!(chain_of_policy("web-reverse-ipv4"), "web");
        assert_eq!(chain_of_policy("mine"), "mine");
        assert_eq!(chain_of_policy("mine-ipv6"), "mine-ipv6");
        assert_eq!(chain_of_comment("chain web forward, function fw"), Some(("web", "forward, function fw")));
        assert_eq!(chain_of_comment("waypoint"), None);
    }

    #[test]
    fn a_node_s_part_in_a_chain_has_policies_and_both_sides_of_a_proxy() {
        let counter = |packets| serde_json::json!({"packets": packets, "bytes": 0});
        let report: Report = serde_json::from_value(serde_json::json!({
            "node": "n", "time": 0, "generation": 1, "ports": [], "steering": [], "outcomes": [],
            "icmp": {"unreachable": 0, "too_big": 0, "time_exceeded": 0, "parameter_problem": 0, "echo_reply": 0,
                "relayed": 0, "tcp_reset": 0, "rate_limited": 0, "not_sent": 0},
            "policies": [{"name": "web-forward", "mode": "H.Encaps.Red", "counter": counter(3), "segment_lists":
                [{"weight": 1, "segments": ["a", "b"], "counter": counter(3)}]}],
            "sids": [{"sid": "a", "behaviour": "End.AS", "kernel_route": "blackhole", "counter": counter(2),
                "returned": counter(1), "comment": "chain web forward, function fw"}],
        }))
        .unwrap();
        let chains = chains(&report);
        assert_eq!(chains.len(), 1);
        let parts: Vec<_> = chains[0].parts.iter().map(|part| (part.what.as_str(), part.counter.packets)).collect();
        assert_eq!(parts, [("H.Encaps.Red", 3), ("End.AS", 2), ("End.AS back", 1)]);
    }
}
