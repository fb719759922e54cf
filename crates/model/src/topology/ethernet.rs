//! Chains of Ethernet frames: the link between two hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Chain, Endpoint, Topology};

/// How a chain carries Ethernet frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ethernet {
    /// Where labels lead: whether a control word (RFC 4385) is in front of each frame; true if not given (RFC 8469). Not where SIDs do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_word: Option<bool>,
}

/// The key with nothing behind it is there, too.
pub(super) fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ethernet>, D::Error> {
    Option::<Ethernet>::deserialize(deserializer).map(|written| Some(written.unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::load_topology;

    #[test]
    fn the_key_alone_says_it() {
        let of = |key: &str| {
            let text = format!(
                "name: x\nnodes: {{ a: {{}} }}\nhosts: {{ b: {{ node: a }}, c: {{ node: a }}, d: {{ node: a }} }}\n\
                 chains:\n  e:\n    from: b\n    to: c\n    via: []\n{key}"
            );
            let topology = load_topology(&text, "t").unwrap_or_else(|errors| panic!("{errors}"));
            (topology.chains["e"].ethernet, topology.joined("c") == Some(["b", "c"]), topology.joined("d").is_some())
        };
        assert_eq!(of(""), (None, false, false));
        for key in ["    ethernet:\n", "    ethernet: {}\n", "    ethernet: null\n"] {
            assert_eq!(of(key), (Some(Ethernet { control_word: None }), true, false), "{key}");
        }
        let without = Some(Ethernet { control_word: Some(false) });
        assert_eq!(of("    ethernet: { control_word: false }\n"), (without, true, false));
    }
}
