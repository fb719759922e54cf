//! SID routes as netlink messages, both ways.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

use ipnet::Ipv6Net;
use netlink_packet_core::{DefaultNla, NetlinkMessage, NetlinkPayload, Nla, NlaBuffer, NlasIterator, Parseable};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage, RouteProtocol,
        RouteSeg6LocalTunnel, RouteType, Seg6LocalAction, Seg6LocalSrh,
    },
};

use super::{LocalAction, ROUTE_METRIC, ROUTE_PROTOCOL, RouteTarget, SidRoute};

/// `SEG6_LOCAL_FLAVORS`, nested; the crate does not name it.
const SEG6_LOCAL_FLAVORS: u16 = 11;
/// `SEG6_LOCAL_FLV_OPERATION`: a bit mask of flavours.
const FLAVOR_OPERATION: u16 = 1;
/// `SEG6_F_LOCAL_FLV_OP(SEG6_LOCAL_FLV_OP_PSP)`.
const FLAVOR_PSP: u32 = 1 << 1;
const ROUTING_TYPE_SRH: u8 = 4;

/// The message's part that says which route: for dumps and removals.
pub fn key(prefix: Option<Ipv6Net>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::from(ROUTE_PROTOCOL);
    if let Some(prefix) = prefix {
        message.header.destination_prefix_length = prefix.prefix_len();
        message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet6(prefix.network())));
        message.attributes.push(RouteAttribute::Priority(ROUTE_METRIC));
    }
    message
}

/// The whole route.
pub fn to_message(route: &SidRoute) -> RouteMessage {
    let mut message = key(Some(route.prefix));
    match &route.target {
        RouteTarget::Blackhole | RouteTarget::Unknown => message.header.kind = RouteType::BlackHole,
        RouteTarget::Seg6Local { action, device } => {
            message.header.kind = RouteType::Unicast;
            message.attributes.push(RouteAttribute::Oif(*device));
            message.attributes.push(RouteAttribute::EncapType(RouteLwEnCapType::Seg6Local));
            let attributes = action_attributes(action);
            message
                .attributes
                .push(RouteAttribute::Encap(attributes.into_iter().map(RouteLwTunnelEncap::Seg6Local).collect()));
        }
    }
    message
}

fn action_attributes(action: &LocalAction) -> Vec<RouteSeg6LocalTunnel> {
    use RouteSeg6LocalTunnel as Attribute;
    match action {
        LocalAction::End { psp: false } => vec![Attribute::Action(Seg6LocalAction::End)],
        LocalAction::End { psp: true } => vec![Attribute::Action(Seg6LocalAction::End), flavours(FLAVOR_PSP)],
        LocalAction::EndX { next_hop } => vec![Attribute::Action(Seg6LocalAction::EndX), Attribute::Nh6(*next_hop)],
        LocalAction::EndT { table } => vec![Attribute::Action(Seg6LocalAction::EndT), Attribute::Table(*table)],
        LocalAction::EndDx2 { oif } => vec![Attribute::Action(Seg6LocalAction::EndDx2), Attribute::Oif(*oif)],
        LocalAction::EndDx4 { next_hop } => vec![Attribute::Action(Seg6LocalAction::EndDx4), Attribute::Nh4(*next_hop)],
        LocalAction::EndDx6 { next_hop } => vec![Attribute::Action(Seg6LocalAction::EndDx6), Attribute::Nh6(*next_hop)],
        LocalAction::EndDt6 { table } => vec![Attribute::Action(Seg6LocalAction::EndDt6), Attribute::Table(*table)],
        LocalAction::EndB6Encaps { segments } => {
            vec![Attribute::Action(Seg6LocalAction::EndB6Encap), Attribute::Srh(srh(segments))]
        }
    }
}

fn flavours(operations: u32) -> RouteSeg6LocalTunnel {
    let mut nested = Vec::with_capacity(8);
    nested.extend_from_slice(&8u16.to_ne_bytes());
    nested.extend_from_slice(&FLAVOR_OPERATION.to_ne_bytes());
    nested.extend_from_slice(&operations.to_ne_bytes());
    RouteSeg6LocalTunnel::Other(DefaultNla::new(SEG6_LOCAL_FLAVORS | netlink_packet_core::NLA_F_NESTED, nested))
}

