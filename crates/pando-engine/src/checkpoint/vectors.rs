//! Original vectors of rows, from the new rows in memory or from segments, within the budget.

use std::collections::HashMap;
use std::sync::Arc;

use pando_format::{PAGE_BYTES, Rows};
use pando_tree::{TreeError, VectorSource};
use parking_lot::Mutex;
use rayon::prelude::*;

use super::context::Context;
use super::staging::Staged;
use crate::error::{Error, Result};
use crate::rootio::{SegmentReader, SegmentTable, damaged};
use crate::workers::Waiter;

/// Pages this far apart are read in one run.
const GAP_PAGES: u64 = 3;
/// Pages of one request.
const REQUEST_PAGES: u64 = 512;
/// Independent parts of the page cache.
const SHARDS: usize = 16;
/// Rows that one task of a bulk read copies.
const TASK_ROWS: usize = 2048;

type PageKey = (u32, u64);

/// Two generations of pages: what is not used while the younger fills up goes with the older. Near enough to
/// least-recently-used, without a list.
#[derive(Default)]
struct Shard {
    young: HashMap<PageKey, Arc<[u8]>>,
    old: HashMap<PageKey, Arc<[u8]>>,
}

impl Shard {
    fn get(&mut self, key: &PageKey, limit: usize) -> Option<Arc<[u8]>> {
        if let Some(page) = self.young.get(key) {
            return Some(page.clone());
        }
        let page = self.old.remove(key)?;
        self.put(*key, page.clone(), limit);
        Some(page)
    }

    fn put(&mut self, key: PageKey, page: Arc<[u8]>, limit: usize) {
        if self.young.len() >= limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, page);
    }
}

/// Vectors of all rows of the parent root and of the plan. Reads pages from segments, checked, and keeps the recent ones.
pub struct Vectors {
    table: SegmentTable,
    /// First row and records of each body kept in memory, ascending.
    staged: Vec<(u64, Arc<Rows>)>,
    waiter: Waiter,
    dim: usize,
    shards: Vec<Mutex<Shard>>,
    /// Pages of one generation of one shard.
    limit: usize,
}

