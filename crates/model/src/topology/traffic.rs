//! What a lab sends by itself once it is up, and what it captures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most packets a second of one source.
pub const RATE_MAX: f64 = 100_000.0;
/// Octets that each packet of a source has for itself: its number, its source, when it was sent.
pub const SIZE_MIN: u32 = 24;
/// Octets of the largest payload: more do not fit into an IPv4 packet.
pub const SIZE_MAX: u32 = 65_507;
/// Least octets of a capture's packets: an outer IPv6 header with some segments.
pub const SNAP_MIN: u32 = 64;

/// Packets from one host to another, numbered, so that it can be told which of them arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// The host that sends.
    pub from: String,
    /// The host that they are for.
    pub to: String,
    /// How.
    #[serde(default)]
    pub protocol: TrafficProtocol,
    /// IPv4 or IPv6; IPv6 if not given and both hosts have an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// UDP and TCP: destination port, where the lab listens; 9 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// UDP and TCP: source port; any if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Packets a second, above 0, at most 100,000; 100 if not given.
    #[serde(default = "rate")]
    pub rate: f64,
    /// How many packets. One of `count` and `seconds` has to be there; with both, what comes first ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// For how many seconds, above 0, at most a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Octets of each packet's payload, 24 to 65,507; of each message, with TCP. 100 if not given.
    #[serde(default = "size")]
    pub size: u32,
    /// Milliseconds between the lab's being up and the first packet, at most 3,600,000.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u32,
}

impl Traffic {
    /// Destination port: as written, or discard's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(9)
    }
}

/// How a source sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrafficProtocol {
    /// Datagrams.
    #[default]
    Udp,
    /// Messages over one connection.
    Tcp,
    /// Echo requests; what counts as received is the answers.
    Icmp,
}

impl TrafficProtocol {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Icmp => "icmp",
        }
    }
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Family {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

/// Packets of a link, a SID or a chain, written into a file while the lab is up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// A link as `edge1--nfv1`, or the label of a SID or a chain: `$nfv1.firewall`, `$chain.web`.
    pub at: String,
    /// The pcapng file, relative to the topology's file; NAME.pcapng if not given. It is written anew, and stays when the lab goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Octets of each packet that are kept at most, 64 to 65,535; all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap_length: Option<u32>,
    /// Ends after so many packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Ends after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Ends before the file is larger than so many megabytes (1,000,000 octets), so that a forgotten lab fills no disk.
    #[serde(default = "megabytes")]
    pub megabytes: u32,
}

impl Capture {
    /// Its file: as written, or by its name.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.file.clone().unwrap_or_else(|| format!("{name}.pcapng"))
    }
}

fn rate() -> f64 {
    100.0
}
fn size() -> u32 {
    100
}
fn megabytes() -> u32 {
    100
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde gives a reference
fn is_zero(value: &u32) -> bool {
    *value == 0
}
