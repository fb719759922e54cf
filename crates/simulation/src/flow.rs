//! The flow of a packet from an access or service port. Twin of `bpf/lib/packet/flow.h`.

use std::net::{IpAddr, Ipv6Addr};

use segue_abi::Outcome;

use crate::octets::{
    ETHERNET, IPV6, double, flow_hash, half, has_ports, ipv4, ipv4_header_is_right, ipv6, link_local, number, octet,
    unspecified_or_loopback, valid_ipv4, valid_source, word,
};
use crate::{Packet, headers};

/// What steering and spreading need of a packet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    pub hash: u32,
    /// Layer 3 octets, by the packet's own header.
    pub length: usize,
    /// Malformed: dropped for this reason.
    pub outcome: Option<Outcome>,
    /// An SRH with segments left.
    pub srh: Option<usize>,
    /// 4, 6, or 0: no IP.
    pub family: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
    pub protocol: u8,
    pub fragment: bool,
    /// Octets lie behind the packet.
    pub trailing: bool,
    pub sr_seen: bool,
    /// In a frame to a group.
    pub group: bool,
    /// In a frame for somebody else.
    pub foreign: bool,
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub ports: Option<(u16, u16)>,
}

impl Flow {
    pub fn is_ipv4(&self) -> bool {
        self.family == 4
    }

    /// Its IPv6 destination, if it is IPv6.
    pub fn destination6(&self) -> Option<Ipv6Addr> {
        match self.destination {
            Some(IpAddr::V6(address)) => Some(address),
            _ => None,
        }
    }
}

impl Packet<'_, '_> {
    /// `flow_read()`.
    pub(crate) fn flow(&self) -> Flow {
        let frame = &self.frame;
        if frame.len() < ETHERNET {
            return Flow { outcome: Some(Outcome::DropTruncated), ..Flow::default() };
        }
        let group = self.is_to_group();
        let base = Flow { group, foreign: !group && self.is_foreign(), ..Flow::default() };
        match half(frame, 12) {
            number::TYPE_IPV6 => read_ipv6(frame, ETHERNET, base),
            number::TYPE_IPV4 => read_ipv4(frame, ETHERNET, base),
            _ => {
                let key = [word(frame, 0), word(frame, 4), word(frame, 8)].map(u64::from);
                let hash = flow_hash(&[key[0], key[1], key[2], 0, 0]);
                Flow { length: frame.len() - ETHERNET, hash, ..base }
            }
        }
    }

    /// `flow_addresses()`: what the addresses alone say.
    pub(crate) fn refused_addresses(&self, flow: &Flow) -> Option<Outcome> {
        let entry = &self.port.entry;
        match (flow.source, flow.destination) {
            (Some(IpAddr::V6(source)), Some(IpAddr::V6(destination))) => {
                if destination.is_multicast() || link_local(destination) || destination.octets() == entry.ipv6 {
                    return Some(Outcome::PassedNotForSegue);
                }
                let bad = !valid_source(source) || link_local(source) || unspecified_or_loopback(destination);
                bad.then_some(Outcome::DropBadSource)
            }
            (Some(IpAddr::V4(source)), Some(IpAddr::V4(destination))) => {
                let own = entry.ipv4 != 0 && u32::from_ne_bytes(destination.octets()) == entry.ipv4;
                if destination.octets()[0] & 0xf0 == 0xe0 || destination.is_broadcast() || own {
                    return Some(Outcome::PassedNotForSegue);
                }
                (!valid_ipv4(source) || !valid_ipv4(destination)).then_some(Outcome::DropBadSource)
            }
            _ => None,
        }
    }

    /// `flow_make_even()`: nothing lies behind the packet any more.
    pub(crate) fn make_even(&mut self, flow: &Flow) {
        if flow.trailing {
            self.frame.truncate(ETHERNET + flow.length);
        }
    }
}

