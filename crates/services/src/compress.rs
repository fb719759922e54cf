//! `compress`: makes what is behind the steering header smaller, packet by packet; `decompress` makes it whole again.
//!
//! Framing is IPComp (RFC 3173). A packet never grows: what does not shrink goes on as it is, and flows whose packets did not shrink lately
//! are tried less and less often ([`Effort`]). Outer fragments do not reach a service, so they are never compressed.

use crate::compression::{Algorithm, Dictionary, Effort, Encoder, dictionary, flow_of};
use schemars::JsonSchema;
use segue_model::error::{KeyPath, Report};
use segue_service::{BuildError, Context, Kind, Metric, Mode, Packet, Service, Verdict, Worker};
use segue_wire::IpCompRepr;
use segue_wire::ipcomp::HEADER_LENGTH;
use segue_wire::layer::protocol;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The kind.
pub struct Compress;

/// What `compress` can be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// The algorithm: `lz4`, `lzo`, `deflate` (zlib's) or `zstd`.
    pub algorithm: Algorithm,
    /// How much time to spend for fewer octets: `deflate` 1 to 9 (6), `zstd` 1 to 19 (3). The others have one level.
    pub level: Option<i32>,
    /// `zstd`: a file with a dictionary, which `decompress` must have too.
    pub dictionary: Option<PathBuf>,
    /// Octets behind the steering header below which a packet is not tried, 0 to 65535.
    pub smallest: u16,
    /// Most packets of a flow in a row that are not tried because those before did not shrink; then the next is. 0: all are tried.
    pub longest_pause: u16,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { algorithm: Algorithm::default(), level: None, dictionary: None, smallest: 64, longest_pause: 63 }
    }
}

const COMPRESSED: usize = 0;
const NOT_SMALLER: usize = 1;
const NOT_TRIED: usize = 2;
const NOT_COMPRESSIBLE: usize = 3;
const OCTETS_IN: usize = 4;
const OCTETS_OUT: usize = 5;

impl Kind for Compress {
    const NAME: &'static str = "compress";
    const ABOUT: &'static str = "compresses what is behind the steering header, packet by packet (IPComp)";
    const METRICS: &'static [Metric] = &[
        Metric::counter("compressed_packets", "Packets that shrank and went on compressed"),
        Metric::counter("not_smaller_packets", "Packets that were tried, did not shrink, and went on as they were"),
        Metric::counter(
            "not_tried_packets",
            "Packets that were not tried because those before them in their flow did not shrink",
        ),
        Metric::counter("not_compressible_packets", "Packets below the smallest size, or compressed already"),
        Metric::counter("in_octets", "Octets behind steering headers of all packets, before"),
        Metric::counter("out_octets", "Octets behind steering headers of all packets, after; IPComp headers count"),
    ];

    type Configuration = Configuration;

    fn check(configuration: &Configuration, report: &mut Report) {
        let algorithm = configuration.algorithm;
        let at = |key: &str| KeyPath::root().at(key);
        match (configuration.level, algorithm.levels()) {
            (Some(_), None) => {
                report.error(&at("level"), format!("{} has one level only", algorithm.name()), "remove the key");
            }
            (Some(level), Some(levels)) if !levels.contains(&level) => report.error(
                &at("level"),
                format!("{} has no level {level}", algorithm.name()),
                format!("use {} (fast) to {} (small)", levels.start(), levels.end()),
            ),
            _ => {}
        }
        if configuration.dictionary.is_some() && algorithm != Algorithm::Zstd {
            let message = format!("{} takes no dictionary", algorithm.name());
            report.error(&at("dictionary"), message, "remove the key, or set algorithm: zstd");
        }
    }

    fn mode(_: &Configuration) -> Mode {
        Mode::Synchronous
    }

    /// Nobody can read the flow of what is compressed.
    fn rewrites_flows(_: &Configuration) -> bool {
        true
    }

    fn refuses_labels(_: &Configuration) -> Option<&'static str> {
        Some("needs a header that says that what is behind it is compressed (IPComp), and labels say nothing")
    }

    fn build(configuration: &Configuration, _: Worker) -> Result<Box<dyn Service>, BuildError> {
        let dictionary = configuration.dictionary.as_deref().map(dictionary::load).transpose()?;
        Ok(Box::new(Compressor::new(configuration, dictionary.as_ref())?))
    }
}

/// A packet that shrinks by less than this part of it is no reason to try the next one: of encrypted payload headers shrink.
const WORTH: usize = 32;

struct Compressor {
    encoder: Encoder,
    effort: Effort,
    smallest: usize,
}

impl Compressor {
    fn new(configuration: &Configuration, dictionary: Option<&Dictionary>) -> Result<Self, BuildError> {
        let encoder = Encoder::new(configuration.algorithm, configuration.level, dictionary);
        Ok(Self {
            encoder: encoder.map_err(|error| BuildError {
                what: format!("{} cannot be set up: {error}", configuration.algorithm.name()),
                remedy: "train the dictionary anew, or run without it".to_owned(),
            })?,
            effort: Effort::new(configuration.longest_pause),
            smallest: configuration.smallest.into(),
        })
    }

    /// Compresses the packet if it can; which counter says how that ended.
    fn try_on(&mut self, packet: &mut Packet<'_>) -> usize {
        let (before, next_header) = (packet.inner().len(), packet.inner_protocol());
        if before < self.smallest || next_header == protocol::IPCOMP {
            return NOT_COMPRESSIBLE;
        }
        let flow = flow_of(next_header, packet.inner());
        if !self.effort.is_worth(flow) {
            return NOT_TRIED;
        }
        let header = IpCompRepr { next_header, cpi: self.encoder.cpi() };
        let output = self.encoder.encode(packet.inner(), before.saturating_sub(HEADER_LENGTH));
        let saved = output.map_or(0, |output| before - HEADER_LENGTH - output.len());
        self.effort.note(flow, saved >= before / WORTH);
        let Some(output) = output else { return NOT_SMALLER };
        let mut octets = [0; HEADER_LENGTH];
        let replaced =
            header.emit(&mut octets).is_ok() && packet.replace_inner(protocol::IPCOMP, &[&octets, output]).is_ok();
        if replaced { COMPRESSED } else { NOT_SMALLER }
    }
}

impl Service for Compressor {
    fn packet(&mut self, packet: &mut Packet<'_>, context: &mut Context) -> Verdict {
        context.count(OCTETS_IN, packet.inner().len() as u64);
        let end = self.try_on(packet);
        context.count(end, 1);
        context.count(OCTETS_OUT, packet.inner().len() as u64);
        Verdict::Onward
    }
}
