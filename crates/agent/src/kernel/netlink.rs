//! The real kernel, through rtnetlink, generic netlink and /proc/sys.
//!
//! Longer than 500 lines: what the trait `Kernel` asks is answered from one socket, by one reader of its messages.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::Ipv6Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
    rule::{RuleAttribute, RuleMessage},
};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc::{ENOENT, ESRCH};
use segue_dataplane::Interfaces;
use segue_host::device::{DeviceSocket, Devices};
use segue_host::netlink::{Netlink, NetlinkError};
use segue_host::sysctl;
use segue_model::node::{Learn, NodeState};

use super::neighbour_room::{self, Neighbour};
use super::{Boundary, Kernel, KernelError, KernelHmacKey, ROUTE_PROTOCOL, SidRoute, hmac::Keys, nftables, route};
use crate::learned::{self, Table};
use crate::problem::Problem;
use crate::{functions, netfilter, vlan};

/// At most so many neighbours are asked for in one go.
const NEIGHBOURS_MAX: usize = 8192;

/// RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL: what the rules lead to unless somebody has added some.
const USUAL_TABLES: [u32; 3] = [253, 254, 255];

/// The kernel of the network namespace in which it was opened.
pub struct LinuxKernel {
    pub(super) socket: Netlink,
    /// The table of the boundary, and what was put into it last; its socket stays open, for it owns the table.
    table: Option<nftables::Table>,
    boundary: Option<Boundary>,
    /// Neighbours behind next hops and gateways, as they were when it was last told to refresh them.
    needed: BTreeSet<Neighbour>,
}

impl LinuxKernel {
    /// Opens the calling thread's network namespace.
    pub fn open() -> Result<Self, KernelError> {
        let socket = Netlink::open(NETLINK_ROUTE).map_err(|error| KernelError::netlink("open rtnetlink", error))?;
        Ok(Self { socket, table: None, boundary: None, needed: BTreeSet::new() })
    }

    pub(super) fn table(&mut self) -> std::io::Result<&mut nftables::Table> {
        let table = match self.table.take() {
            Some(table) => table,
            None => nftables::Table::open()?,
        };
        Ok(self.table.insert(table))
    }

    /// The number by which notifications of rtnetlink name what this kernel was told to change.
    ///
    /// # Errors
    /// A socket that does not tell it.
    pub fn port(&self) -> std::io::Result<u32> {
        self.socket.port()
    }

    /// The number by which notifications of nf_tables name this kernel's own changes.
    ///
    /// # Errors
    /// A kernel without nf_tables.
    pub fn boundary_port(&mut self) -> std::io::Result<u32> {
        self.table()?.port()
    }

    /// Those of the main table, but for Segue's own, of which there may be 100,000.
    fn routes(&mut self, family: AddressFamily) -> Result<Vec<RouteMessage>, NetlinkError> {
        let mut filter = RouteMessage::default();
        filter.header.address_family = family;
        filter.header.table = RouteHeader::RT_TABLE_MAIN;
        type Read = (Vec<RouteMessage>, Option<NetlinkError>);
        let (routes, broken) =
            self.socket.dump_raw(RouteNetlinkMessage::GetRoute(filter), |(routes, broken): &mut Read, message| {
                if route::is_own(message) {
                    return;
                }
                match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).map(|message| message.payload) {
                    Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route))) => routes.push(route),
                    Ok(_) => {}
                    Err(error) => *broken = Some(NetlinkError::Answer(error.to_string())),
                }
            })?;
        broken.map_or(Ok(routes), Err)
    }

    /// Whether the rules lead to tables that [`LinuxKernel::routes`] does not read.
    fn has_other_tables(&mut self, family: AddressFamily) -> Result<bool, NetlinkError> {
        let mut all = RuleMessage::default();
        all.header.family = family;
        let answers = self.socket.dump(RouteNetlinkMessage::GetRule(all))?;
        let table = |rule: &RuleMessage| {
            let of_attribute = rule.attributes.iter().find_map(|attribute| match attribute {
                RuleAttribute::Table(table) => Some(*table),
                _ => None,
            });
            of_attribute.unwrap_or(u32::from(rule.header.table))
        };
        let other = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewRule(rule) => !USUAL_TABLES.contains(&table(rule)),
            _ => false,
        };
        Ok(answers.iter().any(other))
    }

    /// The route that the kernel's main rules give to this destination; None if there is none.
    pub(super) fn route_to(&mut self, destination: IpAddr) -> Option<RouteMessage> {
        let mut ask = RouteMessage::default();
        let (address, family, length) = match destination {
            IpAddr::V4(address) => (RouteAddress::Inet(address), AddressFamily::Inet, 32),
            IpAddr::V6(address) => (RouteAddress::Inet6(address), AddressFamily::Inet6, 128),
        };
        ask.header.address_family = family;
        ask.header.destination_prefix_length = length;
        ask.attributes.push(RouteAttribute::Destination(address));
        let answers = self.socket.request(RouteNetlinkMessage::GetRoute(ask), 0).ok()?;
        answers.into_iter().find_map(into_route)
    }

    /// The neighbour that the kernel would use for this destination, if it is one hop on a link away.
    fn neighbour_towards(&mut self, destination: IpAddr) -> Option<Neighbour> {
        // No route is not an error here: there is just nothing to refresh.
        let route = self.route_to(destination)?;
        if route.header.kind != RouteType::Unicast {
            return None;
        }
        gateways(&route).into_iter().next().or_else(|| Some((oif(&route)?, destination)))
    }

    /// All neighbours with their state.
    pub(super) fn neighbours(&mut self) -> Result<Vec<(Neighbour, NeighbourState)>, NetlinkError> {
        let answers = self.socket.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()))?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(neighbour) => {
                    Some(((neighbour.header.ifindex, neighbour_address(&neighbour)?), neighbour.header.state))
                }
                _ => None,
            })
            .collect())
    }

    pub(super) fn use_neighbour(&mut self, (ifindex, address): Neighbour) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = ifindex;
        message.header.flags = NeighbourFlags::Use;
        let (family, address) = match address {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.attributes.push(NeighbourAttribute::Destination(address));
        self.socket.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE).map(drop)
    }
}

