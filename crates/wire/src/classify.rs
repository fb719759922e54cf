//! The outer headers of a frame, read the way the data plane's C parser reads them.
//!
//! This is the other side of differential fuzzing: both parsers get the same frame and must give the same answer. So it
//! is one short function in the order of the checks, built on nothing but reads at offsets, and it leaves out what only
//! the Rust side wants to know.
//!
//! Order of checks:
//! 1. Ethernet header (14 octets), then up to two tags of 4 octets. A third tag is an ethertype other than IPv6.
//! 2. IPv6 header (40 octets), version, and Payload Length at most the octets behind the header. More octets behind it
//!    are padding. From here on everything must lie inside Payload Length.
//! 3. Extension headers: hop-by-hop options (directly behind the IPv6 header only), destination options, routing,
//!    fragment, authentication. For each in this order: its place; the number of headers; 8 octets (else
//!    `Truncated`); the whole length (else `BadLength`); for a routing header of another type than 4, Segments Left 0.
//! 4. The walk ends behind the first SRH, behind the fragment header of a fragment other than the first, or at the
//!    first protocol number that is no extension header. What it then stands at is the upper layer.

use crate::field::{range, u8_at, u16_at};
use crate::layer::{ethertype, protocol};
use crate::srh;

/// Most extension headers, the SRH included.
pub const MAX_HEADERS: usize = 8;

/// What the walk over the outer headers came to. A closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OuterStatus {
    /// Everything is in order.
    Ok = 0,
    /// The ethertype behind the tags is not IPv6; nothing else was looked at.
    NotIpv6 = 1,
    /// The octets of a fixed part are not there.
    Truncated = 2,
    /// The version nibble is not 6.
    BadVersion = 3,
    /// A length field promises more than there is, or less than the format needs.
    BadLength = 4,
    /// More than [`MAX_HEADERS`] extension headers.
    TooManyHeaders = 5,
    /// A hop-by-hop options header that is not directly behind the IPv6 header.
    HopByHopMisplaced = 6,
    /// A routing header of another type than 4 with segments left.
    RoutingTypeUnknown = 7,
}

/// The first SRH of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct OuterSrh {
    /// Octets from the start of the frame.
    pub offset: usize,
    pub next_header: u8,
    pub hdr_ext_len: u8,
    pub segments_left: u8,
    pub last_entry: u8,
    pub flags: u8,
    pub tag: u16,
}

/// The outer headers of a frame. Offsets count octets from the start of the frame; fields behind the point where the
/// walk failed keep their initial value (zero or `None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterClass {
    /// What the walk came to.
    pub status: OuterStatus,
    /// Ethertype behind the tags.
    pub ethertype: u16,
    /// Tags, 0 to 2.
    pub vlan_tags: u8,
    /// Offset of the octet behind the last ethertype.
    pub network_offset: usize,
    /// Protocol numbers of the extension headers in order; the first `header_count` are valid.
    pub headers: [u8; MAX_HEADERS],
    /// Number of extension headers, 0 to 8.
    pub header_count: u8,
    /// The SRH.
    pub srh: Option<OuterSrh>,
    /// Whether the packet is a fragment other than the first, so that no header begins at `upper_layer_offset`.
    pub non_first_fragment: bool,
    /// Protocol number of what the walk stands at.
    pub upper_layer: u8,
    /// Offset of what the walk stands at.
    pub upper_layer_offset: usize,
}

/// Reads the outer headers of `frame`. See the [module documentation](self) for what it checks and in which order.
pub fn classify_outer(frame: &[u8]) -> OuterClass {
    let mut class = OuterClass {
        status: OuterStatus::Ok,
        ethertype: 0,
        vlan_tags: 0,
        network_offset: 0,
        headers: [0; MAX_HEADERS],
        header_count: 0,
        srh: None,
        non_first_fragment: false,
        upper_layer: 0,
        upper_layer_offset: 0,
    };
    if let Err(status) = link_layer(&mut class, frame).and_then(|()| network_layer(&mut class, frame)) {
        class.status = status;
    }
    class
}

