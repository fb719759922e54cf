//! MPLS label stack (RFC 3032 section 2.1; TC field of RFC 5462).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------------------------------+-----+-+---------------+
//! |             Label (20 bits)           | TC  |S|      TTL      |
//! +---------------------------------------+-----+-+---------------+
//! ```

use crate::error::{Error, Result, fits, room};
use crate::field::{array_at, range, set};
use crate::layer::LayerKind;

/// Length of one label stack entry in octets.
pub const ENTRY_LENGTH: usize = 4;
/// Most entries that [`LabelStack::new_checked`] follows.
pub const MAX_ENTRIES: usize = 16;
/// Largest label.
pub const MAX_LABEL: u32 = 0xf_ffff;

/// Reserved labels (RFC 3032 section 2.1).
pub mod label {
    /// IPv4 explicit null: an IPv4 packet follows.
    pub const IPV4_EXPLICIT_NULL: u32 = 0;
    /// Router alert, never at the bottom of the stack.
    pub const ROUTER_ALERT: u32 = 1;
    /// IPv6 explicit null: an IPv6 packet follows.
    pub const IPV6_EXPLICIT_NULL: u32 = 2;
    /// Implicit null: signalled, never in a packet.
    pub const IMPLICIT_NULL: u32 = 3;
    /// First label that is not reserved.
    pub const FIRST_UNRESERVED: u32 = 16;
}

/// One label stack entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MplsEntry {
    /// Label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits.
    pub traffic_class: u8,
    /// S bit: no entry follows.
    pub bottom_of_stack: bool,
    /// Time to live.
    pub time_to_live: u8,
}

impl MplsEntry {
    /// The entry in these octets.
    pub fn from_bytes(bytes: [u8; ENTRY_LENGTH]) -> Self {
        let word = u32::from_be_bytes(bytes);
        let [_, _, _, time_to_live] = bytes;
        Self {
            label: word >> 12,
            traffic_class: (word >> 9 & 7) as u8,
            bottom_of_stack: word & 0x100 != 0,
            time_to_live,
        }
    }

    /// The octets of the entry.
    ///
    /// # Errors
    /// [`Error::ValueTooLarge`] for a label of more than 20 bits or a traffic class of more than 3.
    pub fn to_bytes(self) -> Result<[u8; ENTRY_LENGTH]> {
        fits(LayerKind::Mpls, "label", MAX_LABEL.into(), self.label.into())?;
        fits(LayerKind::Mpls, "traffic class", 7, self.traffic_class.into())?;
        let word = self.label << 12
            | u32::from(self.traffic_class) << 9
            | u32::from(self.bottom_of_stack) << 8
            | u32::from(self.time_to_live);
        Ok(word.to_be_bytes())
    }

    /// Writes the entry to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] and those of [`MplsEntry::to_bytes`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.to_bytes()?;
        set(room(LayerKind::Mpls, buffer, ENTRY_LENGTH)?, 0, &bytes);
        Ok(())
    }
}

/// Checked view of a label stack and what it encloses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelStack<T> {
    buffer: T,
    entries: usize,
}

impl<T: AsRef<[u8]>> LabelStack<T> {
    /// A view of `buffer`, which must hold a stack of at most [`MAX_ENTRIES`] entries down to one with the S bit.
    ///
    /// # Errors
    /// [`Error::Truncated`] at the first entry that is missing, [`Error::TooManyHeaders`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        let layer = LayerKind::Mpls;
        let bytes = buffer.as_ref();
        for index in 0..MAX_ENTRIES {
            let offset = index * ENTRY_LENGTH;
            let rest = range(bytes, offset, usize::MAX);
            let Some(entry) = rest.first_chunk() else {
                return Err(Error::Truncated { layer, offset, expected: ENTRY_LENGTH, found: rest.len() });
            };
            if MplsEntry::from_bytes(*entry).bottom_of_stack {
                return Ok(Self { buffer, entries: index + 1 });
            }
        }
        Err(Error::TooManyHeaders { layer, offset: MAX_ENTRIES * ENTRY_LENGTH, expected: MAX_ENTRIES })
    }

    /// Number of entries, 1 to [`MAX_ENTRIES`].
    pub fn entry_count(&self) -> usize {
        self.entries
    }

    /// Length of the stack in octets.
    pub fn length(&self) -> usize {
        self.entries * ENTRY_LENGTH
    }

    /// The entries from the top down.
    pub fn entries(&self) -> impl Iterator<Item = MplsEntry> {
        let bytes = self.buffer.as_ref();
        (0..self.entries).map(|index| MplsEntry::from_bytes(array_at(bytes, index * ENTRY_LENGTH)))
    }

    /// What the buffer holds behind the stack.
    pub fn payload(&self) -> &[u8] {
        range(self.buffer.as_ref(), self.length(), usize::MAX)
    }

    /// Checks the rules of RFC 3032 section 2.1 on reserved labels: no implicit null, router alert not at the bottom,
    /// explicit nulls only at the bottom.
    ///
    /// # Errors
    /// [`Error::MisplacedLabel`].
    pub fn check_meaning(&self) -> Result<()> {
        for (index, entry) in self.entries().enumerate() {
            let rule = match (entry.label, entry.bottom_of_stack) {
                (label::IMPLICIT_NULL, _) => "(implicit null) must not be in a packet",
                (label::ROUTER_ALERT, true) => "(router alert) must not be at the bottom of the stack",
                (label::IPV4_EXPLICIT_NULL | label::IPV6_EXPLICIT_NULL, false) => {
                    "(explicit null) must be at the bottom of the stack"
                }
                _ => continue,
            };
            return Err(Error::MisplacedLabel { offset: index * ENTRY_LENGTH, found: entry.label, rule });
        }
        Ok(())
    }
}
