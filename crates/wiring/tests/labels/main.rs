//! Domains that labels steer: every stack leads to its chain's stops and ends at its egress, over the links that nodes name.

mod frames;
mod mixed;
mod tunnels;

use indexmap::IndexMap;
use proptest::prelude::*;

use segue_model::label::{IMPLICIT_NULL, Label, LabelBehaviour, LabelPath};
use segue_model::label_ecn::EcnPair;
use segue_model::node::{NodeState, SegmentList};
use segue_model::topology::{Dataplane, LabDomain, SrDataplane, Topology};
use segue_plan::StepAction;
use segue_wiring::{LabPlan, load_plan, plan};

/// What a chain visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Node(usize),
    Function(usize),
}

/// From a host to another one, and the stops between.
type Chains = Vec<(usize, usize, Vec<Stop>)>;

/// How functions are written behind their node.
const KINDS: [&str; 4] = ["", ", proxy: exact", ", netfilter: {}", ", firewall: {ipv6: rules.v6, mode: advanced}"];

#[derive(Debug, Clone, Default)]
struct Seed {
    nodes: usize,
    links: Vec<(usize, usize, u32)>,
    /// Node and kind.
    functions: Vec<(usize, usize)>,
    chains: Chains,
}

fn text(seed: &Seed) -> String {
    let list = |items: Vec<String>| items.join(", ");
    let nodes = list((0..seed.nodes).map(|i| format!("n{i}: {{}}")).collect());
    let hosts = list((0..seed.nodes).map(|i| format!("h{i}: {{ node: n{i} }}")).collect());
    let link = |(a, b, weight): &(usize, usize, u32)| format!("{{ between: [n{a}, n{b}], weight: {weight} }}");
    let function =
        |(number, (node, kind)): (usize, &(usize, usize))| format!("f{number}: {{ node: n{node}{} }}", KINDS[*kind]);
    let stop = |stop: &Stop| match stop {
        Stop::Node(node) => format!("\"node:n{node}\""),
        Stop::Function(function) => format!("f{function}"),
    };
    let chain = |(number, (from, to, via)): (usize, &(usize, usize, Vec<Stop>))| {
        format!("c{number}: {{ from: h{from}, to: h{to}, via: [{}] }}", list(via.iter().map(stop).collect()))
    };
    format!(
        "name: x\ndomain: {{ dataplane: sr-mpls }}\nnodes: {{ {nodes} }}\nhosts: {{ {hosts} }}\nlinks: [{}]\nfunctions: {{ {} }}\n\
         chains: {{ {} }}\n",
        list(seed.links.iter().map(link).collect()),
        list(seed.functions.iter().enumerate().map(function).collect()),
        list(seed.chains.iter().enumerate().map(chain).collect())
    )
}

fn state<'a>(plan: &'a LabPlan, node: &str) -> &'a NodeState {
    plan.nodes[node].state.as_ref().expect("Segue is on it")
}

/// Where a packet gets by an interface, whose far end must have the address that is named.
fn over<'a>(plan: &'a LabPlan, node: &str, port: Option<&String>, next_hop: Option<std::net::IpAddr>) -> &'a str {
    let port = port.expect("an interface");
    let interface = plan.nodes[node].interfaces.iter().find(|one| one.name == *port).expect("the interface is there");
    let peer = &plan.nodes[&interface.peer.namespace].interfaces;
    let peer = peer.iter().find(|one| one.name == interface.peer.interface).expect("its far end");
    assert_eq!(next_hop, peer.addresses.first().map(ipnet::IpNet::addr), "the neighbour's address");
    &interface.peer.namespace
}

/// The function that a label leads to, by the interfaces of its node: what leaves by one comes back by one of the same function.
fn function_of(plan: &LabPlan, node: &str, label: &Label) -> String {
    if let Some(netfilter) = &label.netfilter {
        return netfilter.namespace.clone();
    }
    if let Some(firewall) = &label.firewall {
        assert!(state(plan, node).firewalls.iter().any(|one| one.name == *firewall), "{firewall} is on {node}");
        return firewall.clone();
    }
    let proxy = label.proxy.as_ref().expect("a proxy");
    let interface = |port: &str| {
        let interfaces = &plan.nodes[node].interfaces;
        interfaces.iter().find(|one| one.name == port).unwrap_or_else(|| panic!("{node} has no {port}"))
    };
    let (out, back) = (interface(&proxy.to_function), interface(&proxy.from_function));
    assert_eq!(out.peer.namespace, back.peer.namespace);
    let function = &plan.functions[&out.peer.namespace];
    let inside = function.interfaces.iter().find(|one| one.name == out.peer.interface).expect("its far end");
    assert_eq!(label.next_hop_mac, Some(inside.mac));
    out.peer.namespace.clone()
}

