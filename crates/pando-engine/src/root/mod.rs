//! An open root: what a query node keeps of one version of a collection. All of it can be rebuilt from the bucket.

mod leaves;
mod open;
mod rank;
mod records;
mod vectors;

use std::sync::Arc;

use futures::stream::{StreamExt, TryStreamExt};
use pando_format::{BlockRef, DecodedLeafBlock, DecodedRefineBlock, Manifest, RootId, RowSet};
use pando_store::BlockKey;
use pando_tree::search::{Frame, Nav};

pub use leaves::{GroupBlocks, GroupEntry, WaveLeaves, WaveView};
pub use vectors::{RowVectors, SegmentData};

use crate::arena::Arena;
use crate::block::Block;
use crate::environment::{Environment, Reservation};
use crate::error::Result;
use crate::rootio::{RootIo, undecodable};

/// Groups whose blocks are read at the same time.
const LOADS_IN_FLIGHT: usize = 16;

/// One version of a collection, ready to be searched.
pub struct OpenRoot {
    env: Environment,
    io: RootIo,
    id: RootId,
    manifest: Arc<Manifest>,
    nav: Nav,
    groups: Vec<GroupEntry>,
    group_of: Vec<u32>,
    deaths: RowSet,
    segments: Vec<Arc<SegmentData>>,
    _memory: Option<Reservation>,
}

impl std::fmt::Debug for OpenRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenRoot({})", self.id)
    }
}

impl OpenRoot {
    /// The root's id.
    pub fn id(&self) -> RootId {
        self.id
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Its navigation.
    pub fn nav(&self) -> &Nav {
        &self.nav
    }

    /// Metric, rotation and root mean.
    pub fn frame(&self) -> &Arc<Frame> {
        self.nav.frame()
    }

    /// Its groups, in the order of leaves.
    pub fn groups(&self) -> &[GroupEntry] {
        &self.groups
    }

    /// Dead rows that are still in leaves or segments.
    pub fn deaths(&self) -> &RowSet {
        &self.deaths
    }

    /// Its segments, in row order.
    pub fn segments(&self) -> &[Arc<SegmentData>] {
        &self.segments
    }

    /// Reader of the collection's objects.
    pub fn io(&self) -> &RootIo {
        &self.io
    }

    /// The group of each leaf.
    pub fn group_of(&self) -> &[u32] {
        &self.group_of
    }

    /// Makes sure that the leaves of `wave` can be read through a [`WaveView`] of `out`, or says which groups have to
    /// be loaded first ([`OpenRoot::load_groups`]); `held` are groups that were.
    pub fn gather(
        &self,
        wave: &[u32],
        held: &[(u32, Arc<GroupBlocks>)],
        out: &mut WaveLeaves,
    ) -> Result<(), Vec<u32>> {
        out.clear();
        let mut missing = Vec::new();
        for &leaf in wave {
            let group = self.group_of[leaf as usize];
            if self.groups[group as usize].resident.get().is_some() || out.get(group).is_some() {
                continue;
            }
            match self.group_at_hand(group, held) {
                Some(blocks) => out.add(group, blocks),
                None if missing.contains(&group) => {}
                None => missing.push(group),
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Blocks of a group that does not stay in memory.
    fn group_at_hand(&self, group: u32, held: &[(u32, Arc<GroupBlocks>)]) -> Option<Arc<GroupBlocks>> {
        if let Some((_, blocks)) = held.iter().find(|(have, _)| *have == group) {
            return Some(blocks.clone());
        }
        match self.env.cache.get(&group_key(&self.groups[group as usize])).as_deref() {
            Some(Block::Group(blocks)) => Some(blocks.clone()),
            _ => None,
        }
    }

    /// Loads the blocks of these groups, so that [`OpenRoot::gather`] finds them as long as the result is kept.
    pub async fn load_groups(&self, groups: &[u32]) -> Result<Vec<Arc<GroupBlocks>>> {
        let loads: Vec<_> = groups.iter().map(|group| self.load_group(*group)).collect();
        futures::stream::iter(loads).buffered(LOADS_IN_FLIGHT).try_collect().await
    }

    async fn load_group(&self, group: u32) -> Result<Arc<GroupBlocks>> {
        let entry = &self.groups[group as usize];
        if let Some(blocks) = entry.resident.get() {
            return Ok(blocks.clone());
        }
        let (io, refs) = (self.io.clone(), entry.blocks.clone());
        let load = move || async move {
            let blocks = read_group(&io, &refs, None).await?;
            let weight = blocks.memory();
            Ok((Block::Group(Arc::new(blocks)), weight))
        };
        let cached = self.env.cache.get_or_load(group_key(entry), load).await?;
        let Block::Group(blocks) = &*cached else { unreachable!("a group's key holds a group") };
        entry.check(blocks)?;
        Ok(blocks.clone())
    }

    /// Loads a group's blocks to stay, if the budget has room. `false`: it has not.
    pub(crate) async fn keep_group(&self, group: u32) -> Result<bool> {
        let entry = &self.groups[group as usize];
        if entry.resident.get().is_some() {
            return Ok(true);
        }
        let bytes: u64 =
            entry.blocks.iter().map(|b| u64::from(b.leaf.len) + b.refine.map_or(0, |r| r.len.into())).sum();
        let Some(reservation) = self.env.resident.reserve(bytes) else { return Ok(false) };
        let mut blocks = read_group(&self.io, &entry.blocks, Some(&self.env.arena)).await?;
        entry.check(&blocks)?;
        blocks.reservation = Some(reservation);
        let _ = entry.resident.set(Arc::new(blocks));
        Ok(true)
    }
}

async fn read_group(
    io: &RootIo,
    refs: &[pando_format::GroupBlock],
    arena: Option<&Arena>,
) -> Result<GroupBlocks> {
    let wanted: Vec<BlockRef> = refs.iter().flat_map(|b| std::iter::once(b.leaf).chain(b.refine)).collect();
    let mut bytes = io.blocks_in(&wanted, arena).await?.into_iter();
    let mut next = || bytes.next().expect("one answer a block");
    let mut blocks = Vec::with_capacity(refs.len());
    for group_block in refs {
        let leaf = DecodedLeafBlock::decode(next()).map_err(|e| undecodable(e, group_block.leaf.pack))?;
        let refine = group_block.refine.map(|r| (r, next()));
        let refine = refine
            .map(|(r, bytes)| DecodedRefineBlock::decode(bytes).map_err(|e| undecodable(e, r.pack)))
            .transpose()?;
        blocks.push((leaf, refine));
    }
    Ok(GroupBlocks { blocks, reservation: None })
}

/// A group is named by its newest block: a new delta makes a new name.
fn group_key(entry: &GroupEntry) -> BlockKey {
    let newest = entry.blocks.last().expect("a group has a block").leaf;
    BlockKey { hash: newest.hash.0, offset: newest.offset }
}
