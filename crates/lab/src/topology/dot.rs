//! A topology for Graphviz.

use std::fmt::Write;

use segue_model::topology::{Dataplane, Topology};
use segue_wiring::LabPlan;

use super::picture::{Kind, Picture};
use super::svg::colour;

/// The topology in the DOT language: nodes, hosts and functions, links, and the forward direction of chains as arrows.
#[must_use]
pub fn export(topology: &Topology, plan: &LabPlan) -> String {
    let picture = Picture::of(topology, plan);
    let mut text = format!(
        "digraph \"{}\" {{\n  layout=neato; overlap=false; splines=true;\n  node [fontname=\"sans-serif\", fontsize=11];\n  edge [fontname=\"sans-serif\", fontsize=9];\n",
        picture.name
    );
    for vertex in &picture.vertices {
        let look = match vertex.kind {
            Kind::Node(Dataplane::Segue) => {
                "shape=box, style=\"rounded,filled\", fillcolor=\"#1f4e79\", fontcolor=white"
            }
            Kind::Node(_) => "shape=box, style=\"rounded,filled\", fillcolor=\"#d9d9d9\"",
            Kind::Host => "shape=box",
            Kind::Function => "shape=box, style=\"rounded,filled\", fillcolor=\"#fbe5d6\"",
        };
        let _ = writeln!(text, "  \"{}\" [label=\"{}\\n{}\", {look}];", vertex.name, vertex.name, vertex.about);
    }
    let name = |vertex: usize| &picture.vertices[vertex].name;
    for edge in &picture.edges {
        let [a, b] = edge.ends.map(name);
        let _ = writeln!(text, "  \"{a}\" -> \"{b}\" [dir=none, color=\"#7f7f7f\", label=\"{}\"];", edge.about);
    }
    for (number, way) in picture.ways.iter().enumerate() {
        for pair in way.stops.windows(2) {
            let [a, b] = [name(pair[0]), name(pair[1])];
            let _ = writeln!(
                text,
                "  \"{a}\" -> \"{b}\" [color=\"{}\", penwidth=2, tooltip=\"{}\"];",
                colour(number),
                way.chain
            );
        }
    }
    text.push_str("}\n");
    text
}
