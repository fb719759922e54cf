//! Writing pcapng: a section header, one interface description per port, one enhanced packet block per packet.
//! Only what a capture needs; little endian, nanoseconds.

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
const OPTION_COMMENT: u16 = 1;
const OPTION_IF_NAME: u16 = 2;
const OPTION_EPB_FLAGS: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
/// Timestamps count 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Which way a packet went, as the option epb_flags has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound = 1,
    /// Sent.
    Outbound = 2,
}

/// The section header block.
pub fn section() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes());
    body.extend(1u16.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    // The length of the section is not known.
    body.extend((-1i64).to_le_bytes());
    block(0x0a0d_0d0a, &body)
}

/// An interface description block. Interfaces are numbered from 0 in the order of their blocks.
pub fn interface(name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(ETHERNET.to_le_bytes());
    body.extend(0u16.to_le_bytes());
    // No limit on the octets of a packet.
    body.extend(0u32.to_le_bytes());
    option(&mut body, OPTION_IF_NAME, name.as_bytes());
    option(&mut body, OPTION_IF_TSRESOL, &[NANOSECONDS]);
    end_of_options(&mut body);
    block(1, &body)
}

/// An enhanced packet block: interface by its number, nanoseconds since 1970, the octets that were captured, and how
/// many there were.
pub fn packet(interface: u32, time: u64, bytes: &[u8], length: u32, direction: Direction, comment: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(64 + bytes.len());
    body.extend(interface.to_le_bytes());
    body.extend(((time >> 32) as u32).to_le_bytes());
    body.extend((time as u32).to_le_bytes());
    body.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(bytes);
    pad(&mut body);
    option(&mut body, OPTION_EPB_FLAGS, &(direction as u32).to_le_bytes());
    if !comment.is_empty() {
        option(&mut body, OPTION_COMMENT, comment.as_bytes());
    }
    end_of_options(&mut body);
    block(6, &body)
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(12 + body.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

/// Everything in pcapng is aligned to 32 bits.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks over blocks; checks both lengths of each.
    fn kinds(mut bytes: &[u8]) -> Vec<u32> {
        let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut kinds = Vec::new();
        while !bytes.is_empty() {
            let length = word(bytes, 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(bytes, length - 4) as usize, length);
            kinds.push(word(bytes, 0));
            bytes = &bytes[length..];
        }
        kinds
    }

    #[test]
    fn blocks_are_aligned_and_carry_their_length_twice() {
        let file = [
            section(),
            interface("eth0"),
            packet(0, 1, &[1, 2, 3], 99, Direction::Inbound, ""),
            packet(0, 2, &[], 0, Direction::Outbound, "drop_no_route"),
        ]
        .concat();
        assert_eq!(kinds(&file), [0x0a0d_0d0a, 1, 6, 6]);
    }

    #[test]
    fn time_is_high_word_first() {
        let bytes = packet(3, 0x1_0000_0002, &[], 0, Direction::Inbound, "");
        assert_eq!(bytes[8..20], [3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    }
}
