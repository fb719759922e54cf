//! One inner packet: whole, an atomic fragment, a fragment, or a fault.

use segue_wire::ipv6::{self, Ipv6Packet};
use segue_wire::layer::protocol;
use segue_wire::{
    Error, FragmentRepr, HeaderChain, Icmpv6Error, Ipv4Packet, LayerKind, ipv6_extension::MIN_HEADER_LENGTH,
    parse_ip_packet,
};
use std::net::IpAddr;

/// Most octets of an IPv4 packet, and most octets behind an IPv6 header.
const LARGEST: usize = u16::MAX as usize;
/// Octets of a TCP header without options.
const TCP_HEADER: usize = 20;
/// Where a TCP header says how long it is, in its upper four bits, in fours.
const TCP_DATA_OFFSET: usize = 12;

/// Why a fragment cannot be part of any datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The headers cannot be read, or the checksum of an IPv4 header is wrong.
    Malformed,
    /// Not the last fragment, and its length is no multiple of 8 (RFC 8200 section 4.5).
    Length,
    /// The datagram would be longer than its length field can say.
    TooLong {
        /// Octets from the inner IPv6 header to the Fragment Offset field.
        offset_field: usize,
    },
    /// A first fragment without the whole header chain (RFC 7112 section 5), or with half a layer-4 header.
    IncompleteChain,
    /// A TCP fragment that begins inside the TCP header (RFC 1858, RFC 3128).
    Tiny,
    /// A fragment without data.
    Empty,
    /// A fragment header behind a fragment header.
    Nested,
}

impl Fault {
    /// The ICMPv6 error that the destination would send. This service is not the destination and sends none.
    #[must_use]
    pub fn icmpv6_error(self) -> Option<Icmpv6Error> {
        match self {
            Self::Length => Some(Icmpv6Error::parameter_problem(0, ipv6::PAYLOAD_LENGTH)),
            Self::TooLong { offset_field } if offset_field > 0 => Some(Icmpv6Error::parameter_problem(0, offset_field)),
            Self::IncompleteChain => Some(Icmpv6Error::parameter_problem(3, 0)),
            _ => None,
        }
    }
}

/// What makes fragments those of one datagram, besides the way that they are steered (RFC 8200 section 4.5, RFC 791 section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IPv4: the protocol. IPv6: 0, it is not part of the identity there.
    pub protocol: u8,
    /// Identification.
    pub identification: u32,
}

/// A fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Of which datagram.
    pub identity: Identity,
    /// The headers that each fragment has: of IPv4 the header, of IPv6 all in front of the fragment header.
    pub header: &'a [u8],
    /// IPv6: offset in `header` of the octet that announces the fragment header.
    pub announced_at: usize,
    /// IPv6: the protocol number of what is fragmented. IPv4: 0.
    pub next_header: u8,
    /// Octets of the datagram in front of `data`.
    pub offset: usize,
    /// Whether others follow.
    pub more: bool,
    /// IPv4: DF.
    pub dont_fragment: bool,
    /// ECN field, two bits.
    pub ecn: u8,
    /// What it carries.
    pub data: &'a [u8],
    /// Octets of the fragment as an IP packet.
    pub length: usize,
}

impl Fragment<'_> {
    /// Whether it is a whole packet with a fragment header (RFC 6946).
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Offset behind its data.
    #[must_use]
    pub fn end(&self) -> usize {
        self.offset + self.data.len()
    }
}

/// What an inner packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner<'a> {
    /// No fragment.
    Whole,
    /// A fragment; also one that is atomic.
    Fragment(Fragment<'a>),
}

/// Looks at an inner packet with this protocol number.
///
/// # Errors
/// [`Fault`]. A packet that is neither IPv4 nor IPv6 is whole.
pub fn inspect(number: u8, inner: &[u8]) -> Result<Inner<'_>, Fault> {
    match number {
        protocol::IPV4 => inspect_ipv4(inner),
        protocol::IPV6 => inspect_ipv6(inner),
        _ => Ok(Inner::Whole),
    }
}

