//! Leaf and refine blocks of an open root: where each leaf's parts are, and the blocks a query has loaded.

use std::sync::{Arc, OnceLock};

use pando_format::{DecodedLeafBlock, DecodedRefineBlock, GroupBlock, LeafPlace, SlotKind};
use pando_tree::search::{LeafPart, LeafSource, RefinePart};

use crate::environment::Reservation;
use crate::error::{Error, Result};

/// A group's blocks, decoded: base first.
#[derive(Debug)]
pub struct GroupBlocks {
    /// Codes, and the refine codes of the same slots where the collection has them.
    pub blocks: Vec<(DecodedLeafBlock, Option<DecodedRefineBlock>)>,
    /// Bytes that it holds of the budget, when it is kept.
    pub reservation: Option<Reservation>,
}

impl GroupBlocks {
    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.blocks
            .iter()
            .map(|(leaf, refine)| leaf.memory() + refine.as_ref().map_or(0, |r| r.memory()))
            .sum()
    }
}

/// A group as the root lists it.
#[derive(Debug)]
pub struct GroupEntry {
    /// References of its blocks.
    pub blocks: Vec<GroupBlock>,
    /// Ordinal of its first leaf.
    pub first_leaf: u32,
    /// Places of the parts of each of its leaves, and the part that carries the centroid.
    pub leaves: Vec<(Vec<LeafPlace>, usize)>,
    /// The blocks, once loaded to stay: only while the root's memory is reserved.
    pub resident: OnceLock<Arc<GroupBlocks>>,
}

impl GroupEntry {
    /// Finds in each leaf the part with the centroid and checks that every place exists: done once when blocks are
    /// loaded, so that a scan may index without looking back.
    pub fn check(&self, blocks: &GroupBlocks) -> Result<()> {
        let wrong =
            || Error::data_loss("an index block does not fit its node", "leaf places do not fit the blocks");
        for (places, centroid) in &self.leaves {
            for (at, place) in places.iter().enumerate() {
                let (leaf, refine) = blocks.blocks.get(usize::from(place.block)).ok_or_else(wrong)?;
                let slot = leaf.slots().get(place.slot as usize).ok_or_else(wrong)?;
                if (slot.kind == SlotKind::Whole) != (at == *centroid) {
                    return Err(wrong());
                }
                if let Some(refine) = refine {
                    let other = refine.slots().get(place.slot as usize).ok_or_else(wrong)?;
                    if (other.n_primary, other.n_secondary) != (slot.n_primary, slot.n_secondary) {
                        return Err(wrong());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Blocks of a wave's groups that do not stay in memory with the root: kept while the wave is scanned.
#[derive(Debug, Default)]
pub struct WaveLeaves {
    groups: Vec<(u32, Arc<GroupBlocks>)>,
}

impl WaveLeaves {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.groups.clear();
    }

    /// The blocks of a group, if they are here.
    pub fn get(&self, group: u32) -> Option<&GroupBlocks> {
        self.groups.iter().find(|(have, _)| *have == group).map(|(_, blocks)| &**blocks)
    }

    /// Adds a group's blocks.
    pub fn add(&mut self, group: u32, blocks: Arc<GroupBlocks>) {
        self.groups.push((group, blocks));
    }
}

/// The leaves of a wave that [`super::OpenRoot::gather`] found: from the root's memory, or from [`WaveLeaves`].
pub struct WaveView<'a> {
    /// Groups of the root.
    pub table: &'a [GroupEntry],
    /// The group of each leaf.
    pub group_of: &'a [u32],
    /// Blocks of the wave.
    pub wave: &'a WaveLeaves,
}

impl WaveView<'_> {
    #[inline]
    fn find(&self, leaf: u32) -> (&GroupBlocks, &(Vec<LeafPlace>, usize)) {
        let group = self.group_of[leaf as usize];
        let entry = &self.table[group as usize];
        let blocks = match entry.resident.get() {
            Some(blocks) => &**blocks,
            None => self.wave.get(group).expect("a wave asks for its own leaves"),
        };
        (blocks, &entry.leaves[(leaf - entry.first_leaf) as usize])
    }
}

impl LeafSource for WaveView<'_> {
    fn centroid(&self, leaf: u32) -> &[f32] {
        let (blocks, (places, centroid)) = self.find(leaf);
        let place = places[*centroid];
        blocks.blocks[usize::from(place.block)].0.slot(place.slot as usize).centroid
    }

    fn parts(&self, leaf: u32) -> usize {
        self.find(leaf).1.0.len()
    }

    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_> {
        let (blocks, (places, _)) = self.find(leaf);
        let place = places[part];
        let (leaf_block, refine) = &blocks.blocks[usize::from(place.block)];
        let slot = leaf_block.slot(place.slot as usize);
        LeafPart {
            rows: slot.rows,
            packed: slot.packed,
            f_add: slot.f_add,
            f_rescale: slot.f_rescale,
            norm: slot.norm,
            refine: refine.as_ref().map(|refine| {
                let slot = refine.slot(place.slot as usize);
                RefinePart {
                    nibbles: slot.nibbles,
                    f_add: slot.f_add,
                    f_rescale: slot.f_rescale,
                    f_error: slot.f_error,
                }
            }),
        }
    }
}