impl LinuxKernel {
    /// Asks for those of these neighbours that were needed when neighbours were last refreshed; returns how many it asked for. What strangers have
    /// put into the table, and the kernel has taken out, stays out.
    ///
    /// # Errors
    /// A kernel that does not tell its neighbours.
    pub fn ask_again(&mut self, lost: &[Neighbour]) -> Result<usize, KernelError> {
        self.ask_for(lost.iter().copied().filter(|lost| self.needed.contains(lost)).collect())
    }

    /// Asks for these neighbours, as far as there is room in the table; returns how many it asked for.
    ///
    /// # Errors
    /// As [`LinuxKernel::ask_again`].
    pub fn ask_for(&mut self, wanted: BTreeSet<Neighbour>) -> Result<usize, KernelError> {
        if wanted.is_empty() {
            return Ok(0);
        }
        let neighbours = self.neighbours().map_err(|error| KernelError::netlink("ask for neighbours", error))?;
        Ok(self.use_all(wanted, &neighbours))
    }

    /// Asks for neighbours, of which `known` are in the table, as far as there is room; returns how many it asked for.
    fn use_all(&mut self, mut wanted: BTreeSet<Neighbour>, known: &[(Neighbour, NeighbourState)]) -> usize {
        // What an operator has fixed would not be fixed any more: the request takes that state away (NEIGH_UPDATE_F_USE).
        for (neighbour, state) in known {
            if matches!(state, NeighbourState::Permanent | NeighbourState::Noarp) {
                wanted.remove(neighbour);
            }
        }
        // A neighbour on a link that is down is refused; that is for the data plane to count, not for us to report.
        let wanted = neighbour_room::askable(wanted, known, neighbour_room::silent_at_most);
        wanted.into_iter().take(NEIGHBOURS_MAX).filter(|neighbour| self.use_neighbour(*neighbour).is_ok()).count()
    }
}

impl Kernel for LinuxKernel {
    fn learned(&mut self, from: &Learn) -> Result<Table, Problem> {
        if let Some(path) = &from.file {
            return learned::read_file(from, path);
        }
        let table = self.mpls_routes().map_err(|error| Problem::new(from.key(), error.to_string(), error.remedy))?;
        learned::bounded(from, table)
    }

    fn devices(&mut self) -> Result<Devices, KernelError> {
        Ok(DeviceSocket::open()?.all()?)
    }

    fn links(&mut self) -> Result<Interfaces, KernelError> {
        Interfaces::query().map_err(|error| KernelError {
            action: "list interfaces".to_owned(),
            errno: None,
            cause: error.to_string(),
            remedy: "run segued with CAP_NET_ADMIN in its network namespace".to_owned(),
        })
    }

