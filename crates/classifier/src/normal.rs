//! A rule as intervals over the words of the key: what the lookup structure is built from, and the exact form that its leaves hold.

use std::collections::BTreeMap;

use crate::field::Field;
use crate::key::{Layout, Presence, word};
use crate::program::{Condition, Rule, Test};

mod any;

/// Disjoint inclusive ranges, in order, none next to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Intervals(pub Vec<(u128, u128)>);

impl Intervals {
    pub fn new(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn complement(&self, max: u128) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for (first, last) in &self.0 {
            if let Some(from) = next.filter(|from| from < first) {
                rest.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(from) = next.filter(|from| *from <= max) {
            rest.push((from, max));
        }
        Self(rest)
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                both.push((first, last));
            }
            if a.1 < b.1 {
                left.next();
            } else {
                right.next();
            }
        }
        Self(both)
    }

    /// Whether every value of `other` is one of these.
    pub fn covers(&self, other: &Self) -> bool {
        let mut own = self.0.iter().peekable();
        other.0.iter().all(|(first, last)| {
            while own.next_if(|(_, end)| end < first).is_some() {}
            own.peek().is_some_and(|(from, to)| from <= first && last <= to)
        })
    }

    /// The test's values; None where they are no small number of ranges.
    fn of(test: &Test, field: Field) -> Option<Self> {
        let max = field.max();
        match test {
            Test::Ranges(ranges) => {
                Some(Self::new(ranges.iter().map(|(first, last)| (*first, *last.min(&max))).collect()))
            }
            Test::Masked { value, mask } => {
                if value & !mask != 0 {
                    return Some(Self::default());
                }
                let free = max & !mask;
                (free & free.wrapping_add(1) == 0).then(|| Self(vec![(*value, value | free)]))
            }
            Test::AnyBit(_) => None,
        }
    }
}

/// One comparison of the exact form: `(word & mask) - low <= span`, unsigned, of 64-bit word `word`; `negated`: not that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Check {
    pub word: usize,
    pub negated: bool,
    pub mask: u64,
    pub low: u64,
    pub span: u64,
}

impl Check {
    /// On a 32-bit word: bits `mask` within `first..=last`.
    fn word32(word: usize, mask: u32, first: u32, last: u32) -> Self {
        let shift = 32 * (word % 2);
        let wide = |value: u32| u64::from(value) << shift;
        Self { word: word / 2, negated: false, mask: wide(mask), low: wide(first), span: wide(last - first) }
    }

    fn word64(word: usize, mask: u64, first: u64, last: u64) -> Self {
        Self { word, negated: false, mask, low: first, span: last - first }
    }
}

/// Holds if all checks of one of its alternatives hold.
pub(crate) type Clause = Vec<Vec<Check>>;

/// The part of a rule that nearly every rule consists of, compared at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fast {
    /// Value and prefix length of the source's and the destination's halves: 64-bit words 0 to 3 of the key.
    pub halves: [(u64, u8); 4],
    pub source_ports: Option<(u16, u16)>,
    pub destination_ports: Option<(u16, u16)>,
    pub protocol: Option<u8>,
    pub family: Option<u8>,
}

/// A rule that some packet matches.
#[derive(Debug, Clone)]
pub(crate) struct Normal {
    pub fast: Fast,
    /// What `fast` does not say; all must hold.
    pub clauses: Vec<Clause>,
    /// For 32-bit words: where the word must lie at least. A superset of what matches.
    pub projection: BTreeMap<usize, Vec<(u32, u32)>>,
    /// The projection is not a superset, but the packets of the rule's families that match.
    pub exact: bool,
    /// Bit 0: matches IPv4 packets, bit 1: IPv6, bit 2: others.
    pub families: u8,
    /// Every field that is tested by ranges alone, with exactly the values that pass.
    pub fields: BTreeMap<Field, Intervals>,
    /// Tests that are not in `fields`.
    pub inexact: Vec<Condition>,
}

