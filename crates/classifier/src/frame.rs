//! From a frame to the key that rules are asked with: the twin of `bpf/lib/firewall/key.h`, for explaining what a captured packet
//! would meet. `crates/testkit/tests/firewall/key.rs` compares the two on broken and whole packets.
//!
//! It reads octets at offsets, in the order of the data plane's checks, so that it refuses exactly what the data plane refuses; the
//! views of `segue-wire` are stricter in some places and laxer in others.

use std::borrow::Cow;

use crate::field::Field;
use crate::key::{Key, present, word};

mod labels;

pub use labels::{Unlabelled, without_labels};

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const HEADERS_MAX: usize = 8;
/// Every header that the data plane looks at starts below this offset.
const OFFSET_MASK: usize = 0x0fff;

mod protocol {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IPV4: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const DCCP: u8 = 33;
    pub const IPV6: u8 = 41;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION_OPTIONS: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const UDPLITE: u8 = 136;
}

/// Where a frame came in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Index of the interface, 0: not known.
    pub ingress: u32,
    /// It has come to a SID of this node, which has the firewall.
    pub sid: bool,
    /// Where SIDs lie, of this node and of others: address and prefix length. A packet to one of them is steered, and rules look at
    /// the packet in it.
    pub segments: &'a [(u128, u8)],
    /// It has come by a label of this node, which has the firewall: the label stack entries from that one on, which are not in the
    /// frame. Empty: it has not.
    pub labels: &'a [u32],
}

impl Arrival<'_> {
    fn steers(&self, destination: u128) -> bool {
        let within = |(address, length): &(u128, u8)| {
            (destination ^ address).checked_shr(128 - u32::from(*length)).unwrap_or(0) == 0
        };
        self.sid || self.segments.iter().any(within)
    }
}

/// Why rules are not asked about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Neither IPv4 nor IPv6: it passes a port's firewall.
    #[error("it is neither IPv4 nor IPv6: it passes a port's firewall unfiltered")]
    NotIp,
    /// Octets of a header are not there.
    #[error("octets of a header are missing: dropped as drop_truncated")]
    Truncated,
    /// A version field does not fit.
    #[error("an IP header has another version than what precedes it says: dropped as drop_bad_version")]
    BadVersion,
    /// A length promises more than there is.
    #[error("a length field promises more octets than there are: dropped as drop_bad_length")]
    BadLength,
    /// More than eight extension headers.
    #[error("more than 8 extension headers: dropped as drop_too_many_headers")]
    TooManyHeaders,
    /// Segments Left or Last Entry do not fit the SRH.
    #[error("Segments Left or Last Entry do not fit the SRH's length: dropped as drop_segments_left")]
    SegmentsLeft,
    /// The layer-4 header is not all there, or a TCP fragment would overwrite one.
    #[error("it ends inside its layer-4 header, or is a TCP fragment of offset 1: dropped as drop_layer4_header")]
    Layer4Header,
    /// An outer fragment that carries an inner packet, at a SID.
    #[error("a fragment of an encapsulated packet, at a SID: dropped as drop_fragment_at_decapsulation")]
    OuterFragment,
    /// A header beyond the octets that the data plane looks at.
    #[error("a header lies beyond the octets that the data plane looks at: dropped as drop_multi_buffer_header")]
    MultiBufferHeader,
    /// A label stack that does not end in the frame.
    #[error("the label stack does not end in the frame: dropped as drop_label_bottom")]
    LabelBottom,
    /// More labels than are looked at.
    #[error("more labels than are looked at: dropped as drop_label_depth")]
    LabelDepth,
    /// What is behind the label stack is no IP packet.
    #[error("what is behind the label stack is no IP packet: dropped as drop_label_not_ip")]
    LabelNotIp,
}

impl Fault {
    /// The data plane's outcome; None where the packet passes.
    pub fn outcome(self) -> Option<&'static str> {
        Some(match self {
            Self::NotIp => return None,
            Self::Truncated => "drop_truncated",
            Self::BadVersion => "drop_bad_version",
            Self::BadLength => "drop_bad_length",
            Self::TooManyHeaders => "drop_too_many_headers",
            Self::SegmentsLeft => "drop_segments_left",
            Self::Layer4Header => "drop_layer4_header",
            Self::OuterFragment => "drop_fragment_at_decapsulation",
            Self::MultiBufferHeader => "drop_multi_buffer_header",
            Self::LabelBottom => "drop_label_bottom",
            Self::LabelDepth => "drop_label_depth",
            Self::LabelNotIp => "drop_label_not_ip",
        })
    }
}

