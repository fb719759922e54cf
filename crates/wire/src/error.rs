//! The one error type of parsers and emitters.

use crate::icmpv6_error::Icmpv6Error;
use crate::layer::LayerKind;
use crate::srh::error::SrhError;
use thiserror::Error as ThisError;

/// Result of a parser or an emitter.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why bytes are not the packet they should be, or why a representation cannot be written as bytes.
///
/// `offset` counts octets from the first octet of the buffer that was given to the failing function; functions that
/// walk a whole packet shift it, so that it counts from the first octet of that packet. `expected` and `found` are in
/// octets where they are lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The buffer ends inside a header or inside what a header announces.
    #[error("{layer} at offset {offset} is cut short: {expected} bytes needed, {found} present")]
    #[allow(missing_docs)]
    Truncated { layer: LayerKind, offset: usize, expected: usize, found: usize },

    /// The version nibble is not the one that the ethertype or the Next Header promised.
    #[error("{layer} at offset {offset}: version {found} found where version {expected} was expected")]
    #[allow(missing_docs)]
    BadVersion { layer: LayerKind, offset: usize, expected: u8, found: u8 },

    /// A length field is smaller than the format allows.
    #[error("{layer}: {field} at offset {offset} gives {found} bytes, at least {expected} expected")]
    #[allow(missing_docs)]
    LengthTooSmall { layer: LayerKind, field: &'static str, offset: usize, expected: usize, found: usize },

    /// A length field promises more bytes than are present.
    #[error("{layer}: {field} at offset {offset} gives {found} bytes, at most {expected} are present")]
    #[allow(missing_docs)]
    LengthTooLarge { layer: LayerKind, field: &'static str, offset: usize, expected: usize, found: usize },

    /// A type field has another value than the one that makes these bytes this format.
    #[error("{layer}: {field} at offset {offset} is {found}, expected {expected}")]
    #[allow(missing_docs)]
    UnexpectedType { layer: LayerKind, field: &'static str, offset: usize, expected: u16, found: u16 },

    /// A checksum does not fit the bytes that it covers. `expected` is what the covered bytes sum up to.
    #[error("{layer}: checksum at offset {offset} is {found:#06x}, the packet's bytes give {expected:#06x}")]
    #[allow(missing_docs)]
    BadChecksum { layer: LayerKind, offset: usize, expected: u16, found: u16 },

    /// A routing header of a type other than 4 that still has segments left (RFC 8200 section 4.4). `offset` is that
    /// of the Routing Type field.
    #[error("routing header: type {found} at offset {offset} with {segments_left} segments left, only type 4 is known")]
    #[allow(missing_docs)]
    UnknownRoutingType { offset: usize, found: u8, segments_left: u8 },

    /// A hop-by-hop options header that is not directly behind the IPv6 header (RFC 8200 section 4.1). `offset` is
    /// that of the Next Header octet which announced it.
    #[error("next header 0 (hop-by-hop options) at offset {offset} is allowed only in the IPv6 header itself")]
    #[allow(missing_docs)]
    HopByHopMisplaced { offset: usize },

    /// A first fragment that does not hold the whole header chain (RFC 7112 section 5).
    #[error("first fragment ends at offset {offset}, inside the {layer} header: the header chain is incomplete")]
    #[allow(missing_docs)]
    IncompleteHeaderChain { layer: LayerKind, offset: usize },

    /// More headers of one sort than the walk follows.
    #[error("{layer} at offset {offset}: more than {expected} such headers in a row")]
    #[allow(missing_docs)]
    TooManyHeaders { layer: LayerKind, offset: usize, expected: usize },

    /// A reserved label (RFC 3032 section 2.1) where it must not be.
    #[error("MPLS label {found} at offset {offset} {rule}")]
    #[allow(missing_docs)]
    MisplacedLabel { offset: usize, found: u32, rule: &'static str },

    /// The buffer to emit into is shorter than what is to be written.
    #[error("no room to write {layer}: {expected} bytes needed, the buffer has {found}")]
    #[allow(missing_docs)]
    BufferTooSmall { layer: LayerKind, expected: usize, found: usize },

    /// A value of a representation does not fit into its field. `expected` is the largest that does.
    #[error("{layer}: {field} is {found}, the largest value possible is {expected}")]
    #[allow(missing_docs)]
    ValueTooLarge { layer: LayerKind, field: &'static str, expected: u64, found: u64 },

    /// A value of a representation is not a multiple of the unit of its field.
    #[error("{layer}: {field} is {found}, it must be a multiple of {expected}")]
    #[allow(missing_docs)]
    NotAMultiple { layer: LayerKind, field: &'static str, expected: u64, found: u64 },

    /// A segment routing header that is all there but makes no sense.
    #[error(transparent)]
    Srh(#[from] SrhError),
}

impl Error {
    /// The same error, seen from a buffer that starts `by` octets earlier.
    pub fn shifted(self, by: usize) -> Self {
        let mut error = self;
        match &mut error {
            Self::Truncated { offset, .. }
            | Self::BadVersion { offset, .. }
            | Self::LengthTooSmall { offset, .. }
            | Self::LengthTooLarge { offset, .. }
            | Self::UnexpectedType { offset, .. }
            | Self::BadChecksum { offset, .. }
            | Self::UnknownRoutingType { offset, .. }
            | Self::HopByHopMisplaced { offset }
            | Self::IncompleteHeaderChain { offset, .. }
            | Self::TooManyHeaders { offset, .. }
            | Self::MisplacedLabel { offset, .. } => *offset = offset.saturating_add(by),
            Self::BufferTooSmall { .. } | Self::ValueTooLarge { .. } | Self::NotAMultiple { .. } => {}
            Self::Srh(inner) => *inner = inner.shifted(by),
        }
        error
    }

    /// Where the octets are that are not as they should be; `None` for errors of representations.
    pub fn offset(&self) -> Option<usize> {
        match *self {
            Self::Truncated { offset, .. }
            | Self::BadVersion { offset, .. }
            | Self::LengthTooSmall { offset, .. }
            | Self::LengthTooLarge { offset, .. }
            | Self::UnexpectedType { offset, .. }
            | Self::BadChecksum { offset, .. }
            | Self::UnknownRoutingType { offset, .. }
            | Self::HopByHopMisplaced { offset }
            | Self::IncompleteHeaderChain { offset, .. }
            | Self::TooManyHeaders { offset, .. }
            | Self::MisplacedLabel { offset, .. } => Some(offset),
            Self::BufferTooSmall { .. } | Self::ValueTooLarge { .. } | Self::NotAMultiple { .. } | Self::Srh(_) => None,
        }
    }

    /// The ICMPv6 error that the RFCs ask for, or `None` where they ask for silence.
    ///
    /// The pointer is right when the error's offset counts from the first octet of the IPv6 header; use
    /// [`Error::icmpv6_error_from`] for an offset that counts from the frame.
    pub fn icmpv6_error(&self) -> Option<Icmpv6Error> {
        match *self {
            Self::UnknownRoutingType { offset, .. } => Some(Icmpv6Error::parameter_problem(0, offset)),
            Self::HopByHopMisplaced { offset } => Some(Icmpv6Error::parameter_problem(1, offset)),
            Self::IncompleteHeaderChain { .. } => Some(Icmpv6Error::parameter_problem(3, 0)),
            Self::Srh(inner) => inner.icmpv6_error(),
            _ => None,
        }
    }

    /// [`Error::icmpv6_error`] of an error whose offset counts from a frame with its IPv6 header at `ipv6_offset`.
    pub fn icmpv6_error_from(&self, ipv6_offset: usize) -> Option<Icmpv6Error> {
        let mut error = self.icmpv6_error()?;
        error.pointer = error.pointer.saturating_sub(u32::try_from(ipv6_offset).unwrap_or(u32::MAX));
        Some(error)
    }
}

/// Fails unless `found` octets are enough for the `expected` octets of `layer`.
pub(crate) fn require(layer: LayerKind, expected: usize, found: usize) -> Result<()> {
    if found < expected { Err(Error::Truncated { layer, offset: 0, expected, found }) } else { Ok(()) }
}

/// The first `expected` octets of `buffer`, zeroed, to emit `layer` into.
///
/// Zeroing first means that no reserved field or padding keeps what the buffer held before.
pub(crate) fn room(layer: LayerKind, buffer: &mut [u8], expected: usize) -> Result<&mut [u8]> {
    let found = buffer.len();
    let place = buffer.get_mut(..expected).ok_or(Error::BufferTooSmall { layer, expected, found })?;
    place.fill(0);
    Ok(place)
}

/// Fails when `found` is larger than `expected`, the largest value of `field`.
pub(crate) fn fits(layer: LayerKind, field: &'static str, expected: u64, found: u64) -> Result<()> {
    if found > expected { Err(Error::ValueTooLarge { layer, field, expected, found }) } else { Ok(()) }
}
