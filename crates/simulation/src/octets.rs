//! Octets of a frame at offsets, and what the data plane computes from them. Twin of `bpf/lib/base` and `bpf/lib/packet`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of an Ethernet header.
pub const ETHERNET: usize = 14;
/// Octets of an IPv6 header.
pub const IPV6: usize = 40;
/// Octets of an SRH in front of its segments.
pub const SRH: usize = 8;
/// Every header that the data plane looks at begins below this offset.
pub const OFFSET_MASK: usize = 0x0fff;

/// Numbers of protocols, and of the Ethertypes that matter.
#[allow(missing_docs)]
pub mod number {
    pub const HOP_BY_HOP: u8 = 0;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION_OPTIONS: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const MPLS: u8 = 137;
    pub const ETHERNET: u8 = 143;
    pub const TYPE_IPV4: u16 = 0x0800;
    pub const TYPE_IPV6: u16 = 0x86dd;
    pub const TYPE_MPLS: u16 = 0x8847;
    pub const TYPE_TAG: [u16; 2] = [0x8100, 0x88a8];
    pub const TYPE_SRH: u8 = 4;
}

/// Octet at an offset; 0 beyond the end.
pub fn octet(frame: &[u8], at: usize) -> u8 {
    frame.get(at).copied().unwrap_or_default()
}

/// Two octets in network order; 0 beyond the end.
pub fn half(frame: &[u8], at: usize) -> u16 {
    u16::from(octet(frame, at)) << 8 | u16::from(octet(frame, at + 1))
}

/// Four octets as a little-endian machine loads them.
pub fn word(frame: &[u8], at: usize) -> u32 {
    (0..4).fold(0, |word, index| word | u32::from(octet(frame, at + index)) << (8 * index))
}

/// Eight octets as a little-endian machine loads them.
pub fn double(frame: &[u8], at: usize) -> u64 {
    u64::from(word(frame, at)) | u64::from(word(frame, at + 4)) << 32
}

/// An IPv6 address.
pub fn ipv6(frame: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    (0..16).for_each(|index| octets[index] = octet(frame, at + index));
    octets.into()
}

/// An IPv4 address.
pub fn ipv4(frame: &[u8], at: usize) -> Ipv4Addr {
    [octet(frame, at), octet(frame, at + 1), octet(frame, at + 2), octet(frame, at + 3)].into()
}

/// Writes octets where the frame has them.
pub fn put(frame: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = at.checked_add(octets.len()).and_then(|end| frame.get_mut(at..end)) {
        place.copy_from_slice(octets);
    }
}

/// Changes one octet, if it is there.
pub fn change(frame: &mut [u8], at: usize, change: impl FnOnce(u8) -> u8) {
    if let Some(octet) = frame.get_mut(at) {
        *octet = change(*octet);
    }
}

/// `address_forwardable()`: may be a next segment, and be forwarded to.
pub fn forwardable(address: Ipv6Addr) -> bool {
    !address.is_multicast() && !link_local(address) && !unspecified_or_loopback(address)
}

/// `address_valid_source()`.
pub fn valid_source(address: Ipv6Addr) -> bool {
    !address.is_multicast() && !unspecified_or_loopback(address)
}

/// fe80::/10.
pub fn link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// :: or ::1.
pub fn unspecified_or_loopback(address: Ipv6Addr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// `ipv4_valid_source()`.
pub fn valid_ipv4(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// Whether the checksum of an IPv4 header of so many octets is right.
pub fn ipv4_header_is_right(frame: &[u8], at: usize, length: usize) -> bool {
    let sum: u32 = (0..length).step_by(2).map(|index| u32::from(half(frame, at + index))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16) == 0xffff
}

/// One 16-bit word of an IPv4 header has changed: its checksum follows (RFC 1624 equation 3). `header`: where the header begins.
fn follow_checksum(frame: &mut [u8], header: usize, before: u16, after: u16) {
    let sum = u32::from(!half(frame, header + 10)) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    put(frame, header + 10, &(!(folded as u16)).to_be_bytes());
}

/// Lowers the hop limit or TTL of the packet at an offset by one.
pub fn lower_hops(frame: &mut [u8], at: usize, is_ipv4: bool) {
    if is_ipv4 {
        let before = half(frame, at + 8);
        change(frame, at + 8, |ttl| ttl.wrapping_sub(1));
        let after = half(frame, at + 8);
        follow_checksum(frame, at, before, after);
    } else {
        change(frame, at + 7, |limit| limit.wrapping_sub(1));
    }
}

/// Sets the hop limit or TTL of the packet at an offset.
pub fn set_hops(frame: &mut [u8], at: usize, is_ipv4: bool, hops: u8) {
    if is_ipv4 {
        let before = half(frame, at + 8);
        change(frame, at + 8, |_| hops);
        let after = half(frame, at + 8);
        follow_checksum(frame, at, before, after);
    } else {
        change(frame, at + 7, |_| hops);
    }
}

/// Sets the ECN field of the packet at an offset.
pub fn set_ecn(frame: &mut [u8], at: usize, is_ipv4: bool, ecn: u8) {
    if is_ipv4 {
        let before = half(frame, at);
        change(frame, at + 1, |octet| octet & 0xfc | ecn);
        let after = half(frame, at);
        follow_checksum(frame, at, before, after);
    } else {
        change(frame, at + 1, |octet| octet & 0xcf | ecn << 4);
    }
}

/// RFC 6040 section 4.2, figure 4; none: the packet must be dropped.
pub fn ecn_after_tunnel(inner: u8, outer: u8) -> Option<u8> {
    match (inner, outer) {
        (inner, outer) if inner == outer => Some(inner),
        (0, 3) => None,
        (_, 3) => Some(3),
        (2, 1) => Some(1),
        (inner, _) => Some(inner),
    }
}

/// Whether it is TCP, UDP or SCTP.
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, number::TCP | number::UDP | number::SCTP)
}

/// `flow_hash()`.
pub fn flow_hash(key: &[u64; 5]) -> u32 {
    let mut mixed = (key[0] ^ key[2].rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= (key[1] ^ key[3].rotate_left(23)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    mixed ^= mixed >> 29;
    mixed = (mixed ^ key[4]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// `outer_flow()` of the IPv6 header at an offset.
pub fn outer_flow(frame: &[u8], at: usize) -> u32 {
    let mixed = (double(frame, at) & 0xffff_0f00) ^ double(frame, at + 8) ^ double(frame, at + 16);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// The address family and the version that a packet is, in words.
pub fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
