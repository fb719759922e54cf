//! Ways of labels through networks that know none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Two nodes with labels, which go from one to the other in UDP (RFC 7510, RFC 8663), along the shortest path of links between them. Links that
/// join the two at once carry no labels in another way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelTunnel {
    /// The two nodes.
    pub between: [String; 2],
    /// What shortest paths of labels add up, in both directions; the distance of the links between if not given. Not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// UDP without a checksum (RFC 7510 section 3.1), which spares both nodes the sum.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zero_checksum: bool,
}
