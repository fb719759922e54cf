//! What a well-formed SRH may still get wrong, and what the RFCs have a node say about it.

use super::tlv::Tlv;
use super::{HDR_EXT_LEN, SEGMENTS_LEFT, Srh};
use crate::error::Icmpv6Error;
use core::net::Ipv6Addr;
use thiserror::Error as ThisError;

/// Where an SRH stands in its IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrhContext {
    /// Octets from the first octet of the IPv6 header to the first octet of the SRH: 40 when it follows directly.
    pub srh_offset: usize,
    /// Octets from the first octet of the IPv6 header to the end of its payload: 40 + Payload Length.
    pub payload_end: usize,
}

impl SrhContext {
    /// The context of an SRH directly behind an IPv6 header with this Payload Length.
    pub fn behind_ipv6(payload_length: u16) -> Self {
        let srh_offset = crate::ipv6::HEADER_LENGTH;
        Self { srh_offset, payload_end: srh_offset + usize::from(payload_length) }
    }
}

/// Bounds on TLVs that RFC 8754 section 2.1 lets a node set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvLimits {
    /// Pad1 TLVs in a row.
    pub consecutive_pad1: usize,
    /// Octets behind the Length octet of a PadN.
    pub pad_n_length: u8,
    /// TLVs that are not padding.
    pub count: usize,
    /// Octets of all TLVs together.
    pub total_length: usize,
}

impl Default for TlvLimits {
    /// The bounds that RFC 8754 names for padding; 8 TLVs; 256 octets.
    fn default() -> Self {
        Self { consecutive_pad1: 1, pad_n_length: 5, count: 8, total_length: 256 }
    }
}

/// A fault in the meaning of an SRH.
///
/// `srh_offset` counts from the first octet of the IPv6 header to the SRH, `offset` from the first octet of the SRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum SrhError {
    /// The SRH ends behind the IPv6 payload.
    #[error("SRH at offset {srh_offset} is {found} bytes long, the IPv6 Payload Length leaves {expected}")]
    ExceedsPayload { srh_offset: usize, expected: usize, found: usize },

    /// Last Entry is above `max_LE` = Hdr Ext Len / 2 - 1 (RFC 8754 section 4.3.1.1).
    #[error("SRH at offset {srh_offset}: Last Entry is {found}, Hdr Ext Len has room for at most {expected}")]
    LastEntryTooLarge { srh_offset: usize, expected: i16, found: u8 },

    /// Segments Left is above Last Entry + 1 (RFC 8754 section 4.3.1.1).
    #[error("SRH at offset {srh_offset}: Segments Left is {found}, at most Last Entry + 1 = {expected} expected")]
    SegmentsLeftTooLarge { srh_offset: usize, expected: u16, found: u8 },

    /// Segments are left where the SID must be the last one (RFC 8986 sections 4.4 to 4.12).
    #[error("SRH at offset {srh_offset}: Segments Left is {found}, this SID must be the last segment")]
    SegmentsLeftNotZero { srh_offset: usize, found: u8 },

    /// The destination address is not Segment List\[Segments Left\] (strict mode; no RFC asks for it without HMAC).
    #[error("SRH at offset {srh_offset}: the active segment is {expected}, the destination address is {found}")]
    NotActiveSegment { srh_offset: usize, expected: Ipv6Addr, found: Ipv6Addr },

    /// A TLV ends behind the SRH (RFC 8754 section 2.1).
    #[error(
        "SRH at offset {srh_offset}: TLV of type {tlv_type} at offset {offset} of it needs {found} bytes, \
         {expected} are left"
    )]
    TlvOverrun { srh_offset: usize, offset: usize, tlv_type: u8, expected: usize, found: usize },

    /// More Pad1 in a row than [`TlvLimits::consecutive_pad1`].
    #[error("SRH at offset {srh_offset}: more than {expected} Pad1 in a row at offset {offset} of it")]
    TooManyPad1 { srh_offset: usize, offset: usize, expected: usize },

    /// A PadN longer than [`TlvLimits::pad_n_length`].
    #[error(
        "SRH at offset {srh_offset}: PadN at offset {offset} of it has Length {found}, at most {expected} expected"
    )]
    PadNTooLong { srh_offset: usize, offset: usize, expected: u8, found: u8 },

    /// More TLVs than [`TlvLimits::count`].
    #[error("SRH at offset {srh_offset}: more than {expected} TLVs at offset {offset} of it")]
    TooManyTlvs { srh_offset: usize, offset: usize, expected: usize },

    /// More octets of TLVs than [`TlvLimits::total_length`].
    #[error("SRH at offset {srh_offset}: {found} bytes of TLVs, at most {expected} accepted")]
    TlvsTooLong { srh_offset: usize, expected: usize, found: usize },

    /// An HMAC is required and there is none. `offset` is where the first TLV would be.
    #[error("SRH at offset {srh_offset}: no HMAC TLV, one is required")]
    HmacMissing { srh_offset: usize, offset: usize },

    /// A second HMAC TLV.
    #[error("SRH at offset {srh_offset}: a second HMAC TLV at offset {offset} of it")]
    HmacRepeated { srh_offset: usize, offset: usize },

    /// An HMAC TLV of a length that the check does not allow.
    #[error("SRH at offset {srh_offset}: HMAC TLV at offset {offset} of it has Length {found}, expected {expected}")]
    HmacBadLength { srh_offset: usize, offset: usize, expected: usize, found: usize },

    /// The HMAC TLV is not the last TLV, where Linux looks for it.
    #[error("SRH at offset {srh_offset}: HMAC TLV at offset {offset} of it is not the last TLV")]
    HmacNotLast { srh_offset: usize, offset: usize },

    /// The flag by which Linux announces an HMAC TLV is clear.
    #[error("SRH at offset {srh_offset}: Flags {found:#04x} do not announce the HMAC TLV with {expected:#04x}")]
    HmacFlagClear { srh_offset: usize, offset: usize, expected: u8, found: u8 },

    /// The address check of RFC 8754 section 2.1.2.1 failed: neither is the destination address the active segment,
    /// nor is there a D bit and Segments Left above Last Entry.
    #[error("SRH at offset {srh_offset}: destination address {found} is not covered by the HMAC TLV")]
    HmacAddress { srh_offset: usize, offset: usize, found: Ipv6Addr },

    /// No key with this HMAC Key ID.
    #[error("SRH at offset {srh_offset}: HMAC Key ID {found} is not known")]
    HmacKeyUnknown { srh_offset: usize, offset: usize, found: u32 },

    /// The HMAC is not that of the packet under the key.
    #[error("SRH at offset {srh_offset}: HMAC with Key ID {key_id} does not match")]
    HmacMismatch { srh_offset: usize, offset: usize, key_id: u32 },
}

