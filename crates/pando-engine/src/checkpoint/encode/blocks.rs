//! Writes the leaf and refine blocks of planned groups, a bounded number at a time.

use std::collections::{BTreeMap, BTreeSet};

use pando_format::{
    BlockRef, DecodedLeafBlock, DecodedRefineBlock, GroupBlock, LeafPlace, PackKind, SlotKind,
    encode_leaf_block, encode_refine_block,
};
use pando_kernels::Rotation;
use pando_tree::{EncodedRows, Tree, VectorSource, encode_leaf};
use rayon::prelude::*;

use super::super::context::Context;
use super::super::live::Condemned;
use super::super::packs::{Packs, Ticket};
use super::super::parent::Parent;
use super::super::vectors::{Vectors, tree_error};
use super::columns::{Columns, Part, join, merge, stored};
use super::group::{GroupPlan, SlotPlan, Source};
use crate::error::{Error, Result};
use crate::rootio::undecodable;

/// Rows that one task encodes; a multiple of 32, so that packed codes can be joined.
const TASK_ROWS: usize = 1024;

/// Where a block is or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a pack of an older root.
    Kept(BlockRef),
    /// In a pack of this checkpoint.
    New(Ticket),
}

impl Place {
    /// The reference, once packs are sealed.
    pub fn resolve(self, packs: &Packs<'_>) -> Result<BlockRef> {
        match self {
            Self::Kept(block) => Ok(block),
            Self::New(ticket) => packs.resolve(ticket),
        }
    }
}

/// The blocks of a group of the new root.
#[derive(Clone, Debug)]
pub struct GroupBlocks {
    /// Base and deltas: leaf block and refine block.
    pub blocks: Vec<(Place, Option<Place>)>,
    /// For each leaf of the group, in order: its slots.
    pub parts: Vec<Vec<LeafPlace>>,
}

impl GroupBlocks {
    /// The references, once packs are sealed.
    pub fn resolve(&self, packs: &Packs<'_>) -> Result<Vec<GroupBlock>> {
        let one = |(leaf, refine): &(Place, Option<Place>)| {
            let refine = refine.map(|r| r.resolve(packs)).transpose()?;
            Ok(GroupBlock { leaf: leaf.resolve(packs)?, refine })
        };
        self.blocks.iter().map(one).collect()
    }
}

/// What the writing of blocks works with.
pub struct BlockWriter<'a> {
    pub ctx: &'a Context,
    pub tree: &'a Tree,
    pub parent: Option<&'a Parent>,
    pub vectors: &'a Vectors,
    pub rotation: &'a Rotation,
    /// Packs whose blocks are to move.
    pub condemned: &'a Condemned,
    /// Bytes of vectors, codes and old blocks in memory at a time.
    pub memory: u64,
}

/// Old blocks that slots are copied from.
type OldBlocks = BTreeMap<(u64, u8), (DecodedLeafBlock, Option<DecodedRefineBlock>)>;

/// Bytes of a leaf block, and of its refine block.
type BlockBytes = (Vec<u8>, Option<Vec<u8>>);

/// A task of encoding: a run of rows of one slot.
struct Task {
    plan: usize,
    slot: usize,
    rows: Vec<u64>,
}

