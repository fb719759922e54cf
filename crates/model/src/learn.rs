//! Labels that a node learns from a routing protocol, in place of those that are written down.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Labels that are learned at most, if the operator does not say.
pub const LEARNED_LABELS: u32 = 10_000;
/// The most that may be said.
pub const LEARNED_LABELS_MAX: u32 = 100_000;
/// Seconds for which labels of a source that cannot be read stay, if the operator does not say.
pub const HOLD_TIME: u32 = 300;
/// The most that may be said: a day.
pub const HOLD_TIME_MAX: u32 = 86_400;

/// Where labels are learned from: one of `kernel` and `file`. Those in `labels` are never overridden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Learn {
    /// From the MPLS routes of the node's kernel (`ip -f mpls route`), where FRR's zebra puts the labels of IS-IS and OSPF.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel: bool,
    /// From a file that has what FRR prints for `show mpls table json`: an absolute path. It is read again whenever it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Most labels that are taken, 1 to 100000; 10000 if not given. A source with more is not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_labels: Option<u32>,
    /// Seconds for which labels stay when the source cannot be read any more, or makes no sense, 0 to 86400; 300 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_time: Option<u32>,
}

impl Learn {
    /// Most labels that are taken.
    pub fn max_labels(&self) -> usize {
        self.max_labels.unwrap_or(LEARNED_LABELS) as usize
    }

    /// Seconds for which labels outlive their source.
    pub fn hold_time(&self) -> u32 {
        self.hold_time.unwrap_or(HOLD_TIME)
    }

    /// Whether labels come from the same place.
    pub fn same_source(&self, other: &Self) -> bool {
        (self.kernel, &self.file) == (other.kernel, &other.file)
    }

    /// The key of the source in a document.
    pub fn key(&self) -> &'static str {
        if self.file.is_some() { "mpls.learn.file" } else { "mpls.learn.kernel" }
    }
}
