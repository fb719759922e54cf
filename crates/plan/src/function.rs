//! SIDs of functions: those of functions that any number of chains share, one for each way through, and those that a chain has for
//! itself.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use segue_model::error::KeyPath;
use segue_model::node::{Behaviour, HeadendMode, Memory, Netfilter, Proxy, Sid};
use segue_model::owner::Direction;
use segue_model::topology::Interfaces;
use segue_model::value::MacAddress;

use crate::address;
use crate::approach::Approach;
use crate::chain::Course;
use crate::inventory::{Attachment, Function, Side};
use crate::planner::Planner;
use crate::sid::local_sid;

/// Bits of a chain's mark in the SIDs of End.AN.NF.
const MARK_BITS: u8 = 16;

/// An approach in words, with the behaviour of the SIDs; behind labels no SID has one.
pub fn words(approach: Approach, by_labels: bool) -> String {
    let (words, behaviour) = match approach {
        Approach::Static => ("static proxy", "End.AS"),
        Approach::Dynamic => ("dynamic proxy", "End.AD"),
        Approach::Flow => ("dynamic proxy by flow", "End.AD"),
        Approach::Exact => ("exact proxy", "End.AD by packet"),
        Approach::Masquerading => ("masquerading proxy", "End.AM"),
        Approach::Aware => ("SR-aware function", "End.AN"),
        Approach::Netfilter => ("netfilter on the inner packet", "End.AN.NF"),
        Approach::Firewall => ("firewall of the node itself", "End.AN"),
    };
    if by_labels { words.to_owned() } else { format!("{words} ({behaviour})") }
}

pub(crate) fn behaviour(approach: Approach) -> Behaviour {
    match approach {
        Approach::Static => Behaviour::EndAs,
        Approach::Dynamic | Approach::Flow | Approach::Exact => Behaviour::EndAd,
        Approach::Masquerading => Behaviour::EndAm,
        Approach::Aware | Approach::Firewall => Behaviour::EndAn,
        Approach::Netfilter => Behaviour::EndAnNf,
    }
}

/// Whether nobody has to attach the function: the agent makes the links of netfilter, and a firewall needs none.
pub(crate) fn without_links(approach: Approach) -> bool {
    matches!(approach, Approach::Netfilter | Approach::Firewall)
}

/// Whether the function gets packets with their steering header.
pub(crate) fn keeps_header(approach: Approach) -> bool {
    matches!(approach, Approach::Masquerading | Approach::Aware)
}

/// Which way through a function that chains share one direction of a chain takes, and whether both take the same.
pub(crate) fn shared_way(function: &Function, approach: Approach, direction: Direction) -> (Direction, bool) {
    let one_way = without_links(approach) || function.interfaces == Interfaces::One;
    (if one_way { Direction::Forward } else { direction }, one_way)
}

/// What goes that way, for comments.
pub(crate) fn through((way, one_way): (Direction, bool)) -> &'static str {
    match (way, one_way) {
        (_, true) => "all chains",
        (Direction::Forward, false) => "all chains, west to east",
        (Direction::Reverse, false) => "all chains, east to west",
    }
}

/// The proxy of a function that chains share, for one way through it, and the function's link-layer address.
pub(crate) fn shared_proxy(function: &Function, approach: Approach, way: Direction) -> Option<(MacAddress, Proxy)> {
    // Checked before: what chains need is attached.
    let (out, back) = sides(function.attachment(None)?, way);
    let (memory, inner) = match approach {
        Approach::Flow => (Some(Memory::Flow), function.inner.clone()),
        Approach::Exact => (Some(Memory::Packet), function.inner.clone()),
        _ => (None, Vec::new()),
    };
    let proxy = Proxy {
        inner,
        memory,
        may_change: function.may_change,
        may_rewrite: function.may_rewrite(),
        on_failure: function.on_failure,
        watch: function.watch,
        ..Proxy::new(&out.interface, &back.interface)
    };
    Some((out.function, proxy))
}

