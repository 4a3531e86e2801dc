//! The table of stopping margins: computed from the blocks as they were stored, or carried over.

use std::collections::HashMap;
use std::sync::Arc;

use pando_format::{
    BlockRef, Calibration, DecodedLeafBlock, DecodedRefineBlock, LeafChild, LeafPlace, LeafSlot,
    NodeChildren, NodeRefs, RefineSlot,
};
use pando_tree::search::calibrate::{CalibrationSource, K_STEPS, TARGETS, calibrate, sample_rows};
use pando_tree::search::{Frame, LeafPart, LeafSource, NavBuilder, RefinePart};
use pando_tree::{Tree, TreeError, VectorSource};
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
    tree: &Tree,
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
    let mut sample = sample_rows(ctx.tree_config.seed, live(), live_count);
    // Neighbours one after the other: they ask for the same leaves.
    let place = places(tree, nodes, &sample);
    sample.sort_by_key(|row| (place.get(row).copied(), *row));
    ctx.report("calibrating", 0, sample.len() as u64);
    // Nothing else needs much by now.
    let leaves = Leaves::new(ctx, nodes, ctx.memory / 4 * 3)?;
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

/// Place of each row's primary leaf among the stored leaves.
fn places(tree: &Tree, nodes: &NodeLevels, rows: &[u64]) -> HashMap<u64, usize> {
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    let mut out = HashMap::new();
    let groups = nodes.groups().iter().filter_map(|node| tree.groups.get(&node.refs.id));
    for (at, leaf) in groups.flat_map(|group| &group.leaves).enumerate() {
        let primaries = tree.leaves.get(leaf).map_or(&[][..], |l| &l.primaries);
        out.extend(primaries.iter().filter(|row| sorted.binary_search(row).is_ok()).map(|row| (*row, at)));
    }
    out
}

/// A leaf in memory: copies of its slots, so that the rest of its blocks can go.
struct Loaded {
    parts: Vec<Part>,
    bytes: u64,
}

/// One slot of a leaf.
struct Part {
    rows: Vec<u64>,
    packed: Vec<u8>,
    /// f_add, f_rescale, norm.
    factors: [Vec<f32>; 3],
    refine: Option<(Vec<u8>, [Vec<f32>; 3])>,
}

impl Part {
    fn copy(leaf: LeafSlot<'_>, refine: Option<RefineSlot<'_>>) -> Self {
        Self {
            rows: leaf.rows.to_vec(),
            packed: leaf.packed.to_vec(),
            factors: [leaf.f_add, leaf.f_rescale, leaf.norm].map(<[f32]>::to_vec),
            refine: refine
                .map(|r| (r.nibbles.to_vec(), [r.f_add, r.f_rescale, r.f_error].map(<[f32]>::to_vec))),
        }
    }

    fn bytes(&self) -> usize {
        let refine = self.refine.as_ref().map_or(0, |(nibbles, f)| nibbles.len() + 12 * f[0].len());
        self.rows.len() * 20 + self.packed.len() + refine
    }
}

/// Leaves in two generations, as in the page cache of vectors.
#[derive(Default)]
struct Cache {
    young: HashMap<u32, Arc<Loaded>>,
    old: HashMap<u32, Arc<Loaded>>,
    bytes: u64,
}

impl Cache {
    fn get(&mut self, leaf: u32, limit: u64) -> Option<Arc<Loaded>> {
        if let Some(found) = self.young.get(&leaf) {
            return Some(found.clone());
        }
        let found = self.old.remove(&leaf)?;
        self.put(leaf, found.clone(), limit);
        Some(found)
    }

    fn put(&mut self, leaf: u32, loaded: Arc<Loaded>, limit: u64) {
        if self.bytes + loaded.bytes > limit {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += loaded.bytes;
        self.young.insert(leaf, loaded);
    }
}

/// The leaves of a stored root, loaded as they are asked for: a group's blocks are read whole, its leaves are kept one by
/// one.
struct Leaves<'a> {
    ctx: &'a Context,
    groups: Vec<&'a NodeRefs>,
    /// Group of each leaf, by ordinal.
    group_of: Vec<u32>,
    /// Ordinal of the first leaf of each group.
    first: Vec<u32>,
    centroids: Vec<&'a [f32]>,
    cache: Mutex<Cache>,
    limit: u64,
}

