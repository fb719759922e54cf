//! Shortest paths between nodes, and between those of them that know labels.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Links between nodes, which are numbered from 0.
#[derive(Debug)]
pub struct Graph {
    links: Vec<GraphLink>,
    /// Per node: its links, in the order given.
    by_node: Vec<Vec<usize>>,
    /// Per node: the distance of each node; `None` if there is no way.
    distances: Vec<Vec<Option<u64>>>,
}

/// A link that paths can lead over, in both directions.
#[derive(Debug, Clone, Copy)]
pub struct GraphLink {
    /// The two nodes, by number.
    pub ends: [usize; 2],
    /// What shortest paths add up; not 0.
    pub weight: u32,
    /// MTU, octets.
    pub mtu: u32,
}

impl GraphLink {
    fn other(&self, node: usize) -> usize {
        if self.ends[0] == node { self.ends[1] } else { self.ends[0] }
    }
}

impl Graph {
    /// `nodes` is how many there are.
    pub fn new(nodes: usize, links: Vec<GraphLink>) -> Self {
        let mut by_node = vec![Vec::new(); nodes];
        for (index, link) in links.iter().enumerate() {
            for end in link.ends {
                by_node[end].push(index);
            }
        }
        let mut graph = Self { links, by_node, distances: Vec::new() };
        graph.distances = (0..nodes).map(|node| graph.dijkstra(node)).collect();
        graph
    }

    fn dijkstra(&self, from: usize) -> Vec<Option<u64>> {
        let mut distances = vec![None; self.by_node.len()];
        let mut heap = BinaryHeap::from([(Reverse(0), from)]);
        while let Some((Reverse(distance), node)) = heap.pop() {
            if distances[node].is_some() {
                continue;
            }
            distances[node] = Some(distance);
            for &index in &self.by_node[node] {
                let link = &self.links[index];
                heap.push((Reverse(distance + u64::from(link.weight)), link.other(node)));
            }
        }
        distances
    }

    /// Sum of the weights on a shortest path.
    pub fn distance(&self, from: usize, to: usize) -> Option<u64> {
        self.distances[from][to]
    }

    /// The links that begin a shortest path, in the order given. Empty if there is no way, or none is needed.
    pub fn first_links(&self, from: usize, to: usize) -> Vec<usize> {
        let Some(distance) = self.distance(from, to) else { return Vec::new() };
        let is_first = |link: &GraphLink| {
            self.distance(link.other(from), to).is_some_and(|rest| rest + u64::from(link.weight) == distance)
        };
        if from == to {
            return Vec::new();
        }
        self.by_node[from].iter().copied().filter(|&index| is_first(&self.links[index])).collect()
    }

    /// The nodes at the other ends of [`Graph::first_links`].
    pub fn first_nodes(&self, from: usize, to: usize) -> Vec<usize> {
        self.first_links(from, to).into_iter().map(|link| self.links[link].other(from)).collect()
    }

    /// The nodes of one shortest path, both ends included: at each node the first of the equal links. Empty if there is none.
    pub fn path(&self, from: usize, to: usize) -> Vec<usize> {
        if self.distance(from, to).is_none() {
            return Vec::new();
        }
        let mut path = vec![from];
        let mut here = from;
        // Weights are not 0, so that every step comes closer.
        while let Some(&link) = self.first_links(here, to).first() {
            here = self.links[link].other(here);
            path.push(here);
        }
        path
    }

    /// Smallest MTU of all links that lie on a shortest path; `None` if no link is crossed.
    pub fn path_mtu(&self, from: usize, to: usize) -> Option<u32> {
        self.links_between(from, to).map(|link| self.links[link].mtu).min()
    }

    /// All links that lie on shortest paths, in the order given.
    pub fn links_between(&self, from: usize, to: usize) -> impl Iterator<Item = usize> {
        let total = self.distance(from, to).filter(|_| from != to);
        let on_path = move |link: &GraphLink| {
            [link.ends, [link.ends[1], link.ends[0]]].iter().any(|[near, far]| {
                let parts = self.distance(from, *near).zip(self.distance(*far, to));
                parts.is_some_and(|(before, after)| Some(before + u64::from(link.weight) + after) == total)
            })
        };
        self.links.iter().enumerate().filter(move |(_, link)| on_path(link)).map(|(position, _)| position)
    }
}

/// Octets that a packet with labels has in front in UDP: IPv6 and UDP.
pub const UDP_OCTETS: u32 = 40 + 8;

/// A way of labels in UDP, which takes a shortest path of the whole graph.
#[derive(Debug, Clone, Copy)]
pub struct UdpWay {
    /// The two nodes, by number.
    pub ends: [usize; 2],
    /// What shortest paths of labels add up; the distance in the whole graph if none.
    pub weight: Option<u32>,
}

/// Where labels lead: over links between nodes that know them, and in UDP. Where one of equally short ways is by such a link, none in UDP is taken; of
/// several in UDP the first.
#[derive(Debug)]
pub struct LabelGraph {
    /// Its links are those of the whole graph that take labels, in their order, then the ways in UDP.
    graph: Graph,
    /// Per link of it that is none in UDP: which of the whole graph's.
    plain: Vec<usize>,
}

