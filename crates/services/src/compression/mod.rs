//! What `compress` and `decompress` share: algorithms and their numbers, dictionaries, and when an attempt is worth its time.
//!
//! Framing is IPComp (RFC 3173). Every packet is compressed for itself, so neither side keeps anything of earlier ones.

mod codec;
pub mod dictionary;
mod effort;
mod lzo;

pub use codec::{DecodeError, Decoder, Encoder};
pub use dictionary::{Dictionary, DictionaryError};
pub use effort::{Effort, flow_of};

use schemars::JsonSchema;
use segue_wire::ipcomp::cpi;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A compression algorithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// LZ4 blocks: the fastest.
    #[default]
    Lz4,
    /// LZO1X: about as small as LZ4, slower; for a peer that has nothing else.
    Lzo,
    /// DEFLATE (RFC 1951, RFC 2394), the algorithm of zlib: smaller, many times slower. The one that other makers' IPComp knows.
    Deflate,
    /// Zstandard (RFC 8878): the smallest when a dictionary was trained on traffic of the same sort.
    Zstd,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Lzo, Self::Deflate, Self::Zstd];

    /// The compression parameter index that says so in a packet, without a dictionary. Those of Segue's own choice are in the private
    /// range; below [`dictionary::FIRST_CPI`] they are algorithms, from there on identities of dictionaries.
    #[must_use]
    pub const fn cpi(self) -> u16 {
        match self {
            Self::Deflate => cpi::DEFLATE,
            Self::Lz4 => cpi::FIRST_PRIVATE,
            Self::Lzo => cpi::FIRST_PRIVATE + 1,
            Self::Zstd => cpi::FIRST_PRIVATE + 2,
        }
    }

    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Lzo => "lzo",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    /// Levels that it has, from fast to small; none if it has only one.
    #[must_use]
    pub const fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::Lz4 | Self::Lzo => None,
            Self::Deflate => Some(1..=9),
            Self::Zstd => Some(1..=19),
        }
    }

    /// The level that is taken if none is given.
    #[must_use]
    pub const fn default_level(self) -> i32 {
        match self {
            Self::Lz4 | Self::Lzo => 1,
            Self::Deflate => 6,
            Self::Zstd => 3,
        }
    }
}
