//! What a source's packets are made of: a mark, a number, when it was sent, and octets that follow from the number; and echo messages around it.

use segue_model::topology::SIZE_MIN;

/// What each message begins with.
const MARK: [u8; 8] = *b"SegueLab";
/// The number of what only finds out whether there is a way.
pub const PROBE: u64 = u64::MAX;
/// Octets of an echo message's header.
pub const ECHO: usize = 8;

/// A message that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Its number, from 0; or [`PROBE`].
    pub number: u64,
    /// When it was sent, nanoseconds of the machine's monotonic clock.
    pub sent: u64,
    /// Whether all that follows is as it was sent, and as much.
    pub whole: bool,
}

/// The message with a number, of so many octets; of the least ones if that is fewer.
#[must_use]
pub fn make(number: u64, sent: u64, size: usize) -> Vec<u8> {
    let mut message = [&MARK[..], &number.to_be_bytes(), &sent.to_be_bytes()].concat();
    let least = message.len();
    message.extend((least..size.max(least)).map(|at| filler(number, at)));
    message
}

/// The octet at a place: not the same everywhere, so that what is put together wrongly shows.
fn filler(number: u64, at: usize) -> u8 {
    let at = at as u64;
    (number.wrapping_mul(31) ^ at ^ (at >> 8)).to_le_bytes()[0]
}

/// The message in some octets; none: they are no message. `size` is how many a source's messages have.
#[must_use]
pub fn read(octets: &[u8], size: usize) -> Option<Message> {
    let rest = octets.strip_prefix(&MARK)?;
    let number = u64::from_be_bytes(*rest.first_chunk()?);
    let sent = u64::from_be_bytes(*rest.get(8..)?.first_chunk()?);
    let least = SIZE_MIN as usize;
    let filled = octets.iter().enumerate().skip(least).all(|(at, octet)| *octet == filler(number, at));
    Some(Message { number, sent, whole: octets.len() == size.max(least) && filled })
}

/// An echo request around a message. The kernel makes the checksum of ICMPv6.
#[must_use]
pub fn echo_request(ipv6: bool, identifier: u16, message: &[u8]) -> Vec<u8> {
    let kind = if ipv6 { 128 } else { 8 };
    let sequence = message.get(14..16).unwrap_or_default();
    let mut octets = [&[kind, 0, 0, 0], &identifier.to_be_bytes()[..], sequence, message].concat();
    if !ipv6 {
        let sum = segue_wire::checksum::checksum(&octets);
        octets[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    octets
}

/// What is in an echo reply with this identifier, from the network layer on with IPv4, from ICMPv6 on with IPv6.
#[must_use]
pub fn echo_reply(ipv6: bool, identifier: u16, octets: &[u8]) -> Option<&[u8]> {
    let (kind, octets) = match ipv6 {
        true => (129, octets),
        false => (0, octets.get(usize::from(octets.first()? & 15) * 4..)?),
    };
    let ours = *octets.first()? == kind && octets.get(4..6)? == identifier.to_be_bytes();
    if ours { octets.get(ECHO..) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_made() {
        for size in [0, 24, 25, 100, 1400] {
            for number in [0, 1, 70_000, PROBE] {
                let message = make(number, 77, size);
                assert_eq!(message.len(), size.max(24));
                assert_eq!(read(&message, size), Some(Message { number, sent: 77, whole: true }));
            }
        }
    }

    #[test]
    fn what_is_changed_cut_or_foreign_is_seen() {
        let message = make(5, 1, 100);
        for at in 24..100 {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert!(!read(&changed, 100).unwrap().whole, "octet {at}");
        }
        assert!(!read(&message[..99], 100).unwrap().whole);
        assert!(!read(&[&message[..], b"x"].concat(), 100).unwrap().whole);
        assert_eq!(read(&message[..23], 100), None);
        assert_eq!(read(b"", 24), None);
        assert_eq!(read(&[b"Another!", &message[8..]].concat(), 100), None);
    }

    #[test]
    fn echoes_are_told_by_their_identifier() {
        let message = make(3, 1, 40);
        let mut reply = echo_request(true, 7, &message);
        assert_eq!(echo_reply(true, 7, &reply), None, "a request");
        reply[0] = 129;
        assert_eq!(echo_reply(true, 7, &reply), Some(&message[..]));
        assert_eq!(echo_reply(true, 8, &reply), None);
        let mut reply = echo_request(false, 7, &message);
        // The sum over a message with its checksum is nothing.
        assert_eq!(segue_wire::checksum::checksum(&reply), 0);
        reply[0] = 0;
        let packet = [&[0x45; 20][..], &reply].concat();
        assert_eq!(echo_reply(false, 7, &packet), Some(&message[..]));
        for length in 0..packet.len() {
            let _ = echo_reply(false, 7, &packet[..length]);
            let _ = echo_reply(true, 7, &packet[..length]);
        }
    }
}
