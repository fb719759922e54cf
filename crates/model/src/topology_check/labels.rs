//! Blocks of labels. Whether blocks are apart is for the planner to check, which knows those that it derives.

use crate::error::KeyPath;
use crate::label::{FIRST_LABEL, LAST_LABEL};
use crate::label_ecn;
use crate::range::NumberRange;

use super::Check;

impl Check<'_> {
    pub(super) fn label_blocks(&mut self) {
        let topology = self.topology;
        let (root, domain) = (KeyPath::root(), &topology.domain);
        let of_domain =
            [("srgb", domain.srgb), ("srlb", domain.srlb)].map(|(name, block)| (root.at("domain").at(name), block));
        let nodes = topology.nodes.iter().map(|(name, node)| (root.at("nodes").at(name).at("srlb"), node.srlb));
        for (key, block) in of_domain.into_iter().chain(nodes).filter_map(|(key, block)| Some((key, block?))) {
            self.label_block(block, &key);
        }
        let any = topology.uses_labels();
        let nodes = topology.nodes.iter().map(|(name, node)| (root.at("nodes").at(name), node));
        for (key, node) in nodes.filter(|(_, node)| !domain.of_node(node).has_labels()) {
            let given = [("srlb", node.srlb.is_some() && any), ("entropy_labels", node.entropy_labels.is_some())];
            for (name, _) in given.into_iter().filter(|(_, given)| *given) {
                self.no_labels(&key.at(name), any);
            }
        }
        if domain.entropy_labels && !any {
            self.no_labels(&root.at("domain").at("entropy_labels"), any);
        }
        let ecn = root.at("domain").at("label_ecn");
        if !domain.label_ecn.is_empty() && !any {
            self.no_labels(&ecn, any);
        }
        for (key, message, remedy) in label_ecn::problems(&domain.label_ecn, &ecn) {
            self.report.error(&key, message, remedy);
        }
    }

    /// `any`: other nodes have some.
    fn no_labels(&mut self, key: &KeyPath, any: bool) {
        match any {
            true => {
                let remedy = "write `sr_dataplane: sr-mpls` or `both`, or remove the key";
                self.report.error(key, "SIDs lead to this node, and no labels", remedy);
            }
            false => {
                let remedy = "write `domain: {dataplane: sr-mpls}`, or remove the key";
                self.report.error(key, "an SRv6 domain has no labels", remedy);
            }
        }
    }

    fn label_block(&mut self, block: NumberRange, key: &KeyPath) {
        if !self.topology.uses_labels() {
            self.no_labels(key, false);
        } else if block.low() < FIRST_LABEL || block.high() > LAST_LABEL {
            let message = format!("the block {block} has labels that cannot be a segment's");
            let remedy = format!("keep it within {FIRST_LABEL}-{LAST_LABEL} (RFC 3032, RFC 7274)");
            self.report.error(key, message, remedy);
        }
    }
}
