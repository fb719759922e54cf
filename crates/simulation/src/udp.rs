//! Labels in UDP (RFC 7510): out of labels and policies, and in again. Twin of `bpf/lib/labels/udp.h`, `udp_out.h` and `udp_in.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use segue_abi as abi;
use segue_abi::Outcome;
use segue_dataplane::{CompiledList, CompiledSid};

use crate::flow::Flow;
use crate::label::{BY_LINK, LabelFound};
use crate::octets::{
    ETHERNET, IPV6, forwardable, half, ipv4, ipv4_header_is_right, ipv6, number, octet, put, valid_ipv4,
};
use crate::stack::{self, BOTTOM, CLASS, CLASS_AND_BOTTOM, ENTRY, NULL_IPV4, NULL_IPV6, entry, store};
use crate::way::{Adjacency, Wanted};
use crate::{End, Found, Packet, because, ended};

/// RFC 7510 section 3.
pub(crate) const PORT: u16 = 6635;
const IPV4: usize = 20;
const UDP: usize = 8;
/// In place of a label: none (RFC 3032 section 2.1).
pub(crate) const IMPLICIT_NULL: u32 = 3;
/// `FLOW_MIX`.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// `struct tunnel`. What fits is in the adjacency.
struct Tunnel {
    source: IpAddr,
    destination: IpAddr,
    adjacency: Adjacency,
    flow: u32,
    hop_limit: u8,
    traffic_class: u8,
    zero_checksum: bool,
}

impl Tunnel {
    /// Octets in front of the labels.
    fn octets(&self) -> usize {
        UDP + if self.destination.is_ipv4() { IPV4 } else { IPV6 }
    }

    /// The headers in front of so many octets.
    fn headers(&self, behind: usize) -> Vec<u8> {
        let class = self.traffic_class & 0xfc;
        let length = (UDP + behind) as u16;
        let mut headers = match (self.source, self.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let label = match self.flow & 0xf_ffff {
                    0 => 1,
                    label => label,
                };
                let first = 6 << 28 | u32::from(class) << 20 | label;
                let mut header = first.to_be_bytes().to_vec();
                header.extend(length.to_be_bytes());
                header.extend([number::UDP, self.hop_limit]);
                header.extend(source.octets());
                header.extend(destination.octets());
                header
            }
            (source, destination) => {
                let mut header = vec![0x45, class];
                header.extend((length + IPV4 as u16).to_be_bytes());
                header.extend([0, 0, 0x40, 0, self.hop_limit, number::UDP, 0, 0]);
                for address in [source, destination] {
                    header.extend(if let IpAddr::V4(address) = address { address.octets() } else { [0; 4] });
                }
                let checksum = !sum(&header, 0);
                put(&mut header, 10, &checksum.to_be_bytes());
                header
            }
        };
        let port = 0xc000 | (u64::from(self.flow).wrapping_mul(MIX) >> 48 & 0x3fff) as u16;
        for half in [port, PORT, length, 0] {
            headers.extend(half.to_be_bytes());
        }
        headers
    }
}

/// The Internet checksum's sum of octets, and of what was summed up before.
fn sum(octets: &[u8], before: u32) -> u16 {
    let words = octets.chunks(2).map(|pair| u64::from(half(pair, 0)));
    let mut sum = words.sum::<u64>() + u64::from(before);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// `udp_pseudo_sum()`: `addresses`: both.
fn pseudo_sum(addresses: &[u8], length: u16) -> u32 {
    u32::from(sum(addresses, 0)) + u32::from(length) + u32::from(number::UDP)
}

/// An address as the data plane has it: IPv4 in the low word.
fn address(octets: &[u8; 16], is_ipv4: bool) -> IpAddr {
    match is_ipv4 {
        true => Ipv4Addr::new(octets[8], octets[9], octets[10], octets[11]).into(),
        false => Ipv6Addr::from(*octets).into(),
    }
}

/// The outer packet that came in: `struct udp_outer`.
struct UdpOuter<'a> {
    endpoint: &'a CompiledSid,
    source: Option<Ipv6Addr>,
    at: usize,
    end: usize,
    ecn: u8,
    sum: u32,
}

