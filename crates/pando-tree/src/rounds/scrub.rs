//! Drops dead rows from leaves: when they pass a sixteenth of all entries, group by group in id order from the cursor, until
//! below a twentieth. All leaves of a group at once: its blocks are then written once. Leaf by leaf, a block with a few whole leaves is
//! written first, merged with the next, and the group soon written anew as well.

use rayon::prelude::*;

use super::state::State;
use crate::error::TreeError;
use crate::types::{Group, Leaf, Stage};

/// Bytes of vectors of scrubbed leaves' entries per checkpoint, at most (one group more is allowed).
const BUDGET: u64 = 256 << 20;

impl State<'_> {
    /// Scrubs if it is time to.
    pub fn scrub(&mut self) -> Result<(), TreeError> {
        if self.dead.is_empty() {
            return Ok(());
        }
        let groups: Vec<&Group> = self.tree.groups.values().collect();
        let counts: Vec<(u64, u64)> = groups.par_iter().map(|group| self.count(group)).collect();
        let mut entries: u64 = counts.iter().map(|c| c.0).sum();
        let mut dead: u64 = counts.iter().map(|c| c.1).sum();
        if dead * 16 <= entries {
            return Ok(());
        }
        let first = groups.partition_point(|group| group.id < self.tree.scrub_cursor);
        let mut chosen: Vec<u64> = Vec::new();
        let mut cursor = self.tree.scrub_cursor;
        let mut bytes = 0u64;
        for i in (first..groups.len()).chain(0..first) {
            if dead * 20 < entries || bytes >= BUDGET {
                break;
            }
            let (all, gone) = counts[i];
            if gone > 0 {
                chosen.extend(groups[i].leaves.iter().filter(|leaf| self.has_dead(**leaf)));
                bytes += (all - gone) * self.cfg.dim as u64 * 4;
                entries -= gone;
                dead -= gone;
                cursor = groups[i].id + 1;
            }
        }
        self.tree.scrub_cursor = cursor;
        chosen.sort_unstable();
        self.reader.env.report(Stage::Scrub, 0, chosen.len() as u64);
        self.report.scrubbed += chosen.len() as u64;
        self.refresh(&chosen)
    }

    /// Entries of a group's leaves, and how many of them are dead.
    fn count(&self, group: &Group) -> (u64, u64) {
        let leaves = group.leaves.iter().filter_map(|id| self.tree.leaves.get(id));
        leaves.fold((0, 0), |(entries, dead), leaf| {
            let (all, gone) = self.count_leaf(leaf);
            (entries + all, dead + gone)
        })
    }

    fn count_leaf(&self, leaf: &Leaf) -> (u64, u64) {
        let live = self.size(leaf.id) + self.alive(&leaf.secondaries).len();
        let entries = leaf.primaries.len() + leaf.secondaries.len();
        (entries as u64, (entries - live) as u64)
    }

    fn has_dead(&self, leaf: u64) -> bool {
        self.tree.leaves.get(&leaf).is_some_and(|leaf| self.count_leaf(leaf).1 > 0)
    }
}
