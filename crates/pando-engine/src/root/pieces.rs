//! What a search needs of groups that do not stay in memory: slots of leaf and refine blocks, and single rows of the latter.
//! They come from the block cache, from the operating system's memory (on the spot, without waiting), or from storage, in one
//! round of requests for all that a step misses. A block that is read for the first time is read whole and checked by its
//! hash; where the budget has room for its map, its parts are read alone afterwards.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use futures::stream::{StreamExt, TryStreamExt};
use pando_format::{AlignedBytes, BlockRef, DecodedLeafBlock, DecodedRefineBlock, ObjectRef};
use pando_store::BlockKey;

use super::OpenRoot;
use super::files::Files;
use super::leaves::{BlockMap, GroupEntry, GroupMaps, HeldSlot, SlotName, WaveLeaves, misfit};
use crate::block::Block;
use crate::error::Result;
use crate::rootio::undecodable;

/// Requests of one step in flight.
const LOADS_IN_FLIGHT: usize = 16;

/// Slots that a step misses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of leaf blocks.
    pub leaf: Vec<SlotName>,
    /// Of refine blocks.
    pub refine: Vec<SlotName>,
}

/// What was loaded for a [`Wanted`], checked.
#[derive(Debug, Default)]
pub struct Loaded {
    leaf: Vec<(SlotName, HeldSlot<DecodedLeafBlock>)>,
    refine: Vec<(SlotName, HeldSlot<DecodedRefineBlock>)>,
}

