//! `mac` and `addrtype`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, flag, missing, negatable, save_not};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Family, Head, Not};
use crate::lexer::Word;
use crate::refused::NARROWER;

/// `-m mac`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mac {
    /// The source address, 48 bit.
    pub source: Option<Not<u64>>,
}

/// Six octets in hexadecimal with colons between them.
pub(crate) fn mac(word: &Word<'_>) -> Result<u64, RuleError> {
    let octets = word.text.split(':').map(|octet| match octet.len() {
        1 | 2 if octet.chars().all(|c| c.is_ascii_hexdigit()) => u64::from_str_radix(octet, 16).ok(),
        _ => None,
    });
    let octets = octets.collect::<Option<Vec<_>>>().filter(|octets| octets.len() == 6);
    let octets = octets.ok_or_else(|| RuleError::value(word, "no MAC address", "write it as 00:11:22:33:44:55"))?;
    Ok(octets.iter().fold(0, |address, octet| address << 8 | octet))
}

/// A MAC address as iptables writes it.
pub(crate) fn mac_text(address: &u64) -> String {
    address.to_be_bytes()[2..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

impl Extension for Mac {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--mac-source"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        given.put(&mut self.source, mac(given.value())?)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.source.map(|_| ()).ok_or_else(|| missing("mac without an address", "add --mac-source ADDRESS"))
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--mac-source", &self.source, mac_text);
    }

    fn list(&self, out: &mut String) {
        if let Some(source) = &self.source {
            let _ = write!(out, " MAC {}{}", if source.negated { "! " } else { "" }, mac_text(&source.value));
        }
    }
}

/// `-m addrtype`: types that can be told from the node's own addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressType {
    /// `--src-type`: bits of [`AddressType::TYPES`].
    pub source: Option<Not<u16>>,
    /// `--dst-type`.
    pub destination: Option<Not<u16>>,
}

impl AddressType {
    /// IPv6: `::`. IPv4: no address.
    pub const UNSPEC: u16 = 1 << 0;
    /// IPv4: none of the others. IPv6: what is no group, and neither `::` nor an IPv4-mapped address.
    pub const UNICAST: u16 = 1 << 1;
    /// Addresses of this node.
    pub const LOCAL: u16 = 1 << 2;
    /// Broadcast addresses of this node's networks.
    pub const BROADCAST: u16 = 1 << 3;
    /// IPv6: first addresses of the networks that this node is in. IPv4: no address.
    pub const ANYCAST: u16 = 1 << 4;
    /// Multicast groups.
    pub const MULTICAST: u16 = 1 << 5;
    const UNREACHABLE: u16 = 1 << 7;
    /// Of IPv4, for which the kernel asks the table `local` alone: routes of these types are never there, unless by hand.
    pub const NEVER_IPV4: u16 = Self::UNSPEC | Self::ANYCAST | 0xfc0;
    /// Names and bits, in iptables' order.
    pub const TYPES: &[(&str, u16)] = &[
        ("UNSPEC", Self::UNSPEC),
        ("UNICAST", Self::UNICAST),
        ("LOCAL", Self::LOCAL),
        ("BROADCAST", Self::BROADCAST),
        ("ANYCAST", Self::ANYCAST),
        ("MULTICAST", Self::MULTICAST),
        ("BLACKHOLE", 1 << 6),
        ("UNREACHABLE", Self::UNREACHABLE),
        ("PROHIBIT", 1 << 8),
        ("THROW", 1 << 9),
        ("NAT", 1 << 10),
        ("XRESOLVE", 1 << 11),
    ];

    fn text(types: &u16) -> String {
        let set = Self::TYPES.iter().filter(|(_, bit)| types & bit != 0).map(|(name, _)| *name);
        set.collect::<Vec<_>>().join(",")
    }

    fn parse(word: &Word<'_>, family: Family) -> Result<u16, RuleError> {
        let mut types = 0;
        for name in word.text.split(',') {
            let part = word.part(name);
            let upper = name.to_ascii_uppercase();
            types |= match Self::TYPES.iter().find(|(known, _)| *known == upper) {
                Some((_, Self::BROADCAST)) if family == Family::Ipv6 => {
                    return Err(RuleError::value(&part, "IPv6 has no broadcast", "leave it out, or use MULTICAST"));
                }
                Some((_, Self::UNREACHABLE)) if family == Family::Ipv6 => {
                    let reason = "this type is known only after a look into the routing table, which rules do not ask";
                    return Err(RuleError::at(&part, ErrorKind::NotHonoured, reason, NARROWER));
                }
                Some((_, bit)) if family == Family::Ipv6 && bit & 0xf40 != 0 => {
                    let reason = "ip6tables knows no such type";
                    return Err(RuleError::value(&part, reason, "write UNSPEC, UNICAST, LOCAL, ANYCAST or MULTICAST"));
                }
                Some((_, bit)) => *bit,
                None => {
                    let remedy = "write UNICAST, LOCAL, BROADCAST, ANYCAST or MULTICAST";
                    return Err(RuleError::value(&part, "no type of address", remedy));
                }
            };
        }
        Ok(types)
    }
}

impl Extension for AddressType {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--src-type"]),
                negatable(&["--dst-type"]),
                flag(&["--limit-iface-in"]),
                flag(&["--limit-iface-out"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        match given.name {
            "--src-type" => given.put(&mut self.source, Self::parse(given.value(), given.family)?),
            "--dst-type" => given.put(&mut self.destination, Self::parse(given.value(), given.family)?),
            _ => {
                let reason = "the type is that of the whole node, not of one interface";
                Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER))
            }
        }
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        if self.source.is_none() && self.destination.is_none() {
            return Err(missing("addrtype without a type", "add --src-type or --dst-type"));
        }
        Ok(())
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--src-type", &self.source, Self::text);
        save_not(out, "--dst-type", &self.destination, Self::text);
    }

    fn list(&self, out: &mut String) {
        out.push_str(" ADDRTYPE match");
        for (name, types) in [("src-type", &self.source), ("dst-type", &self.destination)] {
            if let Some(types) = types {
                let _ = write!(out, " {name} {}{}", types.mark(), Self::text(&types.value));
            }
        }
    }
}
