//! Segment routing header (RFC 8754 section 2).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+---------------+---------------+
//! |  Next Header  |  Hdr Ext Len  | Routing Type  | Segments Left |
//! +---------------+---------------+---------------+---------------+
//! |  Last Entry   |     Flags     |              Tag              |
//! +---------------+---------------+-------------------------------+
//! |        Segment List[0] (128 bits), last segment of the path   |
//! +---------------------------------------------------------------+
//! |                              ...                              |
//! +---------------------------------------------------------------+
//! |        Segment List[Last Entry] (128 bits)                    |
//! +---------------------------------------------------------------+
//! |               TLVs (variable), up to 8*(Hdr Ext Len+1)        |
//! +---------------------------------------------------------------+
//! ```
//!
//! Structure and meaning are checked apart: [`Srh::new_checked`] makes sure that the octets are there, so that every
//! accessor may be used; [`Srh::check_meaning`] says whether an endpoint could follow what they say. A transit node
//! needs neither.

pub(crate) mod error;
mod hmac;
mod meaning;
mod octet;
mod repr;
mod tlv;

pub use error::SrhError;
pub use hmac::{HMAC_LENGTH, HMAC_TLV_LENGTH, HmacVariant, LINUX_HMAC_FLAG};
pub use meaning::{SrhContext, TlvLimits};
pub use octet::*;
pub use repr::{SrhRepr, TlvRepr};
pub use tlv::{HmacTlv, PlacedTlv, Tlv, TlvIter, tlv_type};

use crate::error::{Error, Result, require};
use crate::field::{ipv6_at, range, set, u8_at, u16_at};
use crate::layer::LayerKind;
use core::net::Ipv6Addr;

/// Routing Type of the SRH.
pub const ROUTING_TYPE_SRH: u8 = 4;
/// Length of the SRH without segment list and TLVs in octets.
pub const FIXED_LENGTH: usize = 8;
/// Length of a segment in octets.
pub const SEGMENT_LENGTH: usize = 16;
/// O-flag in the Flags field (RFC 9259 section 2.1).
pub const O_FLAG: u8 = 0x20;

