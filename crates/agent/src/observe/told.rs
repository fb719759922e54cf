//! What is told, written as it is made: there may be 100,000 SIDs and as many policies, and a list of reports of all of them takes
//! longer to make, to walk and to take apart than the reports themselves.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use ipnet::Ipv6Net;
use segue_api::report::{
    IcmpReport, MemoryReport, OutcomeReport, PolicyReport, PortReport, Report, SegmentListReport, SidReport,
    SteeringReport,
};
use segue_dataplane::MemoryCounters;
use segue_model::label::IMPLICIT_NULL;
use segue_model::node::{HeadendMode, Label, LabelBehaviour, LabelPath, NodeState, Policy, Sid, UdpEndpoint};

use super::{
    Counted, Texts, bindings, label_members, label_name, memory_report, name, shown,
    texts::{Text, field},
};
use crate::kernel::{RouteTarget, SidRoute};

/// A [`Report`], of which these parts are made when they are written. As JSON it is the same.
pub struct Told<'a> {
    pub(super) node: &'a str,
    pub(super) time: u64,
    pub(super) generation: u32,
    /// Ports.
    pub ports: Vec<PortReport>,
    /// Local SIDs.
    pub sids: Sids<'a>,
    /// SR policies.
    pub policies: Policies<'a>,
    /// Steering rules.
    pub steering: Vec<SteeringReport>,
    /// What became of packets.
    pub outcomes: Vec<OutcomeReport>,
    pub(super) icmp: IcmpReport,
}

impl<'a> Told<'a> {
    /// What there is few of.
    pub(super) fn few(report: &'a Report) -> Self {
        Self {
            node: &report.node,
            time: report.time,
            generation: report.generation,
            ports: report.ports.clone(),
            sids: Sids::default(),
            policies: Policies::default(),
            steering: Vec::new(),
            outcomes: report.outcomes.clone(),
            icmp: report.icmp,
        }
    }

    /// All of it as JSON.
    pub fn json(&self) -> Vec<u8> {
        let mut out = b"{\"node\":".to_vec();
        // Into memory, what is there is written whole.
        let _ = serde_json::to_writer(&mut out, self.node);
        field(&mut out, "time", &self.time);
        field(&mut out, "generation", &self.generation);
        field(&mut out, "ports", &self.ports);
        out.extend_from_slice(b",\"sids\":");
        self.sids.write(&mut out);
        out.extend_from_slice(b",\"policies\":");
        self.policies.write(&mut out);
        field(&mut out, "steering", &self.steering);
        field(&mut out, "outcomes", &self.outcomes);
        field(&mut out, "icmp", &self.icmp);
        out.push(b'}');
        out
    }

    /// All of it made.
    pub fn report(&self) -> Report {
        Report {
            node: self.node.to_owned(),
            time: self.time,
            generation: self.generation,
            ports: self.ports.clone(),
            sids: self.sids.reports().collect(),
            policies: self.policies.reports().collect(),
            steering: self.steering.clone(),
            outcomes: self.outcomes.clone(),
            icmp: self.icmp,
        }
    }
}

/// SIDs, and behind them binding SIDs; none if they are not asked for.
#[derive(Default)]
pub struct Sids<'a>(pub(super) Option<(&'a Counted<'a>, &'a NodeState, Option<&'a KernelRoutes>)>);

/// SR policies; none if they are not asked for.
#[derive(Default)]
pub struct Policies<'a>(pub(super) Option<(&'a Counted<'a>, &'a NodeState)>);

/// The kernel's routes for SIDs, in words.
#[derive(Default)]
pub struct KernelRoutes {
    /// By prefix.
    routes: Arc<[SidRoute]>,
    /// Behind the route that was asked for last: SIDs are mostly configured in the order of their prefixes.
    next: Cell<usize>,
    /// The last one that was put into words: most are the same.
    last: RefCell<Option<(RouteTarget, String)>>,
}

impl KernelRoutes {
    pub(super) fn new(routes: Arc<[SidRoute]>) -> Self {
        Self { routes, ..Self::default() }
    }

    fn target(&self, prefix: Ipv6Net) -> Option<&RouteTarget> {
        let next = self.next.get();
        let at = match self.routes.get(next) {
            Some(route) if route.prefix == prefix => next,
            _ => self.routes.binary_search_by_key(&prefix, |route| route.prefix).ok()?,
        };
        self.next.set(at + 1);
        Some(&self.routes[at].target)
    }

