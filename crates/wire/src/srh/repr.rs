//! Owned representation of an SRH.

use super::hmac::{HMAC_LENGTH, HmacVariant, LINUX_HMAC_FLAG};
use super::tlv::{Tlv, tlv_type};
use super::{
    FIXED_LENGTH, FLAGS, HDR_EXT_LEN, LAST_ENTRY, NEXT_HEADER, ROUTING_TYPE, ROUTING_TYPE_SRH, SEGMENT_LENGTH,
    SEGMENT_LIST, SEGMENTS_LEFT, Srh, SrhContext, TAG,
};
use crate::error::{Error, Result, fits, room};
use crate::field::set;
use crate::layer::{LayerKind, protocol};
use ::hmac::Mac;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

/// A TLV that owns its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TlvRepr {
    /// A single octet of padding.
    Pad1,
    /// Padding with this many zero octets behind its Length octet.
    PadN(u8),
    /// HMAC.
    Hmac {
        /// D bit and 15 reserved bits.
        d_and_reserved: u16,
        /// HMAC Key ID.
        key_id: u32,
        /// HMAC field: 8, 16, 24 or 32 octets.
        hmac: Vec<u8>,
    },
    /// Any other type.
    Unknown {
        /// Type.
        tlv_type: u8,
        /// Value, without Type and Length octets.
        value: Vec<u8>,
    },
}

impl From<Tlv<'_>> for TlvRepr {
    fn from(tlv: Tlv<'_>) -> Self {
        match tlv {
            Tlv::Pad1 => Self::Pad1,
            Tlv::PadN(length) => Self::PadN(length),
            Tlv::Hmac(tlv) => {
                Self::Hmac { d_and_reserved: tlv.d_and_reserved(), key_id: tlv.key_id(), hmac: tlv.hmac().to_vec() }
            }
            Tlv::Unknown { tlv_type, value } => Self::Unknown { tlv_type, value: value.to_vec() },
        }
    }
}

impl TlvRepr {
    fn value_length(&self) -> usize {
        match self {
            Self::Pad1 => 0,
            Self::PadN(length) => usize::from(*length),
            Self::Hmac { hmac, .. } => 6 + hmac.len(),
            Self::Unknown { value, .. } => value.len(),
        }
    }

    /// Octets of the TLV, Type and Length octets included.
    pub fn length(&self) -> usize {
        if *self == Self::Pad1 { 1 } else { 2 + self.value_length() }
    }

    /// Writes the TLV to a zeroed buffer.
    fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let length = self.value_length();
        fits(LayerKind::Srh, "TLV Length", 255, length as u64)?;
        let head = |tlv_type: u8| [tlv_type, length as u8];
        match self {
            Self::Pad1 => {}
            Self::PadN(_) => set(buffer, 0, &head(tlv_type::PAD_N)),
            Self::Hmac { d_and_reserved, key_id, hmac } => {
                let (field, found) = ("length of HMAC", hmac.len() as u64);
                fits(LayerKind::Srh, field, HMAC_LENGTH as u64, found)?;
                if hmac.is_empty() || !hmac.len().is_multiple_of(8) {
                    return Err(Error::NotAMultiple { layer: LayerKind::Srh, field, expected: 8, found });
                }
                set(buffer, 0, &head(tlv_type::HMAC));
                set(buffer, 2, &d_and_reserved.to_be_bytes());
                set(buffer, 4, &key_id.to_be_bytes());
                set(buffer, 8, hmac);
            }
            Self::Unknown { tlv_type, value } => {
                set(buffer, 0, &head(*tlv_type));
                set(buffer, 2, value);
            }
        }
        Ok(())
    }

    /// The padding of `octets` octets that RFC 8754 section 2.1.1 prescribes: none, Pad1, or PadN (up to 7 octets).
    pub fn padding(octets: usize) -> Option<Self> {
        match octets {
            0 => None,
            1 => Some(Self::Pad1),
            more => Some(Self::PadN(u8::try_from(more - 2).unwrap_or(u8::MAX))),
        }
    }
}

/// An SRH. Hdr Ext Len and Last Entry follow from `segments` and `tlvs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SrhRepr {
    /// Protocol number of what follows. The builder sets it when it knows.
    pub next_header: u8,
    /// Segments Left. At most the number of segments, which it equals in a reduced SRH that has just left its source.
    pub segments_left: u8,
    /// Flags.
    pub flags: u8,
    /// Tag.
    pub tag: u16,
    /// The segment list as it stands in the header: the last segment of the path first. 1 to 127 of them.
    pub segments: Vec<Ipv6Addr>,
    /// TLVs in order. If their length is not a multiple of 8 octets, [`SrhRepr::emit`] adds padding behind them.
    pub tlvs: Vec<TlvRepr>,
}

impl SrhRepr {
    /// The SRH that a source writes for a path (RFC 8754 section 4.1): `path` is in traversal order, every segment
    /// stands in the list, and the first is active.
    pub fn new(path: &[Ipv6Addr]) -> Self {
        let segments: Vec<_> = path.iter().rev().copied().collect();
        Self {
            next_header: protocol::NO_NEXT_HEADER,
            // More segments than the header holds are refused when it is emitted.
            segments_left: u8::try_from(segments.len().saturating_sub(1)).unwrap_or(u8::MAX),
            flags: 0,
            tag: 0,
            segments,
            tlvs: Vec::new(),
        }
    }

