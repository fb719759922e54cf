//! Tests of which one has to hold for some entry of a label stack.

use super::{Check, Clause, Intervals, bit_clauses};
use crate::field::{Depth, Entry};
use crate::key::{Layout, Presence, present, word};
use crate::program::Condition;

/// A test of each entry of a stack: one passes, or, negated, none does.
pub(super) fn clauses(condition: &Condition) -> Vec<Clause> {
    let came_by_label = Check::word32(word::PRESENT, present::LABELS, present::LABELS, present::LABELS);
    let mut clauses: Vec<Clause> = vec![vec![vec![came_by_label]]];
    let mut some: Clause = Vec::new();
    for depth in Depth::all() {
        let field = condition.field.of_entry(Entry::At(depth));
        let Presence::Where { word, mask, value } = field.layout().presence else { continue };
        let there = Check::word32(word, mask, value, value);
        // One field of at most 32 bits: each clause is of alternatives of one check.
        let own = one_check(&Condition { field, ..condition.clone() });
        match condition.negated {
            true => clauses.extend(own.into_iter().map(|clause| {
                let absent = vec![Check { negated: true, ..there }];
                std::iter::once(absent).chain(clause).collect()
            })),
            false => some.extend(
                own.into_iter()
                    .flatten()
                    .map(|alternative| std::iter::once(there).chain(alternative).collect::<Vec<_>>()),
            ),
        }
    }
    if !condition.negated {
        clauses.push(some);
    }
    clauses
}

/// What a test of an entry's field asks of its word, be the entry there or not.
fn one_check(condition: &Condition) -> Vec<Clause> {
    let field = condition.field;
    let Some(values) = Intervals::of(&condition.test, field) else { return bit_clauses(condition) };
    let Layout { word, shift, .. } = field.layout();
    let mask = (field.max() as u32) << shift;
    let within =
        |(first, last): &(u128, u128)| Check::word32(word, mask, (*first as u32) << shift, (*last as u32) << shift);
    let checks = values.0.iter().map(within);
    match condition.negated {
        true => checks.map(|check| vec![vec![Check { negated: true, ..check }]]).collect(),
        false => vec![checks.map(|check| vec![check]).collect()],
    }
}