/// The key of an Ethernet frame. Priority tags (VLAN 0) in front are taken off, as the data plane does; TCP options are always read.
/// There is no connection state in it, and the mark is 0.
///
/// # Errors
/// What keeps the data plane from asking rules about it.
pub fn read(frame: &[u8], arrival: Arrival<'_>) -> Result<Key, Fault> {
    let mut frame = Cow::Borrowed(frame);
    while frame.len() >= ETHERNET + 4 && TAGS.contains(&u16_at(&frame, 12)) && u16_at(&frame, 14) & 0x0fff == 0 {
        frame = Cow::Owned([&frame[..12], &frame[16..]].concat());
    }
    let frame = &frame[..];
    if frame.len() < ETHERNET {
        return Err(Fault::Truncated);
    }
    let mut reader = Reader { frame, key: Key::new(), walk: Walk::default(), limit: frame.len() };
    reader.key.set_word(word::INGRESS, arrival.ingress);
    reader.key.set(Field::SourceMac, u128::from(u64_at(frame, 6) >> 16));
    match u16_at(frame, 12) {
        IPV4 => reader.ipv4(ETHERNET)?,
        IPV6 => reader.outermost(arrival)?,
        _ => return Err(Fault::NotIp),
    }
    reader.key.set_labels(arrival.labels);
    Ok(reader.key)
}

/// What lies behind an IPv6 header.
#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    protocol: u8,
    upper: usize,
    /// Offset of the first SRH.
    srh: Option<usize>,
    /// Type, Segments Left and Hdr Ext Len of the first Routing header.
    routing: Option<(u8, u8, u8)>,
    /// The first Fragment header.
    fragment: Option<Fragment>,
    /// Some Fragment header has an offset: there is no header at `upper`.
    later: bool,
}

impl Walk {
    /// Not of an atomic fragment (RFC 6946).
    fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| self.later || fragment.more)
    }
}

#[derive(Debug, Clone, Copy)]
struct Fragment {
    /// In 8 octets.
    offset: u16,
    more: bool,
    reserved: bool,
    identification: u32,
}

struct Reader<'a> {
    frame: &'a [u8],
    key: Key,
    walk: Walk,
    /// End of the packet at hand.
    limit: usize,
}

