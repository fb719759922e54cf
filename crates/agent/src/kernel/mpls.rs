//! The kernel's MPLS routes (`ip -f mpls route`), where FRR's zebra puts labels on kernels with `mpls_router`. They are only read: what a
//! core port of the node takes never gets to the kernel's own MPLS.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_route::route::RouteMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::libc::{AF_INET, AF_INET6, AF_MPLS, RTA_DST, RTA_MULTIPATH, RTA_OIF, RTM_NEWROUTE, RTN_UNICAST};
use segue_host::sysctl;

use super::{Kernel as _, KernelError, LinuxKernel};
use crate::learned::{Row, Table, Way};

/// RTNLGRP_MPLS_ROUTE.
const ROUTES: u32 = 27;
/// How many labels the kernel takes; there only if it has `mpls_router`.
const PLATFORM_LABELS: &str = "net/mpls/platform_labels";
/// RTA_VIA and RTA_NEWDST of `linux/rtnetlink.h`.
const RTA_VIA: u16 = 18;
const RTA_NEWDST: u16 = 19;
/// RTNH_F_DEAD and RTNH_F_LINKDOWN: such ways lead nowhere now.
const DEAD: u8 = 1;
const LINK_DOWN: u8 = 16;
/// Octets of `struct nlmsghdr`, `struct rtmsg`, `struct rtnexthop` and `struct rtattr`.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const NEXT_HOP: usize = 8;
const ATTRIBUTE: usize = 4;
/// Octets of a label stack entry, and what is behind the label in it.
const ENTRY: usize = 4;
const BEHIND_LABEL: u32 = 12;

impl LinuxKernel {
    /// The labels of the kernel's MPLS routes.
    ///
    /// # Errors
    /// A kernel that takes none, or does not tell.
    pub fn mpls_routes(&mut self) -> Result<Table, KernelError> {
        let missing = |cause: &str, remedy: &str| KernelError {
            action: "list MPLS routes".to_owned(),
            errno: None,
            cause: cause.to_owned(),
            remedy: remedy.to_owned(),
        };
        match sysctl::get(PLATFORM_LABELS)?.as_deref() {
            None => {
                let remedy = "`modprobe mpls_router` before FRR starts, or learn from a file";
                return Err(missing("the kernel has no MPLS routes", remedy));
            }
            Some("0") => {
                let remedy = "`sysctl net.mpls.platform_labels=1048575` before FRR starts";
                return Err(missing("the kernel takes no labels", remedy));
            }
            Some(_) => {}
        }
        let names: BTreeMap<u32, String> =
            self.links()?.0.into_iter().map(|(name, interface)| (interface.ifindex, name)).collect();
        let mut filter = RouteMessage::default();
        filter.header.address_family = AddressFamily::Mpls;
        let read = |table: &mut Table, message: &[u8]| table.extend(route(message, &names));
        let listed = self.socket.dump_raw(RouteNetlinkMessage::GetRoute(filter), read);
        listed.map_err(|error| KernelError::netlink("list MPLS routes", error))
    }
}

/// Tells whether routes have changed, in the network namespace in which it was opened.
pub struct MplsChanges(Socket);

impl MplsChanges {
    /// # Errors
    /// A socket that cannot be opened.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.add_membership(ROUTES)?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Since this was asked last.
    pub fn any(&self) -> bool {
        let mut any = false;
        loop {
            match self.0.recv_from_full() {
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
                // More came than fits.
                Err(_) => return true,
            }
        }
    }
}

/// An attribute's kind and value, and so on.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, kind) = (half(self.0, 0)?, half(self.0, 2)?);
        let value = self.0.get(ATTRIBUTE..length.into())?;
        self.0 = self.0.get(usize::from(length).next_multiple_of(ATTRIBUTE)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn half(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(octets.get(at..at + 4)?.try_into().ok()?))
}

/// A route as the kernel sends it; none if it is one of another family or kind. Ways whose link is down are left out.
fn route(message: &[u8], names: &BTreeMap<u32, String>) -> Option<(u32, Row)> {
    let body = message.get(HEADER..)?;
    let is_mpls = half(message, 4)? == RTM_NEWROUTE && i32::from(*body.first()?) == AF_MPLS;
    // RTN_UNICAST is all that there is today.
    if !is_mpls || *body.get(7)? != RTN_UNICAST {
        return None;
    }
    let (protocol, flags) = (*body.get(5)?, word(body, 8)?);
    let attributes = body.get(ROUTE..)?;
    let mut label = None;
    let mut several = None;
    for (kind, value) in Attributes(attributes) {
        match kind {
            RTA_DST => label = labels(value)?.first().copied(),
            RTA_MULTIPATH => several = Some(value),
            _ => {}
        }
    }
    let mut ways = Vec::new();
    match several {
        None => ways.extend(way(attributes, None, flags, names)?),
        Some(mut rest) => {
            while rest.len() >= NEXT_HOP {
                let length = usize::from(half(rest, 0)?);
                let inside = rest.get(NEXT_HOP..length)?;
                ways.extend(way(inside, word(rest, 4), rest[2].into(), names)?);
                rest = rest.get(length.next_multiple_of(ATTRIBUTE)..).unwrap_or_default();
            }
        }
    }
    Some((label?, Row { by: by(protocol), ways }))
}

