//! IPv6 extension headers, as the data plane walks them. Twin of `bpf/lib/packet/headers.h` and `bpf/lib/core/boundary.h`.

use segue_abi::Outcome;

use crate::octets::{ETHERNET, IPV6, OFFSET_MASK, number, octet};

const HEADERS_MAX: usize = 8;
const OPTIONS_MAX: usize = 32;

/// What a walk found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers {
    /// Offset of the first SRH with segments left, where the walk stops.
    pub srh: Option<usize>,
    /// Offset of the Next Header octet that names `protocol` or the SRH.
    pub previous: usize,
    /// Offset of what follows.
    pub upper: usize,
    /// What lies there.
    pub protocol: u8,
    /// It is a fragment that is not atomic.
    pub fragment: bool,
    /// There was an SRH.
    pub sr_seen: bool,
    /// What is wrong.
    pub error: Option<Outcome>,
    /// There was a header with options.
    pub options: bool,
}

/// Whether it is an extension header that is walked.
pub fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        number::HOP_BY_HOP | number::ROUTING | number::FRAGMENT | number::AUTHENTICATION | number::DESTINATION_OPTIONS
    )
}

fn extension_length(protocol: u8, frame: &[u8], at: usize) -> usize {
    let length = usize::from(octet(frame, at + 1));
    match protocol {
        number::FRAGMENT => 8,
        number::AUTHENTICATION => (length + 2) * 4,
        _ => (length + 1) * 8,
    }
}

fn fragment_in_part(frame: &[u8], at: usize) -> bool {
    octet(frame, at + 2) | (octet(frame, at + 3) & 0xf9) != 0
}

fn fragment_later(frame: &[u8], at: usize) -> bool {
    octet(frame, at + 2) | (octet(frame, at + 3) & 0xf8) != 0
}

/// `headers_walk()`: from the header at `offset`, which the octet at `previous` names, to `limit`.
pub fn walk(frame: &[u8], previous: usize, offset: usize, limit: usize) -> Headers {
    let (mut previous, mut offset) = (previous & OFFSET_MASK, offset & OFFSET_MASK);
    let mut found = Headers::default();
    let Some(next) = frame.get(previous) else {
        return Headers { error: Some(Outcome::DropTruncated), ..found };
    };
    let mut next = *next;
    for index in 0..=HEADERS_MAX {
        (found.previous, found.upper, found.protocol) = (previous, offset, next);
        if !is_extension(next) {
            return found;
        }
        let error = if index == HEADERS_MAX || (next == number::HOP_BY_HOP && index > 0) {
            Some(Outcome::DropTooManyHeaders)
        } else if offset + 8 > limit {
            Some(Outcome::DropBadLength)
        } else if offset + 8 > frame.len() {
            Some(Outcome::DropTruncated)
        } else {
            None
        };
        if error.is_some() {
            return Headers { error, ..found };
        }
        let length = extension_length(next, frame, offset);
        found.fragment |= next == number::FRAGMENT && fragment_in_part(frame, offset);
        if offset + length > limit || (next == number::AUTHENTICATION && length < 12) {
            return Headers { error: Some(Outcome::DropBadLength), ..found };
        }
        if next == number::ROUTING {
            let is_srh = octet(frame, offset + 2) == number::TYPE_SRH;
            found.sr_seen |= is_srh;
            if octet(frame, offset + 3) != 0 {
                if is_srh {
                    found.srh = Some(offset);
                } else {
                    found.error = Some(Outcome::DropRoutingType);
                }
                return found;
            }
        }
        found.options |= matches!(next, number::HOP_BY_HOP | number::DESTINATION_OPTIONS);
        previous = offset;
        next = octet(frame, offset);
        offset += length;
        if found.fragment {
            (found.previous, found.upper, found.protocol) = (previous, offset, next);
            return found;
        }
        if offset > OFFSET_MASK {
            return Headers { error: Some(Outcome::DropMultiBufferHeader), ..found };
        }
    }
    found
}

/// `option_refused()`: the outcome for which the options of the header at `offset` end the packet.
pub fn option_refused(frame: &[u8], offset: usize, length: usize) -> Option<Outcome> {
    let (mut at, last) = (offset + 2, offset + length);
    for _ in 0..OPTIONS_MAX {
        if at >= last {
            return None;
        }
        if at > OFFSET_MASK {
            return Some(Outcome::DropMultiBufferHeader);
        }
        let Some(kind) = frame.get(at).copied() else { return Some(Outcome::DropTruncated) };
        if kind >> 6 != 0 {
            return Some(Outcome::DropOption);
        }
        if kind == 0 {
            at += 1;
            continue;
        }
        let length = usize::from(octet(frame, at + 1));
        if at + 2 > frame.len() || at + 2 + length > last {
            return Some(Outcome::DropBadLength);
        }
        at += 2 + length;
    }
    (at < last).then_some(Outcome::DropTooManyHeaders)
}

/// `options_refused()`: the same for all headers of the packet behind the Ethernet header.
pub fn options_refused(frame: &[u8], limit: usize) -> Option<Outcome> {
    let mut offset = ETHERNET + IPV6;
    let mut next = octet(frame, ETHERNET + 6);
    for _ in 0..HEADERS_MAX {
        offset &= OFFSET_MASK;
        let ends = !is_extension(next)
            || (next == number::ROUTING && octet(frame, offset + 3) != 0)
            || (next == number::FRAGMENT && fragment_in_part(frame, offset));
        if offset + 8 > frame.len() || offset + 8 > limit || ends {
            return None;
        }
        let length = extension_length(next, frame, offset);
        if matches!(next, number::HOP_BY_HOP | number::DESTINATION_OPTIONS)
            && let Some(refused) = option_refused(frame, offset, length)
        {
            return Some(refused);
        }
        next = octet(frame, offset);
        offset += length;
    }
    None
}

/// What must not cross the domain's edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// An SRH, or headers that cannot be walked.
    Sr,
    /// An ICMPv6 error that quotes a packet to an address that is closed.
    Error,
}

/// `boundary_suspects()`.
pub fn is_suspect(protocol: u8) -> bool {
    is_extension(protocol) || protocol == number::ICMPV6
}

/// `boundary_walk()`. `closed`: whether nobody outside reaches an address.
pub fn boundary(frame: &[u8], place: (u8, usize), limit: usize, closed: impl Fn(std::net::Ipv6Addr) -> bool) -> Found {
    let (mut next, mut at) = place;
    for _ in 0..=HEADERS_MAX {
        if !is_suspect(next) {
            return Found::Nothing;
        }
        let start = at & OFFSET_MASK;
        if at > OFFSET_MASK || at + 8 > limit || start + 8 > frame.len() {
            return if next == number::ICMPV6 { Found::Nothing } else { Found::Sr };
        }
        if next == number::ICMPV6 {
            let quote = start + 8;
            let is_error = octet(frame, start) < 128 && quote + IPV6 <= frame.len();
            let is_closed = is_error && closed(crate::octets::ipv6(frame, quote + 24));
            return if is_closed { Found::Error } else { Found::Nothing };
        }
        if next == number::ROUTING && octet(frame, start + 2) == number::TYPE_SRH {
            return Found::Sr;
        }
        if next == number::FRAGMENT && fragment_later(frame, start) {
            return Found::Nothing;
        }
        let length = extension_length(next, frame, start);
        next = octet(frame, start);
        at += length;
    }
    Found::Sr
}
