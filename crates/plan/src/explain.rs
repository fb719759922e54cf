//! Each step of a chain's way, and why it is as it is.

use std::net::Ipv6Addr;

use segue_model::owner::Direction;
use segue_model::topology::Dataplane;

use crate::chain::Course;
use crate::plan::StepAction;
use crate::planner::Planner;
use crate::segment::Segment;

impl Planner<'_> {
    /// How the traffic of one direction goes, for people.
    pub(crate) fn explain(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        (from, ingress): (&str, usize),
        to: &str,
        segments: &[Segment],
    ) {
        let list: Vec<Ipv6Addr> = segments.iter().map(|segment| segment.sid).collect();
        let mut here = ingress;
        let node_name = self.node_name(ingress).to_owned();
        let order = order(course, direction);
        let who = match self.dataplane(ingress) {
            Dataplane::Kernel => "by a kernel route, that is by destination alone",
            _ if course.definition.matching.is_any() => "by destination and source prefix",
            _ => "by destination and source prefix and what `match` says",
        };
        let why = format!(
            "traffic from {from} to {to} enters the SR domain at {node_name} and is classified there {who}; {order}"
        );
        let mode = course.definition.mode;
        let mut steps = vec![(ingress, StepAction::Headend { mode, segments: list }, why, vec![node_name])];
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
        self.explained(course, direction, steps);
    }
}

/// What the list of a direction has.
pub(crate) fn order(course: &Course<'_>, direction: Direction) -> &'static str {
    match (direction, course.stops.len()) {
        (_, 0) => "no function is visited, so the list has only the egress",
        (Direction::Forward, _) => "the list has the functions in the order of `via`, then the egress",
        (Direction::Reverse, _) => "the list has the functions in the opposite order of `via`, then the egress",
    }
}
