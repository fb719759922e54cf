//! What holds for every plan, on random topologies.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use ipnet::{IpNet, Ipv6Net};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use segue_model::firewall::Firewall;
use segue_model::node::{Behaviour, HeadendMode, InnerType, NodeState, Sid};
use segue_model::topology::{
    Capabilities, Chain, Dataplane, Endpoint, Function, Host, InNamespace, InNetfilter, Interfaces, Link, Match, Node,
    OnTap, ProxyChoice, RunsIn, Topology,
};
use segue_model::value::Protocol;
use segue_plan::{Approach, Encap, Explanation, StepAction};
use segue_wiring::{LabFunction, LabPlan, plan};

/// Numbers that a topology is made of; anything is a topology.
#[derive(Debug, Clone)]
struct Seed {
    nodes: Vec<u8>,
    links: Vec<(u8, u8, u8)>,
    hosts: Vec<u8>,
    /// Node, one interface, kind: 1 to 9 of those below.
    functions: Vec<(u8, bool, u8)>,
    chains: Vec<(u8, u8, Vec<u8>, u8)>,
    connected: bool,
}

fn seed() -> impl Strategy<Value = Seed> {
    let chain = (any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..5), any::<u8>());
    (
        prop::collection::vec(any::<u8>(), 1..9),
        prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..8),
        prop::collection::vec(any::<u8>(), 2..6),
        prop::collection::vec((any::<u8>(), any::<bool>(), 0u8..11), 0..6),
        prop::collection::vec(chain, 0..4),
        prop::bool::weighted(0.9),
    )
        .prop_map(|(nodes, links, hosts, functions, chains, connected)| Seed {
            nodes,
            links,
            hosts,
            functions,
            chains,
            connected,
        })
}

fn link(a: usize, b: usize, weight: u32) -> Link {
    Link { between: [format!("n{a}"), format!("n{b}")], mtu: None, weight, impaired: None }
}

