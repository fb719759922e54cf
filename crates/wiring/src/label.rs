//! Labels: names such as `$nfv1`, `$nfv1.firewall` and `$chain.web` for addresses, SIDs and segment lists of a lab, so that commands, tests
//! and captures need not know which ones the planner chose.

use std::fmt;

use indexmap::IndexMap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use segue_model::near::nearest;
use segue_model::owner::{AddressFamily, Direction};
pub use segue_model::topology::LABEL;
use segue_plan::{Explanation, StepAction};

use crate::plan::{Interface, LabPlan};

/// What a label stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// A node's loopback address.
    Node,
    /// A node's locator.
    Locator,
    /// A host's address.
    Host,
    /// An address of a function's own.
    Function,
    /// An address of an interface.
    Interface,
    /// A SID.
    Sid,
    /// A label of a stack.
    Mpls,
    /// A chain's segment list, or its stack of labels.
    Chain,
}

/// One label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// With its `$`.
    pub label: String,
    /// What it stands for.
    pub kind: LabelKind,
    /// What is put in its place: an address, a prefix, a label of a stack, or a list of segments in the order of traversal with commas.
    pub value: String,
    /// The same for people.
    pub about: String,
}

/// All labels of a lab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Vec<Label>);

/// A label that cannot be put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelError {
    /// It names nothing.
    Unknown {
        /// With its `$`.
        label: String,
        /// Labels that look like it.
        near: Vec<String>,
    },
    /// It could mean several things.
    Ambiguous {
        /// With its `$`.
        label: String,
        /// The labels that say which one.
        exact: Vec<String>,
    },
}

impl fmt::Display for LabelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { label, near } if near.is_empty() => {
                write!(formatter, "the label {label} is not known; `segue lab labels` lists all, and $$ is a $")
            }
            Self::Unknown { label, near } => {
                write!(formatter, "the label {label} is not known; did you mean {}? ($$ is a $)", near.join(" or "))
            }
            Self::Ambiguous { label, exact } => {
                write!(formatter, "the label {label} stands for several; write one of {}", exact.join(", "))
            }
        }
    }
}

impl std::error::Error for LabelError {}

impl Labels {
    /// The labels of a plan.
    pub fn of(plan: &LabPlan) -> Self {
        let mut list = List::default();
        for (name, node) in &plan.nodes {
            list.add(name, LabelKind::Node, node.loopback, format!("loopback address of node {name}"));
            list.add(&format!("{name}.locator"), LabelKind::Locator, node.locator, format!("locator of node {name}"));
        }
        for (name, host) in &plan.hosts {
            let addresses: Vec<String> = [host.ipv6().map(|a| a.to_string()), host.ipv4().map(|a| a.to_string())]
                .into_iter()
                .flatten()
                .collect();
            if let Some(first) = addresses.first() {
                list.add(name, LabelKind::Host, first, format!("address of host {name}"));
            }
            for address in &addresses {
                let family = if address.contains(':') { "ipv6" } else { "ipv4" };
                list.add(
                    &format!("{name}.{family}"),
                    LabelKind::Host,
                    address,
                    format!("address of host {name} in this family"),
                );
            }
        }
        // Before interfaces: a function's name is its SID's rather than that of an interface to it.
        list.sids(plan.explain());
        list.chains(plan.explain());
        for (name, function) in plan.functions.iter().filter(|(_, function)| function.has_namespace()) {
            if let Some(address) = function.interfaces.iter().find_map(address) {
                list.add(name, LabelKind::Function, address, format!("address of function {name} itself"));
            }
            list.interfaces(name, &function.interfaces);
        }
        for (name, node) in &plan.nodes {
            list.interfaces(name, &node.interfaces);
        }
        Self(list.labels.into_values().collect())
    }

    /// All of them, nodes first.
    pub fn list(&self) -> &[Label] {
        &self.0
    }

    /// The label of this name, which begins with `$`.
    ///
    /// # Errors
    /// If there is none, or it is not exact enough.
    pub fn find(&self, label: &str) -> Result<&Label, LabelError> {
        if let Some(found) = self.0.iter().find(|one| one.label == label) {
            return Ok(found);
        }
        let below = format!("{label}.");
        let exact: Vec<String> =
            self.0.iter().map(|one| &one.label).filter(|one| one.starts_with(&below)).cloned().collect();
        if !exact.is_empty() {
            return Err(LabelError::Ambiguous { label: label.to_owned(), exact });
        }
        let near = nearest(label, self.0.iter().map(|one| one.label.as_str()), 3);
        Err(LabelError::Unknown { label: label.to_owned(), near: near.into_iter().map(str::to_owned).collect() })
    }

