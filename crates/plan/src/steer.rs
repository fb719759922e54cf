//! From chains to SIDs, SR policies and steering rules; on kernel nodes to routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv6Net};

use crate::address;
use crate::build::Builder;
use crate::chain::{Family, Lane, Stop};
use crate::service::{Passage, Services};
use crate::shared::Visit;
use crate::{Direction, Encap, Explanation, NextHop, Route, Seg6LocalAction, StepAction};
use segue_model::error::KeyPath;
use segue_model::limits::{HEADROOM_MAX, SEGMENTS_MAX};
use segue_model::node::{
    Behaviour, HeadendMode, InnerType, Policy, Proxy, SegmentList, Sid, SteeringRule, TrafficClass,
};
use segue_model::topology::{Approach, Dataplane};

/// Function numbers of SIDs; decimal digits read as written.
const END: u16 = 1;
const END_DX4: u16 = 4;
const END_DT6: u16 = 6;
const END_DT46: u16 = 46;
const FIRST_PROXY: u16 = 100;
const LAST_PROXY: u16 = 9999;
/// The kernel's main routing table.
const MAIN_TABLE: u32 = 254;

/// What chains add to one node.
#[derive(Default)]
pub(super) struct NodeParts {
    pub(super) sids: Vec<Sid>,
    pub(super) policies: Vec<Policy>,
    pub(super) steering: Vec<SteeringRule>,
    pub(super) routes: Vec<Route>,
    proxies: u16,
}

/// A segment with what explains it.
#[derive(Clone)]
struct Segment {
    node: usize,
    sid: Ipv6Addr,
    behaviour: Behaviour,
    function: Option<String>,
    why: String,
}

/// Plans all lanes.
pub(super) struct Steerer<'a, 'b> {
    pub(super) builder: &'b mut Builder<'a>,
    pub(super) services: Services,
    pub(super) parts: Vec<NodeParts>,
    pub(super) explanations: Vec<Explanation>,
}

impl<'a, 'b> Steerer<'a, 'b> {
    pub(super) fn new(builder: &'b mut Builder<'a>) -> Self {
        let parts = (0..builder.nodes.len()).map(|_| NodeParts::default()).collect();
        let mut steerer = Self { builder, services: Services::default(), parts, explanations: Vec::new() };
        for node in 0..steerer.parts.len() {
            steerer.end_sid(node);
        }
        steerer
    }

    /// Each node that understands Segment Routing has an End SID, for waypoints. Without flavours: the SRH stays on up to the
    /// egress, so that what is on the wire shows the whole list, and the egress takes it off at no extra cost.
    fn end_sid(&mut self, node: usize) {
        let sid = address::sid(self.builder.nodes[node].locator, END);
        match self.builder.dataplane(node) {
            Dataplane::Segue => {
                self.parts[node].sids.push(local_sid(sid, Behaviour::End, "waypoint".into()));
            }
            Dataplane::Kernel => self.kernel_sid(node, sid, Seg6LocalAction::End, "End, for waypoints".into()),
            Dataplane::Plain => {}
        }
    }

    /// The kernel looks at seg6local routes on input only, and needs a device that is not `lo`; which one does not matter.
    fn kernel_sid(&mut self, node: usize, sid: Ipv6Addr, action: Seg6LocalAction, reason: String) {
        let destination = IpNet::from(Ipv6Net::from(sid));
        if self.parts[node].routes.iter().any(|route| route.destination == destination) {
            return;
        }
        let Some(interface) = self.builder.interfaces[node].first() else { return };
        let next_hops = vec![NextHop { gateway: None, interface: interface.name.clone() }];
        let encap = Some(Encap::Seg6Local(action));
        self.parts[node].routes.push(Route { table: None, destination, next_hops, source: None, encap, reason });
    }

    pub(super) fn lane(&mut self, lane: &Lane<'_>) {
        let mut passages: IndexMap<String, IndexMap<Direction, Passage>> = IndexMap::new();
        for stop in &lane.stops {
            if let Stop::Function { name, .. } = stop {
                let ways = self.services.passages(self.builder, lane, stop);
                passages.insert(name.clone(), ways);
            }
        }
        for direction in lane.directions() {
            self.direction(lane, *direction, &passages);
        }
    }