impl OpenRoot {
    /// Makes sure that the leaves of `wave` can be read through a [`super::WaveView`] of `out`, which keeps what it has, or
    /// says what has to be loaded first ([`OpenRoot::load_slots`]). With `refine` the refine codes of leaves that have to be
    /// loaded are asked for, too, so that nobody waits twice.
    pub fn gather<'a>(
        &'a self,
        wave: &[u32],
        refine: bool,
        files: &mut Files<'a>,
        out: &mut WaveLeaves,
    ) -> Result<(), Wanted> {
        let mut wanted = Wanted::default();
        for &leaf in wave {
            let group = self.group_of[leaf as usize];
            let entry = &self.groups[group as usize];
            if entry.leaf.get().is_some() {
                continue;
            }
            for &place in &entry.leaves[(leaf - entry.first_leaf) as usize].0 {
                let name = SlotName::new(group, place);
                if out.leaf(name).is_some() {
                    continue;
                }
                match self.leaf_at_hand(entry, name, files) {
                    Some(slot) => out.add_leaf(name, slot),
                    None => {
                        wanted.leaf.push(name);
                        let away = refine && entry.refine.get().is_none() && !out.has_refine(name);
                        if away && entry.blocks[name.block()].refine.is_some() {
                            wanted.refine.push(name);
                        }
                    }
                }
            }
        }
        if wanted.leaf.is_empty() { Ok(()) } else { Err(wanted) }
    }

    fn leaf_at_hand<'a>(
        &'a self,
        entry: &GroupEntry,
        name: SlotName,
        files: &mut Files<'a>,
    ) -> Option<HeldSlot<DecodedLeafBlock>> {
        let block = &entry.blocks[name.block()].leaf;
        let map = entry.leaf_map(name.block());
        if let Some(map) = map
            && let Some(place) = map.slots.get(name.slot())
        {
            let mut bytes = Vec::new();
            if let Some(at) = files.append(self, block, map, place.range(), &mut bytes) {
                let bytes = Arc::new(AlignedBytes::copy_from(&bytes[at..at + place.len as usize]));
                let block = DecodedLeafBlock::decode_slot(place, map.dim, map.padded, bytes).ok()?;
                return Some(HeldSlot { block: Arc::new(block), slot: 0 });
            }
        }
        let (key, slot) = piece_key(block, map, name);
        match self.env.cache.get(&key).as_deref() {
            Some(Block::Leaf(block)) => Some(HeldSlot { block: block.clone(), slot }),
            _ => None,
        }
    }

    /// Reads the refine codes of these rows (of parts of a wave that were `away`; sorted) on the spot. `false`: not all of them
    /// can be had without waiting.
    pub fn rows_at_hand<'a>(
        &'a self,
        rows: &[(u64, u32)],
        files: &mut Files<'a>,
        out: &mut WaveLeaves,
    ) -> bool {
        let mut all = true;
        for rows in rows.chunk_by(|a, b| a.0 == b.0) {
            let name = SlotName::of_part(rows[0].0);
            let entry = &self.groups[name.group() as usize];
            let (Some(block), Some(n)) = (&entry.blocks[name.block()].refine, self.leaf_rows(name, out))
            else {
                all = false;
                continue;
            };
            let map = entry.refine_map(name.block());
            if let Some(map) = map {
                let read = |range, bytes: &mut Vec<u8>| files.append(self, block, map, range, bytes);
                if out.add_rows(name, map, n, rows, read) {
                    continue;
                }
            }
            let (key, slot) = piece_key(block, map, name);
            match self.env.cache.get(&key).as_deref() {
                Some(Block::Refine(block)) => {
                    let held = HeldSlot { block: block.clone(), slot };
                    all &= out.add_refine(name, held, n).is_ok();
                }
                _ => all = false,
            }
        }
        all
    }

    /// Rows of a slot as its leaf block says.
    fn leaf_rows(&self, name: SlotName, wave: &WaveLeaves) -> Option<usize> {
        let entry = &self.groups[name.group() as usize];
        let index = match entry.leaf.get() {
            Some(kept) => kept.blocks.get(name.block())?.slots().get(name.slot())?,
            None => {
                let held = wave.leaf(name)?;
                held.block.slots().get(held.slot)?
            }
        };
        Some(index.n_primary + index.n_secondary)
    }

    /// The slots of refine blocks that hold these rows of parts of a wave, but for rows that it has.
    pub fn slots_of(rows: &[(u64, u32)], wave: &WaveLeaves) -> Wanted {
        let missing = rows.iter().filter(|row| !wave.has_row(row.0, row.1));
        let mut refine: Vec<SlotName> = missing.map(|row| SlotName::of_part(row.0)).collect();
        refine.sort_unstable();
        refine.dedup();
        Wanted { leaf: Vec::new(), refine }
    }

    /// Gives loaded slots to a wave.
    pub fn hold(&self, loaded: Loaded, wave: &mut WaveLeaves) -> Result<()> {
        for (name, slot) in loaded.leaf {
            wave.add_leaf(name, slot);
        }
        for (name, slot) in loaded.refine {
            let rows = self.leaf_rows(name, wave).unwrap_or(usize::MAX);
            wave.add_refine(name, slot, rows)?;
        }
        Ok(())
    }

    /// Loads slots, all at once.
    pub async fn load_slots(&self, wanted: &Wanted) -> Result<Loaded> {
        let leaf = self.load_kind::<DecodedLeafBlock>(&wanted.leaf);
        let refine = self.load_kind::<DecodedRefineBlock>(&wanted.refine);
        let (leaf, refine) = tokio::try_join!(leaf, refine)?;
        Ok(Loaded { leaf, refine })
    }

    async fn load_kind<T: GroupPart>(&self, names: &[SlotName]) -> Result<Vec<(SlotName, HeldSlot<T>)>> {
        // Blocks with a map: their slots by pack. Others: whole blocks.
        let mut packs: BTreeMap<ObjectRef, Vec<SlotName>> = BTreeMap::new();
        let mut whole: BTreeMap<(u32, usize), Vec<SlotName>> = BTreeMap::new();
        for &name in names {
            let entry = &self.groups[name.group() as usize];
            let Some(block) = T::reference(entry, name.block()) else { continue };
            match T::map(entry, name.block()) {
                Some(_) => packs.entry(block.pack).or_default().push(name),
                None => whole.entry((name.group(), name.block())).or_default().push(name),
            }
        }
        let parts = packs.into_iter().map(|(pack, names)| self.load_parts::<T>(pack, names));
        let blocks = whole.into_iter().map(|((group, block), names)| async move {
            let decoded = self.load_block::<T>(group, block).await?;
            let held = |name: SlotName| (name, HeldSlot { block: decoded.clone(), slot: name.slot() });
            Ok(names.into_iter().map(held).collect::<Vec<_>>())
        });
        let parts = futures::stream::iter(parts.collect::<Vec<_>>()).buffered(LOADS_IN_FLIGHT).try_concat();
        let blocks = futures::stream::iter(blocks.collect::<Vec<_>>()).buffered(LOADS_IN_FLIGHT).try_concat();
        let (mut parts, blocks) = tokio::try_join!(parts, blocks)?;
        parts.extend(blocks);
        Ok(parts)
    }

    /// Slots of blocks that have maps, in one pack: one request for all.
    async fn load_parts<T: GroupPart>(
        &self,
        pack: ObjectRef,
        names: Vec<SlotName>,
    ) -> Result<Vec<(SlotName, HeldSlot<T>)>> {
        let mut places = Vec::with_capacity(names.len());
        for &name in &names {
            let entry = &self.groups[name.group() as usize];
            let (Some(block), Some(map)) = (T::reference(entry, name.block()), T::map(entry, name.block()))
            else {
                continue;
            };
            let Some(place) = map.slots.get(name.slot()) else { return Err(misfit()) };
            places.push((name, block, map, place, map.sums.cover(&place.range())));
        }
        let ranges: Vec<Range<u64>> = places
            .iter()
            .map(|(_, block, _, _, cover)| block.offset + cover.start..block.offset + cover.end)
            .collect();
        let read = self.io.store().get_ranges(&self.io.pack_key(&pack), &ranges).await;
        let read = read.map_err(crate::rootio::stored)?;
        let mut out = Vec::with_capacity(places.len());
        for ((name, block, map, place, cover), bytes) in places.into_iter().zip(read) {
            if !map.sums.check(cover.start, &bytes) {
                // The whole block says whether it was damaged on the way.
                tracing::warn!(pack = %block.pack, "a part of a block fails its checksum; reading the block again");
                let block = self.load_block::<T>(name.group(), name.block()).await?;
                out.push((name, HeldSlot { block, slot: name.slot() }));
                continue;
            }
            let at = (place.range().start - cover.start) as usize;
            let part = Arc::new(AlignedBytes::copy_from(&bytes[at..at + place.len as usize]));
            let decoded = T::decode_slot(map, name.slot(), part).map_err(|e| undecodable(e, block.pack))?;
            let decoded = Arc::new(decoded);
            let (key, slot) = piece_key(&block, Some(map), name);
            self.env.cache.insert(key, T::cached(decoded.clone()), decoded.memory());
            out.push((name, HeldSlot { block: decoded, slot }));
        }
        Ok(out)
    }

    /// A whole block, read once however many ask at a time. Its map is drawn if there is room for it; then it is not kept in
    /// the cache: its slots are.
    async fn load_block<T: GroupPart>(&self, group: u32, block: usize) -> Result<Arc<T>> {
        let entry = &self.groups[group as usize];
        let Some(reference) = T::reference(entry, block) else {
            return Err(crate::rootio::damaged("index: a block is missing"));
        };
        let key = BlockKey { hash: reference.hash.0, offset: reference.offset };
        let io = self.io.clone();
        let load = move || async move {
            let decoded =
                T::decode(io.block(&reference).await?).map_err(|e| undecodable(e, reference.pack))?;
            let weight = decoded.memory();
            Ok((T::cached(Arc::new(decoded)), weight))
        };
        let cached = self.env.cache.get_or_load(key, load).await?;
        let Some(decoded) = T::of(&cached) else { unreachable!("a block's key holds it") };
        decoded.check(entry, block)?;
        if let Some(maps) = self.maps(entry) {
            T::map_in(&maps, block).get_or_init(|| decoded.draw());
            self.env.cache.remove(&key);
        }
        Ok(decoded)
    }

    /// The maps of a group, if the budget has or had room for them.
    pub(super) fn maps(&self, entry: &GroupEntry) -> Option<Arc<GroupMaps>> {
        if let Some(maps) = entry.maps.get() {
            return Some(maps.clone());
        }
        let slots = entry.leaves.len() + 8;
        let padded = self.frame().padded();
        let refine = |block: BlockRef| BlockMap::refine_memory(block.len.into(), slots, padded);
        let leaf = |block: BlockRef| BlockMap::leaf_memory(block.len.into(), slots);
        let bytes = entry.blocks.iter().map(|b| leaf(b.leaf) + b.refine.map_or(0, refine)).sum();
        let reservation = self.env.resident.reserve(bytes)?;
        let empty = || entry.blocks.iter().map(|_| Default::default()).collect();
        let maps = GroupMaps { leaf: empty(), refine: empty(), _reservation: reservation };
        Some(entry.maps.get_or_init(|| Arc::new(maps)).clone())
    }
}

