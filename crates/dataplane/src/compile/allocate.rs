//! Indices in array maps. No index is used by two generations with different content: what has the same name and the same
//! content keeps its index, everything else gets one that the previous generation does not use.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

use super::CompileError;
use crate::facts::Table;

/// Single indices of one map.
#[derive(Debug)]
pub(super) struct Indices {
    used: BTreeSet<u32>,
    next: u32,
    end: u32,
    table: Table,
    capacity: u32,
}

impl Indices {
    /// A map with indices from `start` to below `end`, of which the previous generation uses `used`. `table` and `capacity`
    /// are for the message when it is full.
    pub fn new(start: u32, end: u32, used: impl IntoIterator<Item = u32>, table: Table, capacity: u32) -> Self {
        Self { used: used.into_iter().collect(), next: start, end, table, capacity }
    }

    /// The lowest free index.
    pub fn take(&mut self, place: &str) -> Result<u32, CompileError> {
        while self.used.contains(&self.next) {
            self.next += 1;
        }
        if self.next >= self.end {
            return Err(full(place, self.table, self.capacity));
        }
        self.next += 1;
        Ok(self.next - 1)
    }
}

/// Indices that follow names alone: rows of counters, which an object keeps while its content changes.
#[derive(Debug)]
pub(super) struct Rows<K> {
    previous: BTreeMap<K, u32>,
    free: Indices,
}

impl<K: Ord + Hash> Rows<K> {
    /// `previous` are the rows of the previous generation by name.
    pub fn new(previous: BTreeMap<K, u32>, rows: u32, table: Table, capacity: u32) -> Self {
        let free = Indices::new(1, rows, previous.values().copied(), table, capacity);
        Self { previous, free }
    }

    /// The row that this name had, else a free one.
    pub fn take(&mut self, name: K, place: &str) -> Result<u32, CompileError> {
        match self.previous.remove(&name) {
            Some(row) => Ok(row),
            None => self.free.take(place),
        }
    }
}

pub(super) fn full(place: &str, table: Table, capacity: u32) -> CompileError {
    full_for(place, table, capacity, capacity.saturating_add(1))
}

/// As [`full`], where it is known how many there are.
pub(super) fn full_for(place: &str, table: Table, capacity: u32, needed: u32) -> CompileError {
    CompileError::TableFull { place: place.to_owned(), table, capacity, needed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_skip_what_is_used() {
        let mut indices = Indices::new(0, 4, [1, 2], Table::Sids, 2);
        assert_eq!(indices.take("a"), Ok(0));
        assert_eq!(indices.take("b"), Ok(3));
        assert_eq!(indices.take("c"), Err(full("c", Table::Sids, 2)));
    }

    #[test]
    fn rows_follow_names() {
        let mut rows = Rows::new(BTreeMap::from([("a", 1), ("b", 2)]), 5, Table::Counters, 4);
        assert_eq!(rows.take("b", "b"), Ok(2));
        assert_eq!(rows.take("c", "c"), Ok(3), "1 belongs to a, which the previous generation still counts on");
        assert_eq!(rows.take("d", "d"), Ok(4));
        assert_eq!(rows.take("a", "a"), Ok(1));
        assert!(rows.take("e", "e").is_err());
    }
}
