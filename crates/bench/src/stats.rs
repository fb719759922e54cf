//! Medians and spreads.

use serde::Serialize;

/// Median, smallest and largest of some measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one; the mean of the two middle ones of an even number.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarises measurements. None if there is none, or one of them is not a number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, min: sorted[0], max: sorted[sorted.len() - 1] })
    }

    /// Every value multiplied by `factor`, such as 1e-6 to get from packets to millions of packets.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let (first, last) = (self.min * factor, self.max * factor);
        Self { median: self.median * factor, min: first.min(last), max: first.max(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn odd_and_even_numbers_of_values() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Summary::of(&[7.0]), Some(Summary { median: 7.0, min: 7.0, max: 7.0 }));
    }

    #[test]
    fn an_outlier_moves_the_spread_but_not_the_median() {
        let summary = Summary::of(&[1.0, 1.0, 1.0, 1.0, 1e9]).unwrap();
        assert_eq!((summary.median, summary.max), (1.0, 1e9));
    }

    #[test]
    fn nothing_and_not_a_number_give_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn scaling_keeps_the_order_of_min_and_max() {
        let summary = Summary::of(&[1.0, 2.0, 4.0]).unwrap();
        assert_eq!(summary.scaled(-1.0), Summary { median: -2.0, min: -4.0, max: -1.0 });
    }
}