    fn direction(
        &mut self,
        lane: &Lane<'_>,
        direction: Direction,
        passages: &IndexMap<String, IndexMap<Direction, Passage>>,
    ) {
        let segments = self.segments(lane, direction);
        if !self.check_path(lane, direction, &segments) {
            return;
        }
        let list: Vec<Ipv6Addr> = segments.iter().map(|segment| segment.sid).collect();
        for (position, segment) in segments.iter().enumerate() {
            let Some(function) = &segment.function else { continue };
            let Some(passage) = passages.get(function).and_then(|ways| ways.get(&direction)) else { continue };
            let remaining = list[position + 1..].to_vec();
            let mut sid = proxy_sid(lane, direction, segment, function, passage, remaining);
            let topology = self.builder.topology;
            if let (Some(proxy), Some(definition)) = (&mut sid.proxy, topology.functions.get(function)) {
                proxy.on_failure = definition.on_failure.unwrap_or_default();
                proxy.watch = definition.watch;
                proxy.backup = self.backup(lane, direction, function, segment.node);
            }
            self.parts[segment.node].sids.push(sid);
        }
        let (from, to) = lane.ends(direction);
        let (from, to) = (from.clone(), to.clone());
        match self.builder.dataplane(from.node) {
            Dataplane::Segue => self.headend(lane, direction, &list),
            Dataplane::Kernel => self.kernel_headend(lane, direction, &segments),
            // Refused when the chain's ends were resolved.
            Dataplane::Plain => return,
        }
        self.explain(lane, direction, (&from.label, from.node), &to.label, &segments);
    }

    /// The segments of one direction: a SID for each stop, then the egress.
    fn segments(&mut self, lane: &Lane<'_>, direction: Direction) -> Vec<Segment> {
        let mut segments = Vec::new();
        for stop in lane.stops(direction) {
            let node = stop.node();
            let locator = self.builder.nodes[node].locator;
            let node_name = self.builder.node_name(node);
            segments.push(match stop {
                Stop::Waypoint { .. } => Segment {
                    node,
                    sid: address::sid(locator, END),
                    behaviour: Behaviour::End,
                    function: None,
                    why: format!("the chain names {node_name} as a waypoint; End only goes on to the next segment"),
                },
                Stop::Function { name, .. } => self.function(lane, direction, name, node),
            });
        }
        segments.push(self.egress(lane, direction));
        segments
    }

    fn function(&mut self, lane: &Lane<'_>, direction: Direction, name: &str, node: usize) -> Segment {
        let topology = self.builder.topology;
        let (approach, decided) = topology.approach(name).unwrap_or((Approach::Static, String::new()));
        let why = format!("{}; {decided}", explanation(approach, name, self.builder.node_name(node)));
        let function = Some(name.to_owned());
        if !approach.is_shared() {
            let number = function_number(&mut self.parts[node], node, lane, self.builder);
            let behaviour = if approach == Approach::Static { Behaviour::EndAs } else { Behaviour::EndAd };
            let sid = address::sid(self.builder.nodes[node].locator, number);
            return Segment { node, sid, behaviour, function, why };
        }
        let Some(visit) = self.visit(lane, direction, name, node) else {
            // The function exists: `via` was checked.
            return Segment { node, sid: Ipv6Addr::UNSPECIFIED, behaviour: Behaviour::End, function, why };
        };
        Segment { node, sid: visit.segment, behaviour: visit.behaviour, function, why }
    }

