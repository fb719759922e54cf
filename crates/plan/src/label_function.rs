//! Labels of functions: those of functions that any number of chains share, one for each way through, and those that a chain has for itself.
//! As SIDs have them (`function.rs`); what the function sees has no label, and what is behind its own one in the stack goes back on.

use segue_model::label::Label;
use segue_model::node::{Netfilter, Proxy};
use segue_model::owner::Direction;

use crate::approach::Approach;
use crate::chain::Course;
use crate::function::{own_proxy, shared_proxy, shared_way, through};
use crate::inventory::Function;
use crate::labels::{LabelSegment, local_label};
use crate::leads::behaviour;
use crate::plan::LabelEntry;
use crate::planner::Planner;

impl Planner<'_> {
    /// The labels that lead from one node to a function, its own last. The first visit of a function that chains share adds that one to its
    /// node. None: refused, here or before.
    pub(crate) fn label_of_function(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        name: &str,
        (here, node): (usize, usize),
    ) -> Option<LabelSegment> {
        let plan = self.functions.get(name)?;
        let (approach, behaviour) = (plan.approach, behaviour(plan.approach)?);
        let why = format!("{}; {}", explanation(approach, name, self.node_name(node)), plan.why);
        let own = match approach.is_shared() {
            true => self.shared_label(course, direction, name, node)?,
            false => self.next_label(node, course)?,
        };
        let mut labels = self.way_label(here, node);
        labels.push(own);
        Some(LabelSegment { node, labels, behaviour, function: Some(name.to_owned()), why })
    }

    /// The label of a function that chains share, for one direction of a course.
    fn shared_label(&mut self, course: &Course<'_>, direction: Direction, name: &str, node: usize) -> Option<u32> {
        let function = self.inventory.functions.get(name)?;
        let approach = self.approach(name)?;
        let (way, one_way) = shared_way(function, approach, direction);
        if let Some(known) = self.functions.get(name).and_then(|plan| plan.labels.get(&way)) {
            return Some(*known);
        }
        let number = self.next_label(node, course)?;
        if let Some(plan) = self.functions.get_mut(name) {
            plan.labels.insert(way, number);
        }
        let backup_label = self.backup_label(course, direction, function, node);
        let comment = format!("function {name}, {}", through((way, one_way)));
        let mut label = local_label(number, behaviour(approach)?, comment);
        let (on_failure, watch) = (function.on_failure, function.watch);
        match approach {
            Approach::Firewall => label.firewall = Some(name.to_owned()),
            Approach::Netfilter => {
                label.netfilter = Some(Netfilter { on_failure, watch, backup_label, ..Netfilter::new(name) });
            }
            _ => {
                let (address, proxy) = shared_proxy(function, approach, way)?;
                // Fixed, so that no neighbour lookup is needed.
                label.next_hop_mac = Some(address);
                label.proxy = Some(Proxy { backup_label, ..proxy });
            }
        }
        self.nodes[node].labels.push(LabelEntry { label, towards: None });
        Some(number)
    }

    /// The label of a function's backup. It is on the same node: that was checked before.
    fn backup_label(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        function: &Function,
        node: usize,
    ) -> Option<u32> {
        self.shared_label(course, direction, function.backup.as_deref()?, node)
    }

    /// Adds the labels of proxies that serve one direction of one course, each with what of the stack is behind it.
    pub(crate) fn own_labels(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        segments: &[LabelSegment],
        stack: &[u32],
    ) {
        let mut behind = stack;
        for segment in segments {
            behind = behind.get(segment.labels.len()..).unwrap_or_default();
            let entry = self.own_label_of(course, direction, segment, behind);
            self.nodes[segment.node].labels.extend(entry);
        }
    }

    /// None: no function is visited there, or one that chains share.
    fn own_label_of(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        segment: &LabelSegment,
        behind: &[u32],
    ) -> Option<LabelEntry> {
        let name = segment.function.as_deref()?;
        let function = self.inventory.functions.get(name)?;
        let approach = self.approach(name).filter(|approach| !approach.is_shared())?;
        let (address, proxy) = own_proxy(course, direction, function)?;
        let labels = if approach == Approach::Static { behind.to_vec() } else { Vec::new() };
        let backup_label = self.backup_label(course, direction, function, segment.node);
        let label = Label {
            next_hop_mac: Some(address),
            proxy: Some(Proxy { labels, backup_label, ..proxy }),
            owner: Some(course.owner(direction)),
            ..local_label(*segment.labels.last()?, segment.behaviour, format!("function {name}"))
        };
        Some(LabelEntry { label, towards: None })
    }
}

/// What an approach does, for explanations.
fn explanation(approach: Approach, name: &str, node: &str) -> String {
    let ignorant = format!("{name} on {node} knows nothing of Segment Routing");
    match approach {
        Approach::Static => {
            format!(
                "{ignorant}: the static proxy takes the stack off, and puts the remaining labels back on what returns"
            )
        }
        Approach::Dynamic => format!(
            "{ignorant}: the dynamic proxy takes the stack off, and puts the remaining labels last seen back on what returns"
        ),
        Approach::Flow => format!(
            "{ignorant}: the dynamic proxy takes the stack off, and puts the remaining labels of the flow back on what returns"
        ),
        Approach::Exact => format!(
            "{ignorant}: the exact proxy takes the stack off, and puts each packet's own remaining labels back on, whatever the \
             function did to the packet"
        ),
        Approach::Netfilter => format!(
            "{name} on {node} is netfilter: its hooks see the packet behind the stack, which then goes on by its remaining labels"
        ),
        Approach::Firewall => format!(
            "{name} is a firewall of {node} itself: its rules filter the packet behind the stack where it arrives, and what they \
             accept goes on by the next label"
        ),
        Approach::Aware => format!(
            "{name} on {node} understands Segment Routing: it gets the packet with the remaining labels, and {node} checks that they \
             come back as they were"
        ),
        Approach::Masquerading => format!("{name} on {node} needs a segment routing header"),
    }
}
