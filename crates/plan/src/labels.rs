//! The same by labels (RFC 8660): the node segments of all nodes that have labels on each, a table at each egress, and the stacks of chains.

use segue_model::label::{ENTROPY_ENTRIES, ENTRY_OCTETS, LABELS_MAX, Label, LabelBehaviour, Pseudowire};
use segue_model::node::{HeadendMode, SegmentList};
use segue_model::owner::Direction;

use crate::chain::{Course, Part, Stop};
use crate::explain::Step;
use crate::plan::LabelEntry;
use crate::planner::Planner;

/// Where in a node's block the label of its main table is.
const TABLE: u32 = 0;

/// What labels lead to, with what explains it.
#[derive(Clone)]
pub(crate) struct LabelSegment {
    pub(crate) node: usize,
    /// The node's, unless packets are there already, and then the one that says what happens.
    pub(crate) labels: Vec<u32>,
    pub(crate) behaviour: LabelBehaviour,
    pub(crate) function: Option<String>,
    pub(crate) why: String,
}

impl Planner<'_> {
    /// What a node does with the node segments of all that it reaches: the last one before a node takes that one's label off, so that it
    /// need not look at two.
    pub(crate) fn node_labels(&mut self, node: usize) {
        if self.inventory.nodes[node].labels.is_none() {
            return;
        }
        for there in 0..self.inventory.nodes.len() {
            let Some(labels) = self.inventory.nodes[there].labels else { continue };
            let name = self.node_name(there);
            let next = self.label_reach.first_hop(node, there);
            let udp = self.in_udp(node, there);
            // As good ways by nodes in between need the label: then those that lead there at once are paths without it.
            let all = self.label_reach.first_hops(node, there);
            let (behaviour, comment) = match next {
                _ if there == node => (LabelBehaviour::Node, format!("node {name}, this one")),
                Some(_) if all.iter().all(|next| *next == there) => {
                    (LabelBehaviour::Pop, format!("node {name}, the next one"))
                }
                Some(_) => (LabelBehaviour::Swap, format!("node {name}, by {}", self.names_of(&all))),
                None => continue,
            };
            let comment = if udp.is_some() { format!("{comment}, in UDP") } else { comment };
            let towards = next.filter(|_| udp.is_none()).map(|next| self.node_name(next).to_owned());
            let label = Label { udp, ..local_label(labels.node, behaviour, comment) };
            self.nodes[node].labels.push(LabelEntry { label, towards });
        }
    }

    pub(crate) fn part_by_labels(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
    ) -> Option<Vec<Step>> {
        let segments = self.label_segments(course, direction, part);
        let list: Vec<u32> = segments.iter().flat_map(|segment| segment.labels.iter().copied()).collect();
        if !self.check_stack(course, direction, part, &segments, &list) {
            return None;
        }
        let from = part.from;
        self.own_labels(course, direction, &segments, &list);
        let first = segments.iter().find(|segment| !segment.labels.is_empty())?;
        let towards = self.label_reach.first_hop(from, first.node).map(|next| self.node_name(next).to_owned());
        if towards.is_none() && first.node != from {
            return None;
        }
        let udp = self.in_udp(from, first.node);
        let in_udp = udp.is_some();
        let pushed =
            SegmentList { weight: 1, segments: Vec::new(), labels: list.clone(), next_hop: None, port: None, udp };
        let before = self.nodes[from].policies.len();
        self.headend(course, direction, part, HeadendMode::Push, pushed);
        let entropy_label = self.ends_with_entropy(part);
        let made = self.nodes[from].policies.iter_mut().skip(before);
        made.for_each(|policy| policy.entropy_label = entropy_label);
        let towards = towards.map(|towards| {
            if in_udp {
                return format!("{towards} in UDP");
            }
            self.nodes[from].towards.insert(course.policy(direction, part.number), towards);
            self.names_of(&self.label_reach.first_hops(from, first.node))
        });
        Some(self.explain_labels(course, direction, part, (list, towards), &segments))
    }

    /// Neighbours of which each flow takes one.
    fn names_of(&self, nodes: &[usize]) -> String {
        nodes.iter().map(|node| self.node_name(*node)).collect::<Vec<_>>().join(" or ")
    }

    fn label_segments(&mut self, course: &Course<'_>, direction: Direction, part: &Part) -> Vec<LabelSegment> {
        let mut here = part.from;
        let mut segments = Vec::new();
        for stop in part.stops(course, direction) {
            let node = stop.node();
            let labels = self.way_label(here, node);
            segments.extend(match stop {
                Stop::Waypoint { .. } => {
                    let name = self.node_name(node);
                    let why = match labels.is_empty() {
                        false => {
                            format!("the chain names {name} as a waypoint; its label is off when packets get there")
                        }
                        true => format!("the chain names {name} as a waypoint, and packets are there already"),
                    };
                    Some(LabelSegment { node, labels, behaviour: LabelBehaviour::Node, function: None, why })
                }
                Stop::Function { name, .. } => self.label_of_function(course, direction, name, (here, node)),
            });
            here = node;
        }
        segments.extend(match part.is_last {
            true if course.has_frames() => self.pseudowire(course, direction, here),
            true => Some(self.label_egress(course, direction, here)),
            false => self.crossing_label(course, direction, part, here),
        });
        segments
    }

    /// The label that leads from one node to another; none is needed where they are the same.
    pub(crate) fn way_label(&self, from: usize, to: usize) -> Vec<u32> {
        self.inventory.nodes[to].labels.filter(|_| from != to).map(|labels| labels.node).into_iter().collect()
    }

    /// Whether a part has an entropy label: if its last node says so. What ends at a binding label has none, behind which all labels would stay.
    pub(crate) fn ends_with_entropy(&self, part: &Part) -> bool {
        part.is_last && self.inventory.nodes[part.to].labels.is_some_and(|labels| labels.entropy)
    }

    fn label_egress(&mut self, course: &Course<'_>, direction: Direction, here: usize) -> LabelSegment {
        let (_, to) = course.ends(direction);
        let node = to.node;
        let own = self.own_label(node, TABLE);
        if self.nodes[node].labels.iter().all(|entry| entry.label.label != own) {
            let label = local_label(own, LabelBehaviour::Table, "egress of chains".to_owned());
            self.nodes[node].labels.push(LabelEntry { label, towards: None });
        }
        let mut labels = self.way_label(here, node);
        labels.push(own);
        let why = format!(
            "{} is at {}, which takes the last label off; it says the main routing table, of IPv4 and IPv6",
            to.label,
            self.node_name(node)
        );
        LabelSegment { node, labels, behaviour: LabelBehaviour::Table, function: None, why }
    }

    /// A label of a node's own block.
    pub(crate) fn own_label(&self, node: usize, number: u32) -> u32 {
        self.inventory.nodes[node].labels.map_or(0, |labels| labels.block.low().saturating_add(number))
    }

    /// Whether the stack fits, and every node of it can be reached.
    fn check_stack(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        segments: &[LabelSegment],
        list: &[u32],
    ) -> bool {
        let key = course.key.at("via");
        let entropy = if self.ends_with_entropy(part) { ENTROPY_ENTRIES } else { 0 };
        let beside = if entropy == 0 { "" } else { " and an entropy label" };
        if list.len() + entropy > LABELS_MAX {
            let message = format!(
                "the chain takes {} labels{beside} ({direction}); a stack has at most {}",
                list.len(),
                LABELS_MAX - entropy
            );
            self.error(&key, message, "visit fewer functions and waypoints");
            return false;
        }
        let word = self.control_word(course);
        let octets = ENTRY_OCTETS * (list.len() + entropy) + word.map_or(0, Pseudowire::octets);
        let with_word = if word.is_some_and(|word| word.control_word) { " and a control word" } else { "" };
        let nodes: Vec<usize> = segments.iter().map(|segment| segment.node).collect();
        let header = format!("{} labels{beside}{with_word}", list.len());
        self.check_links(course, direction, part, nodes.iter().copied(), (octets, &header))
            && self.check_no_frames_in_udp(course, direction, part, &nodes)
    }
}

/// A label with nothing but what every label has.
pub(crate) fn local_label(label: u32, behaviour: LabelBehaviour, comment: String) -> Label {
    Label {
        label,
        behaviour,
        out: None,
        paths: Vec::new(),
        udp: None,
        next_hop: None,
        next_hop_mac: None,
        port: None,
        control_word: None,
        table: None,
        proxy: None,
        netfilter: None,
        policy: None,
        firewall: None,
        comment: Some(comment),
        owner: None,
        learned: false,
    }
}
