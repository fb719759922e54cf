//! Chains of Ethernet frames, from the port of one customer to that of another: by SIDs H.Encaps.L2 and End.DX2, by labels pseudowires (RFC 4448).

use segue_model::label::{Label, LabelBehaviour, Pseudowire};
use segue_model::node::{Behaviour, Sid, SteeringRule};
use segue_model::owner::Direction;

use crate::address;
use crate::chain::{Course, Part};
use crate::labels::{LabelSegment, local_label};
use crate::plan::LabelEntry;
use crate::planner::Planner;
use crate::segment::Segment;
use crate::sid::local_sid;

impl Planner<'_> {
    /// What is between the labels and the frames of a course, if it carries some.
    pub(crate) fn control_word(&self, course: &Course<'_>) -> Option<Pseudowire> {
        course.definition.ethernet.map(|ethernet| Pseudowire { control_word: ethernet.control_word.unwrap_or(true) })
    }

    /// All frames of the port go into the policy; no rule steers anything.
    pub(crate) fn frames_in(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        node: usize,
        policy: &str,
    ) -> Vec<SteeringRule> {
        let (from, _) = course.ends(direction);
        self.nodes[node].frames.extend(from.port.clone().map(|port| (port, policy.to_owned())));
        Vec::new()
    }

    /// The SID whose frames go out of the port of a course's end.
    pub(crate) fn frames_out(&mut self, course: &Course<'_>, direction: Direction) -> Option<Segment> {
        let (_, to) = course.ends(direction);
        let (node, port) = (to.node, to.port.clone()?);
        let sid = address::sid(self.locator(node), self.function_number(node, course));
        let why = self.why_out(course, direction, "the outer header");
        self.nodes[node].sids.push(Sid {
            port: Some(port),
            owner: Some(course.owner(direction)),
            ..local_sid(sid, Behaviour::EndDx2, format!("frames to {}", to.label))
        });
        Some(Segment { node, sid, behaviour: Behaviour::EndDx2, function: None, why })
    }

    /// The same for the label of a pseudowire, and the one of the node in front.
    pub(crate) fn pseudowire(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        here: usize,
    ) -> Option<LabelSegment> {
        let (_, to) = course.ends(direction);
        let (node, port) = (to.node, to.port.clone()?);
        let own = self.next_label(node, course)?;
        let mut labels = self.way_label(here, node);
        labels.push(own);
        let Pseudowire { control_word } = self.control_word(course)?;
        let label = Label {
            port: Some(port),
            control_word: Some(control_word),
            owner: Some(course.owner(direction)),
            ..local_label(own, LabelBehaviour::Pseudowire, format!("frames to {}", to.label))
        };
        self.nodes[node].labels.push(LabelEntry { label, towards: None });
        let word = match control_word {
            true => {
                "; a control word is in front of each, so that no router on the way takes it for an IP packet and divides what belongs together (RFC 8469)"
            }
            false => {
                "; no control word is in front of them, as `control_word` says, so that routers on the way may take them for IP packets (RFC 4928)"
            }
        };
        let why = self.why_out(course, direction, "the last label") + word;
        Some(LabelSegment { node, labels, behaviour: LabelBehaviour::Pseudowire, function: None, why })
    }

    fn why_out(&self, course: &Course<'_>, direction: Direction, header: &str) -> String {
        let (_, to) = course.ends(direction);
        format!(
            "{} is at {}, which takes {header} off and sends frames out of the port {} as they came in",
            to.label,
            self.node_name(to.node),
            to.port.as_deref().unwrap_or_default()
        )
    }

    /// Where frames come in, and that nothing is told apart.
    pub(crate) fn entrance_of_frames(&self, course: &Course<'_>, direction: Direction, part: &Part) -> String {
        let (from, to) = course.ends(direction);
        format!(
            "all frames that come in by the port {} of {}, from {}, go to {}, and nothing else is done with them",
            from.port.as_deref().unwrap_or_default(),
            self.node_name(part.from),
            from.label,
            to.label
        )
    }

    /// Whether no tunnel is on the way of frames: a headend puts none into UDP.
    pub(crate) fn check_no_frames_in_udp(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        part: &Part,
        nodes: &[usize],
    ) -> bool {
        let mut here = part.from;
        for node in nodes.iter().copied().filter(|_| course.has_frames()) {
            let tunnel = self.label_reach.tunnel_between(here, node);
            if let Some(tunnel) = tunnel.and_then(|tunnel| self.inventory.tunnels.get(tunnel)) {
                let [a, b] = &tunnel.between;
                let message =
                    format!("Ethernet frames do not go in UDP, as labels do between {a} and {b} ({direction})");
                let remedy = "lead the chain around by waypoints, or let SIDs lead (`sr_dataplane: srv6`)";
                self.error(&course.key.at("ethernet"), message, remedy);
                return false;
            }
            here = node;
        }
        true
    }
}