/// The same of a proxy that serves one direction of one course, but for what it puts on.
pub(crate) fn own_proxy(course: &Course<'_>, direction: Direction, function: &Function) -> Option<(MacAddress, Proxy)> {
    let attachment = function.attachment(Some(&course.owner_of_attachment(function.interfaces, direction)))?;
    let (out, back) = sides(attachment, direction);
    let proxy = Proxy {
        inner: course.families.iter().map(|family| family.inner()).collect(),
        on_failure: function.on_failure,
        watch: function.watch,
        ..Proxy::new(&out.interface, &back.interface)
    };
    Some((out.function, proxy))
}

/// IFACE-OUT and IFACE-IN of one direction.
fn sides(attachment: &Attachment, direction: Direction) -> (&Side, &Side) {
    let (west, east) = (&attachment.west, attachment.east.as_ref().unwrap_or(&attachment.west));
    match direction {
        Direction::Forward => (west, east),
        Direction::Reverse => (east, west),
    }
}

impl Planner<'_> {
    /// The way of one direction of a course through a function that chains share: the segment, with its argument, and its behaviour. The
    /// first visit adds the SID to the node, and that of the function's backup.
    pub(crate) fn visit(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        name: &str,
        node: usize,
    ) -> Option<(Ipv6Addr, Behaviour)> {
        let function = self.inventory.functions.get(name)?;
        let approach = self.approach(name)?;
        let (way, one_way) = shared_way(function, approach, direction);
        let known = self.functions.get(name).and_then(|plan| plan.sids.get(&way)).copied();
        let sid = match known {
            Some(sid) => sid,
            None => {
                let sid = address::sid(self.locator(node), self.function_number(node, course));
                let mut entry = self.shared_sid((name, function), approach, (way, one_way), node, sid);
                if let Some(plan) = self.functions.get_mut(name) {
                    plan.sids.insert(way, sid);
                }
                if approach == Approach::Firewall && self.prefix_length(node) > 128 - function.argument_length {
                    let bits = function.argument_length;
                    let key = KeyPath::root().at("functions").at(name).at("firewall").at("argument_length");
                    let message = format!("{bits} bits of argument do not fit behind the locator of {}", function.node);
                    self.error(&key, message, "choose fewer, or give the node a shorter locator");
                }
                // Two may be each other's backup: by now this one has its SID.
                let backup = self.backup(course, direction, name, node);
                if let Some(proxy) = &mut entry.proxy {
                    proxy.backup = backup;
                } else if let Some(netfilter) = &mut entry.netfilter {
                    netfilter.backup = backup;
                }
                self.nodes[node].sids.push(entry);
                sid
            }
        };
        let with_argument = |bits, argument| address::with_argument(sid, self.prefix_length(node), bits, argument);
        let segment = match approach {
            Approach::Netfilter => with_argument(MARK_BITS, self.mark(course)),
            Approach::Firewall => with_argument(function.argument_length, course.definition.mark.unwrap_or_default()),
            _ => sid,
        };
        Some((segment, behaviour(approach)))
    }

    /// The SID of a function's backup.
    pub(crate) fn backup(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        name: &str,
        node: usize,
    ) -> Option<Ipv6Addr> {
        let inventory = self.inventory;
        let backup = inventory.functions.get(name)?.backup.as_deref()?;
        let there = inventory.nodes.get_index_of(&inventory.functions.get(backup)?.node)?;
        if !self.reach.reaches(node, there) {
            let names = [node, there].map(|node| self.node_name(node));
            let message = format!("no links lead from {} to {}, where {backup:?} is", names[0], names[1]);
            let key = KeyPath::root().at("functions").at(name).at("backup");
            self.error(&key, message, "add the missing link to `links`, or name another function");
        }
        self.visit(course, direction, backup, there).map(|(segment, _)| segment)
    }

    fn shared_sid(
        &self,
        (name, function): (&str, &Function),
        approach: Approach,
        (way, one_way): (Direction, bool),
        node: usize,
        sid: Ipv6Addr,
    ) -> Sid {
        let comment = format!("function {name}, {}", through((way, one_way)));
        let mut entry = local_sid(sid, behaviour(approach), comment);
        let (on_failure, watch) = (function.on_failure, function.watch);
        // An argument is behind the SID.
        let prefix = Ipv6Net::new(sid, self.prefix_length(node)).unwrap_or(sid.into());
        if approach == Approach::Firewall {
            return Sid { sid: prefix, firewall: Some(name.to_owned()), ..entry };
        }
        if approach == Approach::Netfilter {
            let netfilter = Some(Netfilter { on_failure, watch, ..Netfilter::new(name) });
            return Sid { sid: prefix, argument_length: MARK_BITS, netfilter, ..entry };
        }
        let Some((address, proxy)) = shared_proxy(function, approach, way) else { return entry };
        // Fixed, so that no neighbour lookup is needed.
        entry.next_hop_mac = Some(address);
        entry.proxy = Some(proxy);
        entry
    }

    /// The SID of a proxy that serves one direction of one course, with what of its list is behind it.
    pub(crate) fn own_sid(
        &mut self,
        course: &Course<'_>,
        direction: Direction,
        (name, function): (&str, &Function),
        (node, sid): (usize, Ipv6Addr),
        remaining: &[Ipv6Addr],
    ) -> Option<Sid> {
        let (address, proxy) = own_proxy(course, direction, function)?;
        let approach = self.approach(name)?;
        let is_static = approach == Approach::Static;
        Some(Sid {
            next_hop_mac: Some(address),
            proxy: Some(Proxy {
                segments: if is_static { remaining.to_vec() } else { Vec::new() },
                reduced: !is_static || course.definition.mode == HeadendMode::HEncapsRed,
                backup: self.backup(course, direction, name, node),
                ..proxy
            }),
            owner: Some(course.owner(direction)),
            ..local_sid(sid, behaviour(approach), format!("function {name}"))
        })
    }

    /// LOC:FUNCT of a SID with an argument.
    fn prefix_length(&self, node: usize) -> u8 {
        (self.locator(node).prefix_len() + 16).min(128 - MARK_BITS)
    }

    /// A chain's own, or its position.
    fn mark(&self, course: &Course<'_>) -> u16 {
        let position = self.inventory.chains.get_index_of(course.chain).and_then(|index| u16::try_from(index + 1).ok());
        course.definition.mark.or(position).unwrap_or_default()
    }
}

