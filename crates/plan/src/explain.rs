//! Each step of a chain's way, and why it is as it is.

use std::net::Ipv6Addr;

use segue_model::owner::Direction;
use segue_model::topology::Dataplane;

use crate::chain::{Course, Part};
use crate::plan::{Explanation, StepAction};
use crate::planner::Planner;
use crate::segment::Segment;

/// A step of a part: node, what happens there, why, and the way there.
pub(crate) type Step = (usize, StepAction, String, Vec<String>);

impl Planner<'_> {
    /// How the traffic of a part goes, for people.
    pub(crate) fn explain(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        segments: &[Segment],
    ) -> Vec<Step> {
        let list: Vec<Ipv6Addr> = segments.iter().map(|segment| segment.sid).collect();
        let mut here = part.from;
        let why = match part.number {
            0 => format!("{}; {}", self.entrance(course, direction, part), order(course, direction, part)),
            _ => format!(
                "what the binding label leads into this policy is put into an outer header here, as at a headend; {}",
                order(course, direction, part)
            ),
        };
        let mode = course.mode();
        let name = self.node_name(here).to_owned();
        let mut steps = vec![(here, StepAction::Headend { mode, segments: list }, why, vec![name])];
        for segment in segments {
            let (names, way) = self.reach.way(here, segment.node, |node| self.node_name(node));
            let Segment { sid, behaviour, function, why, .. } = segment.clone();
            steps.push((
                segment.node,
                StepAction::Segment { sid, behaviour, function },
                format!("{why}; {way}"),
                names,
            ));
            here = segment.node;
        }
        steps
    }

    /// Where traffic comes in, and how it is told from other.
    pub(crate) fn entrance(&self, course: &Course<'_>, direction: Direction, part: &Part) -> String {
        let (from, to) = course.ends(direction);
        if course.has_frames() {
            return self.entrance_of_frames(course, direction, part);
        }
        let who = match self.dataplane(part.from) {
            Dataplane::Kernel => "by a kernel route, that is by destination alone",
            _ if course.definition.matching.is_any() => "by destination and source prefix",
            _ => "by destination and source prefix and what `match` says",
        };
        let node = self.node_name(part.from);
        format!(
            "traffic from {} to {} enters the SR domain at {node} and is classified there {who}",
            from.label, to.label
        )
    }

    /// Adds the steps of one direction, each with the policy whose list leads there.
    pub(crate) fn explained(&mut self, course: &Course<'_>, direction: Direction, steps: Vec<(String, Step)>) {
        for (step, (policy, (node, action, why, path))) in steps.into_iter().enumerate() {
            let node = self.node_name(node).to_owned();
            let (chain, family) = (course.chain.to_owned(), course.family());
            self.explanations.push(Explanation { chain, direction, family, policy, step, node, action, path, why });
        }
    }
}

/// What the list of a part has.
pub(crate) fn order(course: &Course<'_>, direction: Direction, part: &Part) -> String {
    let end = if part.is_last { "the egress" } else { "the node where the next part begins" };
    let which = if part.stops.len() == course.stops.len() { "the functions" } else { "functions of this part" };
    match (direction, part.stops.len()) {
        (_, 0) => format!("no function is visited, so the list has only {end}"),
        (Direction::Forward, _) => format!("the list has {which} in the order of `via`, then {end}"),
        (Direction::Reverse, _) => format!("the list has {which} in the opposite order of `via`, then {end}"),
    }
}
