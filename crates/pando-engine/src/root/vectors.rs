//! Vectors of root rows: whole batches kept in memory while the budget has room, else parts of pages that the operating system
//! has in memory, else checked pages through the block cache.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use pando_format::{AlignedBytes, PAGE_BYTES, SegmentEntry, SegmentSide};
use pando_store::{AtHand, BlockKey};

use super::OpenRoot;
use super::files::Files;
use super::rank::RowRank;
use super::sums::SegmentSums;
use crate::block::Block;
use crate::environment::{MemoryBudget, Reservation};
use crate::error::Result;
use crate::rootio::{RootIo, SegmentReader, damaged};

/// Pages of one segment read with one request at most.
const PAGES_A_RUN: u64 = 64;
/// Missing pages are read together with neighbours that are so many pages away at most.
const PAGE_GAP: u64 = 2;

/// Vectors of a batch that stay in memory.
#[derive(Debug)]
pub struct KeptVectors {
    /// Row-major, original.
    pub vectors: AlignedBytes,
    /// Bytes that they hold of the budget.
    pub _reservation: Reservation,
}

/// Ids of a batch that stay in memory.
#[derive(Debug)]
pub struct KeptIds {
    /// As [`SegmentSide::ids_range`].
    pub ids: Bytes,
    /// Bytes that they hold of the budget.
    pub _reservation: Reservation,
}

/// A segment of an open root; shared by the roots that have it.
#[derive(Debug)]
pub struct SegmentData {
    reader: SegmentReader,
    hash: [u8; 32],
    rank: RowRank,
    vectors: Vec<OnceLock<KeptVectors>>,
    ids: Vec<OnceLock<KeptIds>>,
    sums: OnceLock<(SegmentSums, Reservation)>,
}

impl SegmentData {
    /// Opens a segment; nothing of its rows is loaded yet.
    pub async fn open(io: &RootIo, entry: &SegmentEntry) -> Result<Self> {
        let reader = SegmentReader::open(io, entry).await?;
        let rank = RowRank::new(reader.side());
        let batches = reader.side().batches.len();
        let vectors = (0..batches).map(|_| OnceLock::new()).collect();
        let ids = (0..batches).map(|_| OnceLock::new()).collect();
        Ok(Self { reader, hash: entry.object.hash.0, rank, vectors, ids, sums: OnceLock::new() })
    }

    /// Hash of the segment.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Checked reads.
    pub fn reader(&self) -> &SegmentReader {
        &self.reader
    }

    /// Where its rows lie.
    pub fn side(&self) -> &SegmentSide {
        self.reader.side()
    }

    /// Last row number.
    pub fn last_row(&self) -> u64 {
        self.rank.last()
    }

    /// Position of a row, if the segment has it.
    pub fn position(&self, row: u64) -> Option<u64> {
        self.rank.position(row)
    }

    /// Row numbers of a batch.
    pub fn batch_rows(&self, batch: usize) -> Vec<u64> {
        let start = batch as u64 * u64::from(self.side().rows_per_batch);
        self.rank.rows(start..start + self.side().batch_rows(batch) as u64)
    }

    /// The vectors of a batch, if they are kept in memory.
    pub fn kept(&self, batch: usize) -> Option<&KeptVectors> {
        self.vectors[batch].get()
    }

    /// Keeps the vectors of a batch.
    pub(super) fn keep_vectors(&self, batch: usize, vectors: KeptVectors) {
        let _ = self.vectors[batch].set(vectors);
    }

    /// The ids of a batch, if they are kept in memory.
    pub fn ids(&self, batch: usize) -> Option<&Bytes> {
        self.ids[batch].get().map(|kept| &kept.ids)
    }

    /// Keeps the ids of a batch.
    pub(super) fn keep_ids(&self, batch: usize, ids: KeptIds) {
        let _ = self.ids[batch].set(ids);
    }

    /// Checksums of the parts that were read, if the budget has or had room for them.
    pub(super) fn sums(&self, budget: &Arc<MemoryBudget>) -> Option<&SegmentSums> {
        if self.sums.get().is_none() {
            let bytes = self.side().bytes;
            let reservation = budget.reserve(SegmentSums::memory_for(bytes))?;
            let _ = self.sums.set((SegmentSums::new(bytes), reservation));
        }
        self.sums.get().map(|(sums, _)| sums)
    }

    /// Bytes of memory of the tables.
    pub fn memory(&self) -> usize {
        self.rank.memory() + self.side().page_crcs.len() * 4 + self.vectors.len() * 128
    }

    /// A key for what the cache holds of this segment; `what` tells pages, ids and payloads apart.
    pub(super) fn key(&self, what: u8, offset: u64) -> BlockKey {
        BlockKey { hash: self.hash, offset: offset | u64::from(what) << 56 }
    }

