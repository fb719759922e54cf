//! Inner packets. Twin of `bpf/lib/packet/inner.h`.

use std::net::{IpAddr, Ipv6Addr};

use segue_abi::Outcome;

use crate::octets::{IPV6, forwardable, half, ipv4, ipv4_header_is_right, ipv6, number, octet, valid_ipv4};

/// What must be known of an inner packet before it is let out of its steering header.
#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Octets, by its own header.
    pub length: usize,
    pub hop_limit: u8,
    pub ecn: u8,
    /// IPv6.
    pub next_header: u8,
}

impl Inner {
    pub fn is_ipv4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// The bits of the source by which the way is chosen.
    pub fn bucket(&self) -> u32 {
        match self.source {
            IpAddr::V4(address) => u32::from(address.octets()[3]),
            IpAddr::V6(address) => {
                let low = crate::octets::double(&address.octets(), 8);
                ((low >> 56) ^ (low >> 24)) as u32
            }
        }
    }

    pub fn destination6(&self) -> Option<Ipv6Addr> {
        match self.destination {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        }
    }
}

/// `inner_ipv6()`.
pub(crate) fn read_ipv6(frame: &[u8], at: usize, limit: usize) -> Result<Inner, Outcome> {
    if at + IPV6 > frame.len() || at + IPV6 > limit {
        return Err(Outcome::DropTruncated);
    }
    let length = IPV6 + usize::from(half(frame, at + 4));
    let (source, destination, next_header) = (ipv6(frame, at + 8), ipv6(frame, at + 24), octet(frame, at + 6));
    let maybe_jumbogram = half(frame, at + 4) == 0 && next_header == number::HOP_BY_HOP;
    if octet(frame, at) >> 4 != 6 {
        return Err(Outcome::DropBadVersion);
    }
    if at + length > limit || (at + length < limit && maybe_jumbogram) {
        return Err(Outcome::DropBadLength);
    }
    if !forwardable(source) || !forwardable(destination) {
        return Err(Outcome::DropBadInner);
    }
    let (source, destination) = (source.into(), destination.into());
    let (hop_limit, ecn) = (octet(frame, at + 7), (octet(frame, at + 1) >> 4) & 3);
    Ok(Inner { source, destination, length, hop_limit, ecn, next_header })
}

/// `inner_ipv4()`.
pub(crate) fn read_ipv4(frame: &[u8], at: usize, limit: usize) -> Result<Inner, Outcome> {
    if at + 20 > frame.len() || at + 20 > limit {
        return Err(Outcome::DropTruncated);
    }
    let (header, length) = (usize::from(octet(frame, at) & 15) * 4, usize::from(half(frame, at + 2)));
    if octet(frame, at) >> 4 != 4 {
        return Err(Outcome::DropBadVersion);
    }
    if header < 20 || length < header || at + length > limit {
        return Err(Outcome::DropBadLength);
    }
    if at + header > frame.len() {
        return Err(Outcome::DropTruncated);
    }
    if !ipv4_header_is_right(frame, at, header) {
        return Err(Outcome::DropBadChecksum);
    }
    let (source, destination) = (ipv4(frame, at + 12), ipv4(frame, at + 16));
    if !valid_ipv4(source) || !valid_ipv4(destination) {
        return Err(Outcome::DropBadInner);
    }
    let (hop_limit, ecn) = (octet(frame, at + 8), octet(frame, at + 1) & 3);
    Ok(Inner { source: source.into(), destination: destination.into(), length, hop_limit, ecn, next_header: 0 })
}
