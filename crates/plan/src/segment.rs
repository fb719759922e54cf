//! From the stops of a chain to segments, and to the SIDs that nodes have for them.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use segue_model::node::{Behaviour, Sid};
use segue_model::owner::{AddressFamily, Direction};
use segue_model::topology::Dataplane;

use crate::address;
use crate::approach::Approach;
use crate::chain::{Course, Part, Stop};
use crate::function;
use crate::plan::{Encap, KernelEntry, Seg6LocalAction};
use crate::planner::Planner;
use crate::sid::local_sid;

/// Function numbers of SIDs; decimal digits read as written.
const END: u16 = 1;
const END_DX4: u16 = 4;
const END_DT6: u16 = 6;
const END_DT46: u16 = 46;
/// The kernel's main routing table.
const MAIN_TABLE: u32 = 254;

/// A segment with what explains it.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) node: usize,
    pub(crate) sid: Ipv6Addr,
    pub(crate) behaviour: Behaviour,
    pub(crate) function: Option<String>,
    pub(crate) why: String,
}

impl Planner<'_> {
    /// Each node that understands Segment Routing has an End SID, for waypoints. Without flavours: the SRH stays on up to the
    /// egress, so that what is on the wire shows the whole list, and the egress takes it off at no extra cost.
    pub(crate) fn end_sid(&mut self, node: usize) {
        if !self.inventory.nodes[node].sids {
            return;
        }
        let sid = address::sid(self.locator(node), END);
        match self.dataplane(node) {
            Dataplane::Segue => self.nodes[node].sids.push(local_sid(sid, Behaviour::End, "waypoint".into())),
            Dataplane::Kernel => self.kernel_sid(node, sid, Seg6LocalAction::End, "End, for waypoints".into()),
            Dataplane::Plain => {}
        }
    }

    /// The kernel looks at seg6local routes on input only.
    fn kernel_sid(&mut self, node: usize, sid: Ipv6Addr, action: Seg6LocalAction, reason: String) {
        let destination = IpNet::from(Ipv6Net::from(sid));
        if self.nodes[node].kernel.iter().all(|entry| entry.destination != destination) {
            let encap = Encap::Seg6Local(action);
            self.nodes[node].kernel.push(KernelEntry { destination, encap, towards: None, reason });
        }
    }

    /// The segments of a part: a SID for each stop, then the egress, or the node where labels lead on.
    pub(crate) fn segments(&mut self, course: &Course<'_>, direction: Direction, part: &Part) -> Vec<Segment> {
        let mut segments = Vec::new();
        for stop in part.stops(course, direction) {
            let node = stop.node();
            segments.push(match stop {
                Stop::Waypoint { .. } => Segment {
                    node,
                    sid: address::sid(self.locator(node), END),
                    behaviour: Behaviour::End,
                    function: None,
                    why: format!(
                        "the chain names {} as a waypoint; End only goes on to the next segment",
                        self.node_name(node)
                    ),
                },
                Stop::Function { name, .. } => self.function(course, direction, name, node),
            });
        }
        segments.extend(match part.is_last {
            true if course.has_frames() => self.frames_out(course, direction),
            true => Some(self.egress(course, direction)),
            false => self.crossing_sid(course, direction, part),
        });
        segments
    }

    fn function(&mut self, course: &Course<'_>, direction: Direction, name: &str, node: usize) -> Segment {
        let (approach, decided) = match self.functions.get(name) {
            Some(function) => (function.approach, function.why.as_str()),
            // The function exists: `via` was checked.
            None => (Approach::Static, ""),
        };
        let why = format!("{}; {decided}", function::explanation(approach, name, self.node_name(node)));
        let (sid, behaviour) = if approach.is_shared() {
            self.visit(course, direction, name, node).unwrap_or((Ipv6Addr::UNSPECIFIED, Behaviour::End))
        } else {
            let number = self.function_number(node, course);
            (address::sid(self.locator(node), number), function::behaviour(approach))
        };
        Segment { node, sid, behaviour, function: Some(name.to_owned()), why }
    }

    fn egress(&mut self, course: &Course<'_>, direction: Direction) -> Segment {
        let (_, to) = course.ends(direction);
        let node = to.node;
        let locator = self.locator(node);
        let at = format!("{} is at {}, which takes the outer header off", to.label, self.node_name(node));
        if self.dataplane(node) != Dataplane::Kernel {
            let sid = address::sid(locator, END_DT46);
            self.add_once(node, local_sid(sid, Behaviour::EndDt46, "egress of chains".into()));
            let why = format!("{at}; End.DT46, because one SID then serves IPv4 and IPv6, by the main routing table");
            return Segment { node, sid, behaviour: Behaviour::EndDt46, function: None, why };
        }
        if course.families.contains(&AddressFamily::Ipv4) {
            let sid = address::sid(locator, END_DX4);
            let action = Seg6LocalAction::EndDx4 { next_hop: Ipv4Addr::UNSPECIFIED };
            self.kernel_sid(node, sid, action, "egress of IPv4 chains, by route on the inner destination".into());
            let why = format!(
                "{at}; the kernel has End.DT4 only with VRF devices, so End.DX4 with the inner destination as next hop"
            );
            Segment { node, sid, behaviour: Behaviour::EndDx4, function: None, why }
        } else {
            let sid = address::sid(locator, END_DT6);
            self.kernel_sid(node, sid, Seg6LocalAction::EndDt6 { table: MAIN_TABLE }, "egress of IPv6 chains".into());
            let why = format!("{at}; the kernel's End.DT6 looks the inner destination up in the main routing table");
            Segment { node, sid, behaviour: Behaviour::EndDt6, function: None, why }
        }
    }

    fn add_once(&mut self, node: usize, sid: Sid) {
        if self.nodes[node].sids.iter().all(|other| other.sid != sid.sid) {
            self.nodes[node].sids.push(sid);
        }
    }
}
