//! Groups of leaves of an open root: where each leaf's parts are, what of them stays in memory, and what a search has loaded.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use pando_format::{
    DecodedLeafBlock, DecodedRefineBlock, GroupBlock, LeafPlace, RefineLayout, SlotIndex, SlotKind, SlotPlace,
};
use pando_tree::search::{LeafPart, LeafSource, RefinePart, RefineRow};

use super::sums::BlockSums;
use crate::environment::Reservation;
use crate::error::{Error, Result};

/// A slot of one of the root's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotName(u64);

impl SlotName {
    /// The slot at this place of a group.
    pub fn new(group: u32, place: LeafPlace) -> Self {
        // A block is shorter than 4 GiB and has 24 bytes a slot: numbers stay below 2^28.
        Self(u64::from(group) << 32 | u64::from(place.block & 3) << 28 | u64::from(place.slot & 0xfff_ffff))
    }

    /// The name that [`LeafPart::away`] has.
    pub fn of_part(name: u64) -> Self {
        Self(name)
    }

    /// Its group.
    pub fn group(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its block among the group's.
    pub fn block(self) -> usize {
        (self.0 >> 28 & 3) as usize
    }

    /// Its number in the block.
    pub fn slot(self) -> usize {
        (self.0 & 0xfff_ffff) as usize
    }
}

/// Decoded blocks of a group that stay in memory, in the order of its blocks.
#[derive(Debug)]
pub struct Kept<T> {
    /// The blocks.
    pub blocks: Vec<T>,
    /// Bytes that they hold of the budget.
    pub _reservation: Reservation,
}

/// Where the slots of a block lie, and checksums of its parts: what is needed to read a slot or a row alone.
#[derive(Debug)]
pub struct BlockMap {
    /// Elements of a vector.
    pub dim: usize,
    /// Bits of a code.
    pub padded: usize,
    /// Slots by number.
    pub slots: Box<[SlotPlace]>,
    /// Sums of the block's parts.
    pub sums: BlockSums,
    /// In a refine block: the factors of all slots, one after the other. A twentieth of the block, and one read less for each
    /// slot of which a search wants a few rows.
    factors: Box<[u8]>,
    /// Where each slot's factors begin.
    starts: Box<[u32]>,
}

impl BlockMap {
    /// Of a leaf block that was verified and decoded.
    pub fn of_leaf(block: &DecodedLeafBlock) -> Self {
        Self::new((block.dim(), block.padded()), block.slots(), block.bytes())
    }

    /// Of a refine block that was verified and decoded.
    pub fn of_refine(block: &DecodedRefineBlock) -> Self {
        let mut map = Self::new((block.dim(), block.padded()), block.slots(), block.bytes());
        let (mut factors, mut starts) = (Vec::new(), Vec::with_capacity(map.slots.len()));
        for place in &map.slots {
            let range = RefineLayout::new(place, map.padded).factors();
            starts.push(factors.len() as u32);
            factors.extend_from_slice(&block.bytes()[range.start as usize..range.end as usize]);
        }
        (map.factors, map.starts) = (factors.into(), starts.into());
        map
    }

    fn new((dim, padded): (usize, usize), slots: &[SlotIndex], bytes: &[u8]) -> Self {
        let slots = slots.iter().map(SlotIndex::place).collect();
        let sums = BlockSums::of(bytes);
        Self { dim, padded, slots, sums, factors: Box::default(), starts: Box::default() }
    }

    /// Bytes for a leaf block of `len` bytes and about so many slots.
    pub fn leaf_memory(len: u64, slots: usize) -> u64 {
        BlockSums::memory_for(len) + (slots * (size_of::<SlotPlace>() + 4)) as u64
    }

    /// Bytes for a refine block of `len` bytes and about so many slots.
    pub fn refine_memory(len: u64, slots: usize, padded: usize) -> u64 {
        Self::leaf_memory(len, slots) + len * 12 / (padded as u64 / 2 + 12)
    }

