//! Sets of addresses, ports and so on, as `ipset save` writes them.

use std::fmt::Write;

use super::error::Origin;
use super::head::Family;
use super::matches::mac_text;
use super::names;
use super::values::address_text;

/// A file of `ipset save`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetFile {
    /// In the file's order.
    pub sets: Vec<IpSet>,
}

impl SetFile {
    /// The set of that name.
    pub fn set(&self, name: &str) -> Option<&IpSet> {
        self.sets.iter().find(|set| set.name == name)
    }
}

/// What a dimension of a set's type is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// `ip`.
    Ip,
    /// `net`.
    Net,
    /// `port`: with its protocol.
    Port,
    /// `port` of bitmap:port: without protocol.
    PortAlone,
    /// `mac`.
    Mac,
    /// `mark`.
    Mark,
    /// `iface`.
    Interface,
    /// `set` of list:set.
    Set,
}

/// A type of sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetType {
    /// Its name.
    pub name: &'static str,
    /// Its dimensions.
    pub parts: &'static [Part],
}

impl SetType {
    /// All that are honoured.
    pub const ALL: &'static [Self] = {
        use Part::{Interface, Ip, Mac, Mark, Net, Port, PortAlone, Set};
        &[
            Self { name: "hash:ip", parts: &[Ip] },
            Self { name: "hash:net", parts: &[Net] },
            Self { name: "hash:mac", parts: &[Mac] },
            Self { name: "hash:ip,mac", parts: &[Ip, Mac] },
            Self { name: "hash:ip,mark", parts: &[Ip, Mark] },
            Self { name: "hash:ip,port", parts: &[Ip, Port] },
            Self { name: "hash:net,port", parts: &[Net, Port] },
            Self { name: "hash:ip,port,ip", parts: &[Ip, Port, Ip] },
            Self { name: "hash:ip,port,net", parts: &[Ip, Port, Net] },
            Self { name: "hash:net,port,net", parts: &[Net, Port, Net] },
            Self { name: "hash:net,net", parts: &[Net, Net] },
            Self { name: "hash:net,iface", parts: &[Net, Interface] },
            Self { name: "bitmap:ip", parts: &[Ip] },
            Self { name: "bitmap:ip,mac", parts: &[Ip, Mac] },
            Self { name: "bitmap:port", parts: &[PortAlone] },
            Self { name: "list:set", parts: &[Set] },
        ]
    };

    /// Whether it has addresses, and so a family.
    pub fn has_addresses(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Ip | Part::Net | Part::Port))
    }

    /// Whether it is one of the `hash` types.
    pub(super) fn is_hash(&self) -> bool {
        self.name.starts_with("hash:")
    }
}

/// One set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpSet {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: SetType,
    /// Of its addresses; None: it has none.
    pub family: Option<Family>,
    /// `netmask`: addresses are cut to that many bits before they are looked up.
    pub netmask: Option<u8>,
    /// What is behind `create`, but family and range, in order: `hashsize 1024` and so on.
    pub options: Vec<(String, Option<String>)>,
    /// `range`, of bitmaps.
    pub range: Option<(u128, u128)>,
    /// Its members.
    pub entries: Vec<Entry>,
    /// Where it was created.
    pub origin: Origin,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// One value for each dimension.
    pub values: Vec<EntryValue>,
    /// `nomatch`: what fits it is not in the set.
    pub no_match: bool,
    /// `comment`.
    pub comment: Option<String>,
    /// Where it was added.
    pub origin: Origin,
}

/// The value of a dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryValue {
    /// Addresses with a common prefix; IPv4 in the lower 32 bits.
    Prefix {
        /// Without bits behind the prefix.
        address: u128,
        /// Bits.
        length: u8,
    },
    /// Addresses from first to last.
    Addresses {
        /// First.
        first: u128,
        /// Last.
        last: u128,
    },
    /// Ports from first to last; of ICMP type and code as `type << 8 | code`.
    Ports {
        /// IANA number; None: of bitmap:port.
        protocol: Option<u8>,
        /// First.
        first: u16,
        /// Last.
        last: u16,
    },
    /// A MAC address.
    Mac(u64),
    /// A mark.
    Mark(u32),
    /// An interface; every one whose name begins so, if `wildcard`.
    Interface {
        /// Name.
        name: String,
        /// The entry says `wildcard`.
        wildcard: bool,
    },
    /// Another set.
    Set(String),
}

impl SetFile {
    /// As `ipset save` writes it.
    pub fn save(&self) -> String {
        let mut out = String::new();
        for set in &self.sets {
            set.save(&mut out);
        }
        out
    }
}

impl IpSet {
    fn save(&self, out: &mut String) {
        let _ = write!(out, "create {} {}", self.name, self.kind.name);
        if let Some(family) = self.family.filter(|_| self.kind.is_hash()) {
            let _ = write!(out, " family {}", if family == Family::Ipv4 { "inet" } else { "inet6" });
        }
        if let Some((first, last)) = self.range {
            let text = |value| match self.family {
                Some(family) => address_text(family, value),
                None => value.to_string(),
            };
            let _ = write!(out, " range {}-{}", text(first), text(last));
        }
        for (option, value) in &self.options {
            let _ = write!(out, " {option}");
            if let Some(value) = value {
                let _ = write!(out, " {value}");
            }
        }
        out.push('\n');
        for entry in &self.entries {
            let values = entry.values.iter().map(|value| self.value_text(value)).collect::<Vec<_>>();
            let _ = write!(out, "add {} {}", self.name, values.join(","));
            if self.options.iter().any(|(option, _)| option == "timeout") {
                out.push_str(" timeout 0");
            }
            if entry.no_match {
                out.push_str(" nomatch");
            }
            if entry.values.iter().any(|value| matches!(value, EntryValue::Interface { wildcard: true, .. })) {
                out.push_str(" wildcard");
            }
            if let Some(comment) = &entry.comment {
                let _ = write!(out, " comment \"{comment}\"");
            }
            out.push('\n');
        }
    }

    fn value_text(&self, value: &EntryValue) -> String {
        let family = self.family.unwrap_or(Family::Ipv4);
        match value {
            EntryValue::Prefix { address, length } if *length == family.bits() => address_text(family, *address),
            EntryValue::Prefix { address, length } => format!("{}/{length}", address_text(family, *address)),
            EntryValue::Addresses { first, last } => {
                format!("{}-{}", address_text(family, *first), address_text(family, *last))
            }
            EntryValue::Ports { protocol, first, last } => ports_text(*protocol, *first, *last),
            EntryValue::Mac(address) => mac_text(address).to_ascii_uppercase(),
            EntryValue::Mark(mark) => format!("0x{mark:08x}"),
            EntryValue::Interface { name, .. } => name.clone(),
            EntryValue::Set(name) => name.clone(),
        }
    }
}

fn ports_text(protocol: Option<u8>, first: u16, last: u16) -> String {
    let ports = match protocol {
        Some(protocol @ (1 | 58)) => {
            let family = if protocol == 1 { Family::Ipv4 } else { Family::Ipv6 };
            let [kind, code] = first.to_be_bytes();
            names::icmp_name(family, kind, code).map_or_else(|| format!("{kind}/{code}"), str::to_owned)
        }
        _ if first == last => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    match protocol {
        None => ports,
        Some(number) => {
            let name = names::protocol_name(number).map_or_else(|| number.to_string(), str::to_owned);
            format!("{name}:{ports}")
        }
    }
}
