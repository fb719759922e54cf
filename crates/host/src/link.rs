//! Links, addresses, neighbours and routes by rtnetlink, in the calling thread's network namespace.

mod bus;

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libc::{EADDRNOTAVAIL, EEXIST, ENODEV, ENOENT, ESRCH};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope, CacheInfo};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoMacVlan, InfoVeth, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, MacVlanMode,
    VlanProtocol,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink::{Netlink, NetlinkError};
use crate::{HostError, Namespace, Result};

/// How long the kernel may take to make an address's route.
const ROUTE_WITHIN: Duration = Duration::from_secs(1);
/// `RT_TABLE_LOCAL`: what is for this host.
const LOCAL_TABLE: u8 = 255;

/// A link that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its alias, empty if it has none.
    pub alias: String,
    /// Up, with somebody at the other end.
    pub carrier: bool,
    /// How often that has changed.
    pub carrier_changes: u32,
    index: u32,
    mtu: u32,
    up: bool,
    lower: u32,
    vlan: Option<u16>,
    mac: Vec<u8>,
    parent: Option<String>,
}

/// Which frames of a link a VLAN has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Number of the link.
    pub lower: u32,
    /// VID of IEEE 802.1Q, 1 to 4094.
    pub id: u16,
}

impl Link {
    /// Whether it has been brought up, with somebody at the other end or not.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Which VLAN it is; None if it is none.
    pub fn tag(&self) -> Option<Tag> {
        Some(Tag { lower: self.lower, id: self.vlan? })
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// A link to be.
#[derive(Debug)]
pub struct New<'a> {
    name: &'a str,
    mac: [u8; 6],
    mtu: u32,
}

impl<'a> New<'a> {
    /// With this name, link-layer address and MTU.
    pub fn named(name: &'a str, mac: [u8; 6], mtu: u32) -> Self {
        Self { name, mac, mtu }
    }

    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Address(self.mac.to_vec()),
            LinkAttribute::Mtu(self.mtu),
        ];
        message
    }
}

/// Kinds of links that are made.
#[derive(Debug)]
pub enum Kind<'a> {
    /// One end of a pair; the other in a namespace, or beside it.
    Veth {
        /// The other end.
        peer: &'a New<'a>,
        /// Where it goes.
        namespace: Option<&'a Namespace>,
    },
    /// On top of a link of this namespace, in another one. It talks to no other one on the same link.
    MacVlan {
        /// The link.
        lower: &'a str,
        /// Where it goes.
        namespace: &'a Namespace,
    },
}

/// The links of one namespace.
pub struct LinkSocket(Netlink);

impl LinkSocket {
    /// Those of the calling thread's namespace.
    pub fn open() -> Result<Self> {
        Netlink::open(NETLINK_ROUTE)
            .map(Self)
            .map_err(|error| HostError::Netlink { what: "open rtnetlink".into(), cause: error })
    }

    /// All of them.
    pub fn all(&mut self) -> Result<Vec<Link>> {
        let answers = self.0.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        let answers = answers.map_err(|error| HostError::Netlink { what: "list interfaces".into(), cause: error })?;
        Ok(answers.iter().filter_map(read).collect())
    }