fn firewall() -> Firewall {
    serde_json::from_str(r#"{"ipv6": "rules.v6"}"#).expect("a firewall")
}

fn topology(seed: &Seed) -> Topology {
    let count = seed.nodes.len();
    let pick = |number: u8| usize::from(number) % count;
    let dataplane = |number: u8| match number % 8 {
        0 => Dataplane::Kernel,
        1 => Dataplane::Plain,
        _ => Dataplane::Segue,
    };
    let nodes = seed.nodes.iter().enumerate().map(|(i, number)| {
        let id = (number % 5 == 4).then_some(100 + u16::try_from(i).unwrap());
        (format!("n{i}"), Node { id, dataplane: dataplane(*number), ..Node::default() })
    });
    let mut links = Vec::new();
    if seed.connected {
        links.extend((1..count).map(|i| link(i, usize::from(seed.nodes[i]) % i, 1 + u32::from(seed.nodes[i] % 3))));
    }
    links.extend(
        seed.links
            .iter()
            .map(|(a, b, weight)| (pick(*a), pick(*b), u32::from(*weight % 4) + 1))
            .filter(|(a, b, _)| a != b)
            .map(|(a, b, weight)| link(a, b, weight)),
    );
    let host =
        |number: &u8| Host { node: format!("n{}", pick(*number)), addresses: Vec::new(), mtu: None, firewall: None };
    let hosts = seed.hosts.iter().enumerate().map(|(i, number)| (format!("h{i}"), host(number)));
    let segue: Vec<usize> = (0..count).filter(|i| dataplane(seed.nodes[*i]) == Dataplane::Segue).collect();
    let functions = seed.functions.iter().enumerate().filter_map(|(i, (number, one, kind))| {
        let node = format!("n{}", segue.get(usize::from(*number) % segue.len().max(1))?);
        let interfaces = if *one { Interfaces::One } else { Interfaces::Two };
        let runs_in = match kind {
            6 => RunsIn::Netfilter(InNetfilter::default()),
            8 => RunsIn::Firewall(firewall()),
            9 => RunsIn::Tap(OnTap { interfaces, program: None }),
            _ => RunsIn::Namespace(InNamespace { interfaces, ..InNamespace::default() }),
        };
        let proxy = match kind {
            1 => ProxyChoice::Static,
            2 => ProxyChoice::Exact,
            3 => ProxyChoice::DynamicFlow,
            4 => ProxyChoice::Masquerading,
            7 => ProxyChoice::Dynamic,
            _ => ProxyChoice::Auto,
        };
        let chosen_by_them = [9, 10].contains(kind);
        let capabilities = Capabilities {
            rewrites_flows: chosen_by_them && number & 16 != 0,
            makes_packets: chosen_by_them && number & 96 == 0,
            kernel_path: (*kind == 10).then_some(false),
        };
        let function = Function { aware: *kind == 5, capabilities, proxy, ..Function::new(&node, runs_in) };
        Some((format!("f{i}"), function))
    });
    let functions: indexmap::IndexMap<_, _> = functions.collect();
    let chains = seed.chains.iter().enumerate().map(|(i, (from, to, via, bits))| {
        let mut names: Vec<String> = Vec::new();
        for number in via {
            let name = match functions.get_index(usize::from(*number) % (functions.len() + 1)) {
                Some((name, _)) => name.clone(),
                None => format!("node:n{}", pick(*number)),
            };
            // Some may be visited twice; those that may not are refused.
            if name.starts_with("node:") || !names.contains(&name) || *number > 200 {
                names.push(name);
            }
        }
        let chain = Chain {
            from: Endpoint::Host(format!("h{}", usize::from(*from) % seed.hosts.len())),
            to: Endpoint::Host(format!("h{}", usize::from(*to) % seed.hosts.len())),
            matching: Match { protocol: (bits & 4 != 0).then_some(Protocol::TCP), ..Match::default() },
            ethernet: None,
            via: names,
            reverse: bits & 1 != 0,
            mode: if bits & 2 != 0 { HeadendMode::HEncaps } else { HeadendMode::HEncapsRed },
            color: None,
            mark: None,
        };
        (format!("c{i}"), chain)
    });
    Topology {
        name: "random".to_owned(),
        domain: Default::default(),
        nodes: nodes.collect(),
        hosts: hosts.collect(),
        udp_tunnels: Vec::new(),
        links,
        chains: chains.collect(),
        functions,
        traffic: Default::default(),
        captures: Default::default(),
    }
}

fn states(plan: &LabPlan) -> impl Iterator<Item = (&String, &NodeState)> {
    plan.nodes.iter().filter_map(|(name, node)| Some((name, node.state.as_ref()?)))
}

/// Every SID with its node; panics if two overlap.
fn all_sids(plan: &LabPlan) -> HashMap<Ipv6Net, String> {
    let mut sids: HashMap<Ipv6Net, String> = HashMap::new();
    let mut add = |sid: Ipv6Net, node: &str| {
        assert!(plan.nodes[node].locator.contains(&sid), "{sid} of {node}");
        assert!(!sids.keys().any(|other| other.contains(&sid) || sid.contains(other)), "{sid} twice");
        sids.insert(sid, node.to_owned());
    };
    for (name, state) in states(plan) {
        state.sids.iter().for_each(|sid| add(sid.sid, name));
    }
    for (name, node) in &plan.nodes {
        for route in &node.routes {
            if let (Some(Encap::Seg6Local(_)), IpNet::V6(sid)) = (&route.encap, route.destination) {
                add(sid, name);
            }
        }
    }
    sids
}

fn find_sid(plan: &LabPlan, address: Ipv6Addr) -> Option<&Sid> {
    states(plan).flat_map(|(_, state)| &state.sids).find(|sid| sid.sid.contains(&address))
}

/// Follows routes from a node to an address, over every equal-cost way; returns where it ends.
fn walk(plan: &LabPlan, from: &str, to: Ipv6Addr, hops_left: usize) -> HashSet<String> {
    assert!(hops_left > 0, "a routing loop to {to} at {from}");
    let node = &plan.nodes[from];
    if node.locator.contains(&to) {
        return HashSet::from([from.to_owned()]);
    }
    let matching =
        node.routes.iter().filter(|route| route.encap.is_none() && route.destination.contains(&IpAddr::V6(to)));
    let Some(route) = matching.max_by_key(|route| route.destination.prefix_len()) else { return HashSet::new() };
    let mut ends = HashSet::new();
    for next_hop in &route.next_hops {
        let interface =
            node.interfaces.iter().find(|interface| interface.name == next_hop.interface).expect("interface");
        let peer = plan.nodes[&interface.peer.namespace].interfaces.iter();
        let peer = peer.clone().find(|other| other.name == interface.peer.interface).expect("peer");
        assert_eq!(
            next_hop.gateway,
            peer.addresses.first().map(IpNet::addr),
            "the next hop is the neighbour's address"
        );
        ends.extend(walk(plan, &interface.peer.namespace, to, hops_left - 1));
    }
    ends
}

fn check_interfaces(plan: &LabPlan) {
    let nodes = plan.nodes.iter().map(|(name, node)| (name, node.interfaces.as_slice()));
    let hosts = plan.hosts.iter().map(|(name, host)| (name, std::slice::from_ref(&host.interface)));
    let functions = plan.functions.iter().map(|(name, function)| (name, function.interfaces.as_slice()));
    let (mut names, mut macs, mut addresses) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (namespace, interfaces) in nodes.chain(hosts).chain(functions) {
        for interface in interfaces {
            assert!((1..=15).contains(&interface.name.len()) && interface.name != "lo");
            assert!(names.insert((namespace.clone(), interface.name.clone())), "{namespace} {}", interface.name);
            assert!(macs.insert(interface.mac) && interface.mac.is_unicast());
            for address in &interface.addresses {
                assert!(addresses.insert(address.addr()), "{address} twice");
            }
        }
    }
    for (_, node) in &plan.nodes {
        assert!(addresses.insert(node.loopback.into()));
    }
    let links = plan.links();
    assert_eq!(2 * links.len(), names.len(), "every interface has exactly one peer");
    for [(near, near_interface), (far, far_interface)] in links {
        assert_eq!(near_interface.mtu, far_interface.mtu);
        assert_eq!(
            (near_interface.peer.namespace.as_str(), &near_interface.peer.interface),
            (far, &far_interface.name)
        );
        assert_eq!(
            (far_interface.peer.namespace.as_str(), &far_interface.peer.interface),
            (near, &near_interface.name)
        );
        for (one, other) in near_interface.addresses.iter().zip(&far_interface.addresses) {
            assert_eq!(one.trunc(), other.trunc(), "both ends are in one network");
        }
    }
}

/// One direction of a chain: its steps are in the order of `via`, and the data planes are told the same.
fn check_direction(plan: &LabPlan, topology: &Topology, sids: &HashMap<Ipv6Net, String>, steps: &[&Explanation]) {
    let chain = &topology.chains[&steps[0].chain];
    let StepAction::Headend { segments, .. } = &steps[0].action else { panic!("first the headend") };
    let mut via: Vec<&str> = chain.via.iter().map(String::as_str).collect();
    let is_reverse = steps[0].direction.to_string() == "reverse";
    if is_reverse {
        via.reverse();
    }
    assert_eq!((segments.len(), steps.len()), (via.len() + 1, via.len() + 2));
    let mut here = steps[0].node.clone();
    for (position, (segment, step)) in segments.iter().zip(&steps[1..]).enumerate() {
        let node = sids.iter().find_map(|(sid, node)| sid.contains(segment).then_some(node)).expect("a SID");
        assert_eq!((&step.node, step.step), (node, position + 1));
        assert_eq!(walk(plan, &here, *segment, plan.nodes.len()), HashSet::from([node.clone()]), "{here} to {segment}");
        assert_eq!((step.path.first(), step.path.last()), (Some(&here), Some(node)));
        here = node.clone();
        let sid = find_sid(plan, *segment);
        match via.get(position) {
            None => {
                let (from, to) = if is_reverse { (&chain.to, &chain.from) } else { (&chain.from, &chain.to) };
                let [Endpoint::Host(from), Endpoint::Host(to)] = [from, to] else { panic!("hosts") };
                assert_eq!((node, &steps[0].node), (&topology.hosts[to].node, &topology.hosts[from].node));
                assert!(sid.is_none_or(|sid| sid.behaviour == Behaviour::EndDt46));
            }
            Some(stop) if stop.starts_with("node:") => assert_eq!(*stop, format!("node:{node}")),
            Some(function) => {
                let sid = sid.expect("proxies are on Segue nodes");
                let (approach, _) = segue_wiring::approach(topology, function).expect("a function");
                if approach == Approach::Netfilter {
                    let mark = topology.chains.get_index_of(&steps[0].chain).expect("a chain") + 1;
                    assert_eq!((sid.behaviour, sid.argument_length), (Behaviour::EndAnNf, 16));
                    assert_eq!(sid.netfilter.as_ref().expect("netfilter").namespace, **function);
                    let length = sid.sid.prefix_len() + sid.argument_length;
                    assert_eq!(segment.to_bits() >> (128 - length) & 0xffff, mark as u128, "the mark is the argument");
                    continue;
                }
                if approach == Approach::Firewall {
                    assert_eq!((sid.behaviour, sid.firewall.as_deref()), (Behaviour::EndAn, Some(*function)));
                    let state = plan.nodes[node].state.as_ref().expect("a state");
                    assert!(state.firewalls.iter().any(|firewall| firewall.name == **function));
                    assert!(plan.functions[*function].inside && plan.functions[*function].interfaces.is_empty());
                    continue;
                }
                let proxy = sid.proxy.as_ref().expect("a proxy");
                let is_static = approach == Approach::Static;
                assert_eq!(is_static, sid.behaviour == Behaviour::EndAs);
                let remaining = if is_static { &segments[position + 1..] } else { &[] };
                assert_eq!(proxy.segments, remaining, "the proxy goes on to what remains");
                assert_eq!(proxy.reduced, !is_static || chain.mode == HeadendMode::HEncapsRed);
                let port = |name: &str| plan.nodes[node].interfaces.iter().find(|i| i.name == name).expect("port");
                for name in [&proxy.to_function, &proxy.from_function] {
                    assert_eq!(port(name).peer.namespace, *function);
                }
                let interfaces = &plan.functions[*function].interfaces;
                let inside = interfaces.iter().find(|i| i.name == port(&proxy.to_function).peer.interface);
                assert_eq!(sid.next_hop_mac, inside.map(|interface| interface.mac));
                let out = &port(&proxy.from_function).peer.interface;
                if approach.is_shared() {
                    let incoming = &port(&proxy.to_function).peer.interface;
                    check_shared_routes(&plan.functions[*function], incoming, out, &proxy.inner);
                    if approach == Approach::Aware {
                        check_own_end(&plan.functions[*function], incoming, *segment);
                    }
                } else {
                    check_function_routes(plan, topology, chain, is_reverse, function, out, &proxy.inner);
                }
            }
        }
    }
}

/// The table that a function's kernel looks into for what came in by an interface.
fn table(function: &LabFunction, incoming: &str) -> Option<u32> {
    function.rules.iter().find(|rule| rule.incoming == incoming).map(|rule| rule.table)
}

/// Whatever came in by one interface goes out by the other, or by the only one.
fn check_shared_routes(function: &LabFunction, incoming: &str, out: &str, inner: &[InnerType]) {
    let table = table(function, incoming);
    assert_eq!((function.interfaces.len(), table.is_some()), if incoming == out { (1, false) } else { (2, true) });
    for (kind, family) in [(InnerType::IPv4, "-4"), (InnerType::IPv6, "-6")] {
        // What keeps its outer header is IPv6, whatever is in it.
        if !(inner.contains(&kind) || inner.is_empty() && kind == InnerType::IPv6) {
            continue;
        }
        let all = function.routes.iter().filter(|route| route.table == table && route.ip_family() == family);
        let defaults: Vec<_> = all.filter(|route| route.destination.prefix_len() == 0).collect();
        assert_eq!(defaults.len(), 1, "{incoming} {family}: {:?}", function.routes);
        let hop = &defaults[0].next_hops[0];
        assert_eq!(hop.interface, out);
        assert!(function.neighbours.iter().any(|n| Some(n.address) == hop.gateway && n.interface == hop.interface));
    }
}

/// An SR-aware function takes the SID for its own in the table of the interface that packets come in by.
fn check_own_end(function: &LabFunction, incoming: &str, sid: Ipv6Addr) {
    let table = table(function, incoming);
    let mut own = function.routes.iter().filter(|route| route.destination == IpNet::from(IpAddr::V6(sid)));
    assert!(own.any(|route| route.table == table && matches!(route.encap, Some(Encap::Seg6Local(_)))), "{sid}");
}

/// The function sends the chain's packets out where the node's proxy expects them back.
fn check_function_routes(
    plan: &LabPlan,
    topology: &Topology,
    chain: &Chain,
    is_reverse: bool,
    function: &str,
    out: &str,
    inner: &[InnerType],
) {
    let Endpoint::Host(to) = (if is_reverse { &chain.from } else { &chain.to }) else { panic!("hosts") };
    assert!(topology.hosts.contains_key(to));
    let host = &plan.hosts[to];
    let wanted = [(InnerType::IPv4, host.ipv4().map(IpAddr::from)), (InnerType::IPv6, host.ipv6().map(IpAddr::from))];
    for (_, address) in wanted.into_iter().filter(|(kind, _)| inner.contains(kind)) {
        let address = address.expect("derived addresses have both families");
        let mut routes = plan.functions[function].routes.iter().filter(|route| route.destination.contains(&address));
        // Who is behind TAP devices knows by which one a packet came: chains that each have their own may go to one destination.
        if plan.functions[function].tap {
            assert!(routes.any(|route| route.next_hops.iter().any(|hop| hop.interface == out)), "{function} by {out}");
            continue;
        }
        let best = routes.max_by_key(|route| route.destination.prefix_len()).expect("a route");
        assert_eq!(best.next_hops.iter().map(|hop| hop.interface.as_str()).collect::<Vec<_>>(), [out], "{function}");
    }
}

fn check_plan(topology: &Topology, plan: &LabPlan) {
    let sids = all_sids(plan);
    check_interfaces(plan);
    for (_, state) in states(plan) {
        state.validate().unwrap_or_else(|errors| panic!("{errors}"));
        let yaml = serde_json::to_string(state).expect("JSON");
        let again = segue_model::load::load_node_state(&yaml, "state.json").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again, *state, "what a plan says survives being written and read");
    }
    let mut directions: indexmap::IndexMap<&str, Vec<&Explanation>> = indexmap::IndexMap::new();
    for step in plan.explain() {
        directions.entry(&step.policy).or_default().push(step);
    }
    let lists: HashSet<&[Ipv6Addr]> = states(plan)
        .flat_map(|(_, state)| &state.policies)
        .flat_map(|policy| &policy.segment_lists)
        .map(|list| list.segments.as_slice())
        .chain(plan.nodes.values().flat_map(|node| &node.routes).filter_map(|route| match &route.encap {
            Some(Encap::Seg6 { segments, .. }) => Some(segments.as_slice()),
            _ => None,
        }))
        .collect();
    for steps in directions.values() {
        check_direction(plan, topology, &sids, steps);
        let StepAction::Headend { segments, .. } = &steps[0].action else { panic!("first the headend") };
        assert!(lists.contains(segments.as_slice()), "what is explained is what is configured");
    }
    for (name, chain) in &topology.chains {
        let forward = plan.explain().iter().filter(|step| step.chain == *name && step.step == 0).count();
        assert!(forward >= if chain.reverse { 2 } else { 1 }, "{name} is planned in each direction");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_keeps_its_promises(seed in seed()) {
        let topology = topology(&seed);
        match plan(&topology) {
            Ok(planned) => {
                check_plan(&topology, &planned);
                prop_assert_eq!(plan(&topology).unwrap(), planned);
            }
            Err(errors) => {
                for error in &errors {
                    prop_assert!(!error.key.steps().is_empty() && !error.remedy.is_empty(), "{}", error);
                }
            }
        }
    }

    #[test]
    fn damaged_text_never_panics(cut in 0usize..1200, insert in "[\\PC\\n]{0,8}", skip in 0usize..20) {
        for example in [include_str!("../../../examples/main-job.yaml"), include_str!("../../../examples/ring-ecmp.yaml")] {
            let at = |wanted: usize| (wanted.min(example.len())..=example.len()).find(|i| example.is_char_boundary(*i)).unwrap();
            let (head, tail) = (&example[..at(cut)], &example[at(cut + skip)..]);
            let source = format!("{head}{insert}{tail}");
            let _ = segue_wiring::load_plan(&source, "x.yaml");
            let _ = segue_model::load::load_node_state(&source, "x.yaml");
        }
    }
}

/// So that the property above does not only see refusals.
#[test]
fn random_topologies_are_mostly_planned() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut planned = (0, 0);
    for _ in 0..300 {
        let seed = seed().new_tree(&mut runner).expect("seed").current();
        let topology = topology(&seed);
        if let Ok(plan) = plan(&topology) {
            planned.0 += 1;
            planned.1 += usize::from(
                plan.explain().iter().any(|step| matches!(&step.action, StepAction::Segment { function: Some(_), .. })),
            );
        }
    }
    assert!(planned.0 >= 60 && planned.1 >= 15, "{planned:?} of 300 planned, with functions");
}

