//! Labels: the blocks that they come from, what each behaviour needs, and lists of labels in policies.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::check;
use crate::error::KeyPath;
use crate::label::{
    ENTROPY_ENTRIES, FIRST_LABEL, IMPLICIT_NULL, LABELS_MAX, LAST_LABEL, Label, LabelBehaviour, PATHS_MAX,
};
use crate::label_ecn;
use crate::node::{HeadendMode, Policy, SegmentList};
use crate::range::NumberRange;

use super::Check;

/// Explicit null of IPv4 and IPv6, which may stand in a list.
const EXPLICIT_NULLS: [u32; 2] = [0, 2];

impl Check<'_> {
    pub(super) fn labels(&mut self) {
        self.label_blocks();
        let labels = KeyPath::root().at("labels");
        let mut seen = HashMap::new();
        for (position, label) in self.state.labels.iter().enumerate() {
            let key = labels.at(position);
            if self.label_value(label.label, &key.at("label")) {
                self.label_in_block(label, &key.at("label"));
            }
            if let Some(other) = seen.insert(label.label, position) {
                let message = format!("the label {} is there twice", label.label);
                self.error(&key.at("label"), message, format!("give this one or labels[{other}] another label"));
            }
            match label.service() {
                Some(service) => self.service_label(label, &service, &key),
                None => self.label_parameters(label, &key),
            }
            self.owner(label.owner.as_ref(), &key);
            if label.learned {
                let remedy = "remove the key; `mpls.learn` says where labels are learned from";
                self.error(&key.at("learned"), "a label in a configuration is none that was learned", remedy);
            }
        }
    }

    /// Whether a label can be a segment's.
    pub(super) fn label_value(&mut self, label: u32, key: &KeyPath) -> bool {
        let message = match label {
            0..FIRST_LABEL => format!("{label} is a special-purpose label (RFC 7274)"),
            FIRST_LABEL..=LAST_LABEL => return true,
            _ => format!("{label} is no label: they have 20 bits"),
        };
        self.error(key, message, format!("choose {FIRST_LABEL} to {LAST_LABEL}"));
        false
    }

    fn label_blocks(&mut self) {
        let Some(mpls) = &self.state.mpls else { return };
        let key = KeyPath::root().at("mpls");
        for (key, message, remedy) in label_ecn::problems(&mpls.ecn, &key.at("ecn")) {
            self.error(&key, message, remedy);
        }
        let blocks = [("srgb", &mpls.srgb), ("srlb", &mpls.srlb)];
        let all = blocks.into_iter().flat_map(|(name, ranges)| ranges.iter().enumerate().map(move |at| (name, at)));
        let mut before: Vec<(String, NumberRange)> = Vec::new();
        for (name, (position, range)) in all {
            let key = key.at(name).at(position);
            if range.low() < FIRST_LABEL || range.high() > LAST_LABEL {
                let message = format!("the block {range} has labels that cannot be a segment's");
                self.error(&key, message, format!("keep it within {FIRST_LABEL}-{LAST_LABEL} (RFC 3032, RFC 7274)"));
            }
            let overlaps =
                |(_, other): &&(String, NumberRange)| range.low() <= other.high() && other.low() <= range.high();
            if let Some((other, _)) = before.iter().find(overlaps) {
                let message = format!("the block {range} overlaps {other}");
                self.error(&key, message, "give each label to one block (RFC 8402 section 2)");
            }
            before.push((format!("{name}[{position}]"), *range));
        }
    }

    /// Where there are blocks, a label comes from the one of its kind: it would collide with what others allocate there.
    fn label_in_block(&mut self, label: &Label, key: &KeyPath) {
        let Some(mpls) = &self.state.mpls else { return };
        let holds =
            |ranges: &[NumberRange]| ranges.iter().any(|range| (range.low()..=range.high()).contains(&label.label));
        let (of_nodes, of_this) = (holds(&mpls.srgb), holds(&mpls.srlb));
        let name = label.behaviour.name();
        if label.behaviour.is_global() && !mpls.srgb.is_empty() && !of_nodes {
            let message = format!("the label {} of the behaviour {name} lies outside the SRGB", label.label);
            self.error(key, message, "choose one from `mpls.srgb` (RFC 8402 section 3.1), or extend that");
        } else if !label.behaviour.is_global() && of_nodes {
            let message =
                format!("the label {} of the behaviour {name} lies in the SRGB, which is for nodes", label.label);
            self.error(key, message, "choose one from `mpls.srlb`, or outside of both blocks");
        } else if label.behaviour.is_global() && of_this {
            let message =
                format!("the label {} of the behaviour {name} lies in the SRLB, which is this node's", label.label);
            self.error(key, message, "choose one from `mpls.srgb`");
        }
    }

    fn label_parameters(&mut self, label: &Label, key: &KeyPath) {
        let name = label.behaviour.name();
        let takes = |parameter: &str| match parameter {
            "out" => label.behaviour == LabelBehaviour::Swap,
            "table" => matches!(label.behaviour, LabelBehaviour::Node | LabelBehaviour::Table),
            "paths" | "udp" => label.behaviour.has_paths(),
            "policy" => label.behaviour == LabelBehaviour::Binding,
            "control_word" => label.behaviour == LabelBehaviour::Pseudowire,
            "port" => label.behaviour.has_next_hop() || label.behaviour == LabelBehaviour::Pseudowire,
            "next_hop_mac" | "proxy" | "netfilter" | "firewall" => false,
            _ => label.behaviour.has_next_hop(),
        };
        let given = [
            ("out", label.out.is_some()),
            ("next_hop", label.next_hop.is_some()),
            ("port", label.port.is_some()),
            ("control_word", label.control_word.is_some()),
            ("paths", !label.paths.is_empty()),
            ("udp", label.udp.is_some()),
            ("table", label.table.is_some()),
            ("policy", label.policy.is_some()),
            ("next_hop_mac", label.next_hop_mac.is_some()),
            ("proxy", label.proxy.is_some()),
            ("netfilter", label.netfilter.is_some()),
            ("firewall", label.firewall.is_some()),
        ];
        for (parameter, _) in given.into_iter().filter(|(parameter, is_given)| *is_given && !takes(parameter)) {
            let message = format!("the behaviour {name} does not take the key {parameter:?}");
            self.error(&key.at(parameter), message, "remove it, or change the behaviour");
        }
        if label.behaviour.has_next_hop() && label.next_hop.is_none() && label.paths.is_empty() && label.udp.is_none() {
            self.error(key, format!("the behaviour {name} needs the key \"next_hop\""), "add `next_hop:`");
        }
        if let Some(out) = label.out {
            self.label_value(out, &key.at("out"));
        }
        if label.behaviour == LabelBehaviour::Binding {
            self.binding_label(label, key);
        }
        if label.behaviour == LabelBehaviour::Pseudowire {
            self.pseudowire_label(label, key);
        }
        if label.table == Some(0) {
            let remedy = "choose 1 or more, or remove the key for the main table (254)";
            self.error(&key.at("table"), "there is no routing table 0", remedy);
        }
        self.label_next_hop(label.next_hop, label.port.as_deref(), key);
        self.label_paths(label, key);
        let beside = [
            ("next_hop", label.next_hop.is_some()),
            ("port", label.port.is_some()),
            ("paths", !label.paths.is_empty()),
        ];
        self.udp_tunnel(label.udp.as_ref(), &beside, key);
    }

    fn binding_label(&mut self, label: &Label, key: &KeyPath) {
        let Some(name) = &label.policy else {
            self.error(key, "the behaviour binding needs the key \"policy\"", "add `policy:`");
            return;
        };
        let key = key.at("policy");
        let Some(policy) = self.policy(name, &key) else { return };
        if policy.pseudowire.is_some() {
            let message = format!("the policy {name:?} carries Ethernet frames, and packets come to a binding label");
            self.error(&key, message, "name another policy, or remove its `pseudowire`");
        } else if policy.mode != HeadendMode::Push && !policy.mode.is_l3_encapsulation() {
            let message = format!("a policy of mode {} has no binding label", policy.mode.name());
            self.error(&key, message, "give it `mode: PUSH`, H.Encaps or H.Encaps.Red");
        }
        if policy.segment_lists.iter().any(|list| list.labels.first() == Some(&label.label)) {
            let message =
                format!("the policy {name:?} leads back to this label: packets would get its labels again and again");
            self.error(&key, message, "let its segment lists begin with another label");
        }
    }

    fn label_paths(&mut self, label: &Label, key: &KeyPath) {
        let paths = key.at("paths");
        if !label.paths.is_empty() && (label.next_hop.is_some() || label.port.is_some()) {
            let message = "there are `paths` beside `next_hop` or `port`";
            self.error(&paths, message, "make that one of the paths, or remove it");
        }
        if label.paths.len() == 1 || label.paths.len() > PATHS_MAX {
            let message = format!("a label has 2 to {PATHS_MAX} paths, not {}", label.paths.len());
            self.error(&paths, message, "write `next_hop:` for a single one, or remove some");
        }
        for (position, path) in label.paths.iter().enumerate() {
            let key = paths.at(position);
            match path.out {
                Some(_) if label.behaviour != LabelBehaviour::Swap => {
                    let message =
                        format!("a path of the behaviour {} does not take the key \"out\"", label.behaviour.name());
                    self.error(&key.at("out"), message, "remove it, or change the behaviour");
                }
                Some(IMPLICIT_NULL) | None => {}
                Some(out) => {
                    self.label_value(out, &key.at("out"));
                }
            }
            let same = |other: &&crate::label::LabelPath| other.next_hop == path.next_hop && other.port == path.port;
            if label.paths[..position].iter().any(|other| same(&other)) {
                self.error(&key, format!("the path by {} is there twice", path.next_hop), "remove one of them");
            }
            self.label_next_hop(Some(path.next_hop), path.port.as_deref(), &key);
        }
    }

    fn label_next_hop(&mut self, next_hop: Option<IpAddr>, port: Option<&str>, key: &KeyPath) {
        let next_hop_key = key.at("next_hop");
        match next_hop {
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() && port.is_none() => {
                let message = format!("{address} is a link-local address, which every link has");
                self.error(&next_hop_key, message, "add `port:` with the link's interface");
            }
            Some(IpAddr::V6(address)) if !address.is_unicast_link_local() => {
                self.ipv6_address(address, &next_hop_key);
            }
            Some(IpAddr::V4(address)) => {
                if let Some(problem) = check::ipv4_problem(address) {
                    self.error(&next_hop_key, format!("{address} {problem}"), "write the neighbour's unicast address");
                }
            }
            _ => {}
        }
        if let Some(port) = port {
            self.port(port, &key.at("port"));
        }
    }

    /// The lists of a policy that pushes labels.
    pub(super) fn label_lists(&mut self, policy: &Policy, key: &KeyPath) {
        for (position, list) in policy.segment_lists.iter().enumerate() {
            let key = key.at(position);
            if list.weight == 0 {
                let message = "weight 0 makes a list invalid (RFC 9256 section 5.1)";
                self.error(&key.at("weight"), message, "choose 1 or more, or remove the list");
            }
            if !list.segments.is_empty() {
                let message = "a policy of mode PUSH has labels, not SIDs";
                self.error(&key.at("segments"), message, "write `labels:`, or choose another mode");
            }
            let labels = key.at("labels");
            if list.labels.is_empty() {
                self.error(&key, "the list has no label", "add `labels:` with at least one, or remove the list");
            }
            let most = LABELS_MAX - if policy.entropy_label { ENTROPY_ENTRIES } else { 0 };
            if list.labels.len() > most {
                let message = format!("{} labels are too many", list.labels.len());
                let beside = if policy.entropy_label { " beside the entropy label" } else { "" };
                self.error(&labels, message, format!("keep at most {most}{beside}"));
            }
            for (position, label) in list.labels.iter().enumerate() {
                let is_last = position + 1 == list.labels.len();
                if !(is_last && EXPLICIT_NULLS.contains(label)) {
                    self.label_value(*label, &labels.at(position));
                }
            }
            let is_own = |first: &u32| self.state.labels.iter().any(|own| own.label == *first);
            let beside = [("next_hop", list.next_hop.is_some()), ("port", list.port.is_some())];
            self.udp_tunnel(list.udp.as_ref(), &beside, &key);
            if policy.pseudowire.is_some() && list.udp.is_some() {
                let message = "frames of a pseudowire do not go in UDP";
                self.error(&key.at("udp"), message, "write `next_hop:`, or remove the policy's `pseudowire`");
            }
            // Which labels will be learned, nobody knows beforehand; but that none of them ends frames is known.
            let may_be_learned = self.state.learn().is_some() && policy.pseudowire.is_none();
            let starts_here = list.labels.first().is_some_and(is_own) || may_be_learned;
            match (list.next_hop, starts_here) {
                _ if list.udp.is_some() => {}
                (None, false) => {
                    let message = "nothing says which neighbour knows the first label, and it is none of this node's";
                    self.error(&key, message, "add `next_hop:` with its address, or the label to `labels:`");
                }
                (None, true) if list.port.is_some() => {
                    let message = "there is no `next_hop` on that link: the first label is this node's own";
                    self.error(&key.at("port"), message, "remove it, or add `next_hop:`");
                }
                _ => {}
            }
            self.label_next_hop(list.next_hop, list.port.as_deref(), &key);
            if list.next_hop.is_none() && list.udp.is_none() {
                self.all_written(policy, list, &labels);
                self.ends_here(policy.pseudowire, &list.labels, &labels);
            }
        }
    }

    /// Frames must not get to a label that is learned: behind it there are packets.
    fn all_written(&mut self, policy: &Policy, list: &SegmentList, key: &KeyPath) {
        if policy.pseudowire.is_none() || self.state.learn().is_none() {
            return;
        }
        let unknown =
            list.labels.iter().skip(1).find(|label| !self.state.labels.iter().any(|own| own.label == **label));
        if let Some(label) = unknown {
            let message =
                format!("the label {label} may be one that is learned, behind which there are packets, not frames");
            self.error(key, message, "add `next_hop:`, or the label to `labels:`");
        }
    }

    /// A list of SIDs has nothing that only labels have.
    pub(super) fn no_labels(&mut self, list: &SegmentList, mode: HeadendMode, key: &KeyPath) {
        let given = [
            ("labels", !list.labels.is_empty()),
            ("next_hop", list.next_hop.is_some()),
            ("port", list.port.is_some()),
            ("udp", list.udp.is_some()),
        ];
        for (parameter, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            let message = format!("a list of a policy of mode {} does not take the key {parameter:?}", mode.name());
            self.error(&key.at(parameter), message, "remove it, or write `mode: PUSH`");
        }
    }
}