/// A leaf block or a refine block: what loading does alike for both.
trait GroupPart: Sized + Send + Sync + 'static {
    fn reference(entry: &GroupEntry, block: usize) -> Option<BlockRef>;
    fn map(entry: &GroupEntry, block: usize) -> Option<&BlockMap>;
    fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, pando_format::FormatError>;
    fn decode_slot(
        map: &BlockMap,
        slot: usize,
        bytes: Arc<AlignedBytes>,
    ) -> Result<Self, pando_format::FormatError>;
    fn map_in(maps: &GroupMaps, block: usize) -> &OnceLock<BlockMap>;
    fn draw(&self) -> BlockMap;
    fn check(&self, entry: &GroupEntry, block: usize) -> Result<()>;
    fn memory(&self) -> usize;
    fn cached(this: Arc<Self>) -> Block;
    fn of(block: &Block) -> Option<Arc<Self>>;
}

impl GroupPart for DecodedLeafBlock {
    fn reference(entry: &GroupEntry, block: usize) -> Option<BlockRef> {
        Some(entry.blocks.get(block)?.leaf)
    }
    fn map(entry: &GroupEntry, block: usize) -> Option<&BlockMap> {
        entry.leaf_map(block)
    }
    fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, pando_format::FormatError> {
        Self::decode(bytes)
    }
    fn decode_slot(
        map: &BlockMap,
        slot: usize,
        bytes: Arc<AlignedBytes>,
    ) -> Result<Self, pando_format::FormatError> {
        Self::decode_slot(&map.slots[slot], map.dim, map.padded, bytes)
    }
    fn map_in(maps: &GroupMaps, block: usize) -> &OnceLock<BlockMap> {
        &maps.leaf[block]
    }
    fn draw(&self) -> BlockMap {
        BlockMap::of_leaf(self)
    }
    fn check(&self, entry: &GroupEntry, block: usize) -> Result<()> {
        entry.check_leaf(block, self.slots())
    }
    fn memory(&self) -> usize {
        self.memory()
    }
    fn cached(this: Arc<Self>) -> Block {
        Block::Leaf(this)
    }
    fn of(block: &Block) -> Option<Arc<Self>> {
        match block {
            Block::Leaf(block) => Some(block.clone()),
            _ => None,
        }
    }
}

