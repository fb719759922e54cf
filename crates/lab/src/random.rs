//! Numbers that a seed decides, the same for ever: SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
//! generators", 2014). A library's generators may change with its version, and with them the packets that a seed loses.

/// The numbers of one seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Those of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number from 0 to 1, without 1.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit
    pub fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next number below `limit`, which is not 0.
    #[allow(clippy::cast_possible_truncation)] // below `limit`
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_publication() {
        // The first outputs for seed 1234567, as other implementations of SplitMix64 give them.
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.number(), random.number(), random.number()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