impl SrhError {
    /// The same fault with the SRH `by` octets further in.
    pub fn shifted(self, by: usize) -> Self {
        let mut error = self;
        let srh_offset = error.srh_offset_mut();
        *srh_offset = srh_offset.saturating_add(by);
        error
    }

    /// Octets from the start of the IPv6 packet to the SRH.
    pub fn srh_offset(&self) -> usize {
        let mut copy = *self;
        *copy.srh_offset_mut()
    }

    fn srh_offset_mut(&mut self) -> &mut usize {
        match self {
            Self::ExceedsPayload { srh_offset, .. }
            | Self::LastEntryTooLarge { srh_offset, .. }
            | Self::SegmentsLeftTooLarge { srh_offset, .. }
            | Self::SegmentsLeftNotZero { srh_offset, .. }
            | Self::NotActiveSegment { srh_offset, .. }
            | Self::TlvOverrun { srh_offset, .. }
            | Self::TooManyPad1 { srh_offset, .. }
            | Self::PadNTooLong { srh_offset, .. }
            | Self::TooManyTlvs { srh_offset, .. }
            | Self::TlvsTooLong { srh_offset, .. }
            | Self::HmacMissing { srh_offset, .. }
            | Self::HmacRepeated { srh_offset, .. }
            | Self::HmacBadLength { srh_offset, .. }
            | Self::HmacNotLast { srh_offset, .. }
            | Self::HmacFlagClear { srh_offset, .. }
            | Self::HmacAddress { srh_offset, .. }
            | Self::HmacKeyUnknown { srh_offset, .. }
            | Self::HmacMismatch { srh_offset, .. } => srh_offset,
        }
    }

    /// The ICMPv6 error that the RFCs ask for, or `None` where they ask for none: an SRH longer than its packet and
    /// TLVs above a local bound.
    ///
    /// The pointer counts from the first octet of the IPv6 header. A missing HMAC TLV is pointed at where the first
    /// TLV would be, as RFC 8754 names no field for it.
    pub fn icmpv6_error(&self) -> Option<Icmpv6Error> {
        let offset = match *self {
            Self::LastEntryTooLarge { .. } | Self::SegmentsLeftTooLarge { .. } | Self::SegmentsLeftNotZero { .. } => {
                SEGMENTS_LEFT
            }
            Self::TlvOverrun { .. } => HDR_EXT_LEN,
            Self::HmacMissing { offset, .. }
            | Self::HmacRepeated { offset, .. }
            | Self::HmacBadLength { offset, .. }
            | Self::HmacNotLast { offset, .. }
            | Self::HmacFlagClear { offset, .. }
            | Self::HmacAddress { offset, .. }
            | Self::HmacKeyUnknown { offset, .. }
            | Self::HmacMismatch { offset, .. } => offset,
            Self::ExceedsPayload { .. }
            | Self::NotActiveSegment { .. }
            | Self::TooManyPad1 { .. }
            | Self::PadNTooLong { .. }
            | Self::TooManyTlvs { .. }
            | Self::TlvsTooLong { .. } => return None,
        };
        Some(Icmpv6Error::parameter_problem(0, self.srh_offset().saturating_add(offset)))
    }
}