fn inspect_ipv4(inner: &[u8]) -> Result<Inner<'_>, Fault> {
    let packet = Ipv4Packet::new_checked(inner).map_err(|_| Fault::Malformed)?;
    if !packet.is_fragment() {
        return Ok(Inner::Whole);
    }
    if !packet.verify_checksum() {
        return Err(Fault::Malformed);
    }
    let (header, payload) = inner.split_at_checked(packet.header_length()).ok_or(Fault::Malformed)?;
    let data = payload.get(..packet.total_length() - header.len()).ok_or(Fault::Malformed)?;
    let fragment = Fragment {
        identity: Identity {
            source: packet.source().into(),
            destination: packet.destination().into(),
            protocol: packet.protocol(),
            identification: packet.identification().into(),
        },
        header,
        announced_at: 0,
        next_header: 0,
        offset: packet.fragment_offset().into(),
        more: packet.more_fragments(),
        dont_fragment: packet.dont_fragment(),
        ecn: packet.type_of_service() & 3,
        data,
        length: packet.total_length(),
    };
    check_layer_4(packet.protocol(), fragment.offset, data)?;
    check_places(&fragment, header.len(), 0)?;
    Ok(Inner::Fragment(fragment))
}

/// IPv4 has no rule that a first fragment holds all headers; filters have (RFC 1858 section 4.2, RFC 3128 section 2).
fn check_layer_4(number: u8, offset: usize, data: &[u8]) -> Result<(), Fault> {
    match (number, offset) {
        (protocol::TCP, 0) => {
            let announced = data.get(TCP_DATA_OFFSET).map_or(0, |octet| usize::from(octet >> 4) * 4);
            if data.len() < TCP_HEADER.max(announced) { Err(Fault::Tiny) } else { Ok(()) }
        }
        (protocol::TCP, 8) => Err(Fault::Tiny),
        (protocol::UDP | protocol::ICMPV4, 0) if data.len() < 8 => Err(Fault::IncompleteChain),
        _ => Ok(()),
    }
}

fn inspect_ipv6(inner: &[u8]) -> Result<Inner<'_>, Fault> {
    let packet = Ipv6Packet::new_checked(inner).map_err(|_| Fault::Malformed)?;
    let chain = HeaderChain::parse(&packet).map_err(|error| match error {
        Error::IncompleteHeaderChain { .. } => Fault::IncompleteChain,
        _ => Fault::Malformed,
    })?;
    let mut headers = chain.headers().iter().filter(|header| header.kind == LayerKind::Fragment);
    let Some(place) = headers.next() else { return Ok(Inner::Whole) };
    if headers.next().is_some() {
        return Err(Fault::Nested);
    }
    let octets = inner.get(..packet.total_length()).ok_or(Fault::Malformed)?;
    let (header, rest) = octets.split_at_checked(place.offset).ok_or(Fault::Malformed)?;
    let (fields, data) = rest.split_at_checked(MIN_HEADER_LENGTH).ok_or(Fault::Malformed)?;
    let fields = FragmentRepr::parse(fields).map_err(|_| Fault::Malformed)?;
    let fragment = Fragment {
        identity: Identity {
            source: packet.source().into(),
            destination: packet.destination().into(),
            protocol: 0,
            identification: fields.identification,
        },
        header,
        announced_at: place.announced_at,
        next_header: fields.next_header,
        offset: fields.fragment_offset.into(),
        more: fields.more_fragments,
        dont_fragment: false,
        ecn: packet.traffic_class() & 3,
        data,
        length: octets.len(),
    };
    if fragment.is_atomic() {
        return Ok(Inner::Fragment(fragment));
    }
    if fragment.offset == 0 && matches!(parse_ip_packet(octets), Err(Error::IncompleteHeaderChain { .. })) {
        return Err(Fault::IncompleteChain);
    }
    check_places(&fragment, header.len() - ipv6::HEADER_LENGTH, place.offset + 2)?;
    Ok(Inner::Fragment(fragment))
}

/// `counted`: octets of the header that the datagram's length field counts.
fn check_places(fragment: &Fragment<'_>, counted: usize, offset_field: usize) -> Result<(), Fault> {
    if fragment.data.is_empty() {
        return Err(Fault::Empty);
    }
    if fragment.more && !fragment.data.len().is_multiple_of(8) {
        return Err(Fault::Length);
    }
    if counted + fragment.end() > LARGEST {
        return Err(Fault::TooLong { offset_field });
    }
    Ok(())
}