impl GroupPart for DecodedRefineBlock {
    fn reference(entry: &GroupEntry, block: usize) -> Option<BlockRef> {
        entry.blocks.get(block)?.refine
    }
    fn map(entry: &GroupEntry, block: usize) -> Option<&BlockMap> {
        entry.refine_map(block)
    }
    fn decode(bytes: Arc<AlignedBytes>) -> Result<Self, pando_format::FormatError> {
        Self::decode(bytes)
    }
    fn decode_slot(
        map: &BlockMap,
        slot: usize,
        bytes: Arc<AlignedBytes>,
    ) -> Result<Self, pando_format::FormatError> {
        Self::decode_slot(&map.slots[slot], map.dim, map.padded, bytes)
    }
    fn map_in(maps: &GroupMaps, block: usize) -> &OnceLock<BlockMap> {
        &maps.refine[block]
    }
    fn draw(&self) -> BlockMap {
        BlockMap::of_refine(self)
    }
    fn check(&self, entry: &GroupEntry, block: usize) -> Result<()> {
        entry.check_refine_places(block, self.slots())
    }
    fn memory(&self) -> usize {
        self.memory()
    }
    fn cached(this: Arc<Self>) -> Block {
        Block::Refine(this)
    }
    fn of(block: &Block) -> Option<Arc<Self>> {
        match block {
            Block::Refine(block) => Some(block.clone()),
            _ => None,
        }
    }
}

/// The cache's key for what a slot is read from, and the slot's number in it: the slot alone where its block has a map, else
/// the whole block.
fn piece_key(block: &BlockRef, map: Option<&BlockMap>, name: SlotName) -> (BlockKey, usize) {
    match map {
        Some(_) => (BlockKey { hash: block.hash.0, offset: 1 << 63 | name.slot() as u64 }, 0),
        None => (BlockKey { hash: block.hash.0, offset: block.offset }, name.slot()),
    }
}