    /// The one of this name.
    pub fn find(&mut self, name: &str) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.0.request(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(answers) => Ok(answers.iter().find_map(read)),
            Err(error) if matches!(error.errno(), Some(ENODEV | ENOENT)) => Ok(None),
            Err(error) => Err(failed("look for", name, error)),
        }
    }

    /// Makes a link, and gives it this alias unless that is empty.
    pub fn add(&mut self, new: &New<'_>, alias: &str, kind: Kind<'_>) -> Result<()> {
        match kind {
            Kind::Veth { peer, namespace } => {
                let mut peer = peer.message();
                peer.attributes
                    .extend(namespace.map(|namespace| LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd())));
                let info = [LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)))];
                self.make(new, new.message(), &info)?;
                if alias.is_empty() { Ok(()) } else { self.alias(new.name, alias) }
            }
            Kind::MacVlan { lower, namespace } => {
                let lower = self.find(lower)?.unwrap_or_default();
                // Kernels before 6.15 refuse a name that this namespace has, although the link is to be in the other one.
                let first = format!("segue-{:x}", lower.index);
                let mut message = New { name: &first, ..*new }.message();
                message.attributes.push(LinkAttribute::Link(lower.index));
                message.attributes.push(LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()));
                let mode = InfoMacVlan::Mode(MacVlanMode::Private);
                let info = [LinkInfo::Kind(InfoKind::MacVlan), LinkInfo::Data(InfoData::MacVlan(vec![mode]))];
                self.make(new, message, &info)?;
                namespace.inside(|| {
                    let mut there = Self::open()?;
                    there.rename(&first, new.name).inspect_err(|_| drop(there.delete(&first)))?;
                    if alias.is_empty() { Ok(()) } else { there.alias(new.name, alias) }
                })?
            }
        }
    }

    /// Makes a VLAN of IEEE 802.1Q, with link-layer address and MTU of its link, and gives it this alias.
    pub fn add_vlan(&mut self, name: &str, alias: &str, tag: Tag) -> Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Link(tag.lower)];
        let data = InfoData::Vlan(vec![InfoVlan::Id(tag.id)]);
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(data)]));
        self.change("add", name, RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)?;
        self.alias(name, alias)
    }

    fn make(&mut self, new: &New<'_>, mut message: LinkMessage, info: &[LinkInfo]) -> Result<()> {
        message.attributes.push(LinkAttribute::LinkInfo(info.to_vec()));
        self.change("add", new.name, RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Gives a link that is down another name.
    pub fn rename(&mut self, name: &str, other: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.find(name)?.unwrap_or_default().index;
        message.attributes.push(LinkAttribute::IfName(other.to_owned()));
        self.change("rename", name, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives a link an alias.
    pub fn alias(&mut self, name: &str, alias: &str) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        if link.alias == alias {
            return Ok(());
        }
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
        self.change("name", name, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Brings a link up with this MTU (0: the one it has) and this alias.
    pub fn settle(&mut self, name: &str, alias: Option<&str>, mtu: u32) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        if let Some(alias) = alias {
            self.alias(name, alias)?;
        }
        let other_mtu = mtu != 0 && link.mtu != mtu;
        if link.up && !other_mtu {
            return Ok(());
        }
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.extend(other_mtu.then_some(LinkAttribute::Mtu(mtu)));
        self.change("bring up", name, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Removes a link; nothing happens if there is none.
    pub fn delete(&mut self, name: &str) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        match self.0.request(RouteNetlinkMessage::DelLink(message), 0) {
            // It went meanwhile: with its other end, or with the link below it.
            Err(error) if !matches!(error.errno(), Some(ENODEV)) => Err(failed("remove", name, error)),
            _ => Ok(()),
        }
    }

    /// Takes an address from a link; nothing happens if it has not got it.
    pub fn without_address(&mut self, name: &str, address: IpAddr) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let message = own_address(link.index, address);
        match self.0.request(RouteNetlinkMessage::DelAddress(message), 0) {
            Err(error) if !matches!(error.errno(), Some(EADDRNOTAVAIL)) => {
                Err(failed("take an address from", name, error))
            }
            _ => Ok(()),
        }
    }

    /// Gives a link an address whose packets are not for this host: the route goes that says so.
    pub fn address_not_local(&mut self, name: &str, address: Ipv6Addr) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let add = RouteNetlinkMessage::NewAddress(own_address(link.index, address.into()));
        let new = match self.0.request(add, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(_) => true,
            Err(error) if matches!(error.errno(), Some(EEXIST)) => false,
            Err(error) => return Err(failed("add an address to", name, error)),
        };
        // The address as a prefix of its own, and the local one. The kernel makes that of a new address a little later, in a
        // thread of its own.
        let delete = |route| RouteNetlinkMessage::DelRoute(route);
        match self.0.request(delete(own_route(link.index, address, RouteHeader::RT_TABLE_MAIN, RouteType::Unicast)), 0)
        {
            Err(error) if !matches!(error.errno(), Some(ESRCH)) => {
                return Err(failed("remove a route of", name, error));
            }
            _ => {}
        }
        let end = Instant::now() + ROUTE_WITHIN;
        loop {
            match self.0.request(delete(own_route(link.index, address, LOCAL_TABLE, RouteType::Local)), 0) {
                Err(error) if matches!(error.errno(), Some(ESRCH)) => {
                    if !new || Instant::now() > end {
                        return Ok(());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => return result.map(drop).map_err(|error| failed("remove a local route of", name, error)),
            }
        }
    }

    /// Gives a link an address that nothing else of this host is sent from: of link scope, or deprecated.
    pub fn quiet_address(&mut self, name: &str, address: IpAddr) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let mut message = own_address(link.index, address);
        if address.is_ipv4() {
            message.header.scope = AddressScope::Link;
        } else {
            message.header.flags = AddressHeaderFlags::Nodad;
            let mut life = CacheInfo::default();
            life.ifa_valid = u32::MAX;
            message.attributes.push(AddressAttribute::CacheInfo(life));
        }
        self.change("add an address to", name, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// A neighbour that is known for ever.
    pub fn neighbour(&mut self, name: &str, address: IpAddr, mac: [u8; 6]) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = link.index;
        message.header.state = NeighbourState::Permanent;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes =
            vec![NeighbourAttribute::Destination(destination), NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.change("add a neighbour to", name, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Everything leaves by this link, to a gateway that needs no route to itself. `protocol` says whose the route is.
    pub fn default_route(&mut self, name: &str, gateway: IpAddr, protocol: u8) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let message = RouteNetlinkMessage::NewRoute(default_route(link.index, gateway, protocol));
        self.change("add a route by", name, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// As [`LinkSocket::default_route`], in this routing table and with this metric.
    pub fn default_route_in(
        &mut self,
        name: &str,
        gateway: IpAddr,
        protocol: u8,
        table: u32,
        metric: u32,
    ) -> Result<()> {
        let Some(link) = self.find(name)? else { return Ok(()) };
        let mut message = default_route(link.index, gateway, protocol);
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.attributes.push(RouteAttribute::Table(table));
        message.attributes.extend((metric != 0).then_some(RouteAttribute::Priority(metric)));
        let message = RouteNetlinkMessage::NewRoute(message);
        self.change("add a route by", name, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// What comes in by this link is routed by that table; nothing happens if there is such a rule.
    pub fn rule(&mut self, name: &str, ipv6: bool, table: u32, priority: u32, protocol: u8) -> Result<()> {
        let message = RouteNetlinkMessage::NewRule(incoming(name, ipv6, table, priority, protocol));
        match self.0.request(message, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if !matches!(error.errno(), Some(EEXIST)) => Err(failed("add a rule for", name, error)),
            _ => Ok(()),
        }
    }

    /// Takes such a rule away; nothing happens if there is none.
    pub fn without_rule(&mut self, name: &str, ipv6: bool, table: u32, priority: u32, protocol: u8) -> Result<()> {
        let message = RouteNetlinkMessage::DelRule(incoming(name, ipv6, table, priority, protocol));
        match self.0.request(message, 0) {
            Err(error) if !matches!(error.errno(), Some(ENOENT)) => Err(failed("remove a rule for", name, error)),
            _ => Ok(()),
        }
    }

    fn change(&mut self, what: &str, name: &str, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.0.request(message, flags).map(drop).map_err(|error| failed(what, name, error))
    }
}

fn default_route(index: u32, gateway: IpAddr, protocol: u8) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(gateway);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::from(protocol);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.header.flags = RouteFlags::Onlink;
    let via = match gateway {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    };
    message.attributes = vec![RouteAttribute::Gateway(via), RouteAttribute::Oif(index)];
    message
}

fn incoming(name: &str, ipv6: bool, table: u32, priority: u32, protocol: u8) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Iifname(name.to_owned()),
        RuleAttribute::Table(table),
        RuleAttribute::Priority(priority),
        RuleAttribute::Protocol(RouteProtocol::from(protocol)),
    ];
    message
}

fn read(answer: &RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let flags = message.header.flags;
    let (up, carrier) = (flags.contains(LinkFlags::Up), flags.contains(LinkFlags::Up | LinkFlags::LowerUp));
    let mut link = Link { index: message.header.index, up, carrier, ..Link::default() };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::IfAlias(alias) => link.alias.clone_from(alias),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::CarrierChanges(count) => link.carrier_changes = *count,
            LinkAttribute::Link(index) => link.lower = *index,
            LinkAttribute::LinkInfo(info) => link.vlan = vlan(info),
            LinkAttribute::Address(mac) => link.mac.clone_from(mac),
            LinkAttribute::ParentDevName(parent) => link.parent = Some(parent.clone()),
            _ => {}
        }
    }
    Some(link)
}

/// The VID of a VLAN of IEEE 802.1Q.
fn vlan(info: &[LinkInfo]) -> Option<u16> {
    let data = info.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(data)) => Some(data),
        _ => None,
    })?;
    if data.iter().any(|one| matches!(one, InfoVlan::Protocol(protocol) if *protocol != VlanProtocol::Ieee8021Q)) {
        return None;
    }
    data.iter().find_map(|one| match one {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    })
}

/// A route that an address of its own brings to a link.
fn own_route(index: u32, address: Ipv6Addr, table: u8, kind: RouteType) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = 128;
    message.header.table = table;
    message.header.kind = kind;
    message.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet6(address)), RouteAttribute::Oif(index)];
    message
}

/// An address without a prefix around it; a link-local one with that of the link, which neighbours are answered by.
fn own_address(index: u32, address: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(address) if address.is_unicast_link_local() => 64,
        IpAddr::V6(_) => 128,
    };
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn failed(what: &str, name: &str, error: NetlinkError) -> HostError {
    HostError::Netlink { what: format!("{what} interface {name}"), cause: error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there() {
        let all = LinkSocket::open().unwrap().all().unwrap();
        let lo = LinkSocket::open().unwrap().find("lo").unwrap().expect("every namespace has lo");
        assert!(all.contains(&lo), "{lo:?}: {all:?}");
        assert_eq!(LinkSocket::open().unwrap().find("there-is-none").unwrap(), None);
    }
}
