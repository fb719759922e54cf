//! One packet in, fewer octets out, and back.

use super::{Algorithm, Dictionary, dictionary, lzo};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use std::io;

/// Magic number of a Zstandard frame (RFC 8878 section 3.1.1). It says what the CPI has said already, so it does not travel.
const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// Octets of the largest payload of an IP packet, and so of the largest input.
const LARGEST_INPUT: usize = u16::MAX as usize;
/// Octets that hold whatever DEFLATE makes of the largest input: at most nine bits for an octet, and the frames of blocks.
const LARGEST_DEFLATED: usize = LARGEST_INPUT + LARGEST_INPUT / 8 + 512;

enum Engine {
    Lz4(CompressTable),
    Lzo(Box<lzokay_native::Dict>),
    /// With its level.
    Deflate(Box<Compress>, u32),
    Zstd(zstd::bulk::Compressor<'static>),
}

/// Compresses packets, each for itself.
pub struct Encoder {
    engine: Engine,
    cpi: u16,
    output: Vec<u8>,
}

impl Encoder {
    /// An encoder. `level`: one of [`Algorithm::levels`], or its default. A dictionary is only for Zstandard; others ignore it.
    ///
    /// # Errors
    /// Those of the Zstandard library when it cannot take a parameter or the dictionary.
    pub fn new(algorithm: Algorithm, level: Option<i32>, dictionary: Option<&Dictionary>) -> io::Result<Self> {
        let level = level.unwrap_or(algorithm.default_level());
        let engine = match algorithm {
            Algorithm::Lz4 => Engine::Lz4(CompressTable::default()),
            Algorithm::Lzo => Engine::Lzo(Box::new(lzokay_native::Dict::new())),
            Algorithm::Deflate => {
                let level = u32::try_from(level).unwrap_or_default();
                Engine::Deflate(Box::new(deflater(level)), level)
            }
            Algorithm::Zstd => Engine::Zstd(zstd_encoder(level, dictionary)?),
        };
        let dictionary = dictionary.filter(|_| algorithm == Algorithm::Zstd);
        let cpi = dictionary.map_or(algorithm.cpi(), Dictionary::cpi);
        let room = get_maximum_output_size(LARGEST_INPUT).max(LARGEST_DEFLATED);
        Ok(Self { engine, cpi, output: vec![0; room] })
    }

    /// The compression parameter index of what it makes.
    #[must_use]
    pub fn cpi(&self) -> u16 {
        self.cpi
    }

    /// `input` compressed to fewer than `limit` octets, or nothing: it does not become so small, or is longer than an IP packet's payload.
    pub fn encode(&mut self, input: &[u8], limit: usize) -> Option<&[u8]> {
        if input.is_empty() || input.len() > LARGEST_INPUT {
            return None;
        }
        let wanted = limit.saturating_sub(1).min(self.output.len());
        let length = match &mut self.engine {
            Engine::Lz4(table) => compress_into_with_table(input, &mut self.output, table).ok()?,
            Engine::Lzo(table) => {
                let output = lzokay_native::compress_with_dict(input, table).ok()?;
                self.output.get_mut(..output.len())?.copy_from_slice(&output);
                output.len()
            }
            Engine::Deflate(stream, level) => {
                stream.reset();
                // All the room that there is, not only what is wanted: a stream that could not write all that it had does not become as
                // new by a reset. Some of its buffer stays taken, until a later packet finds none and zlib-rs 0.6 panics.
                let status = stream.compress(input, &mut self.output, FlushCompress::Finish);
                if !matches!(status, Ok(Status::StreamEnd)) {
                    **stream = deflater(*level);
                    return None;
                }
                usize::try_from(stream.total_out()).ok()?
            }
            Engine::Zstd(context) => {
                let room = self.output.get_mut(..wanted + ZSTD_MAGIC.len())?;
                let length = context.compress_to_buffer(input, room).ok()?;
                return self.output.get(ZSTD_MAGIC.len()..length).filter(|output| output.len() <= wanted);
            }
        };
        self.output.get(..length).filter(|output| output.len() <= wanted)
    }
}

/// Raw DEFLATE, without zlib's header (RFC 2394 section 2.1).
fn deflater(level: u32) -> Compress {
    Compress::new(Compression::new(level), false)
}

fn zstd_encoder(level: i32, dictionary: Option<&Dictionary>) -> io::Result<zstd::bulk::Compressor<'static>> {
    let mut context = match dictionary {
        Some(dictionary) => zstd::bulk::Compressor::with_dictionary(level, dictionary.octets())?,
        None => zstd::bulk::Compressor::new(level)?,
    };
    // The IP header says how long the packet is, its CPI which dictionary it needs, and upper layers have checksums of their own.
    context.include_contentsize(false)?;
    context.include_dictid(false)?;
    context.include_checksum(false)?;
    Ok(context)
}

