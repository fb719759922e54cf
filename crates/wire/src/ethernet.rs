//! Ethernet II (IEEE 802.3 clause 3, with a type field), without preamble and frame check sequence.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------------------------------------------------------+
//! |                  Destination address (48 bits)                |
//! +                               +-------------------------------+
//! |                               |                               |
//! +-------------------------------+      Source address           +
//! |                          (48 bits)                            |
//! +-------------------------------+-------------------------------+
//! |          Ethertype            |
//! +-------------------------------+
//! ```

use crate::error::{Result, require, room};
use crate::field::{array_at, range, set, u16_at};
use crate::layer::LayerKind;
use core::fmt;

const DESTINATION: usize = 0;
const SOURCE: usize = 6;
const ETHERTYPE: usize = 12;

/// Length of the Ethernet header in octets.
pub const HEADER_LENGTH: usize = 14;

/// A 48-bit MAC address in transmission order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the group bit is set: multicast or broadcast.
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Checked view of an Ethernet II frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetFrame<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> EthernetFrame<T> {
    /// A view of `buffer`, which must hold at least the 14-octet header.
    ///
    /// # Errors
    /// [`crate::Error::Truncated`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(LayerKind::Ethernet, HEADER_LENGTH, buffer.as_ref().len())?;
        Ok(Self { buffer })
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Destination address.
    pub fn destination(&self) -> MacAddress {
        MacAddress(array_at(self.bytes(), DESTINATION))
    }

    /// Source address.
    pub fn source(&self) -> MacAddress {
        MacAddress(array_at(self.bytes(), SOURCE))
    }

    /// Ethertype, see [`crate::layer::ethertype`]. That of a tag when the frame is tagged.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.bytes(), ETHERTYPE)
    }

    /// Everything behind the header, padding included.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_LENGTH, usize::MAX)
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> EthernetFrame<T> {
    /// Sets the destination address.
    pub fn set_destination(&mut self, address: MacAddress) {
        set(self.buffer.as_mut(), DESTINATION, &address.0);
    }

    /// Sets the source address.
    pub fn set_source(&mut self, address: MacAddress) {
        set(self.buffer.as_mut(), SOURCE, &address.0);
    }

    /// Sets the ethertype.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        set(self.buffer.as_mut(), ETHERTYPE, &ethertype.to_be_bytes());
    }
}

/// An Ethernet II header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EthernetRepr {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Ethertype, see [`crate::layer::ethertype`].
    pub ethertype: u16,
}

impl EthernetRepr {
    /// The header of `frame`.
    pub fn parse<T: AsRef<[u8]>>(frame: &EthernetFrame<T>) -> Self {
        Self { destination: frame.destination(), source: frame.source(), ethertype: frame.ethertype() }
    }

    /// Octets that [`EthernetRepr::emit`] writes.
    pub const fn header_length(&self) -> usize {
        HEADER_LENGTH
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// [`crate::Error::BufferTooSmall`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let buffer = room(LayerKind::Ethernet, buffer, HEADER_LENGTH)?;
        set(buffer, DESTINATION, &self.destination.0);
        set(buffer, SOURCE, &self.source.0);
        set(buffer, ETHERTYPE, &self.ethertype.to_be_bytes());
        Ok(())
    }
}
