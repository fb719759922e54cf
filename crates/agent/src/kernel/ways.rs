//! Looking around: which routing tables are there, which way packets take, whether neighbours answer. Changes nothing, but that a
//! neighbour is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{InfoData, InfoVrf, LinkAttribute, LinkInfo, LinkMessage},
    neighbour::NeighbourState,
    route::{RouteAttribute, RouteMessage, RouteType},
    rule::{RuleAttribute, RuleMessage},
};
use nix::libc::ENOENT;
use segue_host::netlink::NetlinkError;

use super::neighbour_room::Neighbour;
use super::netlink::{LinuxKernel, gateways, oif};

/// Where the kernel sends packets for a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Nowhere: there is no route, or one that drops.
    None,
    /// It is the node's own.
    Own,
    /// By this interface to this neighbour.
    Via(u32, IpAddr),
}

impl LinuxKernel {
    /// Which of these routing tables have a route, a rule or a VRF.
    pub(super) fn tables(&mut self, asked: &BTreeSet<u32>) -> Result<BTreeSet<u32>, NetlinkError> {
        let mut known = BTreeSet::new();
        if asked.is_empty() {
            return Ok(known);
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            for table in asked {
                if self.has_route(family, *table)? {
                    known.insert(*table);
                }
            }
            let mut all = RuleMessage::default();
            all.header.family = family;
            for answer in self.socket.dump(RouteNetlinkMessage::GetRule(all))? {
                let RouteNetlinkMessage::NewRule(rule) = answer else { continue };
                known.insert(u32::from(rule.header.table));
                known.extend(rule.attributes.iter().filter_map(|attribute| match attribute {
                    RuleAttribute::Table(table) => Some(*table),
                    _ => None,
                }));
            }
        }
        for answer in self.socket.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                known.extend(vrf(&link));
            }
        }
        Ok(known.intersection(asked).copied().collect())
    }

    fn has_route(&mut self, family: AddressFamily, table: u32) -> Result<bool, NetlinkError> {
        let mut filter = RouteMessage::default();
        filter.header.address_family = family;
        filter.attributes.push(RouteAttribute::Table(table));
        let is_in = |answer: &RouteNetlinkMessage| match answer {
            // Kernels that do not filter send all of them.
            RouteNetlinkMessage::NewRoute(route) => route.attributes.contains(&RouteAttribute::Table(table)),
            _ => false,
        };
        match self.socket.dump(RouteNetlinkMessage::GetRoute(filter)) {
            Ok(answers) => Ok(answers.iter().any(is_in)),
            Err(error) if error.errno() == Some(ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The way to a destination.
    pub fn way(&mut self, destination: IpAddr) -> Way {
        let Some(route) = self.route_to(destination) else { return Way::None };
        match route.header.kind {
            RouteType::Local => Way::Own,
            RouteType::Unicast => {
                let gateway = gateways(&route).into_iter().next();
                let bare = || oif(&route).map(|link| (link, destination));
                gateway.or_else(bare).map_or(Way::None, |(link, neighbour)| Way::Via(link, neighbour))
            }
            _ => Way::None,
        }
    }

    /// Whether these neighbours answer: None while that is not known, and then they are asked for.
    pub fn neighbours_answer(
        &mut self,
        wanted: &BTreeSet<Neighbour>,
    ) -> Result<BTreeMap<Neighbour, Option<bool>>, NetlinkError> {
        let known: BTreeMap<Neighbour, NeighbourState> = self.neighbours()?.into_iter().collect();
        let mut found = BTreeMap::new();
        for neighbour in wanted {
            let answers = match known.get(neighbour) {
                Some(NeighbourState::Failed) => Some(false),
                Some(NeighbourState::Incomplete) => None,
                None | Some(NeighbourState::None) => {
                    // Refused where the link takes no neighbours, or is down, which is told by itself.
                    self.use_neighbour(*neighbour).err().map(|_| false)
                }
                Some(_) => Some(true),
            };
            found.insert(*neighbour, answers);
        }
        Ok(found)
    }

    /// Whether the boundary's table is there now, whatever this agent remembers.
    ///
    /// # Errors
    /// A kernel without nf_tables.
    pub fn has_boundary(&mut self) -> io::Result<bool> {
        Ok(self.table()?.read()?.is_some())
    }
}

fn vrf(link: &LinkMessage) -> Vec<u32> {
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    let data = infos.flatten().filter_map(|info| match info {
        LinkInfo::Data(InfoData::Vrf(data)) => Some(data),
        _ => None,
    });
    let table = |info: &InfoVrf| match info {
        InfoVrf::TableId(table) => Some(*table),
        _ => None,
    };
    data.flatten().filter_map(table).collect()
}