/// Checked view of a segment routing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srh<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Srh<T> {
    /// A view of `buffer`, which must begin with a routing header of type 4 and hold all of its Hdr Ext Len. What
    /// follows the header may be in the buffer too. Last Entry and Segments Left may have any value.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::UnexpectedType`], [`Error::LengthTooLarge`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        let layer = LayerKind::Srh;
        let present = buffer.as_ref().len();
        require(layer, FIXED_LENGTH, present)?;
        let srh = Self { buffer };
        let found = srh.routing_type();
        if found != ROUTING_TYPE_SRH {
            return Err(Error::UnexpectedType {
                layer,
                field: "Routing Type",
                offset: ROUTING_TYPE,
                expected: ROUTING_TYPE_SRH.into(),
                found: found.into(),
            });
        }
        let found = srh.header_length();
        if found > present {
            let field = "Hdr Ext Len";
            return Err(Error::LengthTooLarge { layer, field, offset: HDR_EXT_LEN, expected: present, found });
        }
        Ok(srh)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Protocol number of what follows the SRH, see [`crate::layer::protocol`].
    pub fn next_header(&self) -> u8 {
        u8_at(self.bytes(), NEXT_HEADER)
    }

    /// Hdr Ext Len: length in units of 8 octets, without the first 8.
    pub fn hdr_ext_len(&self) -> u8 {
        u8_at(self.bytes(), HDR_EXT_LEN)
    }

    /// Length of the whole SRH in octets, 8 to 2048.
    pub fn header_length(&self) -> usize {
        (usize::from(self.hdr_ext_len()) + 1) * 8
    }

    /// Routing Type: 4.
    pub fn routing_type(&self) -> u8 {
        u8_at(self.bytes(), ROUTING_TYPE)
    }

    /// Segments Left: index of the active segment in the segment list.
    pub fn segments_left(&self) -> u8 {
        u8_at(self.bytes(), SEGMENTS_LEFT)
    }

    /// Last Entry: index of the last element of the segment list.
    pub fn last_entry(&self) -> u8 {
        u8_at(self.bytes(), LAST_ENTRY)
    }

    /// Largest Last Entry that Hdr Ext Len has room for; -1 when there is no room for any segment.
    pub fn max_last_entry(&self) -> i16 {
        i16::from(self.hdr_ext_len()) / 2 - 1
    }

    /// Flags. RFC 8754 defines none.
    pub fn flags(&self) -> u8 {
        u8_at(self.bytes(), FLAGS)
    }

    /// O-flag (RFC 9259 section 2.1).
    pub fn o_flag(&self) -> bool {
        self.flags() & O_FLAG != 0
    }

    /// Tag: class or group of the packet.
    pub fn tag(&self) -> u16 {
        u16_at(self.bytes(), TAG)
    }

    /// Segment List\[`index`\], when the list has that entry and the entry lies inside the header.
    pub fn segment(&self, index: u8) -> Option<Ipv6Addr> {
        let inside = index <= self.last_entry() && i16::from(index) <= self.max_last_entry();
        inside.then(|| ipv6_at(self.bytes(), SEGMENT_LIST + SEGMENT_LENGTH * usize::from(index)))
    }

    /// The segment list as it stands in the header: the last segment of the path first.
    pub fn segment_list(&self) -> impl DoubleEndedIterator<Item = Ipv6Addr> {
        let entries = (i16::from(self.last_entry()) + 1).min(self.max_last_entry() + 1);
        (0..entries).filter_map(|index| self.segment(u8::try_from(index).ok()?))
    }

    /// The segment list in the order in which a packet visits the segments. The list of a reduced SRH (RFC 8754
    /// section 4.1.1) does not hold the first segment of the policy, so neither does this.
    pub fn segments_in_traversal_order(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.segment_list().rev()
    }

    /// Segment List\[Segments Left\]: what the destination address should be. `None` when the list has no such entry,
    /// as with a reduced SRH until its first segment has been visited.
    pub fn active_segment(&self) -> Option<Ipv6Addr> {
        self.segment(self.segments_left())
    }

    /// Segment List\[Segments Left - 1\]: the destination address behind the next endpoint. `None` at the end of the
    /// list.
    pub fn next_segment(&self) -> Option<Ipv6Addr> {
        self.segment(self.segments_left().checked_sub(1)?)
    }

    /// Segment List\[Last Entry\]: the first segment of the path, or the second when the SRH is reduced.
    pub fn first_entry_visited(&self) -> Option<Ipv6Addr> {
        self.segment(self.last_entry())
    }

    /// Segment List\[0\]: the last segment of the path, which upper-layer checksums take as the destination.
    pub fn final_segment(&self) -> Option<Ipv6Addr> {
        self.segment(0)
    }

    /// Whether Segments Left is Last Entry + 1: the SRH is reduced and the active segment stands in the destination
    /// address only. A reduced SRH that has left its first segment looks like any other.
    pub fn is_reduced_at_first_segment(&self) -> bool {
        u16::from(self.segments_left()) == u16::from(self.last_entry()) + 1
    }

    /// Offset of the first octet behind the segment list, as Last Entry gives it: where TLVs begin.
    pub fn tlv_offset(&self) -> usize {
        SEGMENT_LIST + SEGMENT_LENGTH * (usize::from(self.last_entry()) + 1)
    }

    /// The octets between the segment list and the end of the header. Empty when the list leaves the header.
    pub fn tlv_bytes(&self) -> &[u8] {
        range(self.bytes(), self.tlv_offset(), self.header_length())
    }

    /// The TLVs, each with its offset from the first octet of the SRH. Ends after the first error.
    pub fn tlvs(&self) -> TlvIter<'_> {
        TlvIter::new(range(self.bytes(), 0, self.header_length()), self.tlv_offset())
    }

    /// The octets of the SRH itself.
    pub fn header(&self) -> &[u8] {
        range(self.bytes(), 0, self.header_length())
    }

    /// What the buffer holds behind the SRH.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), self.header_length(), usize::MAX)
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Srh<T> {
    /// Sets the Next Header.
    pub fn set_next_header(&mut self, next_header: u8) {
        set(self.buffer.as_mut(), NEXT_HEADER, &[next_header]);
    }

    /// Sets Segments Left.
    pub fn set_segments_left(&mut self, segments_left: u8) {
        set(self.buffer.as_mut(), SEGMENTS_LEFT, &[segments_left]);
    }

    /// Sets the Flags.
    pub fn set_flags(&mut self, flags: u8) {
        set(self.buffer.as_mut(), FLAGS, &[flags]);
    }

    /// Sets the Tag.
    pub fn set_tag(&mut self, tag: u16) {
        set(self.buffer.as_mut(), TAG, &tag.to_be_bytes());
    }

    /// Sets Segment List\[`index`\] and returns whether the list has that entry.
    pub fn set_segment(&mut self, index: u8, segment: Ipv6Addr) -> bool {
        let exists = self.segment(index).is_some();
        if exists {
            let offset = SEGMENT_LIST + SEGMENT_LENGTH * usize::from(index);
            set(self.buffer.as_mut(), offset, &segment.octets());
        }
        exists
    }
}