/// Ranges kept for one word of a projection; more are merged.
const PROJECTION_MAX: usize = 8;
/// Fields of at most this width are taken value by value for the projection of tests that are no ranges.
const ENUMERATED_WIDTH: u32 = 8;

/// The normal form; None: no packet matches.
pub(crate) fn normalise(rule: &Rule) -> Option<Normal> {
    let mut fields: BTreeMap<Field, Intervals> = BTreeMap::new();
    let mut approximate: BTreeMap<Field, Intervals> = BTreeMap::new();
    let mut inexact = Vec::new();
    for condition in &rule.conditions {
        let field = condition.field;
        // Two of them may hold for two entries: they do not narrow each other.
        if field.is_any() {
            let values = Intervals::of(&condition.test, field);
            if !condition.negated && values.is_some_and(|values| values.is_empty()) {
                return None;
            }
            if !inexact.contains(condition) {
                inexact.push(condition.clone());
            }
            continue;
        }
        let values = Intervals::of(&condition.test, field);
        let values = values.map(|values| if condition.negated { values.complement(field.max()) } else { values });
        let narrow = |map: &mut BTreeMap<Field, Intervals>, values: Intervals| {
            let narrowed = map.get(&field).map(|before| before.intersection(&values)).unwrap_or(values);
            let possible = !narrowed.is_empty();
            map.insert(field, narrowed);
            possible
        };
        match values {
            Some(values) => {
                if !narrow(&mut fields, values) {
                    return None;
                }
            }
            None => {
                if !inexact.contains(condition) {
                    inexact.push(condition.clone());
                }
                let Some(values) = enumerated(condition) else { continue };
                if !narrow(&mut approximate, values) {
                    return None;
                }
            }
        }
    }
    for (field, values) in &approximate {
        if fields.get(field).is_some_and(|exact| exact.intersection(values).is_empty()) {
            return None;
        }
    }
    let families = families(&mut fields, &inexact)?;
    let (fast, clauses) = exact_form(&fields, &inexact);
    let mut projection = BTreeMap::new();
    for (field, values) in fields.iter().chain(&approximate) {
        project(*field, values, &mut projection)?;
    }
    let exact = inexact.is_empty() && fields.iter().all(|(field, values)| projected_exactly(*field, values));
    Some(Normal { fast, clauses, projection, exact, families, fields, inexact })
}

/// All values that pass a test of a narrow field, by trying them.
fn enumerated(condition: &Condition) -> Option<Intervals> {
    let field = condition.field;
    if field.width() > ENUMERATED_WIDTH {
        return None;
    }
    // A connection has one state: the contract of the key.
    let possible = |value: u128| field != Field::ConnectionState || value.count_ones() == 1;
    let passing =
        (0..=field.max()).filter(|value| possible(*value) && condition.test.holds(*value) != condition.negated);
    Some(Intervals::new(passing.map(|value| (value, value)).collect()))
}

/// Families that the rule can match, by all fields that only one family has. The test of the family itself is narrowed.
fn families(fields: &mut BTreeMap<Field, Intervals>, inexact: &[Condition]) -> Option<u8> {
    let tested = fields.keys().copied().chain(inexact.iter().map(|condition| condition.field));
    let needed = tested.filter_map(|field| match field.layout().presence {
        Presence::Where { word: word::FAMILY, value, .. } => Some(u128::from(value)),
        _ => None,
    });
    let mut allowed = fields.get(&Field::Family).cloned().unwrap_or(Intervals(vec![(0, Field::Family.max())]));
    for family in needed.collect::<Vec<_>>() {
        allowed = allowed.intersection(&Intervals(vec![(family, family)]));
        if allowed.is_empty() {
            return None;
        }
        fields.insert(Field::Family, allowed.clone());
    }
    let has = |family| allowed.covers(&Intervals(vec![(family, family)]));
    let other = !Intervals(vec![(0, 3), (5, 5), (7, 255)]).intersection(&allowed).is_empty();
    Some(u8::from(has(4)) | u8::from(has(6)) << 1 | u8::from(other) << 2)
}

