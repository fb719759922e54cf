//! Firewalls as the API shows them: `/v1/firewalls`.

use serde::{Deserialize, Serialize};

/// A rule with its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RuleReport {
    /// Family and text of the rule, or which chain's policy it is.
    pub name: String,
    /// The file that it comes from, as the desired state calls it.
    pub file: String,
    /// Line of that file; policies have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Packets that hit it.
    pub packets: u64,
    /// Their layer 3 octets: those of the inner packet where there is one.
    pub bytes: u64,
}

/// A firewall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FirewallReport {
    /// Its name.
    pub name: String,
    /// `basic` or `advanced`.
    pub mode: String,
    /// The switch: false lets every packet pass.
    pub basic: bool,
    /// Its rules in the order of their files, IPv4 first.
    pub rules: Vec<RuleReport>,
    /// Policies of its built-in chains that packets meet.
    pub policies: Vec<RuleReport>,
    /// As `iptables -L -n -v --line-numbers` prints it.
    pub listing: String,
    /// As `iptables-save -c` prints it.
    pub save: String,
}
