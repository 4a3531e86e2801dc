//! Seeded hashes: the only source of "randomness". A value depends on its inputs alone, never on what was drawn
//! before, so nothing depends on the order of work.

/// Finaliser of splitmix64 (Steele, Lea, Flood 2014).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hash of a short list of words.
pub(crate) fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |h, &w| mix(h.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ mix(w)))
}

/// Places of the `count` items with the smallest seeded hash, in the order of their hashes. `key` names an item.
pub(crate) fn sample(n: usize, count: usize, seed: u64, key: impl Fn(usize) -> u64) -> Vec<u32> {
    let below = |limit: u64| -> Vec<(u64, u32)> {
        (0..n).map(|i| (hash(&[seed, key(i)]), i as u32)).filter(|item| item.0 <= limit).collect()
    };
    // Only hashes that can be among the smallest are kept; should they be too few, all are.
    let expected = (count as u128 + count as u128 / 8 + 1000) << 64;
    let mut chosen = below(u64::try_from(expected / n.max(1) as u128).unwrap_or(u64::MAX));
    if chosen.len() < count.min(n) {
        chosen = below(u64::MAX);
    }
    if count < chosen.len() {
        chosen.select_nth_unstable(count);
        chosen.truncate(count);
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|(_, i)| i).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_a_subset_in_hash_order_and_nested() {
        let small = sample(1000, 10, 5, |i| i as u64);
        let large = sample(1000, 100, 5, |i| i as u64);
        assert_eq!(small, large[..10]);
        assert_ne!(small, sample(1000, 10, 6, |i| i as u64));
        assert_eq!(sample(3, 10, 5, |i| i as u64).len(), 3);
        // Equal keys have equal hashes: the filter may keep none of them, the sample is full all the same.
        assert_eq!(sample(10_000, 5000, 5, |_| 1).len(), 5000);
        let large = sample(100_000, 100, 5, |i| i as u64);
        let mut all: Vec<(u64, u32)> = (0..100_000u32).map(|i| (hash(&[5, u64::from(i)]), i)).collect();
        all.sort_unstable();
        assert!(large.iter().eq(all[..100].iter().map(|(_, i)| i)));
    }
}
