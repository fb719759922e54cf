//! IEEE 802.1Q tag, seen from behind the ethertype that announces it (0x8100, or 0x88a8 for the outer tag of two).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-----+-+-----------------------+-------------------------------+
//! | PCP |D|        VLAN ID        |           Ethertype           |
//! +-----+-+-----------------------+-------------------------------+
//! ```

use crate::error::{Result, fits, require, room};
use crate::field::{range, set, u16_at};
use crate::layer::{LayerKind, ethertype};

const TAG_CONTROL: usize = 0;
const ETHERTYPE: usize = 2;

/// Length of one tag in octets, from its tag control information to the ethertype behind it.
pub const TAG_LENGTH: usize = 4;

/// Whether `value` is an ethertype that announces a tag.
pub const fn is_tag(value: u16) -> bool {
    matches!(value, ethertype::VLAN | ethertype::SERVICE_VLAN)
}

/// Checked view of one tag and what it encloses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> VlanTag<T> {
    /// A view of `buffer`, which must hold at least one tag.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(LayerKind::Vlan, TAG_LENGTH, buffer.as_ref().len())?;
        Ok(Self { buffer })
    }

    fn tag_control(&self) -> u16 {
        u16_at(self.buffer.as_ref(), TAG_CONTROL)
    }

    /// Priority code point, 0 to 7.
    pub fn priority(&self) -> u8 {
        (self.tag_control() >> 13) as u8
    }

    /// Drop eligible indicator.
    pub fn drop_eligible(&self) -> bool {
        self.tag_control() & 0x1000 != 0
    }

    /// VLAN identifier, 0 to 4095.
    pub fn vlan_id(&self) -> u16 {
        self.tag_control() & 0x0fff
    }

    /// Ethertype of what the tag encloses; that of a further tag when tags are stacked.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.buffer.as_ref(), ETHERTYPE)
    }

    /// Everything behind the tag.
    pub fn payload(&self) -> &[u8] {
        range(self.buffer.as_ref(), TAG_LENGTH, usize::MAX)
    }
}

/// One tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanRepr {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0 to 4095.
    pub vlan_id: u16,
    /// Ethertype of what the tag encloses.
    pub ethertype: u16,
}

impl VlanRepr {
    /// The representation of `tag`.
    pub fn parse<T: AsRef<[u8]>>(tag: &VlanTag<T>) -> Self {
        Self {
            priority: tag.priority(),
            drop_eligible: tag.drop_eligible(),
            vlan_id: tag.vlan_id(),
            ethertype: tag.ethertype(),
        }
    }

    /// Octets that [`VlanRepr::emit`] writes.
    pub const fn header_length(&self) -> usize {
        TAG_LENGTH
    }

    /// Writes the tag to the start of `buffer`.
    ///
    /// # Errors
    /// [`crate::Error::BufferTooSmall`]; [`crate::Error::ValueTooLarge`] for a priority above 7 or a VLAN identifier
    /// above 4095.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        fits(LayerKind::Vlan, "priority code point", 7, self.priority.into())?;
        fits(LayerKind::Vlan, "VLAN identifier", 0xfff, self.vlan_id.into())?;
        let buffer = room(LayerKind::Vlan, buffer, TAG_LENGTH)?;
        let control = u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.vlan_id;
        set(buffer, TAG_CONTROL, &control.to_be_bytes());
        set(buffer, ETHERTYPE, &self.ethertype.to_be_bytes());
        Ok(())
    }
}