impl BlockWriter<'_> {
    /// Writes what the plans ask for; the blocks of each group by its id.
    pub fn write(&self, plans: &[GroupPlan], packs: &mut Packs<'_>) -> Result<BTreeMap<u64, GroupBlocks>> {
        let mut out = BTreeMap::new();
        let mut at = 0;
        while at < plans.len() {
            self.ctx.check_cancel()?;
            self.ctx.report("writing leaves", at as u64, plans.len() as u64);
            let mut end = at;
            let mut bytes = 0;
            while end < plans.len() && (end == at || bytes + self.cost(&plans[end]) <= self.memory) {
                bytes += self.cost(&plans[end]);
                end += 1;
            }
            self.write_batch(&plans[at..end], packs, &mut out)?;
            at = end;
        }
        Ok(out)
    }

    /// About how many bytes a plan takes while it is carried out.
    fn cost(&self, plan: &GroupPlan) -> u64 {
        let padded = self.ctx.config().padded() as u64;
        let code = 2 * (padded * 5 / 8 + 40);
        let fresh: u64 = plan.slots.iter().map(|s| s.fresh() as u64).sum();
        let copied: u64 =
            self.old_refs(std::slice::from_ref(plan)).values().map(|b| 3 * block_bytes(b)).sum();
        fresh * (4 * self.ctx.dim() as u64 + code) + copied
    }

    fn old_refs(&self, plans: &[GroupPlan]) -> BTreeMap<(u64, u8), GroupBlock> {
        let sources = plans.iter().flat_map(|p| &p.slots).flat_map(|s| &s.sources);
        let wanted: BTreeSet<(u64, u8)> = sources.map(|s| (s.group, s.place.block)).collect();
        let block = |key: (u64, u8)| self.parent.map(|p| (key, p.groups[&key.0].blocks[usize::from(key.1)]));
        wanted.into_iter().filter_map(block).collect()
    }

    fn read_old(&self, plans: &[GroupPlan]) -> Result<OldBlocks> {
        let refs = self.old_refs(plans);
        let leaf: Vec<BlockRef> = refs.values().map(|b| b.leaf).collect();
        let refine: Vec<BlockRef> = refs.values().filter_map(|b| b.refine).collect();
        let io = &self.ctx.io;
        let (leaf, refine) =
            self.ctx.block(async { tokio::try_join!(io.blocks(&leaf), io.blocks(&refine)) })?;
        let mut refine = refine.into_iter();
        let mut out = OldBlocks::new();
        for ((key, block), bytes) in refs.into_iter().zip(leaf) {
            let leaf = DecodedLeafBlock::decode(bytes).map_err(|e| undecodable(e, block.leaf.pack))?;
            let refine = match block.refine.and_then(|_| refine.next()) {
                Some(bytes) => {
                    Some(DecodedRefineBlock::decode(bytes).map_err(|e| undecodable(e, block.leaf.pack))?)
                }
                None => None,
            };
            out.insert(key, (leaf, refine));
        }
        Ok(out)
    }

    fn write_batch(
        &self,
        plans: &[GroupPlan],
        packs: &mut Packs<'_>,
        out: &mut BTreeMap<u64, GroupBlocks>,
    ) -> Result<()> {
        let old = self.read_old(plans)?;
        let mut fresh = self.encode(plans)?;
        let encoded: Result<Vec<Option<BlockBytes>>> = plans
            .par_iter()
            .zip(fresh.par_iter_mut())
            .map(|(plan, fresh)| match plan.slots.is_empty() {
                true => Ok(None),
                false => self.encode_block(plan, std::mem::take(fresh), &old).map(Some),
            })
            .collect();
        for (plan, block) in plans.iter().zip(encoded?) {
            let mut blocks = Vec::new();
            for &at in &plan.kept {
                let Some(block) = self.parent.map(|p| p.groups[&plan.group].blocks[at]) else { continue };
                let age = blocks.len() as u8;
                let refine = block.refine.map(|r| self.keep(PackKind::Refine, age, r, packs)).transpose()?;
                blocks.push((self.keep(PackKind::Leaves, age, block.leaf, packs)?, refine));
            }
            let mut parts = plan.parts.clone();
            if let Some((leaf, refine)) = block {
                let age = blocks.len() as u8;
                self.place_new(plan, age, &mut parts);
                let leaf = Place::New(packs.append_aged(PackKind::Leaves, age, &leaf)?);
                let refine =
                    refine.map(|bytes| packs.append_aged(PackKind::Refine, age, &bytes)).transpose()?;
                blocks.push((leaf, refine.map(Place::New)));
            }
            out.insert(plan.group, GroupBlocks { blocks, parts });
        }
        Ok(())
    }

    /// A block that stays, or moves as it is when its pack is condemned.
    fn keep(&self, kind: PackKind, age: u8, block: BlockRef, packs: &mut Packs<'_>) -> Result<Place> {
        if !self.condemned.moves(&block) {
            return Ok(Place::Kept(block));
        }
        let bytes = self.ctx.block(self.ctx.io.block(&block))?;
        Ok(Place::New(packs.append_aged(kind, age, &bytes)?))
    }

    /// Adds the new block's slots to the places of their leaves.
    fn place_new(&self, plan: &GroupPlan, block: u8, parts: &mut [Vec<LeafPlace>]) {
        let leaves = &self.tree.groups[&plan.group].leaves;
        for (slot, planned) in plan.slots.iter().enumerate() {
            if let Ok(at) = leaves.binary_search(&planned.leaf) {
                parts[at].push(LeafPlace { block, slot: slot as u32 });
            }
        }
    }

    /// Codes of the fresh rows of every slot of every plan.
    fn encode(&self, plans: &[GroupPlan]) -> Result<Vec<Vec<EncodedRows>>> {
        let mut rows: Vec<u64> = Vec::new();
        let mut tasks: Vec<Task> = Vec::new();
        for (p, plan) in plans.iter().enumerate() {
            for (s, slot) in plan.slots.iter().enumerate() {
                let all: Vec<u64> = slot.primaries.iter().chain(&slot.secondaries).copied().collect();
                tasks.extend(all.chunks(TASK_ROWS).map(|rows| Task {
                    plan: p,
                    slot: s,
                    rows: rows.to_vec(),
                }));
                rows.extend(all);
            }
        }
        rows.par_sort_unstable();
        rows.dedup();
        let fits = rows.len() as u64 * 4 * self.ctx.dim() as u64 <= self.memory;
        let resident = if fits { Some(self.vectors.load(rows)?) } else { None };
        let source: &dyn VectorSource = match &resident {
            Some(resident) => resident,
            None => self.vectors,
        };
        let (cfg, params) = (&self.ctx.tree_config, &self.tree.params);
        let done: Result<Vec<EncodedRows>> = tasks
            .par_iter()
            .map(|task| {
                self.ctx.check_cancel()?;
                let leaf = &self.tree.leaves[&plans[task.plan].slots[task.slot].leaf];
                let kernels = &self.ctx.kernels;
                encode_leaf(cfg, params, self.rotation, kernels, &leaf.centroid, &task.rows, source)
                    .map_err(tree_error)
            })
            .collect();
        let mut runs: Vec<Vec<Vec<EncodedRows>>> =
            plans.iter().map(|p| vec![Vec::new(); p.slots.len()]).collect();
        for (task, encoded) in tasks.iter().zip(done?) {
            runs[task.plan][task.slot].push(encoded);
        }
        Ok(runs.into_iter().map(|slots| slots.into_iter().map(join).collect()).collect())
    }

    /// The bytes of a group's new block and of its refine block.
    fn encode_block(&self, plan: &GroupPlan, fresh: Vec<EncodedRows>, old: &OldBlocks) -> Result<BlockBytes> {
        let padded = self.ctx.config().padded();
        let refine = self.ctx.tree_config.refine;
        let columns: Result<Vec<Columns>> =
            plan.slots.iter().zip(fresh).map(|(slot, fresh)| self.columns(slot, fresh, old)).collect();
        let columns = columns?;
        let slots: Vec<Part<'_>> = plan
            .slots
            .iter()
            .zip(&columns)
            .map(|(slot, columns)| {
                let whole = slot.kind == SlotKind::Whole;
                let centroid = if whole { &self.tree.leaves[&slot.leaf].centroid[..] } else { &[] };
                columns.as_slot(slot.leaf, slot.kind, centroid)
            })
            .collect();
        let failed = |e| Error::internal(format!("encoding a leaf block: {e}"));
        let dim = self.ctx.dim();
        let leaf = encode_leaf_block(dim, padded, &slots).map_err(failed)?;
        let refine = match refine {
            true => Some(encode_refine_block(dim, padded, &slots).map_err(failed)?),
            false => None,
        };
        Ok((leaf, refine))
    }

    /// Rows and codes of a slot: copied ones and fresh ones.
    fn columns(&self, slot: &SlotPlan, fresh: EncodedRows, old: &OldBlocks) -> Result<Columns> {
        let rows = slot.primaries.iter().chain(&slot.secondaries).copied().collect();
        let fresh = Columns { n_primary: slot.primaries.len(), rows, codes: fresh };
        if slot.sources.is_empty() {
            return Ok(fresh);
        }
        let view = |source: &Source| {
            let (leaf, refine) = &old[&(source.group, source.place.block)];
            let at = source.place.slot as usize;
            stored(&leaf.slot(at), refine.as_ref().map(|r| r.slot(at)))
        };
        let mut parts: Vec<Part<'_>> = slot.sources.iter().map(view).collect();
        if !fresh.rows.is_empty() {
            parts.push(fresh.as_slot(slot.leaf, slot.kind, &[]));
        }
        merge(&parts, self.ctx.config().padded(), self.ctx.tree_config.refine)
    }
}

fn block_bytes(block: &GroupBlock) -> u64 {
    u64::from(block.leaf.len) + block.refine.map_or(0, |r| u64::from(r.len))
}
