//! The same where labels lead.

use segue_model::owner::Direction;

use crate::chain::Course;
use crate::explain::order;
use crate::labels::LabelSegment;
use crate::plan::{Explanation, StepAction};
use crate::planner::Planner;

impl Planner<'_> {
    /// How the traffic of one direction goes, for people. `pushed`: the stack, and the neighbours that take it, if some do.
    pub(crate) fn explain_labels(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        (from, ingress): (&str, usize),
        to: &str,
        (labels, towards): (Vec<u32>, Option<String>),
        segments: &[LabelSegment],
    ) {
        let node_name = self.node_name(ingress).to_owned();
        let who = match course.definition.matching.is_any() {
            true => "by destination and source prefix",
            false => "by destination and source prefix and what `match` says",
        };
        let order = order(course, direction);
        let (_, last) = course.ends(direction);
        let entropy = if self.ends_with_entropy(last.node) { ", and an entropy label behind them all" } else { "" };
        let why = format!(
            "traffic from {from} to {to} enters the SR domain at {node_name} and is classified there {who}; {order}, each with the label \
             of its node in front{entropy}"
        );
        let mut here = ingress;
        let mut steps = vec![(ingress, StepAction::Push { labels, towards }, why, vec![node_name])];
        for segment in segments {
            let (names, way) = self.reach.way(here, segment.node, |node| self.node_name(node));
            let LabelSegment { labels, behaviour, function, why, .. } = segment.clone();
            let action = StepAction::Label { labels, behaviour, function };
            steps.push((segment.node, action, format!("{why}; {way}"), names));
            here = segment.node;
        }
        self.explained(course, direction, steps);
    }

    /// Adds the steps of one direction: node, what happens there, why, and the way there.
    pub(crate) fn explained(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        steps: Vec<(usize, StepAction, String, Vec<String>)>,
    ) {
        for (step, (node, action, why, path)) in steps.into_iter().enumerate() {
            let node = self.node_name(node).to_owned();
            let (chain, policy) = (course.chain.to_owned(), course.policy(direction));
            self.explanations.push(Explanation { chain, direction, policy, step, node, action, path, why });
        }
    }
}
