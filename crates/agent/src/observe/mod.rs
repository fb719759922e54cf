//! The desired state and the live counters put together, by name.

mod devices;
mod texts;
mod told;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::Ipv6Net;
use nix::time::{ClockId, clock_gettime};
use segue_abi::{Outcome, OutcomeKind};
use segue_api::report::{
    ChainPart, ChainReport, Counter, DropReport, IcmpReport, LastDrop, MemoryReport, OutcomeReport, PortReport, Report,
    SteeringReport,
};
use segue_dataplane::{Attachment, CompiledSid, IcmpSent, Interfaces, MemoryCounters, PortCounters, Reader, Sums};
use segue_model::node::{NodeState, Owner, Policy, Port, Sid, SteeringRule};
use segue_model::service_label::key_instance;
use serde::Serialize;

pub use texts::Texts;
pub use told::{Policies, Sids, Told};

use self::told::KernelRoutes;
use crate::{
    kernel::{OwnRoutes, SidRoute},
    learned::Learned,
    metrics::Names,
    node::Node,
    problem::{Failure, Fault},
    xdp,
};

/// As the API has it.
pub(crate) fn counter(counter: segue_dataplane::Counter) -> Counter {
    Counter { packets: counter.packets, bytes: counter.bytes }
}

/// As the API has it.
fn memory_report(counters: &MemoryCounters) -> MemoryReport {
    MemoryReport {
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

/// What a report is made of, taken from the node at one instant: the rest takes long where there is much, and is done elsewhere.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) state: Option<Arc<NodeState>>,
    pub(crate) reader: Option<Reader>,
    generation: u32,
    /// Labels that are learned.
    pub(crate) learned: Option<Learned>,
}

/// The parts of a report: where there are 100,000 SIDs, each costs something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Ports, and what became of packets.
    pub ports: bool,
    /// What the ports' interfaces are and can do.
    pub devices: bool,
    /// SIDs.
    pub sids: bool,
    /// What the kernel's routes for them say.
    pub kernel_routes: bool,
    /// Policies.
    pub policies: bool,
    /// Steering rules.
    pub steering: bool,
}

impl Parts {
    /// All that counts.
    pub const COUNTERS: Self =
        Self { ports: true, sids: true, policies: true, steering: true, devices: false, kernel_routes: false };
}

/// Takes what a report is made of.
///
/// # Errors
/// None; the type is that of jobs.
pub fn snapshot(node: &mut Node) -> Result<Snapshot, Failure> {
    let (learned, generation) = (node.learning().cloned(), node.activated().generation);
    Ok(Snapshot { state: node.made(), reader: node.plane.reader(), generation, learned })
}

/// What was counted, beside whom it belongs to.
struct Counted<'a> {
    names: &'a Names,
    sums: Sums,
    memories: BTreeMap<u32, MemoryCounters>,
}

impl Counted<'_> {
    /// The same while nothing is counted.
    fn with_nothing(&self) -> Self {
        Self { names: self.names, sums: Sums::default(), memories: BTreeMap::new() }
    }

    fn of(&self, rows: &[u32]) -> Counter {
        rows.iter().map(|row| counter(self.sums.counter(*row))).sum()
    }
}

impl Snapshot {
    /// Whether nothing else has been applied since: if something has, counters may have got other owners.
    pub fn is_current(&self) -> bool {
        self.reader.as_ref().is_none_or(|reader| reader.is_current().unwrap_or(true))
    }

