//! Functions as objects of a node: attached to something that is there, with both directions and one health.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::proxy::Watch;

/// A function that somebody else starts, in a network namespace or a container. The agent makes its two links, `west` and `east`, and
/// what leads packets from one to the other in both directions, whenever it comes; and undoes it when the function is taken out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFunction {
    /// Name of its network namespace, as `ip netns` shows it. Either this or `container`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Name of its container, which podman or docker runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// How to see that it is down, for all SIDs that lead to it; only the link if not given. A probe with `through` goes through it in
    /// both directions.
    #[serde(default)]
    pub watch: Watch,
}
