//! `limit` and `hashlimit`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, flag, missing, plain};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Family, Head};
use crate::lexer::{self, Word};
use crate::refused::NARROWER;
use crate::values;
use segue_classifier::program::HashLimitKey;

/// Units of iptables' `limit` in a second: 100 microseconds each.
const LIMIT_SCALE: u64 = 10_000;

/// Units of `hashlimit` in a second: microseconds.
const HASHLIMIT_SCALE: u64 = 1_000_000;

/// Name and seconds of the units of time, as iptables writes them.
const UNITS: [(&str, u64); 4] = [("day", 86_400), ("hour", 3_600), ("min", 60), ("sec", 1)];

/// A rate as iptables keeps it: the time in which one token comes, rounded down to whole units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time for one token, in units. Not 0.
    period: u64,
    /// Units in a second.
    scale: u64,
}

impl Rate {
    /// `number[/unit]`; also the seconds of the unit.
    fn parse(word: &Word<'_>, scale: u64) -> Result<(Self, u64), RuleError> {
        let bad = || RuleError::value(word, "no rate", "write it as 5/second, 5/minute, 5/hour or 5/day");
        let (number, unit) = match word.text.split_once('/') {
            None => (word.text.as_ref(), "second"),
            Some((number, unit)) => (number, unit),
        };
        let unit = unit.to_ascii_lowercase();
        let known = [("second", 1), ("minute", 60), ("hour", 3_600), ("day", 86_400)];
        let seconds = known.iter().find(|(name, _)| !unit.is_empty() && name.starts_with(unit.as_str()));
        let seconds = seconds.map(|(_, seconds)| *seconds).ok_or_else(bad)?;
        let number = number.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(bad)?;
        let period = scale * seconds / number;
        if period == 0 {
            let remedy = format!("give at most {scale}/second, or leave the limit out");
            return Err(RuleError::value(word, "faster than can be limited", remedy));
        }
        Ok((Self { period, scale }.as_written(), seconds))
    }

    /// The rate that iptables-restore makes of what iptables-save writes for this one. For odd rates that is another one (of
    /// `--limit 4801/minute`, it is 80/sec, 0.8 per cent less); a file means the same however often it was saved.
    fn as_written(self) -> Self {
        let mut rate = self;
        // Each turn but the last makes the period longer, so this ends; in practice after one.
        loop {
            let (number, seconds) = rate.whole();
            let again = Self { period: rate.scale * seconds / number, ..rate };
            if again.period <= rate.period {
                return again;
            }
            rate = again;
        }
    }

    /// Nanoseconds in which one token comes.
    pub fn interval(&self) -> u64 {
        self.period * (1_000_000_000 / self.scale)
    }

    /// Tokens in a unit of time, and the unit in seconds: the smallest in which they are at least one and nearly whole, as
    /// iptables chooses it.
    fn whole(&self) -> (u64, u64) {
        let mut best = 0;
        for (index, (_, seconds)) in UNITS.iter().enumerate().skip(1) {
            let unit = self.scale * seconds;
            if self.period > unit || unit / self.period < unit % self.period {
                break;
            }
            best = index;
        }
        let seconds = UNITS[best].1;
        // A token of more than a day, which no option makes, would be none in a day.
        ((self.scale * seconds / self.period).max(1), seconds)
    }

    /// As iptables writes it, and the seconds of its unit.
    fn text(&self) -> (String, u64) {
        let (number, seconds) = self.whole();
        let name = UNITS.iter().find(|(_, known)| *known == seconds).map_or("sec", |(name, _)| name);
        (format!("{number}/{name}"), seconds)
    }
}

/// `-m limit`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limit {
    rate: Option<Rate>,
    burst: Option<u32>,
}

impl Limit {
    /// `--limit`; by default 3 an hour.
    pub fn rate(&self) -> Rate {
        self.rate.unwrap_or(Rate { period: LIMIT_SCALE * 3_600 / 3, scale: LIMIT_SCALE })
    }

    /// `--limit-burst`; by default 5.
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(5)
    }
}

