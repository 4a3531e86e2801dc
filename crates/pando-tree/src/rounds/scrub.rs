//! Drops dead rows from leaves: when they pass 5 % of all entries, in id order from the cursor, until below 4 %.

use rayon::prelude::*;

use super::state::State;
use crate::error::TreeError;
use crate::types::{Leaf, Stage};

/// Bytes of vectors of scrubbed leaves' entries per checkpoint, at most (one leaf more is allowed).
const BUDGET: u64 = 256 << 20;

impl State<'_> {
    /// Scrubs if it is time to.
    pub fn scrub(&mut self) -> Result<(), TreeError> {
        if self.dead.is_empty() {
            return Ok(());
        }
        let leaves: Vec<&Leaf> = self.tree.leaves.values().collect();
        let counts: Vec<(u64, u64)> = leaves
            .par_iter()
            .map(|leaf| {
                let live = self.size(leaf.id) + self.alive(&leaf.secondaries).len();
                let entries = leaf.primaries.len() + leaf.secondaries.len();
                (entries as u64, (entries - live) as u64)
            })
            .collect();
        let mut entries: u64 = counts.iter().map(|c| c.0).sum();
        let mut dead: u64 = counts.iter().map(|c| c.1).sum();
        if dead * 20 <= entries {
            return Ok(());
        }
        let first = leaves.partition_point(|leaf| leaf.id < self.tree.scrub_cursor);
        let mut chosen: Vec<u64> = Vec::new();
        let mut bytes = 0u64;
        for i in (first..leaves.len()).chain(0..first) {
            if dead * 25 < entries || bytes >= BUDGET {
                break;
            }
            let (all, gone) = counts[i];
            if gone > 0 {
                chosen.push(leaves[i].id);
                bytes += (all - gone) * self.cfg.dim as u64 * 4;
                entries -= gone;
                dead -= gone;
            }
        }
        if let Some(last) = chosen.last() {
            self.tree.scrub_cursor = last + 1;
        }
        self.reader.env.report(Stage::Scrub, 0, chosen.len() as u64);
        self.report.scrubbed += chosen.len() as u64;
        self.refresh(&chosen)
    }
}
