//! Whether and how nodes reach each other.

use crate::graph::{Graph, GraphLink};
use crate::inventory::{Inventory, Link, Reachability};

/// The reachability of an inventory, by numbers of nodes.
pub(crate) enum Reach {
    Links(Graph),
    Routing,
}

impl Reach {
    /// By SIDs: whoever forwards IPv6 takes packets on.
    pub(crate) fn new(inventory: &Inventory) -> Self {
        Self::over(inventory, |_| true)
    }

    /// By labels: over nodes that know them alone.
    pub(crate) fn of_labels(inventory: &Inventory) -> Self {
        let knows = |node: &String| inventory.nodes.get(node).is_some_and(|node| node.labels.is_some());
        Self::over(inventory, |link| link.between.iter().all(knows))
    }

    fn over(inventory: &Inventory, takes: impl Fn(&Link) -> bool) -> Self {
        let Reachability::Links(links) = &inventory.reachability else { return Self::Routing };
        // Checked before: both nodes are there.
        let index = |name: &String| inventory.nodes.get_index_of(name).unwrap_or_default();
        let graph_link = |link: &Link| GraphLink {
            ends: [index(&link.between[0]), index(&link.between[1])],
            weight: link.weight,
            mtu: link.mtu,
        };
        Self::Links(Graph::new(
            inventory.nodes.len(),
            links.iter().filter(|link| takes(link)).map(graph_link).collect(),
        ))
    }

    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        match self {
            Self::Links(graph) => graph.distance(from, to).is_some(),
            Self::Routing => true,
        }
    }

    /// How far it is; if only routing knows that, whether it is another node.
    pub(crate) fn distance(&self, from: usize, to: usize) -> Option<u64> {
        match self {
            Self::Links(graph) => graph.distance(from, to),
            Self::Routing => Some(u64::from(from != to)),
        }
    }

    /// The node that a way begins with; none if there is no way, if none is needed, or if only routing knows it.
    pub(crate) fn first_hop(&self, from: usize, to: usize) -> Option<usize> {
        match self {
            Self::Links(graph) => graph.path(from, to).get(1).copied(),
            Self::Routing => None,
        }
    }

    /// The nodes that equally short ways begin with, each once, that of [`Reach::first_hop`] first.
    pub(crate) fn first_hops(&self, from: usize, to: usize) -> Vec<usize> {
        let Self::Links(graph) = self else { return Vec::new() };
        let mut nodes = Vec::new();
        for node in graph.first_nodes(from, to) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Smallest MTU on the way, as far as it is known.
    pub(crate) fn mtu(&self, from: usize, to: usize) -> Option<u32> {
        match self {
            Self::Links(graph) => graph.path_mtu(from, to),
            Self::Routing => None,
        }
    }

    /// The nodes of the way, as far as it is known, both ends included, and the way in words. Flows take all of several equally short ones.
    pub(crate) fn way<'a>(&self, from: usize, to: usize, name: impl Fn(usize) -> &'a str) -> (Vec<String>, String) {
        let names = |path: &[usize]| -> Vec<String> { path.iter().map(|node| name(*node).to_owned()).collect() };
        if from == to {
            return (names(&[from]), "on the same node, so nothing is sent".to_owned());
        }
        let Self::Links(graph) = self else {
            return (names(&[from, to]), "routing knows the way".to_owned());
        };
        let path = graph.path(from, to);
        let (names, distance) = (names(&path), graph.distance(from, to).unwrap_or_default());
        let forks = path.iter().any(|node| graph.first_links(*node, to).len() > 1);
        let shown = names.join(" > ");
        let words = if forks {
            format!("flows are spread over equally short paths, one is {shown} (distance {distance})")
        } else {
            format!("shortest path {shown} (distance {distance})")
        };
        (names, words)
    }
}