/// What an approach does, for explanations.
pub(crate) fn explanation(approach: Approach, name: &str, node: &str) -> String {
    let ignorant = format!("{name} on {node} knows nothing of Segment Routing");
    match approach {
        Approach::Static => format!(
            "{ignorant}: the static proxy End.AS takes the outer header off, and puts the remaining segments back on what returns"
        ),
        Approach::Dynamic => format!(
            "{ignorant}: the dynamic proxy End.AD takes the outer header off, and puts the one last seen back on what returns"
        ),
        Approach::Flow => format!(
            "{ignorant}: the dynamic proxy End.AD takes the outer header off, and puts that of the flow back on what returns"
        ),
        Approach::Exact => format!(
            "{ignorant}: the exact proxy, End.AD by packet, takes the outer header off, and puts each packet's own back on, \
             whatever the function did to the packet"
        ),
        Approach::Masquerading => format!(
            "{ignorant}: the masquerading proxy End.AM leaves the header on and shows the last segment as the destination"
        ),
        Approach::Aware => format!(
            "{name} on {node} understands Segment Routing: End.AN gives it the packet as it is, and checks what it did to the \
             segment list"
        ),
        Approach::Netfilter => format!(
            "{name} on {node} is netfilter: End.AN.NF shows its hooks the inner packet, marked with the SID's argument, and \
             goes on to the next segment"
        ),
        Approach::Firewall => format!(
            "{name} is a firewall of {node} itself: the rules of its End.AN SID filter the packet where it arrives, and what they \
             accept goes on to the next segment"
        ),
    }
}
