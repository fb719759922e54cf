//! Chains of Ethernet frames: the link between two hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Chain, Endpoint, Topology};

/// How a chain carries Ethernet frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ethernet {
    /// Where labels lead: whether a control word (RFC 4385) is in front of each frame; true if not given (RFC 8469). Not where SIDs do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_word: Option<bool>,
}

impl Chain {
    /// The hosts at its ends, if frames of theirs are what it carries.
    #[must_use]
    pub fn joined_hosts(&self) -> Option<[&str; 2]> {
        match (&self.ethernet, &self.from, &self.to) {
            (Some(_), Endpoint::Host(from), Endpoint::Host(to)) => Some([from, to]),
            _ => None,
        }
    }
}

impl Topology {
    /// The two hosts of the chain that carries all frames of this one, first the one that it begins at.
    #[must_use]
    pub fn joined(&self, host: &str) -> Option<[&str; 2]> {
        self.chains.values().filter_map(Chain::joined_hosts).find(|ends| ends.contains(&host))
    }
}