    /// The label, without its `$`, of an address: that of a SID or of a node before others.
    #[must_use]
    pub fn name_of(&self, address: std::net::IpAddr) -> Option<String> {
        let is =
            |label: &&Label| label.value.split(['/', ',']).next().and_then(|text| text.parse().ok()) == Some(address);
        let rank = |label: &&Label| match label.kind {
            LabelKind::Node => 0,
            LabelKind::Sid => 1,
            LabelKind::Locator | LabelKind::Chain => 9,
            _ => 2,
        };
        let found = self.0.iter().filter(is).min_by_key(rank).filter(|label| rank(label) < 9)?;
        Some(found.label.trim_start_matches('$').to_owned())
    }

    /// The text with the value of each label in its place. A label is `$` and names that begin with a lower-case letter, with points between them, or the
    /// same in braces (`${server}`) where more letters follow; `$$` is a `$`; a `$` before anything else is left alone.
    ///
    /// # Errors
    /// The first label that is not known.
    pub fn resolve(&self, text: &str) -> Result<String, LabelError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(LABEL) {
            out.push_str(&rest[..at]);
            let after = &rest[at + LABEL.len_utf8()..];
            if let Some(behind) = after.strip_prefix(LABEL) {
                out.push(LABEL);
                rest = behind;
            } else if let Some((name, behind)) = label_at(after) {
                out.push_str(&self.find(&format!("{LABEL}{name}"))?.value);
                rest = behind;
            } else {
                out.push(LABEL);
                rest = after;
            }
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// The name that a text behind a `$` begins with, and what follows it.
fn label_at(text: &str) -> Option<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('{') {
        let (name, behind) = inside.split_once('}')?;
        let (whole, rest) = bare(name)?;
        return rest.is_empty().then_some((whole, behind));
    }
    bare(text)
}

fn bare(text: &str) -> Option<(&str, &str)> {
    let part = |text: &str| {
        let length =
            text.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')).unwrap_or(text.len());
        text.starts_with(|c: char| c.is_ascii_lowercase()).then_some(length)
    };
    let mut end = part(text)?;
    // A point that no name follows ends a sentence.
    while let Some(next) = text[end..].strip_prefix('.').and_then(part) {
        end += 1 + next;
    }
    Some(text.split_at(end))
}

/// The address that a function or an interface is known by: IPv6 if there is one.
fn address(interface: &Interface) -> Option<std::net::IpAddr> {
    let addresses = || interface.addresses.iter().map(IpNet::addr);
    addresses().find(std::net::IpAddr::is_ipv6).or_else(|| addresses().next())
}

#[derive(Default)]
struct List {
    labels: IndexMap<String, Label>,
}

/// A value that belongs to one direction of one chain, perhaps in one address family only.
struct OfChain {
    label: String,
    value: String,
    about: String,
    direction: Direction,
}

impl List {
    /// The first of a name stays.
    fn add(&mut self, name: &str, kind: LabelKind, value: impl ToString, about: String) {
        let label = format!("{LABEL}{name}");
        let value = value.to_string();
        self.labels.entry(label.clone()).or_insert(Label { label, kind, value, about });
    }

    fn interfaces(&mut self, owner: &str, interfaces: &[Interface]) {
        for interface in interfaces {
            let Some(address) = address(interface) else { continue };
            let (name, peer) = (&interface.name, &interface.peer.namespace);
            let about = format!("address of {owner} on its interface {name} to {peer}");
            self.add(&format!("{owner}.{name}"), LabelKind::Interface, address, about);
        }
    }

