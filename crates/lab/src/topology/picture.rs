//! What a picture of a topology shows: nodes, hosts and functions, links, and the ways of chains.

use std::collections::HashMap;

use segue_model::owner::Direction;
use segue_model::topology::{Dataplane, Endpoint, Topology};
use segue_plan::StepAction;
use segue_wiring::LabPlan;

/// What is at a point of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node(Dataplane),
    Host,
    Function,
}

pub(super) struct Vertex {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// A second line: a locator, an address.
    pub(super) about: String,
}

pub(super) struct Edge {
    pub(super) ends: [usize; 2],
    /// Weight and impairment, where they are not the usual ones.
    pub(super) about: String,
}

/// The forward direction of a chain.
pub(super) struct Way {
    pub(super) chain: String,
    pub(super) stops: Vec<usize>,
    pub(super) segments: String,
}

pub(super) struct Picture {
    pub(super) name: String,
    pub(super) vertices: Vec<Vertex>,
    pub(super) edges: Vec<Edge>,
    pub(super) ways: Vec<Way>,
}

impl Picture {
    pub(super) fn of(topology: &Topology, plan: &LabPlan) -> Self {
        let mut vertices = Vec::new();
        for (name, node) in &plan.nodes {
            let about = node.locator.to_string();
            vertices.push(Vertex { name: name.clone(), kind: Kind::Node(node.dataplane), about });
        }
        for (name, host) in &plan.hosts {
            let about = host.ipv6().map(|a| a.to_string()).or(host.ipv4().map(|a| a.to_string())).unwrap_or_default();
            vertices.push(Vertex { name: name.clone(), kind: Kind::Host, about });
        }
        for (name, function) in &plan.functions {
            let about = function.approach.split(':').next().unwrap_or_default().to_owned();
            vertices.push(Vertex { name: name.clone(), kind: Kind::Function, about });
        }
        let at: HashMap<String, usize> =
            vertices.iter().enumerate().map(|(index, vertex)| (vertex.name.clone(), index)).collect();
        let edge = |a: &str, b: &str, about: String| Some(Edge { ends: [*at.get(a)?, *at.get(b)?], about });
        let links = topology.links.iter().filter_map(|link| edge(&link.between[0], &link.between[1], about(link)));
        let hosts = topology.hosts.iter().filter_map(|(name, host)| edge(name, &host.node, String::new()));
        let functions =
            topology.functions.iter().filter_map(|(name, function)| edge(name, &function.node, String::new()));
        let edges = links.chain(hosts).chain(functions).collect();
        let ways = topology.chains.keys().filter_map(|chain| way(topology, plan, chain, &at)).collect();
        Self { name: plan.name.clone(), vertices, edges, ways }
    }
}

fn about(link: &segue_model::topology::Link) -> String {
    let mut words = Vec::new();
    if link.weight != 1 {
        words.push(format!("weight {}", link.weight));
    }
    if let Some(impaired) = &link.impaired {
        let mut word = |value: f64, text: String| words.extend((value > 0.0).then_some(text));
        let jitter = if impaired.jitter_ms > 0.0 { format!(" ± {}", impaired.jitter_ms) } else { String::new() };
        word(impaired.delay_ms, format!("{}{jitter} ms", impaired.delay_ms));
        word(impaired.loss_percent, format!("loses {} %", impaired.loss_percent));
        word(impaired.duplicate_percent, format!("doubles {} %", impaired.duplicate_percent));
        word(impaired.reorder_percent, format!("reorders {} %", impaired.reorder_percent));
    }
    words.join(", ")
}

fn way(topology: &Topology, plan: &LabPlan, chain: &str, at: &HashMap<String, usize>) -> Option<Way> {
    let forward = || plan.explain().iter().filter(|step| step.chain == chain && step.direction == Direction::Forward);
    // Where families differ, the first one stands for both.
    let first = forward().next()?;
    let definition = topology.chains.get(chain)?;
    let host = |end: &Endpoint| match end {
        Endpoint::Host(name) => at.get(name).copied(),
        Endpoint::Prefixes(_) | Endpoint::Behind(_) => None,
    };
    let mut stops: Vec<usize> = host(&definition.from).into_iter().collect();
    // Of each part, where the chain crosses between SIDs and labels.
    let mut lists: Vec<String> = Vec::new();
    for step in forward().filter(|step| step.is_of_same_way(first)) {
        let mut go = |stop: Option<&usize>| {
            if let Some(stop) = stop
                && stops.last() != Some(stop)
            {
                stops.push(*stop);
            }
        };
        step.path.iter().for_each(|node| go(at.get(node)));
        go(at.get(&step.node));
        match &step.action {
            StepAction::Headend { segments: list, .. } => {
                lists.push(list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
            }
            StepAction::Push { labels, .. } => {
                lists.push(labels.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
            }
            StepAction::Segment { function, .. } | StepAction::Label { function, .. } => {
                if let Some(function) = function {
                    go(at.get(function));
                    go(at.get(&step.node));
                }
            }
        }
    }
    stops.extend(host(&definition.to));
    Some(Way { chain: chain.to_owned(), stops, segments: lists.join("; ") })
}
