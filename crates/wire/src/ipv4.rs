//! IPv4 header (RFC 791 section 3.1).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+-------------------------------+
//! |Version|  IHL  |Type of Service|         Total Length          |
//! +-------+-------+---------------+-----+-------------------------+
//! |        Identification         |Flags|     Fragment Offset     |
//! +---------------+---------------+-----+-------------------------+
//! | Time to Live  |   Protocol    |        Header Checksum        |
//! +---------------+---------------+-------------------------------+
//! |                        Source Address                         |
//! +---------------------------------------------------------------+
//! |                      Destination Address                      |
//! +---------------------------------------------------------------+
//! |              Options, up to 40 octets in fours                |
//! +---------------------------------------------------------------+
//! ```

use crate::checksum::{Checksum, checksum};
use crate::error::{Error, Result, fits, require, room};
use crate::field::{ipv4_at, range, range_mut, set, u8_at, u16_at};
use crate::layer::{LayerKind, protocol};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

const VERSION_IHL: usize = 0;
const TYPE_OF_SERVICE: usize = 1;
/// Offset of the Total Length field.
pub const TOTAL_LENGTH: usize = 2;
const IDENTIFICATION: usize = 4;
const FLAGS_OFFSET: usize = 6;
/// Offset of the Time to Live field.
pub const TIME_TO_LIVE: usize = 8;
const PROTOCOL: usize = 9;
/// Offset of the Header Checksum field.
pub const HEADER_CHECKSUM: usize = 10;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const OPTIONS: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Length of the IPv4 header without options in octets.
pub const MIN_HEADER_LENGTH: usize = 20;

