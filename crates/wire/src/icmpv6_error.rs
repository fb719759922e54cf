//! ICMPv6 errors that a node owes for a packet.

/// What a node says to the source of a packet that it discards (RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icmpv6Error {
    /// ICMPv6 type, for example 4 for Parameter Problem.
    pub message_type: u8,
    /// ICMPv6 code within the type.
    pub code: u8,
    /// For Parameter Problem: octets from the first octet of the IPv6 header to the faulty field. Else 0.
    pub pointer: u32,
}

impl Icmpv6Error {
    /// A Parameter Problem (type 4, RFC 4443 section 3.4) that points `pointer` octets into the IPv6 packet.
    pub fn parameter_problem(code: u8, pointer: usize) -> Self {
        Self { message_type: 4, code, pointer: u32::try_from(pointer).unwrap_or(u32::MAX) }
    }
}
