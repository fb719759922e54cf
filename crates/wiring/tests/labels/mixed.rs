//! Domains where SIDs lead to some nodes, labels to others, and both to borders: packets are followed over each list, binding label and hairpin.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use proptest::prelude::*;

use segue_model::label::{IMPLICIT_NULL, LabelBehaviour};
use segue_model::node::{Behaviour, HeadendMode, Policy, SegmentList, Sid};
use segue_model::owner::AddressFamily;
use segue_model::topology::{Endpoint, NodeSrDataplane, SrDataplane, Topology};
use segue_model::udp::UdpTunnel;
use segue_plan::StepAction;
use segue_wiring::{Interface, LabPlan, load_plan};

use crate::{Seed, Stop, function_of, over, path, seed, state, text};

pub const WAYS: [&str; 3] = ["srv6", "sr-mpls", "both"];

/// The seed's topology, with what leads to each node.
pub fn mixed(seed: &Seed, kinds: &[usize], domain: &str) -> String {
    let mut text = text(seed).replace("dataplane: sr-mpls", &format!("dataplane: {domain}"));
    for (node, kind) in kinds.iter().enumerate().take(seed.nodes) {
        text = text.replace(&format!("n{node}: {{}}"), &format!("n{node}: {{ sr_dataplane: {} }}", WAYS[*kind]));
    }
    text
}

/// Whether a stack or SIDs may lead to each point, from link to link: how the planner finds its way is not asked. `crossing`: whether one may come
/// behind the other.
pub fn is_possible(topology: &Topology, from: usize, points: &[(usize, [bool; 2])], crossing: bool) -> bool {
    let kinds = |node: usize| {
        let kind = topology.domain.of_node(&topology.nodes[node]);
        [kind.has_sids(), kind.has_labels()]
    };
    let index = |name: &String| topology.nodes.get_index_of(name).expect("a node");
    let links: Vec<[usize; 2]> =
        topology.links.iter().map(|link| [index(&link.between[0]), index(&link.between[1])]).collect();
    let tunnels: Vec<[usize; 2]> =
        topology.udp_tunnels.iter().map(|one| [index(&one.between[0]), index(&one.between[1])]).collect();
    let mut open: Vec<(usize, usize, usize)> =
        (0..2).filter(|kind| kinds(from)[*kind]).map(|kind| (0, from, kind)).collect();
    let mut seen = HashSet::new();
    while let Some(place @ (served, node, kind)) = open.pop() {
        if served == points.len() {
            return true;
        }
        if !seen.insert(place) {
            continue;
        }
        if points[served].0 == node && points[served].1[kind] {
            open.push((served + 1, node, kind));
        }
        if crossing && kinds(node) == [true, true] {
            open.push((served, node, 1 - kind));
        }
        for [a, b] in &links {
            let there = if *a == node { *b } else { *a };
            // Labels need nodes that have some, and a link that takes them; SIDs only IPv6.
            let in_udp = tunnels.contains(&[*a, *b]) || tunnels.contains(&[*b, *a]);
            if [*a, *b].contains(&node) && (kind == 0 || (kinds(node)[1] && kinds(there)[1] && !in_udp)) {
                open.push((served, there, kind));
            }
        }
        for [a, b] in tunnels.iter().filter(|ends| kind == 1 && ends.contains(&node)) {
            open.push((served, if *a == node { *b } else { *a }, kind));
        }
    }
    false
}

pub fn points(topology: &Topology, via: &[Stop], to: usize) -> Vec<(usize, [bool; 2])> {
    let of_node = |node: usize| topology.domain.of_node(&topology.nodes[node]);
    let mut points: Vec<(usize, [bool; 2])> = Vec::new();
    for stop in via.iter().chain([&Stop::Node(to)]) {
        points.push(match stop {
            Stop::Node(node) => (*node, [of_node(*node).has_sids(), of_node(*node).has_labels()]),
            Stop::Function(function) => {
                let node = topology.nodes.get_index_of(&topology.functions[*function].node).expect("a node");
                let by_labels = match of_node(node) {
                    NodeSrDataplane::Srv6 => false,
                    NodeSrDataplane::SrMpls => true,
                    NodeSrDataplane::Both => topology.domain.dataplane == SrDataplane::SrMpls,
                };
                (node, [!by_labels, by_labels])
            }
        });
    }
    points
}