    /// One direction of a lane through a function that chains share; the first visit adds its SID, and that of its backup.
    fn visit(&mut self, lane: &Lane<'_>, direction: Direction, name: &str, node: usize) -> Option<Visit> {
        let parts = &mut self.parts[node];
        let number = |builder: &mut Builder<'_>| function_number(parts, node, lane, builder);
        let mut visit = self.services.visit(self.builder, lane, direction, (name, node), number)?;
        if let Some(mut sid) = visit.new.take() {
            // Two may be each other's backup: by now this one has its SID.
            let backup = self.backup(lane, direction, name, node);
            if let Some(proxy) = &mut sid.proxy {
                proxy.backup = backup;
            } else if let Some(netfilter) = &mut sid.netfilter {
                netfilter.backup = backup;
            }
            self.parts[node].sids.push(sid);
        }
        Some(visit)
    }

    /// The SID of a function's backup.
    fn backup(&mut self, lane: &Lane<'_>, direction: Direction, name: &str, node: usize) -> Option<Ipv6Addr> {
        let topology = self.builder.topology;
        let backup = topology.functions.get(name)?.backup.as_deref()?;
        let there = topology.nodes.get_index_of(&topology.functions.get(backup)?.node)?;
        if self.builder.graph.distance(node, there).is_none() {
            let names = [node, there].map(|node| self.builder.node_name(node));
            let message = format!("no links lead from {} to {}, where {backup:?} is", names[0], names[1]);
            let key = KeyPath::root().at("functions").at(name).at("backup");
            self.builder.error(&key, message, "add the missing link to `links`, or name another function");
        }
        Some(self.visit(lane, direction, backup, there)?.segment)
    }

    fn egress(&mut self, lane: &Lane<'_>, direction: Direction) -> Segment {
        let (_, to) = lane.ends(direction);
        let node = to.node;
        let locator = self.builder.nodes[node].locator;
        let name = self.builder.node_name(node);
        let at = format!("{} is at {name}, which takes the outer header off", to.label);
        if self.builder.dataplane(node) != Dataplane::Kernel {
            let sid = address::sid(locator, END_DT46);
            let plain = Ipv6Net::from(sid);
            if self.parts[node].sids.iter().all(|other| other.sid != plain) {
                self.parts[node].sids.push(local_sid(sid, Behaviour::EndDt46, "egress of chains".into()));
            }
            let why = format!("{at}; End.DT46, because one SID then serves IPv4 and IPv6, by the main routing table");
            return Segment { node, sid, behaviour: Behaviour::EndDt46, function: None, why };
        }
        if lane.families.contains(&Family::V4) {
            let sid = address::sid(locator, END_DX4);
            let action = Seg6LocalAction::EndDx4 { next_hop: Ipv4Addr::UNSPECIFIED };
            self.kernel_sid(node, sid, action, "egress of IPv4 chains, by route on the inner destination".into());
            let why = format!(
                "{at}; the kernel has End.DT4 only with VRF devices, so End.DX4 with the inner destination as next hop"
            );
            Segment { node, sid, behaviour: Behaviour::EndDx4, function: None, why }
        } else {
            let sid = address::sid(locator, END_DT6);
            self.kernel_sid(node, sid, Seg6LocalAction::EndDt6 { table: MAIN_TABLE }, "egress of IPv6 chains".into());
            let why = format!("{at}; the kernel's End.DT6 looks the inner destination up in the main routing table");
            Segment { node, sid, behaviour: Behaviour::EndDt6, function: None, why }
        }
    }

    /// Whether the list fits and every segment can be reached.
    fn check_path(&mut self, lane: &Lane<'_>, direction: Direction, segments: &[Segment]) -> bool {
        let key = lane.key.at("via");
        if segments.len() > SEGMENTS_MAX {
            let message = format!(
                "{} functions and waypoints and the egress make {} segments; at most {SEGMENTS_MAX} fit, because the outer \
                 header goes into the {} octets of headroom of an XDP frame",
                lane.stops.len(),
                segments.len(),
                HEADROOM_MAX
            );
            self.builder.error(&key, message, "visit fewer");
            return false;
        }
        let overhead = lane.definition.mode.overhead(segments.len());
        let mut here = lane.ends(direction).0.node;
        for segment in segments {
            let names = [here, segment.node].map(|node| self.builder.node_name(node));
            if self.builder.graph.distance(here, segment.node).is_none() {
                let message = format!("no links lead from {} to {} ({direction})", names[0], names[1]);
                self.builder.error(&key, message, "add the missing link to `links`");
                return false;
            }
            let needed = segue_model::check::MTU_MIN + u32::try_from(overhead).unwrap_or(u32::MAX);
            if let Some(mtu) = self.builder.graph.path_mtu(here, segment.node).filter(|mtu| *mtu < needed) {
                let message = format!(
                    "the MTU of {mtu} octets between {} and {} is too small ({direction}): a packet of 1280 octets, the least \
                     for IPv6, takes {needed} with {} segments",
                    names[0],
                    names[1],
                    segments.len()
                );
                self.builder.error(&key, message, format!("raise the links' MTU to {needed} or more"));
                return false;
            }
            here = segment.node;
        }
        true
    }