    /// A row's f_add, f_rescale and f_error.
    fn factors(&self, slot: usize, layout: &RefineLayout, row: u32) -> [f32; 3] {
        layout.factors_of(row, &self.factors[self.starts[slot] as usize..])
    }
}

/// Maps of a group's blocks, drawn when a block is first read: only where the budget has room for them.
#[derive(Debug)]
pub struct GroupMaps {
    /// Of its leaf blocks.
    pub leaf: Vec<OnceLock<BlockMap>>,
    /// Of its refine blocks.
    pub refine: Vec<OnceLock<BlockMap>>,
    /// Bytes that they hold of the budget.
    pub _reservation: Reservation,
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
    /// The leaf blocks, once loaded to stay.
    pub leaf: OnceLock<Arc<Kept<DecodedLeafBlock>>>,
    /// The refine blocks, once loaded to stay, for the blocks that have them.
    pub refine: OnceLock<Arc<Kept<Option<DecodedRefineBlock>>>>,
    /// Maps of the blocks that do not stay.
    pub maps: OnceLock<Arc<GroupMaps>>,
}

/// An index block is not what its node says.
pub(super) fn misfit() -> Error {
    Error::data_loss("an index block does not fit its node", "leaf places do not fit the blocks")
}

impl GroupEntry {
    /// Checks that every place in this leaf block exists and is of the kind that the leaf needs: done once when a block is
    /// read, so that a scan may index without looking back.
    pub fn check_leaf(&self, block: usize, slots: &[SlotIndex]) -> Result<()> {
        for (places, centroid) in &self.leaves {
            for (at, place) in places.iter().enumerate().filter(|(_, p)| usize::from(p.block) == block) {
                let slot = slots.get(place.slot as usize).ok_or_else(misfit)?;
                if (slot.kind == SlotKind::Whole) != (at == *centroid) {
                    return Err(misfit());
                }
            }
            if places.iter().any(|place| usize::from(place.block) >= self.blocks.len()) {
                return Err(misfit());
            }
        }
        Ok(())
    }

    /// Checks that every place in this refine block exists.
    pub fn check_refine_places(&self, block: usize, slots: &[SlotIndex]) -> Result<()> {
        let mut places = self.leaves.iter().flat_map(|(places, _)| places);
        let exists = |p: &LeafPlace| usize::from(p.block) != block || (p.slot as usize) < slots.len();
        if places.all(exists) { Ok(()) } else { Err(misfit()) }
    }

    /// Checks that the refine block has the slots of the leaf block beside it.
    pub fn check_refine(&self, leaf: &[SlotIndex], refine: &[SlotIndex]) -> Result<()> {
        let rows = |slot: &SlotIndex| (slot.n_primary, slot.n_secondary);
        if leaf.iter().map(rows).eq(refine.iter().map(rows)) { Ok(()) } else { Err(misfit()) }
    }

    fn map(&self, refine: bool, block: usize) -> Option<&BlockMap> {
        let maps = self.maps.get()?;
        let maps = if refine { &maps.refine } else { &maps.leaf };
        maps.get(block)?.get()
    }

    /// The map of a leaf block, if there is one.
    pub fn leaf_map(&self, block: usize) -> Option<&BlockMap> {
        self.map(false, block)
    }

    /// The map of a refine block, if there is one.
    pub fn refine_map(&self, block: usize) -> Option<&BlockMap> {
        self.map(true, block)
    }
}

/// A slot that a search holds: its number in a block, which may be all the block there is.
#[derive(Clone, Debug)]
pub struct HeldSlot<T> {
    /// The block.
    pub block: Arc<T>,
    /// Number of the slot in it.
    pub slot: usize,
}

/// What a search has loaded for the leaves of its wave: here until the wave is scanned, whatever the cache does meanwhile.
/// (Otherwise a cache that holds less than a wave needs would make the search load its slots in turns for ever.)
#[derive(Debug, Default)]
pub struct WaveLeaves {
    leaf: HashMap<SlotName, HeldSlot<DecodedLeafBlock>>,
    refine: HashMap<SlotName, HeldSlot<DecodedRefineBlock>>,
    rows: HashMap<(SlotName, u32), AwayRow>,
    /// Bytes as they were read, checked: nibbles of rows.
    bytes: Vec<u8>,
}

/// The refine code of a row that was read alone.
#[derive(Clone, Copy, Debug)]
struct AwayRow {
    nibbles: usize,
    len: usize,
    factors: [f32; 3],
}

impl WaveLeaves {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.leaf.clear();
        self.refine.clear();
        self.rows.clear();
        self.bytes.clear();
    }

    /// The slot of a leaf block.
    pub fn leaf(&self, name: SlotName) -> Option<&HeldSlot<DecodedLeafBlock>> {
        self.leaf.get(&name)
    }

    /// Whether the slot of a refine block is here.
    pub fn has_refine(&self, name: SlotName) -> bool {
        self.refine.contains_key(&name)
    }

    /// Whether the refine code of a row of the part of this name is here.
    pub fn has_row(&self, name: u64, row: u32) -> bool {
        self.rows.contains_key(&(SlotName(name), row)) || self.has_refine(SlotName(name))
    }

    /// Takes a slot of a leaf block.
    pub fn add_leaf(&mut self, name: SlotName, slot: HeldSlot<DecodedLeafBlock>) {
        self.leaf.insert(name, slot);
    }

    /// Takes a slot of a refine block; `rows`: of the leaf block's slot.
    pub fn add_refine(
        &mut self,
        name: SlotName,
        slot: HeldSlot<DecodedRefineBlock>,
        rows: usize,
    ) -> Result<()> {
        let index = &slot.block.slots()[slot.slot];
        if index.n_primary + index.n_secondary != rows {
            return Err(misfit());
        }
        self.refine.insert(name, slot);
        Ok(())
    }