fn exact_form(fields: &BTreeMap<Field, Intervals>, inexact: &[Condition]) -> (Fast, Vec<Clause>) {
    let mut fast = Fast::default();
    let mut clauses: Vec<Clause> = Vec::new();
    for (field, values) in fields {
        let single = match values.0.as_slice() {
            [single] => Some(*single),
            _ => None,
        };
        let value = single.filter(|(first, last)| first == last).map(|(first, _)| first as u8);
        let ports = single.map(|(first, last)| (first as u16, last as u16));
        match field {
            Field::Family if value.is_some() => fast.family = value,
            Field::Protocol if value.is_some() => fast.protocol = value,
            Field::SourcePort if ports.is_some() => fast.source_ports = ports,
            Field::DestinationPort if ports.is_some() => fast.destination_ports = ports,
            Field::SourceIpv4 | Field::SourceIpv6 | Field::DestinationIpv4 | Field::DestinationIpv6
                if single.and_then(|range| prefix(range, field.width())).is_some() =>
            {
                let (first, _) = single.unwrap_or_default();
                let length = single.and_then(|range| prefix(range, field.width())).unwrap_or_default();
                let at = field.layout().word / 2;
                if field.width() == 32 {
                    // The upper half of the word is 0, in the key as well.
                    fast.halves[at] = (first as u64, if length == 0 { 0 } else { length + 32 });
                } else {
                    fast.halves[at] = ((first >> 64) as u64, length.min(64));
                    fast.halves[at + 1] = (first as u64, length.saturating_sub(64));
                }
            }
            _ => clauses.extend(interval_clauses(*field, values)),
        }
    }
    for condition in inexact {
        if condition.field.is_any() {
            clauses.extend(any::clauses(condition));
            continue;
        }
        clauses.extend(presence_clause(condition.field));
        clauses.extend(bit_clauses(condition));
    }
    let mut seen = Vec::with_capacity(clauses.len());
    for clause in clauses {
        if !seen.contains(&clause) {
            seen.push(clause);
        }
    }
    (fast, seen)
}

/// Length of the prefix that a range is, if it is one.
fn prefix((first, last): (u128, u128), width: u32) -> Option<u8> {
    let free = first ^ last;
    let is = free & free.wrapping_add(1) == 0 && first & free == 0;
    is.then(|| (width - free.count_ones()) as u8)
}

/// What says that a field is there, unless its own values do.
fn presence_clause(field: Field) -> Option<Clause> {
    let Layout { word, presence, .. } = field.layout();
    let check = match presence {
        Presence::Always => return None,
        Presence::UpTo(last) => Check::word32(if field.width() > 32 { word + 1 } else { word }, u32::MAX, 0, last),
        Presence::Where { word, mask, value } => Check::word32(word, mask, value, value),
        Presence::WhereUpTo { word, last } => Check::word32(word, u32::MAX, 0, last),
    };
    Some(vec![vec![check]])
}

/// Whether the field is the top of all values that its word has while the field is there: then its ranges are the word's ranges.
fn fills_word(field: Field) -> bool {
    let Layout { shift, presence, .. } = field.layout();
    match presence {
        Presence::UpTo(last) if field.width() < 32 => (field.max() as u32) << shift | ((1 << shift) - 1) == last,
        _ => {
            field.width() + shift == 32
                || field == Field::Family
                || field == Field::OuterFamily
                || field == Field::FragmentOffset
        }
    }
}

