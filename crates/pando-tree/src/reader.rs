//! Reads prepared vectors of rows within the memory budget. What it returns never depends on the budget.

use pando_kernels::Metric;
use rayon::prelude::*;

use crate::error::TreeError;
use crate::space::Space;
use crate::types::{Env, TreeConfig};

/// Rows per call of the vector source and per task: small enough to spread over threads.
const READ_ROWS: usize = 256;

/// Rows that one task works on: 4 MiB of f32, at least 64 rows, at most 1,024. Results do not depend on it.
pub(crate) fn block_rows(dim: usize) -> usize {
    ((1usize << 20) / dim).clamp(64, 1024)
}

/// Everything of a set of rows, in memory.
struct Cache {
    rows: Vec<u64>,
    data: Vec<f32>,
}

/// Source of prepared vectors.
pub(crate) struct Reader<'a> {
    pub env: &'a Env<'a>,
    dim: usize,
    metric: Metric,
    cache: Option<Cache>,
}

impl<'a> Reader<'a> {
    pub fn new(cfg: &TreeConfig, env: &'a Env<'a>) -> Self {
        Self { env, dim: cfg.dim, metric: cfg.metric, cache: None }
    }

    /// Keeps all vectors of `rows` (ascending) when they take at most half of the budget.
    pub fn cache_if_small(&mut self, rows: &[u64]) -> Result<(), TreeError> {
        let bytes = rows.len().saturating_mul(self.dim * 4 + 8);
        if bytes <= self.env.memory / 2 {
            let mut data = vec![0f32; rows.len() * self.dim];
            self.read(rows, &mut data)?;
            self.cache = Some(Cache { rows: rows.to_vec(), data });
        }
        Ok(())
    }

    fn prepare(&self, rows: &mut [f32]) {
        Space { dim: self.dim, metric: self.metric, kernels: self.env.kernels, mean: &[] }.prepare(rows);
    }

    /// Prepared vectors of `rows`, in their order.
    pub fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        self.env.check_cancel()?;
        let d = self.dim;
        if rows.len() <= READ_ROWS {
            return self.read_some(rows, out);
        }
        out.par_chunks_mut(READ_ROWS * d)
            .zip(rows.par_chunks(READ_ROWS))
            .try_for_each(|(out, rows)| self.read_some(rows, out))
    }

    fn read_some(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        let d = self.dim;
        if let Some(cache) = &self.cache {
            for (row, x) in rows.iter().zip(out.chunks_exact_mut(d)) {
                let Some(at) = place(&cache.rows, *row) else {
                    return Err(TreeError::Invalid(format!("row {row} is not among the rows of this build")));
                };
                x.copy_from_slice(&cache.data[at * d..(at + 1) * d]);
            }
            return Ok(());
        }
        self.env.vectors.read(rows, out)?;
        self.prepare(out);
        Ok(())
    }

    /// Calls `f(first place, prepared vectors)` for consecutive runs of `rows` (ascending) that fit the budget.
    pub fn batches(
        &self,
        rows: &[u64],
        mut f: impl FnMut(usize, &[f32]) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let d = self.dim;
        if rows.is_empty() {
            return Ok(());
        }
        if let Some(cache) = &self.cache {
            let first = place(&cache.rows, rows[0]);
            let last = place(&cache.rows, rows[rows.len() - 1]);
            if let (Some(first), Some(last)) = (first, last)
                && last - first + 1 == rows.len()
            {
                return f(0, &cache.data[first * d..(last + 1) * d]);
            }
        }
        let step = (self.env.memory / 8 / (d * 4)).clamp(block_rows(d), 1 << 20);
        let mut buffer = vec![0f32; step.min(rows.len()) * d];
        for (i, part) in rows.chunks(step).enumerate() {
            let buffer = &mut buffer[..part.len() * d];
            self.read(part, buffer)?;
            f(i * step, buffer)?;
        }
        Ok(())
    }
}

/// Place of `row` in an ascending list; immediate when the list has no holes.
fn place(rows: &[u64], row: u64) -> Option<usize> {
    let first = *rows.first()?;
    let guess = row.checked_sub(first)? as usize;
    if rows.get(guess) == Some(&row) { Some(guess) } else { rows.binary_search(&row).ok() }
}
