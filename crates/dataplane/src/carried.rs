//! What tables had counted that larger ones have replaced.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, IntoBytes};

use crate::compiled::{Compiled, CompiledFirewall};

/// The rows of a map that a generation counts in.
pub(crate) type Rows = fn(&Compiled) -> Vec<u32>;

/// The maps that count in rows: each CPU has words of its own. Row 0 of the outcomes is for interfaces that are no ports.
pub(crate) const COUNTED: [(&str, Rows); 4] = [
    ("counters", |compiled| compiled.counter_rows().collect()),
    ("outcomes", |compiled| compiled.ports.iter().map(|port| u32::from(port.entry.index)).chain([0]).collect()),
    ("memory_counters", |compiled| compiled.scopes.values().copied().collect()),
    ("firewall_counters", |compiled| compiled.firewalls.iter().flat_map(CompiledFirewall::counter_rows).collect()),
];

/// What was counted in tables that larger ones have replaced, by table and row: words, summed over the CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carried(BTreeMap<String, BTreeMap<u32, Vec<u64>>>);

impl Carried {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a row had counted, in the form of one more CPU.
    pub fn value<V: FromBytes>(&self, table: &str, row: u32) -> Option<V> {
        V::read_from_bytes(self.0.get(table)?.get(&row)?.as_bytes()).ok()
    }

    /// What the rows of a table had counted.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = (u32, &[u64])> {
        self.0.get(table).into_iter().flatten().map(|(row, words)| (*row, words.as_slice()))
    }

    /// What counts on in the generation after `old`: the rows of objects that both have.
    pub fn kept(&self, old: &Compiled, new: &Compiled) -> Self {
        let rows = |of: fn(&Compiled) -> Vec<u32>, compiled| BTreeSet::from_iter(of(compiled));
        let both = COUNTED.into_iter().map(|(table, of)| (table, &rows(of, old) & &rows(of, new)));
        let of = |table: &str, kept: &BTreeSet<u32>| -> BTreeMap<u32, Vec<u64>> {
            let all = self.0.get(table).into_iter().flatten();
            all.filter(|(row, _)| kept.contains(row)).map(|(row, words)| (*row, words.clone())).collect()
        };
        let tables = both.map(|(table, kept)| (table.to_owned(), of(table, &kept)));
        Self(tables.filter(|(_, rows)| !rows.is_empty()).collect())
    }

    pub fn add(&mut self, table: &str, row: u32, words: &[u64]) {
        let sum = self.0.entry(table.to_owned()).or_default().entry(row).or_default();
        sum.resize(words.len().max(sum.len()), 0);
        sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
}
