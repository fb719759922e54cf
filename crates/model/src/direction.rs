//! Directions of a chain.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which way traffic of a chain goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the chain's `from` to its `to`.
    Forward,
    /// The other way.
    Reverse,
}

impl Direction {
    /// As operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