/// Why compressed octets are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No algorithm has this CPI.
    #[error("compression parameter index {0} is not known")]
    UnknownCpi(u16),
    /// The CPI is in the range of dictionaries, and no dictionary with this identity is loaded.
    #[error("no dictionary with the identity {0} is loaded")]
    UnknownDictionary(u16),
    /// They are not what the algorithm writes.
    #[error("the compressed octets contradict themselves")]
    Corrupt,
    /// They stand for more octets than are permitted.
    #[error("the compressed octets stand for more octets than are permitted")]
    TooLarge,
}

/// Decompresses packets, each for itself, into one buffer that does not grow.
pub struct Decoder {
    deflate: Decompress,
    zstd: zstd::bulk::Decompressor<'static>,
    dictionaries: Vec<(u16, zstd::bulk::Decompressor<'static>)>,
    frame: Vec<u8>,
    output: Vec<u8>,
}

impl Decoder {
    /// A decoder of all algorithms. `largest`: most octets that a packet may stand for.
    ///
    /// # Errors
    /// Those of the Zstandard library when it cannot take a dictionary.
    pub fn new(largest: usize, dictionaries: &[Dictionary]) -> io::Result<Self> {
        let with = |dictionary: &Dictionary| {
            Ok((dictionary.cpi(), zstd::bulk::Decompressor::with_dictionary(dictionary.octets())?))
        };
        Ok(Self {
            deflate: Decompress::new(false),
            zstd: zstd::bulk::Decompressor::new()?,
            dictionaries: dictionaries.iter().map(with).collect::<io::Result<_>>()?,
            frame: Vec::with_capacity(LARGEST_INPUT + ZSTD_MAGIC.len()),
            output: vec![0; largest],
        })
    }

    /// What `input` stands for.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(&mut self, cpi: u16, input: &[u8]) -> Result<&[u8], DecodeError> {
        let Self { deflate, zstd, dictionaries, frame, output } = self;
        let length = match Algorithm::ALL.into_iter().find(|algorithm| algorithm.cpi() == cpi) {
            Some(Algorithm::Lz4) => decompress_into(input, output).map_err(|error| match error {
                lz4_flex::block::DecompressError::OutputTooSmall { .. } => DecodeError::TooLarge,
                _ => DecodeError::Corrupt,
            })?,
            Some(Algorithm::Lzo) => lzo::decode(input, output)?,
            Some(Algorithm::Deflate) => inflate(deflate, input, output)?,
            Some(Algorithm::Zstd) => unframe(zstd, frame, input, output)?,
            None if cpi < dictionary::FIRST_CPI => return Err(DecodeError::UnknownCpi(cpi)),
            None => {
                let found = dictionaries.iter_mut().find(|(identity, _)| *identity == cpi);
                let (_, context) = found.ok_or(DecodeError::UnknownDictionary(cpi))?;
                unframe(context, frame, input, output)?
            }
        };
        output.get(..length).ok_or(DecodeError::TooLarge)
    }
}

fn inflate(stream: &mut Decompress, input: &[u8], output: &mut [u8]) -> Result<usize, DecodeError> {
    stream.reset(false);
    let status = stream.decompress(input, output, FlushDecompress::Finish).map_err(|_| DecodeError::Corrupt)?;
    let read = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
    let written = usize::try_from(stream.total_out()).unwrap_or(usize::MAX);
    match status {
        Status::StreamEnd if read == input.len() => Ok(written),
        Status::Ok | Status::BufError if written == output.len() => Err(DecodeError::TooLarge),
        _ => Err(DecodeError::Corrupt),
    }
}

