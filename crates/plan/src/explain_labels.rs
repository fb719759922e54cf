//! The same where labels lead.

use segue_model::owner::Direction;

use crate::chain::{Course, Part};
use crate::explain::{Step, order};
use crate::labels::LabelSegment;
use crate::plan::StepAction;
use crate::planner::Planner;

impl Planner<'_> {
    /// How the traffic of a part goes, for people. `pushed`: the stack, and the neighbours that take it, if some do.
    pub(crate) fn explain_labels(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        (labels, towards): (Vec<u32>, Option<String>),
        segments: &[LabelSegment],
    ) -> Vec<Step> {
        let entropy = if self.ends_with_entropy(part) { ", and an entropy label behind them all" } else { "" };
        let entrance = match self.hairpin(part.from, &course.policy(direction, part.number)) {
            Some(hairpin) if part.number > 0 => {
                format!("what comes in by the port {} is what the table of the SID before has sent there", hairpin.port)
            }
            _ => self.entrance(course, direction, part),
        };
        let order = order(course, direction, part);
        let why = format!("{entrance}; {order}, each with the label of its node in front{entropy}");
        let mut here = part.from;
        let name = self.node_name(here).to_owned();
        let mut steps = vec![(here, StepAction::Push { labels, towards }, why, vec![name])];
        for segment in segments {
            let (names, way) = self.label_reach.way(here, segment.node, |node| self.node_name(node));
            let LabelSegment { labels, behaviour, function, why, .. } = segment.clone();
            let action = StepAction::Label { labels, behaviour, function };
            steps.push((segment.node, action, format!("{why}; {way}"), names));
            here = segment.node;
        }
        steps
    }
}
