//! What a rule file says: tables, chains, rules, as a tree that can be printed again.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::Origin;
use super::matches::Match;
use crate::program::{Reject, Seg6};

/// Which of the two: `iptables` or `ip6tables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// iptables.
    Ipv4,
    /// ip6tables.
    Ipv6,
}

impl Family {
    /// Bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
        }
    }

    /// The mask of a prefix of that many bits.
    pub fn mask(self, length: u8) -> u128 {
        let bits = u32::from(self.bits());
        let free = bits.saturating_sub(u32::from(length));
        let all = u128::MAX >> (128 - bits);
        all.checked_shr(free).and_then(|mask| mask.checked_shl(free)).unwrap_or(0)
    }

    /// The program whose files these are.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Ipv4 => "iptables",
            Self::Ipv6 => "ip6tables",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

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

/// A test that may be negated with `!`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Not<T> {
    /// There was a `!`.
    pub negated: bool,
    /// What was tested for.
    pub value: T,
}

impl<T> Not<T> {
    /// The `!` in front, or nothing.
    pub(super) fn mark(&self) -> &'static str {
        if self.negated { "!" } else { "" }
    }
}

/// An address with mask. Of `-s` and `-d` the address has no bits outside the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Of the address.
    pub family: Family,
    /// The address; IPv4 in the lower 32 bits.
    pub address: u128,
    /// The mask, likewise. It may have holes, as iptables allows.
    pub mask: u128,
}

/// `-i` or `-o`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name, without the `+`.
    pub name: String,
    /// Every interface whose name begins so.
    pub wildcard: bool,
}

/// What comes in front of the matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// `-s`.
    pub source: Option<Not<Network>>,
    /// `-d`.
    pub destination: Option<Not<Network>>,
    /// `-i`.
    pub in_interface: Option<Not<Interface>>,
    /// `-o`.
    pub out_interface: Option<Not<Interface>>,
    /// `-p`; all protocols are None.
    pub protocol: Option<Not<u8>>,
    /// `-f`: later fragments; IPv4 only.
    pub fragment: Option<Not<()>>,
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
    Log(crate::program::Log),
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
}

/// `-j NFLOG`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nflog {
    /// What a [`crate::Program`] has of it.
    pub common: crate::program::Nflog,
    /// `--nflog-range`: without effect, in the kernel and here; kept for the printed form. 0: not given.
    pub range: u32,
}
