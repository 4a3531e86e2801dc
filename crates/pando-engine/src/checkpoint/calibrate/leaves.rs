//! The leaves of a stored root as calibration scans them: read one by one, some of them kept.
//!
//! The first time a leaf of a group is asked for, the group's blocks are read and checked whole, and the place and the
//! hash of each slot's bytes are noted. From then on a leaf that is not kept is read alone.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use pando_format::{
    AlignedBytes, BlockRef, DecodedLeafBlock, DecodedRefineBlock, Hash, LeafPlace, NodeChildren, NodeRefs,
    ObjectRef, SlotKind, fill_up,
};
use pando_tree::TreeError;
use pando_tree::search::calibrate::CalibrationSource;
use pando_tree::search::{LeafPart, LeafSource, RefinePart};
use parking_lot::Mutex;

use super::super::context::Context;
use crate::error::{Error, Result};
use crate::rootio::{NodeLevels, damaged, stored, undecodable};

/// Columns of a slot that lie one after the other in a block.
#[derive(Clone, Debug)]
struct Span {
    pack: ObjectRef,
    /// Place in the pack, from the first column to the end of the last.
    range: Range<u64>,
    /// BLAKE3 of these bytes.
    hash: Hash,
    /// The columns, from the start of the range.
    columns: Vec<Range<usize>>,
}

/// A slot: rows, factors, 1-bit codes; and its refine codes and factors.
#[derive(Clone, Debug)]
struct SlotSpans {
    /// Padded dimension, for an append slot: its codes are stored without the rows that fill up a block.
    append: Option<usize>,
    leaf: Span,
    refine: Option<Span>,
}

impl Span {
    /// The span of columns that are views into a block.
    fn of(block: &BlockRef, bytes: &AlignedBytes, columns: &[&[u8]]) -> Self {
        let base = bytes.as_ptr() as usize;
        let place = |column: &&[u8]| {
            let start = column.as_ptr() as usize - base;
            start..start + column.len()
        };
        let columns: Vec<Range<usize>> = columns.iter().map(place).collect();
        let start = columns.iter().map(|c| c.start).min().unwrap_or(0);
        let end = columns.iter().map(|c| c.end).max().unwrap_or(0);
        Self {
            pack: block.pack,
            range: block.offset + start as u64..block.offset + end as u64,
            hash: Hash::of(&bytes[start..end]),
            columns: columns.into_iter().map(|c| c.start - start..c.end - start).collect(),
        }
    }

    fn column<'a>(&self, i: usize, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.columns[i].clone()]
    }
}

/// A leaf in memory: copies of its slots.
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

fn u64s(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

impl Part {
    /// Copies a slot out of the bytes of its spans.
    fn copy(spans: &SlotSpans, leaf: &[u8], refine: Option<&[u8]>) -> Self {
        let span = &spans.leaf;
        let refine = spans.refine.as_ref().zip(refine).map(|(span, bytes)| {
            (span.column(0, bytes).to_vec(), std::array::from_fn(|i| f32s(span.column(1 + i, bytes))))
        });
        let rows = u64s(span.column(0, leaf));
        let codes = span.column(4, leaf);
        let packed = match spans.append {
            Some(padded) => fill_up(codes, rows.len(), padded).to_vec(),
            None => codes.to_vec(),
        };
        let factors = std::array::from_fn(|i| f32s(span.column(1 + i, leaf)));
        Self { rows, factors, packed, refine }
    }

    fn bytes(&self) -> usize {
        let refine = self.refine.as_ref().map_or(0, |(nibbles, f)| nibbles.len() + 12 * f[0].len());
        self.rows.len() * 20 + self.packed.len() + refine
    }
}

impl Loaded {
    fn new(parts: Vec<Part>) -> Arc<Self> {
        let bytes = parts.iter().map(|p| p.bytes() as u64).sum::<u64>() + 256;
        Arc::new(Self { parts, bytes })
    }
}

/// Leaves that are kept. Wide searches go round all leaves, each time: a cache that always takes in the newest would find
/// nothing again. So once it is full only one in [`ADMIT`] is taken in, for the one that has been there longest.
#[derive(Default)]
struct Cache {
    kept: HashMap<u32, Arc<Loaded>>,
    order: VecDeque<u32>,
    bytes: u64,
    refused: u32,
}

/// See [`Cache`].
const ADMIT: u32 = 16;

impl Cache {
    fn put(&mut self, leaf: u32, loaded: &Arc<Loaded>, limit: u64) {
        if self.kept.contains_key(&leaf) {
            return;
        }
        if self.bytes + loaded.bytes > limit {
            self.refused += 1;
            if !self.refused.is_multiple_of(ADMIT) {
                return;
            }
            while self.bytes + loaded.bytes > limit {
                let Some(oldest) = self.order.pop_front() else { return };
                self.bytes -= self.kept.remove(&oldest).map_or(0, |old| old.bytes);
            }
        }
        self.bytes += loaded.bytes;
        self.order.push_back(leaf);
        self.kept.insert(leaf, loaded.clone());
    }
}

/// The leaves of a stored root.
pub struct Leaves<'a> {
    ctx: &'a Context,
    groups: Vec<&'a NodeRefs>,
    /// Group of each leaf, by ordinal.
    group_of: Vec<u32>,
    /// Ordinal of the first leaf of each group.
    first: Vec<u32>,
    centroids: Vec<&'a [f32]>,
    spans: Mutex<HashMap<u32, Arc<Vec<SlotSpans>>>>,
    cache: Mutex<Cache>,
    limit: u64,
}

