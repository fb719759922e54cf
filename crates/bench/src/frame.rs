//! The frames of the scenarios, as octets. Written by hand: the harness must not lean on the parsers of what it measures.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets of an Ethernet header.
pub const ETHERNET: usize = 14;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const IPV4: u8 = 4;
const ROUTING: u8 = 43;
/// Source port of the first flow; the generator counts up from here. `BENCH_PORT` of bpf/bench/traffic.h.
const PORT: u16 = 0x4000;

/// A packet (from its IP header on), with what the generator must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// From the IP header to the end.
    pub octets: Vec<u8>,
    /// Octets from the start that a forwarder may change: all headers.
    pub headers: usize,
    /// Offset of the inner UDP source port.
    pub port: usize,
    /// Offset of the two octets of payload that keep the UDP checksum right when the port varies.
    pub balance: usize,
    /// 0x86dd or 0x0800.
    pub ethertype: u16,
}

impl Packet {
    /// The packet behind an Ethernet header.
    #[must_use]
    pub fn frame(&self, destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(ETHERNET + self.octets.len());
        frame.extend(destination);
        frame.extend(source);
        frame.extend(self.ethertype.to_be_bytes());
        frame.extend(&self.octets);
        frame
    }

    fn inside(mut self, header: &[u8]) -> Self {
        self.octets.splice(0..0, header.iter().copied());
        self.headers += header.len();
        self.port += header.len();
        self.balance += header.len();
        self.ethertype = 0x86dd;
        self
    }
}