/// The inner `None` is a way that is down; the outer one a message that makes no sense.
fn way(
    attributes: &[u8],
    mut interface: Option<u32>,
    flags: u32,
    names: &BTreeMap<u32, String>,
) -> Option<Option<Way>> {
    let mut way = Way::default();
    for (kind, value) in Attributes(attributes) {
        match kind {
            RTA_NEWDST => way.out = labels(value)?,
            RTA_OIF => interface = word(value, 0),
            RTA_VIA => way.next_hop = neighbour(value),
            _ => {}
        }
    }
    way.interface = interface.filter(|number| *number != 0).map(|number| match names.get(&number) {
        Some(name) => name.clone(),
        None => format!("interface {number}"),
    });
    Some((flags & u32::from(DEAD | LINK_DOWN) == 0).then_some(way))
}

fn labels(value: &[u8]) -> Option<Vec<u32>> {
    let entries = value.chunks_exact(ENTRY);
    if !entries.remainder().is_empty() {
        return None;
    }
    entries.map(|entry| Some(u32::from_be_bytes(entry.try_into().ok()?) >> BEHIND_LABEL)).collect()
}

/// A neighbour that is told by its IP address.
fn neighbour(value: &[u8]) -> Option<IpAddr> {
    let address = value.get(2..)?;
    match i32::from(half(value, 0)?) {
        AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(address).ok()?)),
        AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(address).ok()?)),
        _ => None,
    }
}

/// Who put a route there, by the numbers of iproute2 and FRR.
fn by(protocol: u8) -> String {
    match protocol {
        3 => "boot",
        4 | 196 => "static",
        11 => "zebra",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        193 => "ldp",
        198 => "srte",
        other => return format!("protocol {other}"),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What zebra of FRR 8.4.4 sends for a label, behind the header: the same octets to the kernel and to a Forwarding Plane Manager.
    const ADJACENCY: &str =
        "1c140000febb0001000000000800010003a99100160012000a00fe8000000000000010a856fffeeb858d00000800040003000000";

    fn octets(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn message(body: &[u8]) -> Vec<u8> {
        let mut message = vec![0; HEADER];
        message[4..6].copy_from_slice(&RTM_NEWROUTE.to_ne_bytes());
        message.extend_from_slice(body);
        message
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut octets = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
        octets.extend(kind.to_ne_bytes());
        octets.extend(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn entry(label: u32) -> [u8; 4] {
        (label << BEHIND_LABEL | 0x100).to_be_bytes()
    }

    fn read(body: &[u8]) -> Option<(u32, Row)> {
        route(&message(body), &BTreeMap::from([(1, "lo".to_owned()), (3, "eth23".to_owned())]))
    }

    /// Its protocol is 188.
    fn of_route(attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = octets("1c140000febc000100000000");
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn what_zebra_says_for_an_adjacency() {
        let (label, row) = read(&octets(ADJACENCY)).unwrap();
        let next_hop = "fe80::10a8:56ff:feeb:858d".parse().ok();
        let way = Way { out: Vec::new(), next_hop, interface: Some("eth23".to_owned()) };
        assert_eq!((label, row), (15001, Row { by: "isis".to_owned(), ways: vec![way] }));
    }

    #[test]
    fn swaps_own_labels_and_several_ways() {
        let way = |out: &[u32], last: u8, interface: &str| Way {
            out: out.to_vec(),
            next_hop: (last != 0).then(|| IpAddr::from([10, 0, 0, last])),
            interface: Some(interface.to_owned()),
        };
        let via = |last: u8| attribute(RTA_VIA, &[2, 0, 10, 0, 0, last]);
        let number = |number: u32| attribute(RTA_OIF, &number.to_ne_bytes());
        let dst = |label: u32| attribute(RTA_DST, &entry(label));
        let swap = of_route(&[dst(16030), attribute(RTA_NEWDST, &entry(17)), via(3), number(3)]);
        assert_eq!(read(&swap).unwrap(), (16030, Row { by: "ospf".to_owned(), ways: vec![way(&[17], 3, "eth23")] }));
        let own = of_route(&[dst(16020), number(1)]);
        assert_eq!(read(&own).unwrap().1.ways, [way(&[], 0, "lo")]);
        let hop = |flags: u8, link: u32, inside: &[Vec<u8>]| {
            let inside = inside.concat();
            let mut octets = ((NEXT_HOP + inside.len()) as u16).to_ne_bytes().to_vec();
            octets.extend([flags, 0]);
            octets.extend(link.to_ne_bytes());
            octets.extend(inside);
            octets
        };
        let stack = attribute(RTA_NEWDST, &[entry(18), entry(19)].concat());
        let hops =
            [hop(0, 3, &[stack, via(4)]), hop(0, 9, &[via(5)]), hop(DEAD, 3, &[via(6)]), hop(LINK_DOWN, 3, &[via(7)])];
        let several = of_route(&[dst(16010), attribute(RTA_MULTIPATH, &hops.concat())]);
        assert_eq!(read(&several).unwrap().1.ways, [way(&[18, 19], 4, "eth23"), way(&[], 5, "interface 9")]);
    }

    #[test]
    fn other_messages_and_halves_are_none() {
        let whole = octets(ADJACENCY);
        let mut ipv4 = whole.clone();
        ipv4[0] = 2;
        assert_eq!(read(&ipv4), None);
        for length in 0..whole.len() {
            // Without a whole label there is nothing.
            let found = read(&whole[..length]);
            assert!(found.is_none_or(|(label, _)| label == 15001), "{length}");
        }
        for length in [0, 1, 3, 7, 40_000_u16] {
            let mut broken = of_route(&[attribute(RTA_DST, &entry(16)), attribute(RTA_MULTIPATH, &[0; NEXT_HOP])]);
            let at = broken.len() - NEXT_HOP;
            broken[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(read(&broken), None, "a way of {length} octets");
        }
        assert_eq!(read(&of_route(&[attribute(RTA_DST, &[1, 2, 3])])), None);
    }
}