/// Checked view of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Ipv4Packet<T> {
    /// A view of `buffer`, which must begin with a version 4 header and hold all of its Total Length; octets behind
    /// that (padding of the link layer) are allowed and are not part of the payload. The checksum is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::BadVersion`], [`Error::LengthTooSmall`] for an IHL below 5 or a Total Length
    /// below the header's, [`Error::LengthTooLarge`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        let packet = Self::new_quoted(buffer)?;
        let expected = packet.bytes().len();
        let found = packet.total_length();
        if found > expected {
            let (layer, field) = (LayerKind::Ipv4, "Total Length");
            return Err(Error::LengthTooLarge { layer, field, offset: TOTAL_LENGTH, expected, found });
        }
        Ok(packet)
    }

    /// Like [`Ipv4Packet::new_checked`] for a packet that may be cut behind its header, as quoted in an ICMP error.
    ///
    /// # Errors
    /// Those of [`Ipv4Packet::new_checked`] except [`Error::LengthTooLarge`].
    pub fn new_quoted(buffer: T) -> Result<Self> {
        let layer = LayerKind::Ipv4;
        let present = buffer.as_ref().len();
        require(layer, MIN_HEADER_LENGTH, present)?;
        let packet = Self { buffer };
        let found = u8_at(packet.bytes(), VERSION_IHL) >> 4;
        if found != 4 {
            return Err(Error::BadVersion { layer, offset: 0, expected: 4, found });
        }
        let length = packet.header_length();
        if length < MIN_HEADER_LENGTH {
            let (expected, found) = (MIN_HEADER_LENGTH, length);
            return Err(Error::LengthTooSmall { layer, field: "IHL", offset: VERSION_IHL, expected, found });
        }
        require(layer, length, present)?;
        let found = packet.total_length();
        if found < length {
            let (field, expected) = ("Total Length", length);
            return Err(Error::LengthTooSmall { layer, field, offset: TOTAL_LENGTH, expected, found });
        }
        Ok(packet)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Header length in octets: IHL times four.
    pub fn header_length(&self) -> usize {
        usize::from(u8_at(self.bytes(), VERSION_IHL) & 0x0f) * 4
    }

    /// Type of Service: DSCP in the upper six bits, ECN in the lower two.
    pub fn type_of_service(&self) -> u8 {
        u8_at(self.bytes(), TYPE_OF_SERVICE)
    }

    /// Total Length in octets, header included.
    pub fn total_length(&self) -> usize {
        usize::from(u16_at(self.bytes(), TOTAL_LENGTH))
    }

    /// Identification.
    pub fn identification(&self) -> u16 {
        u16_at(self.bytes(), IDENTIFICATION)
    }

    /// DF flag.
    pub fn dont_fragment(&self) -> bool {
        u16_at(self.bytes(), FLAGS_OFFSET) & DONT_FRAGMENT != 0
    }

    /// MF flag.
    pub fn more_fragments(&self) -> bool {
        u16_at(self.bytes(), FLAGS_OFFSET) & MORE_FRAGMENTS != 0
    }

    /// Fragment offset in octets (the field counts eights).
    pub fn fragment_offset(&self) -> u16 {
        (u16_at(self.bytes(), FLAGS_OFFSET) & 0x1fff) << 3
    }

    /// Whether the packet is a fragment: MF set or a fragment offset other than 0.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments() || self.fragment_offset() != 0
    }

    /// Time to live.
    pub fn time_to_live(&self) -> u8 {
        u8_at(self.bytes(), TIME_TO_LIVE)
    }

    /// Protocol number of the payload, see [`crate::layer::protocol`].
    pub fn protocol(&self) -> u8 {
        u8_at(self.bytes(), PROTOCOL)
    }

    /// Header checksum as it stands in the packet.
    pub fn header_checksum(&self) -> u16 {
        u16_at(self.bytes(), HEADER_CHECKSUM)
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        ipv4_at(self.bytes(), SOURCE)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        ipv4_at(self.bytes(), DESTINATION)
    }

    /// The options, padding included: 0 to 40 octets.
    pub fn options(&self) -> &[u8] {
        range(self.bytes(), OPTIONS, self.header_length())
    }

    /// The octets behind the header up to Total Length, or as many of them as were quoted.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), self.header_length(), self.total_length())
    }

    /// The packet without octets behind its Total Length.
    pub fn packet(&self) -> &[u8] {
        range(self.bytes(), 0, self.total_length())
    }

    /// Whether the header checksum is right.
    pub fn verify_checksum(&self) -> bool {
        checksum(range(self.bytes(), 0, self.header_length())) == 0
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    fn computed_checksum(&self) -> u16 {
        Checksum::new()
            .add_bytes(range(self.bytes(), 0, HEADER_CHECKSUM))
            .add_bytes(range(self.bytes(), SOURCE, self.header_length()))
            .finish()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<T> {
    /// Sets the type of service. The checksum is left as it is.
    pub fn set_type_of_service(&mut self, value: u8) {
        set(self.buffer.as_mut(), TYPE_OF_SERVICE, &[value]);
    }

    /// Sets the Total Length in octets. The checksum is left as it is.
    pub fn set_total_length(&mut self, length: u16) {
        set(self.buffer.as_mut(), TOTAL_LENGTH, &length.to_be_bytes());
    }

    /// Sets the Identification. The checksum is left as it is.
    pub fn set_identification(&mut self, identification: u16) {
        set(self.buffer.as_mut(), IDENTIFICATION, &identification.to_be_bytes());
    }

    /// Sets the time to live. The checksum is left as it is.
    pub fn set_time_to_live(&mut self, time_to_live: u8) {
        set(self.buffer.as_mut(), TIME_TO_LIVE, &[time_to_live]);
    }

    /// Sets the source address. No checksum is changed.
    pub fn set_source(&mut self, source: Ipv4Addr) {
        set(self.buffer.as_mut(), SOURCE, &source.octets());
    }

    /// Sets the destination address. No checksum is changed.
    pub fn set_destination(&mut self, destination: Ipv4Addr) {
        set(self.buffer.as_mut(), DESTINATION, &destination.octets());
    }

    /// Computes the header checksum and writes it.
    pub fn fill_checksum(&mut self) {
        let sum = self.computed_checksum();
        set(self.buffer.as_mut(), HEADER_CHECKSUM, &sum.to_be_bytes());
    }

    /// Mutable [`Ipv4Packet::payload`].
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.header_length(), self.total_length());
        range_mut(self.buffer.as_mut(), start, end)
    }
}

