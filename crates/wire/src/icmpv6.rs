//! ICMP for IPv6 (RFC 4443; Parameter Problem codes of RFC 7112 and RFC 8754).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |     Type      |     Code      |           Checksum            |
//! +---------------+---------------+-------------------------------+
//! |       Unused, MTU, Pointer, or Identifier and Sequence        |
//! +---------------------------------------------------------------+
//! |          Echo data, or as much of the invoking packet         |
//! |            as fits with the headers into 1280 octets          |
//! +---------------------------------------------------------------+
//! ```

use crate::checksum::PseudoHeader;
use crate::error::{Error, Result, require, room};
use crate::field::{range, set, u8_at, u16_at, u32_at};
use crate::layer::LayerKind;
use alloc::vec::Vec;

const TYPE: usize = 0;
const CODE: usize = 1;
/// Offset of the Checksum field.
pub const CHECKSUM: usize = 2;
const REST: usize = 4;

/// Length of the ICMPv6 header in octets, with the four that depend on the type.
pub const HEADER_LENGTH: usize = 8;

/// Most octets of an invoking packet that an error quotes: what 1280 octets leave behind an IPv6 and an ICMPv6 header
/// (RFC 4443 section 2.4(c)).
pub const MAX_QUOTED_LENGTH: usize = 1280 - crate::ipv6::HEADER_LENGTH - HEADER_LENGTH;

/// ICMPv6 types.
pub mod message_type {
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
}

/// Codes of Parameter Problem.
pub mod parameter_problem {
    /// Erroneous header field (RFC 4443).
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// Unrecognised Next Header (RFC 4443).
    pub const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
    /// Unrecognised IPv6 option (RFC 4443).
    pub const UNRECOGNIZED_OPTION: u8 = 2;
    /// First fragment with an incomplete header chain (RFC 7112).
    pub const INCOMPLETE_HEADER_CHAIN: u8 = 3;
    /// SR upper-layer header error (RFC 8754).
    pub const SR_UPPER_LAYER_HEADER: u8 = 4;
}

/// Checked view of an ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6Message<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Icmpv6Message<T> {
    /// A view of `buffer`, which must be one message as its IPv6 header delimits it. The checksum is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(LayerKind::Icmpv6, HEADER_LENGTH, buffer.as_ref().len())?;
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

    /// Whether this is an error message: type below 128 (RFC 4443 section 2.1).
    pub fn is_error(&self) -> bool {
        self.message_type() < 128
    }

    /// The four octets behind the checksum: MTU of a Packet Too Big, Pointer of a Parameter Problem.
    pub fn word(&self) -> u32 {
        u32_at(self.bytes(), REST)
    }

    /// Everything behind the checksum: at least four octets.
    pub fn body(&self) -> &[u8] {
        range(self.bytes(), REST, usize::MAX)
    }

    /// Everything behind the 8-octet header: echo data or the invoking packet.
    pub fn payload(&self) -> &[u8] {
        range(self.bytes(), HEADER_LENGTH, usize::MAX)
    }

    /// Whether the checksum is right under `pseudo_header`.
    pub fn verify_checksum(&self, pseudo_header: &PseudoHeader) -> bool {
        pseudo_header.checksum(self.bytes()) == 0
    }
}

/// An ICMPv6 message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Icmpv6Repr {
    /// Destination unreachable. `packet` is the start of the invoking packet, here and below.
    DestinationUnreachable { code: u8, packet: Vec<u8> },
    /// Packet too big; the MTU of the next hop in octets.
    PacketTooBig { mtu: u32, packet: Vec<u8> },
    /// Time exceeded: code 0 hop limit, code 1 reassembly time.
    TimeExceeded { code: u8, packet: Vec<u8> },
    /// Parameter problem; the pointer counts octets from the start of the invoking packet.
    ParameterProblem { code: u8, pointer: u32, packet: Vec<u8> },
    /// Echo request.
    EchoRequest { identifier: u16, sequence_number: u16, data: Vec<u8> },
    /// Echo reply.
    EchoReply { identifier: u16, sequence_number: u16, data: Vec<u8> },
    /// Any other message, with everything behind the checksum: at least four octets.
    Other { message_type: u8, code: u8, body: Vec<u8> },
}