    fn headend(&mut self, lane: &Lane<'_>, direction: Direction, list: &[Ipv6Addr]) {
        let (from, to) = lane.ends(direction);
        let name = lane.policy(direction);
        let matching = lane.matching(direction);
        let loopback = self.builder.nodes[to.node].loopback;
        let policy = Policy {
            name: name.clone(),
            color: lane.definition.color,
            // RFC 9256 section 2.1 wants color and endpoint unique on a headend: two families cannot both have them.
            endpoint: lane.definition.color.filter(|_| !lane.split).map(|_| loopback.into()),
            binding_sid: None,
            mode: lane.definition.mode,
            source_address: None,
            segment_lists: vec![SegmentList { weight: 1, segments: list.to_vec() }],
            traffic_class: TrafficClass::Copy,
            hop_limit: 64,
            owner: Some(lane.owner(direction)),
        };
        let clash = self.parts[from.node].policies.iter().find(|other| {
            policy.endpoint.is_some() && (other.color, other.endpoint) == (policy.color, policy.endpoint)
        });
        if let Some(clash) = clash {
            let message = format!(
                "its policy {name:?} and {:?} have the same color and endpoint on {}",
                clash.name,
                self.builder.node_name(from.node)
            );
            self.builder.error(&lane.key.at("color"), message, "choose another color (RFC 9256 section 2.1)");
        }
        let mut rules = Vec::new();
        for destination in lane.prefixes(to) {
            let sources = lane.prefixes(from).filter(|source| Family::of(source) == Family::of(destination));
            for source in sources {
                rules.push(SteeringRule {
                    name: None,
                    destination: *destination,
                    source: Some(*source),
                    protocol: matching.protocol,
                    source_ports: matching.source_ports.clone(),
                    destination_ports: matching.destination_ports.clone(),
                    ingress: None,
                    source_range: None,
                    destination_range: None,
                    dscp: matching.dscp.clone(),
                    flow_labels: matching.flow_labels.clone(),
                    priority: 0,
                    policy: Some(name.clone()),
                    action: None,
                });
            }
        }
        let several = rules.len() > 1;
        for (position, mut rule) in rules.into_iter().enumerate() {
            let taken = self.parts[from.node].steering.iter().find(|other| same_traffic(other, &rule));
            if let Some(other) = taken {
                let message = format!(
                    "policy {:?} takes the same traffic from {} to {} already",
                    other.policy.as_deref().unwrap_or_default(),
                    rule.source.map_or_else(String::new, |source| source.to_string()),
                    rule.destination
                );
                self.builder.error(&lane.key, message, "tell the chains apart by their ends or by `match`");
                return;
            }
            rule.name = Some(if several { format!("{name}-{}", position + 1) } else { name.clone() });
            self.parts[from.node].steering.push(rule);
        }
        self.parts[from.node].policies.push(policy);
    }