/// RFC 8754 section 2: the list is written in reverse.
fn srh(segments: &[Ipv6Addr]) -> Seg6LocalSrh {
    let last = u8::try_from(segments.len().saturating_sub(1)).unwrap_or(u8::MAX);
    let mut srh = Seg6LocalSrh::default();
    srh.routing_type = ROUTING_TYPE_SRH;
    srh.segments_left = last;
    srh.first_segment = last;
    srh.segments = segments.iter().rev().copied().collect();
    srh
}

/// Reads one of our routes back; `None` if it is not ours.
pub fn from_message(message: &RouteMessage) -> Option<SidRoute> {
    let header = &message.header;
    let table = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    if u8::from(header.protocol) != ROUTE_PROTOCOL
        || header.address_family != AddressFamily::Inet6
        || table.unwrap_or(u32::from(header.table)) != u32::from(RouteHeader::RT_TABLE_MAIN)
    {
        return None;
    }
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(*address),
        _ => None,
    });
    let prefix = Ipv6Net::new(address.unwrap_or(Ipv6Addr::UNSPECIFIED), header.destination_prefix_length).ok()?;
    Some(SidRoute { prefix, target: target(message).unwrap_or(RouteTarget::Unknown) })
}

/// Octets of a message in front of its attributes: its own header, and `struct rtmsg`.
const HEADER: usize = 16 + 12;
/// Where that says the length of the destination, and the protocol.
const LENGTH_AT: usize = 17;
const PROTOCOL_AT: usize = 21;

/// Whether a route, as the kernel sends it, carries Segue's protocol number.
pub fn is_own(message: &[u8]) -> bool {
    message.get(PROTOCOL_AT) == Some(&ROUTE_PROTOCOL)
}

/// Reads routes as the kernel sends them. Most differ in their destination only: what is said of the others is found out once.
#[derive(Debug, Default)]
pub struct Known {
    /// By all octets that matter but the destination's; none: it is not ours.
    targets: HashMap<Vec<u8>, Option<RouteTarget>>,
    rest: Vec<u8>,
    /// What was read last: most follow others that say the same.
    last: Option<(Vec<u8>, Option<RouteTarget>)>,
}

impl Known {
    /// As [`from_message`], of a message's octets with its header. `None` also if they cannot be read.
    pub fn read(&mut self, message: &[u8]) -> Option<SidRoute> {
        let Some(prefix) = self.split(message) else { return whole(message) };
        if let Some((_, target)) = self.last.as_ref().filter(|(rest, _)| *rest == self.rest) {
            return target.clone().map(|target| SidRoute { prefix, target });
        }
        let target = match self.targets.get(&self.rest) {
            Some(target) => target.clone(),
            None => {
                let target = whole(message).map(|route| route.target);
                self.targets.insert(self.rest.clone(), target.clone());
                target
            }
        };
        self.last = Some((self.rest.clone(), target.clone()));
        target.map(|target| SidRoute { prefix, target })
    }

    /// The destination, and in `rest` what else matters; none if it does not look as usual.
    fn split(&mut self, message: &[u8]) -> Option<Ipv6Net> {
        /// RTA_DST, RTA_CACHEINFO.
        const DESTINATION: u16 = 1;
        const CACHE_INFO: u16 = 12;
        let (header, mut attributes) = message.split_at_checked(HEADER)?;
        self.rest.clear();
        self.rest.extend_from_slice(&header[16..]);
        self.rest[LENGTH_AT - 16] = 0;
        let mut address = Ipv6Addr::UNSPECIFIED;
        while !attributes.is_empty() {
            let half = |at: usize| Some(u16::from_ne_bytes([*attributes.get(at)?, *attributes.get(at + 1)?]));
            let (length, kind) = (usize::from(half(0)?), half(2)?);
            let attribute = attributes.get(..length).filter(|_| length >= 4)?;
            match kind {
                DESTINATION => address = Ipv6Addr::from(<[u8; 16]>::try_from(&attribute[4..]).ok()?),
                CACHE_INFO => {}
                _ => self.rest.extend_from_slice(attribute),
            }
            attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ipv6Net::new(address, header[LENGTH_AT]).ok()
    }
}

fn whole(message: &[u8]) -> Option<SidRoute> {
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).ok()?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => from_message(&route),
        _ => None,
    }
}

