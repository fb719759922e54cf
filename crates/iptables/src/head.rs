//! What comes in front of the matches of a rule, and what matches too are made of.

use std::fmt;

use serde::{Deserialize, Serialize};

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