    /// Has these parts of all that can be told, and what is cheap, written. `names`: those of [`Snapshot::names`].
    ///
    /// # Errors
    /// A map or a route table that cannot be read; those of `write`.
    pub fn tell<T>(
        &self,
        parts: Parts,
        names: Option<&Names>,
        routes: &SharedRoutes,
        write: impl FnOnce(&Told<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (Some(state), Some(names)) = (&self.state, names) else {
            let nothing = Report::default();
            return write(&Told { time: now(), ..Told::few(&nothing) });
        };
        let rows = names.rows_of([parts.sids, parts.policies, parts.steering]);
        let mut counted = Counted { names, sums: self.counted(&rows)?, memories: BTreeMap::new() };
        if let (true, Some(reader)) = (parts.sids, &self.reader) {
            counted.memories = reader.memories().map_err(failed)?;
        }
        let mut few = self.few(parts.ports, state)?;
        if parts.devices {
            devices::complete(state, &mut few.ports)?;
        }
        let asked = parts.sids && parts.kernel_routes;
        let routes = if asked { Some(KernelRoutes::new(routes.read()?)) } else { None };
        let steering = if parts.steering { steering_reports(&state.steering, &counted) } else { Vec::new() };
        write(&Told {
            sids: Sids(parts.sids.then_some((&counted, state, routes.as_ref()))),
            policies: Policies(parts.policies.then_some((&counted, state))),
            steering,
            ..Told::few(&few)
        })
    }

    /// What there is few of: ports, if they are asked for, and what the node itself is.
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn few(&self, ports: bool, state: &NodeState) -> Result<Report, Failure> {
        let mut report = Report {
            node: state.node.clone(),
            time: now(),
            generation: self.generation,
            icmp: self.icmp()?,
            ..Report::default()
        };
        if ports {
            self.ports(state, &mut report)?;
        }
        Ok(report)
    }

    /// Those that the agent made, too.
    fn ports(&self, state: &NodeState, report: &mut Report) -> Result<(), Failure> {
        let counters = self.reader.as_ref().map(Reader::ports).transpose().map_err(failed)?.unwrap_or_default();
        let hooks = self.reader.as_ref().map(Reader::attachments).unwrap_or_default();
        let links = Interfaces::query().map_err(failed)?;
        let by_port: HashMap<&str, &PortCounters> =
            counters.iter().map(|counted| (counted.port.as_str(), counted)).collect();
        report.ports = state.all_ports().iter().map(|port| port_report(port, &links, &hooks, &by_port)).collect();
        report.outcomes = counters.iter().flat_map(outcome_reports).collect();
        Ok(())
    }

    fn icmp(&self) -> Result<IcmpReport, Failure> {
        let sent = self.reader.as_ref().map(Reader::icmp_sent).transpose().map_err(failed)?;
        Ok(icmp_report(&sent.unwrap_or_default()))
    }

    /// What proxies remember, once for all SIDs that share it, by what they share.
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn memories(&self) -> Result<Vec<MemoryReport>, Failure> {
        let memories = self.reader.as_ref().map(Reader::memories).transpose().map_err(failed)?.unwrap_or_default();
        let used = self.reader.as_ref().and_then(Reader::applied).map(|compiled| compiled.sids.as_slice());
        let used: BTreeSet<u32> = used.unwrap_or_default().iter().map(CompiledSid::scope).collect();
        let mut reports: Vec<MemoryReport> =
            memories.iter().filter(|(row, _)| used.contains(row)).map(|(_, memory)| memory_report(memory)).collect();
        reports.sort_by(|a, b| a.shared.cmp(&b.shared));
        Ok(reports)
    }

    /// The names of what is counted: `known`, if they are those.
    pub fn names(&self, known: Option<Arc<Names>>) -> Option<Arc<Names>> {
        let (state, reader) = (self.state.as_ref()?, self.reader.as_ref());
        Some(known.filter(|names| names.are_of(state, reader)).unwrap_or_else(|| Arc::new(Names::new(state, reader))))
    }

    /// What was counted in rows of [`Names::rows`].
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn counted(&self, rows: &[u32]) -> Result<Sums, Failure> {
        let sums = self.reader.as_ref().map(|reader| reader.counted(rows)).transpose();
        Ok(sums.map_err(failed)?.unwrap_or_default())
    }

    /// Ports with what their interfaces are and can do, and what is wrong with that.
    ///
    /// # Errors
    /// A map that cannot be read; a kernel that does not tell.
    pub fn devices(&self) -> Result<Vec<PortReport>, Failure> {
        let Some(state) = &self.state else { return Ok(Vec::new()) };
        let mut ports = self.few(true, state)?.ports;
        devices::complete(state, &mut ports)?;
        Ok(ports)
    }

    /// Drops by port and reason, most frequent first.
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn drops(&self) -> Result<Vec<DropReport>, Failure> {
        let Some(reader) = &self.reader else { return Ok(Vec::new()) };
        let counters = reader.ports().map_err(failed)?;
        Ok(drops(&counters, &reader.last_drops().map_err(failed)?, now()))
    }
}

/// The kernel's routes for SIDs, for one report after the other.
#[derive(Clone, Default)]
pub struct SharedRoutes(Arc<Mutex<Option<OwnRoutes>>>);

impl std::fmt::Debug for SharedRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRoutes").finish_non_exhaustive()
    }
}

