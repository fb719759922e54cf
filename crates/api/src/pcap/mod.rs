//! Capture files of Ethernet frames: [reading](frames) classic pcap and pcapng, writing [pcapng], as captures go over the wire, and
//! [classic pcap](classic).
//!
//! The one place for it. A library (`pcap-file`) would bring a parser of all blocks and options for what takes this little.

pub mod pcapng;

/// Link type of Ethernet, in both formats.
const ETHERNET: u32 = 1;
/// Section header block of pcapng; reads the same in both byte orders.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Frames of a capture, in order, as captured (cut at the snap length).
///
/// # Errors
/// What is wrong with it, if it is no capture of Ethernet frames. A last frame that was cut off in the middle is left out: whoever
/// wrote the capture was ended while writing.
pub fn frames(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    match word(bytes, 0, false) {
        Some(SECTION) => pcapng(bytes),
        // Microseconds, then nanoseconds; each as written by this or the other byte order.
        Some(0xa1b2_c3d4 | 0xa1b2_3c4d) => pcap(bytes, false),
        Some(0xd4c3_b2a1 | 0x4d3c_b2a1) => pcap(bytes, true),
        Some(magic) => Err(format!("it starts with {magic:#010x}, which is neither pcap nor pcapng")),
        None if bytes.is_empty() => Err("it is empty".into()),
        None => Err("it is cut off before its header ends".into()),
    }
}

/// Frames as a classic capture file (pcap 2.4), one second apart.
#[must_use]
pub fn classic(frames: &[Vec<u8>]) -> Vec<u8> {
    const SNAP_LENGTH: u32 = 65_536;
    let mut bytes = Vec::new();
    let put = |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    put(&mut bytes, &[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, SNAP_LENGTH, ETHERNET]);
    for (second, frame) in (0_u32..).zip(frames) {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        put(&mut bytes, &[second, 0, length, length]);
        bytes.extend(frame);
    }
    bytes
}

fn word(bytes: &[u8], offset: usize, swapped: bool) -> Option<u32> {
    let four = bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?;
    let value = u32::from_le_bytes(four);
    Some(if swapped { value.swap_bytes() } else { value })
}

fn pcap(bytes: &[u8], swapped: bool) -> Result<Vec<Vec<u8>>, String> {
    let link = word(bytes, 20, swapped).ok_or("it is cut off before its header ends")?;
    check_link(link & 0xffff)?;
    let mut found = Vec::new();
    let mut offset = 24;
    while let Some(length) = word(bytes, offset + 8, swapped) {
        let start = offset + 16;
        let Some(frame) = bytes.get(start..).and_then(|rest| rest.get(..length as usize)) else { break };
        found.push(frame.to_vec());
        offset = start + frame.len();
    }
    Ok(found)
}

fn pcapng(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut found = Vec::new();
    let mut swapped = false;
    let mut rest = bytes;
    while rest.len() >= 12 {
        if word(rest, 0, false) == Some(SECTION) {
            swapped = match word(rest, 8, false) {
                Some(0x1a2b_3c4d) => false,
                Some(0x4d3c_2b1a) => true,
                _ => return Err("a section header has no byte-order magic".into()),
            };
        }
        let length = word(rest, 4, swapped).unwrap_or_default() as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return Err(format!("a block claims a length of {length} octets"));
        }
        let Some(block) = rest.get(..length) else { break };
        let body = &block[8..length - 4];
        match word(block, 0, swapped) {
            Some(INTERFACE) => {
                let link =
                    body.get(..2).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes).unwrap_or_default();
                check_link(u32::from(if swapped { link.swap_bytes() } else { link }))?;
            }
            Some(ENHANCED_PACKET) => {
                let captured = word(body, 12, swapped).unwrap_or_default() as usize;
                let frame =
                    body.get(20..).and_then(|data| data.get(..captured)).ok_or("a packet is longer than its block")?;
                found.push(frame.to_vec());
            }
            Some(SIMPLE_PACKET) => found.push(body.get(4..).unwrap_or_default().to_vec()),
            _ => {}
        }
        rest = &rest[length..];
    }
    Ok(found)
}

fn check_link(link: u32) -> Result<(), String> {
    if link == ETHERNET { Ok(()) } else { Err(format!("its link type is {link}, not Ethernet (1)")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcap_file(swapped: bool) -> Vec<u8> {
        let put = |value: u32| if swapped { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes = Vec::new();
        for value in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1] {
            bytes.extend(put(value));
        }
        for frame in [&b"first"[..], b"second!"] {
            let length = u32::try_from(frame.len()).unwrap();
            for value in [1, 2, length, length + 100] {
                bytes.extend(put(value));
            }
            bytes.extend(frame);
        }
        bytes
    }

    fn pcapng_file() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let padded = body.len().div_ceil(4) * 4;
            let length = u32::try_from(padded + 12).unwrap().to_le_bytes();
            bytes.extend(kind.to_le_bytes());
            bytes.extend(length);
            bytes.extend(body);
            bytes.resize(bytes.len() + padded - body.len(), 0);
            bytes.extend(length);
        };
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        block(SECTION, &section);
        block(INTERFACE, &[1, 0, 0, 0, 0, 0, 0, 0]);
        let mut packet = vec![0; 20];
        packet[12] = 5;
        packet[16] = 9;
        packet.extend(b"hello");
        block(ENHANCED_PACKET, &packet);
        block(0xbad, b"other");
        bytes
    }

    #[test]
    fn classic_in_both_byte_orders() {
        for swapped in [false, true] {
            assert_eq!(frames(&pcap_file(swapped)).unwrap(), [b"first".to_vec(), b"second!".to_vec()]);
        }
    }

    #[test]
    fn next_generation() {
        assert_eq!(frames(&pcapng_file()).unwrap(), [b"hello".to_vec()]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let wanted = [b"first".to_vec(), Vec::new(), b"third!".to_vec()];
        assert_eq!(frames(&classic(&wanted)).unwrap(), wanted);
        let packets = wanted.iter().map(|frame| {
            let length = u32::try_from(frame.len()).unwrap();
            pcapng::packet(0, 1, frame, length, pcapng::Direction::Inbound, "forwarded")
        });
        let file: Vec<u8> =
            [pcapng::section(), pcapng::interface("eth0")].into_iter().chain(packets).flatten().collect();
        assert_eq!(frames(&file).unwrap(), wanted);
    }

    #[test]
    fn cut_anywhere_never_panics_and_never_invents_frames() {
        for (file, whole) in [(pcap_file(false), 2), (pcapng_file(), 1)] {
            for cut in 0..file.len() {
                if let Ok(found) = frames(&file[..cut]) {
                    assert!(found.len() <= whole);
                }
            }
            for position in 0..file.len() {
                let mut broken = file.clone();
                broken[position] ^= 0xff;
                let _ = frames(&broken);
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        assert!(frames(b"").is_err());
        assert!(frames(b"GET / HTTP/1.0").unwrap_err().contains("neither"));
        let mut raw = pcap_file(false);
        raw[20] = 101;
        assert!(frames(&raw).unwrap_err().contains("link type is 101"));
    }
}
