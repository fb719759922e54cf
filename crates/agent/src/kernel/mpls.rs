//! The kernel's MPLS routes (`ip -f mpls route`), where FRR's zebra puts labels on kernels with `mpls_router`. They are only read: what a
//! core port of the node takes never gets to the kernel's own MPLS.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use segue_host::netlink::NetlinkError;
use segue_host::sysctl;

use super::{Kernel as _, KernelError, LinuxKernel};
use crate::learned::{Row, Table, Way};

/// RTNLGRP_MPLS_ROUTE.
const ROUTES: u32 = 27;
/// How many labels the kernel takes; there only if it has `mpls_router`.
const PLATFORM_LABELS: &str = "net/mpls/platform_labels";

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
        type Read = (Table, Option<NetlinkError>);
        // One after the other: there may be a million.
        let read =
            |(table, broken): &mut Read, message: &[u8]| match NetlinkMessage::<RouteNetlinkMessage>::deserialize(
                message,
            )
            .map(|message| message.payload)
            {
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route))) => {
                    table.extend(row(&route, &names))
                }
                Ok(_) => {}
                Err(error) => *broken = Some(NetlinkError::Answer(error.to_string())),
            };
        let listed = self.socket.dump_raw(RouteNetlinkMessage::GetRoute(filter), read);
        let listed = listed.and_then(|(table, broken)| broken.map_or(Ok(table), Err));
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

/// A label and what is said of it; none of a route of another family or kind. Ways whose link is down are left out.
fn row(route: &RouteMessage, names: &BTreeMap<u32, String>) -> Option<(u32, Row)> {
    // Unicast is all that there is today.
    if route.header.address_family != AddressFamily::Mpls || route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut label = None;
    let mut several = None;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Mpls(entry)) => label = Some(entry.label),
            RouteAttribute::MultiPath(hops) => several = Some(hops),
            _ => {}
        }
    }
    let is_up = !route.header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown);
    let ways = match several {
        None => is_up.then(|| way(&route.attributes, None, names)).into_iter().collect(),
        Some(hops) => {
            let down = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
            let up = hops.iter().filter(|hop| !hop.flags.intersects(down));
            up.map(|hop| way(&hop.attributes, Some(hop.interface_index), names)).collect()
        }
    };
    Some((label?, Row { by: by(route.header.protocol.into()), ways }))
}

fn way(attributes: &[RouteAttribute], mut interface: Option<u32>, names: &BTreeMap<u32, String>) -> Way {
    let mut way = Way::default();
    for attribute in attributes {
        match attribute {
            RouteAttribute::NewDestination(entries) => way.out = entries.iter().map(|entry| entry.label).collect(),
            RouteAttribute::Oif(number) => interface = Some(*number),
            // A neighbour that is told by its IP address.
            RouteAttribute::Via(RouteVia::Inet(address)) => way.next_hop = Some(IpAddr::from(*address)),
            RouteAttribute::Via(RouteVia::Inet6(address)) => way.next_hop = Some(IpAddr::from(*address)),
            _ => {}
        }
    }
    way.interface = interface.filter(|number| *number != 0).map(|number| match names.get(&number) {
        Some(name) => name.clone(),
        None => format!("interface {number}"),
    });
    way
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
    use netlink_packet_core::{DecodeError, Parseable as _};

    use super::*;

    /// Of `linux/rtnetlink.h`.
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_MULTIPATH: u16 = 9;
    const RTA_VIA: u16 = 18;
    const RTA_NEWDST: u16 = 19;
    const RTNH_F_DEAD: u8 = 1;
    const RTNH_F_LINKDOWN: u8 = 16;
    /// Octets of `struct rtnexthop` and `struct rtattr`.
    const NEXT_HOP: usize = 8;
    const ATTRIBUTE: usize = 4;

    /// What zebra of FRR 8.4.4 sends for a label, behind the header: the same octets to the kernel and to a Forwarding Plane Manager.
    const ADJACENCY: &str =
        "1c140000febb0001000000000800010003a99100160012000a00fe8000000000000010a856fffeeb858d00000800040003000000";

    fn octets(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut octets = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
        octets.extend(kind.to_ne_bytes());
        octets.extend(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn entry(label: u32) -> [u8; 4] {
        (label << 12 | 0x100).to_be_bytes()
    }

    fn read(body: &[u8]) -> Result<Option<(u32, Row)>, DecodeError> {
        Ok(row(&RouteMessage::parse(body)?, &BTreeMap::from([(1, "lo".to_owned()), (3, "eth23".to_owned())])))
    }

    fn read_whole(body: &[u8]) -> (u32, Row) {
        read(body).unwrap().unwrap()
    }

    /// Its protocol is 188.
    fn of_route(attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = octets("1c140000febc000100000000");
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn what_zebra_says_for_an_adjacency() {
        let (label, row) = read_whole(&octets(ADJACENCY));
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
        assert_eq!(read_whole(&swap), (16030, Row { by: "ospf".to_owned(), ways: vec![way(&[17], 3, "eth23")] }));
        let own = of_route(&[dst(16020), number(1)]);
        assert_eq!(read_whole(&own).1.ways, [way(&[], 0, "lo")]);
        let hop = |flags: u8, link: u32, inside: &[Vec<u8>]| {
            let inside = inside.concat();
            let mut octets = ((NEXT_HOP + inside.len()) as u16).to_ne_bytes().to_vec();
            octets.extend([flags, 0]);
            octets.extend(link.to_ne_bytes());
            octets.extend(inside);
            octets
        };
        let stack = attribute(RTA_NEWDST, &[entry(18), entry(19)].concat());
        let hops = [
            hop(0, 3, &[stack, via(4)]),
            hop(0, 9, &[via(5)]),
            hop(RTNH_F_DEAD, 3, &[via(6)]),
            hop(RTNH_F_LINKDOWN, 3, &[via(7)]),
        ];
        let several = of_route(&[dst(16010), attribute(RTA_MULTIPATH, &hops.concat())]);
        assert_eq!(read_whole(&several).1.ways, [way(&[18, 19], 4, "eth23"), way(&[], 5, "interface 9")]);
    }

    #[test]
    fn other_routes_are_none_and_halves_are_errors() {
        let whole = octets(ADJACENCY);
        let mut ipv4 = whole.clone();
        ipv4[0] = 2;
        assert!(matches!(read(&ipv4), Ok(None) | Err(_)));
        for length in 0..whole.len() {
            // Without a whole label there is nothing.
            let found = read(&whole[..length]).ok().flatten();
            assert!(found.is_none_or(|(label, _)| label == 15001), "{length}");
        }
        for length in [0, 1, 3, 7, 40_000_u16] {
            let mut broken = of_route(&[attribute(RTA_DST, &entry(16)), attribute(RTA_MULTIPATH, &[0; NEXT_HOP])]);
            let at = broken.len() - NEXT_HOP;
            broken[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            assert!(read(&broken).is_err(), "a way of {length} octets");
        }
        assert!(read(&of_route(&[attribute(RTA_DST, &[1, 2, 3])])).is_err());
    }
}