    fn own_routes(&mut self) -> Result<Vec<SidRoute>, KernelError> {
        let mut filter = route::key(None);
        filter.header.kind = RouteType::Unspec;
        type Read = (Vec<SidRoute>, route::Known);
        let read =
            self.socket.dump_raw(RouteNetlinkMessage::GetRoute(filter), |(routes, known): &mut Read, message| {
                routes.extend(known.read(message));
            });
        read.map(|(routes, _)| routes).map_err(|error| KernelError::netlink("list SID routes", error))
    }

    fn add_route(&mut self, route: &SidRoute) -> Result<(), KernelError> {
        let message = RouteNetlinkMessage::NewRoute(route::to_message(route));
        let result = self.socket.request(message, NLM_F_CREATE | NLM_F_EXCL);
        result.map(drop).map_err(|error| KernelError::netlink(named("add", route), error))
    }

    fn replace_route(&mut self, route: &SidRoute) -> Result<(), KernelError> {
        let message = RouteNetlinkMessage::NewRoute(route::to_message(route));
        let result = self.socket.request(message, NLM_F_CREATE | NLM_F_REPLACE);
        result.map(drop).map_err(|error| KernelError::netlink(named("replace", route), error))
    }

    fn delete_route(&mut self, prefix: Ipv6Net) -> Result<(), KernelError> {
        match self.socket.request(removal(prefix), 0) {
            Err(error) if error.errno() != Some(ESRCH) => {
                Err(KernelError::netlink(format!("remove route {prefix}"), error))
            }
            _ => Ok(()),
        }
    }

    fn change_routes(&mut self, remove: &[Ipv6Net], add: &[SidRoute]) -> Result<(), KernelError> {
        let removals = remove.iter().map(|prefix| (removal(*prefix), 0));
        let additions = add
            .iter()
            .map(|route| (RouteNetlinkMessage::NewRoute(route::to_message(route)), NLM_F_CREATE | NLM_F_EXCL));
        let failed = |error| KernelError::netlink("change SID routes", error);
        for result in self.socket.requests(removals.chain(additions).collect()).map_err(failed)? {
            match result {
                Err(error) if error.errno() != Some(ESRCH) => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn sysctl(&mut self, name: &str) -> Result<Option<String>, KernelError> {
        Ok(sysctl::get(name)?)
    }

    fn set_sysctl(&mut self, name: &str, value: &str) -> Result<(), KernelError> {
        Ok(sysctl::set(name, value)?)
    }

    fn hmac_keys(&mut self) -> Result<Vec<KernelHmacKey>, KernelError> {
        let keys = Keys::open().and_then(|mut keys| keys.list());
        keys.map_err(|error| KernelError::netlink("list HMAC keys", error))
    }

    fn put_hmac_key(&mut self, key: &KernelHmacKey) -> Result<(), KernelError> {
        let done = Keys::open().and_then(|mut keys| keys.set(key));
        done.map_err(|error| KernelError::netlink(format!("set HMAC key {}", key.id), error))
    }

    fn delete_hmac_key(&mut self, id: u32) -> Result<(), KernelError> {
        let empty = KernelHmacKey { id, algorithm: 1, secret: Vec::new() };
        match Keys::open().and_then(|mut keys| keys.set(&empty)) {
            Err(error) if error.errno() != Some(ENOENT) => {
                Err(KernelError::netlink(format!("remove HMAC key {id}"), error))
            }
            _ => Ok(()),
        }
    }

    fn boundary(&mut self) -> Result<Option<Boundary>, KernelError> {
        if self.boundary.is_none() {
            let read = self.table().and_then(nftables::Table::read);
            self.boundary = read.map_err(|error| nftables::refused(&error))?;
        }
        Ok(self.boundary.clone())
    }

    fn set_boundary(&mut self, boundary: Option<&Boundary>) -> Result<(), KernelError> {
        self.table().and_then(|table| table.set(boundary)).map_err(|error| nftables::refused(&error))?;
        self.boundary = boundary.cloned();
        Ok(())
    }

    fn restore_boundary(&mut self) -> Result<(), KernelError> {
        match self.boundary.clone() {
            Some(boundary) => {
                let restored = self.table().and_then(|table| table.set(Some(&boundary)));
                restored.map_err(|error| nftables::refused(&error))
            }
            None => Ok(()),
        }
    }

    fn make_functions(
        &mut self,
        state: &NodeState,
        links: &Interfaces,
        only: Option<&BTreeSet<String>>,
    ) -> Result<bool, KernelError> {
        let attached = functions::make(state, links)?;
        Ok(netfilter::make(state, links, only)? || attached)
    }

    fn remove_functions(&mut self, state: Option<&NodeState>) -> Result<(), KernelError> {
        functions::remove(state)?;
        netfilter::remove(state).map(drop)
    }

    fn function_problems(&mut self, state: &NodeState) -> Result<Vec<Problem>, KernelError> {
        functions::virtual_report::problems(state)
    }

    fn make_vlans(&mut self, state: &NodeState) -> Result<bool, KernelError> {
        vlan::make(state)
    }

    fn remove_vlans(&mut self, state: Option<&NodeState>) -> Result<(), KernelError> {
        vlan::remove(state)
    }

    fn known_tables(&mut self, asked: &BTreeSet<u32>) -> Result<BTreeSet<u32>, KernelError> {
        self.tables(asked).map_err(|error| KernelError::netlink("look at routing tables", error))
    }

    fn refresh_neighbours(&mut self, next_hops: &[IpAddr]) -> Result<usize, KernelError> {
        let wrap = |error| KernelError::netlink("refresh neighbours", error);
        let neighbours = self.neighbours().map_err(wrap)?;
        let with = |state| neighbours.iter().filter(move |(_, found)| *found == state).map(|(neighbour, _)| *neighbour);
        let mut wanted = BTreeSet::new();
        let mut near = OnLink::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let routes = self.routes(family).map_err(wrap)?;
            wanted.extend(routes.iter().flat_map(gateways));
            near.extend(&routes, self.has_other_tables(family).map_err(wrap)?);
        }
        // There may be 100,000; most lie behind a gateway, and each question costs as much as any other.
        for next_hop in next_hops.iter().filter(|next_hop| near.contains(**next_hop)) {
            wanted.extend(self.neighbour_towards(*next_hop));
        }
        self.needed.clone_from(&wanted);
        // Those in use: resolved ones whose confirmation ran out.
        wanted.extend(with(NeighbourState::Stale));
        Ok(self.use_all(wanted, &neighbours))
    }
}

/// Of our route, by its protocol number, whatever its metric is.
fn removal(prefix: Ipv6Net) -> RouteNetlinkMessage {
    let mut message = route::key(Some(prefix));
    message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Priority(_)));
    RouteNetlinkMessage::DelRoute(message)
}