fn large(count: usize, links: Vec<Link>) -> Topology {
    let mut source = String::from("name: large\nnodes: {a: {}}\n");
    source.push_str("hosts: {}\n");
    let mut topology = segue_model::load::load_topology(&source, "x").expect("topology");
    topology.nodes = (0..count).map(|i| (format!("n{i}"), Node::default())).collect();
    let host = |i: usize| Host { node: format!("n{i}"), addresses: Vec::new(), mtu: None, firewall: None };
    topology.hosts = (0..count).map(|i| (format!("h{i}"), host(i))).collect();
    topology.links = links;
    for i in 0..count / 2 {
        let yaml = format!("{{\"node\": \"n{}\"}}", (i * 7) % count);
        topology.functions.insert(format!("f{i}"), serde_json::from_str(&yaml).expect("function"));
        let yaml = format!("{{\"from\": \"h{i}\", \"to\": \"h{}\", \"via\": [\"f{i}\"]}}", count - 1 - i);
        topology.chains.insert(format!("c{i}"), serde_json::from_str(&yaml).expect("chain"));
    }
    topology
}

#[test]
fn a_hundred_nodes_are_planned() {
    const COUNT: usize = 100;
    let line: Vec<Link> = (1..COUNT).map(|i| link(i - 1, i, 1)).collect();
    let ring: Vec<Link> = (0..COUNT).map(|i| link(i, (i + 1) % COUNT, 1)).collect();
    let random: Vec<Link> = (1..COUNT)
        .map(|i| link(i, (i * 7919) % i, 1 + u32::try_from(i % 3).unwrap()))
        .chain((0..COUNT).map(|i| (i, (i * 31 + 17) % COUNT)).filter(|(a, b)| a != b).map(|(a, b)| link(a, b, 2)))
        .collect();
    for (name, links) in [("line", line), ("ring", ring), ("random", random)] {
        let topology = large(COUNT, links);
        let begin = Instant::now();
        let plan = plan(&topology).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        println!("{name}: {:?}", begin.elapsed());
        check_plan(&topology, &plan);
    }
}