impl<T: AsRef<[u8]>> Srh<T> {
    /// Every check of an endpoint with segments left: [`Srh::check_length`], [`Srh::check_bounds`] and
    /// [`Srh::check_tlvs_inside`], in this order.
    ///
    /// RFC 8754 section 4.3.1.1 skips the latter two when Segments Left is 0, and looks at TLVs only where the node
    /// is configured to.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check_meaning(&self, context: SrhContext) -> Result<(), SrhError> {
        self.check_length(context)?;
        self.check_bounds(context)?;
        self.check_tlvs_inside(context)
    }

    /// Whether the SRH lies inside the IPv6 payload.
    ///
    /// # Errors
    /// [`SrhError::ExceedsPayload`].
    pub fn check_length(&self, context: SrhContext) -> Result<(), SrhError> {
        let SrhContext { srh_offset, payload_end } = context;
        let (expected, found) = (payload_end.saturating_sub(srh_offset), self.header_length());
        if found > expected { Err(SrhError::ExceedsPayload { srh_offset, expected, found }) } else { Ok(()) }
    }

    /// Last Entry against Hdr Ext Len, and Segments Left against Last Entry (RFC 8754 section 4.3.1.1).
    ///
    /// # Errors
    /// [`SrhError::LastEntryTooLarge`], [`SrhError::SegmentsLeftTooLarge`].
    pub fn check_bounds(&self, context: SrhContext) -> Result<(), SrhError> {
        let srh_offset = context.srh_offset;
        let (expected, found) = (self.max_last_entry(), self.last_entry());
        if i16::from(found) > expected {
            return Err(SrhError::LastEntryTooLarge { srh_offset, expected, found });
        }
        let (expected, found) = (u16::from(self.last_entry()) + 1, self.segments_left());
        if u16::from(found) > expected {
            return Err(SrhError::SegmentsLeftTooLarge { srh_offset, expected, found });
        }
        Ok(())
    }

    /// Whether every TLV lies inside the SRH (RFC 8754 section 2.1).
    ///
    /// # Errors
    /// [`SrhError::TlvOverrun`].
    pub fn check_tlvs_inside(&self, context: SrhContext) -> Result<(), SrhError> {
        self.tlvs().find_map(Result::err).map_or(Ok(()), |error| Err(error.shifted(context.srh_offset)))
    }

    /// Whether the TLVs keep `limits`. A node may stop processing TLVs where they do not; it need not discard.
    ///
    /// # Errors
    /// [`SrhError::TlvsTooLong`], [`SrhError::TooManyPad1`], [`SrhError::PadNTooLong`], [`SrhError::TooManyTlvs`],
    /// [`SrhError::TlvOverrun`].
    pub fn check_tlv_limits(&self, context: SrhContext, limits: TlvLimits) -> Result<(), SrhError> {
        let srh_offset = context.srh_offset;
        let (expected, found) = (limits.total_length, self.tlv_bytes().len());
        if found > expected {
            return Err(SrhError::TlvsTooLong { srh_offset, expected, found });
        }
        let (mut pad1_in_a_row, mut count) = (0, 0);
        for placed in self.tlvs() {
            let placed = placed.map_err(|error| error.shifted(srh_offset))?;
            let offset = placed.offset;
            pad1_in_a_row = if placed.tlv == Tlv::Pad1 { pad1_in_a_row + 1 } else { 0 };
            match placed.tlv {
                Tlv::Pad1 if pad1_in_a_row > limits.consecutive_pad1 => {
                    return Err(SrhError::TooManyPad1 { srh_offset, offset, expected: limits.consecutive_pad1 });
                }
                Tlv::PadN(found) if found > limits.pad_n_length => {
                    return Err(SrhError::PadNTooLong { srh_offset, offset, expected: limits.pad_n_length, found });
                }
                Tlv::Pad1 | Tlv::PadN(_) => {}
                Tlv::Hmac(_) | Tlv::Unknown { .. } => count += 1,
            }
            if count > limits.count {
                return Err(SrhError::TooManyTlvs { srh_offset, offset, expected: limits.count });
            }
        }
        Ok(())
    }

    /// For a SID that must be the last segment: Segments Left is 0 (RFC 8986 sections 4.4 to 4.12).
    ///
    /// # Errors
    /// [`SrhError::SegmentsLeftNotZero`].
    pub fn check_last_segment(&self, context: SrhContext) -> Result<(), SrhError> {
        match self.segments_left() {
            0 => Ok(()),
            found => Err(SrhError::SegmentsLeftNotZero { srh_offset: context.srh_offset, found }),
        }
    }

    /// Whether the destination address is the active segment, where the list has it. An optional strictness.
    ///
    /// # Errors
    /// [`SrhError::NotActiveSegment`].
    pub fn check_active_segment(&self, context: SrhContext, destination: Ipv6Addr) -> Result<(), SrhError> {
        match self.active_segment() {
            Some(expected) if expected != destination => {
                Err(SrhError::NotActiveSegment { srh_offset: context.srh_offset, expected, found: destination })
            }
            _ => Ok(()),
        }
    }
}
