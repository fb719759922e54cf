//! SRv6: an outer IPv6 header with its extension headers.

use std::net::Ipv6Addr;

use segue_wire::layer::protocol;
use segue_wire::{HeaderChain, Ipv6Packet, Srh, ipv6, srh};

use crate::reason::Reason;

/// Offset of the Hop Limit in an IPv6 header.
const HOP_LIMIT: usize = 7;
/// Offset of the destination address in an IPv6 header.
const DESTINATION: usize = 24;
/// Offset of the Payload Length in an IPv6 header.
const PAYLOAD_LENGTH: usize = 4;

/// Where things are in a packet, in octets from its outer IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// The SRH.
    srh: Option<usize>,
    /// The octet that says what is behind the steering header.
    pub(super) announced_at: usize,
    /// The first octet behind the steering header.
    pub(super) inner: usize,
}

/// Finds the places, and how long the packet says that it is. `octets` may be followed by others, and be fewer than that.
pub(super) fn parse(octets: &[u8], is_cut: bool) -> Result<(Places, usize), Reason> {
    let header = octets.get(..ipv6::HEADER_LENGTH).ok_or(Reason::Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(Reason::NotSteered);
    }
    let total = ipv6::HEADER_LENGTH + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if total > octets.len() && !is_cut {
        return Err(Reason::Malformed);
    }
    let present = &octets[..total.min(octets.len())];
    match usual(present) {
        Some(places) => Ok((places, total)),
        None => Ok((walk(present)?, total)),
    }
}

/// An SRH right behind the IPv6 header, and something that is no extension header behind that: what nearly all packets are.
fn usual(packet: &[u8]) -> Option<Places> {
    const SRH: usize = ipv6::HEADER_LENGTH;
    let fixed = packet.get(SRH..SRH + srh::FIXED_LENGTH)?;
    let inner = SRH + (usize::from(fixed[1]) + 1) * 8;
    let extension = matches!(
        fixed[0],
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AUTHENTICATION
            | protocol::DESTINATION_OPTIONS
    );
    let usual =
        packet[6] == protocol::ROUTING && fixed[2] == srh::ROUTING_TYPE_SRH && !extension && inner <= packet.len();
    usual.then_some(Places { srh: Some(SRH), announced_at: SRH, inner })
}

fn walk(packet: &[u8]) -> Result<Places, Reason> {
    let packet = Ipv6Packet::new_quoted(packet).map_err(|_| Reason::Malformed)?;
    let chain = HeaderChain::parse(&packet).map_err(|_| Reason::Malformed)?;
    if chain.fragment().is_some_and(|fragment| !fragment.is_atomic()) {
        return Err(Reason::OuterFragment);
    }
    Ok(Places {
        srh: chain.srh().map(|header| header.offset),
        announced_at: chain.upper_layer_announced_at(),
        inner: chain.upper_layer_offset(),
    })
}

/// End (RFC 8986 section 4.1): one segment further. Nothing is changed if that cannot be.
pub(super) fn advance(packet: &mut [u8], places: &Places) -> Result<(), Reason> {
    let at = places.srh.ok_or(Reason::NoSegmentLeft)?;
    let srh = packet.get(at..places.inner).and_then(|octets| Srh::new_checked(octets).ok()).ok_or(Reason::Malformed)?;
    if srh.segments_left() == 0 {
        return Err(Reason::NoSegmentLeft);
    }
    if i16::from(srh.last_entry()) > srh.max_last_entry()
        || u16::from(srh.segments_left()) > u16::from(srh.last_entry()) + 1
    {
        return Err(Reason::Malformed);
    }
    let next = srh.next_segment().ok_or(Reason::Malformed)?;
    let left = srh.segments_left() - 1;
    if packet[HOP_LIMIT] <= 1 {
        return Err(Reason::HopLimit);
    }
    packet[HOP_LIMIT] -= 1;
    packet[DESTINATION..DESTINATION + 16].copy_from_slice(&next.octets());
    packet[at + 3] = left;
    Ok(())
}

/// Writes the outer header's length field for a packet of this many octets.
pub(super) fn set_length(packet: &mut [u8]) {
    let payload = packet.len().saturating_sub(ipv6::HEADER_LENGTH);
    let payload = u16::try_from(payload).unwrap_or(u16::MAX);
    packet[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 2].copy_from_slice(&payload.to_be_bytes());
}

/// Octets of the largest packet that an outer IPv6 header can announce.
pub(super) const LARGEST: usize = ipv6::HEADER_LENGTH + u16::MAX as usize;

/// An outer IPv6 header with its extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Srv6<'a> {
    octets: &'a [u8],
    srh: Option<usize>,
}

impl<'a> Srv6<'a> {
    pub(super) fn new(octets: &'a [u8], places: &Places) -> Self {
        Self { octets, srh: places.srh }
    }

    pub(super) fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Whether another one differs at most in the length of what is behind it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let around = |octets: &'a [u8]| (octets.get(..PAYLOAD_LENGTH), octets.get(PAYLOAD_LENGTH + 2..));
        around(self.octets) == around(other.octets)
    }

    /// The ECN field (RFC 3168).
    #[must_use]
    pub fn ecn(&self) -> u8 {
        self.octets.get(1).map_or(0, |octet| octet >> 4 & 3)
    }

    fn address(&self, offset: usize) -> Ipv6Addr {
        let octets = self.octets.get(offset..offset + 16).and_then(|octets| <[u8; 16]>::try_from(octets).ok());
        octets.unwrap_or_default().into()
    }

    /// Source address.
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        self.address(8)
    }

    /// Destination address: the active segment.
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        self.address(DESTINATION)
    }

    /// Hop limit as it arrived.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.octets.get(HOP_LIMIT).copied().unwrap_or(0)
    }

    /// The SRH; none if the destination address is the only segment.
    #[must_use]
    pub fn srh(&self) -> Option<Srh<&'a [u8]>> {
        self.srh.and_then(|at| self.octets.get(at..)).and_then(|octets| Srh::new_checked(octets).ok())
    }

    pub(super) fn remaining(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(64);
        // Traffic class without ECN: that differs from packet to packet, and is merged, not a way.
        let class = self.octets.get(..2).map_or(0, |word| (word[0] << 4 | word[1] >> 4) & 0xfc);
        key.push(class);
        key.extend(self.source().octets());
        key.extend(self.destination().octets());
        if let Some(srh) = self.srh() {
            key.push(srh.segments_left());
            key.extend(srh.tag().to_be_bytes());
            for index in (0..srh.segments_left()).rev() {
                key.extend(srh.segment(index).unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
            }
            key.extend(srh.tlv_bytes());
        }
        key
    }
}