/// Follows a stack from its headend: the nodes on the way, the last one where the table is, and the functions that it visits. `turn`: which of
/// several paths is taken.
fn walk(plan: &LabPlan, from: &str, list: &SegmentList, turn: usize) -> (Vec<String>, Vec<String>) {
    let mut stack: Vec<u32> = list.labels.iter().rev().copied().collect();
    let (mut way, mut visited) = (vec![from.to_owned()], Vec::new());
    let mut here = over(plan, from, list.port.as_ref(), list.next_hop);
    loop {
        way.push(here.to_owned());
        assert!(way.len() < 200, "a loop: {way:?}");
        loop {
            let top = *stack.last().expect("a label says what happens");
            let known: &Label =
                state(plan, here).labels.iter().find(|label| label.label == top).expect("a label that is known");
            match known.behaviour {
                LabelBehaviour::Node => {
                    stack.pop();
                    continue;
                }
                LabelBehaviour::StaticProxy
                | LabelBehaviour::DynamicProxy
                | LabelBehaviour::SrAware
                | LabelBehaviour::Netfilter
                | LabelBehaviour::Firewall => {
                    stack.pop();
                    let rest: Vec<u32> = stack.iter().rev().copied().collect();
                    if known.behaviour == LabelBehaviour::StaticProxy {
                        assert_eq!(
                            known.proxy.as_ref().expect("a proxy").labels,
                            rest,
                            "what goes back on is the rest"
                        );
                    }
                    visited.push(function_of(plan, here, known));
                    continue;
                }
                LabelBehaviour::Pop => {
                    stack.pop();
                }
                LabelBehaviour::Swap => {
                    assert_eq!(known.out, None, "one SRGB");
                    if path(known, turn + way.len()).is_some_and(|path| path.out == Some(IMPLICIT_NULL)) {
                        stack.pop();
                    }
                }
                LabelBehaviour::Table => {
                    assert_eq!(stack.len(), 1, "the last label");
                    return (way, visited);
                }
                other => panic!("{other:?}"),
            }
            here = match path(known, turn + way.len()) {
                Some(path) => over(plan, here, path.port.as_ref(), Some(path.next_hop)),
                None => over(plan, here, known.port.as_ref(), known.next_hop),
            };
            break;
        }
    }
}

/// One of a label's paths, if it has several.
fn path(label: &Label, turn: usize) -> Option<&LabelPath> {
    label.paths.get(turn.checked_rem(label.paths.len())?)
}

/// Whether a direction has a label for a neighbour first: a function where its packets come in is refused.
fn leads_out<'a>(from: usize, via: impl Iterator<Item = &'a Stop>, functions: &[(usize, usize)]) -> bool {
    for stop in via {
        match stop {
            Stop::Node(node) if *node == from => {}
            Stop::Node(_) => return true,
            Stop::Function(function) => return functions[*function].0 != from,
        }
    }
    true
}

