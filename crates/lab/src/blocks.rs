//! Packets of a pcapng stream as they come: what agents answer to `POST /v1/capture`.

use std::io::{self, Read};

/// A packet of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The port.
    pub port: String,
    /// Whether it left by it.
    pub outbound: bool,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// What was captured of the frame.
    pub frame: Vec<u8>,
}

/// Reads the stream that `segue-api` writes: little endian, nanoseconds, one block after the other.
#[derive(Debug)]
pub struct Blocks<R> {
    from: R,
    ports: Vec<String>,
}

const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// A block of more octets is none of ours.
const LONGEST: usize = 1 << 20;

impl<R: Read> Blocks<R> {
    /// Waits for the section header: from then on the agent captures.
    ///
    /// # Errors
    /// If the stream ends before.
    pub fn open(from: R) -> io::Result<Self> {
        let mut blocks = Self { from, ports: Vec::new() };
        blocks.block()?;
        Ok(blocks)
    }

    /// The next packet; none at the end of the stream.
    ///
    /// # Errors
    /// If it is cut off within a block, or is something else.
    pub fn next_packet(&mut self) -> io::Result<Option<Packet>> {
        loop {
            let Some((kind, body)) = self.block()? else { return Ok(None) };
            match kind {
                INTERFACE => self.ports.push(
                    option(body.get(8..).unwrap_or_default(), 2)
                        .map_or_else(String::new, |name| String::from_utf8_lossy(name).into_owned()),
                ),
                ENHANCED_PACKET => {
                    if let Some(packet) = self.packet(&body) {
                        return Ok(Some(packet));
                    }
                }
                _ => {}
            }
        }
    }

    fn packet(&self, body: &[u8]) -> Option<Packet> {
        let number = word(body, 0)? as usize;
        let time = u64::from(word(body, 4)?) << 32 | u64::from(word(body, 8)?);
        let captured = word(body, 12)? as usize;
        let frame = body.get(20..20usize.checked_add(captured)?)?.to_vec();
        let flags = option(body.get(20 + captured.next_multiple_of(4)..)?, 2).and_then(|flags| word(flags, 0));
        let port = self.ports.get(number).cloned().unwrap_or_else(|| number.to_string());
        Some(Packet { port, outbound: flags.unwrap_or_default() & 3 == 2, time, frame })
    }

    fn block(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut head = [0; 8];
        match self.from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let (kind, length) = (word(&head, 0).unwrap_or_default(), word(&head, 4).unwrap_or_default() as usize);
        if !(12..=LONGEST).contains(&length) {
            return Err(io::Error::other(format!("a block of {length} octets")));
        }
        let mut body = vec![0; length - 8];
        self.from.read_exact(&mut body)?;
        body.truncate(length - 12);
        Ok(Some((kind, body)))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The value of an option.
fn option(mut options: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(head) = options.get(..4) {
        let code = u16::from_le_bytes([head[0], head[1]]);
        let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if code == 0 {
            return None;
        }
        let value = options.get(4..4 + length)?;
        if code == wanted {
            return Some(value);
        }
        options = options.get(4 + length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use segue_api::pcap::pcapng::{Direction, interface, packet, section};

    use super::*;

    #[test]
    fn what_agents_write_is_read() {
        let stream = [
            section(),
            interface("eth0"),
            interface("eth1"),
            packet(1, 0x1_0000_0002, &[1, 2, 3], 3, Direction::Outbound, "forwarded"),
            packet(0, 7, &[], 0, Direction::Inbound, ""),
        ]
        .concat();
        let mut blocks = Blocks::open(stream.as_slice()).unwrap();
        let first = blocks.next_packet().unwrap().unwrap();
        let expected = Packet { port: "eth1".into(), outbound: true, time: 0x1_0000_0002, frame: vec![1, 2, 3] };
        assert_eq!(first, expected);
        assert!(!blocks.next_packet().unwrap().unwrap().outbound);
        assert_eq!(blocks.next_packet().unwrap(), None);
        for cut in 0..stream.len() {
            let Ok(mut blocks) = Blocks::open(&stream[..cut]) else { continue };
            while let Ok(Some(_)) = blocks.next_packet() {}
        }
    }
}
