//! The internet checksum (RFC 1071), its incremental update (RFC 1624) and the pseudo headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Running ones' complement sum over bytes in the order they are added.
///
/// Pieces of odd length may be followed by others: the sum is that of the concatenation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    // 48 bits of room above the 16-bit words: more words than any packet has.
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// An empty sum.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds `bytes`.
    #[must_use]
    pub fn add_bytes(mut self, bytes: &[u8]) -> Self {
        let mut rest = bytes;
        if self.odd
            && let Some((first, tail)) = rest.split_first()
        {
            self.sum += u64::from(*first);
            self.odd = false;
            rest = tail;
        }
        let (words, last) = rest.as_chunks::<2>();
        for word in words {
            self.sum += u64::from(u16::from_be_bytes(*word));
        }
        if let [last] = last {
            self.sum += u64::from(*last) << 8;
            self.odd = true;
        }
        self
    }

    /// Adds a 16-bit word, given in host byte order.
    #[must_use]
    pub fn add_u16(self, word: u16) -> Self {
        self.add_bytes(&word.to_be_bytes())
    }

    /// Adds a 32-bit word, given in host byte order.
    #[must_use]
    pub fn add_u32(self, word: u32) -> Self {
        self.add_bytes(&word.to_be_bytes())
    }

    /// The checksum: the complement of the sum folded to 16 bits. 0 over a range that holds its right checksum.
    pub fn finish(self) -> u16 {
        !fold(self.sum)
    }
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // At most 0xffff after the loop.
    sum as u16
}

/// The checksum of `bytes` (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    Checksum::new().add_bytes(bytes).finish()
}

/// `old_checksum` after one covered 16-bit word changed from `old` to `new` (RFC 1624 equation 3).
///
/// Right unless the change leaves all covered octets zero, which no packet's are: then the full computation gives 0xffff
/// and the update 0, the other form of zero.
pub fn update_u16(old_checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!old_checksum) + u64::from(!old) + u64::from(new))
}

/// `old_checksum` after covered bytes changed from `old` to `new` (RFC 1624 equation 3).
///
/// As with [`update_u16`], some covered octet must not be zero after the change.
///
/// The bytes must begin at an even offset of the covered range. The slices may differ in length: bytes that one of them
/// lacks count as zero, which is how removed or added bytes at an even offset behave in the sum.
pub fn update_bytes(old_checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let removed = !fold(Checksum::new().add_bytes(old).sum);
    let added = fold(Checksum::new().add_bytes(new).sum);
    !fold(u64::from(!old_checksum) + u64::from(removed) + u64::from(added))
}

/// The words that an upper layer's checksum covers besides the upper-layer packet (RFC 793 section 3.1, RFC 8200
/// section 8.1).
///
/// With a routing header that has segments left, `destination` is the final destination: Segment List\[0\] of an SRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PseudoHeader {
    /// IPv4 pseudo header.
    #[allow(missing_docs)]
    V4 { source: Ipv4Addr, destination: Ipv4Addr, protocol: u8 },
    /// IPv6 pseudo header; `next_header` is the protocol number of the upper layer.
    #[allow(missing_docs)]
    V6 { source: Ipv6Addr, destination: Ipv6Addr, next_header: u8 },
}

impl PseudoHeader {
    /// The pseudo header of `protocol` between two addresses of one family; `None` when the families differ.
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination, protocol }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::V6 { source, destination, next_header: protocol })
            }
            _ => None,
        }
    }

    /// The sum of the pseudo header for an upper-layer packet of `length` octets, to which its bytes are then added.
    pub fn sum(&self, length: usize) -> Checksum {
        // An upper-layer packet is at most 65,535 octets long here: jumbograms are not supported.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        match self {
            Self::V4 { source, destination, protocol } => Checksum::new()
                .add_bytes(&source.octets())
                .add_bytes(&destination.octets())
                .add_u16(u16::from(*protocol))
                .add_u32(length),
            Self::V6 { source, destination, next_header } => Checksum::new()
                .add_bytes(&source.octets())
                .add_bytes(&destination.octets())
                .add_u32(length)
                .add_u32(u32::from(*next_header)),
        }
    }

    /// The checksum over the pseudo header and `packet`. 0 when `packet` holds its right checksum.
    pub fn checksum(&self, packet: &[u8]) -> u16 {
        self.sum(packet.len()).add_bytes(packet).finish()
    }
}