impl<'a> Packet<'a, '_> {
    /// `tunnel_find()`.
    fn tunnel(&mut self, udp: &abi::Udp, destination: IpAddr, flow: u32, traffic_class: u8) -> Tunnel {
        let mut adjacency = self.adjacency(destination, Wanted { inside: true, flow, ..Wanted::default() });
        if udp.mtu != 0 {
            adjacency.fits = adjacency.fits.min(usize::from(udp.mtu));
        }
        Tunnel {
            source: address(&udp.source, destination.is_ipv4()),
            destination,
            adjacency,
            flow,
            hop_limit: udp.hop_limit,
            traffic_class,
            zero_checksum: u32::from(udp.flags) & abi::SEGUE_UDP_ZERO_CHECKSUM != 0,
        }
    }

    /// `tunnel_by_label()`.
    fn tunnel_by_label(&mut self, sid: &abi::Sid, flow: u32, traffic_class: u8) -> Tunnel {
        let destination = match sid.next_hop_ipv4 {
            0 => Ipv6Addr::from(sid.next_hop).into(),
            address => Ipv4Addr::from(address.to_ne_bytes()).into(),
        };
        self.tunnel(&sid.udp(), destination, flow, traffic_class)
    }

    /// `tunnel_by_list()`: `class`: of the packet, unless the list says another.
    fn tunnel_by_list(&mut self, list: &abi::SegmentList, flow: u32, class: u8) -> Tunnel {
        let copies = u32::from(list.flags) & abi::SEGUE_LIST_TRAFFIC_CLASS_COPY != 0;
        let traffic_class = if copies { class } else { list.traffic_class };
        let udp = list.udp();
        // As in `list_way()`.
        let destination = address(&list.first, list.way != 0);
        self.tunnel(&udp, destination, flow, traffic_class)
    }

    /// `tunnel_leave()`: what is behind the Ethernet header goes into the tunnel.
    fn tunnel_leave(&mut self, tunnel: &Tunnel) -> Box<End> {
        let headers = tunnel.headers(self.frame.len() - ETHERNET);
        let is_ipv4 = tunnel.destination.is_ipv4();
        self.frame.splice(ETHERNET..ETHERNET, headers);
        if !is_ipv4 && !tunnel.zero_checksum {
            let udp = &self.frame[ETHERNET + IPV6..];
            let pseudo = pseudo_sum(&self.frame[ETHERNET + 8..ETHERNET + IPV6], udp.len() as u16);
            let checksum = match !sum(udp, pseudo) {
                0 => 0xffff,
                checksum => checksum,
            };
            put(&mut self.frame, ETHERNET + IPV6 + 6, &checksum.to_be_bytes());
        }
        self.leave_as(&tunnel.adjacency, if is_ipv4 { number::TYPE_IPV4 } else { number::TYPE_IPV6 })
    }

    /// `labels_udp()`: by a label that says so, or a list of its policy.
    pub(crate) fn label_udp(&mut self, found: &LabelFound<'a>, list: Option<&'a CompiledList>) -> Found<Box<End>> {
        self.stage()?;
        if found.ttl <= 1 {
            return Err(ended(Outcome::DropLabelTtl));
        }
        let flow = stack::flow(&self.frame);
        let class = ((found.word & CLASS) >> 9 << 5) as u8;
        let (tunnel, on) = match list {
            Some(list) => {
                let labels = self.bound_labels(found, &list.entry, flow)?;
                (self.tunnel_by_list(&list.entry, flow, class), labels)
            }
            None => (self.tunnel_by_label(&found.label.entry, flow, class), self.udp_entry(found)),
        };
        let off = found.off + ENTRY;
        let length = self.frame.len() - ETHERNET - off + on.len() + tunnel.octets();
        self.obstacle(&tunnel.adjacency, length, BY_LINK)?;
        let popped = on.is_empty();
        self.frame.splice(ETHERNET..ETHERNET + off, on);
        if popped {
            self.hand_ttl_on(found.ttl - 1)?;
        }
        Ok(self.tunnel_leave(&tunnel))
    }

    /// `udp_entry()`.
    fn udp_entry(&self, found: &LabelFound<'a>) -> Vec<u8> {
        let entry = &found.label.entry;
        let pops = entry.out_label == IMPLICIT_NULL;
        if pops && !found.is_bottom() {
            return Vec::new();
        }
        let is_null = pops || u32::from(entry.flags) & abi::SEGUE_SID_EXPLICIT_NULL != 0;
        let label = match is_null {
            false => entry.out_label,
            true if found.is_bottom() && stack::is_ipv6_inside(&self.frame, found.at()) => NULL_IPV6,
            true => NULL_IPV4,
        };
        (label << 12 | found.word & CLASS_AND_BOTTOM | u32::from(found.ttl - 1)).to_be_bytes().to_vec()
    }

    /// `udp_list_write()`.
    fn bound_labels(&self, found: &LabelFound<'a>, list: &abi::SegmentList, flow: u32) -> Found<Vec<u8>> {
        let flags = u32::from(list.flags);
        let fill = self.binding_class(found, list)? | u32::from(found.ttl - 1);
        let mut labels = list.header[..usize::from(list.header_length)].to_vec();
        for at in (0..labels.len()).step_by(ENTRY) {
            let keeps = if at + ENTRY == labels.len() && !found.is_bottom() { !BOTTOM } else { !0 };
            let word = entry(&labels, at).unwrap_or_default() | fill;
            store(&mut labels, at, word & keeps);
        }
        if flags & abi::SEGUE_LIST_ENTROPY != 0 {
            stack::renew_entropy(&mut labels, flow);
        }
        Ok(labels)
    }

    /// `labels_udp_push()`.
    pub(crate) fn push_udp(&mut self, flow: &Flow, list: &'a CompiledList) -> Found<Box<End>> {
        self.stage()?;
        let tunnel = self.tunnel_by_list(&list.entry, flow.hash, flow.traffic_class);
        let length = flow.length + usize::from(list.entry.header_length) + tunnel.octets();
        self.obstacle(&tunnel.adjacency, length, BY_LINK)?;
        self.put_labels_on(list, flow);
        Ok(self.tunnel_leave(&tunnel))
    }

    /// `udp_endpoint()`.
    pub(crate) fn udp_endpoint(&self, address: IpAddr) -> Option<&'a CompiledSid> {
        let key = match address {
            IpAddr::V6(address) => address,
            IpAddr::V4(address) => address.to_ipv6_mapped(),
        };
        let is_there =
            |sid: &&CompiledSid| u32::from(sid.entry.behaviour) == abi::SEGUE_UDP_ENDPOINT && sid.prefix.addr() == key;
        self.view.compiled.sids.iter().find(is_there)
    }

    /// Whether UDP at the offset is to the port of labels.
    fn carries_labels(&self, at: usize) -> bool {
        self.frame.len() >= at + UDP && half(&self.frame, at + 2) == PORT
    }

    /// `labels_udp_in()`.
    pub(crate) fn udp_in(&mut self) -> Found<Box<End>> {
        self.stage()?;
        let passed = || ended(Outcome::PassedNotForSegue);
        if self.is_foreign() {
            return Err(passed());
        }
        let is_ipv4 = half(&self.frame, 12) == number::TYPE_IPV4;
        let outer = if is_ipv4 { self.udp_outer_ipv4() } else { self.udp_outer_ipv6() }?.ok_or_else(passed)?;
        let length = usize::from(half(&self.frame, outer.at + 4));
        if length != outer.end - outer.at.min(outer.end) || length < UDP + ENTRY || outer.end > self.frame.len() {
            return Err(ended(Outcome::DropBadLength));
        }
        if outer.ecn == 3 && !self.has_label_ecn() {
            return Err(ended(Outcome::DropEcnNotCapable));
        }
        self.udp_checksum(&outer)?;
        let (name, counter) = (outer.endpoint.prefix.addr(), outer.endpoint.entry.counter);
        let name = name.to_ipv4_mapped().map_or_else(|| name.to_string(), |address| address.to_string());
        self.note("udp", name, "labels in UDP to this node", &[counter]);
        self.frame.truncate(outer.end);
        let (off, ecn) = (outer.at + UDP - ETHERNET, outer.ecn);
        self.labels_off(off);
        if ecn == 3 {
            self.settle_labels(ETHERNET, true, 1)?;
        }
        self.labels_here()
    }

    /// `udp_outer_ipv6()`; `None`: nothing that this node takes.
    fn udp_outer_ipv6(&self) -> Found<Option<UdpOuter<'a>>> {
        let at = ETHERNET + IPV6;
        if self.frame.len() < at || octet(&self.frame, ETHERNET + 6) != number::UDP || !self.carries_labels(at) {
            return Ok(None);
        }
        let (source, destination) = (ipv6(&self.frame, ETHERNET + 8), ipv6(&self.frame, ETHERNET + 24));
        let Some(endpoint) = self.udp_endpoint(destination.into()) else { return Ok(None) };
        if !forwardable(source) || source == destination {
            return Err(ended(Outcome::DropBadSource));
        }
        let config = self.config();
        let checks = self.port.entry.config_flags & abi::SEGUE_CONFIG_CHECK_SOURCE != 0;
        if checks && !crate::within(&config.source_prefixes, config.source_prefixes_count, source) {
            return Err(ended(Outcome::DropSourceOutsideDomain));
        }
        Ok(Some(UdpOuter {
            endpoint,
            source: Some(source),
            at,
            end: at + usize::from(half(&self.frame, ETHERNET + 4)),
            ecn: octet(&self.frame, ETHERNET + 1) >> 4 & 3,
            sum: pseudo_sum(&self.frame[ETHERNET + 8..at], half(&self.frame, at + 4)),
        }))
    }

    /// `udp_outer_ipv4()`.
    fn udp_outer_ipv4(&self) -> Found<Option<UdpOuter<'a>>> {
        let is_udp = octet(&self.frame, ETHERNET + 9) == number::UDP;
        let part = half(&self.frame, ETHERNET + 6);
        let words = usize::from(octet(&self.frame, ETHERNET) & 15);
        let at = ETHERNET + words * 4;
        if self.frame.len() < ETHERNET + IPV4 || !is_udp || part & 0x1fff != 0 || words < 5 || !self.carries_labels(at)
        {
            return Ok(None);
        }
        let (source, destination) = (ipv4(&self.frame, ETHERNET + 12), ipv4(&self.frame, ETHERNET + 16));
        let Some(endpoint) = self.udp_endpoint(destination.into()) else { return Ok(None) };
        let refused = match () {
            () if octet(&self.frame, ETHERNET) >> 4 != 4 => Outcome::DropBadVersion,
            () if words != 5 => Outcome::DropOption,
            () if part & 0x2000 != 0 => Outcome::DropFragmentAtDecapsulation,
            () if !ipv4_header_is_right(&self.frame, ETHERNET, IPV4) => Outcome::DropBadChecksum,
            () if !valid_ipv4(source) || source == destination => Outcome::DropBadSource,
            () => {
                return Ok(Some(UdpOuter {
                    endpoint,
                    source: None,
                    at,
                    end: ETHERNET + usize::from(half(&self.frame, ETHERNET + 2)),
                    ecn: octet(&self.frame, ETHERNET + 1) & 3,
                    sum: pseudo_sum(&self.frame[ETHERNET + 12..at], half(&self.frame, at + 4)),
                }));
            }
        };
        Err(ended(refused))
    }

    /// `udp_checksum_refused()`.
    fn udp_checksum(&self, outer: &UdpOuter<'_>) -> Found<()> {
        let refused = |reason: &str| Err(because(Outcome::DropBadChecksum, reason));
        if half(&self.frame, outer.at + 6) == 0 {
            let entry = &outer.endpoint.entry;
            let allowed = |source: Ipv6Addr| {
                let (prefix, mask) = (u128::from_be_bytes(entry.next_hop), u128::from_be_bytes(entry.backup));
                u32::from(entry.flavours) & abi::SEGUE_UDP_ZERO_CHECKSUM != 0 && source.to_bits() & mask == prefix
            };
            return match outer.source {
                Some(source) if !allowed(source) => refused("this source may not leave it out"),
                _ => Ok(()),
            };
        }
        match sum(&self.frame[outer.at..outer.end], outer.sum) {
            0xffff => Ok(()),
            _ => refused("that of UDP"),
        }
    }
}
