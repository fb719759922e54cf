//! IPv6 header (RFC 8200 section 3).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+---------------+---------------------------------------+
//! |Version| Traffic Class |              Flow Label               |
//! +-------+---------------+-------+---------------+---------------+
//! |        Payload Length         |  Next Header  |   Hop Limit   |
//! +-------------------------------+---------------+---------------+
//! |                  Source Address (128 bits)                    |
//! +---------------------------------------------------------------+
//! |                Destination Address (128 bits)                 |
//! +---------------------------------------------------------------+
//! ```

use crate::error::{Error, Result, fits, require, room};
use crate::field::{ipv6_at, range, range_mut, set, u8_at, u16_at, u32_at};
use crate::layer::{LayerKind, protocol};
use core::net::Ipv6Addr;

const VERSION_CLASS_LABEL: usize = 0;
/// Offset of the Payload Length field.
pub const PAYLOAD_LENGTH: usize = 4;
/// Offset of the Next Header field.
pub const NEXT_HEADER: usize = 6;
/// Offset of the Hop Limit field.
pub const HOP_LIMIT: usize = 7;
const SOURCE: usize = 8;
const DESTINATION: usize = 24;

/// Length of the IPv6 header in octets.
pub const HEADER_LENGTH: usize = 40;

/// Checked view of an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Ipv6Packet<T> {
    /// A view of `buffer`, which must begin with a version 6 header and hold all of its Payload Length; octets behind
    /// that (padding of the link layer) are allowed and are not part of the payload.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::BadVersion`], [`Error::LengthTooLarge`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        let packet = Self::new_quoted(buffer)?;
        let expected = packet.bytes().len() - HEADER_LENGTH;
        let found = usize::from(packet.payload_length());
        if found > expected {
            let (layer, field) = (LayerKind::Ipv6, "Payload Length");
            return Err(Error::LengthTooLarge { layer, field, offset: PAYLOAD_LENGTH, expected, found });
        }
        Ok(packet)
    }

    /// Like [`Ipv6Packet::new_checked`] for a packet that may be cut behind its header, as quoted in an ICMP error.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::BadVersion`].
    pub fn new_quoted(buffer: T) -> Result<Self> {
        require(LayerKind::Ipv6, HEADER_LENGTH, buffer.as_ref().len())?;
        let packet = Self { buffer };
        let found = u8_at(packet.bytes(), VERSION_CLASS_LABEL) >> 4;
        if found != 6 {
            return Err(Error::BadVersion { layer: LayerKind::Ipv6, offset: 0, expected: 6, found });
        }
        Ok(packet)
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub fn traffic_class(&self) -> u8 {
        (u32_at(self.bytes(), VERSION_CLASS_LABEL) >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.bytes(), VERSION_CLASS_LABEL) & 0xf_ffff
    }

    /// Payload Length in octets: everything behind this header, extension headers included.
    pub fn payload_length(&self) -> u16 {
        u16_at(self.bytes(), PAYLOAD_LENGTH)
    }

    /// Protocol number of what follows this header, see [`crate::layer::protocol`].
    pub fn next_header(&self) -> u8 {
        u8_at(self.bytes(), NEXT_HEADER)
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        u8_at(self.bytes(), HOP_LIMIT)
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        ipv6_at(self.bytes(), SOURCE)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        ipv6_at(self.bytes(), DESTINATION)
    }

    /// Octets of header and payload together, as the header gives them.
    pub fn total_length(&self) -> usize {
        HEADER_LENGTH + usize::from(self.payload_length())
    }

    /// Payload Length octets behind the header, or as many of them as were quoted.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_LENGTH, self.total_length())
    }

    /// The packet without octets behind its Payload Length.
    pub fn packet(&self) -> &[u8] {
        range(self.bytes(), 0, self.total_length())
    }

    /// Gives the buffer back.
    pub fn into_inner(self) -> T {
        self.buffer
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6Packet<T> {
    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, traffic_class: u8) {
        let word = u32_at(self.bytes(), VERSION_CLASS_LABEL) & 0xf00f_ffff | u32::from(traffic_class) << 20;
        set(self.buffer.as_mut(), VERSION_CLASS_LABEL, &word.to_be_bytes());
    }

    /// Sets the flow label to the lower 20 bits of `flow_label`.
    pub fn set_flow_label(&mut self, flow_label: u32) {
        let word = u32_at(self.bytes(), VERSION_CLASS_LABEL) & 0xfff0_0000 | flow_label & 0xf_ffff;
        set(self.buffer.as_mut(), VERSION_CLASS_LABEL, &word.to_be_bytes());
    }

    /// Sets the Payload Length in octets.
    pub fn set_payload_length(&mut self, length: u16) {
        set(self.buffer.as_mut(), PAYLOAD_LENGTH, &length.to_be_bytes());
    }

    /// Sets the Next Header.
    pub fn set_next_header(&mut self, next_header: u8) {
        set(self.buffer.as_mut(), NEXT_HEADER, &[next_header]);
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        set(self.buffer.as_mut(), HOP_LIMIT, &[hop_limit]);
    }

    /// Sets the source address. Checksums of upper layers are left as they are.
    pub fn set_source(&mut self, source: Ipv6Addr) {
        set(self.buffer.as_mut(), SOURCE, &source.octets());
    }

    /// Sets the destination address. Checksums of upper layers are left as they are.
    pub fn set_destination(&mut self, destination: Ipv6Addr) {
        set(self.buffer.as_mut(), DESTINATION, &destination.octets());
    }

    /// Mutable [`Ipv6Packet::payload`].
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = self.total_length();
        range_mut(self.buffer.as_mut(), HEADER_LENGTH, end)
    }
}

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Repr {
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Octets behind the header. The builder computes it.
    pub payload_length: u16,
    /// Protocol number of what follows. The builder sets it when it knows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Default for Ipv6Repr {
    /// Hop limit 64, no next header, everything else zero.
    fn default() -> Self {
        Self::new(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED)
    }
}

impl Ipv6Repr {
    /// A header between two addresses with hop limit 64, no next header and everything else zero.
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 0,
            next_header: protocol::NO_NEXT_HEADER,
            hop_limit: 64,
            source,
            destination,
        }
    }

    /// The header of `packet`.
    pub fn parse<T: AsRef<[u8]>>(packet: &Ipv6Packet<T>) -> Self {
        Self {
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            payload_length: packet.payload_length(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            source: packet.source(),
            destination: packet.destination(),
        }
    }

    /// Octets that [`Ipv6Repr::emit`] writes.
    pub const fn header_length(&self) -> usize {
        HEADER_LENGTH
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::ValueTooLarge`] for a flow label of more than 20 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        fits(LayerKind::Ipv6, "flow label", 0xf_ffff, self.flow_label.into())?;
        let buffer = room(LayerKind::Ipv6, buffer, HEADER_LENGTH)?;
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        set(buffer, VERSION_CLASS_LABEL, &word.to_be_bytes());
        set(buffer, PAYLOAD_LENGTH, &self.payload_length.to_be_bytes());
        set(buffer, NEXT_HEADER, &[self.next_header]);
        set(buffer, HOP_LIMIT, &[self.hop_limit]);
        set(buffer, SOURCE, &self.source.octets());
        set(buffer, DESTINATION, &self.destination.octets());
        Ok(())
    }
}