    fn vector(&self, position: u64) -> Option<&[f32]> {
        let (batch, index) = self.side().batch_of(position);
        let kept = self.vectors[batch].get()?;
        let dim = self.side().dim as usize;
        let all: &[f32] = bytemuck::cast_slice(&kept.vectors);
        Some(&all[index * dim..(index + 1) * dim])
    }

    /// Reads into `out` whole parts that hold `range`, checked by their own sums, or by their pages' the first time; where they
    /// begin.
    fn read_part(
        &self,
        file: &AtHand<'_>,
        sums: Option<&SegmentSums>,
        range: &Range<u64>,
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let known = sums.and_then(|sums| Some((sums, sums.cover(range)?)));
        let cover = known.as_ref().map_or_else(|| self.side().page_range(range), |(_, cover)| cover.clone());
        out.resize((cover.end - cover.start) as usize, 0);
        if !file.read(cover.start, out) {
            return None;
        }
        if let Some((sums, _)) = known {
            return sums.check(cover.start, out).then_some(cover.start);
        }
        self.side().check_pages(cover.start, out).ok()?;
        if let Some(sums) = sums {
            sums.note(cover.start, out);
        }
        Some(cover.start)
    }

    /// Starts the load of the cache lines of a row's vector.
    #[inline]
    fn prefetch(&self, position: u64) {
        if let Some(vector) = self.vector(position) {
            pando_kernels::prefetch(vector);
        }
    }
}

/// Memory that a list of loaded vectors keeps for the next search.
const KEPT_FLOATS: usize = 64 << 10;
const KEPT_ROWS: usize = 256;

/// Vectors that were loaded for one search.
#[derive(Debug, Default)]
pub struct RowVectors {
    index: HashMap<u64, u32>,
    data: Vec<f32>,
    dim: usize,
    /// Memory for parts of pages.
    bytes: Vec<u8>,
}

impl RowVectors {
    /// No vectors, of `dim` elements each.
    pub fn new(dim: usize) -> Self {
        Self { dim, ..Self::default() }
    }

    /// Forgets all of them, keeps the memory if it is not much.
    pub fn reset(&mut self, dim: usize) {
        self.index.clear();
        self.data.clear();
        self.data.shrink_to(KEPT_FLOATS);
        self.index.shrink_to(KEPT_ROWS);
        self.dim = dim;
    }

    /// The vector of a row, if it is here.
    pub fn get(&self, row: u64) -> Option<&[f32]> {
        let at = *self.index.get(&row)? as usize;
        Some(&self.data[at * self.dim..(at + 1) * self.dim])
    }

    /// Adds a vector, unless the row has one.
    pub fn insert(&mut self, row: u64, vector: &[f32]) {
        if let Entry::Vacant(vacant) = self.index.entry(row) {
            vacant.insert((self.data.len() / self.dim) as u32);
            self.data.extend_from_slice(vector);
        }
    }

    /// Adds all of `other`.
    pub fn absorb(&mut self, other: &Self) {
        for row in other.index.keys() {
            if let Some(vector) = other.get(*row) {
                self.insert(*row, vector);
            }
        }
    }

    fn insert_bytes(&mut self, row: u64, parts: impl Iterator<Item = Bytes>) -> Result<()> {
        let at = self.data.len();
        self.data.resize(at + self.dim, 0.0);
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut self.data[at..]);
        let mut filled = 0;
        for part in parts {
            let Some(room) = target.get_mut(filled..filled + part.len()) else { break };
            room.copy_from_slice(&part);
            filled += part.len();
        }
        if filled != 4 * self.dim {
            return Err(damaged("segment: a vector does not have its length"));
        }
        self.index.insert(row, (at / self.dim) as u32);
        Ok(())
    }
}

/// Key part of pages in the cache.
const PAGE: u8 = 0;

impl OpenRoot {
    /// Segment and position of a row.
    pub fn locate(&self, row: u64) -> Option<(usize, u64)> {
        let at = self.segments.partition_point(|segment| segment.last_row() < row);
        Some((at, self.segments.get(at)?.position(row)?))
    }

    /// The original vector of a row: kept in memory, or among `loaded`.
    #[inline]
    pub fn vector<'a>(&'a self, row: u64, loaded: &'a RowVectors) -> Option<&'a [f32]> {
        let kept = self.locate(row).and_then(|(segment, position)| self.segments[segment].vector(position));
        kept.or_else(|| loaded.get(row))
    }

    /// Starts the load of a row's vector into the processor's cache, where it is kept in memory.
    #[inline]
    pub fn prefetch(&self, row: u64) {
        if let Some((segment, position)) = self.locate(row) {
            self.segments[segment].prefetch(position);
        }
    }