fn ones_complement_sum(octets: &[u8]) -> u32 {
    octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn checksum(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A UDP datagram of `length` octets whose payload differs from octet to octet.
fn datagram(length: usize, pseudo_header: u32) -> Vec<u8> {
    let mut udp = Vec::with_capacity(length);
    udp.extend(PORT.to_be_bytes());
    udp.extend(9u16.to_be_bytes());
    udp.extend((length as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(PORT.to_be_bytes());
    udp.extend((10..length).map(|index| (index * 7 + 3) as u8));
    let sum = match checksum(ones_complement_sum(&udp) + pseudo_header) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    udp
}

/// An IPv6 header. `payload` in octets.
#[must_use]
pub fn ipv6_header(source: Ipv6Addr, destination: Ipv6Addr, next: u8, hop_limit: u8, payload: usize) -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    header[6] = next;
    header[7] = hop_limit;
    header[8..24].copy_from_slice(&source.octets());
    header[24..].copy_from_slice(&destination.octets());
    header
}

/// An IPv6 packet of `length` octets with UDP in it.
#[must_use]
pub fn udp_over_ipv6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, length: usize) -> Packet {
    let rest = length - 40;
    let pseudo = ones_complement_sum(&source.octets()) + ones_complement_sum(&destination.octets());
    let mut octets = ipv6_header(source, destination, UDP, hop_limit, rest).to_vec();
    octets.extend(datagram(rest, pseudo + rest as u32 + u32::from(UDP)));
    Packet { octets, headers: 48, port: 40, balance: 48, ethertype: 0x86dd }
}

/// An IPv4 packet of `length` octets with UDP in it.
#[must_use]
pub fn udp_over_ipv4(source: Ipv4Addr, destination: Ipv4Addr, ttl: u8, length: usize) -> Packet {
    let rest = length - 20;
    let mut header = [0u8; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = ttl;
    header[9] = UDP;
    header[12..16].copy_from_slice(&source.octets());
    header[16..].copy_from_slice(&destination.octets());
    let sum = checksum(ones_complement_sum(&header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let pseudo = ones_complement_sum(&header[12..]) + rest as u32 + u32::from(UDP);
    let mut octets = header.to_vec();
    octets.extend(datagram(rest, pseudo));
    Packet { octets, headers: 28, port: 20, balance: 28, ethertype: 0x0800 }
}

/// The same packet with a payload that no algorithm makes smaller. The UDP checksum is right.
#[must_use]
pub fn encrypted(mut packet: Packet) -> Packet {
    let at = packet.balance + 2;
    let before = ones_complement_sum(&packet.octets[at..]);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for octet in &mut packet.octets[at..] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *octet = (state >> 32) as u8;
    }
    // The sum that the checksum is the complement of, without the old payload and with the new one.
    let place = packet.port + 6..packet.port + 8;
    let old = u16::from_be_bytes([packet.octets[place.start], packet.octets[place.start + 1]]);
    let without = u32::from(!checksum(u32::from(!old) + u32::from(checksum(before))));
    let new = match checksum(without + ones_complement_sum(&packet.octets[at..])) {
        0 => 0xffff,
        sum => sum,
    };
    packet.octets[place].copy_from_slice(&new.to_be_bytes());
    packet
}

/// The same IPv6 packet, with what the generator varies in its payload: every packet then belongs to the same flow.
#[must_use]
pub fn varying_payload(mut packet: Packet) -> Packet {
    const IPV6_HEADER: usize = 40;
    let balance = packet.balance;
    packet.port = balance;
    packet.balance = balance + 2;
    packet.octets[balance + 2..balance + 4].copy_from_slice(&PORT.to_be_bytes());
    packet.octets[IPV6_HEADER + 6..IPV6_HEADER + 8].fill(0);
    let rest = (packet.octets.len() - IPV6_HEADER) as u32;
    let pseudo = ones_complement_sum(&packet.octets[8..IPV6_HEADER]) + rest + u32::from(UDP);
    let sum = checksum(ones_complement_sum(&packet.octets[IPV6_HEADER..]) + pseudo);
    packet.octets[IPV6_HEADER + 6..IPV6_HEADER + 8].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The outer header of a steered packet.
#[derive(Debug, Clone)]
pub struct Steering<'a> {
    /// Outer source address.
    pub source: Ipv6Addr,
    /// All segments, in order of traversal.
    pub segments: &'a [Ipv6Addr],
    /// Segments Left; the destination is the segment that it names.
    pub left: usize,
    /// Outer hop limit.
    pub hop_limit: u8,
    /// The list in the SRH lacks the first segment (and one of a single segment has no SRH).
    pub reduced: bool,
}

/// `inner` behind an IPv6 header and an SRH (RFC 8754 section 2) with the segments of `steering`.
#[must_use]
pub fn encapsulated(inner: Packet, steering: &Steering<'_>) -> Packet {
    let next = if inner.ethertype == 0x0800 { IPV4 } else { IPV6 };
    with_steering(inner, steering, next)
}

/// An IPv6 packet with an SRH put into it: `segments` are those before its own destination, which becomes Segment List[0].
#[must_use]
pub fn inserted(mut packet: Packet, segments: &[Ipv6Addr], left: usize) -> Packet {
    const IPV6_HEADER: usize = 40;
    let mut list = packet.octets[24..IPV6_HEADER].to_vec();
    list.extend(segments.iter().rev().flat_map(Ipv6Addr::octets));
    let entries = segments.len() + 1;
    let mut srh = vec![packet.octets[6], 2 * entries as u8, 4, left as u8, entries as u8 - 1, 0, 0, 0];
    srh.extend(&list);
    let payload = (packet.octets.len() - IPV6_HEADER + srh.len()) as u16;
    packet.octets[4..6].copy_from_slice(&payload.to_be_bytes());
    packet.octets[6] = ROUTING;
    packet.octets[24..IPV6_HEADER].copy_from_slice(&list[16 * left..16 * left + 16]);
    packet.headers += srh.len();
    packet.port += srh.len();
    packet.balance += srh.len();
    packet.octets.splice(IPV6_HEADER..IPV6_HEADER, srh);
    packet
}

/// An Ethernet frame as the payload of a steered packet; `inner.octets` is a whole frame.
#[must_use]
pub fn encapsulated_frame(inner: Packet, steering: &Steering<'_>) -> Packet {
    const ETHERNET_FRAME: u8 = 143;
    with_steering(inner, steering, ETHERNET_FRAME)
}

fn with_steering(inner: Packet, steering: &Steering<'_>, next: u8) -> Packet {
    let Steering { source, segments, left, hop_limit, reduced } = *steering;
    let destination = segments[segments.len() - 1 - left];
    let listed = if reduced { &segments[1..] } else { segments };
    let mut srh = Vec::new();
    if !listed.is_empty() {
        srh.extend([next, 2 * listed.len() as u8, 4, left as u8, listed.len() as u8 - 1, 0, 0, 0]);
        srh.extend(listed.iter().rev().flat_map(Ipv6Addr::octets));
    }
    let after = if srh.is_empty() { next } else { ROUTING };
    let mut header = ipv6_header(source, destination, after, hop_limit, srh.len() + inner.octets.len()).to_vec();
    header.extend(srh);
    inner.inside(&header)
}

/// `inner` behind a stack of labels, each with its TTL (RFC 3032 section 2.1). TC is 0; the last one is the bottom.
#[must_use]
pub fn labelled(inner: Packet, entries: &[(u32, u8)]) -> Packet {
    let last = entries.len().saturating_sub(1);
    let words = entries.iter().enumerate().map(|(position, (label, ttl))| {
        let bottom = u32::from(position == last) << 8;
        label << 12 | bottom | u32::from(*ttl)
    });
    let stack: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    Packet { ethertype: 0x8847, ..inner.inside(&stack) }
}

/// An IPv4 packet's TTL lowered to `ttl`, with its header checksum.
#[must_use]
pub fn with_ttl(mut packet: Packet, ttl: u8) -> Packet {
    packet.octets[8] = ttl;
    packet.octets[10..12].fill(0);
    let sum = checksum(ones_complement_sum(&packet.octets[..20]));
    packet.octets[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 1);

    /// The checksum of everything that it covers, itself included, is zero.
    fn udp_checksum_holds(packet: &[u8], addresses: std::ops::Range<usize>, udp: usize) -> bool {
        let rest = (packet.len() - udp) as u32;
        checksum(ones_complement_sum(&packet[addresses]) + rest + 17 + ones_complement_sum(&packet[udp..])) == 0
    }

    #[test]
    fn lengths_and_checksums_are_right_for_every_size() {
        for length in [48 + 16, 65, 128, 1399, 1400] {
            let six = udp_over_ipv6(A, B, 64, length);
            assert_eq!(six.octets.len(), length);
            assert!(udp_checksum_holds(&six.octets, 8..40, 40), "IPv6, {length} octets");
            let four = udp_over_ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(203, 0, 113, 1), 64, length);
            assert_eq!(four.octets.len(), length);
            assert_eq!(checksum(ones_complement_sum(&four.octets[..20])), 0);
            assert!(udp_checksum_holds(&four.octets, 12..20, 20), "IPv4, {length} octets");
        }
    }

    #[test]
    fn another_source_port_balanced_in_the_payload_keeps_the_checksum() {
        for flow in [1u16, 255, 0x3fff] {
            let mut packet = udp_over_ipv6(A, B, 64, 128);
            let (port, balance) = (packet.port, packet.balance);
            packet.octets[port..port + 2].copy_from_slice(&(PORT + flow).to_be_bytes());
            packet.octets[balance..balance + 2].copy_from_slice(&(PORT - flow).to_be_bytes());
            assert!(udp_checksum_holds(&packet.octets, 8..40, 40), "flow {flow}");
        }
    }

    #[test]
    fn numbers_in_the_payload_keep_flow_and_checksum() {
        let mut packet = varying_payload(udp_over_ipv6(A, B, 64, 112));
        assert_eq!((packet.port, packet.balance), (48, 50));
        packet.octets[48..50].copy_from_slice(&(PORT + 9999).to_be_bytes());
        packet.octets[50..52].copy_from_slice(&(PORT - 9999).to_be_bytes());
        assert!(udp_checksum_holds(&packet.octets, 8..40, 40));
        assert_eq!(&packet.octets[40..42], &PORT.to_be_bytes());
    }

    #[test]
    fn the_frame_of_the_design_has_206_octets() {
        let steering = Steering { source: A, segments: &[B, A], left: 1, hop_limit: 64, reduced: false };
        let packet = encapsulated(udp_over_ipv6(A, B, 64, 112), &steering);
        assert_eq!(packet.frame([0; 6], [0; 6]).len(), 206);
        assert_eq!(&packet.octets[24..40], &B.octets(), "Segments Left 1 of two is the first segment");
        assert_eq!(&packet.octets[40..48], &[41, 4, 4, 1, 1, 0, 0, 0]);
        assert_eq!(&packet.octets[48..64], &A.octets(), "Segment List[0] is the last segment");
    }

    #[test]
    fn an_inserted_header_keeps_the_destination_as_its_last_segment() {
        let packet = inserted(udp_over_ipv6(A, B, 64, 112), &[A], 1);
        assert_eq!((packet.octets.len(), packet.headers, packet.port), (152, 88, 80));
        assert_eq!(&packet.octets[4..7], &[0, 112, 43]);
        assert_eq!((&packet.octets[24..40], &packet.octets[48..64]), (&A.octets()[..], &B.octets()[..]));
        assert_eq!(&packet.octets[40..48], &[17, 4, 4, 1, 1, 0, 0, 0]);
        let arrived = inserted(udp_over_ipv6(A, B, 64, 112), &[A], 0);
        assert_eq!(&arrived.octets[24..40], &B.octets());
    }

    #[test]
    fn a_stack_ends_at_its_last_label() {
        let packet = labelled(udp_over_ipv6(A, B, 64, 112), &[(16_002, 64), (0xf_ffff, 1)]);
        assert_eq!((packet.ethertype, packet.octets.len(), packet.headers, packet.port), (0x8847, 120, 56, 48));
        assert_eq!(packet.octets[..8], [0x03, 0xe8, 0x20, 64, 0xff, 0xff, 0xf1, 1]);
    }

    #[test]
    fn a_reduced_list_of_one_segment_has_no_srh() {
        let steering = Steering { source: A, segments: &[B], left: 0, hop_limit: 64, reduced: true };
        let packet = encapsulated(udp_over_ipv6(A, B, 64, 112), &steering);
        assert_eq!((packet.octets.len(), packet.octets[6]), (152, 41));
    }
}
