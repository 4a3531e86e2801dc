//! The table of stopping margins: computed from the blocks as they were stored, or carried over.

use std::collections::HashMap;
use std::sync::Arc;

use pando_format::{
    BlockRef, Calibration, DecodedLeafBlock, DecodedRefineBlock, LeafChild, NodeChildren, NodeRefs,
};
use pando_tree::search::calibrate::{CalibrationSource, K_STEPS, TARGETS, calibrate, sample_rows};
use pando_tree::search::{Frame, LeafPart, LeafSource, NavBuilder, RefinePart};
use pando_tree::{TreeError, VectorSource};
use parking_lot::Mutex;

use super::constants::CALIBRATE_PART;
use super::context::Context;
use super::vectors::tree_error;
use crate::error::{Error, Result};
use crate::rootio::{NodeLevels, damaged, undecodable};

/// The parent's table with the plan's changes counted, if it still holds: fewer than a tenth of the rows changed since
/// it was computed.
pub fn carried(parent: Option<&Calibration>, changed: u64) -> Option<Calibration> {
    let old = parent.filter(|c| !c.margins.is_empty())?;
    let changed = old.changed.saturating_add(changed);
    (changed.saturating_mul(CALIBRATE_PART) < old.rows).then(|| Calibration { changed, ..old.clone() })
}

/// Computes the table of a root whose blocks are stored. `live`: its live rows.
pub fn compute(
    ctx: &Context,
    frame: Arc<Frame>,
    nodes: &NodeLevels,
    live: &dyn Fn() -> Box<dyn Iterator<Item = u64>>,
    live_count: u64,
    dead: &(dyn Fn(u64) -> bool + Sync),
    vectors: &dyn VectorSource,
) -> Result<Calibration> {
    let mut nav = NavBuilder::new(frame);
    for (level, list) in nodes.levels.iter().enumerate() {
        for node in list {
            let c = &node.codes;
            nav.push_node(level, c.codes(), c.w(), c.add(), c.r2()).map_err(tree_error)?;
        }
    }
    let nav = nav.finish().map_err(tree_error)?;
    let sample = sample_rows(ctx.tree_config.seed, live(), live_count);
    ctx.report("calibrating", 0, sample.len() as u64);
    let leaves = Leaves::new(ctx, nodes, ctx.memory / 3)?;
    let table =
        calibrate(&nav, &sample, &leaves, vectors, &|row: u64| dead(row), &ctx.pool).map_err(tree_error)?;
    Ok(Calibration {
        rows: live_count,
        changed: 0,
        ks: K_STEPS.iter().map(|k| *k as u32).collect(),
        targets: TARGETS.iter().map(|t| (f64::from(*t) * 1e6).round() as u32).collect(),
        margins: table.margins.concat(),
    })
}

/// A group's blocks in memory.
struct Loaded {
    blocks: Vec<(DecodedLeafBlock, Option<DecodedRefineBlock>)>,
    bytes: u64,
}

/// Two generations, as in the page cache of vectors.
#[derive(Default)]
struct Cache {
    young: HashMap<u32, Arc<Loaded>>,
    old: HashMap<u32, Arc<Loaded>>,
    bytes: u64,
}

impl Cache {
    fn get(&mut self, group: u32, limit: u64) -> Option<Arc<Loaded>> {
        if let Some(found) = self.young.get(&group) {
            return Some(found.clone());
        }
        let found = self.old.remove(&group)?;
        self.put(group, found.clone(), limit);
        Some(found)
    }

    fn put(&mut self, group: u32, loaded: Arc<Loaded>, limit: u64) {
        if self.bytes + loaded.bytes > limit {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += loaded.bytes;
        self.young.insert(group, loaded);
    }
}

/// The leaves of a stored root, loaded group by group as they are asked for.
struct Leaves<'a> {
    ctx: &'a Context,
    groups: Vec<&'a NodeRefs>,
    /// Group and child of each ordinal.
    places: Vec<(u32, u32)>,
    centroids: Vec<&'a [f32]>,
    cache: Mutex<Cache>,
    limit: u64,
}