    /// Copies the vector of a row that is neither kept nor `into` from cached pages, if all of them are there.
    pub fn copy_cached(&self, row: u64, into: &mut RowVectors) -> Result<()> {
        let Some((segment, position)) = self.locate(row) else { return Ok(()) };
        let segment = &self.segments[segment];
        if into.get(row).is_some() || segment.vector(position).is_some() {
            return Ok(());
        }
        let range = segment.side().vector_range(position);
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let mut parts = Vec::with_capacity(2);
        for page in pages {
            match self.env.cache.get(&segment.key(PAGE, page)).as_deref() {
                Some(Block::Bytes(bytes)) => parts.push(cut(bytes, page, &range)),
                _ => return Ok(()),
            }
        }
        into.insert_bytes(row, parts.into_iter())
    }

    /// Copies the vectors of those of `rows` that are neither kept nor `into` from what the operating system has in memory,
    /// checked. Rows that it has not are left out.
    pub fn copy_at_hand<'a>(&'a self, rows: &[u64], files: &mut Files<'a>, into: &mut RowVectors) {
        for &row in rows {
            let Some((at, position)) = self.locate(row) else { continue };
            let segment = &self.segments[at];
            if into.get(row).is_some() || segment.vector(position).is_some() {
                continue;
            }
            let Some(file) = files.segment(at, segment) else { continue };
            let sums = segment.sums(&self.env.resident);
            let range = segment.side().vector_range(position);
            let mut bytes = std::mem::take(&mut into.bytes);
            let start = segment.read_part(file, sums, &range, &mut bytes);
            if let Some(start) = start {
                let from = (range.start - start) as usize;
                let vector = &bytes[from..from + (range.end - range.start) as usize];
                let at = into.data.len();
                into.data.resize(at + into.dim, 0.0);
                bytemuck::cast_slice_mut::<f32, u8>(&mut into.data[at..]).copy_from_slice(vector);
                into.index.insert(row, (at / into.dim) as u32);
            }
            into.bytes = bytes;
        }
    }

    /// Reads the vectors of `rows` (ascending). A row that no segment holds is damage: the index named it.
    pub async fn load_vectors(&self, rows: &[u64]) -> Result<RowVectors> {
        let mut out = RowVectors::new(self.frame().dim());
        let mut by_segment: BTreeMap<usize, Vec<(u64, Range<u64>)>> = BTreeMap::new();
        for row in rows {
            let Some((segment, position)) = self.locate(*row) else {
                return Err(damaged("index: it names a row that no segment holds"));
            };
            match self.segments[segment].vector(position) {
                Some(vector) => out.insert(*row, vector),
                None => {
                    let range = self.segments[segment].side().vector_range(position);
                    by_segment.entry(segment).or_default().push((*row, range));
                }
            }
        }
        for (segment, rows) in by_segment {
            let segment = &self.segments[segment];
            let pages = self.load_pages(segment, rows.iter().map(|(_, range)| range.clone())).await?;
            for (row, range) in rows {
                let wanted = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
                let parts = wanted.map(|page| cut(&pages[&page], page, &range));
                out.insert_bytes(row, parts)?;
            }
        }
        Ok(out)
    }

    /// Pages of a segment that hold these byte ranges, from the cache or read now.
    async fn load_pages(
        &self,
        segment: &SegmentData,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<HashMap<u64, Bytes>> {
        let mut wanted: Vec<u64> =
            ranges.flat_map(|r| r.start / PAGE_BYTES..r.end.div_ceil(PAGE_BYTES)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut pages = HashMap::with_capacity(wanted.len());
        wanted.retain(|page| match self.env.cache.get(&segment.key(PAGE, *page)).as_deref() {
            Some(Block::Bytes(bytes)) => {
                pages.insert(*page, bytes.clone());
                false
            }
            _ => true,
        });
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in wanted {
            match runs.last_mut() {
                Some(run) if page - run.end <= PAGE_GAP && page + 1 - run.start <= PAGES_A_RUN => {
                    run.end = page + 1
                }
                _ => runs.push(page..page + 1),
            }
        }
        if runs.is_empty() {
            return Ok(pages);
        }
        for (run, bytes) in runs.iter().zip(segment.reader.page_runs(&runs).await?) {
            for (page, at) in run.clone().zip((0..bytes.len()).step_by(PAGE_BYTES as usize)) {
                let end = bytes.len().min(at + PAGE_BYTES as usize);
                // A copy of its own, so that a cached page does not keep its whole run alive.
                let part = Bytes::copy_from_slice(&bytes[at..end]);
                self.env.cache.insert(segment.key(PAGE, page), Block::Bytes(part.clone()), part.len());
                pages.insert(page, part);
            }
        }
        Ok(pages)
    }
}

/// The part of a page that lies in `range`.
fn cut(bytes: &Bytes, page: u64, range: &Range<u64>) -> Bytes {
    let start = page * PAGE_BYTES;
    let from = range.start.saturating_sub(start).min(bytes.len() as u64);
    let to = (range.end - start).min(bytes.len() as u64);
    bytes.slice(from as usize..to as usize)
}
