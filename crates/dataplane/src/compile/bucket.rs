//! Shares of a policy's flows (RFC 9256 section 2.11: weighted load balancing).

use segue_abi::SEGUE_POLICY_BUCKETS;

const BUCKETS: usize = SEGUE_POLICY_BUCKETS as usize;

/// For each bucket the position of its list. Largest remainder, ties to the earlier list; every list gets at least one
/// bucket, at the cost of the largest share. Weights must not all be 0; at most as many as there are buckets.
pub(super) fn buckets(weights: &[u32]) -> [u8; BUCKETS] {
    let mut bucket = [0; BUCKETS];
    let mut from = 0;
    for (position, share) in shares(weights).into_iter().enumerate() {
        bucket[from..from + share].fill(position as u8);
        from += share;
    }
    bucket
}

/// For each bucket the position of the member with one of these numbers, which tell them apart. Every member has its own order in which it
/// would take the buckets, and all take them in turns (Maglev, NSDI 2016, section 3.4): they get equally many, and when one comes or
/// goes, few buckets change hands among the others. At most as many members as there are buckets.
pub(super) fn consistent(numbers: &[u32]) -> [u8; BUCKETS] {
    let mut bucket = [0; BUCKETS];
    if numbers.is_empty() || numbers.len() > BUCKETS {
        return bucket;
    }
    let mut taken = [false; BUCKETS];
    // Who comes first is the same whatever order they are in.
    let mut order: Vec<(u32, usize)> = numbers.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut next: Vec<Preference> = order.iter().map(|(number, _)| Preference::of(*number)).collect();
    let mut left = BUCKETS;
    for turn in (0..order.len()).cycle() {
        if left == 0 {
            break;
        }
        // Each goes through all buckets, so one that is free comes.
        if let Some(free) = next[turn].by_ref().take(BUCKETS).find(|at| !taken[*at]) {
            taken[free] = true;
            bucket[free] = order[turn].1 as u8;
            left -= 1;
        }
    }
    bucket
}

/// The order in which a member would take the buckets: from one on in steps that are odd, and so meet all.
struct Preference {
    at: usize,
    step: usize,
}

impl Preference {
    fn of(number: u32) -> Self {
        // The finalizer of SplitMix64: every bit of the number counts for every bit of the result.
        let mut mixed = u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        Self { at: mixed as usize % BUCKETS, step: ((mixed >> 32) as usize % BUCKETS) | 1 }
    }
}

impl Iterator for Preference {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.at;
        self.at = (at + self.step) % BUCKETS;
        Some(at)
    }
}

fn shares(weights: &[u32]) -> Vec<usize> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    if total == 0 || weights.len() > BUCKETS {
        return Vec::new();
    }
    let scaled = |weight: &u32| u64::from(*weight) * BUCKETS as u64;
    let mut shares: Vec<usize> = weights.iter().map(|weight| (scaled(weight) / total) as usize).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    // A stable sort: of equal remainders the earlier list comes first.
    order.sort_by_key(|&position| std::cmp::Reverse(scaled(&weights[position]) % total));
    let missing = BUCKETS - shares.iter().sum::<usize>();
    for &position in order.iter().take(missing) {
        shares[position] += 1;
    }
    while let Some(empty) = shares.iter().position(|share| *share == 0) {
        let largest = (0..shares.len()).rev().max_by_key(|&position| shares[position]).unwrap_or(empty);
        shares[largest] -= 1;
        shares[empty] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_largest_remainder() {
        assert_eq!(shares(&[1]), [256]);
        assert_eq!(shares(&[1, 1]), [128, 128]);
        assert_eq!(shares(&[1, 1, 1]), [86, 85, 85]);
        assert_eq!(shares(&[1, 2]), [85, 171]);
        assert_eq!(shares(&[3, 1]), [192, 64]);
        assert_eq!(shares(&[u32::MAX, u32::MAX, u32::MAX, u32::MAX]), [64, 64, 64, 64]);
    }

    #[test]
    fn members_have_equal_shares_and_few_buckets_change_hands() {
        for count in 1..=16_u32 {
            let numbers: Vec<u32> = (0..count).map(|number| number.wrapping_mul(0x1234_5679) | 1).collect();
            let all = consistent(&numbers);
            for position in 0..numbers.len() {
                let share = all.iter().filter(|taken| usize::from(**taken) == position).count();
                assert!(share.abs_diff(BUCKETS / numbers.len()) <= 1, "{share} of {count}");
            }
            if count == 1 {
                continue;
            }
            // The last one goes.
            let without = consistent(&numbers[..numbers.len() - 1]);
            let moved =
                (0..BUCKETS).filter(|at| usize::from(all[*at]) != numbers.len() - 1 && all[*at] != without[*at]);
            assert!(moved.count() <= BUCKETS / 8, "{count}");
        }
        // The order in which they are written does not matter.
        let (there, back) = (consistent(&[7, 9, 11]), consistent(&[11, 9, 7]));
        assert!((0..BUCKETS).all(|at| there[at] == 2 - back[at]));
        assert_eq!(consistent(&[]), [0; BUCKETS]);
    }

    #[test]
    fn small_weight_is_not_starved() {
        assert_eq!(shares(&[100_000, 1]), [255, 1]);
        assert_eq!(shares(&[1, 100_000, 1]), [1, 254, 1]);
    }

    #[test]
    fn buckets_are_in_order_and_complete() {
        let bucket = buckets(&[1, 2, 1]);
        assert!(bucket[..64].iter().all(|position| *position == 0));
        assert!(bucket[64..192].iter().all(|position| *position == 1));
        assert!(bucket[192..].iter().all(|position| *position == 2));
        assert_eq!(buckets(&[]), [0; BUCKETS]);
        assert_eq!(buckets(&[1; 16])[255], 15);
    }
}
