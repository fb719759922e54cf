//! TLVs of the SRH (RFC 8754 section 2.1).

use super::error::SrhError;
use crate::field::{range, u8_at, u16_at, u32_at};

/// SRH TLV types (RFC 8754 section 8.2).
pub mod tlv_type {
    /// One octet of padding, without a Length octet.
    pub const PAD1: u8 = 0;
    /// Two to seven octets of padding.
    pub const PAD_N: u8 = 4;
    /// HMAC.
    pub const HMAC: u8 = 5;
    /// Bit of the type that allows the value to change on the way.
    pub const MUTABLE: u8 = 0x80;
}

/// One TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tlv<'a> {
    /// A single octet of padding (section 2.1.1.1).
    Pad1,
    /// Padding (section 2.1.1.2) with this many octets behind its Length octet; RFC 8754 allows at most 5.
    PadN(u8),
    /// An HMAC TLV of valid length (section 2.1.2).
    Hmac(HmacTlv<'a>),
    /// Any other type, or an HMAC TLV whose length is not valid.
    Unknown {
        /// Type.
        tlv_type: u8,
        /// Value, without Type and Length octets.
        value: &'a [u8],
    },
}

/// A TLV and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedTlv<'a> {
    /// Offset of the Type octet from the first octet of the SRH.
    pub offset: usize,
    /// Octets of the whole TLV, Type and Length octets included.
    pub length: usize,
    /// The TLV.
    pub tlv: Tlv<'a>,
}

/// View of the value of an HMAC TLV.
///
/// ```text
///  0                   1                   2                   3
///  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
/// +---------------+---------------+-+-----------------------------+
/// |     Type      |    Length     |D|          Reserved           |
/// +---------------+---------------+-+-----------------------------+
/// |                          HMAC Key ID                          |
/// +---------------------------------------------------------------+
/// |                 HMAC, 8 to 32 octets in eights                |
/// +---------------------------------------------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HmacTlv<'a> {
    value: &'a [u8],
}

impl<'a> HmacTlv<'a> {
    /// The HMAC TLV with this value (without Type and Length octets), or `None` when it is not 14, 22, 30 or 38
    /// octets long.
    pub fn new(value: &'a [u8]) -> Option<Self> {
        matches!(value.len(), 14 | 22 | 30 | 38).then_some(Self { value })
    }

    /// The D bit and the 15 reserved bits behind it.
    pub fn d_and_reserved(&self) -> u16 {
        u16_at(self.value, 0)
    }

    /// D bit: the destination address need not be Segment List\[Segments Left\], as in a reduced SRH.
    pub fn d_bit(&self) -> bool {
        self.d_and_reserved() & 0x8000 != 0
    }

    /// HMAC Key ID.
    pub fn key_id(&self) -> u32 {
        u32_at(self.value, 2)
    }

    /// HMAC field: 8, 16, 24 or 32 octets.
    pub fn hmac(&self) -> &'a [u8] {
        range(self.value, 6, usize::MAX)
    }
}

/// Iterator over TLVs, see [`super::Srh::tlvs`].
#[derive(Clone, Debug)]
pub struct TlvIter<'a> {
    header: &'a [u8],
    offset: usize,
}

impl<'a> TlvIter<'a> {
    pub(super) fn new(header: &'a [u8], offset: usize) -> Self {
        Self { header, offset }
    }
}

impl<'a> Iterator for TlvIter<'a> {
    type Item = Result<PlacedTlv<'a>, SrhError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.offset;
        let available = self.header.len().checked_sub(offset).filter(|left| *left > 0)?;
        let tlv_type = u8_at(self.header, offset);
        let (length, tlv) = if tlv_type == tlv_type::PAD1 {
            (1, Tlv::Pad1)
        } else {
            // A TLV of which only the Type octet is inside needs at least the Length octet too.
            let length = if available < 2 { 2 } else { 2 + usize::from(u8_at(self.header, offset + 1)) };
            if length > available {
                self.offset = self.header.len();
                let (expected, found) = (available, length);
                return Some(Err(SrhError::TlvOverrun { srh_offset: 0, offset, tlv_type, expected, found }));
            }
            let value = range(self.header, offset + 2, offset + length);
            (length, classify(tlv_type, value))
        };
        self.offset += length;
        Some(Ok(PlacedTlv { offset, length, tlv }))
    }
}

fn classify(tlv_type: u8, value: &[u8]) -> Tlv<'_> {
    match tlv_type {
        // A Length octet counts at most 255.
        tlv_type::PAD_N => Tlv::PadN(value.len() as u8),
        tlv_type::HMAC => HmacTlv::new(value).map_or(Tlv::Unknown { tlv_type, value }, Tlv::Hmac),
        _ => Tlv::Unknown { tlv_type, value },
    }
}
