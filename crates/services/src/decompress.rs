//! `decompress`: makes whole again what `compress`, or another maker's IPComp with DEFLATE, has made smaller.
//!
//! Packets that are not compressed go on as they are. What cannot be decompressed, or would become too large, is dropped with its reason; the
//! memory for results does not grow.

use crate::compression::{DecodeError, Decoder, Dictionary, dictionary};
use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{BuildError, Context, Kind, Metric, Mode, Packet, Reason, Service, Spread, Verdict, Worker};
use segue_wire::layer::protocol;
use segue_wire::{IpComp, Ipv4Packet, Ipv6Packet};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The kind.
pub struct Decompress;

/// What `decompress` can be told. It knows all algorithms; a packet says which one it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// Files with the dictionaries that `compress` uses.
    pub dictionaries: Vec<PathBuf>,
    /// Most octets behind the steering header that a packet may become, 1 to 65535.
    pub largest: u16,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { dictionaries: Vec::new(), largest: u16::MAX }
    }
}

const DECOMPRESSED: usize = 0;
const NOT_COMPRESSED: usize = 1;
const OCTETS_IN: usize = 2;
const OCTETS_OUT: usize = 3;

impl Kind for Decompress {
    const NAME: &'static str = "decompress";
    const ABOUT: &'static str = "decompresses what is behind the steering header (IPComp)";
    const METRICS: &'static [Metric] = &[
        Metric::counter("decompressed_packets", "Packets that went on decompressed"),
        Metric::counter("not_compressed_packets", "Packets that were not compressed, and went on as they were"),
        Metric::counter("in_octets", "Octets behind steering headers of packets that went on, before"),
        Metric::counter("out_octets", "Octets behind steering headers of packets that went on, after"),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        if configuration.largest == 0 {
            let key = KeyPath::root().at("largest");
            report.error(&key, "0 octets: every packet would be dropped", "use 1 to 65535, or remove the key");
        }
    }

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    /// Packets of one flow come compressed or not, as each allowed.
    fn spread(_: &Configuration) -> Spread {
        Spread::Way
    }

    /// What was compressed had no flow that anybody could read.
    fn rewrites_flows(_: &Configuration) -> bool {
        true
    }

    fn refuses_labels(_: &Configuration) -> Option<&'static str> {
        Some("needs a header that says that what is behind it is compressed (IPComp), and labels say nothing")
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        let mut dictionaries: Vec<Dictionary> = Vec::new();
        for path in &configuration.dictionaries {
            let loaded = dictionary::load(path)?;
            match dictionaries.iter().position(|other| other.cpi() == loaded.cpi()) {
                Some(index) if dictionaries[index] != loaded => {
                    return Err(BuildError {
                        what: format!(
                            "the dictionaries {} and {} have the same identity, {}",
                            configuration.dictionaries[index].display(),
                            path.display(),
                            loaded.cpi()
                        ),
                        remedy: "train one of them anew, with other samples or another size".to_owned(),
                    });
                }
                Some(_) => {}
                None => dictionaries.push(loaded),
            }
        }
        let decoder = Decoder::new(configuration.largest.into(), &dictionaries).map_err(|error| BuildError {
            what: format!("the decompressor cannot be set up: {error}"),
            remedy: "train the dictionaries anew".to_owned(),
        })?;
        Ok(Box::new(Decompressor { decoder }))
    }
}

struct Decompressor {
    decoder: Decoder,
}

impl Decompressor {
    fn decompress(&mut self, packet: &mut Packet<'_>) -> Result<(), Reason> {
        let compressed = IpComp::new_checked(packet.inner()).map_err(|_| Reason::Malformed)?;
        let next_header = compressed.next_header();
        let output = self.decoder.decode(compressed.cpi(), compressed.payload()).map_err(|error| match error {
            DecodeError::UnknownCpi(_) => Reason::UnknownCompression,
            DecodeError::UnknownDictionary(_) => Reason::UnknownDictionary,
            DecodeError::Corrupt => Reason::CorruptCompression,
            DecodeError::TooLarge => Reason::DecompressionLimit,
        })?;
        if !fits(next_header, output) {
            return Err(Reason::CorruptCompression);
        }
        packet.replace_inner(next_header, &[output]).map_err(|_| Reason::DecompressionLimit)
    }
}

/// Whether these octets are as long as their header says, if it is an IP header. With the wrong dictionary they seldom are.
fn fits(next_header: u8, octets: &[u8]) -> bool {
    match next_header {
        protocol::IPV4 => Ipv4Packet::new_checked(octets).is_ok_and(|packet| packet.total_length() == octets.len()),
        protocol::IPV6 => Ipv6Packet::new_checked(octets).is_ok_and(|packet| packet.total_length() == octets.len()),
        _ => true,
    }
}

impl Service for Decompressor {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        let before = packet.inner().len() as u64;
        let end = match packet.inner_protocol() {
            protocol::IPCOMP => match self.decompress(packet) {
                Ok(()) => DECOMPRESSED,
                Err(reason) => return Verdict::Drop(reason),
            },
            _ => NOT_COMPRESSED,
        };
        context.count(end, 1);
        context.count(OCTETS_IN, before);
        context.count(OCTETS_OUT, packet.inner().len() as u64);
        Verdict::Onward
    }
}