fn target(message: &RouteMessage) -> Option<RouteTarget> {
    let metric = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    if metric != Some(ROUTE_METRIC) {
        return None;
    }
    match message.header.kind {
        RouteType::BlackHole => Some(RouteTarget::Blackhole),
        RouteType::Unicast => {
            let device = message.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(device) => Some(*device),
                _ => None,
            })?;
            let encapsulation = message.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Encap(list) => Some(list),
                _ => None,
            })?;
            Some(RouteTarget::Seg6Local { action: action(encapsulation)?, device })
        }
        _ => None,
    }
}

/// Attributes of a seg6local encapsulation, as far as Segue sets them.
#[derive(Default)]
struct Parts {
    action: Option<Seg6LocalAction>,
    flavours: u32,
    table: Option<u32>,
    oif: Option<u32>,
    next_hop: Option<IpAddr>,
    segments: Option<Vec<Ipv6Addr>>,
}

fn action(encapsulation: &[RouteLwTunnelEncap]) -> Option<LocalAction> {
    let mut parts = Parts::default();
    for attribute in encapsulation {
        let RouteLwTunnelEncap::Seg6Local(attribute) = attribute else { return None };
        match attribute {
            RouteSeg6LocalTunnel::Action(action) => parts.action = Some(*action),
            RouteSeg6LocalTunnel::Table(table) => parts.table = Some(*table),
            RouteSeg6LocalTunnel::Oif(oif) => parts.oif = Some(*oif),
            RouteSeg6LocalTunnel::Nh4(address) => parts.next_hop = Some((*address).into()),
            RouteSeg6LocalTunnel::Nh6(address) => parts.next_hop = Some((*address).into()),
            RouteSeg6LocalTunnel::Srh(srh) => parts.segments = Some(srh.segments.iter().rev().copied().collect()),
            RouteSeg6LocalTunnel::Other(other) if other.kind() & 0x3fff == SEG6_LOCAL_FLAVORS => {
                parts.flavours = flavour_operations(other)?;
            }
            _ => return None,
        }
    }
    let v6 = |address| match address {
        Some(IpAddr::V6(address)) => Some(address),
        _ => None,
    };
    match (parts.action?, parts.flavours) {
        (Seg6LocalAction::End, 0) => Some(LocalAction::End { psp: false }),
        (Seg6LocalAction::End, FLAVOR_PSP) => Some(LocalAction::End { psp: true }),
        (Seg6LocalAction::EndX, 0) => Some(LocalAction::EndX { next_hop: v6(parts.next_hop)? }),
        (Seg6LocalAction::EndT, 0) => Some(LocalAction::EndT { table: parts.table? }),
        (Seg6LocalAction::EndDx2, 0) => Some(LocalAction::EndDx2 { oif: parts.oif? }),
        (Seg6LocalAction::EndDx4, 0) => match parts.next_hop {
            Some(IpAddr::V4(next_hop)) => Some(LocalAction::EndDx4 { next_hop }),
            _ => None,
        },
        (Seg6LocalAction::EndDx6, 0) => Some(LocalAction::EndDx6 { next_hop: v6(parts.next_hop)? }),
        (Seg6LocalAction::EndDt6, 0) => Some(LocalAction::EndDt6 { table: parts.table? }),
        (Seg6LocalAction::EndB6Encap, 0) => Some(LocalAction::EndB6Encaps { segments: parts.segments? }),
        _ => None,
    }
}

