//! Bytes that a root reaches in each pack.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use pando_format::{BlockRef, Deaths, IdRun, Manifest, ObjectRef, PackEntry, SegmentEntry, WindowEntry};

use super::constants::{CONDEMN_PERCENT, MOVE_BYTES, MOVE_PART};

/// Packs of the parent root that are mostly dead: what lives in them is written again, so that they can go. At most so
/// many bytes a checkpoint; who asks first is served first, so everybody asks in a fixed order, on one thread.
#[derive(Debug, Default)]
pub struct Condemned {
    packs: BTreeSet<ObjectRef>,
    left: AtomicU64,
}

impl Condemned {
    /// The packs of the parent root of which less than a half is live.
    pub fn of(parent: Option<&Manifest>) -> Self {
        let Some(parent) = parent else { return Self::default() };
        let mostly_dead = |p: &&PackEntry| p.live_bytes * 100 < p.bytes * CONDEMN_PERCENT;
        let left = (parent.index_bytes() / MOVE_PART).max(MOVE_BYTES);
        Self { packs: parent.packs.iter().filter(mostly_dead).map(|p| p.object).collect(), left: left.into() }
    }

    /// Whether a pack is condemned.
    pub fn has(&self, pack: &ObjectRef) -> bool {
        self.packs.contains(pack)
    }

    /// Takes `bytes` from what may be moved, if there are so many left.
    pub fn spend(&self, bytes: u64) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Whether a block is to be written again elsewhere. Spends its length.
    pub fn moves(&self, block: &BlockRef) -> bool {
        self.has(&block.pack) && self.spend(u64::from(block.len))
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
