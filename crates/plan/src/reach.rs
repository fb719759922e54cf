//! Whether and how nodes reach each other.

use crate::graph::{Graph, GraphLink, LabelGraph, UDP_OCTETS, UdpWay};
use crate::inventory::{Inventory, Link, Reachability};

/// The reachability of an inventory, by numbers of nodes.
pub(crate) enum Reach {
    /// By SIDs: whoever forwards IPv6 takes packets on.
    Links(Graph),
    /// By labels; and all links, over which they go in UDP.
    Labels(LabelGraph, Graph),
    Routing,
}

impl Reach {
    /// By SIDs.
    pub(crate) fn new(inventory: &Inventory) -> Self {
        let Reachability::Links(links) = &inventory.reachability else { return Self::Routing };
        // Checked before: both nodes are there.
        let index = |name: &String| inventory.nodes.get_index_of(name).unwrap_or_default();
        let graph_link = |link: &Link| GraphLink {
            ends: [index(&link.between[0]), index(&link.between[1])],
            weight: link.weight,
            mtu: link.mtu,
        };
        Self::Links(Graph::new(inventory.nodes.len(), links.iter().map(graph_link).collect()))
    }

    /// By labels: over nodes that know them alone, and over others in UDP.
    pub(crate) fn of_labels(inventory: &Inventory) -> Self {
        let Self::Links(whole) = Self::new(inventory) else { return Self::Routing };
        let index = |name: &String| inventory.nodes.get_index_of(name).unwrap_or_default();
        let ways = inventory.tunnels.iter().map(|tunnel| {
            let [a, b] = &tunnel.between;
            UdpWay { ends: [index(a), index(b)], weight: tunnel.weight }
        });
        let knows = |node: usize| inventory.nodes[node].labels.is_some();
        Self::Labels(LabelGraph::new(&whole, knows, &ways.collect::<Vec<_>>()), whole)
    }

    fn graph(&self) -> Option<&Graph> {
        match self {
            Self::Links(graph) => Some(graph),
            Self::Labels(labels, _) => Some(labels.graph()),
            Self::Routing => None,
        }
    }

    pub(crate) fn reaches(&self, from: usize, to: usize) -> bool {
        self.graph().is_none_or(|graph| graph.distance(from, to).is_some())
    }

    /// How far it is; if only routing knows that, whether it is another node.
    pub(crate) fn distance(&self, from: usize, to: usize) -> Option<u64> {
        match self.graph() {
            Some(graph) => graph.distance(from, to),
            None => Some(u64::from(from != to)),
        }
    }

    /// The node that a way begins with; none if there is no way, if none is needed, or if only routing knows it.
    pub(crate) fn first_hop(&self, from: usize, to: usize) -> Option<usize> {
        self.graph()?.path(from, to).get(1).copied()
    }

    /// The nodes that equally short ways begin with, each once, that of [`Reach::first_hop`] first.
    pub(crate) fn first_hops(&self, from: usize, to: usize) -> Vec<usize> {
        let all = match self {
            Self::Links(graph) => graph.first_nodes(from, to),
            Self::Labels(labels, _) => labels.first_nodes(from, to),
            Self::Routing => Vec::new(),
        };
        let mut nodes = Vec::new();
        for node in all {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    /// The tunnel that a way begins with, by its position.
    pub(crate) fn first_tunnel(&self, from: usize, to: usize) -> Option<usize> {
        match self {
            Self::Labels(labels, _) => labels.first_in_udp(from, to),
            Self::Links(_) | Self::Routing => None,
        }
    }

    /// A tunnel that lies on a shortest way.
    pub(crate) fn tunnel_between(&self, from: usize, to: usize) -> Option<usize> {
        match self {
            Self::Labels(labels, _) => labels.in_udp_between(from, to),
            Self::Links(_) | Self::Routing => None,
        }
    }

    /// Smallest MTU on the way, as far as it is known.
    pub(crate) fn mtu(&self, from: usize, to: usize) -> Option<u32> {
        self.graph()?.path_mtu(from, to)
    }

    /// The nodes of the way, as far as it is known, both ends included, and the way in words. Flows take all of several equally short ones.
    pub(crate) fn way<'a>(&self, from: usize, to: usize, name: impl Fn(usize) -> &'a str) -> (Vec<String>, String) {
        let names = |path: &[usize]| -> Vec<String> { path.iter().map(|node| name(*node).to_owned()).collect() };
        if from == to {
            return (names(&[from]), "on the same node, so nothing is sent".to_owned());
        }
        let Some(graph) = self.graph() else {
            return (names(&[from, to]), "routing knows the way".to_owned());
        };
        let (path, distance) = (graph.path(from, to), graph.distance(from, to).unwrap_or_default());
        let forks = path.iter().any(|node| self.count_of_ways(*node, to) > 1);
        let (crossed, in_udp) = self.crossed(&path, to);
        let shown = names(&path).join(" > ");
        let mut words = if forks {
            format!("flows are spread over equally short paths, one is {shown} (distance {distance})")
        } else {
            format!("shortest path {shown} (distance {distance})")
        };
        for way in in_udp {
            words.push_str(&format!(
                "; in UDP along {}, which is no way of labels (RFC 7510), with {UDP_OCTETS} octets more",
                names(&way).join(" > ")
            ));
        }
        (names(&crossed), words)
    }

    fn count_of_ways(&self, from: usize, to: usize) -> usize {
        match self {
            Self::Links(graph) => graph.first_links(from, to).len(),
            Self::Labels(labels, _) => labels.first_links(from, to).len(),
            Self::Routing => 0,
        }
    }

    /// All nodes of a path, those that packets cross in UDP too; and the parts where they do.
    fn crossed(&self, path: &[usize], to: usize) -> (Vec<usize>, Vec<Vec<usize>>) {
        let Self::Labels(labels, whole) = self else { return (path.to_vec(), Vec::new()) };
        let (mut crossed, mut in_udp) = (path.first().copied().into_iter().collect::<Vec<_>>(), Vec::new());
        for pair in path.windows(2) {
            if labels.first_in_udp(pair[0], to).is_none() {
                crossed.push(pair[1]);
                continue;
            }
            let way = whole.path(pair[0], pair[1]);
            crossed.extend(way.iter().skip(1));
            in_udp.push(way);
        }
        (crossed, in_udp)
    }
}