fn link_layer(class: &mut OuterClass, frame: &[u8]) -> Result<(), OuterStatus> {
    let mut offset = 14;
    need(frame.len() >= offset, OuterStatus::Truncated)?;
    class.ethertype = u16_at(frame, 12);
    while class.vlan_tags < 2 && matches!(class.ethertype, ethertype::VLAN | ethertype::SERVICE_VLAN) {
        need(frame.len() >= offset + 4, OuterStatus::Truncated)?;
        class.ethertype = u16_at(frame, offset + 2);
        class.vlan_tags += 1;
        offset += 4;
    }
    class.network_offset = offset;
    need(class.ethertype == ethertype::IPV6, OuterStatus::NotIpv6)
}

fn network_layer(class: &mut OuterClass, frame: &[u8]) -> Result<(), OuterStatus> {
    let start = class.network_offset;
    need(frame.len() >= start + 40, OuterStatus::Truncated)?;
    need(u8_at(frame, start) >> 4 == 6, OuterStatus::BadVersion)?;
    let end = start + 40 + usize::from(u16_at(frame, start + 4));
    need(frame.len() >= end, OuterStatus::BadLength)?;
    // From here on reads are confined to Payload Length.
    let packet = range(frame, 0, end);
    class.upper_layer = u8_at(packet, start + 6);
    class.upper_layer_offset = start + 40;
    while class.srh.is_none() && !class.non_first_fragment && is_extension_header(class.upper_layer) {
        extension_header(class, packet)?;
    }
    Ok(())
}

fn is_extension_header(number: u8) -> bool {
    matches!(
        number,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AUTHENTICATION
            | protocol::DESTINATION_OPTIONS
    )
}

fn extension_header(class: &mut OuterClass, packet: &[u8]) -> Result<(), OuterStatus> {
    let (number, offset) = (class.upper_layer, class.upper_layer_offset);
    let count = usize::from(class.header_count);
    need(number != protocol::HOP_BY_HOP || count == 0, OuterStatus::HopByHopMisplaced)?;
    let place = class.headers.get_mut(count).ok_or(OuterStatus::TooManyHeaders)?;
    need(packet.len() >= offset + 8, OuterStatus::Truncated)?;
    let units = usize::from(u8_at(packet, offset + 1));
    let length = match number {
        protocol::FRAGMENT => 8,
        protocol::AUTHENTICATION => (units + 2) * 4,
        _ => (units + 1) * 8,
    };
    need(number != protocol::AUTHENTICATION || length >= 12, OuterStatus::BadLength)?;
    need(packet.len() >= offset + length, OuterStatus::BadLength)?;
    if number == protocol::ROUTING {
        class.srh = routing_header(packet, offset)?;
    }
    if number == protocol::FRAGMENT {
        class.non_first_fragment = u16_at(packet, offset + 2) & 0xfff8 != 0;
    }
    *place = number;
    class.header_count += 1;
    class.upper_layer = u8_at(packet, offset);
    class.upper_layer_offset = offset + length;
    Ok(())
}

fn routing_header(packet: &[u8], offset: usize) -> Result<Option<OuterSrh>, OuterStatus> {
    let segments_left = u8_at(packet, offset + srh::SEGMENTS_LEFT);
    if u8_at(packet, offset + srh::ROUTING_TYPE) != srh::ROUTING_TYPE_SRH {
        return need(segments_left == 0, OuterStatus::RoutingTypeUnknown).map(|()| None);
    }
    Ok(Some(OuterSrh {
        offset,
        next_header: u8_at(packet, offset + srh::NEXT_HEADER),
        hdr_ext_len: u8_at(packet, offset + srh::HDR_EXT_LEN),
        segments_left,
        last_entry: u8_at(packet, offset + srh::LAST_ENTRY),
        flags: u8_at(packet, offset + srh::FLAGS),
        tag: u16_at(packet, offset + srh::TAG),
    }))
}

fn need(condition: bool, otherwise: OuterStatus) -> Result<(), OuterStatus> {
    if condition { Ok(()) } else { Err(otherwise) }
}
