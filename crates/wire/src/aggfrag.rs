//! AGGFRAG payload (RFC 9347 sections 2.2 and 6.1): several IP packets in one, without congestion control (sub-type 0).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! | Sub-Type (0)  |   Reserved    |          BlockOffset          |
//! +---------------+---------------+-------------------------------+
//! |                   data blocks, one by one                     |
//! +---------------------------------------------------------------+
//! ```
//!
//! The first nibble of a block says what it is, and its own header how long: 4 an IPv4 packet, 6 an IPv6 packet, 0 padding up to
//! the end. Blocks that are spread over several payloads are recognised and not put together.

use crate::error::{Error, Result, require, room};
use crate::field::{range, set, u8_at, u16_at};
use crate::ipv4::Ipv4Packet;
use crate::ipv6::Ipv6Packet;
use crate::layer::LayerKind;

const SUB_TYPE: usize = 0;
const BLOCK_OFFSET: usize = 2;

/// Length of the header in octets.
pub const HEADER_LENGTH: usize = 4;
/// Sub-Type of a payload without congestion control, the only one that is known here.
pub const SUB_TYPE_WITHOUT_CONGESTION_CONTROL: u8 = 0;

/// Checked view of an AGGFRAG payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggfrag<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Aggfrag<T> {
    /// A view of `buffer`, which must hold the header and end where its IP packet ends. Blocks are not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::UnexpectedType`] for a Sub-Type other than 0.
    pub fn new_checked(buffer: T) -> Result<Self> {
        let (layer, field, offset) = (LayerKind::Aggfrag, "Sub-Type", SUB_TYPE);
        require(layer, HEADER_LENGTH, buffer.as_ref().len())?;
        let found = u16::from(u8_at(buffer.as_ref(), SUB_TYPE));
        let expected = u16::from(SUB_TYPE_WITHOUT_CONGESTION_CONTROL);
        if found != expected {
            return Err(Error::UnexpectedType { layer, field, offset, expected, found });
        }
        Ok(Self { buffer })
    }

    /// Octets from the end of the header to the first block that begins in this payload. What lies in front goes on
    /// with a block of an earlier payload; at or behind the end, no block begins here.
    pub fn block_offset(&self) -> u16 {
        u16_at(self.buffer.as_ref(), BLOCK_OFFSET)
    }

    /// Everything behind the header.
    pub fn payload(&self) -> &[u8] {
        range(self.buffer.as_ref(), HEADER_LENGTH, usize::MAX)
    }

    /// The blocks in order.
    pub fn blocks(&self) -> Blocks<'_> {
        let payload = self.payload();
        let begins = usize::from(self.block_offset()).min(payload.len());
        let continued = range(payload, 0, begins);
        Blocks {
            continued: Some(continued).filter(|octets| !octets.is_empty()),
            rest: range(payload, begins, usize::MAX),
        }
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

/// One block of an AGGFRAG payload, or what is left of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// A whole IPv4 packet. Its checksum is not looked at.
    Ipv4(&'a [u8]),
    /// A whole IPv6 packet.
    Ipv6(&'a [u8]),
    /// Padding to the end, its first nibble 0.
    Pad(&'a [u8]),
    /// The rest of a block that began in an earlier payload.
    Continuation(&'a [u8]),
    /// The beginning of a block that runs past the end.
    Cut(&'a [u8]),
    /// What is no block: its first nibble has no meaning, or its header contradicts itself. Nothing behind it can be found.
    Malformed(&'a [u8]),
}

/// Iterator over blocks, see [`Aggfrag::blocks`]. Each octet behind the header is in exactly one block.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    continued: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(octets) = self.continued.take() {
            return Some(Block::Continuation(octets));
        }
        let rest = self.rest;
        let nibble = rest.first()? >> 4;
        let found = match nibble {
            0 => Ok((Block::Pad(rest), rest.len())),
            4 => Ipv4Packet::new_checked(rest)
                .map(|view| (Block::Ipv4(range(rest, 0, view.total_length())), view.total_length())),
            6 => Ipv6Packet::new_checked(rest)
                .map(|view| (Block::Ipv6(range(rest, 0, view.total_length())), view.total_length())),
            _ => Ok((Block::Malformed(rest), rest.len())),
        };
        let (block, length) = found.unwrap_or_else(|error| {
            let is_cut = matches!(error, Error::Truncated { .. } | Error::LengthTooLarge { .. });
            (if is_cut { Block::Cut(rest) } else { Block::Malformed(rest) }, rest.len())
        });
        self.rest = range(rest, length, usize::MAX);
        Some(block)
    }
}

/// An AGGFRAG header of sub-type 0. Its reserved octet is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AggfragRepr {
    /// Octets from the end of the header to the first block that begins here; 0 when blocks are whole.
    pub block_offset: u16,
}

impl AggfragRepr {
    /// The header of `payload`.
    pub fn parse<T: AsRef<[u8]>>(payload: &Aggfrag<T>) -> Self {
        Self { block_offset: payload.block_offset() }
    }

    /// Octets that [`AggfragRepr::emit`] writes.
    pub const fn header_length(&self) -> usize {
        HEADER_LENGTH
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let buffer = room(LayerKind::Aggfrag, buffer, HEADER_LENGTH)?;
        set(buffer, SUB_TYPE, &[SUB_TYPE_WITHOUT_CONGESTION_CONTROL]);
        set(buffer, BLOCK_OFFSET, &self.block_offset.to_be_bytes());
        Ok(())
    }
}
