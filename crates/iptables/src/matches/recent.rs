//! `recent`: lists of addresses that rules fill.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, flag, missing, plain};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Family, Head};
use crate::lexer;
use crate::refused::NARROWER;
use crate::values;
use segue_classifier::program::{Recent as Lists, RecentAction, Side};

/// `-m recent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    family: Family,
    /// What is done, and whether there was a `!`.
    pub action: Option<(bool, RecentAction)>,
    /// `--seconds`.
    pub seconds: Option<u32>,
    /// `--hitcount`.
    pub hits: Option<u32>,
    name: Option<String>,
    mask: Option<u128>,
    side: Option<Side>,
}

const fn action(names: &'static [&'static str]) -> Spec {
    Spec { names, values: 0, negatable: true }
}

impl Recent {
    pub(super) const fn new(family: Family) -> Self {
        Self { family, action: None, seconds: None, hits: None, name: None, mask: None, side: None }
    }

    /// `--name`; by default DEFAULT.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("DEFAULT")
    }

    /// `--mask`; by default whole addresses. IPv4 in the lower 32 bits.
    pub fn mask(&self) -> u128 {
        self.mask.unwrap_or_else(|| self.family.mask(self.family.bits()))
    }

    /// `--rsource` (the default) or `--rdest`.
    pub fn side(&self) -> Side {
        self.side.unwrap_or(Side::Source)
    }

    /// 4 or 6.
    pub const fn family(&self) -> u8 {
        match self.family {
            Family::Ipv4 => 4,
            Family::Ipv6 => 6,
        }
    }

    fn rest(&self, out: &mut String, dashes: &str, colon: &str) {
        let mask = values::address_text(self.family, self.mask());
        let _ = write!(out, " {dashes}mask{colon} {mask}");
    }
}

impl Extension for Recent {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                action(&["--set"]),
                action(&["--rcheck"]),
                action(&["--update"]),
                action(&["--remove"]),
                plain(&["--seconds"]),
                plain(&["--hitcount"]),
                flag(&["--rttl"]),
                flag(&["--reap"]),
                plain(&["--name"]),
                plain(&["--mask"]),
                flag(&["--rsource"]),
                flag(&["--rdest"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let action = match given.name {
            "--set" => RecentAction::Set,
            "--rcheck" => RecentAction::Check,
            "--update" => RecentAction::Update,
            "--remove" => RecentAction::Remove,
            "--seconds" => {
                let seconds = values::number_in(word, 1, u64::from(u32::MAX))? as u32;
                return given.once(&mut self.seconds, seconds);
            }
            "--hitcount" => {
                let hits = values::number_in(word, 1, u64::from(u32::MAX))? as u32;
                if hits > Lists::HITS_MAX {
                    let reason = format!("of an address {} packets are remembered", Lists::HITS_MAX);
                    return Err(RuleError::at(word, ErrorKind::NotHonoured, reason, NARROWER));
                }
                return given.once(&mut self.hits, hits);
            }
            "--name" => {
                if word.text.is_empty() || word.text.contains('/') {
                    return Err(RuleError::value(word, "no name of a list", "give 1 to 199 octets without /"));
                }
                return given.once(&mut self.name, values::text(word, 199)?);
            }
            "--mask" => return given.once(&mut self.mask, values::address(word, self.family)?),
            "--rsource" => return given.once(&mut self.side, Side::Source),
            "--rdest" => return given.once(&mut self.side, Side::Destination),
            "--rttl" => {
                let reason = "lists hold addresses, and not the hop limits of their packets";
                return Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER));
            }
            _ => {
                let reason = "lists forget what has not been seen for longest, and nothing before there is need";
                return Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER));
            }
        };
        given.once(&mut self.action, (given.negated, action))
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        let Some((_, action)) = self.action else {
            return Err(missing("recent without anything to do", "add --set, --rcheck, --update or --remove"));
        };
        if matches!(action, RecentAction::Set | RecentAction::Remove) && (self.seconds.is_some() || self.hits.is_some())
        {
            let reason = "--seconds and --hitcount are of --rcheck and --update".to_owned();
            return Err((ErrorKind::Conflict, reason, "write two rules, as iptables asks for".to_owned()));
        }
        (self.name, self.mask, self.side) = (Some(self.name().to_owned()), Some(self.mask()), Some(self.side()));
        Ok(())
    }

    fn save(&self, out: &mut String) {
        let Some((negated, action)) = self.action else { return };
        let action = match action {
            RecentAction::Set => "set",
            RecentAction::Check => "rcheck",
            RecentAction::Update => "update",
            RecentAction::Remove => "remove",
        };
        let _ = write!(out, "{} --{action}", if negated { " !" } else { "" });
        for (option, value) in [("seconds", self.seconds), ("hitcount", self.hits)] {
            if let Some(value) = value {
                let _ = write!(out, " --{option} {value}");
            }
        }
        out.push_str(" --name ");
        lexer::quote_blank(self.name(), out);
        self.rest(out, "--", "");
        out.push_str(if self.side() == Side::Source { " --rsource" } else { " --rdest" });
    }

    fn list(&self, out: &mut String) {
        let Some((negated, action)) = self.action else { return };
        let action = match action {
            RecentAction::Set => "SET",
            RecentAction::Check => "CHECK",
            RecentAction::Update => "UPDATE",
            RecentAction::Remove => "REMOVE",
        };
        let _ = write!(out, "{} recent: {action}", if negated { " !" } else { "" });
        for (option, value) in [("seconds", self.seconds), ("hit_count", self.hits)] {
            if let Some(value) = value {
                let _ = write!(out, " {option}: {value}");
            }
        }
        let side = if self.side() == Side::Source { "source" } else { "dest" };
        let _ = write!(out, " name: {} side: {side}", self.name());
        self.rest(out, "", ":");
    }
}
