//! The keys with the most weight in a stream, in bounded memory: the space-saving sketch (Metwally, Agrawal, El Abbadi 2005).

use std::collections::HashMap;
use std::hash::Hash;

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// Its weight: never less than the true one, and more by [`Entry::error`] at most.
    pub weight: u64,
    /// How much of the weight may be another key's that was forgotten.
    pub error: u64,
    /// A number of its own for the time that it is remembered: another one if it was forgotten meanwhile.
    pub since: u64,
    /// How often it was seen since it is remembered: never more than the true number.
    pub seen: u64,
}

/// Remembers at most so many keys. A key whose weight is above the total divided by that number is always among them.
#[derive(Debug)]
pub struct Sketch<K> {
    capacity: usize,
    /// A binary heap: the lightest first.
    heap: Vec<Entry<K>>,
    places: HashMap<K, usize>,
    total: u64,
    forgotten: u64,
    made: u64,
}

impl<K: Copy + Eq + Hash> Sketch<K> {
    /// For so many keys, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { capacity, heap: Vec::new(), places: HashMap::new(), total: 0, forgotten: 0, made: 0 }
    }

    /// Adds weight to a key.
    pub fn add(&mut self, key: K, weight: u64) {
        self.total = self.total.saturating_add(weight);
        if let Some(place) = self.places.get(&key).copied() {
            let entry = &mut self.heap[place];
            entry.weight = entry.weight.saturating_add(weight);
            entry.seen += 1;
            self.sink(place);
        } else if self.heap.len() < self.capacity {
            self.made += 1;
            self.heap.push(Entry { key, weight, error: 0, since: self.made, seen: 1 });
            self.places.insert(key, self.heap.len() - 1);
            self.rise(self.heap.len() - 1);
        } else {
            // The lightest gives its place, and its weight: the new one may have had as much before it was forgotten.
            let error = self.heap[0].weight;
            self.places.remove(&self.heap[0].key);
            self.made += 1;
            self.heap[0] = Entry { key, weight: error.saturating_add(weight), error, since: self.made, seen: 1 };
            self.places.insert(key, 0);
            self.forgotten += 1;
            self.sink(0);
        }
    }

    /// All weight that was added.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How often a key was forgotten for another one.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Keys that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// All that are remembered, in no order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry<K>> {
        self.heap.iter()
    }

    /// The `count` heaviest, heaviest first.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<Entry<K>> {
        let mut entries: Vec<_> = self.heap.iter().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.weight));
        entries.into_iter().take(count).cloned().collect()
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.places.insert(self.heap[place].key, place);
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(lightest) = children.min_by_key(|child| self.heap[*child].weight) else { return };
            if self.heap[place].weight <= self.heap[lightest].weight {
                return;
            }
            self.swap(place, lightest);
            place = lightest;
        }
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].weight < self.heap[(place - 1) / 2].weight {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn weights_are_bounded_on_both_sides(stream in prop::collection::vec((0u8..40, 1u64..2000), 0..600),
                                             capacity in 1usize..20) {
            let mut sketch = Sketch::new(capacity);
            let mut exact = HashMap::<u8, u64>::new();
            for (key, weight) in &stream {
                sketch.add(*key, *weight);
                *exact.entry(*key).or_default() += weight;
            }
            let total: u64 = exact.values().sum();
            prop_assert_eq!(sketch.total(), total);
            prop_assert!(sketch.len() <= capacity);
            let top = sketch.top(usize::MAX);
            prop_assert!(top.is_sorted_by(|a, b| a.weight >= b.weight));
            for entry in &top {
                let truth = exact[&entry.key];
                prop_assert!(entry.weight >= truth && entry.weight - entry.error <= truth, "{:?} is {}", entry, truth);
                prop_assert!(entry.error <= total / capacity as u64);
            }
            for (key, truth) in &exact {
                if *truth > total / capacity as u64 {
                    prop_assert!(top.iter().any(|entry| entry.key == *key), "{} with {} of {}", key, truth, total);
                }
            }
            if exact.len() <= capacity {
                prop_assert_eq!(top.iter().map(|entry| entry.error).max().unwrap_or(0), 0);
            }
        }
    }
}
