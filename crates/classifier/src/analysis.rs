//! What is odd about a program that can be loaded: rules that can never be hit, chains that nothing leads to.

use thiserror::Error;

use crate::covering::Earlier;
use crate::interpreter::STEPS_MAX;
use crate::normal::{Intervals, Normal, normalise};
use crate::program::{Action, Chain, Program};

/// Looks at earlier rules at most for [`Oddity::Shadowed`]: about a second.
pub(crate) const PAIRS_MAX: usize = 200_000_000;

/// Something odd.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}chain {chain}{}: {oddity}", self.place(), self.number())]
pub struct Warning {
    /// Name of the chain.
    pub chain: String,
    /// Index of the rule in the chain, if it is about one.
    pub rule: Option<usize>,
    /// Line that the rule came from.
    pub line: Option<u32>,
    /// What.
    pub oddity: Oddity,
}

impl Warning {
    fn place(&self) -> String {
        self.line.map(|line| format!("line {line}: ")).unwrap_or_default()
    }

    fn number(&self) -> String {
        self.rule.map(|rule| format!(", rule {}", rule + 1)).unwrap_or_default()
    }
}

/// What may be odd.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Oddity {
    /// Its conditions exclude each other.
    #[error("no packet matches: its conditions exclude each other")]
    Unsatisfiable,
    /// An earlier rule of the chain takes every packet that it matches.
    #[error("never hit: rule {}{} takes every packet that it matches", rule + 1, line.map(|line| format!(" (line {line})")).unwrap_or_default())]
    Shadowed {
        /// Index of the earlier rule.
        rule: usize,
        /// Its line.
        line: Option<u32>,
    },
    /// No rule that can be hit leads to a user chain.
    #[error("never entered: no rule that can be hit leads to it")]
    Unreachable,
    /// So many rules that do not end the packet's way that it may be dropped.
    #[error(
        "a packet may hit up to {0} rules, but is dropped at {STEPS_MAX}; let fewer rules log, mark, count or jump"
    )]
    Steps(usize),
    /// Too many rules to compare each with each.
    #[error("rules from {} on were not looked at for earlier rules that shadow them: too many", .0 + 1)]
    NotCompared(usize),
}

/// All warnings about a program that passed [`Program::check`], chain by chain.
pub fn analyse(program: &Program) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut dead = Vec::with_capacity(program.chains.len());
    let mut pairs = PAIRS_MAX;
    for chain in &program.chains {
        dead.push(chain_oddities(chain, &mut pairs, &mut warnings));
    }
    let mut reached = vec![false; program.chains.len()];
    for (index, chain) in program.chains.iter().enumerate() {
        if chain.policy.is_some() {
            reach(program, index, &dead, &mut reached);
        }
    }
    let mut steps = vec![None; program.chains.len()];
    for (index, chain) in program.chains.iter().enumerate() {
        let mut warn = |oddity| warnings.push(Warning { chain: chain.name.clone(), rule: None, line: None, oddity });
        // Rules that the hook does not lead to are not in the program at all.
        if !reached[index] && !chain.rules.is_empty() {
            warn(Oddity::Unreachable);
        }
        let most = most_steps(program, index, &mut steps);
        if chain.policy.is_some() && most > STEPS_MAX {
            warn(Oddity::Steps(most));
        }
    }
    warnings
}

/// Warns of one chain's rules, and returns which of them can never be hit.
fn chain_oddities(chain: &Chain, pairs: &mut usize, warnings: &mut Vec<Warning>) -> Vec<bool> {
    let forms = chain.rules.iter().map(normalise).collect::<Vec<_>>();
    let found = never_hit(chain, &forms, pairs);
    let mut dead = vec![false; chain.rules.len()];
    for (index, oddity) in found {
        dead[index] = !matches!(oddity, Oddity::NotCompared(_));
        let line = chain.rules[index].line;
        warnings.push(Warning { chain: chain.name.clone(), rule: Some(index), line, oddity });
    }
    dead
}