impl Vectors {
    /// A source over the parent's segments and the staged rows. `memory`: bytes of pages kept.
    pub fn new(ctx: &Context, old: &SegmentTable, staged: &Staged, memory: u64) -> Self {
        let mut table = old.clone();
        let mut bodies = Vec::new();
        match staged {
            Staged::Nothing => {}
            Staged::Memory(kept) => bodies = kept.clone(),
            Staged::Stored(_, reader) => table.push(reader.clone()),
        }
        Self {
            table,
            staged: bodies,
            waiter: ctx.waiter.clone(),
            dim: ctx.dim(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            limit: ((memory / PAGE_BYTES) as usize / (2 * SHARDS)).max(4),
        }
    }

    fn shard(&self, key: &PageKey) -> &Mutex<Shard> {
        &self.shards[(key.1 as usize ^ key.0 as usize) % SHARDS]
    }

    /// The vector of a row kept in memory.
    fn in_memory(&self, row: u64) -> Option<&[f32]> {
        let at = self.staged.partition_point(|(first, _)| *first <= row).checked_sub(1)?;
        let (first, rows) = &self.staged[at];
        let place = (row - first) as usize;
        (place < rows.len()).then(|| rows.vector(place))
    }

    fn read_rows(&self, rows: &[u64], out: &mut [f32]) -> Result<()> {
        // (segment, first byte, place in `out`) of what is not in memory.
        let mut wanted: Vec<(u32, u64, usize)> = Vec::new();
        for (i, &row) in rows.iter().enumerate() {
            if let Some(vector) = self.in_memory(row) {
                out[i * self.dim..(i + 1) * self.dim].copy_from_slice(vector);
                continue;
            }
            let Some((segment, position)) = self.table.locate(row) else {
                return Err(damaged("segment: a row of a leaf is in no segment"));
            };
            let range = self.table.segments()[segment].side().vector_range(position);
            wanted.push((segment as u32, range.start, i));
        }
        wanted.sort_unstable();
        let width = 4 * self.dim as u64;
        // As many at a time as one request may bring.
        let step = (REQUEST_PAGES * PAGE_BYTES / width.max(PAGE_BYTES)).max(1) as usize;
        for part in wanted.chunks(step) {
            for of_one in part.chunk_by(|a, b| a.0 == b.0) {
                self.read_segment(of_one, width, out)?;
            }
        }
        Ok(())
    }

    /// Copies vectors of one segment; `wanted` ascends by offset.
    fn read_segment(&self, wanted: &[(u32, u64, usize)], width: u64, out: &mut [f32]) -> Result<()> {
        let segment = wanted[0].0;
        let mut pages: HashMap<u64, Arc<[u8]>> = HashMap::new();
        let mut missing: Vec<u64> = Vec::new();
        let mut last = None;
        for (_, start, _) in wanted {
            for page in start / PAGE_BYTES..(start + width).div_ceil(PAGE_BYTES) {
                if last.is_some_and(|last| page <= last) {
                    continue;
                }
                last = Some(page);
                let key = (segment, page);
                match self.shard(&key).lock().get(&key, self.limit) {
                    Some(bytes) => {
                        pages.insert(page, bytes);
                    }
                    None => missing.push(page),
                }
            }
        }
        if !missing.is_empty() {
            self.fetch(segment, &missing, &mut pages)?;
        }
        for &(_, start, place) in wanted {
            let out = &mut out[place * self.dim..(place + 1) * self.dim];
            copy(&pages, start, out);
        }
        Ok(())
    }

    /// Reads pages that are not at hand; close ones in one run.
    fn fetch(&self, segment: u32, missing: &[u64], pages: &mut HashMap<u64, Arc<[u8]>>) -> Result<()> {
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for &page in missing {
            match runs.last_mut() {
                Some(run) if page - run.end <= GAP_PAGES && page - run.start < REQUEST_PAGES => {
                    run.end = page + 1
                }
                _ => runs.push(page..page + 1),
            }
        }
        let reader: &SegmentReader = &self.table.segments()[segment as usize];
        let parts = self.waiter.block_on(reader.page_runs(&runs))?;
        for (run, bytes) in runs.into_iter().zip(parts) {
            for (page, bytes) in run.zip(bytes.chunks(PAGE_BYTES as usize)) {
                let bytes: Arc<[u8]> = bytes.into();
                let key = (segment, page);
                self.shard(&key).lock().put(key, bytes.clone(), self.limit);
                pages.insert(page, bytes);
            }
        }
        Ok(())
    }

    /// Vectors of `rows` (ascending), in memory, read by all threads of the pool.
    pub fn load(&self, rows: Vec<u64>) -> Result<Resident> {
        let mut data = vec![0f32; rows.len() * self.dim];
        data.par_chunks_mut(TASK_ROWS * self.dim)
            .zip(rows.par_chunks(TASK_ROWS))
            .try_for_each(|(out, rows)| self.read_rows(rows, out))?;
        Ok(Resident { rows, data, dim: self.dim })
    }
}

/// Copies the little-endian elements that begin at byte `start` out of pages.
fn copy(pages: &HashMap<u64, Arc<[u8]>>, start: u64, out: &mut [f32]) {
    let mut at = start;
    let mut done = 0;
    while done < out.len() {
        // Vectors begin at multiples of 4, so an element never lies across two pages.
        let (page, offset) = (&pages[&(at / PAGE_BYTES)], (at % PAGE_BYTES) as usize);
        let n = ((page.len() - offset) / 4).min(out.len() - done);
        for (x, bytes) in out[done..done + n].iter_mut().zip(page[offset..].as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*bytes);
        }
        done += n;
        at += 4 * n as u64;
    }
}

impl VectorSource for Vectors {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        self.read_rows(rows, out).map_err(TreeError::source)
    }
}

/// Vectors of some rows, all in memory.
pub struct Resident {
    rows: Vec<u64>,
    data: Vec<f32>,
    dim: usize,
}

impl VectorSource for Resident {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(self.dim)) {
            let at = self.rows.binary_search(row);
            let at = at.map_err(|_| TreeError::Invalid(format!("row {row} was not loaded")))?;
            out.copy_from_slice(&self.data[at * self.dim..(at + 1) * self.dim]);
        }
        Ok(())
    }
}

/// The engine's error behind an error of the tree.
pub fn tree_error(error: TreeError) -> Error {
    match error {
        TreeError::Source(source) => match source.downcast::<Error>() {
            Ok(error) => *error,
            Err(other) => Error::internal(format!("reading vectors: {other}")),
        },
        TreeError::Cancelled => super::context::cancelled(),
        TreeError::Invalid(what) => Error::internal(format!("tree: {what}")),
        TreeError::Broken(what) => Error::internal(format!("broken tree: {what}")),
    }
}
