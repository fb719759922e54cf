//! The matches that are honoured: their options, how they print, what they need.

mod comment;
mod connection;
mod header;
mod icmp;
mod link;
mod mpls;
mod ports;
mod rate;
mod recent;
mod rt;
mod set;
mod srh;

pub use comment::Comment;
pub(super) use connection::names_translation;
pub use connection::{Conntrack, Direction, Mark, State};
pub use header::{AddressRange, Dscp, Frag, HopLimit, HopLimitTest, IpRange, Length, Tos};
pub use icmp::{Icmp, IcmpType};
pub use link::{AddressType, Mac};
pub(super) use link::{mac, mac_text};
pub use mpls::{Mpls, MplsDepth};
pub use ports::{Multiport, MultiportSide, PortRange, Ports, Tcp, TcpFlags};
pub use rate::{HashLimit, Limit, Rate};
pub use recent::Recent;
pub use rt::Rt;
pub use set::{SetFlag, SetMatch};
pub use srh::{Compared, Srh};

use super::error::{ErrorKind, RuleError};
use super::head::{Family, Head, Not};
use super::lexer::Word;

/// A match of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Match {
    Tcp(Tcp),
    Udp(Ports),
    Sctp(Ports),
    Icmp(Icmp),
    Multiport(Multiport),
    IpRange(IpRange),
    State(State),
    Conntrack(Conntrack),
    Mark(Mark),
    Limit(Limit),
    HashLimit(HashLimit),
    Length(Length),
    Dscp(Dscp),
    Tos(Tos),
    HopLimit(HopLimit),
    Comment(Comment),
    Set(SetMatch),
    Mac(Mac),
    AddressType(AddressType),
    Frag(Frag),
    Srh(Box<Srh>),
    Rt(Rt),
    Mpls(Mpls),
    Recent(Recent),
}

/// An option of a match or target.
#[derive(Debug)]
pub(super) struct Spec {
    /// Its names; the first is the one that it is known by here.
    pub names: &'static [&'static str],
    /// How many values follow.
    pub values: usize,
    /// Whether `!` may stand in front.
    pub negatable: bool,
}

/// An option without value.
pub(super) const fn flag(names: &'static [&'static str]) -> Spec {
    Spec { names, values: 0, negatable: false }
}

/// An option with one value.
pub(super) const fn plain(names: &'static [&'static str]) -> Spec {
    Spec { names, values: 1, negatable: false }
}

/// An option with one value that `!` may stand in front of.
pub(super) const fn negatable(names: &'static [&'static str]) -> Spec {
    Spec { names, values: 1, negatable: true }
}

/// An option as it was given.
pub(super) struct Given<'w, 'a> {
    /// The first of its names.
    pub name: &'static str,
    /// There was a `!`.
    pub negated: bool,
    /// The option itself.
    pub word: &'w Word<'a>,
    /// Its values.
    pub values: &'w [Word<'a>],
    /// Of the file.
    pub family: Family,
}

impl<'w, 'a> Given<'w, 'a> {
    /// The first value, or the option if it takes none.
    pub fn value(&self) -> &'w Word<'a> {
        self.values.first().unwrap_or(self.word)
    }

    /// With its negation.
    pub fn not<T>(&self, value: T) -> Not<T> {
        Not { negated: self.negated, value }
    }

    /// Stores a value with its negation, unless the option was given before.
    pub fn put<T>(&self, place: &mut Option<Not<T>>, value: T) -> Result<(), RuleError> {
        self.once(place, Not { negated: self.negated, value })
    }

    /// Stores a value, unless the option was given before.
    pub fn once<T>(&self, place: &mut Option<T>, value: T) -> Result<(), RuleError> {
        if place.is_some() {
            let remedy = "remove one, or repeat the match with another -m";
            return Err(RuleError::at(self.word, ErrorKind::Conflict, "given before", remedy));
        }
        *place = Some(value);
        Ok(())
    }
}

/// What every match can do.
pub(super) trait Extension {
    /// Its options.
    fn options(&self) -> &'static [Spec];
    /// Takes one option. Names are those of [`Extension::options`].
    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError>;
    /// Fills in defaults; says what is missing or excludes each other.
    fn finish(&mut self, head: &Head) -> Result<(), Complaint>;
    /// Its options as iptables-save writes them, each with a blank in front.
    fn save(&self, out: &mut String);
    /// As `iptables -L -n` writes it, with a blank in front.
    fn list(&self, out: &mut String);
}

/// Kind, reason and remedy of an error about a whole match.
pub(super) type Complaint = (ErrorKind, String, String);

/// A complaint that something is missing.
pub(super) fn missing(reason: impl Into<String>, remedy: impl Into<String>) -> Complaint {
    (ErrorKind::Missing, reason.into(), remedy.into())
}

