//! Functions that any number of chains share: one pair of interfaces, one SID for each way through it. What comes in by one
//! interface leaves by the other whatever its destination is, because the steering header tells where it goes on to.

use std::net::Ipv6Addr;

use indexmap::IndexMap;
use ipnet::{IpNet, Ipv6Net};

use crate::Direction;
use crate::address;
use crate::build::{Builder, default_route};
use crate::chain::{Family, Lane};
use crate::route::{Encap, Neighbour, NextHop, Route, Rule, Seg6LocalAction};
use crate::service::{NewServiceLink, ServiceLink, Services, service_mtu};
use crate::steer::local_sid;
use segue_model::error::KeyPath;
use segue_model::node::{Behaviour, Memory, Netfilter, Proxy, Sid};
use segue_model::topology::{Approach, Function, Interfaces};

/// Bits of a chain's mark in the SIDs of End.AN.NF.
const MARK_BITS: u8 = 16;
/// Tables of a function: what comes in by its west interface, and by its east one.
const FROM_WEST: u32 = 100;
const FROM_EAST: u32 = 101;

/// A function that chains share, once the first chain has visited it.
pub(super) struct Shared {
    /// West and east, or the only one; none with netfilter, whose links the agent makes.
    links: Vec<ServiceLink>,
    /// By way: netfilter and functions with one interface have only one for both directions.
    sids: IndexMap<Direction, Ipv6Addr>,
}

/// What a chain needs to know about its way through a shared function.
pub(super) struct Visit {
    /// The segment, argument included.
    pub(super) segment: Ipv6Addr,
    pub(super) behaviour: Behaviour,
    /// To add to the node, at the first visit.
    pub(super) new: Option<Sid>,
}

/// How explanations name an approach.
pub(super) fn words(approach: Approach) -> &'static str {
    match approach {
        Approach::Static => "static proxy (End.AS)",
        Approach::Dynamic => "dynamic proxy (End.AD)",
        Approach::Flow => "dynamic proxy by flow (End.AD)",
        Approach::Exact => "exact proxy (End.AD by packet)",
        Approach::Masquerading => "masquerading proxy (End.AM)",
        Approach::Aware => "SR-aware function (End.AN)",
        Approach::Netfilter => "netfilter on the inner packet (End.AN.NF)",
        Approach::Firewall => "firewall of the node itself (End.AN)",
    }
}