    fn with_words<T>(&self, prefix: Ipv6Net, mut with: impl FnMut(&str) -> T) -> T {
        let Some(target) = self.target(prefix) else { return with("missing") };
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((known, words)) if known == target => with(words),
            _ => with(&last.insert((target.clone(), target.to_string())).1),
        }
    }
}

impl Sids<'_> {
    /// As JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Some((counted, state, routes)) = self.0 else { return out.extend_from_slice(b"[]") };
        let nothing = counted.with_nothing();
        let bare = Sids(Some((&nothing, state, None)));
        let texts =
            counted.names.sid_texts(|| Texts::new(bare.reports().map(|report| SidReport { returned: None, ..report })));
        let prefixes = state.sids.iter().map(|sid| sid.sid.trunc()).chain(bindings(state).map(|(_, prefix, _)| prefix));
        // The kernel has no routes of labels, nor those of addresses that take labels in UDP from here.
        let others = state.labels.len() + label_members(state).len() + state.udp_endpoints().len();
        let prefixes = prefixes.map(Some).chain(std::iter::repeat_n(None, others));
        list(out, texts.rows().zip(prefixes).enumerate(), |out, (position, (text, prefix))| {
            let (returned, scope) = counted.names.function(position);
            let before = |out: &mut Vec<u8>| {
                if let (Some(routes), Some(prefix)) = (routes, prefix) {
                    routes.with_words(prefix, |words| field(out, "kernel_route", &words));
                }
            };
            let behind = |out: &mut Vec<u8>| {
                if returned != 0 {
                    field(out, "returned", &counted.of(&[returned]));
                }
                if let Some(memory) = memory(counted.memories.get(&scope)) {
                    field(out, "memory", &memory);
                }
            };
            let counter = counted.of(counted.names.sid(position));
            text.write(out, std::iter::once(counter), before, behind);
        });
    }

    fn reports(&self) -> impl Iterator<Item = SidReport> {
        self.0.iter().flat_map(|(counted, state, routes)| {
            let kernel_route =
                |prefix| routes.map(|routes| routes.with_words(prefix, str::to_owned)).unwrap_or_default();
            let sids = state.sids.iter().enumerate().map(move |(position, sid)| {
                let prefix = sid.sid.trunc();
                let (returned, scope) = counted.names.function(position);
                SidReport {
                    sid: shown(prefix),
                    behaviour: sid.behaviour.name().to_owned(),
                    flavours: sid.flavours.iter().map(name).collect(),
                    to: destination(sid),
                    kernel_route: kernel_route(prefix),
                    counter: counted.of(counted.names.sid(position)),
                    returned: (returned != 0).then(|| counted.of(&[returned])),
                    memory: memory(counted.memories.get(&scope)),
                    comment: sid.comment.clone(),
                    owner: sid.owner.clone(),
                }
            });
            let binding = bindings(state).zip(state.sids.len()..);
            sids.chain(binding.map(move |((policy, prefix, behaviour), position)| SidReport {
                sid: shown(prefix),
                behaviour: behaviour.to_owned(),
                flavours: Vec::new(),
                to: format!("policy {}", policy.name),
                kernel_route: kernel_route(prefix),
                counter: counted.of(counted.names.sid(position)),
                returned: None,
                memory: None,
                comment: Some(format!("binding SID of policy {}", policy.name)),
                owner: None,
            }))
            .chain(labels(counted, state))
            .chain(members(counted, state))
            .chain(udp_endpoints(counted, state))
        })
    }
}

/// Labels, behind all SIDs.
fn labels<'a>(counted: &'a Counted<'_>, state: &'a NodeState) -> impl Iterator<Item = SidReport> {
    let before = state.sids.len() + bindings(state).count();
    state.labels.iter().enumerate().map(move |(position, label)| {
        let (returned, scope) = counted.names.function(before + position);
        SidReport {
            sid: label_name(label.label),
            behaviour: label.behaviour.name().to_owned(),
            flavours: Vec::new(),
            to: label_destination(label),
            kernel_route: String::new(),
            counter: counted.of(counted.names.sid(before + position)),
            returned: (returned != 0).then(|| counted.of(&[returned])),
            memory: memory(counted.memories.get(&scope)),
            comment: label.comment.clone(),
            owner: label.owner.clone(),
        }
    })
}