/// Rules of a chain that no packet can hit: [`Oddity::Unsatisfiable`] and [`Oddity::Shadowed`]; the last may be
/// [`Oddity::NotCompared`]. `forms`: the rules, normalised. `pairs`: how many pairs may be compared.
pub(crate) fn never_hit(chain: &Chain, forms: &[Option<Normal>], pairs: &mut usize) -> Vec<(usize, Oddity)> {
    let mut found = Vec::new();
    // Earlier rules behind which no packet goes on in this chain: all, and by what they test.
    let (mut taking, mut by_shape) = (Vec::new(), Earlier::default());
    for (index, (rule, form)) in chain.rules.iter().zip(forms).enumerate() {
        let Some(form) = form else {
            found.push((index, Oddity::Unsatisfiable));
            continue;
        };
        // What is narrow by its clauses is not narrow by the rest.
        let (candidates, looks) = match form.clauses.is_empty() {
            true => by_shape.covering(&form.fast),
            false => (Vec::new(), taking.len()),
        };
        match pairs.checked_sub(looks) {
            Some(left) => *pairs = left,
            None => {
                found.push((index, Oddity::NotCompared(index)));
                break;
            }
        }
        let candidates = if form.clauses.is_empty() { &candidates } else { &taking };
        let is_covered = |earlier: &&usize| forms[**earlier].as_ref().is_some_and(|earlier| covers(earlier, form));
        if let Some(earlier) = candidates.iter().find(is_covered) {
            found.push((index, Oddity::Shadowed { rule: *earlier, line: chain.rules[*earlier].line }));
        } else if rule.action.leaves_chain() && rule.extensions.is_empty() {
            taking.push(index);
            by_shape.push(index, &form.fast);
        }
    }
    found
}

/// Whether every packet that matches `narrow` matches `wide`. May say no where it would take more than a look at each field.
fn covers(wide: &Normal, narrow: &Normal) -> bool {
    let field_covered = |(field, values): (&crate::Field, &Intervals)| match narrow.fields.get(field) {
        Some(other) => values.covers(other),
        // A test of bits says that the field is there.
        None => {
            *values == Intervals(vec![(0, (*field).max())])
                && narrow.inexact.iter().any(|condition| condition.field == *field)
        }
    };
    wide.fields.iter().all(field_covered) && wide.inexact.iter().all(|condition| narrow.inexact.contains(condition))
}

fn reach(program: &Program, chain: usize, dead: &[Vec<bool>], reached: &mut [bool]) {
    let mut open = vec![chain];
    while let Some(chain) = open.pop() {
        if std::mem::replace(&mut reached[chain], true) {
            continue;
        }
        let rules = program.chains[chain].rules.iter().zip(&dead[chain]).filter(|(_, dead)| !**dead);
        open.extend(rules.filter_map(|(rule, _)| rule.action.target()).filter(|target| *target < reached.len()));
    }
}

/// Rules that a packet may hit from the beginning of a chain on, if it could match all of them.
fn most_steps(program: &Program, chain: usize, known: &mut [Option<usize>]) -> usize {
    match known.get(chain) {
        None => return 0,
        Some(Some(steps)) => return *steps,
        Some(None) => known[chain] = Some(0), // a loop, which `check` refuses, ends here
    }
    let (mut most, mut so_far) = (0_usize, 0_usize);
    for rule in &program.chains[chain].rules {
        let below = rule.action.target().map_or(0, |target| most_steps(program, target, known));
        most = most.max(so_far.saturating_add(1).saturating_add(below));
        if !rule.action.leaves_chain() {
            let returns = if matches!(rule.action, Action::Jump(_)) { below } else { 0 };
            so_far = so_far.saturating_add(1).saturating_add(returns);
        }
    }
    known[chain] = Some(most);
    most
}
