//! What a well-formed SRH may still get wrong, and what the RFCs have a node say about it.

use super::Srh;
use super::error::SrhError;
use super::tlv::Tlv;
use core::net::Ipv6Addr;

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
