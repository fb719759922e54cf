//! UDP (RFC 768).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------------------------------+-------------------------------+
//! |          Source Port          |       Destination Port        |
//! +-------------------------------+-------------------------------+
//! |            Length             |           Checksum            |
//! +-------------------------------+-------------------------------+
//! ```

use crate::checksum::{Checksum, PseudoHeader};
use crate::error::{Error, Result, fits, require, room};
use crate::field::{range, set, u16_at};
use crate::layer::LayerKind;

const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;
const LENGTH: usize = 4;
/// Offset of the Checksum field.
pub const CHECKSUM: usize = 6;

/// Length of the UDP header in octets.
pub const HEADER_LENGTH: usize = 8;
/// Destination port of UDP with labels in it (RFC 7510 section 3).
pub const PORT_MPLS: u16 = 6635;

/// Checked view of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDatagram<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> UdpDatagram<T> {
    /// A view of `buffer`, which must hold the header and all of its Length. The checksum is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::LengthTooSmall`] for a Length below 8, [`Error::LengthTooLarge`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        let (layer, field, offset) = (LayerKind::Udp, "Length", LENGTH);
        let present = buffer.as_ref().len();
        require(layer, HEADER_LENGTH, present)?;
        let datagram = Self { buffer };
        let found = datagram.length();
        if found < HEADER_LENGTH {
            return Err(Error::LengthTooSmall { layer, field, offset, expected: HEADER_LENGTH, found });
        }
        if found > present {
            return Err(Error::LengthTooLarge { layer, field, offset, expected: present, found });
        }
        Ok(datagram)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        u16_at(self.bytes(), SOURCE_PORT)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        u16_at(self.bytes(), DESTINATION_PORT)
    }

    /// Length of header and payload in octets.
    pub fn length(&self) -> usize {
        usize::from(u16_at(self.bytes(), LENGTH))
    }

    /// Checksum as it stands in the datagram. 0: the sender computed none, which only IPv4 allows.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), CHECKSUM)
    }

    /// The octets behind the header up to Length.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_LENGTH, self.length())
    }

    /// Whether the checksum is right under `pseudo_header`. One of 0 passes with IPv4 and fails with IPv6 (RFC 8200
    /// section 8.1).
    pub fn verify_checksum(&self, pseudo_header: &PseudoHeader) -> bool {
        if self.checksum() == 0 {
            return matches!(pseudo_header, PseudoHeader::V4 { .. });
        }
        pseudo_header.checksum(range(self.bytes(), 0, self.length())) == 0
    }

    fn computed_checksum(&self, pseudo_header: &PseudoHeader) -> u16 {
        let sum = pseudo_header.sum(self.length()).add_bytes(range(self.bytes(), 0, CHECKSUM));
        never_zero(sum.add_bytes(self.payload()))
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> UdpDatagram<T> {
    /// Sets the source port. The checksum is left as it is.
    pub fn set_source_port(&mut self, port: u16) {
        set(self.buffer.as_mut(), SOURCE_PORT, &port.to_be_bytes());
    }

    /// Sets the destination port. The checksum is left as it is.
    pub fn set_destination_port(&mut self, port: u16) {
        set(self.buffer.as_mut(), DESTINATION_PORT, &port.to_be_bytes());
    }

    /// Computes the checksum and writes it.
    pub fn fill_checksum(&mut self, pseudo_header: &PseudoHeader) {
        let sum = self.computed_checksum(pseudo_header);
        set(self.buffer.as_mut(), CHECKSUM, &sum.to_be_bytes());
    }
}

/// 0 on the wire means "no checksum", so a sum of 0 is sent as its other ones' complement form.
fn never_zero(sum: Checksum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        other => other,
    }
}

/// A UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdpRepr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl UdpRepr {
    /// A header with these ports.
    pub const fn new(source_port: u16, destination_port: u16) -> Self {
        Self { source_port, destination_port }
    }

    /// The header of `datagram`.
    ///
    /// # Errors
    /// [`Error::BadChecksum`].
    pub fn parse<T: AsRef<[u8]>>(datagram: &UdpDatagram<T>, pseudo_header: &PseudoHeader) -> Result<Self> {
        if !datagram.verify_checksum(pseudo_header) {
            let (expected, found) = (datagram.computed_checksum(pseudo_header), datagram.checksum());
            return Err(Error::BadChecksum { layer: LayerKind::Udp, offset: CHECKSUM, expected, found });
        }
        Ok(Self { source_port: datagram.source_port(), destination_port: datagram.destination_port() })
    }

    /// Octets that [`UdpRepr::emit`] writes in front of the payload.
    pub const fn header_length(&self) -> usize {
        HEADER_LENGTH
    }

    /// Writes the header and `payload` to the start of `buffer`, with Length and checksum.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for a payload of more than 65,527 octets.
    pub fn emit(&self, buffer: &mut [u8], payload: &[u8], pseudo_header: &PseudoHeader) -> Result<()> {
        let length = HEADER_LENGTH + payload.len();
        fits(LayerKind::Udp, "Length", 0xffff, length as u64)?;
        let buffer = room(LayerKind::Udp, buffer, length)?;
        set(buffer, SOURCE_PORT, &self.source_port.to_be_bytes());
        set(buffer, DESTINATION_PORT, &self.destination_port.to_be_bytes());
        set(buffer, LENGTH, &(length as u16).to_be_bytes());
        set(buffer, HEADER_LENGTH, payload);
        UdpDatagram { buffer }.fill_checksum(pseudo_header);
        Ok(())
    }
}