impl SharedRoutes {
    /// As they are now, by prefix.
    fn read(&self) -> Result<Arc<[SidRoute]>, Failure> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What has failed is opened again the next time.
        let opened = shared.take().map_or_else(OwnRoutes::open, Ok);
        let read = opened.and_then(|mut routes| Ok((routes.read()?, routes)));
        let (all, routes) = read.map_err(|error| crate::apply::kernel_failure("kernel routes", &error))?;
        *shared = Some(routes);
        Ok(all)
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
    hooks: &BTreeMap<u32, Attachment>,
    counters: &HashMap<&str, &PortCounters>,
) -> PortReport {
    let link = links.get(&port.name);
    let total = |kind: OutcomeKind| {
        let outcomes = counters.get(port.name.as_str()).into_iter().flat_map(|found| &found.outcomes);
        let of_kind =
            outcomes.filter(|(name, _)| Outcome::from_name(name).is_some_and(|outcome| outcome.kind() == kind));
        of_kind.map(|(_, counter)| self::counter(*counter)).sum()
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
        hook: hooks.get(&ifindex).map_or("none", |hook| hook.name()).to_owned(),
        mode: String::new(),
        mode_reason: String::new(),
        device: None,
        problems: Vec::new(),
        forwarded: total(OutcomeKind::Forwarded),
        passed: total(OutcomeKind::Passed),
        dropped: total(OutcomeKind::Dropped),
    }
}

/// The policies that have a binding SID, with it and its behaviour.
pub(crate) fn bindings(state: &NodeState) -> impl Iterator<Item = (&Policy, Ipv6Net, &'static str)> {
    state.policies.iter().filter_map(|policy| {
        let behaviour = match policy.mode {
            segue_model::node::HeadendMode::HEncaps => "End.B6.Encaps",
            segue_model::node::HeadendMode::Push => "End.BM",
            _ => "End.B6.Encaps.Red",
        };
        Some((policy, Ipv6Net::from(policy.binding_sid?), behaviour))
    })
}

/// A label, where SIDs are shown.
pub(crate) fn label_name(label: u32) -> String {
    format!("label {label}")
}

/// Instances of functions behind labels: they count beside the labels.
pub(crate) fn label_members(state: &NodeState) -> Vec<Sid> {
    if state.functions.is_empty() {
        return Vec::new();
    }
    state.services().into_iter().filter(|service| key_instance(&service.sid) != 0).collect()
}

/// A whole address without its length, as operators write it.
pub(crate) fn shown(prefix: Ipv6Net) -> String {
    segue_model::service_label::sid_or_label(&prefix)
}

fn steering_reports(rules: &[SteeringRule], counted: &Counted<'_>) -> Vec<SteeringReport> {
    let mut reports = Vec::new();
    for (position, rule) in rules.iter().enumerate() {
        let name_of = segue_dataplane::compile::rule_name(rule, position);
        reports.push(SteeringReport {
            matches: matches(rule),
            action: match (&rule.policy, &rule.action) {
                (Some(policy), _) => format!("policy {policy}"),
                (None, action) => action.as_ref().map(name).unwrap_or_default(),
            },
            counter: counted.of(counted.names.steering(position)),
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
            counter: self::counter(*counter),
        })
    };
    port.outcomes.iter().filter_map(report).collect()
}

