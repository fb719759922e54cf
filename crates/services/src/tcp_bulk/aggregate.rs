//! Segments merged into one, and taken apart again.

use super::segment::{IpHeader, Places, Segment, pseudo_header};
use segue_service::{SteeringKind, Time};
use segue_wire::tcp::control;
use segue_wire::{Ipv4Packet, Ipv6Packet, TcpSegment};

/// Control bits that the last segment of an aggregate may have and the others not. All others must be the same in all: ECN's too, so that what is
/// said once for each segment (AccECN) is neither said more often nor less.
const OF_THE_LAST: u8 = control::FIN | control::PSH;

/// Most octets that IPv4 can announce; the same are behind an IPv6 header at most.
const LARGEST_LENGTH: usize = u16::MAX as usize;

/// How an IPv4 header's Identification goes from one segment to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identification {
    /// One more each time.
    Counts,
    /// The same, which only DF permits (RFC 6864).
    Constant,
}

/// One segment or several that follow each other, as one packet.
#[derive(Debug, Clone)]
pub struct Aggregate {
    octets: Vec<u8>,
    places: Places,
    sequence_number: u32,
    end: u32,
    segment_size: u32,
    segments: u32,
    identification: Vec<Identification>,
    is_closed: bool,
    last_control_bits: u8,
    arrived: Time,
}

impl Aggregate {
    /// Of one segment; `packet` is the packet that it is in.
    #[must_use]
    pub fn new(packet: &[u8], segment: &Segment, arrived: Time) -> Self {
        Self {
            octets: packet.to_vec(),
            places: segment.places,
            sequence_number: segment.sequence_number,
            end: segment.sequence_number.wrapping_add(segment.length),
            segment_size: segment.length,
            segments: 1,
            identification: Vec::new(),
            is_closed: segment.control_bits & OF_THE_LAST != 0,
            last_control_bits: segment.control_bits,
            arrived,
        }
    }

    /// Sequence number of its first octet.
    #[must_use]
    pub fn sequence_number(&self) -> u32 {
        self.sequence_number
    }

    /// Sequence number behind its last octet.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Segments in it.
    #[must_use]
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Octets of payload of its segments but the last, which may have fewer.
    #[must_use]
    pub fn segment_size(&self) -> u32 {
        self.segment_size
    }

    /// How the Identification of its IPv4 headers goes, from the outside in; empty for one segment.
    #[must_use]
    pub fn identification(&self) -> &[Identification] {
        &self.identification
    }

    /// What kind of steering header it begins with.
    #[must_use]
    pub fn kind(&self) -> SteeringKind {
        self.places.kind()
    }

    /// Octets of the packet.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets.len()
    }

    /// When its first segment arrived.
    #[must_use]
    pub fn arrived(&self) -> Time {
        self.arrived
    }

    /// Whether it cannot grow: it ends with FIN, PSH or a shorter segment, or one more does not fit into `largest` octets.
    #[must_use]
    pub fn is_full(&self, largest: usize) -> bool {
        self.is_closed || self.octets.len() + self.segment_size as usize > largest
    }

    /// Puts `next` behind it, if that can be undone later without a difference; else says so and is as before.
    pub fn append(&mut self, next: &Self, largest: usize) -> bool {
        let Some(identification) = self.how_it_follows(next, largest) else { return false };
        let payload = next.octets.get(next.places.payload..).unwrap_or(&[]);
        self.octets.extend_from_slice(payload);
        self.end = next.end;
        self.segments += next.segments;
        self.identification = identification;
        self.is_closed = next.is_closed || next.segment_size < self.segment_size;
        self.last_control_bits = next.last_control_bits;
        self.arrived = self.arrived.min(next.arrived);
        true
    }

    fn how_it_follows(&self, next: &Self, largest: usize) -> Option<Vec<Identification>> {
        let is_short_last = next.segments == 1 && next.segment_size < self.segment_size;
        let total = self.octets.len() + (next.octets.len() - next.places.payload);
        let follows = !self.is_closed
            && self.end == next.sequence_number
            && (next.segment_size == self.segment_size || is_short_last)
            && total <= largest
            && self.lengths_fit(total)
            && self.places == next.places
            && self.headers_are_equal(next);
        if !follows {
            return None;
        }
        let headers = self.places.headers().iter().filter(|header| !header.ipv6).enumerate();
        headers.map(|(index, header)| self.identification_to(next, index, *header)).collect()
    }

    fn lengths_fit(&self, total: usize) -> bool {
        self.places.headers().iter().all(|header| {
            let counted_from = if header.ipv6 { header.offset + 40 } else { header.offset };
            total - counted_from <= LARGEST_LENGTH
        })
    }

    /// All octets in front of the payload are the same, but for lengths, identifications, checksums, the sequence number, FIN and PSH.
    fn headers_are_equal(&self, next: &Self) -> bool {
        let mut at = 0;
        for header in self.places.headers() {
            // IPv6: Payload Length. IPv4: Total Length and Identification; Header Checksum.
            let skipped: &[(usize, usize)] = if header.ipv6 { &[(4, 6)] } else { &[(2, 6), (10, 12)] };
            for (from, to) in skipped {
                if !self.is_same(next, at, header.offset + from) {
                    return false;
                }
                at = header.offset + to;
            }
        }
        let tcp = self.places.tcp;
        let bits = |aggregate: &Self| aggregate.octets.get(tcp + 13).map(|bits| bits & !OF_THE_LAST);
        // Ports; acknowledgment number, data offset and reserved bits; window; urgent pointer and all options.
        self.is_same(next, at, tcp + 4)
            && self.is_same(next, tcp + 8, tcp + 13)
            && bits(self) == bits(next)
            && self.is_same(next, tcp + 14, tcp + 16)
            && self.is_same(next, tcp + 18, self.places.payload)
    }

    fn is_same(&self, next: &Self, from: usize, to: usize) -> bool {
        self.octets.get(from..to).is_some_and(|octets| next.octets.get(from..to) == Some(octets))
    }

    fn identification_to(&self, next: &Self, index: usize, header: IpHeader) -> Option<Identification> {
        let view = |aggregate: &'_ Self| {
            let view = Ipv4Packet::new_quoted(aggregate.octets.get(header.offset..)?).ok()?;
            Some((view.identification(), view.dont_fragment()))
        };
        let ((first, dont_fragment), (second, _)) = (view(self)?, view(next)?);
        let found = if first.wrapping_add(self.segments as u16) == second {
            Identification::Counts
        } else if first == second && dont_fragment {
            Identification::Constant
        } else {
            return None;
        };
        let agrees = |aggregate: &Self| aggregate.identification.get(index).is_none_or(|known| *known == found);
        (agrees(self) && agrees(next)).then_some(found)
    }

    /// The packet. One segment is the packet that came, octet by octet.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.segments > 1 {
            let total = self.octets.len();
            set_lengths(&mut self.octets, &self.places, total);
            finish_tcp(&mut self.octets, &self.places, self.sequence_number, self.last_control_bits);
        }
        self.octets
    }
}

