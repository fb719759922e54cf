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
