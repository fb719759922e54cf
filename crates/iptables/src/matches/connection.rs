//! `state`, `conntrack` and `mark`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, missing, negatable, plain, save_not, save_option};
use crate::error::{ErrorKind, RuleError};
use crate::head::{Head, Not};
use crate::lexer::Word;
use crate::names::{DNAT, SNAT, STATES};
use crate::refused::NARROWER;
use crate::values;

fn states(word: &Word<'_>) -> Result<u8, RuleError> {
    let mut states = 0;
    for name in word.text.split(',') {
        let upper = name.to_ascii_uppercase();
        let part = word.part(name);
        states |= match STATES.iter().find(|(known, _)| *known == upper) {
            Some((_, bit)) => *bit,
            None => {
                let remedy = "write a list of INVALID, NEW, RELATED, ESTABLISHED, UNTRACKED, SNAT and DNAT";
                return Err(RuleError::value(&part, "no state of a connection", remedy));
            }
        };
    }
    Ok(states)
}

fn states_text(states: &u8) -> String {
    let set = STATES.iter().filter(|(_, bit)| states & bit != 0).map(|(name, _)| *name);
    set.collect::<Vec<_>>().join(",")
}

fn list_states(out: &mut String, name: &str, states: &Option<Not<u8>>) {
    if let Some(states) = states {
        let _ = write!(out, " {}{name} {}", if states.negated { "! " } else { "" }, states_text(&states.value));
    }
}

/// Whether a test names states of address translation, which no connection has here.
pub(crate) fn names_translation(states: &Option<Not<u8>>) -> bool {
    states.is_some_and(|states| states.value & (SNAT | DNAT) != 0)
}

/// `-m state`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Bits of [`segue_classifier::field::state`].
    pub states: Option<Not<u8>>,
}

impl Extension for State {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--state"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let word = given.value();
        let states = states(word)?;
        if states & (SNAT | DNAT) != 0 {
            return Err(RuleError::value(word, "-m state knows no SNAT and DNAT", "use -m conntrack --ctstate"));
        }
        given.put(&mut self.states, states)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.states.map(|_| ()).ok_or_else(|| missing("state without a state", "add --state STATE,..."))
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--state", &self.states, states_text);
    }

    fn list(&self, out: &mut String) {
        list_states(out, "state", &self.states);
    }
}

/// `-m conntrack`: `--ctstate` and `--ctdir`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Bits of [`segue_classifier::field::state`].
    pub states: Option<Not<u8>>,
    /// The packet's direction in its connection.
    pub direction: Option<Direction>,
}

/// `--ctdir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the side that began.
    Original,
    /// Back to it.
    Reply,
}

impl Direction {
    fn text(self) -> &'static str {
        match self {
            Self::Original => "ORIGINAL",
            Self::Reply => "REPLY",
        }
    }

    fn read(word: &Word<'_>) -> Result<Self, RuleError> {
        let known =
            [Self::Original, Self::Reply].into_iter().find(|known| word.text.eq_ignore_ascii_case(known.text()));
        known.ok_or_else(|| RuleError::value(word, "no direction of a connection", "write ORIGINAL or REPLY"))
    }
}

impl Extension for Conntrack {
    fn options(&self) -> &'static [Spec] {
        const {
            &[
                negatable(&["--ctstate"]),
                negatable(&["--ctproto"]),
                negatable(&["--ctorigsrc"]),
                negatable(&["--ctorigdst"]),
                negatable(&["--ctreplsrc"]),
                negatable(&["--ctrepldst"]),
                negatable(&["--ctorigsrcport"]),
                negatable(&["--ctorigdstport"]),
                negatable(&["--ctreplsrcport"]),
                negatable(&["--ctrepldstport"]),
                negatable(&["--ctstatus"]),
                negatable(&["--ctexpire"]),
                plain(&["--ctdir"]),
            ]
        }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let reason = match given.name {
            "--ctstate" => return given.put(&mut self.states, states(given.value())?),
            "--ctstatus" => "rules do not see a connection's status bits",
            "--ctexpire" => "rules do not see how long a connection lives yet",
            "--ctdir" => return given.once(&mut self.direction, Direction::read(given.value())?),
            _ => "a rule tests the packet, not the connection's tuple",
        };
        Err(RuleError::at(given.word, ErrorKind::NotHonoured, reason, NARROWER))
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        if self.states.is_none() && self.direction.is_none() {
            return Err(missing("conntrack without a state", "add --ctstate STATE,... or --ctdir DIRECTION"));
        }
        Ok(())
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--ctstate", &self.states, states_text);
        if let Some(direction) = self.direction {
            save_option(out, "--ctdir", false, &direction.text());
        }
    }

    fn list(&self, out: &mut String) {
        list_states(out, "ctstate", &self.states);
        if let Some(direction) = self.direction {
            let _ = write!(out, " ctdir {}", direction.text());
        }
    }
}

/// `-m mark`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// Value and mask. A value with bits outside the mask matches nothing.
    pub value: Option<Not<(u32, u32)>>,
}

impl Mark {
    fn text((value, mask): &(u32, u32)) -> String {
        if *mask == u32::MAX { format!("{value:#x}") } else { format!("{value:#x}/{mask:#x}") }
    }
}

impl Extension for Mark {
    fn options(&self) -> &'static [Spec] {
        const { &[negatable(&["--mark"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let (value, mask) = values::value_and_mask(given.value())?;
        given.put(&mut self.value, (value, mask.unwrap_or(u32::MAX)))
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.value.map(|_| ()).ok_or_else(|| missing("mark without a value", "add --mark VALUE[/MASK]"))
    }

    fn save(&self, out: &mut String) {
        save_not(out, "--mark", &self.value, Self::text);
    }

    fn list(&self, out: &mut String) {
        if let Some(value) = &self.value {
            let _ = write!(out, " mark match {}{}", if value.negated { "! " } else { "" }, Self::text(&value.value));
        }
    }
}
