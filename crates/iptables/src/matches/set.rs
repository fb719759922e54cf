//! `set`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, flag, missing, negatable};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Head, Not};
use crate::lexer::{self, Word};
use crate::refused::NARROWER;

/// Side of the packet for one dimension of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetFlag {
    /// `src`.
    Source,
    /// `dst`.
    Destination,
}

/// `-m set`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetMatch {
    /// `--match-set`: name of the set and sides.
    pub set: Option<Not<(String, Vec<SetFlag>)>>,
}

impl SetMatch {
    fn flags(flags: &[SetFlag]) -> String {
        let names = flags.iter().map(|flag| match flag {
            SetFlag::Source => "src",
            SetFlag::Destination => "dst",
        });
        names.collect::<Vec<_>>().join(",")
    }
}

fn set_flags(word: &Word<'_>) -> Result<Vec<SetFlag>, RuleError> {
    let flags = word.text.split(',').map(|flag| match flag {
        "src" => Ok(SetFlag::Source),
        "dst" => Ok(SetFlag::Destination),
        _ => Err(RuleError::value(&word.part(flag), "no side of a packet", "write src or dst for each dimension")),
    });
    let flags = flags.collect::<Result<Vec<_>, _>>()?;
    if flags.len() > 6 {
        return Err(RuleError::value(word, "more sides than a set can have dimensions", "give at most 6"));
    }
    Ok(flags)
}

impl Extension for SetMatch {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                Spec { names: &["--match-set", "--set"], values: 2, negatable: true },
                flag(&["--return-nomatch"]),
                Spec { names: &["--update-counters"], values: 0, negatable: true },
                Spec { names: &["--update-subcounters"], values: 0, negatable: true },
                negatable(&["--packets-eq"]),
                negatable(&["--packets-lt"]),
                negatable(&["--packets-gt"]),
                negatable(&["--bytes-eq"]),
                negatable(&["--bytes-lt"]),
                negatable(&["--bytes-gt"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let reason = match (given.name, given.values) {
            ("--match-set", [name, flags, ..]) => {
                let flags = set_flags(flags)?;
                if name.text.len() > 31 || name.text.is_empty() {
                    let reason = "the name of a set has 1 to 31 octets";
                    return Err(RuleError::value(name, reason, "give the name as `ipset list -n` does"));
                }
                return given.put(&mut self.set, (name.text.to_string(), flags));
            }
            ("--return-nomatch", _) => "entries with nomatch can only say that a packet is not in the set",
            _ => "the entries of a set have no counters here",
        };
        Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER))
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.set
            .as_ref()
            .map(|_| ())
            .ok_or_else(|| missing("set without the name of a set", "add --match-set NAME src"))
    }

    fn save(&self, out: &mut String) {
        if let Some(Not { negated, value: (name, flags) }) = &self.set {
            out.push_str(if *negated { " ! --match-set " } else { " --match-set " });
            lexer::quote_blank(name, out);
            let _ = write!(out, " {}", Self::flags(flags));
        }
    }

    fn list(&self, out: &mut String) {
        if let Some(Not { negated, value: (name, flags) }) = &self.set {
            let _ = write!(out, " {}match-set {name} {}", if *negated { "! " } else { "" }, Self::flags(flags));
        }
    }
}
