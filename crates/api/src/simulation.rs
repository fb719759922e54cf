//! What would become of one packet: POST /v1/simulate; and one that really goes in: POST /v1/inject.

use serde::{Deserialize, Serialize};

/// A packet that comes in by a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SimulationRequest {
    /// Name of the port.
    pub port: String,
    /// The packet from its IP header on, or with `labelled` from its label stack on, hexadecimal: it comes in a frame for the port. Either this
    /// or `frame`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// `packet` begins with a label stack (RFC 3032 section 2.1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub labelled: bool,
    /// The whole frame, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// By a service port: the SID whose proxy remembers the packet's steering header, or `label 15020`. The packet is then the one that came to
    /// the SID or label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<String>,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SimulatedStep {
    /// `port`, `firewall`, `steering`, `policy`, `sid`, `label`, `function`, `route`, `kernel`.
    pub what: String,
    /// Name of the port, firewall, rule or policy; the SID or label; the address that a route leads to.
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
    /// The SID of its proxy, or `label 15020`.
    pub sid: String,
    /// The port by which its packets come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_by: Option<String>,
    /// The packet as it came to the SID, from its IP header on, or as it came to the label, from its label stack on, hexadecimal: of proxies that
    /// remember, for `remembered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steered: Option<String>,
}

impl SimulatedVisit {
    /// Whether its proxy is behind a label, so that `steered` begins with a label stack.
    #[must_use]
    pub fn is_behind_label(&self) -> bool {
        self.sid.starts_with(LABEL)
    }
}

/// What stands in front of a label where a SID could stand, as in `label 15020`.
pub const LABEL: &str = "label ";

/// One entry of a label stack (RFC 3032 section 2.1). The last one of a stack has the S bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LabelEntry {
    /// The label, 20 bits.
    pub label: u32,
    /// TC (RFC 5462), 0 to 7.
    pub traffic_class: u8,
    /// TTL.
    pub ttl: u8,
}

/// The entries of the label stack that a packet begins with, from the top to the bottom, or to where the octets end.
#[must_use]
pub fn label_stack(packet: &[u8]) -> Vec<LabelEntry> {
    let mut stack = Vec::new();
    for entry in packet.chunks_exact(4) {
        let word = entry.iter().fold(0_u32, |word, octet| word << 8 | u32::from(*octet));
        stack.push(LabelEntry { label: word >> 12, traffic_class: (word >> 9 & 7) as u8, ttl: word as u8 });
        if word & 0x100 != 0 {
            break;
        }
    }
    stack
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
    /// The labels in front of the packet afterwards, from the top of the stack on; `packet` begins with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<LabelEntry>,
    /// The packet afterwards, from its IP header or its label stack on, hexadecimal.
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
    fn a_stack_ends_with_its_bottom() {
        let stack = label_stack(&octets("03e82a4003e8214045000014").unwrap());
        let entry = |label, traffic_class, ttl| LabelEntry { label, traffic_class, ttl };
        assert_eq!(stack, [entry(16_002, 5, 64), entry(16_002, 0, 64)]);
        assert_eq!(label_stack(&[0, 1]), []);
    }

    #[test]
    fn hexadecimal_there_and_back() {
        assert_eq!(octets(&hexadecimal(&[0, 0x1f, 0xff])), Ok(vec![0, 0x1f, 0xff]));
        for broken in ["0", "0g", "é1"] {
            assert!(octets(broken).is_err(), "{broken}");
        }
    }
}