    /// The reduced SRH for a path (RFC 8754 section 4.1.1): its first segment stands in the destination address only.
    /// `path` must have two segments or more for the result to be of use; with one no SRH is needed.
    pub fn reduced(path: &[Ipv6Addr]) -> Self {
        let listed = path.get(1..).unwrap_or(&[]);
        let segments_left = u8::try_from(listed.len()).unwrap_or(u8::MAX);
        Self { segments_left, ..Self::new(listed) }
    }

    /// The same with this Segments Left.
    #[must_use]
    pub fn with_segments_left(mut self, segments_left: u8) -> Self {
        self.segments_left = segments_left;
        self
    }

    /// The same with this Tag.
    #[must_use]
    pub fn with_tag(mut self, tag: u16) -> Self {
        self.tag = tag;
        self
    }

    /// The same with these Flags.
    #[must_use]
    pub fn with_flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// The same with one more TLV.
    #[must_use]
    pub fn with_tlv(mut self, tlv: TlvRepr) -> Self {
        self.tlvs.push(tlv);
        self
    }

    /// The same with one more TLV: the SHA-256 HMAC of this SRH in a packet from `source`.
    ///
    /// Call it last: it covers Flags and segment list. Sets [`LINUX_HMAC_FLAG`] for [`HmacVariant::Linux`], and the D
    /// bit for [`HmacVariant::Rfc8754`] when the SRH is reduced (Segments Left above Last Entry).
    #[must_use]
    pub fn with_hmac(mut self, variant: HmacVariant, source: Ipv6Addr, key_id: u32, key: &[u8]) -> Self {
        let reduced = usize::from(self.segments_left) >= self.segments.len();
        let d_and_reserved = if variant == HmacVariant::Rfc8754 && reduced { 0x8000 } else { 0 };
        if variant == HmacVariant::Linux {
            self.flags |= LINUX_HMAC_FLAG;
        }
        let head = [self.last_entry(), self.flags];
        let segments = self.segments.iter().copied();
        let hmac = variant
            .authenticator(key, source, head, d_and_reserved, key_id, segments)
            .map(|mac| mac.finalize().into_bytes().to_vec())
            .unwrap_or_default();
        self.tlvs.push(TlvRepr::Hmac { d_and_reserved, key_id, hmac });
        self
    }

    /// Last Entry: the number of segments less one.
    pub fn last_entry(&self) -> u8 {
        u8::try_from(self.segments.len().saturating_sub(1)).unwrap_or(u8::MAX)
    }

    /// The representation of `srh`, when it can be followed. Octets of a PadN are taken as zero.
    ///
    /// # Errors
    /// [`Error::Srh`] with a fault of [`Srh::check_bounds`] or [`Srh::check_tlvs_inside`].
    pub fn parse<T: AsRef<[u8]>>(srh: &Srh<T>) -> Result<Self> {
        srh.check_meaning(SrhContext { srh_offset: 0, payload_end: usize::MAX })?;
        let tlvs = srh.tlvs().filter_map(|placed| Some(placed.ok()?.tlv.into())).collect();
        Ok(Self {
            next_header: srh.next_header(),
            segments_left: srh.segments_left(),
            flags: srh.flags(),
            tag: srh.tag(),
            segments: srh.segment_list().collect(),
            tlvs,
        })
    }

    fn unpadded_length(&self) -> usize {
        let tlvs: usize = self.tlvs.iter().map(TlvRepr::length).sum();
        FIXED_LENGTH + SEGMENT_LENGTH * self.segments.len() + tlvs
    }

    /// Octets that [`SrhRepr::emit`] writes, a multiple of 8.
    pub fn header_length(&self) -> usize {
        self.unpadded_length().next_multiple_of(8)
    }

    /// Writes the SRH to the start of `buffer`. Segments Left is written as it is, even out of range.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for more than 127 segments, for more than 2048 octets in
    /// all, or for a TLV of more than 255; [`Error::LengthTooSmall`] without any segment, as Last Entry cannot say so.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let layer = LayerKind::Srh;
        if self.segments.is_empty() {
            let (expected, found) = (SEGMENT_LENGTH, 0);
            return Err(Error::LengthTooSmall { layer, field: "segment list", offset: SEGMENT_LIST, expected, found });
        }
        fits(layer, "number of segments", 127, self.segments.len() as u64)?;
        let length = self.header_length();
        fits(layer, "length of the header", 2048, length as u64)?;
        let buffer = room(layer, buffer, length)?;
        set(buffer, NEXT_HEADER, &[self.next_header]);
        // At most 2048 octets: at most 255 units behind the first.
        set(buffer, HDR_EXT_LEN, &[(length / 8 - 1) as u8]);
        set(buffer, ROUTING_TYPE, &[ROUTING_TYPE_SRH]);
        set(buffer, SEGMENTS_LEFT, &[self.segments_left]);
        set(buffer, LAST_ENTRY, &[self.last_entry()]);
        set(buffer, FLAGS, &[self.flags]);
        set(buffer, TAG, &self.tag.to_be_bytes());
        let mut offset = SEGMENT_LIST;
        for segment in &self.segments {
            set(buffer, offset, &segment.octets());
            offset += SEGMENT_LENGTH;
        }
        let padding = TlvRepr::padding(length - self.unpadded_length());
        for tlv in self.tlvs.iter().chain(&padding) {
            tlv.emit(buffer.get_mut(offset..).unwrap_or(&mut []))?;
            offset += tlv.length();
        }
        Ok(())
    }
}
