//! What a rule file says: tables, chains, rules, as a tree that can be printed again.

use serde::{Deserialize, Serialize};

pub use super::head::{Family, Head, Interface, Network, Not};
use super::matches::Match;
use super::position::Origin;
use segue_classifier::program::{Mpls, Reject, Seg6};

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSet {
    /// Of all its addresses.
    pub family: Family,
    /// The tables in the file's order. Those other than `filter` are empty, or there would have been an error.
    pub tables: Vec<Table>,
}

impl RuleSet {
    /// The table `filter`.
    pub fn filter(&self) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == "filter")
    }
}

/// A table: `*filter` to `COMMIT`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Built-in chains first, then user chains in the file's order.
    pub chains: Vec<Chain>,
}

impl Table {
    /// The chain of that name.
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// Rules that lead to a chain, as `iptables -L` counts references.
    pub fn references(&self, name: &str) -> usize {
        let rules = self.chains.iter().flat_map(|chain| &chain.rules);
        rules.filter(|rule| matches!(&rule.target, Target::Jump(chain) | Target::Goto(chain) if chain == name)).count()
    }
}

/// `:NAME POLICY [packets:octets]` and its rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// Of built-in chains; None: a user chain.
    pub policy: Option<Policy>,
    /// Packets that the policy was applied to.
    pub counters: Counters,
    /// In order.
    pub rules: Vec<Rule>,
    /// Where it was declared.
    pub origin: Origin,
    /// The hook that the rules are read for does not lead here: they are kept for display, and not run.
    pub unreached: bool,
}

/// What happens at the end of a built-in chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The packet goes on.
    #[default]
    Accept,
    /// It is dropped.
    Drop,
}

impl Policy {
    /// As iptables writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
        }
    }
}

/// `[packets:octets]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Octets of layer 3.
    pub octets: u64,
}

/// One rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `[packets:octets]` in front of it.
    pub counters: Counters,
    /// `-s`, `-d` and so on.
    pub head: Head,
    /// `-m`, in order.
    pub matches: Vec<Matched>,
    /// `-j` or `-g`.
    pub target: Target,
    /// Where the rule was written.
    pub origin: Origin,
    /// Where its target was written.
    pub target_origin: Origin,
}

/// A match of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// What it tests.
    pub test: Match,
    /// Where it was written.
    pub origin: Origin,
}

/// What happens to a packet that a rule matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Target {
    /// Nothing: it is counted.
    #[default]
    Count,
    /// ACCEPT.
    Accept,
    /// DROP.
    Drop,
    /// RETURN.
    Return,
    /// `-j` to a user chain.
    Jump(String),
    /// `-g` to a user chain.
    Goto(String),
    /// REJECT.
    Reject(Reject),
    /// LOG.
    Log(segue_classifier::program::Log),
    /// NFLOG.
    Nflog(Nflog),
    /// MARK: `mark & !mask ^ value`.
    Mark {
        /// Xored in.
        value: u32,
        /// Cleared first.
        mask: u32,
    },
    /// SEG6.
    Seg6(Seg6),
    /// MPLS.
    Mpls(Mpls),
}

/// `-j NFLOG`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nflog {
    /// What a [`segue_classifier::Program`] has of it.
    pub common: segue_classifier::program::Nflog,
    /// `--nflog-range`: without effect, in the kernel and here; kept for the printed form. 0: not given.
    pub range: u32,
}