impl<'a> Leaves<'a> {
    fn new(ctx: &'a Context, nodes: &'a NodeLevels, memory: u64) -> Result<Self> {
        let (mut group_of, mut first, mut centroids) = (Vec::new(), Vec::new(), Vec::new());
        for (g, node) in nodes.groups().iter().enumerate() {
            let exact = node.centroids.as_ref().ok_or_else(|| Error::internal("centroids were not read"))?;
            first.push(group_of.len() as u32);
            for c in 0..node.refs.children.len() {
                group_of.push(g as u32);
                centroids.push(exact.get(c));
            }
        }
        let groups = nodes.groups().iter().map(|n| &n.refs).collect();
        Ok(Self { ctx, groups, group_of, first, centroids, cache: Mutex::default(), limit: memory / 2 })
    }

    fn load(&self, leaves: &[u32]) -> Result<HashMap<u32, Arc<Loaded>>> {
        let mut out = HashMap::new();
        let mut missing: Vec<u32> = Vec::new();
        {
            let mut cache = self.cache.lock();
            for &leaf in leaves {
                match cache.get(leaf, self.limit) {
                    Some(loaded) => drop(out.insert(leaf, loaded)),
                    None => missing.push(leaf),
                }
            }
        }
        missing.sort_unstable();
        for wanted in missing.chunk_by(|a, b| self.group_of[*a as usize] == self.group_of[*b as usize]) {
            self.ctx.check_cancel()?;
            let group = self.group_of[wanted[0] as usize];
            let loaded = self.load_group(group)?;
            let mut cache = self.cache.lock();
            for (leaf, loaded) in (self.first[group as usize]..).zip(loaded) {
                if wanted.binary_search(&leaf).is_ok() {
                    out.insert(leaf, loaded.clone());
                }
                cache.put(leaf, loaded, self.limit);
            }
        }
        Ok(out)
    }

    /// All leaves of a group.
    fn load_group(&self, group: u32) -> Result<Vec<Arc<Loaded>>> {
        let NodeChildren::Group { blocks, leaves } = &self.groups[group as usize].children else {
            return Err(damaged("tree: an inner node among the groups"));
        };
        let leaf_refs: Vec<BlockRef> = blocks.iter().map(|b| b.leaf).collect();
        let refine_refs: Vec<BlockRef> = blocks.iter().filter_map(|b| b.refine).collect();
        let io = &self.ctx.io;
        let read = async { tokio::try_join!(io.blocks(&leaf_refs), io.blocks(&refine_refs)) };
        let (leaf_bytes, refine_bytes) = self.ctx.block(read)?;
        let mut refine_bytes = refine_bytes.into_iter();
        let mut decoded = Vec::with_capacity(blocks.len());
        for (block, bytes) in blocks.iter().zip(leaf_bytes) {
            let leaf = DecodedLeafBlock::decode(bytes).map_err(|e| undecodable(e, block.leaf.pack))?;
            let refine = block.refine.and_then(|_| refine_bytes.next()).map(DecodedRefineBlock::decode);
            decoded.push((leaf, refine.transpose().map_err(|e| undecodable(e, block.leaf.pack))?));
        }
        let load = |child: &LeafChild| {
            let part = |place: &LeafPlace| {
                let (leaf, refine) = &decoded[usize::from(place.block)];
                let slot = place.slot as usize;
                Part::copy(leaf.slot(slot), refine.as_ref().map(|r| r.slot(slot)))
            };
            let parts: Vec<Part> = child.parts.iter().map(part).collect();
            let bytes = parts.iter().map(|p| p.bytes() as u64).sum::<u64>() + 256;
            Arc::new(Loaded { parts, bytes })
        };
        Ok(leaves.iter().map(load).collect())
    }
}

impl CalibrationSource for Leaves<'_> {
    fn with_leaves(&self, ordinals: &[u32], f: &mut dyn FnMut(&dyn LeafSource)) -> Result<(), TreeError> {
        let loaded = self.load(ordinals).map_err(TreeError::source)?;
        f(&Wave { centroids: &self.centroids, loaded });
        Ok(())
    }
}

/// The leaves of one wave.
struct Wave<'a> {
    centroids: &'a [&'a [f32]],
    loaded: HashMap<u32, Arc<Loaded>>,
}

impl LeafSource for Wave<'_> {
    fn centroid(&self, leaf: u32) -> &[f32] {
        self.centroids[leaf as usize]
    }

    fn parts(&self, leaf: u32) -> usize {
        self.loaded[&leaf].parts.len()
    }

    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_> {
        let part = &self.loaded[&leaf].parts[part];
        let [f_add, f_rescale, norm] = &part.factors;
        let refine = part.refine.as_ref().map(|(nibbles, [f_add, f_rescale, f_error])| RefinePart {
            nibbles,
            f_add,
            f_rescale,
            f_error,
        });
        LeafPart { rows: &part.rows, packed: &part.packed, f_add, f_rescale, norm, refine }
    }
}