impl<'a> Leaves<'a> {
    fn new(ctx: &'a Context, nodes: &'a NodeLevels, memory: u64) -> Result<Self> {
        let mut places = Vec::new();
        let mut centroids = Vec::new();
        for (g, node) in nodes.groups().iter().enumerate() {
            let exact = node.centroids.as_ref().ok_or_else(|| Error::internal("centroids were not read"))?;
            for c in 0..node.refs.children.len() {
                places.push((g as u32, c as u32));
                centroids.push(exact.get(c));
            }
        }
        let groups = nodes.groups().iter().map(|n| &n.refs).collect();
        Ok(Self { ctx, groups, places, centroids, cache: Mutex::default(), limit: memory / 2 })
    }

    fn child(&self, leaf: u32) -> (u32, &LeafChild) {
        let (group, child) = self.places[leaf as usize];
        match &self.groups[group as usize].children {
            NodeChildren::Group { leaves, .. } => (group, &leaves[child as usize]),
            NodeChildren::Inner(_) => unreachable!("the reader of nodes gives groups last"),
        }
    }

    fn load(&self, groups: &[u32]) -> Result<HashMap<u32, Arc<Loaded>>> {
        let mut out = HashMap::new();
        let mut missing = Vec::new();
        {
            let mut cache = self.cache.lock();
            for &group in groups {
                match cache.get(group, self.limit) {
                    Some(loaded) => drop(out.insert(group, loaded)),
                    None => missing.push(group),
                }
            }
        }
        for group in missing {
            let NodeChildren::Group { blocks, .. } = &self.groups[group as usize].children else {
                return Err(damaged("tree: an inner node among the groups"));
            };
            let leaf: Vec<BlockRef> = blocks.iter().map(|b| b.leaf).collect();
            let refine: Vec<BlockRef> = blocks.iter().filter_map(|b| b.refine).collect();
            let io = &self.ctx.io;
            let (leaf, refine) =
                self.ctx.block(async { tokio::try_join!(io.blocks(&leaf), io.blocks(&refine)) })?;
            let mut refine = refine.into_iter();
            let mut loaded = Loaded { blocks: Vec::new(), bytes: 0 };
            for (block, bytes) in blocks.iter().zip(leaf) {
                let leaf = DecodedLeafBlock::decode(bytes).map_err(|e| undecodable(e, block.leaf.pack))?;
                let refine =
                    block.refine.and_then(|_| refine.next()).map(DecodedRefineBlock::decode).transpose();
                let refine = refine.map_err(|e| undecodable(e, block.leaf.pack))?;
                loaded.bytes += (leaf.memory() + refine.as_ref().map_or(0, |r| r.memory())) as u64;
                loaded.blocks.push((leaf, refine));
            }
            let loaded = Arc::new(loaded);
            self.cache.lock().put(group, loaded.clone(), self.limit);
            out.insert(group, loaded);
        }
        Ok(out)
    }
}

impl CalibrationSource for Leaves<'_> {
    fn with_leaves(&self, ordinals: &[u32], f: &mut dyn FnMut(&dyn LeafSource)) -> Result<(), TreeError> {
        self.ctx.check_cancel().map_err(|_| TreeError::Cancelled)?;
        let mut groups: Vec<u32> = ordinals.iter().map(|leaf| self.places[*leaf as usize].0).collect();
        groups.sort_unstable();
        groups.dedup();
        let loaded = self.load(&groups).map_err(TreeError::source)?;
        f(&Wave { leaves: self, loaded });
        Ok(())
    }
}

/// The leaves of one wave.
struct Wave<'a> {
    leaves: &'a Leaves<'a>,
    loaded: HashMap<u32, Arc<Loaded>>,
}

impl LeafSource for Wave<'_> {
    fn centroid(&self, leaf: u32) -> &[f32] {
        self.leaves.centroids[leaf as usize]
    }

    fn parts(&self, leaf: u32) -> usize {
        self.leaves.child(leaf).1.parts.len()
    }

    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_> {
        let (group, child) = self.leaves.child(leaf);
        let place = child.parts[part];
        let (block, refine) = &self.loaded[&group].blocks[usize::from(place.block)];
        let slot = block.slot(place.slot as usize);
        let refine = refine.as_ref().map(|r| r.slot(place.slot as usize)).map(|r| RefinePart {
            nibbles: r.nibbles,
            f_add: r.f_add,
            f_rescale: r.f_rescale,
            f_error: r.f_error,
        });
        LeafPart {
            rows: slot.rows,
            packed: slot.packed,
            f_add: slot.f_add,
            f_rescale: slot.f_rescale,
            norm: slot.norm,
            refine,
        }
    }
}
