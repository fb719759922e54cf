//! ICMP for IPv4 (RFC 792; next-hop MTU of RFC 1191).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |     Type      |     Code      |           Checksum            |
//! +---------------+---------------+-------------------------------+
//! |      four octets whose meaning depends on type and code       |
//! +---------------------------------------------------------------+
//! ```

use crate::checksum::{Checksum, checksum};
use crate::error::{Error, Result, require, room};
use crate::field::{range, set, u8_at, u16_at};
use crate::layer::LayerKind;
use alloc::vec::Vec;

const TYPE: usize = 0;
const CODE: usize = 1;
/// Offset of the Checksum field.
pub const CHECKSUM: usize = 2;
const REST: usize = 4;

/// Length of the ICMP header in octets, with the four that depend on the type.
pub const HEADER_LENGTH: usize = 8;

/// ICMP types.
pub mod message_type {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
}

/// Code of Destination Unreachable: fragmentation needed and DF set.
pub const FRAGMENTATION_NEEDED: u8 = 4;

/// Checked view of an ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv4Message<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Icmpv4Message<T> {
    /// A view of `buffer`, which must be one message as its IP header delimits it. The checksum is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(LayerKind::Icmpv4, HEADER_LENGTH, buffer.as_ref().len())?;
        Ok(Self { buffer })
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    /// Type, see [`message_type`].
    pub fn message_type(&self) -> u8 {
        u8_at(self.bytes(), TYPE)
    }

    /// Code within the type.
    pub fn code(&self) -> u8 {
        u8_at(self.bytes(), CODE)
    }

    /// Checksum as it stands in the message.
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), CHECKSUM)
    }

    /// Everything behind the checksum: at least four octets.
    pub fn body(&self) -> &[u8] {
        range(self.bytes(), REST, usize::MAX)
    }

    /// Everything behind the 8-octet header: echo data or the quoted packet.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_LENGTH, usize::MAX)
    }

    /// Whether the checksum is right.
    pub fn verify_checksum(&self) -> bool {
        checksum(self.bytes()) == 0
    }
}

/// An ICMP message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Icmpv4Repr {
    /// Echo request.
    #[allow(missing_docs)]
    EchoRequest { identifier: u16, sequence_number: u16, data: Vec<u8> },
    /// Echo reply.
    #[allow(missing_docs)]
    EchoReply { identifier: u16, sequence_number: u16, data: Vec<u8> },
    /// Destination unreachable. `next_hop_mtu` in octets is not 0 only with code 4. `packet` is the start of the packet
    /// in question.
    #[allow(missing_docs)]
    DestinationUnreachable { code: u8, next_hop_mtu: u16, packet: Vec<u8> },
    /// Time exceeded.
    #[allow(missing_docs)]
    TimeExceeded { code: u8, packet: Vec<u8> },
    /// Any other message, with everything behind the checksum: at least four octets.
    #[allow(missing_docs)]
    Other { message_type: u8, code: u8, body: Vec<u8> },
}

impl Icmpv4Repr {
    /// The representation of `message`. A message with unused octets that are not zero is [`Icmpv4Repr::Other`].
    ///
    /// # Errors
    /// [`Error::BadChecksum`].
    pub fn parse<T: AsRef<[u8]>>(message: &Icmpv4Message<T>) -> Result<Self> {
        if !message.verify_checksum() {
            let bytes = message.bytes();
            let expected = Checksum::new().add_bytes(range(bytes, 0, CHECKSUM)).add_bytes(message.body()).finish();
            let (layer, found) = (LayerKind::Icmpv4, message.checksum());
            return Err(Error::BadChecksum { layer, offset: CHECKSUM, expected, found });
        }
        let (message_type, code) = (message.message_type(), message.code());
        let (first, second) = (u16_at(message.body(), 0), u16_at(message.body(), 2));
        let rest = || message.payload().to_vec();
        Ok(match (message_type, code) {
            (message_type::ECHO_REQUEST, 0) => {
                Self::EchoRequest { identifier: first, sequence_number: second, data: rest() }
            }
            (message_type::ECHO_REPLY, 0) => {
                Self::EchoReply { identifier: first, sequence_number: second, data: rest() }
            }
            (message_type::DESTINATION_UNREACHABLE, code)
                if first == 0 && (second == 0 || code == FRAGMENTATION_NEEDED) =>
            {
                Self::DestinationUnreachable { code, next_hop_mtu: second, packet: rest() }
            }
            (message_type::TIME_EXCEEDED, code) if first == 0 && second == 0 => {
                Self::TimeExceeded { code, packet: rest() }
            }
            _ => Self::Other { message_type, code, body: message.body().to_vec() },
        })
    }

    /// Type, code, the four octets behind the checksum, and the rest.
    fn parts(&self) -> (u8, u8, [u8; 4], &[u8]) {
        let pair = |a: u16, b: u16| {
            let ([a0, a1], [b0, b1]) = (a.to_be_bytes(), b.to_be_bytes());
            [a0, a1, b0, b1]
        };
        match self {
            Self::EchoRequest { identifier, sequence_number, data } => {
                (message_type::ECHO_REQUEST, 0, pair(*identifier, *sequence_number), data)
            }
            Self::EchoReply { identifier, sequence_number, data } => {
                (message_type::ECHO_REPLY, 0, pair(*identifier, *sequence_number), data)
            }
            Self::DestinationUnreachable { code, next_hop_mtu, packet } => {
                (message_type::DESTINATION_UNREACHABLE, *code, pair(0, *next_hop_mtu), packet)
            }
            Self::TimeExceeded { code, packet } => (message_type::TIME_EXCEEDED, *code, [0; 4], packet),
            Self::Other { message_type, code, body } => {
                let (word, rest) = body.split_first_chunk::<4>().map_or(([0; 4], &[][..]), |(w, r)| (*w, r));
                (*message_type, *code, word, rest)
            }
        }
    }

    /// Octets that [`Icmpv4Repr::emit`] writes: the whole message.
    pub fn length(&self) -> usize {
        HEADER_LENGTH + self.parts().3.len()
    }

    /// Writes the message with its checksum to the start of `buffer`. A body of fewer than four octets is written as
    /// four zero octets.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let (message_type, code, word, rest) = self.parts();
        let buffer = room(LayerKind::Icmpv4, buffer, HEADER_LENGTH + rest.len())?;
        set(buffer, TYPE, &[message_type, code]);
        set(buffer, REST, &word);
        set(buffer, HEADER_LENGTH, rest);
        let sum = checksum(buffer);
        set(buffer, CHECKSUM, &sum.to_be_bytes());
        Ok(())
    }
}