impl Services {
    /// The way of one direction of a lane through a shared function. `number` gives a SID's function number.
    pub(super) fn visit(
        &mut self,
        builder: &mut Builder<'_>,
        lane: &Lane<'_>,
        direction: Direction,
        (name, node): (&str, usize),
        number: impl FnOnce(&mut Builder<'_>) -> u16,
    ) -> Option<Visit> {
        let topology = builder.topology;
        let (approach, _) = topology.approach(name)?;
        let function = topology.functions.get(name)?;
        if !self.shared.contains_key(name) {
            let links = self.shared_links(builder, lane, approach, (name, function), node);
            self.shared.insert(name.to_owned(), Shared { links, sids: IndexMap::new() });
        }
        let one_way = without_links(approach) || function.interfaces() == Interfaces::One;
        let way = if one_way { Direction::Forward } else { direction };
        let behaviour = behaviour(approach);
        let known = self.shared.get(name).and_then(|shared| shared.sids.get(&way)).copied();
        let (sid, new) = match known {
            Some(sid) => (sid, None),
            None => {
                let sid = address::sid(builder.nodes[node].locator, number(builder));
                let entry = self.shared_sid(approach, (name, function), way, one_way, builder, node, sid);
                if let Some(shared) = self.shared.get_mut(name) {
                    shared.sids.insert(way, sid);
                }
                if let Some(bits) = function.firewall().map(|firewall| firewall.argument_length)
                    && prefix_length(builder, node) > 128 - bits
                {
                    let key = KeyPath::root().at("functions").at(name).at("firewall").at("argument_length");
                    let message = format!("{bits} bits of argument do not fit behind the locator of {}", function.node);
                    builder.error(&key, message, "choose fewer, or give the node a shorter locator");
                }
                if approach == Approach::Aware {
                    self.own_end(name, way, one_way, sid);
                }
                (sid, Some(entry))
            }
        };
        let segment = match approach {
            Approach::Netfilter => with_mark(sid, prefix_length(builder, node), MARK_BITS, mark(builder, lane)),
            Approach::Firewall => {
                let bits = function.firewall().map_or(0, |firewall| firewall.argument_length);
                with_mark(sid, prefix_length(builder, node), bits, lane.definition.mark.unwrap_or_default())
            }
            _ => sid,
        };
        Some(Visit { segment, behaviour, new })
    }

    fn shared_links(
        &mut self,
        builder: &mut Builder<'_>,
        lane: &Lane<'_>,
        approach: Approach,
        (name, function): (&str, &Function),
        node: usize,
    ) -> Vec<ServiceLink> {
        if without_links(approach) {
            return Vec::new();
        }
        // Where the steering header stays on, the link carries what the core carries.
        let outer = matches!(approach, Approach::Masquerading | Approach::Aware);
        let families: Vec<Family> = if outer {
            vec![Family::V6]
        } else {
            [Family::V4, Family::V6].into_iter().filter(|family| function.inner.contains(&family.inner())).collect()
        };
        let mtu = if outer { builder.topology.domain.core_mtu } else { service_mtu(builder, lane) };
        let sides: &[[&str; 2]] = match function.interfaces() {
            Interfaces::Two => &[["w", "west"], ["e", "east"]],
            Interfaces::One => &[["p", "port"]],
        };
        let mut links = Vec::new();
        for suffix in sides {
            let reason =
                format!("{} side of function {name}: all chains share it, by the {}", suffix[1], words(approach));
            let new = NewServiceLink { function: name, node, suffix: *suffix, families: &families, mtu, reason };
            links.push(self.new_link(builder, new));
        }
        let visits = self.visits.entry(name.to_owned()).or_default();
        for link in &links {
            visits.neighbours.extend(link.gateways.iter().map(|gateway| Neighbour {
                address: gateway.addr(),
                mac: link.node_mac,
                interface: link.function_interface.name.clone(),
            }));
        }
        // What the function makes itself leaves by the last link too.
        if let Some(out) = links.last() {
            visits.shared_routes.extend(ways_out(out, None, "all that the function sends"));
        }
        if let [west, east] = links.as_slice() {
            for (table, from, to) in [(FROM_WEST, west, east), (FROM_EAST, east, west)] {
                let reason = format!(
                    "what came in by {} leaves by {}, wherever it goes",
                    from.function_interface.name, to.function_interface.name
                );
                visits.shared_routes.extend(ways_out(to, Some(table), &reason));
                visits.rules.push(Rule { incoming: from.function_interface.name.clone(), table, reason });
            }
        }
        links
    }

    #[allow(clippy::too_many_arguments)]
    fn shared_sid(
        &self,
        approach: Approach,
        (name, function): (&str, &Function),
        way: Direction,
        one_way: bool,
        builder: &Builder<'_>,
        node: usize,
        sid: Ipv6Addr,
    ) -> Sid {
        let links = self.shared.get(name).map(|shared| shared.links.as_slice()).unwrap_or_default();
        let (out, back) = match (links, way) {
            ([west, east], Direction::Forward) => (Some(west), Some(east)),
            ([west, east], Direction::Reverse) => (Some(east), Some(west)),
            (links, _) => (links.first(), links.first()),
        };
        let through = match (way, one_way) {
            (_, true) => "all chains".to_owned(),
            (Direction::Forward, false) => "all chains, west to east".to_owned(),
            (Direction::Reverse, false) => "all chains, east to west".to_owned(),
        };
        let mut entry = local_sid(sid, behaviour(approach), format!("function {name}, {through}"));
        let on_failure = function.on_failure.unwrap_or_default();
        if approach == Approach::Firewall {
            entry.sid = Ipv6Net::new(sid, prefix_length(builder, node)).unwrap_or(sid.into());
            entry.firewall = Some(name.to_owned());
            return entry;
        }
        let (Some(out), Some(back)) = (out, back) else {
            entry.sid = Ipv6Net::new(sid, prefix_length(builder, node)).unwrap_or(sid.into());
            entry.argument_length = MARK_BITS;
            entry.netfilter = Some(Netfilter { on_failure, watch: function.watch, ..Netfilter::new(name) });
            return entry;
        };
        let inner = match approach {
            Approach::Flow | Approach::Exact => function.inner.clone(),
            _ => Vec::new(),
        };
        let memory = match approach {
            Approach::Flow => Some(Memory::Flow),
            Approach::Exact => Some(Memory::Packet),
            _ => None,
        };
        entry.next_hop_mac = Some(out.function_interface.mac);
        entry.proxy = Some(Proxy {
            inner,
            memory,
            may_change: function.may_change,
            may_rewrite: function.may_rewrite.clone(),
            on_failure,
            watch: function.watch,
            ..Proxy::new(&out.node_interface, &back.node_interface)
        });
        entry
    }

    /// The kernel of an SR-aware function does its own End processing, whatever table it looks into.
    fn own_end(&mut self, name: &str, way: Direction, one_way: bool, sid: Ipv6Addr) {
        let Some(shared) = self.shared.get(name) else { return };
        let incoming = if way == Direction::Reverse { shared.links.last() } else { shared.links.first() };
        let Some(incoming) = incoming else { return };
        let table = match (one_way, way) {
            (true, _) => None,
            (false, Direction::Forward) => Some(FROM_WEST),
            (false, Direction::Reverse) => Some(FROM_EAST),
        };
        let route = Route {
            table,
            destination: IpNet::from(Ipv6Net::from(sid)),
            next_hops: vec![NextHop { gateway: None, interface: incoming.function_interface.name.clone() }],
            source: None,
            encap: Some(Encap::Seg6Local(Seg6LocalAction::End)),
            reason: "the function goes on to the next segment by itself".to_owned(),
        };
        self.visits.entry(name.to_owned()).or_default().shared_routes.push(route);
    }
}

fn behaviour(approach: Approach) -> Behaviour {
    match approach {
        Approach::Static => Behaviour::EndAs,
        Approach::Dynamic | Approach::Flow | Approach::Exact => Behaviour::EndAd,
        Approach::Masquerading => Behaviour::EndAm,
        Approach::Aware | Approach::Firewall => Behaviour::EndAn,
        Approach::Netfilter => Behaviour::EndAnNf,
    }
}

/// Whether no link of the plan leads to the function: the agent makes those of netfilter, and a firewall needs none.
fn without_links(approach: Approach) -> bool {
    matches!(approach, Approach::Netfilter | Approach::Firewall)
}

/// Default routes by the node at the other end of a link.
fn ways_out(link: &ServiceLink, table: Option<u32>, reason: &str) -> Vec<Route> {
    let route = |gateway: &IpNet| Route {
        table,
        destination: default_route(gateway),
        next_hops: vec![NextHop { gateway: Some(gateway.addr()), interface: link.function_interface.name.clone() }],
        source: None,
        encap: None,
        reason: reason.to_owned(),
    };
    link.gateways.iter().map(route).collect()
}

/// LOC:FUNCT of a SID with an argument.
fn prefix_length(builder: &Builder<'_>, node: usize) -> u8 {
    (builder.nodes[node].locator.prefix_len() + 16).min(128 - MARK_BITS)
}

/// The SID with an argument of `bits` bits right behind LOC:FUNCT. What does not fit is refused elsewhere.
fn with_mark(sid: Ipv6Addr, prefix_length: u8, bits: u8, mark: u16) -> Ipv6Addr {
    let shift = 128_u32.saturating_sub(u32::from(prefix_length) + u32::from(bits));
    Ipv6Addr::from_bits(sid.to_bits() | u128::from(mark).checked_shl(shift).unwrap_or(0))
}

/// A chain's own, or its position.
fn mark(builder: &Builder<'_>, lane: &Lane<'_>) -> u16 {
    let position = builder.topology.chains.get_index_of(lane.chain).and_then(|index| u16::try_from(index + 1).ok());
    lane.definition.mark.or(position).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_right_behind_the_function_number() {
        let sid: Ipv6Addr = "fc00:5e9:2:100::".parse().unwrap();
        assert_eq!(with_mark(sid, 64, 16, 0xabcd).to_string(), "fc00:5e9:2:100:abcd::");
        assert_eq!(with_mark("fc00:0:0:2:100::".parse().unwrap(), 80, 16, 7).to_string(), "fc00::2:100:7:0:0");
        assert_eq!(with_mark(sid, 64, 8, 2).to_string(), "fc00:5e9:2:100:200::");
    }
}