impl Icmpv6Repr {
    /// As much of an invoking packet as an error may quote.
    pub fn quote(packet: &[u8]) -> &[u8] {
        range(packet, 0, MAX_QUOTED_LENGTH)
    }

    /// The representation of `message`. A message with unused octets that are not zero, or with a code where the type
    /// has none, is [`Icmpv6Repr::Other`].
    ///
    /// # Errors
    /// [`Error::BadChecksum`].
    pub fn parse<T: AsRef<[u8]>>(message: &Icmpv6Message<T>, pseudo_header: &PseudoHeader) -> Result<Self> {
        if !message.verify_checksum(pseudo_header) {
            let bytes = message.bytes();
            let sum = pseudo_header.sum(bytes.len()).add_bytes(range(bytes, 0, CHECKSUM));
            let (expected, found) = (sum.add_bytes(message.body()).finish(), message.checksum());
            return Err(Error::BadChecksum { layer: LayerKind::Icmpv6, offset: CHECKSUM, expected, found });
        }
        let (message_type, code, word) = (message.message_type(), message.code(), message.word());
        let (identifier, sequence_number) = (u16_at(message.body(), 0), u16_at(message.body(), 2));
        let rest = || message.payload().to_vec();
        Ok(match (message_type, code) {
            (message_type::DESTINATION_UNREACHABLE, code) if word == 0 => {
                Self::DestinationUnreachable { code, packet: rest() }
            }
            (message_type::PACKET_TOO_BIG, 0) => Self::PacketTooBig { mtu: word, packet: rest() },
            (message_type::TIME_EXCEEDED, code) if word == 0 => Self::TimeExceeded { code, packet: rest() },
            (message_type::PARAMETER_PROBLEM, code) => Self::ParameterProblem { code, pointer: word, packet: rest() },
            (message_type::ECHO_REQUEST, 0) => Self::EchoRequest { identifier, sequence_number, data: rest() },
            (message_type::ECHO_REPLY, 0) => Self::EchoReply { identifier, sequence_number, data: rest() },
            _ => Self::Other { message_type, code, body: message.body().to_vec() },
        })
    }

    /// Type, code, the word behind the checksum, and the rest.
    fn parts(&self) -> (u8, u8, u32, &[u8]) {
        let echo = |identifier: u16, number: u16| u32::from(identifier) << 16 | u32::from(number);
        match self {
            Self::DestinationUnreachable { code, packet } => (message_type::DESTINATION_UNREACHABLE, *code, 0, packet),
            Self::PacketTooBig { mtu, packet } => (message_type::PACKET_TOO_BIG, 0, *mtu, packet),
            Self::TimeExceeded { code, packet } => (message_type::TIME_EXCEEDED, *code, 0, packet),
            Self::ParameterProblem { code, pointer, packet } => {
                (message_type::PARAMETER_PROBLEM, *code, *pointer, packet)
            }
            Self::EchoRequest { identifier, sequence_number, data } => {
                (message_type::ECHO_REQUEST, 0, echo(*identifier, *sequence_number), data)
            }
            Self::EchoReply { identifier, sequence_number, data } => {
                (message_type::ECHO_REPLY, 0, echo(*identifier, *sequence_number), data)
            }
            Self::Other { message_type, code, body } => {
                (*message_type, *code, u32_at(body, 0), range(body, 4, usize::MAX))
            }
        }
    }

    /// Octets that [`Icmpv6Repr::emit`] writes: the whole message.
    pub fn length(&self) -> usize {
        HEADER_LENGTH + self.parts().3.len()
    }

    /// Writes the message with its checksum to the start of `buffer`. A body of fewer than four octets is written as
    /// four zero octets.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn emit(&self, buffer: &mut [u8], pseudo_header: &PseudoHeader) -> Result<()> {
        let (message_type, code, word, rest) = self.parts();
        let buffer = room(LayerKind::Icmpv6, buffer, HEADER_LENGTH + rest.len())?;
        set(buffer, TYPE, &[message_type, code]);
        set(buffer, REST, &word.to_be_bytes());
        set(buffer, HEADER_LENGTH, rest);
        let sum = pseudo_header.checksum(buffer);
        set(buffer, CHECKSUM, &sum.to_be_bytes());
        Ok(())
    }
}