impl<'a> Leaves<'a> {
    /// Leaves by ordinal; `memory`: bytes of leaves kept.
    pub fn new(ctx: &'a Context, nodes: &'a NodeLevels, memory: u64) -> Result<Self> {
        let (mut group_of, mut first, mut centroids) = (Vec::new(), Vec::new(), Vec::new());
        for (g, node) in nodes.groups().iter().enumerate() {
            let exact = node.centroids.as_ref().ok_or_else(|| Error::internal("centroids were not read"))?;
            first.push(group_of.len() as u32);
            for c in 0..node.refs.children.len() {
                group_of.push(g as u32);
                centroids.push(exact.get(c));
            }
        }
        Ok(Self {
            ctx,
            groups: nodes.groups().iter().map(|n| &n.refs).collect(),
            group_of,
            first,
            centroids,
            spans: Mutex::default(),
            cache: Mutex::default(),
            limit: memory,
        })
    }

    fn load(&self, leaves: &[u32]) -> Result<HashMap<u32, Arc<Loaded>>> {
        let mut out = HashMap::new();
        let mut missing: Vec<u32> = Vec::new();
        {
            let cache = self.cache.lock();
            for &leaf in leaves {
                match cache.kept.get(&leaf) {
                    Some(loaded) => drop(out.insert(leaf, loaded.clone())),
                    None => missing.push(leaf),
                }
            }
        }
        missing.sort_unstable();
        for wanted in missing.chunk_by(|a, b| self.group_of[*a as usize] == self.group_of[*b as usize]) {
            self.ctx.check_cancel()?;
            let known: Option<Vec<Arc<Vec<SlotSpans>>>> = {
                let spans = self.spans.lock();
                wanted.iter().map(|leaf| spans.get(leaf).cloned()).collect()
            };
            let loaded = match known {
                Some(spans) => wanted.iter().copied().zip(self.read_leaves(&spans)?).collect(),
                None => self.load_group(self.group_of[wanted[0] as usize])?,
            };
            let mut cache = self.cache.lock();
            for (leaf, loaded) in loaded {
                cache.put(leaf, &loaded, self.limit);
                if wanted.binary_search(&leaf).is_ok() {
                    out.insert(leaf, loaded);
                }
            }
        }
        Ok(out)
    }