impl LabelGraph {
    /// Links that join both ends of a way in UDP carry labels in no other way.
    pub fn new(whole: &Graph, knows_labels: impl Fn(usize) -> bool, ways: &[UdpWay]) -> Self {
        let joins =
            |link: &GraphLink| ways.iter().any(|way| way.ends == link.ends || way.ends == [link.ends[1], link.ends[0]]);
        let takes = |link: &GraphLink| link.ends.iter().all(|end| knows_labels(*end)) && !joins(link);
        let links = whole.links.iter().copied().enumerate().filter(|(_, link)| takes(link));
        let (plain, mut links): (Vec<usize>, Vec<GraphLink>) = links.unzip();
        links.extend(ways.iter().map(|way| {
            let [from, to] = way.ends;
            let distance = whole.distance(from, to).and_then(|distance| u32::try_from(distance).ok());
            let weight = way.weight.or(distance).unwrap_or(u32::MAX);
            let mtu = whole.path_mtu(from, to).unwrap_or_default().saturating_sub(UDP_OCTETS);
            GraphLink { ends: way.ends, weight, mtu }
        }));
        Self { graph: Graph::new(whole.by_node.len(), links), plain }
    }

    /// Shortest paths of labels.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The links of the whole graph that begin a shortest path, in the order given; none if that begins in UDP.
    pub fn first_links(&self, from: usize, to: usize) -> Vec<usize> {
        self.graph.first_links(from, to).into_iter().filter_map(|link| self.plain.get(link).copied()).collect()
    }

    /// The nodes at their other ends, or that of the way in UDP.
    pub fn first_nodes(&self, from: usize, to: usize) -> Vec<usize> {
        let mut nodes = self.graph.first_nodes(from, to);
        nodes.truncate(self.first_links(from, to).len().max(1));
        nodes
    }

    /// The way in UDP that a shortest path begins with: its position.
    pub fn first_in_udp(&self, from: usize, to: usize) -> Option<usize> {
        self.graph.first_links(from, to).first().and_then(|link| link.checked_sub(self.plain.len()))
    }

    /// The first way in UDP of all that lie on shortest paths.
    pub fn in_udp_between(&self, from: usize, to: usize) -> Option<usize> {
        self.graph.links_between(from, to).find_map(|link| link.checked_sub(self.plain.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(a: usize, b: usize, weight: u32) -> GraphLink {
        GraphLink { ends: [a, b], weight, mtu: 9000 - 100 * u32::try_from(a + b).unwrap() }
    }

    #[test]
    fn equal_paths_and_parallel_links() {
        // 0 -1- 1 -1- 3, 0 -1- 2 -1- 3, and twice 0 - 1
        let graph = Graph::new(5, vec![link(0, 1, 1), link(0, 2, 1), link(1, 3, 1), link(2, 3, 1), link(1, 0, 1)]);
        assert_eq!(graph.distance(0, 3), Some(2));
        assert_eq!(graph.first_links(0, 3), [0, 1, 4]);
        assert_eq!(graph.first_links(3, 0), [2, 3]);
        assert_eq!(graph.path(0, 3), [0, 1, 3]);
        assert_eq!(graph.path_mtu(0, 3), Some(9000 - 500));
        assert_eq!(graph.path(0, 0), [0]);
        assert_eq!(graph.path_mtu(0, 0), None);
        assert_eq!(graph.distance(0, 4), None);
        assert_eq!(graph.path(0, 4), [0; 0]);
        assert!(graph.first_links(0, 4).is_empty());
    }

    #[test]
    fn labels_take_links_before_udp_and_none_beside_it() {
        // 0 - 1 - 2 - 3 with labels but for 1, and 0 - 4 - 2 with all; UDP from 0 to 2, twice from 2 to 3.
        let whole = Graph::new(5, vec![link(0, 1, 1), link(1, 2, 1), link(2, 3, 1), link(0, 4, 1), link(4, 2, 1)]);
        let way = |ends, weight| UdpWay { ends, weight };
        let ways = [way([2, 0], None), way([3, 2], None), way([2, 3], Some(1))];
        let labels = LabelGraph::new(&whole, |node| node != 1, &ways);
        // As short in UDP as by node 4.
        assert_eq!((labels.graph().distance(0, 3), labels.first_links(0, 3)), (Some(3), vec![3]));
        assert_eq!((labels.first_nodes(0, 3), labels.first_in_udp(0, 3)), (vec![4], None));
        assert_eq!(labels.graph().path(0, 3), [0, 4, 2, 3]);
        // The link between 2 and 3 is there, but not for labels alone.
        assert_eq!((labels.first_links(2, 3), labels.first_nodes(2, 3)), (vec![], vec![3]));
        assert_eq!((labels.first_in_udp(2, 3), labels.first_in_udp(3, 0)), (Some(1), Some(1)));
        assert_eq!((labels.in_udp_between(0, 4), labels.in_udp_between(0, 2)), (None, Some(0)));
        assert_eq!(labels.graph().path_mtu(2, 3), Some(9000 - 500 - 48));
        // A way that nothing leads along is none, and does no harm.
        let cut = LabelGraph::new(&Graph::new(2, Vec::new()), |_| true, &[way([0, 1], None), way([1, 1], None)]);
        assert_eq!(
            (cut.graph().path_mtu(0, 1), cut.first_nodes(0, 0), cut.first_links(0, 1)),
            (Some(0), vec![], vec![])
        );
    }

    #[test]
    fn weights_count_rather_than_hops() {
        let graph = Graph::new(3, vec![link(0, 2, u32::MAX), link(0, 1, 1), link(1, 2, 1)]);
        assert_eq!(graph.path(0, 2), [0, 1, 2]);
        assert_eq!(graph.first_links(0, 2), [1]);
    }
}