/// Writes the length of a packet of `total` octets, and checksums, into all its IP headers.
fn set_lengths(packet: &mut [u8], places: &Places, total: usize) {
    for header in places.headers() {
        let Some(octets) = packet.get_mut(header.offset..) else { continue };
        // Both were compared with the largest before.
        let length = total - header.offset;
        if header.ipv6 {
            if let Ok(mut view) = Ipv6Packet::new_quoted(octets) {
                view.set_payload_length((length - 40) as u16);
            }
        } else if let Ok(mut view) = Ipv4Packet::new_quoted(octets) {
            view.set_total_length(length as u16);
            view.fill_checksum();
        }
    }
}

fn finish_tcp(packet: &mut [u8], places: &Places, sequence_number: u32, control_bits: u8) {
    let Some(pseudo_header) = pseudo_header(packet, places) else { return };
    let view = packet.get_mut(places.tcp..).and_then(|octets| TcpSegment::new_checked(octets).ok());
    let Some(mut view) = view else { return };
    view.set_sequence_number(sequence_number);
    view.set_control_bits(control_bits);
    view.fill_checksum(&pseudo_header);
}

/// The segments that `packet` was made of, each a packet: what a device does that cuts a large segment (GSO). `segment` is what
/// [`super::Class::of`] finds in it.
///
/// FIN and PSH are those of the last, all other bits those of all. An IPv4 header whose Identification is not named counts.
#[must_use]
pub fn split(packet: &[u8], segment: &Segment, segment_size: usize, identification: &[Identification]) -> Vec<Vec<u8>> {
    let places = &segment.places;
    let (headers, payload) = packet.split_at(places.payload.min(packet.len()));
    let count = payload.len().div_ceil(segment_size.max(1));
    let piece = |(index, piece): (usize, &[u8])| {
        let mut octets = [headers, piece].concat();
        for (place, header) in places.headers().iter().filter(|header| !header.ipv6).enumerate() {
            if identification.get(place) == Some(&Identification::Constant) {
                continue;
            }
            if let Some(Ok(mut view)) = octets.get_mut(header.offset..).map(Ipv4Packet::new_quoted) {
                view.set_identification(view.identification().wrapping_add(index as u16));
            }
        }
        let total = octets.len();
        set_lengths(&mut octets, places, total);
        let bits = segment.control_bits & if index + 1 == count { u8::MAX } else { !OF_THE_LAST };
        let sequence_number = segment.sequence_number.wrapping_add((index * segment_size) as u32);
        finish_tcp(&mut octets, places, sequence_number, bits);
        octets
    };
    payload.chunks(segment_size.max(1)).enumerate().map(piece).collect()
}
