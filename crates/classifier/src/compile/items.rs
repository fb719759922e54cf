//! The rules of one tree, as ranges over words of the key.

use std::collections::BTreeSet;

use crate::normal::Normal;

/// Every value of a word.
pub(super) const FULL: (u32, u32) = (0, u32::MAX);

/// One word of the key, with the ranges that each item has there.
pub(super) struct Dimension {
    /// The 32-bit word.
    pub word: usize,
    /// For each item: where its ranges begin in `ranges`, and how many it has.
    place: Vec<(u32, u32)>,
    ranges: Vec<(u32, u32)>,
}

impl Dimension {
    /// Where an item lies, in order; never empty.
    pub fn of(&self, item: u32) -> &[(u32, u32)] {
        let (first, count) = self.place[item as usize];
        &self.ranges[first as usize..(first + count) as usize]
    }
}

/// All items of a chain and a family, in the rules' order.
pub(super) struct Items {
    pub dimensions: Vec<Dimension>,
    pub count: usize,
    /// Items that match exactly the packets within their ranges, and end the chain for them: nothing behind them is ever asked for.
    pub decisive: Vec<bool>,
}

impl Items {
    /// `rules`: with each, whether it ends the chain for every packet that matches its conditions.
    pub fn new(rules: &[(&Normal, bool)]) -> Self {
        let words: BTreeSet<usize> = rules.iter().flat_map(|(rule, _)| rule.projection.keys().copied()).collect();
        let dimensions = words.into_iter().map(|word| {
            let mut dimension = Dimension { word, place: Vec::with_capacity(rules.len()), ranges: vec![FULL] };
            for (rule, _) in rules {
                let place = match rule.projection.get(&word) {
                    None => (0, 1),
                    Some(own) => {
                        let place = (dimension.ranges.len() as u32, own.len() as u32);
                        dimension.ranges.extend_from_slice(own);
                        place
                    }
                };
                dimension.place.push(place);
            }
            dimension
        });
        let decisive = rules.iter().map(|(rule, ends)| *ends && rule.exact).collect();
        Self { dimensions: dimensions.collect(), count: rules.len(), decisive }
    }
}
