//! Whether labels can be told apart: none means two things, wherever it is looked at.

use segue_model::error::KeyPath;
use segue_model::label::{FIRST_LABEL, LAST_LABEL};
use segue_model::topology::Dataplane;

use super::Check;
use crate::inventory::{NodeLabels, Reachability};

impl Check<'_, '_> {
    pub(super) fn labels(&mut self) {
        if !self.inventory.uses_labels() {
            return;
        }
        let root = KeyPath::root();
        if matches!(self.inventory.reachability, Reachability::Routing) {
            let message = "labels lead over links, and only a routing protocol knows these";
            self.report.error(&root.at("reachability"), message, "name the links, or let SIDs lead (SRv6)");
        }
        let mut before: Vec<(&str, NodeLabels)> = Vec::new();
        for (name, node) in &self.inventory.nodes {
            let key = root.at("nodes").at(name);
            if node.dataplane != Dataplane::Segue {
                let message = format!("the node {name:?} takes no labels: only Segue's data plane does");
                let remedy = "give it `dataplane: segue`, or let SIDs lead (`domain: {dataplane: srv6}`)";
                self.report.error(&key.at("dataplane"), message, remedy);
            }
            let Some(labels) = node.labels else {
                self.report.error(
                    &key,
                    format!("the node {name:?} has no labels"),
                    "all nodes of a domain have some, or none has",
                );
                continue;
            };
            self.label_values(labels, &key);
            for (other_name, other) in before.iter().copied() {
                if let Some(message) = shared(labels, (other_name, other)) {
                    let remedy = "give one of them another `srlb`, or move the domain's `srgb` or `srlb`";
                    self.report.error(&key, message, remedy);
                }
            }
            before.push((name, labels));
        }
    }

    fn label_values(&mut self, labels: NodeLabels, key: &KeyPath) {
        let NodeLabels { node, block } = labels;
        if !(FIRST_LABEL..=LAST_LABEL).contains(&node) || block.low() < FIRST_LABEL || block.high() > LAST_LABEL {
            let message =
                format!("its label {node} and its block {block} do not lie within {FIRST_LABEL}-{LAST_LABEL}");
            self.report.error(key, message, "choose lower ones (RFC 3032, RFC 7274)");
        }
        if block.contains(node) {
            let message =
                format!("its node label {node} lies in its own block {block}, so that it could mean two things");
            self.report.error(key, message, "give it another `srlb`, or move the domain's `srgb`");
        }
    }
}

/// What of one node's labels could mean something of another node's.
fn shared(labels: NodeLabels, (other_name, other): (&str, NodeLabels)) -> Option<String> {
    if labels.node == other.node {
        return Some(format!("node {other_name:?} has the node label {} too", labels.node));
    }
    if labels.block.overlaps(other.block) {
        return Some(format!(
            "its block of labels {} overlaps with {} of node {other_name:?}",
            labels.block, other.block
        ));
    }
    if labels.block.contains(other.node) {
        return Some(format!(
            "its block of labels {} has {}, the label of node {other_name:?}",
            labels.block, other.node
        ));
    }
    other.block.contains(labels.node).then(|| {
        format!("its node label {} lies in the block of labels {} of node {other_name:?}", labels.node, other.block)
    })
}