fn interval_clauses(field: Field, values: &Intervals) -> Vec<Clause> {
    let Layout { word, shift, presence } = field.layout();
    let mut clauses = Vec::new();
    let whole = values.0.as_slice() == [(0, field.max())];
    if !(matches!(presence, Presence::UpTo(_)) && fills_word(field) && field.width() < 32) || whole {
        clauses.extend(presence_clause(field));
    }
    if whole {
        return clauses;
    }
    let alternatives = values.0.iter().flat_map(|(first, last)| match field.width() {
        128 => lexicographic(word / 2, *first, *last),
        33..=64 => vec![vec![Check::word64(word / 2, u64::MAX, *first as u64, *last as u64)]],
        _ => {
            let mask = if fills_word(field) { u32::MAX } else { (field.max() as u32) << shift };
            let low_bits = if fills_word(field) { (1_u32 << shift) - 1 } else { 0 };
            vec![vec![Check::word32(word, mask, (*first as u32) << shift, (*last as u32) << shift | low_bits)]]
        }
    });
    clauses.push(alternatives.collect());
    clauses
}

/// A range over two 64-bit words, the upper first.
fn lexicographic(word: usize, first: u128, last: u128) -> Clause {
    let halves = |value: u128| ((value >> 64) as u64, value as u64);
    let ((upper_first, lower_first), (upper_last, lower_last)) = (halves(first), halves(last));
    let upper = |from, to| Check::word64(word, u64::MAX, from, to);
    let lower = |from, to| Check::word64(word + 1, u64::MAX, from, to);
    if lower_first == 0 && lower_last == u64::MAX {
        return vec![vec![upper(upper_first, upper_last)]];
    }
    if upper_first == upper_last {
        return vec![vec![upper(upper_first, upper_last), lower(lower_first, lower_last)]];
    }
    let mut alternatives = vec![
        vec![upper(upper_first, upper_first), lower(lower_first, u64::MAX)],
        vec![upper(upper_last, upper_last), lower(0, lower_last)],
    ];
    if upper_last - upper_first > 1 {
        alternatives.push(vec![upper(upper_first + 1, upper_last - 1)]);
    }
    alternatives
}

/// A test of bits.
fn bit_clauses(condition: &Condition) -> Vec<Clause> {
    let field = condition.field;
    let Layout { word, shift, .. } = field.layout();
    let (mask, value, any) = match &condition.test {
        Test::Masked { value, mask } => (*mask, *value, false),
        Test::AnyBit(mask) => (*mask, 0, true),
        Test::Ranges(_) => return interval_clauses(field, &Intervals::of(&condition.test, field).unwrap_or_default()),
    };
    let checks = match field.width() {
        128 => vec![
            Check::word64(word / 2, (mask >> 64) as u64, (value >> 64) as u64, (value >> 64) as u64),
            Check::word64(word / 2 + 1, mask as u64, value as u64, value as u64),
        ],
        33..=64 => vec![Check::word64(word / 2, mask as u64, value as u64, value as u64)],
        _ => vec![Check::word32(word, (mask as u32) << shift, (value as u32) << shift, (value as u32) << shift)],
    };
    // "Any bit" is "not all of them 0".
    if any == condition.negated {
        checks.into_iter().map(|check| vec![vec![check]]).collect()
    } else {
        vec![checks.into_iter().map(|check| vec![Check { negated: true, ..check }]).collect()]
    }
}

/// Whether [`project`] loses nothing of a field's test.
fn projected_exactly(field: Field, values: &Intervals) -> bool {
    let by_presence = match field.layout().presence {
        Presence::Where { word, .. } => word == word::FAMILY || word == word::OUTER_FAMILY,
        _ => true,
    };
    let by_values = match field.width() {
        _ if field == Field::Family => values.0.iter().all(|(first, last)| first == last && [4, 6].contains(first)),
        128 => matches!(values.0.as_slice(), [range] if prefix(*range, 128).is_some()),
        33..=64 => false,
        32 if matches!(field.layout().presence, Presence::UpTo(_)) => false,
        _ => fills_word(field) && values.0.len() <= PROJECTION_MAX,
    };
    by_presence && by_values
}

