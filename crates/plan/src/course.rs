//! One chain after the other: its segments, then what its nodes do.

use std::net::Ipv6Addr;

use segue_model::limits::{HEADROOM_MAX, SEGMENTS_MAX};
use segue_model::node::SegmentList;
use segue_model::owner::Direction;
use segue_model::topology::Dataplane;

use crate::approach::Approach;
use crate::chain::{Course, Part};
use crate::explain::Step;
use crate::graph::UDP_OCTETS;
use crate::planner::Planner;
use crate::segment::Segment;

impl Planner<'_> {
    pub(crate) fn course(&mut self, course: &Course<'_>) {
        for direction in course.directions() {
            self.direction(course, *direction);
        }
    }

    fn direction(&mut self, course: &Course<'_>, direction: Direction) {
        let mut steps = Vec::new();
        for part in course.parts(direction) {
            let of_part = match part.by_labels {
                true => self.part_by_labels(course, direction, part),
                false => self.part_by_sids(course, direction, part),
            };
            let Some(of_part) = of_part else { return };
            let policy = course.policy(direction, part.number);
            steps.extend(of_part.into_iter().map(|step| (policy.clone(), step)));
        }
        self.explained(course, direction, steps);
    }

    fn part_by_sids(&mut self, course: &Course<'_>, direction: Direction, part: &Part) -> Option<Vec<Step>> {
        let segments = self.segments(course, direction, part);
        if !self.check_path(course, direction, part, &segments) {
            return None;
        }
        let list: Vec<Ipv6Addr> = segments.iter().map(|segment| segment.sid).collect();
        for (position, segment) in segments.iter().enumerate() {
            let Some(name) = &segment.function else { continue };
            let Some(function) = self.inventory.functions.get(name) else { continue };
            if self.approach(name).is_none_or(Approach::is_shared) {
                continue;
            }
            let at = (segment.node, segment.sid);
            let sid = self.own_sid(course, direction, (name, function), at, &list[position + 1..]);
            self.nodes[segment.node].sids.extend(sid);
        }
        match self.dataplane(part.from) {
            Dataplane::Segue => {
                let list = SegmentList::of_sids(1, list);
                self.headend(course, direction, part, course.mode(), list);
            }
            Dataplane::Kernel => self.kernel_headend(course, direction, &segments),
            // Refused when the chain's ends were resolved.
            Dataplane::Plain => return None,
        }
        Some(self.explain(course, direction, part, &segments))
    }

    /// Whether the list fits and every segment can be reached.
    fn check_path(&mut self, course: &Course<'_>, direction: Direction, part: &Part, segments: &[Segment]) -> bool {
        let key = course.key.at("via");
        if segments.len() > SEGMENTS_MAX {
            let message = format!(
                "{} functions and waypoints and the egress make {} segments; at most {SEGMENTS_MAX} fit, because the outer \
                 header goes into the {} octets of headroom of an XDP frame",
                part.stops.len(),
                segments.len(),
                HEADROOM_MAX
            );
            self.error(&key, message, "visit fewer");
            return false;
        }
        let overhead = course.mode().overhead(segments.len());
        let nodes = segments.iter().map(|segment| segment.node);
        self.check_links(course, direction, part, nodes, (overhead, &format!("{} segments", segments.len())))
    }

    /// Whether each node can be reached from the one before it, with `overhead` octets of `header` in front of the least that must pass.
    pub(crate) fn check_links(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        nodes: impl Iterator<Item = usize>,
        (overhead, header): (usize, &str),
    ) -> bool {
        let key = course.key.at("via");
        let mut here = part.from;
        for node in nodes {
            let names = [here, node].map(|node| self.node_name(node));
            let reach = self.reach_by(part.by_labels);
            if !reach.reaches(here, node) {
                let message = format!("no links lead from {} to {} ({direction})", names[0], names[1]);
                self.error(&key, message, "add the missing link to `links`");
                return false;
            }
            let (least, what) = course.least(direction);
            let needed = least.saturating_add(u32::try_from(overhead).unwrap_or(u32::MAX));
            if let Some(mtu) = reach.mtu(here, node).filter(|mtu| *mtu < needed) {
                let (beside, more) = match reach.tunnel_between(here, node) {
                    Some(_) => (format!(", without the {UDP_OCTETS} that UDP takes,"), UDP_OCTETS),
                    None => (String::new(), 0),
                };
                let message = format!(
                    "the MTU of {mtu} octets between {} and {}{beside} is too small ({direction}): {what} takes {needed} with {header}",
                    names[0], names[1],
                );
                self.error(&key, message, format!("raise the links' MTU to {} or more", needed.saturating_add(more)));
                return false;
            }
            here = node;
        }
        true
    }
}
