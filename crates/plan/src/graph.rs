//! Shortest paths between nodes.

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
        let total = self.distance(from, to).filter(|_| from != to)?;
        let on_path = |link: &GraphLink| {
            [link.ends, [link.ends[1], link.ends[0]]].iter().any(|[near, far]| {
                let parts = self.distance(from, *near).zip(self.distance(*far, to));
                parts.is_some_and(|(before, after)| before + u64::from(link.weight) + after == total)
            })
        };
        self.links.iter().filter(|link| on_path(link)).map(|link| link.mtu).min()
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
    fn weights_count_rather_than_hops() {
        let graph = Graph::new(3, vec![link(0, 2, u32::MAX), link(0, 1, 1), link(1, 2, 1)]);
        assert_eq!(graph.path(0, 2), [0, 1, 2]);
        assert_eq!(graph.first_links(0, 2), [1]);
    }
}
