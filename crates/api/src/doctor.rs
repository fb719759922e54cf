//! Examination of a node: `/v1/doctor`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// As it should be.
    Ok,
    /// Nothing is lost by it, but it is worth knowing; or it cannot be seen from here.
    Note,
    /// Packets are lost by it, or will be.
    Wrong,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// What sort of thing: `address`, `boundary`, `function`, `kernel`, `labels`, `mtu`, `neighbour`, `pins`, `port`, `sid`, `sysctl` or `table`.
    pub check: String,
    /// Which one: a key of the desired state, an interface, a feature.
    pub about: String,
    /// What it came to.
    pub result: Finding,
    /// Why.
    pub reason: String,
    /// What to do; empty where nothing is to be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Check {
    /// All is well.
    pub fn ok(check: &str, about: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(Finding::Ok, check, about, reason, "")
    }

    /// Worth knowing.
    pub fn note(check: &str, about: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Finding::Note, check, about, reason, remedy)
    }

    /// Packets are lost.
    pub fn wrong(check: &str, about: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Finding::Wrong, check, about, reason, remedy)
    }

    fn new(
        result: Finding,
        check: &str,
        about: impl Into<String>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (about, reason, remedy) = (about.into(), reason.into(), remedy.into());
        Self { check: check.to_owned(), about, result, reason, remedy }
    }
}

/// All that was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DoctorReport {
    /// The node's name; empty while nothing is applied.
    pub node: String,
    /// What was looked at, by sort.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// Whether packets are lost by something.
    pub fn is_wrong(&self) -> bool {
        self.checks.iter().any(|check| check.result == Finding::Wrong)
    }
}