impl Match {
    /// An empty match by the name behind `-m`. None: not known, or not honoured.
    pub(super) fn new(name: &str, family: Family) -> Option<Self> {
        let v4 = family == Family::Ipv4;
        Some(match name {
            "tcp" => Self::Tcp(Tcp::default()),
            "udp" => Self::Udp(Ports::new("udp")),
            "sctp" => Self::Sctp(Ports::new("sctp")),
            "icmp" if v4 => Self::Icmp(Icmp::new(family)),
            "icmp6" | "icmpv6" | "ipv6-icmp" if !v4 => Self::Icmp(Icmp::new(family)),
            "multiport" => Self::Multiport(Multiport::default()),
            "iprange" => Self::IpRange(IpRange::default()),
            "state" => Self::State(State::default()),
            "conntrack" => Self::Conntrack(Conntrack::default()),
            "mark" => Self::Mark(Mark::default()),
            "limit" => Self::Limit(Limit::default()),
            "hashlimit" => Self::HashLimit(HashLimit::new(family)),
            "length" => Self::Length(Length::default()),
            "dscp" => Self::Dscp(Dscp::default()),
            "tos" => Self::Tos(Tos::default()),
            "ttl" if v4 => Self::HopLimit(HopLimit::new(family)),
            "hl" if !v4 => Self::HopLimit(HopLimit::new(family)),
            "comment" => Self::Comment(Comment::default()),
            "set" => Self::Set(SetMatch::default()),
            "mac" => Self::Mac(Mac::default()),
            "addrtype" => Self::AddressType(AddressType::default()),
            "frag" if !v4 => Self::Frag(Frag::default()),
            "srh" if !v4 => Self::Srh(Box::default()),
            "rt" if !v4 => Self::Rt(Rt::default()),
            "mpls" => Self::Mpls(Mpls::default()),
            "recent" => Self::Recent(Recent::new(family)),
            _ => return None,
        })
    }

    /// The name behind `-m`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::Sctp(_) => "sctp",
            Self::Icmp(icmp) => icmp.name(),
            Self::Multiport(_) => "multiport",
            Self::IpRange(_) => "iprange",
            Self::State(_) => "state",
            Self::Conntrack(_) => "conntrack",
            Self::Mark(_) => "mark",
            Self::Limit(_) => "limit",
            Self::HashLimit(_) => "hashlimit",
            Self::Length(_) => "length",
            Self::Dscp(_) => "dscp",
            Self::Tos(_) => "tos",
            Self::HopLimit(test) => test.name(),
            Self::Comment(_) => "comment",
            Self::Set(_) => "set",
            Self::Mac(_) => "mac",
            Self::AddressType(_) => "addrtype",
            Self::Frag(_) => "frag",
            Self::Srh(_) => "srh",
            Self::Rt(_) => "rt",
            Self::Mpls(_) => "mpls",
            Self::Recent(_) => "recent",
        }
    }

    pub(super) fn extension(&self) -> &dyn Extension {
        match self {
            Self::Tcp(test) => test,
            Self::Udp(test) | Self::Sctp(test) => test,
            Self::Icmp(test) => test,
            Self::Multiport(test) => test,
            Self::IpRange(test) => test,
            Self::State(test) => test,
            Self::Conntrack(test) => test,
            Self::Mark(test) => test,
            Self::Limit(test) => test,
            Self::HashLimit(test) => test,
            Self::Length(test) => test,
            Self::Dscp(test) => test,
            Self::Tos(test) => test,
            Self::HopLimit(test) => test,
            Self::Comment(test) => test,
            Self::Set(test) => test,
            Self::Mac(test) => test,
            Self::AddressType(test) => test,
            Self::Frag(test) => test,
            Self::Srh(test) => test.as_ref(),
            Self::Rt(test) => test,
            Self::Mpls(test) => test,
            Self::Recent(test) => test,
        }
    }

    pub(super) fn extension_mut(&mut self) -> &mut dyn Extension {
        match self {
            Self::Tcp(test) => test,
            Self::Udp(test) | Self::Sctp(test) => test,
            Self::Icmp(test) => test,
            Self::Multiport(test) => test,
            Self::IpRange(test) => test,
            Self::State(test) => test,
            Self::Conntrack(test) => test,
            Self::Mark(test) => test,
            Self::Limit(test) => test,
            Self::HashLimit(test) => test,
            Self::Length(test) => test,
            Self::Dscp(test) => test,
            Self::Tos(test) => test,
            Self::HopLimit(test) => test,
            Self::Comment(test) => test,
            Self::Set(test) => test,
            Self::Mac(test) => test,
            Self::AddressType(test) => test,
            Self::Frag(test) => test,
            Self::Srh(test) => test.as_mut(),
            Self::Rt(test) => test,
            Self::Mpls(test) => test,
            Self::Recent(test) => test,
        }
    }

    /// The match that options of a protocol load by themselves: `-p tcp --dport 80` is `-p tcp -m tcp --dport 80`.
    pub(super) fn of_protocol(protocol: u8, family: Family) -> Option<Self> {
        let name = match protocol {
            6 => "tcp",
            17 => "udp",
            132 => "sctp",
            1 => "icmp",
            58 => "icmp6",
            _ => return None,
        };
        Self::new(name, family)
    }
}

/// Writes ` --option value`, with ` !` in front if negated.
pub(super) fn save_option(out: &mut String, option: &str, negated: bool, value: &dyn std::fmt::Display) {
    use std::fmt::Write;
    let _ = write!(out, "{} {option} {value}", if negated { " !" } else { "" });
}

/// As [`save_option`] for an option that may not have been given.
pub(super) fn save_not<T>(out: &mut String, option: &str, test: &Option<Not<T>>, text: impl Fn(&T) -> String) {
    if let Some(test) = test {
        save_option(out, option, test.negated, &text(&test.value));
    }
}

/// `5` or `5:9`.
pub(super) fn range_text<T: PartialEq + std::fmt::Display>(range: &(T, T)) -> String {
    if range.0 == range.1 { range.0.to_string() } else { format!("{}:{}", range.0, range.1) }
}
