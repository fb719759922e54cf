//! Dictionaries of Zstandard: what packets of one sort have in common, known to both sides.

use segue_service::BuildError;
use segue_wire::ipcomp::cpi;
use segue_wire::parse_as_far_as_possible;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The first compression parameter index that stands for a dictionary; all above do too.
pub const FIRST_CPI: u16 = cpi::FIRST_PRIVATE + 0x100;

/// What a dictionary's first octets are (RFC 8878 section 5).
const MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();

/// Octets of a dictionary if nobody says otherwise.
pub const DEFAULT_SIZE: usize = 64 * 1024;

/// Largest dictionary that is taken, in octets.
pub const LARGEST: usize = 4 << 20;

/// Why octets are no dictionary, or samples make none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// They do not begin as one.
    #[error("this is no Zstandard dictionary: it does not begin with its magic number 37 a4 30 ec")]
    NoDictionary,
    /// More than [`LARGEST`].
    #[error("a dictionary of {0} octets is larger than {LARGEST}, the most that is taken")]
    TooLarge(usize),
    /// The library makes none of these samples.
    #[error("no dictionary can be made of {samples} packets with {octets} octets: {reason}")]
    Training {
        /// How many samples there were.
        samples: usize,
        /// Octets of all of them.
        octets: usize,
        /// What the library says.
        reason: String,
    },
}

/// A dictionary with its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dictionary {
    octets: Vec<u8>,
    cpi: u16,
}

impl Dictionary {
    /// A dictionary from its octets.
    ///
    /// # Errors
    /// [`DictionaryError::NoDictionary`], [`DictionaryError::TooLarge`].
    pub fn new(octets: Vec<u8>) -> Result<Self, DictionaryError> {
        if octets.len() > LARGEST {
            return Err(DictionaryError::TooLarge(octets.len()));
        }
        if !octets.starts_with(&MAGIC) {
            return Err(DictionaryError::NoDictionary);
        }
        let cpi = identity(&octets);
        Ok(Self { octets, cpi })
    }

    /// A dictionary of at most `size` octets, trained on samples: what is behind the steering header of packets, one each.
    /// Packets like those that it will be used for, 100 times as many octets as the dictionary has.
    ///
    /// # Errors
    /// [`DictionaryError::Training`] if there are too few, or they have nothing in common.
    pub fn train<S: AsRef<[u8]>>(samples: &[S], size: usize) -> Result<Self, DictionaryError> {
        let octets = samples.iter().map(|sample| sample.as_ref().len()).sum();
        let failed = |reason: String| DictionaryError::Training { samples: samples.len(), octets, reason };
        // The library reads a number of samples before it looks whether there is one.
        if octets < 8 || samples.len() < 8 {
            return Err(failed("at least 8 packets are needed, and hundreds to be of use".to_owned()));
        }
        let trained =
            zstd::dict::from_samples(samples, size.min(LARGEST)).map_err(|error| failed(error.to_string()))?;
        Self::new(trained)
    }

    /// Its octets.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The compression parameter index that stands for it: made of all its octets, the same wherever it is loaded. Two dictionaries fall
    /// together once in 3,840 times; who loads both on one node is told so.
    #[must_use]
    pub fn cpi(&self) -> u16 {
        self.cpi
    }
}

/// The dictionary in a file.
///
/// # Errors
/// What is wrong with the file.
pub fn load(path: &Path) -> Result<Dictionary, BuildError> {
    let failed = |error: String| BuildError {
        what: format!("the dictionary {} cannot be used: {error}", path.display()),
        remedy: "name a file that `segue service compress train` has written".to_owned(),
    };
    let mut octets = Vec::new();
    // One octet more than is taken, so that a larger file is noticed and not read.
    let read = File::open(path).and_then(|file| file.take(LARGEST as u64 + 1).read_to_end(&mut octets));
    read.map_err(|error| failed(error.to_string()))?;
    Dictionary::new(octets).map_err(|error| failed(error.to_string()))
}

/// What a dictionary is trained on, out of the Ethernet frames of a capture: what is behind the outer IPv6 header of steered packets, and whole IP
/// packets where a frame is not steered (they will be behind a steering header). Frames of anything else give nothing.
#[must_use]
pub fn samples(frames: &[Vec<u8>]) -> Vec<&[u8]> {
    let sample = |frame: &'_ Vec<u8>| {
        let (layers, _) = parse_as_far_as_possible(frame);
        let layer = match layers.srh() {
            Some(srh) => layers.as_slice().iter().find(|layer| layer.offset >= srh.offset + srh.length),
            None => layers.outer_ip(),
        };
        layer.map(|layer| layer.offset..layer.end)
    };
    frames.iter().filter_map(|frame| sample(frame).and_then(|range| frame.get(range))).collect()
}

fn identity(octets: &[u8]) -> u16 {
    let digest = Sha256::digest(octets);
    let word = digest.first_chunk::<4>().map_or(0, |first| u32::from_be_bytes(*first));
    let range = u32::from(u16::MAX - FIRST_CPI) + 1;
    FIRST_CPI + (word % range) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, UdpRepr};

    #[test]
    fn octets_that_are_none_are_refused() {
        assert_eq!(Dictionary::new(b"text".to_vec()), Err(DictionaryError::NoDictionary));
        assert_eq!(Dictionary::new(vec![0; LARGEST + 1]), Err(DictionaryError::TooLarge(LARGEST + 1)));
        let none: [&[u8]; 0] = [];
        assert!(matches!(Dictionary::train(&none, 1000), Err(DictionaryError::Training { samples: 0, .. })));
    }

    #[test]
    fn samples_are_what_is_behind_the_steering_header() {
        let inner =
            PacketBuilder::new().ipv4(Ipv4Repr::default()).udp(UdpRepr::new(1, 2)).payload(b"some text").build();
        let ethernet = || PacketBuilder::ethernet([2; 6], [4; 6]);
        let plain = ethernet().ipv4(Ipv4Repr::default()).udp(UdpRepr::new(1, 2)).payload(b"some text").build();
        let arp = ethernet().payload(&[1; 40]).build();
        let path = [std::net::Ipv6Addr::LOCALHOST; 2];
        let outer = ethernet().ipv6(Ipv6Repr::default()).srh(SrhRepr::new(&path));
        let steered = outer.inner_ipv4(Ipv4Repr::default()).udp(UdpRepr::new(1, 2)).payload(b"some text").build();
        assert_eq!(samples(&[plain, arp, steered]), [&inner[..], &inner[..]]);
    }

    #[test]
    fn identities_are_in_the_range_of_dictionaries_and_follow_from_the_content() {
        let with = |last: u8| Dictionary::new([&MAGIC[..], &[0, 0, last]].concat()).unwrap().cpi();
        let all: std::collections::BTreeSet<_> = (0..=255).map(with).collect();
        assert!(all.len() > 200, "{}", all.len());
        assert!(all.iter().all(|cpi| *cpi >= FIRST_CPI));
        assert_eq!(with(7), with(7));
    }
}
