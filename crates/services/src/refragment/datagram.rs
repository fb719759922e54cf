//! One datagram that is being put together.

use super::fragment::Fragment;
use segue_wire::ipv6::{self, Ipv6Packet};
use segue_wire::{Ipv4Packet, Ipv4Repr};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// ECN code points (RFC 3168 section 5).
const NOT_ECT: u8 = 0;
const CE: u8 = 3;

/// How a fragment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It is kept.
    Kept,
    /// It is kept, and nothing is missing now.
    Complete,
    /// It has come before, octet by octet.
    Duplicate,
    /// It overlaps another, or contradicts where the datagram ends: the datagram is lost (RFC 5722 section 4).
    Overlap,
}

/// The headers that the result gets, from the fragment with offset 0.
struct First {
    header: Vec<u8>,
    announced_at: usize,
    next_header: u8,
}

/// Fragments of one datagram. They are in order and do not overlap.
#[derive(Default)]
pub(super) struct Datagram {
    pieces: BTreeMap<usize, (Vec<u8>, bool)>,
    first: Option<First>,
    /// Where it ends, once the last fragment is there.
    total: Option<usize>,
    octets: usize,
    /// Bit n: a fragment had ECN n.
    ecn: u8,
    largest: usize,
    largest_dont_fragment: bool,
}

/// A datagram put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// The inner packet.
    pub packet: Vec<u8>,
    /// Octets of its headers that each fragment had.
    pub header_length: usize,
    /// Identification of the fragments.
    pub identification: u32,
    /// Octets of the largest fragment, as an IP packet.
    pub largest: usize,
    /// IPv4: whether the largest fragment had DF.
    pub dont_fragment: bool,
    /// Fragments that it was made of.
    pub fragments: u64,
}

impl Datagram {
    /// Fragments that it has.
    pub(super) fn len(&self) -> u64 {
        self.pieces.len() as u64
    }

    pub(super) fn add(&mut self, fragment: &Fragment<'_>) -> Added {
        let (start, end) = (fragment.offset, fragment.end());
        if let Some((before, (data, more))) = self.pieces.range(..=start).next_back() {
            if *before == start && data == fragment.data && *more == fragment.more {
                return Added::Duplicate;
            }
            if before + data.len() > start {
                return Added::Overlap;
            }
        }
        if self.pieces.range(start..).next().is_some_and(|(behind, _)| *behind < end) {
            return Added::Overlap;
        }
        let last_end = self.pieces.last_key_value().map_or(0, |(offset, (data, _))| offset + data.len());
        let contradicts = match (fragment.more, self.total) {
            (true, Some(total)) => end >= total,
            (false, Some(_)) => true,
            (false, None) => last_end > end,
            (true, None) => false,
        };
        if contradicts {
            return Added::Overlap;
        }
        self.keep(fragment);
        if self.total == Some(self.octets) { Added::Complete } else { Added::Kept }
    }

    fn keep(&mut self, fragment: &Fragment<'_>) {
        self.pieces.insert(fragment.offset, (fragment.data.to_vec(), fragment.more));
        self.octets += fragment.data.len();
        self.ecn |= 1 << fragment.ecn;
        if fragment.length > self.largest {
            self.largest = fragment.length;
            self.largest_dont_fragment = fragment.dont_fragment;
        }
        if !fragment.more {
            self.total = Some(fragment.end());
        }
        if fragment.offset == 0 {
            self.first = Some(First {
                header: fragment.header.to_vec(),
                announced_at: fragment.announced_at,
                next_header: fragment.next_header,
            });
        }
    }

    /// The whole packet. None if its fragments' ECN fields contradict each other (RFC 3168 section 5.3), or its headers are not to be read.
    pub(super) fn assemble(&self, identification: u32, source: IpAddr) -> Option<Whole> {
        let first = self.first.as_ref()?;
        let ecn = self.ecn_of_all()?;
        let mut packet = Vec::with_capacity(first.header.len() + self.octets);
        packet.extend_from_slice(&first.header);
        for (data, _) in self.pieces.values() {
            packet.extend_from_slice(data);
        }
        if source.is_ipv4() {
            let dont_fragment = self.largest_dont_fragment;
            finish_ipv4(&mut packet, first.header.len(), dont_fragment, ecn)?;
        } else {
            finish_ipv6(&mut packet, first, ecn)?;
        }
        Some(Whole {
            packet,
            header_length: first.header.len(),
            identification,
            largest: self.largest,
            dont_fragment: self.largest_dont_fragment,
            fragments: self.len(),
        })
    }

    /// What ECN the result gets: `Some(None)` is that of the first fragment.
    ///
    /// CE among fragments that can carry it is CE. Not-ECT together with anything else is a contradiction, as for Linux; RFC 3168 demands
    /// that only for CE. ECT(0) with ECT(1) has no rule: the first fragment's stays.
    fn ecn_of_all(&self) -> Option<Option<u8>> {
        let has = |code: u8| self.ecn & 1 << code != 0;
        if has(NOT_ECT) && self.ecn != 1 << NOT_ECT {
            return None;
        }
        Some(has(CE).then_some(CE))
    }
}

fn finish_ipv4(packet: &mut [u8], header_length: usize, dont_fragment: bool, ecn: Option<u8>) -> Option<()> {
    let total = u16::try_from(packet.len()).ok()?;
    let view = Ipv4Packet::new_quoted(&*packet).ok()?;
    let mut repr = Ipv4Repr::parse(&view).ok()?;
    repr.payload_length = total - u16::try_from(header_length).ok()?;
    repr.more_fragments = false;
    repr.fragment_offset = 0;
    repr.dont_fragment = dont_fragment;
    repr.type_of_service |= ecn.unwrap_or(0);
    repr.emit(packet).ok()
}

/// Payload Length as RFC 8200 section 4.5 has it: what is in front of the fragment header, and all that was fragmented.
fn finish_ipv6(packet: &mut [u8], first: &First, ecn: Option<u8>) -> Option<()> {
    let payload = u16::try_from(packet.len().checked_sub(ipv6::HEADER_LENGTH)?).ok()?;
    *packet.get_mut(first.announced_at)? = first.next_header;
    let mut view = Ipv6Packet::new_quoted(packet).ok()?;
    view.set_payload_length(payload);
    let class = view.traffic_class() | ecn.unwrap_or(0);
    view.set_traffic_class(class);
    Some(())
}
