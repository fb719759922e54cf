//! Domains that labels steer: every stack leads to its chain's stops and ends at its egress, over the links that nodes name.

use indexmap::IndexMap;
use proptest::prelude::*;

use segue_model::label::{Label, LabelBehaviour};
use segue_model::node::{NodeState, SegmentList};
use segue_model::topology::{Dataplane, LabDomain, SrDataplane, Topology};
use segue_wiring::{LabPlan, load_plan, plan};

fn text(nodes: usize, links: &[(usize, usize, u32)], chains: &[(usize, usize, Vec<usize>)]) -> String {
    let list = |items: Vec<String>| items.join(", ");
    let nodes_text = list((0..nodes).map(|i| format!("n{i}: {{}}")).collect());
    let hosts = list((0..nodes).map(|i| format!("h{i}: {{ node: n{i} }}")).collect());
    let link = |(a, b, weight): &(usize, usize, u32)| format!("{{ between: [n{a}, n{b}], weight: {weight} }}");
    let chain = |(number, (from, to, via)): (usize, &(usize, usize, Vec<usize>))| {
        let via = list(via.iter().map(|node| format!("\"node:n{node}\"")).collect());
        format!("c{number}: {{ from: h{from}, to: h{to}, via: [{via}] }}")
    };
    format!(
        "name: x\ndomain: {{ dataplane: sr-mpls }}\nnodes: {{ {nodes_text} }}\nhosts: {{ {hosts} }}\nlinks: [{}]\nchains: {{ {} }}\n",
        list(links.iter().map(link).collect()),
        list(chains.iter().enumerate().map(chain).collect())
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

/// Follows a stack from its headend; the nodes on the way, the last one where the table is.
fn walk(plan: &LabPlan, from: &str, list: &SegmentList) -> Vec<String> {
    let mut stack: Vec<u32> = list.labels.iter().rev().copied().collect();
    let mut way = vec![from.to_owned()];
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
                LabelBehaviour::Pop => {
                    stack.pop();
                }
                LabelBehaviour::Swap => assert_eq!(known.out, None, "one SRGB"),
                LabelBehaviour::Table => {
                    assert_eq!(stack.len(), 1, "the last label");
                    return way;
                }
                other => panic!("{other:?}"),
            }
            here = over(plan, here, known.port.as_ref(), known.next_hop);
            break;
        }
    }
}

type Chains = Vec<(usize, usize, Vec<usize>)>;

fn seed() -> impl Strategy<Value = (usize, Vec<(usize, usize, u32)>, Chains)> {
    (2usize..8).prop_flat_map(|nodes| {
        let tree = prop::collection::vec((any::<prop::sample::Index>(), 1u32..4), nodes - 1);
        let more = prop::collection::vec((0..nodes, 0..nodes, 1u32..4), 0..6);
        let chain = (0..nodes, 0..nodes, prop::collection::vec(0..nodes, 0..5));
        (Just(nodes), tree, more, prop::collection::vec(chain, 1..4)).prop_map(|(nodes, tree, more, chains)| {
            let tree = tree.iter().enumerate().map(|(i, (to, weight))| (to.index(i + 1), i + 1, *weight));
            let links = tree.chain(more.into_iter().filter(|(a, b, _)| a != b)).collect();
            // One chain for each two hosts.
            let mut kept: Chains = Vec::new();
            for (from, to, via) in chains {
                let ends = |(a, b, _): &(usize, usize, Vec<usize>)| [(*a, *b), (*b, *a)].contains(&(from, to));
                if from != to && !kept.iter().any(ends) {
                    kept.push((from, to, via));
                }
            }
            (nodes, links, kept)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_stack_leads_where_its_chain_goes((nodes, links, chains) in seed()) {
        let (topology, plan) = load_plan(&text(nodes, &links, &chains), "x").unwrap_or_else(|errors| panic!("{errors}"));
        for (name, chain) in &topology.chains {
            for (direction, from, to) in [("forward", &chain.from, &chain.to), ("reverse", &chain.to, &chain.from)] {
                let node_of = |end: &segue_model::topology::Endpoint| match end {
                    segue_model::topology::Endpoint::Host(host) => topology.hosts[host].node.clone(),
                    other => panic!("{other:?}"),
                };
                let headend = node_of(from);
                let policies = &state(&plan, &headend).policies;
                let policy = policies.iter().find(|policy| policy.name == format!("{name}-{direction}")).expect("a policy");
                let way = walk(&plan, &headend, &policy.segment_lists[0]);
                prop_assert_eq!(way.last(), Some(&node_of(to)));
                // The waypoints are on it, in order.
                let mut stops: Vec<&str> = chain.via.iter().map(|name| name.trim_start_matches("node:")).collect();
                if direction == "reverse" {
                    stops.reverse();
                }
                let mut rest = way.iter().peekable();
                for stop in stops {
                    while rest.peek().is_some_and(|node| *node != stop) {
                        rest.next();
                    }
                    prop_assert!(rest.peek().is_some(), "{stop} is not on {way:?} after the stops before it");
                }
            }
        }
        prop_assert_eq!(segue_wiring::plan(&topology).unwrap(), plan);
    }
}

/// Parallel links, and a direct one that is as long as the way around: a label leaves by the link that leads to the node that takes it off.
#[test]
fn of_equal_ways_a_label_takes_one_that_ends_where_it_should() {
    let links = [(0, 2, 1), (2, 1, 1), (0, 1, 2), (0, 1, 2)];
    let (_, plan) = load_plan(&text(3, &links, &[(0, 1, vec![])]), "x").unwrap_or_else(|errors| panic!("{errors}"));
    let list = &state(&plan, "n0").policies[0].segment_lists[0];
    assert_eq!(walk(&plan, "n0", list).last().map(String::as_str), Some("n1"));
}

fn with(change: impl Fn(&mut Topology)) -> Result<LabPlan, String> {
    let domain = LabDomain { dataplane: SrDataplane::SrMpls, ..LabDomain::default() };
    let text = text(3, &[(0, 1, 1), (1, 2, 1)], &[(0, 2, vec![])]);
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
