//! What frames say that the data plane has made.

/// Version, protocol and what identifies the message: ICMP type and code, or the flags of TCP.
pub type Message = (u8, u8, [u8; 2]);

pub const ICMP: u8 = 1;
pub const ICMPV6: u8 = 58;
/// IPv4, IPv6: here and below.
pub const TIME_EXCEEDED: [Message; 2] = [(4, ICMP, [11, 0]), (6, ICMPV6, [3, 0])];
pub const TOO_BIG: [Message; 2] = [(4, ICMP, [3, 4]), (6, ICMPV6, [2, 0])];

/// The message of a frame without VLAN tags, IPv4 options or extension headers.
pub fn message(frame: &[u8]) -> Option<Message> {
    let word = |at: usize| Some([*frame.get(at)?, *frame.get(at + 1)?]);
    match word(12)? {
        [0x08, 0x00] if *frame.get(23)? == 6 => Some((4, 6, [*frame.get(47)?, 0])),
        [0x08, 0x00] => Some((4, *frame.get(23)?, word(34)?)),
        [0x86, 0xdd] if *frame.get(20)? == 6 => Some((6, 6, [*frame.get(67)?, 0])),
        [0x86, 0xdd] => Some((6, *frame.get(20)?, word(54)?)),
        _ => None,
    }
}