impl Extension for Limit {
    fn options(&self) -> &'static [Spec] {
        const { &[plain(&["--limit"]), plain(&["--limit-burst"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        match given.name {
            "--limit" => given.once(&mut self.rate, Rate::parse(given.value(), LIMIT_SCALE)?.0),
            _ => given.once(&mut self.burst, values::number_in(given.value(), 1, 10_000)? as u32),
        }
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        (self.rate, self.burst) = (Some(self.rate()), Some(self.burst()));
        Ok(())
    }

    fn save(&self, out: &mut String) {
        let _ = write!(out, " --limit {}", self.rate().text().0);
        if self.burst() != 5 {
            let _ = write!(out, " --limit-burst {}", self.burst());
        }
    }

    fn list(&self, out: &mut String) {
        let _ = write!(out, " limit: avg {} burst {}", self.rate().text().0, self.burst());
    }
}

/// `-m hashlimit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashLimit {
    family: Family,
    /// `--hashlimit-above` (true) or `--hashlimit-upto`, with the rate.
    pub rate: Option<(bool, Rate)>,
    /// Milliseconds after which an idle bucket is forgotten: `--hashlimit-htable-expire`, else one unit of the rate.
    expire: Option<u32>,
    /// The unit of the rate as it was written, in milliseconds, while the options are read.
    unit: u32,
    burst: Option<u32>,
    mode: Option<Vec<HashLimitKey>>,
    name: Option<String>,
    source_prefix: Option<u8>,
    destination_prefix: Option<u8>,
    /// `--hashlimit-htable-size`, `-max`, `-gcinterval`.
    table: [Option<u32>; 3],
}

const MODES: [(&str, HashLimitKey); 4] = [
    ("srcip", HashLimitKey::Source),
    ("srcport", HashLimitKey::SourcePort),
    ("dstip", HashLimitKey::Destination),
    ("dstport", HashLimitKey::DestinationPort),
];

const TABLE: [&str; 3] = ["htable-size", "htable-max", "htable-gcinterval"];
const TABLE_DEFAULTS: [u32; 3] = [0, 0, 1_000];

impl HashLimit {
    pub(super) const fn new(family: Family) -> Self {
        Self {
            family,
            rate: None,
            expire: None,
            unit: 0,
            burst: None,
            mode: None,
            name: None,
            source_prefix: None,
            destination_prefix: None,
            table: [None; 3],
        }
    }

    /// `--hashlimit-name`.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// `--hashlimit-burst`; by default 5.
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(5)
    }

    /// `--hashlimit-mode`, in iptables' order.
    pub fn mode(&self) -> Vec<HashLimitKey> {
        let chosen = self.mode.as_deref().unwrap_or_default();
        MODES.iter().map(|(_, key)| *key).filter(|key| chosen.contains(key)).collect()
    }

    /// `--hashlimit-srcmask` and `--hashlimit-dstmask`; by default whole addresses.
    pub fn prefixes(&self) -> (u8, u8) {
        let bits = self.family.bits();
        (self.source_prefix.unwrap_or(bits), self.destination_prefix.unwrap_or(bits))
    }

    /// Milliseconds after which an idle bucket is forgotten.
    pub fn expire(&self) -> u32 {
        self.expire.unwrap_or(self.unit)
    }

    /// `--hashlimit-htable-max`; 0: not given.
    pub fn entries_max(&self) -> u32 {
        self.table[1].unwrap_or(0)
    }

    fn mode_text(&self, separator: &str) -> String {
        let mode = self.mode();
        let names = MODES.iter().filter(|(_, key)| mode.contains(key)).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(separator)
    }

    /// What both forms have behind the mode. `prefix` is in front of each name.
    fn rest(&self, out: &mut String, prefix: &str) {
        for (name, value) in TABLE.iter().zip(self.table) {
            if let Some(value) = value {
                let _ = write!(out, " {prefix}{name} {value}");
            }
        }
        // iptables compares with the unit that it writes, which need not be the one that was read.
        let written = self.rate.map_or(0, |(_, rate)| rate.text().1 * 1_000);
        if u64::from(self.expire()) != written {
            let _ = write!(out, " {prefix}htable-expire {}", self.expire());
        }
        let (source, destination) = self.prefixes();
        for (name, length) in [("srcmask", source), ("dstmask", destination)] {
            if length != self.family.bits() {
                let _ = write!(out, " {prefix}{name} {length}");
            }
        }
    }
}

fn mode(word: &Word<'_>) -> Result<Vec<HashLimitKey>, RuleError> {
    if word.text == "none" {
        return Ok(Vec::new());
    }
    let keys = word.text.split(',').map(|name| {
        MODES.iter().find(|(known, _)| *known == name).map(|(_, key)| *key).ok_or_else(|| {
            RuleError::value(&word.part(name), "no field", "write a list of srcip, dstip, srcport and dstport")
        })
    });
    keys.collect()
}

impl Extension for HashLimit {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                plain(&["--hashlimit-upto", "--hashlimit"]),
                plain(&["--hashlimit-above"]),
                plain(&["--hashlimit-burst"]),
                plain(&["--hashlimit-mode"]),
                plain(&["--hashlimit-name"]),
                plain(&["--hashlimit-srcmask"]),
                plain(&["--hashlimit-dstmask"]),
                plain(&["--hashlimit-htable-size"]),
                plain(&["--hashlimit-htable-max"]),
                plain(&["--hashlimit-htable-gcinterval"]),
                plain(&["--hashlimit-htable-expire"]),
                flag(&["--hashlimit-rate-match"]),
                plain(&["--hashlimit-rate-interval"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let not_honoured = |word, reason| Err(RuleError::at(word, ErrorKind::NotHonoured, reason, NARROWER));
        match given.name {
            "--hashlimit-upto" | "--hashlimit-above" => {
                if word.text.contains("b/") || word.text.ends_with('b') {
                    return not_honoured(word, "buckets hold packets, not octets");
                }
                let (rate, seconds) = Rate::parse(word, HASHLIMIT_SCALE)?;
                self.unit = seconds as u32 * 1_000;
                given.once(&mut self.rate, (given.name == "--hashlimit-above", rate))
            }
            "--hashlimit-burst" => given.once(&mut self.burst, values::number_in(word, 1, 1_000_000)? as u32),
            "--hashlimit-mode" => given.once(&mut self.mode, mode(word)?),
            "--hashlimit-name" => {
                if word.text.is_empty() || word.text.contains('/') {
                    return Err(RuleError::value(
                        word,
                        "no name of a table of buckets",
                        "give 1 to 255 octets without /",
                    ));
                }
                given.once(&mut self.name, values::text(word, 255)?)
            }
            "--hashlimit-srcmask" | "--hashlimit-dstmask" => {
                let length = values::number_in(word, 0, u64::from(self.family.bits()))? as u8;
                let source = given.name == "--hashlimit-srcmask";
                given.once(if source { &mut self.source_prefix } else { &mut self.destination_prefix }, length)
            }
            "--hashlimit-htable-expire" => {
                given.once(&mut self.expire, values::number_in(word, 1, u64::from(u32::MAX))? as u32)
            }
            "--hashlimit-rate-match" | "--hashlimit-rate-interval" => {
                not_honoured(given.word, "rates are limited by buckets, not measured")
            }
            name => {
                let index = TABLE.iter().position(|known| name.ends_with(known)).unwrap_or_default();
                given.once(&mut self.table[index], values::number_in(word, 0, u64::from(u32::MAX))? as u32)
            }
        }
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        if self.rate.is_none() {
            return Err(missing("hashlimit without a rate", "add --hashlimit-upto or --hashlimit-above RATE"));
        }
        if self.name.is_none() {
            return Err(missing("hashlimit without a name", "add --hashlimit-name NAME"));
        }
        let (source, destination) = self.prefixes();
        (self.source_prefix, self.destination_prefix) = (Some(source), Some(destination));
        (self.burst, self.mode, self.expire) = (Some(self.burst()), Some(self.mode()), Some(self.expire()));
        // iptables does not write these values.
        for (value, default) in self.table.iter_mut().zip(TABLE_DEFAULTS) {
            *value = value.filter(|value| *value != default);
        }
        self.unit = 0;
        Ok(())
    }

    fn save(&self, out: &mut String) {
        let Some((above, rate)) = self.rate else { return };
        let _ = write!(out, " --hashlimit-{} {}", if above { "above" } else { "upto" }, rate.text().0);
        let _ = write!(out, " --hashlimit-burst {}", self.burst());
        let mode = self.mode_text(",");
        if !mode.is_empty() {
            let _ = write!(out, " --hashlimit-mode {mode}");
        }
        out.push_str(" --hashlimit-name ");
        lexer::quote_blank(self.name(), out);
        self.rest(out, "--hashlimit-");
    }

    fn list(&self, out: &mut String) {
        let Some((above, rate)) = self.rate else { return };
        let _ = write!(out, " limit: {} {}", if above { "above" } else { "up to" }, rate.text().0);
        let _ = write!(out, " burst {}", self.burst());
        let mode = self.mode_text("-");
        if !mode.is_empty() {
            let _ = write!(out, " mode {mode}");
        }
        self.rest(out, "");
    }
}