fn named(verb: &str, route: &SidRoute) -> String {
    format!("{verb} route {} {}", route.prefix, route.target)
}

fn into_route(message: RouteNetlinkMessage) -> Option<RouteMessage> {
    match message {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    }
}

pub(super) fn oif(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(oif) => Some(*oif),
        _ => None,
    })
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(via) => match via {
            netlink_packet_route::route::RouteVia::Inet(address) => Some(IpAddr::V4(*address)),
            netlink_packet_route::route::RouteVia::Inet6(address) => Some(IpAddr::V6(*address)),
            _ => None,
        },
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) if *address != Ipv4Addr::UNSPECIFIED => Some((*address).into()),
        RouteAddress::Inet6(address) if *address != Ipv6Addr::UNSPECIFIED => Some((*address).into()),
        _ => None,
    }
}

/// The gateways of a route, one for each next hop.
pub(super) fn gateways(route: &RouteMessage) -> Vec<Neighbour> {
    let single = gateway(&route.attributes).zip(oif(route)).map(|(address, oif)| (oif, address));
    let several = route.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::MultiPath(list) => Some(list),
        _ => None,
    });
    let several = several.flatten().filter_map(|hop| Some((hop.interface_index, gateway(&hop.attributes)?)));
    single.into_iter().chain(several).collect()
}

/// Destinations that are neighbours themselves, as far as the main table says: ranges of addresses, ascending, with gaps between them.
#[derive(Debug, Default, PartialEq, Eq)]
struct OnLink {
    ipv4: Vec<(u128, u128)>,
    ipv6: Vec<(u128, u128)>,
}

