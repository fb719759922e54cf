//! Fields of the IP header and of IPv6's Fragment header: `length`, `dscp`, `tos`, `ttl`, `hl`, `frag`, and `iprange`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, flag, missing, negatable, plain, range_text, save_not, save_option};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Family, Head, Not};
use crate::lexer::Word;
use crate::names;
use crate::values::{self, address_text};

/// `-m length`: octets of layer 3.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Length {
    /// The range. First greater than last matches nothing, as in iptables.
    pub range: Option<Not<(u16, u16)>>,
}

impl Extension for Length {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--length"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let (first, last) = values::range(given.value(), u64::from(u16::MAX))?;
        given.put(&mut self.range, (first as u16, last as u16))
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.range.map(|_| ()).ok_or_else(|| missing("length without a length", "add --length first[:last]"))
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--length", &self.range, range_text);
    }

    fn list(&self, out: &mut String) {
        if let Some(range) = &self.range {
            let _ = write!(out, " length {}{}", range.mark(), range_text(&range.value));
        }
    }
}

/// `-m dscp`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dscp {
    /// The code point, 0 to 63.
    pub value: Option<Not<u8>>,
}

impl Extension for Dscp {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--dscp"]), negatable(&["--dscp-class"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let value = match given.name {
            "--dscp" => values::number_in(word, 0, 63)? as u8,
            _ => names::dscp_class(&word.text).ok_or_else(|| {
                RuleError::value(word, "no class of DiffServ", "write BE, EF, CS0 to CS7 or AF11 to AF43")
            })?,
        };
        given.put(&mut self.value, value)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.value.map(|_| ()).ok_or_else(|| missing("dscp without a value", "add --dscp VALUE or --dscp-class NAME"))
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--dscp", &self.value, |value| format!("0x{value:02x}"));
    }

    fn list(&self, out: &mut String) {
        if let Some(value) = &self.value {
            let _ = write!(out, " DSCP match {}0x{:02x}", value.mark(), value.value);
        }
    }
}

/// `-m tos`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tos {
    /// Value and mask.
    pub value: Option<Not<(u8, u8)>>,
}

impl Extension for Tos {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--tos"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let value = match names::tos(&word.text) {
            Some(value) => (value, 0x3f),
            None => match word.text.split_once('/') {
                None => (values::octet(word)?, 0xff),
                Some((value, mask)) => (values::octet(&word.part(value))?, values::octet(&word.part(mask))?),
            },
        };
        given.put(&mut self.value, value)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.value.map(|_| ()).ok_or_else(|| missing("tos without a value", "add --tos VALUE[/MASK]"))
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--tos", &self.value, |(value, mask)| format!("0x{value:02x}/0x{mask:02x}"));
    }

    fn list(&self, out: &mut String) {
        if let Some(test) = &self.value {
            let (value, mask) = test.value;
            let _ = write!(out, " tos match{}0x{value:02x}/0x{mask:02x}", test.mark());
        }
    }
}

/// How a TTL or Hop Limit is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopLimitTest {
    /// `--ttl-eq`, `--hl-eq`.
    Equal,
    /// `--ttl-lt`, `--hl-lt`.
    Less,
    /// `--ttl-gt`, `--hl-gt`.
    Greater,
}

/// `-m ttl` and `-m hl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopLimit {
    family: Family,
    /// What it is compared with.
    pub test: Option<Not<(HopLimitTest, u8)>>,
}

impl HopLimit {
    pub(super) const fn new(family: Family) -> Self {
        Self { family, test: None }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self.family {
            Family::Ipv4 => "ttl",
            Family::Ipv6 => "hl",
        }
    }
}

impl Extension for HopLimit {
    fn options(&self) -> &'static [Spec] {
        match self.family {
            Family::Ipv4 => const { &[negatable(&["--ttl-eq", "--ttl"]), plain(&["--ttl-lt"]), plain(&["--ttl-gt"])] },
            Family::Ipv6 => const { &[negatable(&["--hl-eq", "--hl"]), plain(&["--hl-lt"]), plain(&["--hl-gt"])] },
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let test = match given.name {
            "--ttl-eq" | "--hl-eq" => HopLimitTest::Equal,
            "--ttl-lt" | "--hl-lt" => HopLimitTest::Less,
            _ => HopLimitTest::Greater,
        };
        let value = values::octet(given.value())?;
        given.put(&mut self.test, (test, value))
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        let name = self.name();
        self.test
            .map(|_| ())
            .ok_or_else(|| missing(format!("{name} without a value"), format!("add --{name}-eq VALUE")))
    }

