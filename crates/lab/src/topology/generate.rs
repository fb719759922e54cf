//! Topologies by rule: line, ring, tree, fat tree, random graph.

use clap::ValueEnum;

use super::write::{Link, yaml};
use crate::error::{LabError, Result};
use crate::random::Random;

/// Which shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// One node after the other
    Line,
    /// A line whose ends are linked
    Ring,
    /// A binary tree; hosts at the leaves farthest apart
    Tree,
    /// A fat tree of switches with k ports each: 5, 20, 45, 80, ... nodes
    FatTree,
    /// A random connected graph with half as many links again as a tree has, and weights from 1 to 10; the same for the same seed
    Random,
}

/// Nodes of a topology at most: as many as one machine takes.
const NODES_MAX: usize = 500;

/// The topology as YAML: nodes n1, n2, ...; hosts `client` and `server` at two ends of it, a function `f1` on a node between them, and a chain `c1` that visits it.
///
/// # Errors
/// If the shape cannot have so many nodes.
pub fn generate(shape: Shape, nodes: usize, seed: u64, name: &str) -> Result<String> {
    let wrong = |what: String, remedy: String| LabError::Exchange { place: "segue lab generate".into(), what, remedy };
    if !(1..=NODES_MAX).contains(&nodes) {
        return Err(wrong(format!("a topology of {nodes} nodes is not possible"), format!("choose 1 to {NODES_MAX}")));
    }
    let names: Vec<String> = (1..=nodes).map(|number| format!("n{number}")).collect();
    let link = |a: usize, b: usize| Link::plain(&names[a], &names[b]);
    let line = || (1..nodes).map(|node| link(node - 1, node));
    let mut ends = [0, nodes - 1];
    let (what, links): (String, Vec<Link>) = match shape {
        Shape::Line => ("A line".into(), line().collect()),
        // Two nodes have one link, not two.
        Shape::Ring => {
            ends[1] = nodes / 2;
            ("A ring".into(), line().chain((nodes > 2).then(|| link(nodes - 1, 0))).collect())
        }
        Shape::Tree => {
            // The first leaf, and the last.
            ends[0] = nodes / 2;
            ("A binary tree".into(), (1..nodes).map(|node| link((node - 1) / 2, node)).collect())
        }
        Shape::FatTree => {
            let ports = (2..=20).step_by(2).find(|ports| fat_tree_nodes(*ports) == nodes).ok_or_else(|| {
                let sizes: Vec<String> = (2..=20).step_by(2).map(|ports| fat_tree_nodes(ports).to_string()).collect();
                wrong(format!("a fat tree does not have {nodes} nodes"), format!("choose one of {}", sizes.join(", ")))
            })?;
            ends[0] = fat_tree_edge(ports, 0, 0);
            let links = fat_tree(ports).into_iter().map(|(a, b)| link(a, b)).collect();
            (format!("A fat tree of switches with {ports} ports"), links)
        }
        Shape::Random => (format!("A random graph of seed {seed}"), random(nodes, seed, &names)),
    };
    let plural = if nodes == 1 { "" } else { "s" };
    let comment = format!("{what} of {nodes} node{plural}, by `segue lab generate`.");
    let middle = ends[0].midpoint(ends[1]);
    let mut text = yaml(name, &comment, &names, &links);
    text.push_str(&format!(
        "\nhosts:\n  client: {{node: {}}}\n  server: {{node: {}}}\n\nfunctions:\n  f1: {{node: {}}}\n\n\
         chains:\n  c1: {{from: client, to: server, via: [f1]}}\n",
        names[ends[0]], names[ends[1]], names[middle]
    ));
    Ok(text)
}

/// Core, then aggregation and edge switches of all pods.
fn fat_tree_nodes(ports: usize) -> usize {
    5 * ports * ports / 4
}

fn fat_tree_aggregation(ports: usize, pod: usize, number: usize) -> usize {
    (ports / 2) * (ports / 2) + pod * ports + number
}

fn fat_tree_edge(ports: usize, pod: usize, number: usize) -> usize {
    fat_tree_aggregation(ports, pod, number) + ports / 2
}

/// M. Al-Fares, A. Loukissas, A. Vahdat, "A scalable, commodity data center network architecture", 2008, section 3.
fn fat_tree(ports: usize) -> Vec<(usize, usize)> {
    let half = ports / 2;
    let mut links = Vec::new();
    for pod in 0..ports {
        for aggregation in 0..half {
            let switch = fat_tree_aggregation(ports, pod, aggregation);
            links.extend((0..half).map(|core| (aggregation * half + core, switch)));
            links.extend((0..half).map(|edge| (switch, fat_tree_edge(ports, pod, edge))));
        }
    }
    links
}

fn random(nodes: usize, seed: u64, names: &[String]) -> Vec<Link> {
    let mut random = Random::new(seed);
    let mut links: Vec<Link> = Vec::new();
    let mut add = |a: usize, b: usize, random: &mut Random| {
        let between = [names[a].clone(), names[b].clone()];
        let again = links
            .iter()
            .any(|link| link.between == between || link.between == [between[1].clone(), between[0].clone()]);
        if a != b && !again {
            #[allow(clippy::cast_possible_truncation)] // below 10
            let weight = 1 + random.below(10) as u32;
            links.push(Link { between, weight, delay_ms: 0.0 });
        }
    };
    // A tree first, so that all are connected.
    for node in 1..nodes {
        let parent = random.below(node);
        add(parent, node, &mut random);
    }
    for _ in 0..nodes / 2 {
        let (a, b) = (random.below(nodes), random.below(nodes));
        add(a, b, &mut random);
    }
    links
}

#[cfg(test)]
mod tests {
    use segue_wiring::load_plan;

    use super::*;

    fn links(shape: Shape, nodes: usize) -> usize {
        let text = generate(shape, nodes, 1, "x").unwrap_or_else(|error| panic!("{error}"));
        load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}\n{text}")).0.links.len()
    }

    #[test]
    fn every_shape_of_every_size_is_planned() {
        let sizes = (1..=24).chain([60]);
        for nodes in sizes {
            assert_eq!(links(Shape::Line, nodes), nodes - 1);
            assert_eq!(links(Shape::Ring, nodes), if nodes > 2 { nodes } else { nodes - 1 });
            assert_eq!(links(Shape::Tree, nodes), nodes - 1);
            assert!((nodes - 1..=nodes - 1 + nodes / 2).contains(&links(Shape::Random, nodes)));
        }
        // Each core switch has a port for each pod, each aggregation switch half of its ports down.
        for (ports, nodes) in [(2, 5), (4, 20), (6, 45), (8, 80)] {
            assert_eq!(links(Shape::FatTree, nodes), ports * ports * ports / 2);
        }
    }

    #[test]
    fn seeds_of_random_graphs_are_planned_and_differ() {
        let text = |seed| generate(Shape::Random, 12, seed, "x").unwrap();
        for seed in 0..60 {
            load_plan(&text(seed), "x").unwrap_or_else(|errors| panic!("seed {seed}: {errors}"));
        }
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }

    #[test]
    fn sizes_that_are_not_possible_are_told() {
        for (shape, nodes, wanted) in [
            (Shape::FatTree, 21, "choose one of 5, 20, 45"),
            (Shape::Line, 0, "choose 1 to"),
            (Shape::Line, 501, "choose 1 to 500"),
        ] {
            let error = generate(shape, nodes, 1, "x").unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