    /// The kernel encapsulates by route, that is by destination alone.
    fn kernel_headend(&mut self, lane: &Lane<'_>, direction: Direction, segments: &[Segment]) {
        let (from, to) = lane.ends(direction);
        let node = self.builder.node_name(from.node);
        if !lane.definition.matching.is_any() {
            let message = format!(
                "{node} forwards with the kernel's own data plane, which chooses by destination alone ({direction})"
            );
            self.builder.error(&lane.key.at("match"), message, "remove `match`, or give the node `dataplane: segue`");
            return;
        }
        let Some(first) = segments.first() else { return };
        let next_hops = self.builder.next_hops(from.node, first.node);
        let Some(way) = next_hops.first() else {
            let message =
                format!("{node} would encapsulate towards itself, which the kernel does not do ({direction})");
            self.builder.error(
                &lane.key.at("via"),
                message,
                "give the node `dataplane: segue`, or remove its waypoint",
            );
            return;
        };
        let next_hop = NextHop { gateway: None, interface: way.interface.clone() };
        for destination in lane.prefixes(to) {
            let clash = self.parts[from.node]
                .routes
                .iter()
                .any(|route| segue_model::check::overlap(&route.destination, destination));
            if clash {
                let message = format!(
                    "another chain from {node} goes to {destination} too, and the kernel chooses by destination alone"
                );
                self.builder.error(
                    &lane.key,
                    message,
                    "choose ends that do not overlap, or give the node `dataplane: segue`",
                );
                return;
            }
            self.parts[from.node].routes.push(Route {
                table: None,
                destination: *destination,
                next_hops: vec![next_hop.clone()],
                source: None,
                encap: Some(Encap::Seg6 {
                    reduced: lane.definition.mode == HeadendMode::HEncapsRed,
                    segments: segments.iter().map(|segment| segment.sid).collect(),
                }),
                reason: format!("chain {} {direction}: the kernel is the headend", lane.chain),
            });
        }
    }

    fn explain(
        &mut self,
        lane: &Lane<'_>,
        direction: Direction,
        (from, ingress): (&str, usize),
        to: &str,
        segments: &[Segment],
    ) {
        let list: Vec<Ipv6Addr> = segments.iter().map(|segment| segment.sid).collect();
        let mut here = ingress;
        let node_name = self.builder.node_name(ingress).to_owned();
        let order = match (direction, lane.stops.len()) {
            (_, 0) => "no function is visited, so the list has only the egress".to_owned(),
            (Direction::Forward, _) => "the list has the functions in the order of `via`, then the egress".to_owned(),
            (Direction::Reverse, _) => {
                "the list has the functions in the opposite order of `via`, then the egress".to_owned()
            }
        };
        let who = match self.builder.dataplane(ingress) {
            Dataplane::Kernel => "by a kernel route, that is by destination alone",
            _ if lane.definition.matching.is_any() => "by destination and source prefix",
            _ => "by destination and source prefix and what `match` says",
        };
        let why = format!(
            "traffic from {from} to {to} enters the SR domain at {node_name} and is classified there {who}; {order}"
        );
        let mode = lane.definition.mode;
        let mut steps = vec![(ingress, StepAction::Headend { mode, segments: list }, why, vec![node_name])];
        for segment in segments {
            let path = self.builder.graph.path(here, segment.node);
            let names: Vec<String> = path.iter().map(|node| self.builder.node_name(*node).to_owned()).collect();
            let distance = self.builder.graph.distance(here, segment.node).unwrap_or_default();
            let forks = path.iter().any(|node| self.builder.graph.first_links(*node, segment.node).len() > 1);
            let way = if forks {
                format!(
                    "; flows are spread over equally short paths, one is {} (distance {distance})",
                    names.join(" > ")
                )
            } else if path.len() > 1 {
                format!("; shortest path {} (distance {distance})", names.join(" > "))
            } else {
                "; on the same node, so nothing is sent".to_owned()
            };
            let Segment { sid, behaviour, function, why, .. } = segment.clone();
            steps.push((segment.node, StepAction::Segment { sid, behaviour, function }, why + &way, names));
            here = segment.node;
        }
        for (step, (node, action, why, path)) in steps.into_iter().enumerate() {
            let node = self.builder.node_name(node).to_owned();
            let (chain, policy) = (lane.chain.to_owned(), lane.policy(direction));
            self.explanations.push(Explanation { chain, direction, policy, step, node, action, path, why });
        }
    }
}

