//! Finds the leaves that hold given rows: one pass over all lists behind a small filter.

use rayon::prelude::*;

use super::state::State;
use crate::hashing::hash;
use crate::types::Leaf;

/// One bit per hash of a row: most rows of other leaves fall through without a search.
struct Filter {
    bits: Vec<u64>,
    mask: u64,
}

impl Filter {
    fn new(rows: &[u64]) -> Self {
        let size = (rows.len() * 8).next_power_of_two().max(1024);
        let mut filter = Self { bits: vec![0u64; size / 64], mask: size as u64 - 1 };
        for &row in rows {
            let bit = hash(&[row]) & filter.mask;
            filter.bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        filter
    }

    fn may_hold(&self, row: u64) -> bool {
        let bit = hash(&[row]) & self.mask;
        self.bits[(bit / 64) as usize] & (1 << (bit % 64)) != 0
    }
}

impl State<'_> {
    /// For each of `rows` (ascending) the id of the leaf whose `list` holds it, or `u64::MAX`.
    pub fn locate(&self, rows: &[u64], list: impl Fn(&Leaf) -> &Vec<u64> + Sync) -> Vec<u64> {
        let mut out = vec![u64::MAX; rows.len()];
        if rows.is_empty() {
            return out;
        }
        let filter = Filter::new(rows);
        let leaves: Vec<&Leaf> = self.tree.leaves.values().collect();
        let found: Vec<Vec<(usize, u64)>> = leaves
            .par_chunks(64)
            .map(|leaves| {
                let mut found = Vec::new();
                for leaf in leaves {
                    for row in list(leaf).iter().filter(|&&row| filter.may_hold(row)) {
                        if let Ok(at) = rows.binary_search(row) {
                            found.push((at, leaf.id));
                        }
                    }
                }
                found
            })
            .collect();
        for (at, id) in found.into_iter().flatten() {
            out[at] = id;
        }
        out
    }
}
