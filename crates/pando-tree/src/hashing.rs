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
    let mut all: Vec<(u64, u32)> = (0..n).map(|i| (hash(&[seed, key(i)]), i as u32)).collect();
    if count < n {
        all.select_nth_unstable(count);
        all.truncate(count);
    }
    all.sort_unstable();
    all.into_iter().map(|(_, i)| i).collect()
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
    }
}