impl Reader<'_> {
    fn holds(&self, end: usize) -> bool {
        end <= self.frame.len()
    }

    fn set(&mut self, field: Field, value: impl Into<u128>) {
        self.key.set(field, value.into());
    }

    fn outermost(&mut self, arrival: Arrival<'_>) -> Result<(), Fault> {
        self.ipv6(ETHERNET)?;
        let (source, destination) = (u128_at(self.frame, ETHERNET + 8), u128_at(self.frame, ETHERNET + 24));
        self.set(Field::OuterFamily, 6_u8);
        self.set(Field::OuterSource, source);
        self.set(Field::OuterDestination, destination);
        if arrival.sid {
            self.set(Field::ActiveSid, destination);
        }
        let srh = self.walk.srh;
        if let Some(srh) = srh {
            self.srh(srh)?;
        }
        let inner = matches!(self.walk.protocol, protocol::IPV4 | protocol::IPV6)
            && (srh.is_some() || arrival.steers(destination));
        if inner && self.walk.is_fragment() && arrival.sid {
            return Err(Fault::OuterFragment);
        }
        if inner && !self.walk.is_fragment() {
            let upper = self.walk.upper;
            if self.walk.protocol == protocol::IPV4 {
                return self.ipv4(upper);
            }
            self.ipv6(upper)?;
        } else if let Some(srh) = srh {
            // Inserted into the packet's own headers: where it will go in the end.
            self.set(Field::DestinationIpv6, u128_at(self.frame, srh + 8));
        }
        self.set(Field::Protocol, self.walk.protocol);
        if let Some((kind, left, length)) = self.walk.routing {
            self.set(Field::RoutingType, kind);
            self.set(Field::RoutingSegmentsLeft, left);
            self.set(Field::RoutingLength, length);
        }
        if let Some(fragment) = self.walk.fragment {
            self.set(Field::FragmentOffset, fragment.offset);
            self.set(Field::FragmentMore, u8::from(fragment.more));
            self.set(Field::FragmentReserved, u8::from(fragment.reserved));
            self.set(Field::FragmentIdentification, fragment.identification);
        }
        match self.walk.later {
            false => self.upper(self.walk.upper, self.walk.protocol),
            true => later_fragment(self.walk.protocol, self.walk.fragment.map_or(0, |fragment| fragment.offset)),
        }
    }

    fn ipv4(&mut self, l3: usize) -> Result<(), Fault> {
        let start = l3 & OFFSET_MASK;
        if !self.holds(start + 20) || l3 + 20 > self.limit {
            return Err(Fault::Truncated);
        }
        let header = self.frame.get(start..).unwrap_or_default();
        if header[0] >> 4 != 4 {
            return Err(Fault::BadVersion);
        }
        let (header_length, length) = (usize::from(header[0] & 15) * 4, usize::from(u16_at(header, 2)));
        if header_length < 20 || length < header_length || l3 + length > self.limit {
            return Err(Fault::BadLength);
        }
        self.limit = l3 + length;
        let fragment = u16_at(header, 6);
        // What an outer IPv6 header has and this one has not.
        self.key.set_word(word::FLOW_LABEL, crate::key::ABSENT);
        self.set(Field::SourceIpv4, u32_at(header, 12));
        self.set(Field::DestinationIpv4, u32_at(header, 16));
        self.set(Field::Protocol, header[9]);
        self.set(Field::TrafficClass, header[1]);
        self.set(Field::HopLimit, header[8]);
        self.set(Field::Length, length as u128);
        self.set(Field::FragmentOffset, fragment & 0x1fff);
        self.set(Field::FragmentMore, fragment >> 13 & 1);
        self.set(Field::FragmentDont, fragment >> 14 & 1);
        self.set(Field::FragmentReserved, fragment >> 15);
        self.set(Field::FragmentIdentification, u16_at(header, 4));
        match fragment & 0x1fff {
            0 => self.upper(l3 + header_length, header[9]),
            offset => later_fragment(header[9], offset),
        }
    }

    /// The header at `l3`, and the walk behind it; the packet's end becomes the limit.
    fn ipv6(&mut self, l3: usize) -> Result<(), Fault> {
        let start = l3 & OFFSET_MASK;
        if !self.holds(start + 40) || l3 + 40 > self.limit {
            return Err(Fault::Truncated);
        }
        let header = self.frame.get(start..).unwrap_or_default();
        let first = u32_at(header, 0);
        if first >> 28 != 6 {
            return Err(Fault::BadVersion);
        }
        let length = 40 + usize::from(u16_at(header, 4));
        if l3 + length > self.limit {
            return Err(Fault::BadLength);
        }
        self.limit = l3 + length;
        self.set(Field::SourceIpv6, u128_at(header, 8));
        self.set(Field::DestinationIpv6, u128_at(header, 24));
        self.set(Field::TrafficClass, (first >> 20) as u8);
        self.set(Field::FlowLabel, first & 0xf_ffff);
        self.set(Field::HopLimit, header[7]);
        self.set(Field::Length, length as u128);
        self.walk = Walk { protocol: header[6], upper: l3 + 40, ..Walk::default() };
        self.walk_on()
    }

    /// Extension headers: RFC 8200 section 4.
    fn walk_on(&mut self) -> Result<(), Fault> {
        let (mut offset, mut next) = (self.walk.upper, self.walk.protocol);
        if is_extension_header(next) {
            offset &= OFFSET_MASK;
        }
        for count in 0.. {
            (self.walk.upper, self.walk.protocol) = (offset, next);
            if !is_extension_header(next) {
                return Ok(());
            }
            if count == HEADERS_MAX {
                return Err(Fault::TooManyHeaders);
            }
            if offset + 8 > self.limit || !self.holds(offset + 8) {
                return Err(Fault::Truncated);
            }
            let header = self.frame.get(offset..).unwrap_or_default();
            let mut length = (usize::from(header[1]) + 1) * 8;
            match next {
                protocol::FRAGMENT => {
                    length = 8;
                    let offset = u16_at(header, 2) >> 3;
                    self.walk.later |= offset != 0;
                    self.walk.fragment.get_or_insert(Fragment {
                        offset,
                        more: header[3] & 1 == 1,
                        reserved: header[1] != 0 || header[3] & 6 != 0,
                        identification: u32_at(header, 4),
                    });
                }
                protocol::AUTHENTICATION => length = (usize::from(header[1]) + 2) * 4,
                protocol::ROUTING => {
                    if header[2] == 4 && self.walk.srh.is_none() {
                        self.walk.srh = Some(offset);
                    }
                    self.walk.routing.get_or_insert((header[2], header[3], header[1]));
                }
                _ => {}
            }
            if offset + length > self.limit {
                return Err(Fault::BadLength);
            }
            next = header[0];
            offset += length;
            if self.walk.later {
                (self.walk.upper, self.walk.protocol) = (offset, next);
                return Ok(());
            }
            if offset > OFFSET_MASK - 64 {
                return Err(Fault::MultiBufferHeader);
            }
        }
        Ok(())
    }

    /// Fields of the SRH at `offset`; RFC 8754 section 4.3.1.1 says which fit.
    fn srh(&mut self, offset: usize) -> Result<(), Fault> {
        if !self.holds(offset + 24) {
            return Err(Fault::Truncated);
        }
        let header = self.frame.get(offset..).unwrap_or_default();
        let (length, left, last_entry) = (header[1], header[3], header[4]);
        if i16::from(last_entry) > i16::from(length / 2) - 1 || u16::from(left) > u16::from(last_entry) + 1 {
            return Err(Fault::SegmentsLeft);
        }
        let segment = |index: u8| {
            let at = 8 + usize::from(index) * 16;
            header.get(at..at + 16).map(|octets| u128_at(octets, 0)).ok_or(Fault::MultiBufferHeader)
        };
        let next = left.checked_sub(1).map(segment).transpose()?;
        let previous = (left < last_entry).then(|| segment(left + 1)).transpose()?;
        let (next_header, tag, last) = (header[0], u16_at(header, 6), u128_at(header, 8));
        self.set(Field::SrhNextHeader, next_header);
        self.set(Field::SrhLength, length);
        self.set(Field::SrhSegmentsLeft, left);
        self.set(Field::SrhLastEntry, last_entry);
        self.set(Field::SrhTag, tag);
        self.set(Field::LastSid, last);
        let present = self.key.word(word::PRESENT) | present::SRH;
        self.key.set_word(word::PRESENT, present);
        if let Some(sid) = next {
            self.set(Field::NextSid, sid);
        }
        if let Some(sid) = previous {
            self.set(Field::PreviousSid, sid);
        }
        Ok(())
    }

    /// Layer 4, of a whole packet or a first fragment.
    fn upper(&mut self, offset: usize, number: u8) -> Result<(), Fault> {
        let icmp = if self.key.get(Field::Family) == Some(6) { protocol::ICMPV6 } else { protocol::ICMP };
        let length = match number {
            protocol::TCP => 20,
            protocol::UDP | protocol::UDPLITE => 8,
            protocol::SCTP | protocol::DCCP => 12,
            _ if number == icmp => 8,
            _ => 0,
        };
        if offset + length > self.limit {
            return Err(Fault::Layer4Header);
        }
        // Of a TCP header all is read, of others the first word.
        let read = if length == 20 { length } else { length.min(4) };
        if offset > OFFSET_MASK || !self.holds(offset + read) {
            return Err(Fault::MultiBufferHeader);
        }
        if length == 0 {
            return Ok(());
        }
        let header = self.frame.get(offset..).unwrap_or_default();
        if number == icmp {
            self.set(Field::IcmpType, header[0]);
            self.set(Field::IcmpCode, header[1]);
            return Ok(());
        }
        if number == protocol::TCP {
            let length = usize::from(header[12] >> 4) * 4;
            if length < 20 || offset + length > self.limit {
                return Err(Fault::Layer4Header);
            }
            self.set(Field::TcpFlags, header[13]);
            self.set(Field::TcpOptions, tcp_options(header));
        }
        self.set(Field::SourcePort, u16_at(header, 0));
        self.set(Field::DestinationPort, u16_at(header, 2));
        Ok(())
    }
}

