//! Whether labels can be told apart: none means two things, wherever it is looked at. And whether they can lead to functions.

use segue_model::error::KeyPath;
use segue_model::label::{FIRST_LABEL, LAST_LABEL};
use segue_model::topology::Dataplane;

use super::Check;
use crate::inventory::{Function, NodeLabels, Reachability};
use crate::leads;

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
            let Some(labels) = node.labels else {
                if !node.sids {
                    let message = format!("the node {name:?} has no labels, and no SIDs lead to it");
                    self.report.error(&key, message, "give it some, or let SIDs lead to it");
                }
                continue;
            };
            if node.dataplane != Dataplane::Segue {
                let message = format!("the node {name:?} takes no labels: only Segue's data plane does");
                let remedy = "give it `dataplane: segue`, or let SIDs lead to it (`sr_dataplane: srv6`)";
                self.report.error(&key.at("dataplane"), message, remedy);
            }
            self.label_values(labels, &key);
            for (other_name, other) in before.iter().copied() {
                if let Some(message) = shared(labels, (other_name, other)) {
                    let remedy = "give one of them another `srlb`, or move the domain's `srgb` or `srlb`";
                    self.report.error(&key, message, remedy);
                }
            }
            before.push((name, labels));
        }
        let inventory = self.inventory;
        for (name, function) in &inventory.functions {
            self.behind_label(name, function, &root.at("functions").at(name));
        }
        let all = inventory.nodes.values().all(|node| !node.sids);
        let by_labels = |stop: &String| inventory.functions.contains_key(stop) && self.is_by_labels(stop);
        let marked = inventory.chains.iter().filter(|(_, chain)| chain.mark.is_some());
        let refused: Vec<_> = marked.filter(|(_, chain)| all || chain.via.iter().any(by_labels)).collect();
        for (name, _) in refused {
            let message = "a mark is the argument of a SID, and a label has none";
            let remedy = "remove the key, and give what must be told apart functions of its own; or let SIDs lead (`sr_dataplane: srv6`)";
            self.report.error(&root.at("chains").at(name).at("mark"), message, remedy);
        }
    }

    /// Whether a label can lead to a function: not to one that has to see a segment routing header.
    fn behind_label(&mut self, name: &str, function: &Function, key: &KeyPath) {
        if !self.is_by_labels(name) {
            return;
        }
        let Some((wanted, message, remedy)) =
            self.approach(name).and_then(|approach| leads::refusal(function, approach))
        else {
            return;
        };
        let remedy = format!("{remedy}; or let SIDs lead to its node (`sr_dataplane: srv6`)");
        self.report.error(&key.at(wanted), format!("the function {name:?} {message}"), remedy);
    }

    fn label_values(&mut self, labels: NodeLabels, key: &KeyPath) {
        let NodeLabels { node, block, .. } = labels;
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
