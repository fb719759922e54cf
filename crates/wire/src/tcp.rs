//! TCP header (RFC 9293 section 3.1). Options are kept as octets.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------------------------------+-------------------------------+
//! |          Source Port          |       Destination Port        |
//! +-------------------------------+-------------------------------+
//! |                        Sequence Number                        |
//! +---------------------------------------------------------------+
//! |                    Acknowledgment Number                      |
//! +-------+-------+---------------+-------------------------------+
//! |DOffset| Rsrvd | Control bits  |            Window             |
//! +-------+-------+---------------+-------------------------------+
//! |           Checksum            |        Urgent Pointer         |
//! +-------------------------------+-------------------------------+
//! |              Options, up to 40 octets in fours                |
//! +---------------------------------------------------------------+
//! ```

use crate::checksum::PseudoHeader;
use crate::error::{Error, Result, fits, require, room};
use crate::field::{range, set, u8_at, u16_at, u32_at};
use crate::layer::LayerKind;
use alloc::vec::Vec;

const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 2;
const SEQUENCE_NUMBER: usize = 4;
const ACKNOWLEDGMENT_NUMBER: usize = 8;
const DATA_OFFSET: usize = 12;
const CONTROL_BITS: usize = 13;
const WINDOW: usize = 14;
/// Offset of the Checksum field.
pub const CHECKSUM: usize = 16;
const URGENT_POINTER: usize = 18;
const OPTIONS: usize = 20;

/// Length of the TCP header without options in octets.
pub const MIN_HEADER_LENGTH: usize = 20;

/// Control bits of a TCP header (RFC 9293 section 3.1).
pub mod control {
    /// No more data from sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The Acknowledgment Number is significant.
    pub const ACK: u8 = 0x10;
    /// The Urgent Pointer is significant.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// Checked view of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> TcpSegment<T> {
    /// A view of `buffer`, which must be one segment as its IP header delimits it. The checksum is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::LengthTooSmall`] for a data offset below 5, [`Error::LengthTooLarge`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        let (layer, field, offset) = (LayerKind::Tcp, "data offset", DATA_OFFSET);
        let present = buffer.as_ref().len();
        require(layer, MIN_HEADER_LENGTH, present)?;
        let segment = Self { buffer };
        let found = segment.header_length();
        if found < MIN_HEADER_LENGTH {
            return Err(Error::LengthTooSmall { layer, field, offset, expected: MIN_HEADER_LENGTH, found });
        }
        if found > present {
            return Err(Error::LengthTooLarge { layer, field, offset, expected: present, found });
        }
        Ok(segment)
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

    /// Sequence number.
    pub fn sequence_number(&self) -> u32 {
        u32_at(self.bytes(), SEQUENCE_NUMBER)
    }

    /// Acknowledgment number.
    pub fn acknowledgment_number(&self) -> u32 {
        u32_at(self.bytes(), ACKNOWLEDGMENT_NUMBER)
    }

    /// Header length in octets: data offset times four.
    pub fn header_length(&self) -> usize {
        usize::from(u8_at(self.bytes(), DATA_OFFSET) >> 4) * 4
    }

    /// The four reserved bits behind the data offset.
    pub fn reserved(&self) -> u8 {
        u8_at(self.bytes(), DATA_OFFSET) & 0x0f
    }

    /// Control bits, see [`control`].
    pub fn control_bits(&self) -> u8 {
        u8_at(self.bytes(), CONTROL_BITS)
    }

    /// Window, not scaled.
    pub fn window(&self) -> u16 {
        u16_at(self.bytes(), WINDOW)
    }