fn seed() -> impl Strategy<Value = Seed> {
    (2usize..8).prop_flat_map(|nodes| {
        let tree = prop::collection::vec((any::<prop::sample::Index>(), 1u32..4), nodes - 1);
        let more = prop::collection::vec((0..nodes, 0..nodes, 1u32..4), 0..6);
        let functions = prop::collection::vec((0..nodes, 0..KINDS.len()), 1..5);
        let stop = (any::<bool>(), 0..nodes, any::<prop::sample::Index>());
        let chain = (0..nodes, 0..nodes, prop::collection::vec(stop, 0..5));
        (Just(nodes), tree, more, functions, prop::collection::vec(chain, 1..4)).prop_map(
            |(nodes, tree, more, functions, chains)| {
                let tree = tree.iter().enumerate().map(|(i, (to, weight))| (to.index(i + 1), i + 1, *weight));
                let links = tree.chain(more.into_iter().filter(|(a, b, _)| a != b)).collect();
                // One chain for each two hosts.
                let mut kept: Chains = Vec::new();
                for (from, to, via) in chains {
                    let ends = |(a, b, _): &(usize, usize, Vec<Stop>)| [(*a, *b), (*b, *a)].contains(&(from, to));
                    let stop = |(is_function, node, function): &(bool, usize, prop::sample::Index)| match is_function {
                        true => Stop::Function(function.index(functions.len())),
                        false => Stop::Node(*node),
                    };
                    let via: Vec<Stop> = via.iter().map(stop).collect();
                    let out = leads_out(from, via.iter(), &functions) && leads_out(to, via.iter().rev(), &functions);
                    if from != to && out && !kept.iter().any(ends) {
                        kept.push((from, to, via));
                    }
                }
                Seed { nodes, links, functions, chains: kept }
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_stack_leads_where_its_chain_goes(seed in seed()) {
        let (topology, plan) = load_plan(&text(&seed), "x").unwrap_or_else(|errors| panic!("{errors}"));
        for (name, chain) in &topology.chains {
            for (direction, from, to) in [("forward", &chain.from, &chain.to), ("reverse", &chain.to, &chain.from)] {
                let node_of = |end: &segue_model::topology::Endpoint| match end {
                    segue_model::topology::Endpoint::Host(host) => topology.hosts[host].node.clone(),
                    other => panic!("{other:?}"),
                };
                let headend = node_of(from);
                let policies = &state(&plan, &headend).policies;
                let policy = policies.iter().find(|policy| policy.name == format!("{name}-{direction}")).expect("a policy");
                for turn in 0..4 {
                let list = &policy.segment_lists[turn % policy.segment_lists.len()];
                let (way, visited) = walk(&plan, &headend, list, turn);
                prop_assert_eq!(way.last(), Some(&node_of(to)));
                let mut via = chain.via.clone();
                if direction == "reverse" {
                    via.reverse();
                }
                let functions: Vec<_> = via.iter().filter(|stop| !stop.starts_with("node:")).cloned().collect();
                prop_assert_eq!(visited, functions);
                // The stops are on it, in order.
                let mut rest = way.iter().peekable();
                for stop in &via {
                    let node = stop.strip_prefix("node:").unwrap_or_else(|| &topology.functions[stop].node);
                    while rest.peek().is_some_and(|here| *here != node) {
                        rest.next();
                    }
                    prop_assert!(rest.peek().is_some(), "{stop} is not on {way:?} after the stops before it");
                }
                }
                let steps = plan.explain().iter().filter(|step| step.policy == policy.name);
                let explained = steps.filter_map(|step| match &step.action {
                    StepAction::Label { labels, .. } => Some(labels.as_slice()),
                    _ => None,
                });
                prop_assert_eq!(explained.collect::<Vec<_>>().concat(), policy.segment_lists[0].labels.clone());
            }
        }
        prop_assert_eq!(segue_wiring::plan(&topology).unwrap(), plan);
    }
}

/// Parallel links, and a way around that is as long: flows take all of them, without the label by the links that lead to its node.
#[test]
fn a_label_takes_all_equal_ways_and_each_ends_where_it_should() {
    let links = [(0, 2, 1), (2, 1, 1), (0, 1, 2), (0, 1, 2)];
    let seed = Seed { nodes: 3, links: links.to_vec(), chains: vec![(0, 1, vec![])], ..Seed::default() };
    let (_, plan) = load_plan(&text(&seed), "x").unwrap_or_else(|errors| panic!("{errors}"));
    let lists = &state(&plan, "n0").policies[0].segment_lists;
    for (list, turn) in lists.iter().zip(0..) {
        assert_eq!(walk(&plan, "n0", list, turn).0.last().map(String::as_str), Some("n1"));
    }
    let [list, _, _] = &lists[..] else { panic!("the headend has one for each way: {lists:?}") };
    let mut labels = state(&plan, "n0").labels.iter();
    let label = labels.find(|label| label.label == list.labels[0]).expect("the label of n1");
    assert_eq!((label.behaviour, label.next_hop, label.paths.len()), (LabelBehaviour::Swap, None, 3), "{label:?}");
    let to = |path: &LabelPath| (over(&plan, "n0", path.port.as_ref(), Some(path.next_hop)).to_owned(), path.out);
    let mut ways: Vec<_> = label.paths.iter().map(to).collect();
    ways.sort();
    let direct = ("n1".to_owned(), Some(IMPLICIT_NULL));
    assert_eq!(ways, [direct.clone(), direct, ("n2".to_owned(), None)]);
    // From the other end of the way around there is one.
    let mut labels = state(&plan, "n2").labels.iter();
    let label = labels.find(|label| label.label == list.labels[0]).expect("the label of n1");
    assert_eq!((label.behaviour, label.next_hop.is_some(), label.paths.len()), (LabelBehaviour::Pop, true, 0));
}

fn with(change: impl Fn(&mut Topology)) -> Result<LabPlan, String> {
    let domain = LabDomain { dataplane: SrDataplane::SrMpls, ..LabDomain::default() };
    let (links, chains) = (vec![(0, 1, 1), (1, 2, 1)], vec![(0, 2, vec![])]);
    let text = text(&Seed { nodes: 3, links, chains, ..Seed::default() });
    let (mut topology, _) = load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(topology.domain, domain);
    change(&mut topology);
    plan(&topology).map_err(|errors| errors.to_string())
}

#[test]
fn blocks_are_derived_from_ids_or_given() {
    let plan = with(|topology| {
        topology.nodes["n1"].id = Some(12);
        topology.nodes["n2"].srlb = Some("50000-50009".parse().unwrap());
    });
    let plan = plan.unwrap_or_else(|error| panic!("{error}"));
    let blocks: IndexMap<&str, String> = plan
        .nodes
        .iter()
        .map(|(name, node)| {
            (name.as_str(), node.labels.map(|labels| format!("{} {}", labels.node, labels.block)).unwrap())
        })
        .collect();
    assert_eq!(blocks["n0"], "16001 30100-30199");
    assert_eq!(blocks["n1"], "16012 31200-31299");
    assert_eq!(blocks["n2"], "16002 50000-50009");
    let mpls = state(&plan, "n2").mpls.as_ref().unwrap();
    assert_eq!((mpls.srgb[0].to_string(), mpls.srlb[0].to_string()), ("16000-25999".into(), "50000-50009".into()));
    assert_eq!(state(&plan, "n0").policies[0].segment_lists[0].labels, [16_002, 50_000]);
}

#[test]
fn congestion_marks_are_the_same_on_all_nodes() {
    let pairs = [EcnPair { class: 0, marked: 1 }, EcnPair { class: 5, marked: 4 }];
    let plan = with(|topology| topology.domain.label_ecn = pairs.to_vec()).unwrap_or_else(|error| panic!("{error}"));
    for name in ["n0", "n1", "n2"] {
        assert_eq!(state(&plan, name).mpls.as_ref().unwrap().ecn, pairs, "{name}");
    }
}

type Change = fn(&mut Topology);

#[test]
fn blocks_that_cannot_be_are_refused() {
    let cases: [(Change, &str); 7] = [
        (|topology| topology.domain.srgb = "100-101".parse().ok(), "the SRGB 100-101 has no label for the id 2"),
        (
            |topology| topology.domain.srlb = "30000-30250".parse().ok(),
            "the domain's SRLB 30000-30250 has no 100 labels for the id 2",
        ),
        (
            |topology| topology.nodes["n2"].srlb = "30150-30160".parse().ok(),
            "30150-30160 overlaps with 30100-30199 of node \"n0\"",
        ),
        (|topology| topology.nodes["n2"].srlb = "16001-16001".parse().ok(), "has 16001, the label of node \"n0\""),
        (
            |topology| topology.nodes["n2"].srlb = "1048000-1048576".parse().ok(),
            "has labels that cannot be a segment's",
        ),
        (|topology| topology.nodes["n1"].dataplane = Dataplane::Plain, "takes no labels"),
        (
            |topology| {
                topology.domain.dataplane = SrDataplane::Srv6;
                topology.domain.srgb = "16000-17000".parse().ok();
            },
            "an SRv6 domain has no labels",
        ),
    ];
    for (change, words) in cases {
        let error = with(change).expect_err(words);
        assert!(error.contains(words), "{words}: {error}");
    }
}
