//! What would become of one packet: POST /v1/simulate; and one that really goes in: POST /v1/inject.

use serde::{Deserialize, Serialize};

/// A packet that comes in by a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SimulationRequest {
    /// Name of the port.
    pub port: String,
    /// The packet from its IP header on, hexadecimal: it comes in a frame for the port. Either this or `frame`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// The whole frame, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// By a service port: the SID whose proxy remembers the packet's steering header. The packet is then the one that came to the SID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<String>,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SimulatedStep {
    /// `port`, `firewall`, `steering`, `policy`, `sid`, `function`, `route`, `kernel`.
    pub what: String,
    /// Name of the port, firewall, rule or policy; the SID; the address that a route leads to.
    pub name: String,
    /// What was found, in words.
    pub detail: String,
    /// Packets that it has counted so far, where it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

/// The way out of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SimulatedEgress {
    /// Name of the interface.
    pub port: String,
    /// The neighbour there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<String>,
    /// Its link-layer address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// A function that has the packet now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SimulatedVisit {
    /// The SID of its proxy.
    pub sid: String,
    /// The port by which its packets come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_by: Option<String>,
    /// The packet as it came to the SID, from its IP header on, hexadecimal: of proxies that remember, for `remembered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steered: Option<String>,
}

/// What the node would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SimulationReport {
    /// Name of the node.
    pub node: String,
    /// The port that it comes in by.
    pub port: String,
    /// What is looked at, in order.
    pub steps: Vec<SimulatedStep>,
    /// The outcome that it would be counted in: name in the closed list.
    pub outcome: String,
    /// `forwarded`, `passed` or `dropped`.
    pub kind: String,
    /// What the outcome means.
    pub text: String,
    /// Why, where there is more to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Nothing else than this packet, the configuration and the kernel's tables decides.
    pub certain: bool,
    /// What was taken for granted if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// The way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<SimulatedEgress>,
    /// The kernel sends it there, rather than the data plane.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_kernel: bool,
    /// The function that it is given to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<SimulatedVisit>,
    /// The packet afterwards, from its IP header on, hexadecimal.
    pub packet: String,
    /// Its headers in one line.
    pub headers: String,
}

/// A packet that went in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InjectReport {
    /// The port.
    pub port: String,
    /// Octets of the frame.
    pub length: usize,
}

/// Octets of a hexadecimal text.
///
/// # Errors
/// What is wrong with it.
pub fn octets(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("it is not hexadecimal, two digits for each octet".to_owned());
    }
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
    Ok(digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
}

/// Octets as hexadecimal text.
#[must_use]
pub fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_there_and_back() {
        assert_eq!(octets(&hexadecimal(&[0, 0x1f, 0xff])), Ok(vec![0, 0x1f, 0xff]));
        for broken in ["0", "0g", "é1"] {
            assert!(octets(broken).is_err(), "{broken}");
        }
    }
}