impl OnLink {
    /// Adds what lies behind routes that have no gateway; with `any` everything.
    fn extend(&mut self, routes: &[RouteMessage], any: bool) {
        if any {
            self.ipv4 = vec![(0, u32::MAX.into())];
            self.ipv6 = vec![(0, u128::MAX)];
        }
        for route in routes {
            let family = route.header.address_family;
            let several = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::MultiPath(list) => Some(list),
                _ => None,
            });
            let bare = match several {
                Some(list) => list.iter().any(|hop| gateway(&hop.attributes).is_none()),
                None => gateway(&route.attributes).is_none(),
            };
            let own = u8::from(route.header.protocol) == ROUTE_PROTOCOL;
            if !bare || own || route.header.kind != RouteType::Unicast {
                continue;
            }
            let destination = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Destination(address) => ip(address),
                _ => None,
            });
            let (ranges, first, bits) = match (destination, family) {
                (Some(IpAddr::V4(address)), _) => (&mut self.ipv4, u128::from(u32::from(address)), 32_u32),
                (Some(IpAddr::V6(address)), _) => (&mut self.ipv6, u128::from(address), 128),
                (None, AddressFamily::Inet) => (&mut self.ipv4, 0, 32),
                (None, _) => (&mut self.ipv6, 0, 128),
            };
            let rest = bits - u32::from(route.header.destination_prefix_length).min(bits);
            let mask = if rest == 0 { 0 } else { u128::MAX >> (128 - rest) };
            ranges.push((first & !mask, first | mask));
        }
        for ranges in [&mut self.ipv4, &mut self.ipv6] {
            ranges.sort_unstable();
            let mut joined: Vec<(u128, u128)> = Vec::new();
            for (first, last) in ranges.drain(..) {
                match joined.last_mut() {
                    Some((_, end)) if first <= *end => *end = (*end).max(last),
                    _ => joined.push((first, last)),
                }
            }
            *ranges = joined;
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let (ranges, address) = match address {
            IpAddr::V4(address) => (&self.ipv4, u128::from(u32::from(address))),
            IpAddr::V6(address) => (&self.ipv6, u128::from(address)),
        };
        let after = ranges.partition_point(|(first, _)| *first <= address);
        after.checked_sub(1).is_some_and(|before| address <= ranges[before].1)
    }
}

fn neighbour_address(neighbour: &NeighbourMessage) -> Option<IpAddr> {
    neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some((*address).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, gateway: Option<&str>) -> RouteMessage {
        let net: ipnet::IpNet = destination.parse().unwrap();
        let address = |address: IpAddr| match address {
            IpAddr::V4(address) => RouteAddress::Inet(address),
            IpAddr::V6(address) => RouteAddress::Inet6(address),
        };
        let mut message = RouteMessage::default();
        message.header.address_family = if net.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.header.kind = RouteType::Unicast;
        message.header.destination_prefix_length = net.prefix_len();
        if net.prefix_len() != 0 {
            message.attributes.push(RouteAttribute::Destination(address(net.network())));
        }
        message.attributes.push(RouteAttribute::Oif(3));
        message.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(address(gateway.parse().unwrap()))));
        message
    }

    #[test]
    fn only_what_has_no_gateway_is_asked_for_by_itself() {
        let mut near = OnLink::default();
        near.extend(
            &[route("0.0.0.0/0", Some("192.0.2.1")), route("192.0.2.0/24", None), route("192.0.2.128/25", None)],
            false,
        );
        let mut own = route("fc00:1::/64", None);
        own.header.protocol = ROUTE_PROTOCOL.into();
        let mut hole = route("2001:db8:f::/48", None);
        hole.header.kind = RouteType::BlackHole;
        near.extend(
            &[route("::/0", Some("fe80::1")), route("2001:db8:1::/64", None), route("fe80::/64", None), own, hole],
            false,
        );
        let contains = |address: &str| near.contains(address.parse().unwrap());
        for address in ["192.0.2.0", "192.0.2.200", "192.0.2.255", "2001:db8:1::", "2001:db8:1::ffff", "fe80::9"] {
            assert!(contains(address), "{address}");
        }
        for address in ["192.0.1.255", "192.0.3.0", "10.0.0.1", "2001:db8:2::", "fc00:1::1", "2001:db8:f::1", "::"] {
            assert!(!contains(address), "{address}");
        }
        // Nobody knows what other tables say.
        near.extend(&[], true);
        assert!(near.contains("10.0.0.1".parse().unwrap()) && near.contains("fc00:1::1".parse().unwrap()));
    }

    #[test]
    fn a_default_route_without_gateway_makes_neighbours_of_all() {
        let mut near = OnLink::default();
        near.extend(&[route("::/0", None)], false);
        assert!(near.contains("fc00:1::1".parse().unwrap()));
        assert!(!near.contains("10.0.0.1".parse().unwrap()));
    }
}
