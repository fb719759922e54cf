//! Topologies as YAML for people.

use std::fmt::Write;

/// A link to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    pub(crate) between: [String; 2],
    pub(crate) weight: u32,
    pub(crate) delay_ms: f64,
}

impl Link {
    pub(crate) fn plain(a: &str, b: &str) -> Self {
        Self { between: [a.to_owned(), b.to_owned()], weight: 1, delay_ms: 0.0 }
    }
}

/// The document with a comment, nodes and links; what else belongs into it goes behind.
pub(crate) fn yaml(name: &str, comment: &str, nodes: &[String], links: &[Link]) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = writeln!(text, "name: {name}\n\nnodes:");
    for node in nodes {
        let _ = writeln!(text, "  {node}: {{}}");
    }
    if !links.is_empty() {
        text.push_str("\nlinks:\n");
    }
    for Link { between: [a, b], weight, delay_ms } in links {
        let _ = write!(text, "  - {{between: [{a}, {b}]");
        if *weight != 1 {
            let _ = write!(text, ", weight: {weight}");
        }
        if *delay_ms > 0.0 {
            let _ = write!(text, ", impaired: {{delay_ms: {delay_ms}}}");
        }
        text.push_str("}\n");
    }
    text
}