fn icmp_report(icmp: &IcmpSent) -> IcmpReport {
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

fn drops(ports: &[PortCounters], last: &[segue_dataplane::LastDrop], time: u64) -> Vec<DropReport> {
    let last: HashMap<(&str, &str), &segue_dataplane::LastDrop> =
        last.iter().rev().map(|last| ((last.port.as_str(), last.outcome.name()), last)).collect();
    let dropped = ports.iter().flat_map(outcome_reports).filter(|row| row.kind == OutcomeKind::Dropped.name());
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

/// What the node does for each chain: policies and SIDs by their owners. What has none is in no chain.
pub fn chains(report: &Report) -> Vec<ChainReport> {
    let mut chains = BTreeMap::<&str, Vec<ChainPart>>::new();
    let part = |owner: &Owner, what: String, name: &str, detail: String, counter| ChainPart {
        what,
        name: name.to_owned(),
        direction: owner.direction.map(|direction| direction.name().to_owned()),
        family: owner.family.map(|family| family.name().to_owned()),
        detail,
        counter,
    };
    for policy in &report.policies {
        let Some(owner) = &policy.owner else { continue };
        let detail = policy.segment_lists.iter().map(|list| list.segments.join(" > ")).collect::<Vec<_>>().join(" | ");
        let part = part(owner, policy.mode.clone(), &policy.name, detail, policy.counter);
        chains.entry(&owner.chain).or_default().push(part);
    }
    for sid in &report.sids {
        let Some(owner) = &sid.owner else { continue };
        let served = Some(owner.part()).filter(|part| !part.is_empty());
        let detail = served.into_iter().chain(sid.comment.clone()).collect::<Vec<_>>().join(", ");
        let parts = chains.entry(&owner.chain).or_default();
        parts.push(part(owner, sid.behaviour.clone(), &sid.sid, detail.clone(), sid.counter));
        let back = |counter| part(owner, format!("{} back", sid.behaviour), &sid.sid, detail, counter);
        parts.extend(sid.returned.map(back));
    }
    chains.into_iter().map(|(name, parts)| ChainReport { name: name.to_owned(), parts }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_part_in_a_chain_has_policies_and_both_sides_of_a_proxy() {
        let counter = |packets| serde_json::json!({"packets": packets, "bytes": 0});
        let report: Report = serde_json::from_value(serde_json::json!({
            "node": "n", "time": 0, "generation": 1, "ports": [], "steering": [], "outcomes": [],
            "icmp": {"unreachable": 0, "too_big": 0, "time_exceeded": 0, "parameter_problem": 0, "echo_reply": 0,
                "relayed": 0, "tcp_reset": 0, "rate_limited": 0, "not_sent": 0},
            "policies": [
                {"name": "web-forward", "mode": "H.Encaps.Red", "counter": counter(3), "segment_lists":
                    [{"weight": 1, "segments": ["a", "b"], "counter": counter(3)}],
                    "owner": {"chain": "web", "direction": "forward", "family": "ipv4"}},
                // An operator's own: names and comments are nothing but that.
                {"name": "x-forward", "mode": "H.Encaps.Red", "counter": counter(4), "segment_lists": []},
            ],
            "sids": [
                {"sid": "a", "behaviour": "End.AS", "kernel_route": "blackhole", "counter": counter(2),
                    "returned": counter(1), "comment": "function fw", "owner": {"chain": "web", "direction": "forward"}},
                {"sid": "b", "behaviour": "End.DT46", "counter": counter(5), "comment": "ours", "owner": {"chain": "all"}},
                {"sid": "c", "behaviour": "End.AS", "counter": counter(6), "comment": "chain x forward, function fw"},
            ],
        }))
        .unwrap();
        let chains = chains(&report);
        let names: Vec<_> = chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(names, ["all", "web"], "what has no owner makes no chain");
        assert_eq!(chains[0].parts[0].detail, "ours");
        let part =
            |part: &ChainPart| (part.what.clone(), part.detail.clone(), part.family.clone(), part.counter.packets);
        let parts: Vec<_> = chains[1].parts.iter().map(part).collect();
        let proxy = |what: &str, packets| (what.to_owned(), "forward, function fw".to_owned(), None, packets);
        let headend = ("H.Encaps.Red".to_owned(), "a > b".to_owned(), Some("ipv4".to_owned()), 3);
        assert_eq!(parts, [headend, proxy("End.AS", 2), proxy("End.AS back", 1)]);
        assert!(chains[1].parts.iter().all(|part| part.direction.as_deref() == Some("forward")));
    }
}