    fn save(&self, out: &mut String) {
        let Some(Not { negated, value: (test, value) }) = self.test else { return };
        let suffix = match test {
            HopLimitTest::Equal => "eq",
            HopLimitTest::Less => "lt",
            HopLimitTest::Greater => "gt",
        };
        save_option(out, &format!("--{}-{suffix}", self.name()), negated, &value);
    }

    fn list(&self, out: &mut String) {
        let Some(Not { negated, value: (test, value) }) = self.test else { return };
        let sign = match (test, negated) {
            (HopLimitTest::Equal, false) => "==",
            (HopLimitTest::Equal, true) => "!=",
            (HopLimitTest::Less, _) => "<",
            (HopLimitTest::Greater, _) => ">",
        };
        let name = self.name().to_ascii_uppercase();
        let _ = write!(out, " {name} match {name} {sign} {value}");
    }
}

/// `-m frag`: packets with a Fragment header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frag {
    /// `--fragid`.
    pub identification: Option<Not<(u32, u32)>>,
    /// `--fragres`: the reserved fields are 0.
    pub reserved: bool,
    /// `--fragfirst`: offset 0.
    pub first: bool,
    /// `--fragmore` (true) or `--fraglast` (false).
    pub more: Option<bool>,
}

impl Extension for Frag {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--fragid"]),
                negatable(&["--fraglen"]),
                flag(&["--fragres"]),
                flag(&["--fragfirst"]),
                flag(&["--fragmore"]),
                flag(&["--fraglast"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        match given.name {
            "--fragid" => {
                let (first, last) = values::range(given.value(), u64::from(u32::MAX))?;
                if first > last {
                    let remedy = format!("write {last}:{first}");
                    return Err(RuleError::value(given.value(), "the range's first is greater than its last", remedy));
                }
                given.put(&mut self.identification, (first as u32, last as u32))?;
            }
            "--fraglen" => {
                let reason = "a Fragment header always has 8 octets, and the kernel ignores this option";
                return Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, "leave it out"));
            }
            "--fragres" => self.reserved = true,
            "--fragfirst" => self.first = true,
            name => given.once(&mut self.more, name == "--fragmore")?,
        }
        Ok(())
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        Ok(())
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--fragid", &self.identification, range_text);
        for (set, option) in [
            (self.reserved, " --fragres"),
            (self.first, " --fragfirst"),
            (self.more == Some(true), " --fragmore"),
            (self.more == Some(false), " --fraglast"),
        ] {
            if set {
                out.push_str(option);
            }
        }
    }

    fn list(&self, out: &mut String) {
        out.push_str(" frag ");
        if let Some(id) = &self.identification {
            let plural = if id.value.0 == id.value.1 { "" } else { "s" };
            let _ = write!(out, "id{plural}:{}{}", id.mark(), range_text(&id.value));
        }
        for (set, option) in [
            (self.reserved, " reserved"),
            (self.first, " first"),
            (self.more == Some(true), " more"),
            (self.more == Some(false), " last"),
        ] {
            if set {
                out.push_str(option);
            }
        }
    }
}

/// `-m iprange`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpRange {
    /// `--src-range`.
    pub source: Option<Not<AddressRange>>,
    /// `--dst-range`.
    pub destination: Option<Not<AddressRange>>,
}

/// Addresses from first to last, both included. First greater than last is no address, as in iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// Of both.
    pub family: Family,
    /// The first; IPv4 in the lower 32 bits.
    pub first: u128,
    /// The last.
    pub last: u128,
}

impl AddressRange {
    fn text(&self) -> String {
        format!("{}-{}", address_text(self.family, self.first), address_text(self.family, self.last))
    }

    fn parse(word: &Word<'_>, family: Family) -> Result<Self, RuleError> {
        let (first, last) = match word.text.split_once('-') {
            None => (word.text.as_ref(), word.text.as_ref()),
            Some(both) => both,
        };
        let first = values::address(&word.part(first), family)?;
        let last = values::address(&word.part(last), family)?;
        Ok(Self { family, first, last })
    }
}

impl Extension for IpRange {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--src-range"]), negatable(&["--dst-range"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let range = AddressRange::parse(given.value(), given.family)?;
        let place = if given.name == "--src-range" { &mut self.source } else { &mut self.destination };
        given.put(place, range)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        if self.source.is_none() && self.destination.is_none() {
            return Err(missing("iprange without a range", "add --src-range or --dst-range first-last"));
        }
        Ok(())
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--src-range", &self.source, AddressRange::text);
        save_not(out, "--dst-range", &self.destination, AddressRange::text);
    }

    fn list(&self, out: &mut String) {
        for (name, range) in [("source", &self.source), ("destination", &self.destination)] {
            if let Some(range) = range {
                let mark = if range.negated { "! " } else { "" };
                let _ = write!(out, " {name} IP range {mark}{}", range.value.text());
            }
        }
    }
}
