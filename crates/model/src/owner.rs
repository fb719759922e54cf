//! Whom SIDs and SR policies were made for.

use std::fmt;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::direction::Direction;
use crate::proxy::InnerType;

/// What a SID or a policy was made for. Forwarding does not look at it: it is for whoever made it, and `segue get chains`
/// groups by it. What has no owner is in no chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Name of the chain.
    pub chain: String,
    /// The direction that it serves; both if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The address family that it serves; all that the chain carries if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<AddressFamily>,
}

/// An address family of inner packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl AddressFamily {
    /// The prefix that contains all of its addresses.
    #[must_use]
    pub fn all_addresses(self) -> IpNet {
        match self {
            Self::Ipv4 => Ipv4Net::default().into(),
            Self::Ipv6 => Ipv6Net::default().into(),
        }
    }
}

impl Owner {
    /// The part of the chain that is served, in words: `forward ipv4`; empty for all of it.
    pub fn part(&self) -> String {
        let words = [self.direction.map(Direction::name), self.family.map(AddressFamily::name)];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part();
        let blank = if part.is_empty() { "" } else { " " };
        write!(formatter, "chain {}{blank}{part}", self.chain)
    }
}

impl AddressFamily {
    /// That of a prefix.
    pub fn of(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::Ipv4,
            IpNet::V6(_) => Self::Ipv6,
        }
    }

    /// The type of its packets inside of others.
    pub fn inner(self) -> InnerType {
        match self {
            Self::Ipv4 => InnerType::IPv4,
            Self::Ipv6 => InnerType::IPv6,
        }
    }

    /// As operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_in_words() {
        let owner = |direction, family| Owner { chain: "web".into(), direction, family };
        assert_eq!(owner(None, None).to_string(), "chain web");
        assert_eq!(owner(Some(Direction::Reverse), None).to_string(), "chain web reverse");
        let both = owner(Some(Direction::Forward), Some(AddressFamily::Ipv4));
        assert_eq!((both.to_string().as_str(), both.part().as_str()), ("chain web forward ipv4", "forward ipv4"));
    }
}