/// The next number for the SID of a function of a node.
fn function_number(parts: &mut NodeParts, node: usize, lane: &Lane<'_>, builder: &mut Builder<'_>) -> u16 {
    let number = FIRST_PROXY.saturating_add(parts.proxies);
    parts.proxies = parts.proxies.saturating_add(1);
    if number > LAST_PROXY {
        let message = format!("node {} has no SIDs left for functions", builder.node_name(node));
        builder.error(&lane.key.at("via"), message, "spread the functions over more nodes");
    }
    number.min(LAST_PROXY)
}

fn explanation(approach: Approach, name: &str, node: &str) -> String {
    let ignorant = format!("{name} on {node} knows nothing of Segment Routing");
    match approach {
        Approach::Static => format!(
            "{ignorant}: the static proxy End.AS takes the outer header off, and puts the remaining segments back on what returns"
        ),
        Approach::Dynamic => format!(
            "{ignorant}: the dynamic proxy End.AD takes the outer header off, and puts the one last seen back on what returns"
        ),
        Approach::Flow => format!(
            "{ignorant}: the dynamic proxy End.AD takes the outer header off, and puts that of the flow back on what returns"
        ),
        Approach::Exact => format!(
            "{ignorant}: the exact proxy, End.AD by packet, takes the outer header off, and puts each packet's own back on, \
             whatever the function did to the packet"
        ),
        Approach::Masquerading => format!(
            "{ignorant}: the masquerading proxy End.AM leaves the header on and shows the last segment as the destination"
        ),
        Approach::Aware => format!(
            "{name} on {node} understands Segment Routing: End.AN gives it the packet as it is, and checks what it did to the \
             segment list"
        ),
        Approach::Netfilter => format!(
            "{name} on {node} is netfilter: End.AN.NF shows its hooks the inner packet, marked with the SID's argument, and \
             goes on to the next segment"
        ),
        Approach::Firewall => format!(
            "{name} is a firewall of {node} itself: the rules of its End.AN SID filter the packet where it arrives, and what they \
             accept goes on to the next segment"
        ),
    }
}

/// Whether two rules take the same packets for all that their text says.
fn same_traffic(a: &SteeringRule, b: &SteeringRule) -> bool {
    let addresses = |rule: &SteeringRule| (rule.destination, rule.source, rule.protocol);
    let ports = |rule: &SteeringRule| (rule.source_ports.clone(), rule.destination_ports.clone());
    let values = |rule: &SteeringRule| (rule.dscp.clone(), rule.flow_labels.clone());
    addresses(a) == addresses(b) && ports(a) == ports(b) && values(a) == values(b)
}

pub(super) fn local_sid(sid: Ipv6Addr, behaviour: Behaviour, comment: String) -> Sid {
    Sid {
        sid: sid.into(),
        behaviour,
        flavours: Vec::new(),
        next_hop: None,
        next_hop_mac: None,
        port: None,
        table: None,
        policy: None,
        proxy: None,
        firewall: None,
        netfilter: None,
        argument_length: 0,
        answer_echo: true,
        allow_inner_sid: false,
        outside_locator: false,
        comment: Some(comment),
        owner: None,
    }
}

fn proxy_sid(
    lane: &Lane<'_>,
    direction: Direction,
    segment: &Segment,
    function: &str,
    passage: &Passage,
    remaining: Vec<Ipv6Addr>,
) -> Sid {
    let inner: Vec<InnerType> = lane.families.iter().map(|family| family.inner()).collect();
    let is_static = segment.behaviour == Behaviour::EndAs;
    Sid {
        // Fixed, so that no neighbour lookup is needed.
        next_hop_mac: Some(passage.mac),
        proxy: Some(Proxy {
            inner,
            segments: if is_static { remaining } else { Vec::new() },
            reduced: !is_static || lane.definition.mode == HeadendMode::HEncapsRed,
            ..Proxy::new(&passage.out, &passage.back)
        }),
        owner: Some(lane.owner(direction)),
        ..local_sid(segment.sid, segment.behaviour, format!("function {function}"))
    }
}