    /// SIDs, and labels of stacks, by what they are for, and by chain and direction.
    fn sids(&mut self, steps: &[Explanation]) {
        let mut all: IndexMap<String, (LabelKind, Vec<OfChain>)> = IndexMap::new();
        for step in steps {
            let (kind, value, behaviour, function) = match &step.action {
                StepAction::Segment { sid, behaviour, function } => {
                    (LabelKind::Sid, sid.to_string(), behaviour.name().to_owned(), function)
                }
                // A waypoint where packets are already has none.
                StepAction::Label { labels, behaviour, function } => {
                    let Some(own) = labels.last() else { continue };
                    (LabelKind::Mpls, own.to_string(), format!("label ({})", behaviour.name()), function)
                }
                StepAction::Headend { .. } | StepAction::Push { .. } => continue,
            };
            let what = function.clone().unwrap_or_else(|| match &step.action {
                StepAction::Label { behaviour, .. } => behaviour.name().replace('_', "-"),
                _ => behaviour.to_lowercase().replace('.', "-"),
            });
            let base = format!("{}.{what}", step.node);
            let about = match function {
                Some(function) => format!("{behaviour} of node {} to function {function}", step.node),
                None => format!("{behaviour} of node {}", step.node),
            };
            let label = format!("{base}.{}", of_chain(step, false));
            let of_base = all.entry(base).or_insert_with(|| (kind, Vec::new()));
            of_base.1.push(OfChain { label, value, about, direction: step.direction });
        }
        for (base, (kind, list)) in all {
            self.shared(&base, kind, list);
        }
    }

    fn chains(&mut self, steps: &[Explanation]) {
        let mut all: IndexMap<String, Vec<OfChain>> = IndexMap::new();
        for step in steps {
            let (segments, what): (Vec<String>, _) = match &step.action {
                StepAction::Headend { segments, .. } => {
                    (segments.iter().map(ToString::to_string).collect(), "segment list")
                }
                StepAction::Push { labels, .. } => {
                    (labels.iter().map(ToString::to_string).collect(), "stack of labels")
                }
                StepAction::Segment { .. } | StepAction::Label { .. } => continue,
            };
            let about = format!("{what} of chain {}, {}", step.chain, step.direction);
            let label = format!("chain.{}", of_chain(step, true));
            let (value, direction) = (segments.join(","), step.direction);
            all.entry(format!("chain.{}", step.chain)).or_default().push(OfChain { label, value, about, direction });
        }
        for (base, list) in all {
            self.shared(&base, LabelKind::Chain, list);
        }
    }

