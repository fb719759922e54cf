//! The desired state and the live counters put together, by name.

use std::collections::BTreeMap;

use ipnet::Ipv6Net;
use nix::time::{ClockId, clock_gettime};
use segue_abi::{Outcome, OutcomeKind};
use segue_dataplane::{Counters, Interfaces, MemoryCounters, PortCounters};
use segue_model::node::{NodeState, Policy, Port, Sid, SteeringRule};
use serde::Serialize;

use crate::{
    kernel::{Kernel, SidRoute},
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

/// Everything that counts.
///
/// # Errors
/// A map or a route table that can not be read.
pub fn report(node: &mut Node) -> Result<Report, Failure> {
    let failed = |error| Failure::one(Fault::Kernel, xdp::problem(&error));
    let Some(state) = node.state().cloned() else {
        return Ok(Report { time: now(), ..Report::default() });
    };
    let counters = node.plane.counters().map_err(failed)?;
    let time = now();
    let modes = node.plane.modes();
    let links = node.kernel.links().map_err(|error| crate::apply::kernel_failure("interfaces", &error))?;
    let routes = node.kernel.own_routes().map_err(|error| crate::apply::kernel_failure("kernel routes", &error))?;
    Ok(Report {
        node: state.node.clone(),
        time,
        generation: node.outcome().generation,
        // Those that the agent made, too.
        ports: state.all_ports().iter().map(|port| port_report(port, &links, &modes, &counters)).collect(),
        sids: sid_reports(&state, &routes, &counters),
        policies: state.policies.iter().map(|policy| policy_report(policy, &counters)).collect(),
        steering: steering_reports(&state.steering, &counters),
        outcomes: counters.ports.iter().flat_map(outcome_reports).collect(),
        icmp: icmp_report(&counters),
    })
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

fn port_report(port: &Port, links: &Interfaces, modes: &BTreeMap<u32, &str>, counters: &Counters) -> PortReport {
    let link = links.get(&port.name);
    let total = |kind: OutcomeKind| {
        let outcomes =
            counters.ports.iter().filter(|counted| counted.port == port.name).flat_map(|found| &found.outcomes);
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
        xdp: modes.get(&ifindex).copied().unwrap_or("none").to_owned(),
        forwarded: total(OutcomeKind::Forwarded),
        passed: total(OutcomeKind::Passed),
        dropped: total(OutcomeKind::Dropped),
    }
}

fn sid_reports(state: &NodeState, routes: &[SidRoute], counters: &Counters) -> Vec<SidReport> {
    let kernel_route = |prefix: Ipv6Net| {
        let route = routes.iter().find(|route| route.prefix == prefix);
        route.map_or_else(|| "missing".to_owned(), |route| route.target.to_string())
    };
    let counted = |prefix: Ipv6Net| counters.sids.iter().find(|counted| counted.sid == prefix);
    let counter = |prefix| counted(prefix).map(|counted| counted.counter.into()).unwrap_or_default();
    let sids = state.sids.iter().map(|sid| {
        let prefix = sid.sid.trunc();
        SidReport {
            sid: shown(prefix),
            behaviour: name(&sid.behaviour),
            flavours: sid.flavours.iter().map(name).collect(),
            to: destination(sid),
            kernel_route: kernel_route(prefix),
            counter: counter(prefix),
            returned: counted(prefix).and_then(|counted| counted.returned).map(Counter::from),
            memory: counted(prefix).and_then(|counted| counted.memory.as_ref()).map(MemoryReport::from),
            comment: sid.comment.clone(),
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

fn policy_report(policy: &Policy, counters: &Counters) -> PolicyReport {
    let counted = counters.policies.iter().find(|counted| counted.policy == policy.name);
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
        rate_limited: icmp.rate_limited,
        not_sent: icmp.not_sent,
    }
}

/// Drops by port and reason, most frequent first.
///
/// # Errors
/// A map that can not be read.
pub fn drops(node: &mut Node) -> Result<Vec<DropReport>, Failure> {
    let failed = |error| Failure::one(Fault::Kernel, xdp::problem(&error));
    let counters = node.plane.counters().map_err(failed)?;
    let last = node.plane.last_drops().map_err(failed)?;
    let time = now();
    let dropped = counters.ports.iter().flat_map(outcome_reports).filter(|row| row.kind == OutcomeKind::Dropped.name());
    let mut drops: Vec<_> = dropped
        .map(|row| {
            let last = last.iter().find(|last| last.port == row.port && last.outcome.name() == row.outcome);
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
    Ok(drops)
}

fn last_drop(last: &segue_dataplane::LastDrop, now: u64) -> LastDrop {
    LastDrop {
        seconds_ago: now.saturating_sub(last.time_ns) / 1_000_000_000,
        length: last.length,
        headers: segue_wire::summary(&last.bytes).to_string(),
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
                "relayed": 0, "rate_limited": 0, "not_sent": 0},
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