/// Narrows the projection by a field; None: nothing is left.
fn project(field: Field, values: &Intervals, projection: &mut BTreeMap<usize, Vec<(u32, u32)>>) -> Option<()> {
    let Layout { word, shift, presence } = field.layout();
    if field == Field::Family {
        return Some(()); // the roots of the structure are of one family each
    }
    if let Presence::WhereUpTo { word, last } = presence {
        narrow(projection, word, Intervals(vec![(0, last.into())]))?;
    }
    if let Presence::Where { word: word::OUTER_FAMILY, value, .. } = presence {
        narrow(projection, word::OUTER_FAMILY, Intervals(vec![(value.into(), value.into())]))?;
    }
    match field.width() {
        128 => [word + 1, word, word + 3, word + 2].into_iter().enumerate().try_for_each(|(position, word)| {
            let below = 96 - 32 * position as u32;
            narrow(projection, word, slice(values, below))
        }),
        33..=64 => [word + 1, word]
            .into_iter()
            .enumerate()
            .try_for_each(|(position, word)| narrow(projection, word, slice(values, 32 - 32 * position as u32))),
        _ if fills_word(field) => {
            let low_bits = (1_u128 << shift) - 1;
            let ranges = values.0.iter().map(|(first, last)| (first << shift, last << shift | low_bits)).collect();
            narrow(projection, word, Intervals(ranges))
        }
        _ => Some(()),
    }
}

/// Values of the 32-bit word that has `below` bits below it.
fn slice(values: &Intervals, below: u32) -> Intervals {
    let full = (0, u128::from(u32::MAX));
    let ranges = values.0.iter().map(|(first, last)| {
        let (first, last) = (first >> below, last >> below);
        if first >> 32 == last >> 32 { (first & full.1, last & full.1) } else { full }
    });
    Intervals::new(ranges.collect())
}

fn narrow(projection: &mut BTreeMap<usize, Vec<(u32, u32)>>, word: usize, values: Intervals) -> Option<()> {
    let before = projection.get(&word);
    if before.is_none() && values.0.as_slice() == [(0, u32::MAX.into())] {
        return Some(());
    }
    let mut both = match before {
        None => values,
        Some(before) => {
            values.intersection(&Intervals(before.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()))
        }
    };
    if both.0.len() > PROJECTION_MAX {
        both = fewer(&both, PROJECTION_MAX);
    }
    if both.is_empty() {
        return None;
    }
    projection.insert(word, both.0.iter().map(|(first, last)| (*first as u32, *last as u32)).collect());
    Some(())
}

/// So many of more intervals, at least two, which hold the same values and others: the narrowest gaps between them go, of equal ones the first.
fn fewer(intervals: &Intervals, most: usize) -> Intervals {
    let all = &intervals.0;
    let mut behind_gaps: Vec<usize> = (1..all.len()).collect();
    let excess = all.len() - most;
    behind_gaps.select_nth_unstable_by_key(excess, |index| (all[*index].0 - all[index - 1].1, *index));
    let mut kept = behind_gaps.split_off(excess);
    kept.sort_unstable();
    let mut first = 0;
    let merged = kept.into_iter().chain([all.len()]).map(|next| {
        let interval = (all[first].0, all[next - 1].1);
        first = next;
        interval
    });
    Intervals(merged.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_narrowest_gaps_go_one_after_the_other() {
        let one_by_one = |mut intervals: Vec<(u128, u128)>, most: usize| {
            while intervals.len() > most {
                let narrowest = (1..intervals.len()).min_by_key(|at| intervals[*at].0 - intervals[at - 1].1).unwrap();
                intervals[narrowest - 1].1 = intervals.remove(narrowest).1;
            }
            intervals
        };
        let mut random = Random::new(3);
        for count in 3..200 {
            let mut end = 0;
            // Many gaps are alike.
            let mut next = || {
                let first = end + random.between(2, 9);
                end = first + random.between(0, 5);
                (first, end)
            };
            let intervals: Vec<_> = (0..count).map(|_| next()).collect();
            for most in 2..count.min(10) {
                assert_eq!(fewer(&Intervals(intervals.clone()), most).0, one_by_one(intervals.clone(), most));
            }
        }
    }
}
