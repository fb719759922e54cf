//! A small generator of pseudo-random numbers, the same everywhere for the same seed.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// The next number of 128 bits.
    pub fn wide(&mut self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.number() % end as u64) as usize }
    }

    /// True in so many of a thousand cases.
    pub fn per_mille(&mut self, share: usize) -> bool {
        self.below(1000) < share
    }

    /// A number of an inclusive range; `first` if there is none.
    pub fn between(&mut self, first: u128, last: u128) -> u128 {
        match last.checked_sub(first).map(|span| span.checked_add(1)) {
            None => first,
            Some(None) => self.wide(),
            Some(Some(count)) => first + self.wide() % count,
        }
    }

    /// One of these.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
