//! What becomes of a desired state: `/v1/state` and `/v1/diff`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happens to a part of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It goes.
    Removed,
    /// It gets another value.
    Changed,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Change {
    /// What happens.
    pub kind: ChangeKind,
    /// To what, such as `sids[fc00:1::/64].next_hop`.
    pub key: String,
    /// The value now.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub before: Value,
    /// The value then.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub after: Value,
}

/// Answer of POST /v1/diff.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiffReport {
    /// The differences; none if applying would change nothing.
    pub changes: Vec<Change>,
}

/// What applying a state did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApplyReport {
    /// Whether nothing was changed because it was only to be checked.
    pub dry_run: bool,
    /// What differs from the state before.
    pub changes: Vec<Change>,
    /// Number of the data plane's configuration that is active now.
    pub generation: u32,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// Interfaces that are no ports and not trusted: from them no SID can be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
}