    /// Checksum as it stands in the segment.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), CHECKSUM)
    }

    /// Urgent pointer.
    pub fn urgent_pointer(&self) -> u16 {
        u16_at(self.bytes(), URGENT_POINTER)
    }

    /// The options, padding included: 0 to 40 octets.
    pub fn options(&self) -> &[u8] {
        range(self.bytes(), OPTIONS, self.header_length())
    }

    /// The octets behind the header.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), self.header_length(), usize::MAX)
    }

    /// Whether the checksum is right under `pseudo_header`.
    pub fn verify_checksum(&self, pseudo_header: &PseudoHeader) -> bool {
        pseudo_header.checksum(self.bytes()) == 0
    }

    fn computed_checksum(&self, pseudo_header: &PseudoHeader) -> u16 {
        let bytes = self.bytes();
        let sum = pseudo_header.sum(bytes.len()).add_bytes(range(bytes, 0, CHECKSUM));
        sum.add_bytes(range(bytes, URGENT_POINTER, usize::MAX)).finish()
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> TcpSegment<T> {
    /// Sets the source port. The checksum is left as it is.
    pub fn set_source_port(&mut self, port: u16) {
        set(self.buffer.as_mut(), SOURCE_PORT, &port.to_be_bytes());
    }

    /// Sets the destination port. The checksum is left as it is.
    pub fn set_destination_port(&mut self, port: u16) {
        set(self.buffer.as_mut(), DESTINATION_PORT, &port.to_be_bytes());
    }

    /// Sets the sequence number. The checksum is left as it is.
    pub fn set_sequence_number(&mut self, number: u32) {
        set(self.buffer.as_mut(), SEQUENCE_NUMBER, &number.to_be_bytes());
    }

    /// Sets the control bits. The checksum is left as it is.
    pub fn set_control_bits(&mut self, bits: u8) {
        set(self.buffer.as_mut(), CONTROL_BITS, &[bits]);
    }

    /// Computes the checksum and writes it.
    pub fn fill_checksum(&mut self, pseudo_header: &PseudoHeader) {
        let sum = self.computed_checksum(pseudo_header);
        set(self.buffer.as_mut(), CHECKSUM, &sum.to_be_bytes());
    }
}

/// A TCP header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpRepr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence_number: u32,
    /// Acknowledgment number.
    pub acknowledgment_number: u32,
    /// The four reserved bits behind the data offset, 0 to 15.
    pub reserved: u8,
    /// Control bits, see [`control`].
    pub control_bits: u8,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent_pointer: u16,
    /// Options with their padding: a multiple of 4 octets, at most 40.
    pub options: Vec<u8>,
}

impl TcpRepr {
    /// A header with these ports and control bits, everything else zero.
    pub const fn new(source_port: u16, destination_port: u16, control_bits: u8) -> Self {
        Self {
            source_port,
            destination_port,
            sequence_number: 0,
            acknowledgment_number: 0,
            reserved: 0,
            control_bits,
            window: 0,
            urgent_pointer: 0,
            options: Vec::new(),
        }
    }

    /// The header of `segment`.
    ///
    /// # Errors
    /// [`Error::BadChecksum`].
    pub fn parse<T: AsRef<[u8]>>(segment: &TcpSegment<T>, pseudo_header: &PseudoHeader) -> Result<Self> {
        if !segment.verify_checksum(pseudo_header) {
            let (expected, found) = (segment.computed_checksum(pseudo_header), segment.checksum());
            return Err(Error::BadChecksum { layer: LayerKind::Tcp, offset: CHECKSUM, expected, found });
        }
        Ok(Self {
            source_port: segment.source_port(),
            destination_port: segment.destination_port(),
            sequence_number: segment.sequence_number(),
            acknowledgment_number: segment.acknowledgment_number(),
            reserved: segment.reserved(),
            control_bits: segment.control_bits(),
            window: segment.window(),
            urgent_pointer: segment.urgent_pointer(),
            options: segment.options().to_vec(),
        })
    }

    /// Octets that [`TcpRepr::emit`] writes in front of the payload: 20 and the options.
    pub const fn header_length(&self) -> usize {
        MIN_HEADER_LENGTH + self.options.len()
    }

    /// Writes the header and `payload` to the start of `buffer`, with the checksum.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for more than 40 octets of options or reserved bits above
    /// 15; [`Error::NotAMultiple`] for options not in fours.
    pub fn emit(&self, buffer: &mut [u8], payload: &[u8], pseudo_header: &PseudoHeader) -> Result<()> {
        let layer = LayerKind::Tcp;
        let found = self.options.len() as u64;
        fits(layer, "length of options", 40, found)?;
        fits(layer, "reserved bits", 0x0f, self.reserved.into())?;
        if !found.is_multiple_of(4) {
            return Err(Error::NotAMultiple { layer, field: "length of options", expected: 4, found });
        }
        let length = self.header_length();
        let buffer = room(layer, buffer, length + payload.len())?;
        set(buffer, SOURCE_PORT, &self.source_port.to_be_bytes());
        set(buffer, DESTINATION_PORT, &self.destination_port.to_be_bytes());
        set(buffer, SEQUENCE_NUMBER, &self.sequence_number.to_be_bytes());
        set(buffer, ACKNOWLEDGMENT_NUMBER, &self.acknowledgment_number.to_be_bytes());
        // The header is at most 60 octets long.
        set(buffer, DATA_OFFSET, &[((length / 4) as u8) << 4 | self.reserved]);
        set(buffer, CONTROL_BITS, &[self.control_bits]);
        set(buffer, WINDOW, &self.window.to_be_bytes());
        set(buffer, URGENT_POINTER, &self.urgent_pointer.to_be_bytes());
        set(buffer, OPTIONS, &self.options);
        set(buffer, length, payload);
        TcpSegment { buffer }.fill_checksum(pseudo_header);
        Ok(())
    }
}