    /// A short label for what all chains have in common, or the forward direction of the only one; and a long one for each.
    fn shared(&mut self, base: &str, kind: LabelKind, list: Vec<OfChain>) {
        let forward = || list.iter().filter(|one| one.direction == Direction::Forward);
        let candidates: Vec<&OfChain> =
            if forward().next().is_some() { forward().collect() } else { list.iter().collect() };
        if let Some(first) = candidates.first()
            && candidates.iter().all(|one| one.value == first.value)
        {
            self.add(base, kind, &first.value, first.about.clone());
        }
        for one in list {
            self.add(&one.label, kind, one.value, one.about);
        }
    }
}

/// `web`, `web.reverse`, `web.ipv4`, `web.reverse.ipv4`; of a policy behind a crossing `web.part2`, `web.ipv4-part2`.
fn of_chain(step: &Explanation, with_part: bool) -> String {
    let mut label = step.chain.clone();
    if step.direction == Direction::Reverse {
        label.push_str(".reverse");
    }
    let of_policy = step.policy.strip_prefix(&format!("{}-{}-", step.chain, step.direction));
    let suffix = if with_part { of_policy } else { step.family.map(AddressFamily::name) };
    if let Some(suffix) = suffix {
        label.push('.');
        label.push_str(suffix);
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = "
name: x
nodes: { edge1: {}, nfv1: {}, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 }, old: { node: edge2, addresses: [192.0.2.2/24] } }
links: [{ between: [edge1, nfv1] }, { between: [nfv1, edge2] }]
functions: { firewall: { node: nfv1 }, shared: { node: nfv1, proxy: exact } }
chains:
  web: { from: client, to: server, via: [firewall, shared, \"node:edge1\"] }
  mail: { from: client, to: server, via: [shared], match: { protocol: tcp } }
";

    fn labels() -> Labels {
        Labels::of(&crate::load_plan(TOPOLOGY, "t").unwrap_or_else(|errors| panic!("{errors}")).1)
    }

    fn value(name: &str) -> String {
        labels().find(name).unwrap_or_else(|error| panic!("{error}")).value.clone()
    }

    #[test]
    fn each_kind_has_its_value() {
        assert_eq!(value("$nfv1"), "fc00:5ea:2::1");
        assert_eq!(value("$nfv1.locator"), "fc00:5e9:2::/48");
        assert_eq!(value("$server"), "2001:db8:2::2");
        assert_eq!(value("$server.ipv4"), "10.0.2.2");
        assert_eq!(value("$old"), "192.0.2.2");
        assert_eq!(value("$nfv1.firewall"), "fc00:5e9:2:100::");
        assert_eq!(value("$nfv1.firewall.web.reverse"), "fc00:5e9:2:103::");
        assert_eq!(value("$edge2.end-dt46"), "fc00:5e9:3:46::");
        assert_eq!(value("$edge1.end"), value("$edge1.end.web"));
        assert_eq!(
            value("$chain.web"),
            [value("$nfv1.firewall"), value("$nfv1.shared"), value("$edge1.end"), value("$edge2.end-dt46")].join(",")
        );
        assert!(value("$chain.mail.reverse").ends_with(&value("$edge1.end-dt46")));
        assert_eq!(value("$edge1.nfv1"), "fc00:5eb::1:2:0:0");
        assert_eq!(value("$firewall"), value("$firewall.west"));
    }

    /// Where labels lead, these have names, too; and each part of a chain that crosses.
    #[test]
    fn labels_of_stacks_and_parts_have_names() {
        let crossing =
            TOPOLOGY.replace("edge1: {}, nfv1: {}", "edge1: { sr_dataplane: sr-mpls }, nfv1: { sr_dataplane: both }");
        let (_, plan) = crate::load_plan(&crossing, "t").unwrap_or_else(|errors| panic!("{errors}"));
        let labels = Labels::of(&plan);
        let found = |name: &str| labels.find(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found("$edge1.table").value, "30100");
        let [web, part] = ["$chain.web", "$chain.web.part2"].map(|name| found(name).value.clone());
        assert!(web.split(',').all(|label| label.parse::<u32>().is_ok()), "{web}");
        assert!(part.starts_with(&found("$nfv1.firewall").value) && !part.contains("16002"), "{part}");
        let binding = found("$nfv1.binding.web");
        assert_eq!((binding.kind, Some(binding.value.as_str())), (LabelKind::Mpls, web.split(',').next_back()));
        assert_eq!(labels.resolve("label $edge1.table").unwrap(), "label 30100");
        assert_eq!(labels.name_of("fc00:5e9:2:100::".parse().unwrap()).as_deref(), Some("nfv1.firewall"));
    }

    #[test]
    fn labels_are_put_in_place_in_any_text() {
        let labels = labels();
        let resolve = |text: &str| labels.resolve(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(resolve("ping $server."), "ping 2001:db8:2::2.");
        assert_eq!(resolve("http://[$server]:80/${server.ipv4}x"), "http://[2001:db8:2::2]:80/10.0.2.2x");
        assert_eq!(resolve("$$server $1 $(x) $HOME ${X} a$"), "$server $1 $(x) $HOME ${X} a$");
    }

    #[test]
    fn wrong_labels_are_told_with_those_that_are_near() {
        let labels = labels();
        let error = |label: &str| labels.resolve(label).unwrap_err().to_string();
        assert!(error("x $sevrer").contains("$sevrer is not known; did you mean $server"), "{}", error("$sevrer"));
        assert!(error("$nfv1.fierwall").contains("$nfv1.firewall"), "{}", error("$nfv1.fierwall"));
        assert!(error("$zzzzzzzzzz").contains("`segue lab labels` lists all"), "{}", error("$zzzzzzzzzz"));
    }

    #[test]
    fn what_stands_for_several_says_which() {
        // The two families end at different SIDs of a kernel node.
        let text = "
name: x
nodes: { a: {}, b: { dataplane: kernel } }
hosts: { c: { node: a }, s: { node: b } }
links: [{ between: [a, b] }]
chains: { web: { from: c, to: s, via: [] } }
";
        let labels = Labels::of(&crate::load_plan(text, "t").unwrap_or_else(|errors| panic!("{errors}")).1);
        let error = labels.find("$chain.web").unwrap_err().to_string();
        assert!(error.contains("$chain.web.ipv4, $chain.web.reverse.ipv4, $chain.web.ipv6"), "{error}");
        assert!(labels.find("$chain.web.ipv6").is_ok());
    }
}
