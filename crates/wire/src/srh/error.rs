//! Faults in the meaning of an SRH.

use core::net::Ipv6Addr;

use thiserror::Error as ThisError;

use super::octet::{HDR_EXT_LEN, SEGMENTS_LEFT};
use crate::icmpv6_error::Icmpv6Error;

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