fn unframe(
    context: &mut zstd::bulk::Decompressor<'static>,
    frame: &mut Vec<u8>,
    input: &[u8],
    output: &mut [u8],
) -> Result<usize, DecodeError> {
    frame.clear();
    frame.extend_from_slice(&ZSTD_MAGIC);
    frame.extend_from_slice(input);
    context.decompress_to_buffer(frame, output).map_err(|error| {
        // The library has no other way to say it than its text, which the test of bombs compares.
        let is_too_large = error.to_string().contains("Destination buffer is too small");
        if is_too_large { DecodeError::TooLarge } else { DecodeError::Corrupt }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    /// Octets with repetitions in them.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::collection::vec(any::<u8>(), 1..12);
        (prop::collection::vec(word, 1..8), prop::collection::vec(any::<prop::sample::Index>(), 1..400))
            .prop_map(|(words, order)| order.iter().flat_map(|index| index.get(&words).clone()).collect())
    }

    fn trained() -> Dictionary {
        static TRAINED: LazyLock<Dictionary> = LazyLock::new(|| {
            let sample =
                |index: usize| format!("<doc id=\"{index}\"><title>Title number {}</title></doc>", index * 7919 % 1000);
            let samples: Vec<Vec<u8>> = (0..2000).map(|index| sample(index).into_bytes()).collect();
            Dictionary::train(&samples, 4096).expect("there are enough samples")
        });
        TRAINED.clone()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_encoded_is_decoded(input in prop_oneof![text(), prop::collection::vec(any::<u8>(), 1..3000)]) {
            let dictionary = trained();
            for algorithm in Algorithm::ALL {
                for dictionary in [None, Some(&dictionary)] {
                    let mut encoder = Encoder::new(algorithm, None, dictionary).unwrap();
                    let mut decoder = Decoder::new(input.len(), dictionary.cloned().as_slice()).unwrap();
                    // Twice: nothing is kept from one to the next.
                    for _ in 0..2 {
                        let cpi = encoder.cpi();
                        let Some(output) = encoder.encode(&input, input.len() + 100) else { continue };
                        prop_assert_eq!(decoder.decode(cpi, output), Ok(&input[..]), "{:?}", algorithm);
                    }
                    if let Some(output) = encoder.encode(&input, input.len()) {
                        prop_assert!(output.len() < input.len());
                    }
                }
            }
        }

        #[test]
        fn nothing_makes_a_decoder_fail(input in prop::collection::vec(any::<u8>(), 0..400), place: u16, value: u8) {
            let dictionary = trained();
            let mut decoder = Decoder::new(2000, std::slice::from_ref(&dictionary)).unwrap();
            for algorithm in Algorithm::ALL {
                let _ = decoder.decode(algorithm.cpi(), &input);
                // One wrong octet in what is right otherwise.
                let mut encoder = Encoder::new(algorithm, None, None).unwrap();
                let repeated = input.repeat(4);
                let Some(output) = encoder.encode(&repeated, repeated.len() + 100) else { continue };
                let mut output = output.to_vec();
                let place = usize::from(place) % output.len();
                output[place] = value;
                let _ = decoder.decode(algorithm.cpi(), &output);
                let _ = decoder.decode(algorithm.cpi(), &output[..place]);
            }
            let _ = decoder.decode(dictionary.cpi(), &input);
        }
    }

    #[test]
    fn bombs_end_at_the_limit() {
        let zeros = vec![0; LARGEST_INPUT];
        let dictionary = trained();
        for algorithm in Algorithm::ALL {
            for dictionary in [None, Some(&dictionary)] {
                let mut encoder = Encoder::new(algorithm, None, dictionary).unwrap();
                let cpi = encoder.cpi();
                let bomb = encoder.encode(&zeros, zeros.len()).expect("zeros shrink").to_vec();
                assert!(bomb.len() < 600, "{algorithm:?}: {}", bomb.len());
                let decode = |largest| {
                    let mut decoder = Decoder::new(largest, dictionary.cloned().as_slice()).unwrap();
                    decoder.decode(cpi, &bomb).map(<[u8]>::len)
                };
                assert_eq!(decode(zeros.len()), Ok(zeros.len()), "{algorithm:?}");
                assert_eq!(decode(zeros.len() - 1), Err(DecodeError::TooLarge), "{algorithm:?}");
                assert_eq!(decode(1500), Err(DecodeError::TooLarge), "{algorithm:?}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_named() {
        let mut decoder = Decoder::new(1500, &[]).unwrap();
        assert_eq!(decoder.decode(3, &[1, 2, 3]), Err(DecodeError::UnknownCpi(3)));
        let dictionary = trained();
        assert_eq!(decoder.decode(dictionary.cpi(), &[]), Err(DecodeError::UnknownDictionary(dictionary.cpi())));
    }
}