    /// Takes the refine codes of single rows of a slot (`n` rows, says the leaf block; rows ascending). `read` appends whole
    /// parts of the block that hold a range, and says where the range begins in the bytes. `false`: it has not all.
    pub fn add_rows(
        &mut self,
        name: SlotName,
        map: &BlockMap,
        n: usize,
        rows: &[(u64, u32)],
        mut read: impl FnMut(Range<u64>, &mut Vec<u8>) -> Option<usize>,
    ) -> bool {
        let Some(place) = map.slots.get(name.slot()).filter(|place| place.rows() == n) else { return false };
        let layout = RefineLayout::new(place, map.padded);
        let mut rest = rows;
        while let Some(&(_, first)) = rest.first() {
            // Neighbours with one read.
            let mut run = 1;
            while rest.get(run).is_some_and(|next| next.1 - rest[run - 1].1 <= NEIGHBOURS) {
                run += 1;
            }
            let start = layout.nibbles(first).start;
            let Some(at) = read(start..layout.nibbles(rest[run - 1].1).end, &mut self.bytes) else {
                return false;
            };
            for &(_, row) in &rest[..run] {
                let nibbles = layout.nibbles(row);
                let len = (nibbles.end - nibbles.start) as usize;
                let nibbles = at + (nibbles.start - start) as usize;
                let factors = map.factors(name.slot(), &layout, row);
                self.rows.insert((name, row), AwayRow { nibbles, len, factors });
            }
            rest = &rest[run..];
        }
        true
    }
}

/// Rows of a slot that are so close are read together.
const NEIGHBOURS: u32 = 4;

/// The leaves of a wave that [`super::OpenRoot::gather`] found: from the root's memory, or from [`WaveLeaves`].
pub struct WaveView<'a> {
    /// Groups of the root.
    pub table: &'a [GroupEntry],
    /// The group of each leaf.
    pub group_of: &'a [u32],
    /// What the wave has loaded.
    pub wave: &'a WaveLeaves,
}

impl WaveView<'_> {
    #[inline]
    fn find(&self, leaf: u32) -> (u32, &GroupEntry, &(Vec<LeafPlace>, usize)) {
        let group = self.group_of[leaf as usize];
        let entry = &self.table[group as usize];
        (group, entry, &entry.leaves[(leaf - entry.first_leaf) as usize])
    }

    #[inline]
    fn slot<'b>(
        &'b self,
        group: u32,
        entry: &'b GroupEntry,
        place: LeafPlace,
    ) -> (&'b DecodedLeafBlock, usize) {
        match entry.leaf.get() {
            Some(kept) => (&kept.blocks[usize::from(place.block)], place.slot as usize),
            None => {
                let held = self.wave.leaf.get(&SlotName::new(group, place));
                let held = held.expect("a wave asks for its own leaves");
                (&held.block, held.slot)
            }
        }
    }
}

impl LeafSource for WaveView<'_> {
    fn centroid(&self, leaf: u32) -> &[f32] {
        let (group, entry, (places, centroid)) = self.find(leaf);
        let (block, slot) = self.slot(group, entry, places[*centroid]);
        block.slot(slot).centroid
    }

    fn parts(&self, leaf: u32) -> usize {
        self.find(leaf).2.0.len()
    }

    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_> {
        let (group, entry, (places, _)) = self.find(leaf);
        let place = places[part];
        let (block, slot) = self.slot(group, entry, place);
        let slot = block.slot(slot);
        let mut away = None;
        let refine = match entry.refine.get() {
            Some(kept) => kept.blocks[usize::from(place.block)].as_ref().map(|b| b.slot(place.slot as usize)),
            None if entry.blocks[usize::from(place.block)].refine.is_none() => None,
            None => {
                let name = SlotName::new(group, place);
                let held = self.wave.refine.get(&name);
                away = held.is_none().then_some(name.0);
                held.map(|held| held.block.slot(held.slot))
            }
        };
        LeafPart {
            rows: slot.rows,
            packed: slot.packed,
            f_add: slot.f_add,
            f_rescale: slot.f_rescale,
            norm: slot.norm,
            refine: refine.map(|slot| RefinePart {
                nibbles: slot.nibbles,
                f_add: slot.f_add,
                f_rescale: slot.f_rescale,
                f_error: slot.f_error,
            }),
            away,
        }
    }

    fn refine_row(&self, away: u64, index: u32) -> Option<RefineRow<'_>> {
        let row = self.wave.rows.get(&(SlotName(away), index))?;
        let [f_add, f_rescale, f_error] = row.factors;
        let nibbles = &self.wave.bytes[row.nibbles..row.nibbles + row.len];
        Some(RefineRow { nibbles, f_add, f_rescale, f_error })
    }
}
