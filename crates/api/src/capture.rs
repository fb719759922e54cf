//! Captures: POST /v1/capture. Its answer is a [pcapng file](crate::pcap) that grows, or JSON lines.

use serde::{Deserialize, Serialize};

/// What to capture, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// Names of ports; all if empty.
    #[serde(default)]
    pub ports: Vec<String>,
    /// End after so many packets.
    #[serde(default)]
    pub count: Option<u64>,
    /// End after so many seconds.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// How packets are written.
    #[serde(default)]
    pub format: Format,
}

/// How packets are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A pcapng file. The outcome of sent packets is their comment.
    #[default]
    Pcapng,
    /// One JSON object per line.
    Json,
}

impl Format {
    /// Media type of the answer.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Pcapng => "application/x-pcapng",
            Self::Json => "application/x-ndjson",
        }
    }
}

/// A line of an answer in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A packet.
    Packet(Packet),
    /// Packets that were not captured, because more came than could be sent.
    Lost {
        /// How many.
        lost: u64,
    },
}

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Seconds since 1970, with nine digits behind the point.
    pub time: String,
    /// The port.
    pub port: String,
    /// `in` or `out`.
    pub direction: String,
    /// What became of it, if it is known: name in the closed list of outcomes.
    #[serde(default)]
    pub outcome: Option<String>,
    /// Octets of the frame.
    pub length: u32,
    /// Its headers in one line.
    pub headers: String,
    /// What was captured of the frame, hexadecimal.
    #[serde(default)]
    pub bytes: String,
}