/// An IPv4 header. The reserved flag is always zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Repr {
    /// DSCP in the upper six bits, ECN in the lower two.
    pub type_of_service: u8,
    /// Octets behind the header. The builder computes it.
    pub payload_length: u16,
    /// Identification.
    pub identification: u16,
    /// DF flag.
    pub dont_fragment: bool,
    /// MF flag.
    pub more_fragments: bool,
    /// Fragment offset in octets, a multiple of 8 up to 65,528.
    pub fragment_offset: u16,
    /// Time to live.
    pub time_to_live: u8,
    /// Protocol number of the payload. The builder sets it when it knows.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Options with their padding: a multiple of 4 octets, at most 40.
    pub options: Vec<u8>,
}

impl Default for Ipv4Repr {
    /// Time to live 64, everything else zero, no options.
    fn default() -> Self {
        Self::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED)
    }
}

impl Ipv4Repr {
    /// A header between two addresses with time to live 64, no options, and everything else zero.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            type_of_service: 0,
            payload_length: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 64,
            protocol: protocol::NO_NEXT_HEADER,
            source,
            destination,
            options: Vec::new(),
        }
    }

    /// The header of `packet`.
    ///
    /// # Errors
    /// [`Error::BadChecksum`].
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv4Packet<T>) -> Result<Self> {
        if !packet.verify_checksum() {
            return Err(Error::BadChecksum {
                layer: LayerKind::Ipv4,
                offset: HEADER_CHECKSUM,
                expected: packet.computed_checksum(),
                found: packet.header_checksum(),
            });
        }
        // A Total Length below the header's is refused by new_checked; after a change through a mutable view it
        // counts as an empty payload.
        let payload_length = packet.total_length().saturating_sub(packet.header_length());
        Ok(Self {
            type_of_service: packet.type_of_service(),
            payload_length: u16::try_from(payload_length).unwrap_or(u16::MAX),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            time_to_live: packet.time_to_live(),
            protocol: packet.protocol(),
            source: packet.source(),
            destination: packet.destination(),
            options: packet.options().to_vec(),
        })
    }

    /// Octets that [`Ipv4Repr::emit`] writes: 20 and the options.
    pub const fn header_length(&self) -> usize {
        MIN_HEADER_LENGTH + self.options.len()
    }

    /// Writes the header with its checksum to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for more than 40 octets of options or a total length above
    /// 65,535; [`Error::NotAMultiple`] for options not in fours or a fragment offset not in eights.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let layer = LayerKind::Ipv4;
        let length = self.header_length();
        let total = length + usize::from(self.payload_length);
        fits(layer, "length of options", 40, self.options.len() as u64)?;
        fits(layer, "Total Length", 0xffff, total as u64)?;
        if !self.options.len().is_multiple_of(4) {
            let found = self.options.len() as u64;
            return Err(Error::NotAMultiple { layer, field: "length of options", expected: 4, found });
        }
        if !self.fragment_offset.is_multiple_of(8) {
            let found = self.fragment_offset.into();
            return Err(Error::NotAMultiple { layer, field: "Fragment Offset", expected: 8, found });
        }
        let buffer = room(layer, buffer, length)?;
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        let flags = flag(self.dont_fragment, DONT_FRAGMENT) | flag(self.more_fragments, MORE_FRAGMENTS);
        // Both lengths were checked above: the header is at most 60 octets, the total at most 65,535.
        set(buffer, VERSION_IHL, &[0x40 | (length / 4) as u8]);
        set(buffer, TYPE_OF_SERVICE, &[self.type_of_service]);
        set(buffer, TOTAL_LENGTH, &(total as u16).to_be_bytes());
        set(buffer, IDENTIFICATION, &self.identification.to_be_bytes());
        set(buffer, FLAGS_OFFSET, &(flags | self.fragment_offset >> 3).to_be_bytes());
        set(buffer, TIME_TO_LIVE, &[self.time_to_live]);
        set(buffer, PROTOCOL, &[self.protocol]);
        set(buffer, SOURCE, &self.source.octets());
        set(buffer, DESTINATION, &self.destination.octets());
        set(buffer, OPTIONS, &self.options);
        let sum = checksum(buffer);
        set(buffer, HEADER_CHECKSUM, &sum.to_be_bytes());
        Ok(())
    }
}