/// Instances of functions behind labels, behind all labels.
fn members<'a>(counted: &'a Counted<'_>, state: &NodeState) -> impl Iterator<Item = SidReport> + use<'a> {
    let before = state.sids.len() + bindings(state).count() + state.labels.len();
    label_members(state).into_iter().zip(before..).map(move |(member, position)| {
        let (returned, scope) = counted.names.function(position);
        SidReport {
            sid: shown(member.sid),
            behaviour: member.behaviour_name().to_owned(),
            flavours: Vec::new(),
            to: destination(&member),
            kernel_route: String::new(),
            counter: counted.of(counted.names.sid(position)),
            returned: (returned != 0).then(|| counted.of(&[returned])),
            memory: memory(counted.memories.get(&scope)),
            comment: member.comment,
            owner: member.owner,
        }
    })
}

/// Addresses that take labels in UDP, behind all labels and these.
fn udp_endpoints<'a>(counted: &'a Counted<'_>, state: &'a NodeState) -> impl Iterator<Item = SidReport> {
    let before = state.sids.len() + bindings(state).count() + state.labels.len() + label_members(state).len();
    let unchecked = |prefix: Ipv6Net| format!(", without a checksum from {prefix}");
    state.udp_endpoints().iter().enumerate().map(move |(position, endpoint)| SidReport {
        sid: endpoint.name(),
        behaviour: UdpEndpoint::BEHAVIOUR.to_owned(),
        flavours: Vec::new(),
        to: format!("by its labels{}", endpoint.zero_checksum_from.map(unchecked).unwrap_or_default()),
        kernel_route: String::new(),
        counter: counted.of(counted.names.sid(before + position)),
        returned: None,
        memory: None,
        comment: None,
        owner: None,
    })
}

/// Where the packets of a label go, in words.
fn label_destination(label: &Label) -> String {
    if let Some(service) = label.service() {
        return destination(&service);
    }
    let mut parts = Vec::new();
    if label.behaviour == LabelBehaviour::Swap {
        parts.push(format!("as {}", label.out.unwrap_or(label.label)));
    }
    parts.extend(label.next_hop.map(|next_hop| next_hop.to_string()));
    parts.extend(label.port.as_ref().map(|port| format!("port {port}")));
    parts.extend(label.udp.as_ref().map(|udp| format!("in UDP to {}", udp.destination)));
    let paths: Vec<String> = label.paths.iter().map(|path| path_destination(label, path)).collect();
    parts.push(paths.join(", "));
    if label.behaviour == LabelBehaviour::Pseudowire {
        parts.push(control_word(label.control_word.unwrap_or(true)).to_owned());
    }
    parts.extend(label.table.map(|table| format!("table {table}")));
    parts.extend(label.policy.as_ref().map(|policy| format!("policy {policy}")));
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// What is between labels and a frame, in words.
fn control_word(there_is: bool) -> &'static str {
    if there_is { "with control word" } else { "without control word" }
}

/// How a policy puts segments on, and what in front of.
fn headend(policy: &Policy) -> String {
    let mode = policy.mode.name();
    match policy.pseudowire {
        Some(wire) => format!("{mode}, pseudowire {}", control_word(wire.control_word)),
        None => mode.to_owned(),
    }
}

/// Where one of several paths leads.
fn path_destination(label: &Label, path: &LabelPath) -> String {
    let out = match path.out {
        Some(IMPLICIT_NULL) => " without it".to_owned(),
        Some(out) if out != label.out.unwrap_or(label.label) => format!(" as {out}"),
        _ => String::new(),
    };
    let port = path.port.as_ref().map_or(String::new(), |port| format!(" port {port}"));
    format!("{}{port}{out}", path.next_hop)
}

fn memory(counters: Option<&MemoryCounters>) -> Option<MemoryReport> {
    counters.map(memory_report)
}