/// A packet on its way: where it has been, and which functions have seen it.
pub struct Packet<'a> {
    pub plan: &'a LabPlan,
    pub way: Vec<String>,
    pub visited: Vec<String>,
    pub turn: usize,
    /// Frames: the port that they go out of.
    pub out: Option<String>,
    /// How often labels went in UDP.
    pub in_udp: usize,
}

impl<'a> Packet<'a> {
    pub fn new(plan: &'a LabPlan, from: &str, turn: usize) -> Self {
        Self { plan, way: vec![from.to_owned()], visited: Vec::new(), turn, out: None, in_udp: 0 }
    }

    pub fn here(&self) -> String {
        self.way.last().cloned().expect("it is somewhere")
    }

    fn go(&mut self, there: &str) {
        self.way.push(there.to_owned());
        assert!(self.way.len() < 300, "a loop: {:?}", self.way);
    }

    fn interface(&self, name: &str) -> &'a Interface {
        let interfaces = &self.plan.nodes[&self.here()].interfaces;
        interfaces.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{} has no {name}", self.here()))
    }

    /// By one policy after the other, to the last table.
    pub fn walk(&mut self, first: &str) -> Vec<&'a Policy> {
        let (mut next, mut policies) = (Some(first.to_owned()), Vec::new());
        while let Some(name) = next {
            let state = state(self.plan, &self.here());
            let policy = state.policies.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}"));
            policies.push(policy);
            let list = &policy.segment_lists[self.turn % policy.segment_lists.len()];
            next = match policy.mode {
                HeadendMode::Push => self.by_labels(list),
                _ => self.by_sids(list),
            };
        }
        policies
    }

    fn by_labels(&mut self, list: &SegmentList) -> Option<String> {
        let mut stack: Vec<u32> = list.labels.iter().rev().copied().collect();
        if let Some(udp) = &list.udp {
            self.in_udp(udp);
        } else if list.next_hop.is_some() {
            let there = over(self.plan, &self.here(), list.port.as_ref(), list.next_hop).to_owned();
            self.go(&there);
        }
        loop {
            let here = self.here();
            let top = *stack.last().expect("a label says what happens");
            let mut labels = state(self.plan, &here).labels.iter();
            let known = labels.find(|label| label.label == top).unwrap_or_else(|| panic!("{here} does not know {top}"));
            let way = path(known, self.turn + self.way.len());
            match known.behaviour {
                LabelBehaviour::Swap if way.is_none_or(|path| path.out != Some(IMPLICIT_NULL)) => {}
                _ => drop(stack.pop()),
            }
            match known.behaviour {
                LabelBehaviour::Node => {}
                LabelBehaviour::Pop | LabelBehaviour::Swap if known.udp.is_some() => {
                    self.in_udp(known.udp.as_ref().expect("a tunnel"));
                }
                LabelBehaviour::Pseudowire => {
                    assert!(stack.is_empty(), "a frame is behind it");
                    self.out.clone_from(&known.port);
                    return None;
                }
                LabelBehaviour::Pop | LabelBehaviour::Swap => {
                    let (port, next_hop) = match way {
                        Some(path) => (path.port.as_ref(), Some(path.next_hop)),
                        None => (known.port.as_ref(), known.next_hop),
                    };
                    let there = over(self.plan, &here, port, next_hop).to_owned();
                    self.go(&there);
                }
                LabelBehaviour::Table => {
                    assert_eq!((known.table, stack.as_slice()), (None, &[][..]), "the end, by the main table");
                    return None;
                }
                LabelBehaviour::Binding => {
                    assert!(stack.is_empty(), "the packet itself goes on");
                    return known.policy.clone();
                }
                _ => {
                    if known.behaviour == LabelBehaviour::StaticProxy {
                        let rest: Vec<u32> = stack.iter().rev().copied().collect();
                        assert_eq!(
                            known.proxy.as_ref().expect("a proxy").labels,
                            rest,
                            "what goes back on is the rest"
                        );
                    }
                    self.visited.push(function_of(self.plan, &here, known));
                }
            }
        }
    }

    fn by_sids(&mut self, list: &SegmentList) -> Option<String> {
        for (position, sid) in list.segments.iter().enumerate() {
            self.go_to_sid(*sid);
            let here = self.here();
            let known: &Sid = state(self.plan, &here)
                .sids
                .iter()
                .find(|one| one.sid.contains(sid))
                .unwrap_or_else(|| panic!("{here} does not have {sid}"));
            let rest = &list.segments[position + 1..];
            match known.behaviour {
                Behaviour::End => {}
                Behaviour::EndDx2 => {
                    assert!(rest.is_empty(), "the last SID");
                    self.out.clone_from(&known.port);
                    return None;
                }
                Behaviour::EndDt46 => {
                    assert!(rest.is_empty(), "the last SID");
                    return known.table.map(|table| self.round(table));
                }
                Behaviour::EndAnNf => {
                    self.visited.push(known.netfilter.as_ref().expect("netfilter").namespace.clone());
                }
                Behaviour::EndAn => self.visited.push(known.firewall.clone().expect("a firewall")),
                Behaviour::EndAs | Behaviour::EndAd => {
                    let proxy = known.proxy.as_ref().expect("a proxy");
                    if known.behaviour == Behaviour::EndAs {
                        assert_eq!(proxy.segments, rest, "what goes back on is the rest");
                    }
                    self.visited.push(self.interface(&proxy.to_function).peer.namespace.clone());
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("the last SID leads nowhere");
    }

    /// By the routes of nodes to a locator.
    fn go_to_sid(&mut self, sid: Ipv6Addr) {
        while !self.plan.nodes[&self.here()].locator.contains(&sid) {
            self.go_by_route(sid);
        }
    }

    /// To the next node, and by which interface.
    fn go_by_route(&mut self, destination: Ipv6Addr) -> &'a Interface {
        let routes = self.plan.nodes[&self.here()].routes.iter().filter(|route| route.table.is_none());
        let routes = routes.filter(|route| route.destination.contains(&IpAddr::V6(destination)));
        let route = routes.max_by_key(|route| route.destination.prefix_len()).expect("a route");
        let hop = &route.next_hops[self.turn % route.next_hops.len()];
        let interface = self.interface(&hop.interface);
        let there = over(self.plan, &self.here(), Some(&hop.interface), hop.gateway).to_owned();
        self.go(&there);
        interface
    }

    /// By the routes of nodes to the other end of a tunnel, which takes it from this one, over links that take its packets.
    fn in_udp(&mut self, udp: &UdpTunnel) {
        let IpAddr::V6(destination) = udp.destination else { panic!("{udp:?}") };
        let source = self.plan.nodes[&self.here()].loopback;
        assert_eq!(state(self.plan, &self.here()).source_address, source);
        while self.plan.nodes[&self.here()].loopback != destination {
            let mtu = self.go_by_route(destination).mtu;
            assert!(udp.mtu.is_some_and(|octets| u32::from(octets) <= mtu), "{udp:?} over {mtu}");
        }
        let endpoints = state(self.plan, &self.here()).udp_endpoints();
        let endpoint = endpoints.iter().find(|one| one.address == udp.destination).expect("an endpoint");
        let takes_zero = endpoint.zero_checksum_from.is_some_and(|prefix| prefix.contains(&source));
        assert!(takes_zero || !udp.zero_checksum, "{endpoint:?} from {source}");
        self.in_udp += 1;
    }

    /// By the default routes of a table into a port of the same node: the policy that takes all that comes in there.
    fn round(&self, table: u32) -> String {
        let here = self.here();
        let node = &self.plan.nodes[&here];
        let mut policies = BTreeSet::new();
        for family in [AddressFamily::Ipv4, AddressFamily::Ipv6] {
            let routes: Vec<_> = node.routes.iter().filter(|route| route.table == Some(table)).collect();
            assert_eq!(routes.len(), 2, "a default route for each family, and nothing else");
            let route =
                routes.iter().find(|route| route.destination == family.all_addresses()).expect("a default route");
            let [hop] = &route.next_hops[..] else { panic!("{route:?}") };
            let out = self.interface(&hop.interface);
            assert_eq!(out.peer.namespace, here, "the other end is in the node, too");
            let back = self.interface(&out.peer.interface);
            let neighbour =
                node.neighbours.iter().find(|one| Some(one.address) == hop.gateway && one.interface == out.name);
            assert_eq!(neighbour.expect("its neighbour is known").mac, back.mac);
            let state = state(self.plan, &here);
            let rules = state.steering.iter().filter(|rule| rule.ingress.as_ref() == Some(&back.name));
            let rules = rules.filter(|rule| rule.destination == family.all_addresses());
            policies.extend(rules.map(|rule| {
                let before = |other: &&segue_model::node::SteeringRule| {
                    other.ingress.is_none() && other.priority >= rule.priority
                };
                assert_eq!(state.steering.iter().find(before), None, "no other rule takes its packets");
                rule.policy.clone().expect("a policy")
            }));
        }
        assert_eq!(policies.len(), 1, "{policies:?}");
        policies.pop_first().expect("one")
    }
}

/// What the steps of one direction say its lists are.
fn explained(plan: &LabPlan, policy: &Policy) -> (Vec<Ipv6Addr>, Vec<u32>) {
    let (mut sids, mut labels) = (Vec::new(), Vec::new());
    for step in plan.explain().iter().filter(|step| step.policy == policy.name) {
        match &step.action {
            StepAction::Segment { sid, .. } => sids.push(*sid),
            StepAction::Label { labels: own, .. } => labels.extend(own),
            StepAction::Headend { .. } | StepAction::Push { .. } => {}
        }
    }
    (sids, labels)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_visits_its_stops_by_whatever_leads_there(
        seed in seed(),
        kinds in prop::collection::vec(0usize..3, 8),
        domain in 0usize..2,
        tunnels in prop::collection::vec((0usize..8, 0usize..8, 0u32..4), 0..3),
    ) {
        let text = mixed(&seed, &kinds, WAYS[domain]) + &crate::tunnels::text(&seed, &kinds, &tunnels);
        let topology = segue_model::load::load_topology(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let ends = |(from, to, via): &(usize, usize, Vec<Stop>)| {
            let back: Vec<Stop> = via.iter().rev().copied().collect();
            [(*from, points(&topology, via, *to)), (*to, points(&topology, &back, *from))]
        };
        let possible = seed.chains.iter().flat_map(ends).all(|(from, points)| is_possible(&topology, from, &points, true));
        let plan = match load_plan(&text, "x") {
            Ok((_, plan)) => plan,
            Err(errors) => {
                let errors = errors.to_string();
                prop_assert!(!possible && (errors.contains("lead from") || errors.contains("leads from")) && errors.contains("sr_dataplane: both"), "{}\n{}", text, errors);
                return Ok(());
            }
        };
        prop_assert!(possible, "what it found is no way: {text}");
        for (name, chain) in &topology.chains {
            for (direction, from, to) in [("forward", &chain.from, &chain.to), ("reverse", &chain.to, &chain.from)] {
                let node_of = |end: &Endpoint| match end {
                    Endpoint::Host(host) => topology.hosts[host].node.clone(),
                    other => panic!("{other:?}"),
                };
                let mut via = chain.via.clone();
                if direction == "reverse" {
                    via.reverse();
                }
                for turn in 0..3 {
                    let mut packet = Packet::new(&plan, &node_of(from), turn);
                    let policies = packet.walk(&format!("{name}-{direction}"));
                    prop_assert_eq!(packet.here(), node_of(to));
                    let functions: Vec<_> = via.iter().filter(|stop| !stop.starts_with("node:")).cloned().collect();
                    prop_assert_eq!(&packet.visited, &functions);
                    let mut rest = packet.way.iter().peekable();
                    for stop in &via {
                        let node = stop.strip_prefix("node:").unwrap_or_else(|| &topology.functions[stop].node);
                        while rest.peek().is_some_and(|here| *here != node) {
                            rest.next();
                        }
                        prop_assert!(rest.peek().is_some(), "{stop} is not on {:?} after the stops before it", packet.way);
                    }
                    for (position, policy) in policies.iter().enumerate() {
                        let list = &policy.segment_lists[0];
                        prop_assert_eq!(explained(&plan, policy), (list.segments.clone(), list.labels.clone()));
                        if let Some(next) = policies.get(position + 1) {
                            prop_assert_ne!(policy.mode == HeadendMode::Push, next.mode == HeadendMode::Push);
                        }
                    }
                }
            }
        }
        for (name, node) in &plan.nodes {
            let kind = topology.domain.of_node(&topology.nodes[name]);
            let state = state(&plan, name);
            prop_assert!(kind.has_sids() || state.sids.is_empty(), "{name} has no SIDs");
            prop_assert!(kind.has_labels() || state.labels.is_empty() && state.mpls.is_none(), "{name} has no labels");
            let hairpins = node.interfaces.iter().filter(|one| one.link == segue_wiring::LinkKind::Hairpin);
            prop_assert_eq!(hairpins.count(), 2 * node.neighbours.len());
        }
        prop_assert_eq!(segue_wiring::plan(&topology).unwrap(), plan);
    }
}

/// The shape of a line: what leads to each node, chains from the first to the last.
pub fn line(kinds: &[usize], functions: &[(usize, usize)], via: &[Stop]) -> Seed {
    let nodes = kinds.len();
    let links = (1..nodes).map(|node| (node - 1, node, 1)).collect();
    Seed { nodes, links, functions: functions.to_vec(), chains: vec![(0, nodes - 1, via.to_vec())] }
}

fn policies<'a>(plan: &'a LabPlan, node: &str) -> Vec<(&'a str, &'static str, usize)> {
    let policies = state(plan, node).policies.iter();
    let length = |list: &SegmentList| list.labels.len() + list.segments.len();
    policies.map(|one| (one.name.as_str(), one.mode.name(), length(&one.segment_lists[0]))).collect()
}

/// Two islands of labels: SIDs join them over what is between, and functions of all parts are visited.
#[test]
fn islands_of_labels_are_joined_by_sids() {
    let kinds = [1, 2, 0, 2, 1];
    let via = [Stop::Function(0), Stop::Function(1), Stop::Function(2)];
    let seed = line(&kinds, &[(0, 0), (2, 1), (4, 2)], &via);
    let text = mixed(&seed, &kinds, "sr-mpls");
    let (_, plan) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
    // Its own function, the border and its binding label. Then the function and the hairpin. Then the function and the table.
    assert_eq!(policies(&plan, "n0"), [("c0-forward", "PUSH", 3)]);
    assert_eq!(policies(&plan, "n1"), [("c0-forward-part2", "H.Encaps.Red", 2), ("c0-reverse-part3", "PUSH", 3)]);
    assert_eq!(policies(&plan, "n3"), [("c0-forward-part3", "PUSH", 3), ("c0-reverse-part2", "H.Encaps.Red", 2)]);
    let mut packet = Packet::new(&plan, "n0", 0);
    packet.walk("c0-forward");
    assert_eq!(packet.visited, ["f0", "f1", "f2"]);
    assert_eq!(packet.way, ["n0", "n1", "n2", "n3", "n4"]);
    let locator: Ipv6Net = plan.nodes["n1"].locator;
    assert!(plan.nodes["n0"].routes.iter().any(|route| route.destination == IpNet::V6(locator)), "IPv6 is everywhere");
    let words: Vec<_> = plan.explain().iter().map(|step| step.why.as_str()).collect();
    for wanted in [
        "is a binding label",
        "as at a headend",
        "takes the outer header off; table 1000 sends",
        "comes in by the port c0-in",
    ] {
        assert!(words.iter().any(|why| why.contains(wanted)), "{wanted}: {words:#?}");
    }
}

/// On a border a function is led to as the domain says; by SIDs, if no label can lead to it. Nothing is crossed for what both lead to.
#[test]
fn functions_of_a_border_have_one_kind() {
    let kinds = [1, 2, 0];
    let seed = line(&kinds, &[(1, 1)], &[Stop::Function(0)]);
    let by = |text: &str| {
        let (_, plan) = load_plan(text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let proxies = |node: &str| {
            let state = state(&plan, node);
            (
                state.labels.iter().filter(|one| one.proxy.is_some()).count(),
                state.sids.iter().filter(|one| one.proxy.is_some()).count(),
            )
        };
        (policies(&plan, "n0")[0].2, policies(&plan, "n1")[0].2, proxies("n1"))
    };
    // The border, the function, the binding label; then the egress. Or the border's binding label; then the function and the egress.
    let labels = mixed(&seed, &kinds, "sr-mpls");
    assert_eq!(by(&labels), (3, 1, (2, 0)));
    assert_eq!(by(&mixed(&seed, &kinds, "srv6")), (2, 2, (0, 2)));
    let masked = labels.replace("proxy: exact", "proxy: masquerading");
    assert_eq!(by(&masked), (2, 2, (0, 2)));
}

#[test]
fn what_cannot_cross_is_refused_with_both_ends() {
    let refused = |kinds: &[usize], functions: &[(usize, usize)], via: &[Stop], change: fn(String) -> String| {
        let text = change(mixed(&line(kinds, functions, via), kinds, "sr-mpls"));
        load_plan(&text, "x").expect_err("it cannot be planned").to_string()
    };
    for (error, words) in [
        (
            refused(&[1, 1, 0], &[], &[], |text| text),
            "chains.c0.via: no way leads from n0, by labels, to n2, by SIDs (forward): no node that both lead to joins them; give a node between \
             them `sr_dataplane: both`",
        ),
        (
            refused(&[1, 0, 1], &[], &[], |text| text),
            "chains.c0.via: no links lead from n0 to n2 (forward), over which labels lead; add the missing link to `links`, or give a node",
        ),
        (
            refused(&[2, 0], &[(0, 1), (1, 1)], &[Stop::Function(0)], |text| {
                text.replace(
                    "f0: { node: n0, proxy: exact }",
                    "f0: { node: n0, proxy: exact, on_failure: reroute, backup: f1, watch: {} }",
                )
                .replace("dataplane: sr-mpls }\nnodes", "dataplane: srv6 }\nnodes")
                .replace("n1: { sr_dataplane: srv6 }", "n1: { sr_dataplane: sr-mpls }")
            }),
            "functions.f0.backup: SIDs lead to \"f0\", and labels to \"f1\", which cannot come in their place; name a function that SIDs lead to",
        ),
        (
            refused(&[1, 2, 0], &[], &[], |text| {
                text.replace("n1: { sr_dataplane: both }", "n1: { sr_dataplane: both, dataplane: kernel }")
            }),
            "nodes.n1.dataplane: the node \"n1\" takes no labels: only Segue's data plane does; give it `dataplane: segue`, or let SIDs lead to it",
        ),
        (
            refused(&[1, 2, 0], &[], &[], |text| {
                text.replace("n2: { sr_dataplane: srv6 }", "n2: { sr_dataplane: srv6, srlb: 40000-40009 }")
            }),
            "nodes.n2.srlb: SIDs lead to this node, and no labels; write `sr_dataplane: sr-mpls` or `both`, or remove the key",
        ),
    ] {
        assert!(error.contains(words), "{words}\n{error}");
    }
}