/// `flow_read_ipv6()`: the packet at the offset `l3`.
pub(crate) fn read_ipv6(frame: &[u8], l3: usize, mut flow: Flow) -> Flow {
    let refused = |flow: Flow, outcome| Flow { outcome: Some(outcome), ..flow };
    if l3 + IPV6 > frame.len() {
        return refused(flow, Outcome::DropTruncated);
    }
    if octet(frame, l3) >> 4 != 6 {
        return refused(flow, Outcome::DropBadVersion);
    }
    flow.length = IPV6 + usize::from(half(frame, l3 + 4));
    let limit = l3 + flow.length;
    if limit > frame.len() {
        return refused(flow, Outcome::DropBadLength);
    }
    flow.trailing = limit < frame.len();
    flow.family = 6;
    let first =
        u32::from_be_bytes([octet(frame, l3), octet(frame, l3 + 1), octet(frame, l3 + 2), octet(frame, l3 + 3)]);
    flow.traffic_class = (first >> 20) as u8;
    flow.flow_label = first & 0xf_ffff;
    flow.hop_limit = octet(frame, l3 + 7);
    flow.source = Some(ipv6(frame, l3 + 8).into());
    flow.destination = Some(ipv6(frame, l3 + 24).into());
    let (mut protocol, mut offset) = (octet(frame, l3 + 6), l3 + IPV6);
    if headers::is_extension(protocol) {
        let found = headers::walk(frame, l3 + 6, offset, limit);
        if let Some(error) = found.error.filter(|error| *error != Outcome::DropRoutingType) {
            return refused(flow, error);
        }
        flow.sr_seen = found.sr_seen;
        flow.srh = found.srh;
        flow.fragment = found.fragment;
        protocol = found.protocol;
        offset = found.upper & crate::octets::OFFSET_MASK;
    }
    flow.protocol = protocol;
    let mut last = u64::from(protocol) << 32 | 6 << 40;
    if flow.fragment {
        last |= 1 << 48;
    } else if has_ports(protocol) {
        if offset + 4 > frame.len() || offset + 4 > limit {
            return refused(flow, Outcome::DropTruncated);
        }
        last |= u64::from(word(frame, offset));
        flow.ports = Some((half(frame, offset), half(frame, offset + 2)));
    }
    let key = [double(frame, l3 + 8), double(frame, l3 + 16), double(frame, l3 + 24), double(frame, l3 + 32), last];
    flow.hash = flow_hash(&key);
    flow
}

/// `flow_read_ipv4()`: the same for IPv4.
pub(crate) fn read_ipv4(frame: &[u8], l3: usize, mut flow: Flow) -> Flow {
    let refused = |flow: Flow, outcome| Flow { outcome: Some(outcome), ..flow };
    if l3 + 20 > frame.len() {
        return refused(flow, Outcome::DropTruncated);
    }
    if octet(frame, l3) >> 4 != 4 {
        return refused(flow, Outcome::DropBadVersion);
    }
    let header = usize::from(octet(frame, l3) & 15) * 4;
    flow.length = usize::from(half(frame, l3 + 2));
    let limit = l3 + flow.length;
    flow.trailing = limit < frame.len();
    if header < 20 || flow.length < header || limit > frame.len() {
        return refused(flow, Outcome::DropBadLength);
    }
    if l3 + header > frame.len() {
        return refused(flow, Outcome::DropTruncated);
    }
    if !ipv4_header_is_right(frame, l3, header) {
        return refused(flow, Outcome::DropBadChecksum);
    }
    flow.family = 4;
    flow.hop_limit = octet(frame, l3 + 8);
    flow.traffic_class = octet(frame, l3 + 1);
    flow.protocol = octet(frame, l3 + 9);
    flow.source = Some(ipv4(frame, l3 + 12).into());
    flow.destination = Some(ipv4(frame, l3 + 16).into());
    let mut last = u64::from(flow.protocol) << 32 | 4 << 40;
    if half(frame, l3 + 6) & 0x3fff != 0 {
        last |= 1 << 48;
        flow.fragment = true;
    } else if has_ports(flow.protocol) {
        let offset = l3 + header;
        if offset + 4 > frame.len() || offset + 4 > limit {
            return refused(flow, Outcome::DropTruncated);
        }
        last |= u64::from(word(frame, offset));
        flow.ports = Some((half(frame, offset), half(frame, offset + 2)));
    }
    let addresses = u64::from(word(frame, l3 + 12)) | u64::from(word(frame, l3 + 16)) << 32;
    flow.hash = flow_hash(&[addresses, 0, 0, 0, last]);
    flow
}