/// Where a SID's packets go, in words.
fn destination(sid: &Sid) -> String {
    let mut parts = Vec::new();
    if let Some(proxy) = &sid.proxy {
        parts.push(match &proxy.function {
            Some(function) => format!("function {function}"),
            None => format!("function {}/{}", proxy.to_function, proxy.from_function),
        });
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

/// A list of what `write` writes.
fn list<T>(out: &mut Vec<u8>, rows: impl Iterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (position, row) in rows.enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write(out, row);
    }
    out.push(b']');
}

impl Policies<'_> {
    /// As JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Some((counted, state)) = self.0 else { return out.extend_from_slice(b"[]") };
        let nothing = counted.with_nothing();
        let texts = counted.names.policy_texts(|| Texts::new(Policies(Some((&nothing, state))).reports()));
        list(out, texts.rows().enumerate(), |out, (position, text): (usize, Text<'_>)| {
            let rows = counted.names.policy(position);
            let of_lists = rows.iter().map(|row| counted.of(&[*row]));
            text.write(out, std::iter::once(counted.of(rows)).chain(of_lists), |_| {}, |_| {});
        });
    }

    fn reports(&self) -> impl Iterator<Item = PolicyReport> {
        self.0.iter().flat_map(|(counted, state)| {
            let policies = state.policies.iter().enumerate();
            policies.map(|(position, policy)| policy_report(policy, counted.names.policy(position), counted))
        })
    }
}

/// `rows`: of its lists.
fn policy_report(policy: &Policy, rows: &[u32], counted: &Counted<'_>) -> PolicyReport {
    let lists = policy.segment_lists.iter().enumerate().map(|(position, list)| SegmentListReport {
        weight: list.weight,
        segments: match policy.mode {
            HeadendMode::Push => list.labels.iter().map(ToString::to_string).collect(),
            _ => list.segments.iter().map(ToString::to_string).collect(),
        },
        counter: rows.get(position).map(|row| counted.of(&[*row])).unwrap_or_default(),
    });
    PolicyReport {
        name: policy.name.clone(),
        color: policy.color,
        endpoint: policy.endpoint.map(|endpoint| endpoint.to_string()),
        binding_sid: policy.binding_sid.map(|sid| sid.to_string()),
        mode: headend(policy),
        counter: counted.of(rows),
        segment_lists: lists.collect(),
        owner: policy.owner.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{kernel::LocalAction, metrics::Names};

    #[test]
    fn what_is_written_as_it_is_made_is_the_report() {
        let state = serde_json::json!({
            "node": "n", "source_address": "fc00::1",
            "sids": [
                {"sid": "fc00:2::/64", "behaviour": "End", "flavours": ["PSP", "USD"], "comment": "a \"b\"", "owner": {"chain": "c"}},
                {"sid": "fc00:1::", "behaviour": "End.DT46", "table": 7},
                {"sid": "fc00:4::", "behaviour": "End"},
            ],
            "policies": [{"name": "p", "binding_sid": "fc00:3::", "color": 1, "endpoint": "fc00::2",
                "segment_lists": [{"segments": ["fc00:4::", "fc00:5::"], "weight": 2}, {"segments": ["fc00:6::"]}],
                "owner": {"chain": "c", "direction": "forward", "family": "ipv4"}}],
        });
        let state: Arc<NodeState> = Arc::new(serde_json::from_value(state).unwrap());
        let names = Names::new(&state, None);
        let counted = Counted { names: &names, sums: segue_dataplane::Sums::default(), memories: BTreeMap::new() };
        let route = |prefix: &str, psp| SidRoute {
            prefix: prefix.parse().unwrap(),
            target: RouteTarget::Seg6Local { action: LocalAction::End { psp }, device: 3 },
        };
        let blackhole = SidRoute { target: RouteTarget::Blackhole, ..route("fc00:3::/128", false) };
        let routes = [route("fc00:2::/64", true), blackhole, route("fc00:4::/128", false)];
        let routes = KernelRoutes::new(routes.into());
        let few = Report { node: "n".to_owned(), generation: 5, ..Report::default() };
        let told = Told {
            sids: Sids(Some((&counted, &state, Some(&routes)))),
            policies: Policies(Some((&counted, &state))),
            ..Told::few(&few)
        };
        let report = told.report();
        let words: Vec<_> = report.sids.iter().map(|sid| (sid.sid.as_str(), sid.kernel_route.as_str())).collect();
        let expected = [
            ("fc00:2::/64", "seg6local End flavors psp"),
            ("fc00:1::", "missing"),
            ("fc00:4::", "seg6local End"),
            ("fc00:3::", "blackhole"),
        ];
        assert_eq!(words, expected);
        assert_eq!(report.policies[0].segment_lists[0].segments, ["fc00:4::", "fc00:5::"]);
        for _ in 0..2 {
            let text = String::from_utf8(told.json()).unwrap();
            assert_eq!(text, serde_json::to_string(&report).unwrap(), "also of what has been told before");
        }
        // What is not asked for is an empty list, and who reads a report finds none missing.
        let text = String::from_utf8(Told::few(&few).json()).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), few);
    }
}
