//! Tables other than `filter`: what is in them, and what is to be said about it.

use super::error::{ErrorKind, Position, RuleError};
use super::lexer::Word;
use super::lower::Warning;
use super::syntax::{Family, Policy, Table};

/// Rules of a table that is not run.
#[derive(Default)]
pub(super) struct Foreign {
    rules: usize,
    /// The chain of the first rule, where it was named.
    first: Option<(Position, String)>,
    /// Lines of rules that drop packets.
    drops: Vec<u32>,
    /// Lines of rules that set marks or say what is tracked: rules of `filter` may look at it.
    changes: Vec<u32>,
}

const DROPS: [&str; 2] = ["DROP", "REJECT"];
const CHANGES: [&str; 6] = ["MARK", "CONNMARK", "HMARK", "CT", "NOTRACK", "SET"];

/// Why rules of a table are not run.
fn reason_of(table: &str) -> &'static str {
    match table {
        "nat" => "there is no address translation in this data plane",
        "raw" => "connections are tracked by configuration, not by rules",
        "security" => "there are no security contexts here",
        _ => "packets are not rewritten, and only one table is run",
    }
}

fn lines(lines: &[u32]) -> String {
    const SHOWN: usize = 5;
    let some = lines.iter().take(SHOWN).map(u32::to_string).collect::<Vec<_>>().join(", ");
    let more = if lines.len() > SHOWN { format!(" and {} more", lines.len() - SHOWN) } else { String::new() };
    format!("line{} {some}{more}", if lines.len() == 1 { "" } else { "s" })
}

impl Foreign {
    pub fn add(&mut self, chain: &Word<'_>, rule: &[Word<'_>]) {
        self.rules += 1;
        self.first.get_or_insert_with(|| (chain.position, chain.text.to_string()));
        let target = rule.windows(2).find(|pair| pair[0].is("-j") || pair[0].is("--jump")).map(|pair| &pair[1].text);
        let Some(target) = target else { return };
        for (names, found) in [(&DROPS[..], &mut self.drops), (&CHANGES[..], &mut self.changes)] {
            if names.contains(&target.as_ref()) {
                found.push(chain.position.line);
            }
        }
    }

    fn dropping_policies(table: &Table) -> impl Iterator<Item = (Position, &str)> {
        let dropping = table.chains.iter().filter(|chain| chain.policy == Some(Policy::Drop));
        dropping.map(|chain| (chain.origin.0, chain.name.as_str()))
    }

    /// What is wrong with the table where it may not be skipped.
    pub fn refusal(&self, table: &Table, family: Family) -> Option<RuleError> {
        let name = &table.name;
        let program = family.program();
        let mut dropped = String::new();
        if !self.drops.is_empty() {
            let what = lines(&self.drops);
            dropped = format!("; rules of it that drop packets ({what}) have to be written into *filter then");
        }
        for (_, chain) in Self::dropping_policies(table) {
            dropped.push_str(&format!("; what the policy DROP of {chain} is for has to be written into *filter then"));
        }
        let (place, chain, what) = match (&self.first, Self::dropping_policies(table).next()) {
            (Some((place, chain)), _) => {
                let rules = if self.rules == 1 { "a rule" } else { "rules" };
                (*place, chain.as_str(), format!("has {rules} ({}) that cannot be honoured", self.rules))
            }
            (None, Some((place, chain))) => (place, chain, "has the policy DROP, which cannot be honoured".to_owned()),
            (None, None) => return None,
        };
        let reason = format!("the table {name} {what}: {}", reason_of(name));
        let remedy = format!("take what `{program}-save -t filter` writes, or skip other tables{dropped}");
        Some(RuleError::about(place, chain, ErrorKind::Table, reason, remedy))
    }

    /// What the operator should know of a table that is skipped.
    pub fn warnings(&self, table: &Table) -> Vec<Warning> {
        let name = &table.name;
        let Some((place, _)) = self.first else {
            let warn = |(position, chain)| Warning {
                position,
                message: format!(
                    "the table {name} is skipped, and with it the policy DROP of {chain}: what it drops passes here"
                ),
            };
            return Self::dropping_policies(table).map(warn).collect();
        };
        let mut warnings = Vec::new();
        let mut warn = |position, message| warnings.push(Warning { position, message });
        let rules = if self.rules == 1 { "its rule".to_owned() } else { format!("its {} rules", self.rules) };
        warn(place, format!("the table {name} is skipped, and {rules}: {}", reason_of(name)));
        if !self.drops.is_empty() {
            let message = format!(
                "rules of the skipped table {name} drop packets ({}): they pass here unless rules in *filter drop them",
                lines(&self.drops)
            );
            warn(place, message);
        }
        if !self.changes.is_empty() {
            let message = format!(
                "rules of the skipped table {name} set marks, sets or what is tracked ({}): rules in *filter see none of that",
                lines(&self.changes)
            );
            warn(place, message);
        }
        for (position, chain) in Self::dropping_policies(table) {
            warn(
                position,
                format!("the policy DROP of {chain} in the table {name} is skipped: what it drops passes here"),
            );
        }
        warnings
    }
}
