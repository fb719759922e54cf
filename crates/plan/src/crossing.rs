//! Where a chain comes from labels to SIDs, or the other way round: what ends the list of one part and begins that of the next.
//!
//! From labels to SIDs, the last label is a binding label, and its policy the next part's. From SIDs to labels, no behaviour takes the outer
//! header off and steers what is inside anew; so the last SID hands it to a table of its own, which leads it over a hairpin into an access port,
//! where it is steered as at a headend.

use segue_model::label::{Label, LabelBehaviour};
use segue_model::node::{Behaviour, Sid};
use segue_model::owner::Direction;

use crate::address;
use crate::chain::{Course, Part};
use crate::inventory::{Hairpin, Inventory};
use crate::labels::{LabelSegment, local_label};
use crate::plan::LabelEntry;
use crate::planner::Planner;
use crate::segment::Segment;
use crate::sid::local_sid;

/// Where a chain comes from SIDs to labels. Whoever makes the inventory answers it with a [`Hairpin`] of the node, with the same policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// The node.
    pub node: String,
    /// The chain.
    pub chain: String,
    /// The SR policy of labels that packets go on by.
    pub policy: String,
}

/// In the order of chains.
pub(crate) fn of_courses(inventory: &Inventory, courses: &[Course<'_>]) -> Vec<Crossing> {
    let mut found = Vec::new();
    for course in courses {
        for direction in course.directions() {
            for part in course.parts(*direction).iter().filter(|part| !part.by_labels && !part.is_last) {
                let Some((node, _)) = inventory.nodes.get_index(part.to) else { continue };
                found.push(Crossing {
                    node: node.clone(),
                    chain: course.chain.to_owned(),
                    policy: course.policy(*direction, part.number + 1),
                });
            }
        }
    }
    found
}

impl Planner<'_> {
    /// The hairpin by which packets come to a part. It is there: that was checked before.
    pub(crate) fn hairpin(&self, node: usize, policy: &str) -> Option<&Hairpin> {
        self.inventory.nodes[node].hairpins.iter().find(|hairpin| hairpin.policy == policy)
    }

    /// The SID that ends a part before one of labels.
    pub(crate) fn crossing_sid(&mut self, course: &Course<'_>, direction: Direction, part: &Part) -> Option<Segment> {
        let (node, policy) = (part.to, course.policy(direction, part.number + 1));
        let Hairpin { table, port, .. } = self.hairpin(node, &policy)?.clone();
        let sid = address::sid(self.locator(node), self.function_number(node, course));
        let name = self.node_name(node);
        let why = format!(
            "labels lead on from {name}, which takes the outer header off; table {table} sends what is inside round to its port {port}, where \
             packets are steered as at a headend, since no SID's behaviour does both"
        );
        self.nodes[node].sids.push(Sid {
            table: Some(table),
            owner: Some(course.owner(direction)),
            ..local_sid(sid, Behaviour::EndDt46, format!("on by labels: policy {policy}"))
        });
        Some(Segment { node, sid, behaviour: Behaviour::EndDt46, function: None, why })
    }

    /// The labels that end a part before one of SIDs.
    pub(crate) fn crossing_label(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        here: usize,
    ) -> Option<LabelSegment> {
        let (node, policy) = (part.to, course.policy(direction, part.number + 1));
        let own = self.next_label(node, course)?;
        let mut labels = self.way_label(here, node);
        labels.push(own);
        let name = self.node_name(node);
        let why = format!(
            "SIDs lead on from {name}: the last label is a binding label, and packets go on by the policy {policy} that it stands for"
        );
        let label = Label {
            policy: Some(policy.clone()),
            owner: Some(course.owner(direction)),
            ..local_label(own, LabelBehaviour::Binding, format!("on by SIDs: policy {policy}"))
        };
        self.nodes[node].labels.push(LabelEntry { label, towards: None });
        Some(LabelSegment { node, labels, behaviour: LabelBehaviour::Binding, function: None, why })
    }
}