    /// All leaves of a group, from its whole blocks. Notes where their slots lie.
    fn load_group(&self, group: u32) -> Result<Vec<(u32, Arc<Loaded>)>> {
        let NodeChildren::Group { blocks, leaves } = &self.groups[group as usize].children else {
            return Err(damaged("tree: an inner node among the groups"));
        };
        let leaf_refs: Vec<BlockRef> = blocks.iter().map(|b| b.leaf).collect();
        let refine_refs: Vec<BlockRef> = blocks.iter().filter_map(|b| b.refine).collect();
        let io = &self.ctx.io;
        let read = async { tokio::try_join!(io.blocks(&leaf_refs), io.blocks(&refine_refs)) };
        let (leaf_bytes, refine_bytes) = self.ctx.block(read)?;
        let mut decoded = Vec::with_capacity(blocks.len());
        for (block, bytes) in leaf_refs.iter().zip(&leaf_bytes) {
            decoded.push(DecodedLeafBlock::decode(bytes.clone()).map_err(|e| undecodable(e, block.pack))?);
        }
        let mut refine = Vec::with_capacity(blocks.len());
        for (block, bytes) in refine_refs.iter().zip(&refine_bytes) {
            refine.push(DecodedRefineBlock::decode(bytes.clone()).map_err(|e| undecodable(e, block.pack))?);
        }
        let slot_spans = |place: &LeafPlace| {
            let (block, slot) = (usize::from(place.block), place.slot as usize);
            let s = decoded[block].slot(slot);
            let columns = [
                bytemuck::cast_slice(s.rows),
                bytemuck::cast_slice(s.f_add),
                bytemuck::cast_slice(s.f_rescale),
                bytemuck::cast_slice(s.norm),
                s.stored,
            ];
            let leaf = Span::of(&leaf_refs[block], &leaf_bytes[block], &columns);
            let refine = refine.get(block).map(|decoded| {
                let r = decoded.slot(slot);
                let columns = [
                    r.nibbles,
                    bytemuck::cast_slice(r.f_add),
                    bytemuck::cast_slice(r.f_rescale),
                    bytemuck::cast_slice(r.f_error),
                ];
                Span::of(&refine_refs[block], &refine_bytes[block], &columns)
            });
            let append = (s.kind == SlotKind::Append).then(|| decoded[block].padded());
            SlotSpans { append, leaf, refine }
        };
        let inside = |block: &BlockRef, span: &Span| {
            (span.range.start - block.offset) as usize..(span.range.end - block.offset) as usize
        };
        let mut out = Vec::with_capacity(leaves.len());
        for (ordinal, child) in (self.first[group as usize]..).zip(leaves) {
            let spans: Vec<SlotSpans> = child.parts.iter().map(slot_spans).collect();
            let copy = |(place, spans): (&LeafPlace, &SlotSpans)| {
                let block = usize::from(place.block);
                let leaf = &leaf_bytes[block][inside(&leaf_refs[block], &spans.leaf)];
                let refine =
                    spans.refine.as_ref().map(|s| &refine_bytes[block][inside(&refine_refs[block], s)]);
                Part::copy(spans, leaf, refine)
            };
            out.push((ordinal, Loaded::new(child.parts.iter().zip(&spans).map(copy).collect())));
            self.spans.lock().insert(ordinal, Arc::new(spans));
        }
        Ok(out)
    }

    /// Leaves whose slots' places are known, read alone.
    fn read_leaves(&self, leaves: &[Arc<Vec<SlotSpans>>]) -> Result<Vec<Arc<Loaded>>> {
        let all =
            || leaves.iter().flat_map(|slots| slots.iter()).flat_map(|s| [Some(&s.leaf), s.refine.as_ref()]);
        let spans: Vec<&Span> = all().flatten().collect();
        let mut bytes = self.read_spans(&spans)?.into_iter();
        let mut part = |slot: &SlotSpans| {
            let leaf = bytes.next().unwrap_or_default();
            let refine = slot.refine.as_ref().and_then(|_| bytes.next());
            Part::copy(slot, &leaf, refine.as_deref())
        };
        Ok(leaves.iter().map(|slots| Loaded::new(slots.iter().map(&mut part).collect())).collect())
    }

    /// Reads spans, one request a pack; each is checked against its hash, and read again once when it does not fit.
    fn read_spans(&self, spans: &[&Span]) -> Result<Vec<Bytes>> {
        let mut order: Vec<usize> = (0..spans.len()).collect();
        order.sort_by_key(|&i| (spans[i].pack, spans[i].range.start));
        let mut out = vec![Bytes::new(); spans.len()];
        for pack in order.chunk_by(|&a, &b| spans[a].pack == spans[b].pack) {
            let key = self.ctx.io.pack_key(&spans[pack[0]].pack);
            let ranges: Vec<Range<u64>> = pack.iter().map(|&i| spans[i].range.clone()).collect();
            let store = self.ctx.io.store();
            let parts = self.ctx.block(store.get_ranges(&key, &ranges)).map_err(stored)?;
            for (&i, mut bytes) in pack.iter().zip(parts) {
                if Hash::of(&bytes) != spans[i].hash {
                    bytes = self.ctx.block(store.get_range(&key, spans[i].range.clone())).map_err(stored)?;
                    if Hash::of(&bytes) != spans[i].hash {
                        return Err(damaged("leaf block: it changed since it was written"));
                    }
                }
                out[i] = bytes;
            }
        }
        Ok(out)
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
        LeafPart { rows: &part.rows, packed: &part.packed, f_add, f_rescale, norm, refine, away: None }
    }
}
