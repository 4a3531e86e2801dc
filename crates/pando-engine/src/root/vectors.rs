//! Vectors of root rows: whole batches kept in memory while the budget has room, else checked pages through the block
//! cache.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use pando_format::{AlignedBytes, PAGE_BYTES, SegmentEntry, SegmentSide};
use pando_store::BlockKey;

use super::OpenRoot;
use super::rank::RowRank;
use crate::arena::Arena;
use crate::block::Block;
use crate::environment::Reservation;
use crate::error::Result;
use crate::rootio::{RootIo, SegmentReader, damaged};

/// Pages of one segment read with one request at most.
const PAGES_A_RUN: u64 = 64;
/// Missing pages are read together with neighbours that are so many pages away at most.
const PAGE_GAP: u64 = 2;

/// Vectors and ids of a batch that stay in memory.
#[derive(Debug)]
pub struct KeptBatch {
    /// Row-major, original.
    pub vectors: AlignedBytes,
    /// As [`SegmentSide::ids_range`].
    pub ids: Bytes,
    _reservation: Reservation,
}

/// A segment of an open root; shared by the roots that have it.
#[derive(Debug)]
pub struct SegmentData {
    reader: SegmentReader,
    hash: [u8; 32],
    rank: RowRank,
    batches: Vec<OnceLock<KeptBatch>>,
}

impl SegmentData {
    /// Opens a segment; nothing of its rows is loaded yet.
    pub async fn open(io: &RootIo, entry: &SegmentEntry) -> Result<Self> {
        let reader = SegmentReader::open(io, entry).await?;
        let rank = RowRank::new(reader.side());
        let batches = (0..reader.side().batches.len()).map(|_| OnceLock::new()).collect();
        Ok(Self { reader, hash: entry.object.hash.0, rank, batches })
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

    /// A batch in memory, if it is kept.
    pub fn kept(&self, batch: usize) -> Option<&KeptBatch> {
        self.batches[batch].get()
    }

    /// Bytes of memory of the tables.
    pub fn memory(&self) -> usize {
        self.rank.memory() + self.side().page_crcs.len() * 4 + self.batches.len() * 64
    }

    /// A key for what the cache holds of this segment; `what` tells pages, ids and payloads apart.
    pub(super) fn key(&self, what: u8, offset: u64) -> BlockKey {
        BlockKey { hash: self.hash, offset: offset | u64::from(what) << 56 }
    }

    fn vector(&self, position: u64) -> Option<&[f32]> {
        let (batch, index) = self.side().batch_of(position);
        let kept = self.batches[batch].get()?;
        let dim = self.side().dim as usize;
        let all: &[f32] = bytemuck::cast_slice(&kept.vectors);
        Some(&all[index * dim..(index + 1) * dim])
    }

    /// Starts the load of the cache lines of a row's vector.
    #[inline]
    fn prefetch(&self, position: u64) {
        if let Some(vector) = self.vector(position) {
            pando_kernels::prefetch(vector);
        }
    }
}

/// Vectors that were loaded for one search.
#[derive(Debug, Default)]
pub struct RowVectors {
    index: HashMap<u64, u32>,
    data: Vec<f32>,
    dim: usize,
}

impl RowVectors {
    /// No vectors, of `dim` elements each.
    pub fn new(dim: usize) -> Self {
        Self { dim, ..Self::default() }
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

    /// Copies a row's vector from cached pages, if all of them are there.
    pub fn copy_cached(&self, row: u64, into: &mut RowVectors) -> Result<bool> {
        let Some((segment, position)) = self.locate(row) else { return Ok(false) };
        let segment = &self.segments[segment];
        let range = segment.side().vector_range(position);
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let mut parts = Vec::with_capacity(2);
        for page in pages {
            match self.env.cache.get(&segment.key(PAGE, page)).as_deref() {
                Some(Block::Bytes(bytes)) => parts.push(cut(bytes, page, &range)),
                _ => return Ok(false),
            }
        }
        into.insert_bytes(row, parts.into_iter())?;
        Ok(true)
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

    /// Loads a batch's vectors and ids to stay, if the budget has room. `false`: it has not.
    pub(crate) async fn keep_batch(&self, segment: usize, batch: usize) -> Result<bool> {
        let segment = &self.segments[segment];
        if segment.batches[batch].get().is_some() {
            return Ok(true);
        }
        let (vectors, ids) = (segment.side().vectors_range(batch), segment.side().ids_range(batch));
        let bytes = vectors.end - vectors.start + ids.end - ids.start;
        let Some(reservation) = self.env.resident.reserve(bytes) else { return Ok(false) };
        let read = segment.reader.range(vectors.start..ids.end).await?;
        let at = |offset: u64| (offset - vectors.start) as usize;
        let kept = KeptBatch {
            vectors: Arena::aligned(Some(&self.env.arena), &read[..at(vectors.end)]),
            ids: Bytes::copy_from_slice(&read[at(ids.start)..at(ids.end)]),
            _reservation: reservation,
        };
        let _ = segment.batches[batch].set(kept);
        Ok(true)
    }
}

/// The part of a page that lies in `range`.
fn cut(bytes: &Bytes, page: u64, range: &Range<u64>) -> Bytes {
    let start = page * PAGE_BYTES;
    let from = range.start.saturating_sub(start).min(bytes.len() as u64);
    let to = (range.end - start).min(bytes.len() as u64);
    bytes.slice(from as usize..to as usize)
}
