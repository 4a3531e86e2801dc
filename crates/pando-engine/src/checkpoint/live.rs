//! Bytes that a root reaches in each pack.

use std::collections::{BTreeMap, BTreeSet};

use pando_format::{BlockRef, Deaths, IdRun, Manifest, ObjectRef, PackEntry, SegmentEntry, WindowEntry};

use super::constants::{CONDEMN_PERCENT, MOVE_BYTES, MOVE_PART};

/// Packs of the parent root that are mostly dead: what lives in them is written again, so that they can go.
#[derive(Debug, Default)]
pub struct Condemned(BTreeSet<ObjectRef>);

impl Condemned {
    /// The emptiest packs of the parent root, as many as may be moved at one checkpoint.
    pub fn of(parent: Option<&Manifest>) -> Self {
        let Some(parent) = parent else { return Self::default() };
        let mostly_dead = |p: &&PackEntry| p.live_bytes * 100 < p.bytes * CONDEMN_PERCENT;
        let mut packs: Vec<&PackEntry> = parent.packs.iter().filter(mostly_dead).collect();
        // By live share, compared without division.
        packs.sort_by(|a, b| {
            let (x, y) = (
                u128::from(a.live_bytes) * u128::from(b.bytes),
                u128::from(b.live_bytes) * u128::from(a.bytes),
            );
            x.cmp(&y).then(a.object.cmp(&b.object))
        });
        let mut left = (parent.index_bytes() / MOVE_PART).max(MOVE_BYTES);
        let mut taken = BTreeSet::new();
        for pack in packs {
            let Some(rest) = left.checked_sub(pack.live_bytes) else { break };
            left = rest;
            taken.insert(pack.object);
        }
        Self(taken)
    }

    /// Whether a pack is condemned.
    pub fn has(&self, pack: &ObjectRef) -> bool {
        self.0.contains(pack)
    }
}

/// Live bytes by pack.
#[derive(Debug, Default)]
pub struct LiveBytes(BTreeMap<ObjectRef, u64>);

impl LiveBytes {
    /// Counts a block.
    pub fn add(&mut self, block: &BlockRef) {
        self.add_bytes(&block.pack, u64::from(block.len));
    }

    fn add_bytes(&mut self, pack: &ObjectRef, bytes: u64) {
        *self.0.entry(*pack).or_default() += bytes;
    }

    /// Counts what lies outside the tree.
    pub fn add_tables(
        &mut self,
        segments: &[SegmentEntry],
        runs: &[IdRun],
        deaths: &Deaths,
        window: &[WindowEntry],
    ) {
        for segment in segments {
            self.add(&segment.side);
            segment.indexes.iter().for_each(|index| self.add(&index.block));
        }
        for part in runs.iter().flat_map(|run| &run.parts) {
            // The id blocks of a part lie in the pack of its index.
            self.add(&part.index);
            self.add_bytes(&part.index.pack, part.bytes);
        }
        deaths.chunks.iter().for_each(|c| self.add(&c.block));
        deaths.deltas.iter().for_each(|d| self.add(&d.block));
        window.iter().for_each(|w| self.add(&w.block));
    }

    /// The manifest's table: every pack that is reached, older ones as the parent lists them.
    pub fn table(&self, parent: Option<&Manifest>, sealed: &[PackEntry]) -> Option<Vec<PackEntry>> {
        let known: BTreeMap<ObjectRef, PackEntry> =
            parent.map_or(&[][..], |p| &p.packs).iter().chain(sealed).map(|p| (p.object, *p)).collect();
        let entry =
            |(object, live): (&ObjectRef, &u64)| Some(PackEntry { live_bytes: *live, ..*known.get(object)? });
        self.0.iter().map(entry).collect()
    }
}