/// RFC 1858: offset 1 lies in a TCP header.
fn later_fragment(number: u8, offset: u16) -> Result<(), Fault> {
    if number == protocol::TCP && offset == 1 { Err(Fault::Layer4Header) } else { Ok(()) }
}

fn is_extension_header(number: u8) -> bool {
    matches!(
        number,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::DESTINATION_OPTIONS
            | protocol::AUTHENTICATION
    )
}

/// The kinds of the options of a TCP header, as bits.
fn tcp_options(header: &[u8]) -> u64 {
    let length = usize::from(header[12] >> 4) * 4;
    let mut kinds = 0;
    let mut at = 20;
    for _ in 0..40 {
        if at >= length {
            break;
        }
        let [kind, size, ..] = header.get(at & 63..).unwrap_or_default() else { break };
        at &= 63;
        if *kind == 0 {
            break;
        }
        kinds |= u64::from(*kind < 64) << (kind & 63);
        match (kind, size) {
            (1, _) => at += 1,
            (_, 0 | 1) => break,
            _ => at += usize::from(*size),
        }
    }
    kinds
}

fn octets<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    octets.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(octets(from, at))
}

fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets(from, at))
}

fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets(from, at))
}

fn u128_at(from: &[u8], at: usize) -> u128 {
    u128::from_be_bytes(octets(from, at))
}