fn flavour_operations(nested: &DefaultNla) -> Option<u32> {
    let mut value = vec![0; nested.value_len()];
    nested.emit_value(&mut value);
    let mut operations = 0;
    for attribute in NlasIterator::new(&value[..]) {
        let attribute: NlaBuffer<&[u8]> = attribute.ok()?;
        let attribute = DefaultNla::parse(&attribute).ok()?;
        if attribute.kind() != FLAVOR_OPERATION {
            return None;
        }
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        operations = u32::from_ne_bytes(value.try_into().ok()?);
    }
    Some(operations)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable, Parseable};

    use super::*;

    fn round_trip(target: RouteTarget) {
        let route = SidRoute { prefix: "fc00:1:2::/64".parse().unwrap(), target };
        let message = to_message(&route);
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let parsed = RouteMessage::parse(&bytes[..]).unwrap();
        assert_eq!(from_message(&parsed), Some(route));
    }

    #[test]
    fn every_target_survives_its_message() {
        let next_hop: Ipv6Addr = "2001:db8::1".parse().unwrap();
        round_trip(RouteTarget::Blackhole);
        for action in [
            LocalAction::End { psp: false },
            LocalAction::End { psp: true },
            LocalAction::EndX { next_hop },
            LocalAction::EndT { table: 1000 },
            LocalAction::EndDx2 { oif: 7 },
            LocalAction::EndDx4 { next_hop: "192.0.2.1".parse().unwrap() },
            LocalAction::EndDx6 { next_hop },
            LocalAction::EndDt6 { table: 254 },
            LocalAction::EndB6Encaps { segments: vec![next_hop, "fc00::2".parse().unwrap()] },
        ] {
            round_trip(RouteTarget::Seg6Local { action, device: 3 });
        }
    }

    #[test]
    fn what_routes_say_alike_is_read_once_and_only_that() {
        let octets = |message: RouteMessage| {
            let payload = NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message));
            let mut message = NetlinkMessage::new(netlink_packet_core::NetlinkHeader::default(), payload);
            message.finalize();
            let mut octets = vec![0; message.buffer_len()];
            message.serialize(&mut octets);
            octets
        };
        let end = |psp, device| RouteTarget::Seg6Local { action: LocalAction::End { psp }, device };
        let table = |table| RouteTarget::Seg6Local { action: LocalAction::EndT { table }, device: 3 };
        let targets = [end(false, 3), end(false, 4), end(true, 3), table(1000), table(1001), RouteTarget::Blackhole];
        let mut known = Known::default();
        for third in 0..3 {
            for (number, target) in targets.iter().enumerate() {
                // Prefixes of any length, the default route too.
                let length = [0, 48, 128][third];
                let prefix = Ipv6Net::new(Ipv6Addr::new(0xfc00, 0, number as u16, 0, 0, 0, 0, 1), length).unwrap();
                let route = SidRoute { prefix: prefix.trunc(), target: target.clone() };
                let mut message = to_message(&route);
                assert_eq!(known.read(&octets(message.clone())), Some(route), "{prefix} {target:?}");
                message.header.protocol = RouteProtocol::Static;
                assert!(!is_own(&octets(message.clone())));
                assert_eq!(known.read(&octets(message)), None, "another's");
            }
        }
        // Ours and another's of each target, not one for each route.
        assert_eq!(known.targets.len(), 2 * targets.len());
    }

    #[test]
    fn a_route_of_another_protocol_is_not_ours() {
        let mut message =
            to_message(&SidRoute { prefix: "fc00::/64".parse().unwrap(), target: RouteTarget::Blackhole });
        message.header.protocol = RouteProtocol::Static;
        assert_eq!(from_message(&message), None);
    }

    #[test]
    fn a_route_of_another_metric_is_ours_but_unknown() {
        let mut message =
            to_message(&SidRoute { prefix: "fc00::/64".parse().unwrap(), target: RouteTarget::Blackhole });
        message.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Priority(_)));
        message.attributes.push(RouteAttribute::Priority(1024));
        assert_eq!(from_message(&message).unwrap().target, RouteTarget::Unknown);
    }

    #[test]
    fn the_list_of_an_srh_is_reversed() {
        let first: Ipv6Addr = "fc00::1".parse().unwrap();
        let second: Ipv6Addr = "fc00::2".parse().unwrap();
        let srh = srh(&[first, second]);
        assert_eq!((srh.segments_left, srh.first_segment), (1, 1));
        assert_eq!(srh.segments, [second, first]);
    }
}
