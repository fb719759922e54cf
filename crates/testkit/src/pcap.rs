//! Capture files.

use std::path::Path;

/// Writes frames with an Ethernet header as a capture file (pcap 2.4), one second apart.
///
/// # Panics
///
/// When the file cannot be written.
pub fn write(path: &Path, frames: &[Vec<u8>]) {
    const ETHERNET: u32 = 1;
    let mut bytes = Vec::new();
    let mut put = |words: &[u32]| words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    put(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_536, ETHERNET]);
    for (second, frame) in (0_u32..).zip(frames) {
        let length = frame.len() as u32;
        for word in [second, 0, length, length] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
