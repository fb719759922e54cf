//! IP payload compression (RFC 3173 section 3): the header in front of a compressed payload.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |  Next Header  |     Flags     | Compression Parameter Index   |
//! +---------------+---------------+-------------------------------+
//! ```

use crate::error::{Result, require, room};
use crate::field::{range, set, u8_at, u16_at};
use crate::layer::{LayerKind, protocol};

const NEXT_HEADER: usize = 0;
const FLAGS: usize = 1;
const CPI: usize = 2;

/// Length of the header in octets.
pub const HEADER_LENGTH: usize = 4;

/// Compression parameter indices (RFC 3173 section 3.3, IANA IPCOMP Transform Identifiers registry).
pub mod cpi {
    /// DEFLATE: blocks of RFC 1951 without a zlib header (RFC 2394).
    pub const DEFLATE: u16 = 2;
    /// LZS (RFC 2395).
    pub const LZS: u16 = 3;
    /// LZJH (RFC 3051).
    pub const LZJH: u16 = 4;
    /// The first of those that the two ends agree on privately; all above are too.
    pub const FIRST_PRIVATE: u16 = 61_440;
}

/// Checked view of an IPComp header and what it encloses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpComp<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> IpComp<T> {
    /// A view of `buffer`, which must hold the header and end where its IP packet ends. Flags are not looked at: a
    /// receiver ignores them.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(LayerKind::IpComp, HEADER_LENGTH, buffer.as_ref().len())?;
        Ok(Self { buffer })
    }

    /// Protocol number of what was compressed.
    pub fn next_header(&self) -> u8 {
        u8_at(self.buffer.as_ref(), NEXT_HEADER)
    }

    /// Flags as they stand in the packet; reserved, 0 when sent.
    pub fn flags(&self) -> u8 {
        u8_at(self.buffer.as_ref(), FLAGS)
    }

    /// Compression parameter index, see [`cpi`].
    pub fn cpi(&self) -> u16 {
        u16_at(self.buffer.as_ref(), CPI)
    }

    /// The compressed octets.
    pub fn payload(&self) -> &[u8] {
        range(self.buffer.as_ref(), HEADER_LENGTH, usize::MAX)
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

/// An IPComp header. Its flags are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpCompRepr {
    /// Protocol number of what was compressed.
    pub next_header: u8,
    /// Compression parameter index, see [`cpi`].
    pub cpi: u16,
}

impl Default for IpCompRepr {
    /// DEFLATE of nothing.
    fn default() -> Self {
        Self { next_header: protocol::NO_NEXT_HEADER, cpi: cpi::DEFLATE }
    }
}

impl IpCompRepr {
    /// The header of `packet`.
    pub fn parse<T: AsRef<[u8]>>(packet: &IpComp<T>) -> Self {
        Self { next_header: packet.next_header(), cpi: packet.cpi() }
    }

    /// Octets that [`IpCompRepr::emit`] writes.
    pub const fn header_length(&self) -> usize {
        HEADER_LENGTH
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// [`crate::Error::BufferTooSmall`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let buffer = room(LayerKind::IpComp, buffer, HEADER_LENGTH)?;
        set(buffer, NEXT_HEADER, &[self.next_header]);
        set(buffer, CPI, &self.cpi.to_be_bytes());
        debug_assert_eq!(u8_at(buffer, FLAGS), 0, "room has zeroed it");
        Ok(())
    }
}
