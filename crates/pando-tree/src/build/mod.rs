//! The first build of a tree, and every later one that starts anew.

mod first;
mod sample;

use std::collections::BTreeMap;

use crate::error::TreeError;
use crate::hashing::hash;
use crate::reader::Reader;
use crate::rounds::{State, mark_all};
use crate::routing::band_of;
use crate::space::Space;
use crate::types::{Change, Env, Group, Leaf, NoRows, Stage, Top, Tree, TreeConfig, TreeParams, UNSPLIT};

pub(crate) use sample::target_rows;

/// Whether the next checkpoint builds the tree anew instead of advancing it.
///
/// `live_before` and `live_after` are the live rows of the parent root and of the plan's end.
pub fn should_rebuild(cfg: &TreeConfig, tree: &Tree, live_before: u64, live_after: u64) -> bool {
    if tree.leaves.is_empty() {
        return live_after > 0;
    }
    if tree.params.is_small() {
        return live_after > cfg.small_limit;
    }
    live_after >= live_before.saturating_mul(2) || live_after <= cfg.small_limit / 2
}

/// Builds the tree of `live_rows` (ascending, no duplicates) from nothing.
///
/// One leaf up to `cfg.small_limit` rows; else a k-way partition with passes over all rows, balanced by the same
/// rounds as later checkpoints. Everything in the result is marked as changed.
pub fn build(cfg: &TreeConfig, live_rows: &[u64], env: &Env<'_>) -> Result<Tree, TreeError> {
    validate(cfg, live_rows)?;
    env.pool.install(|| build_here(cfg, live_rows, env))
}

/// Checks arguments that every entry point shares.
pub(crate) fn validate(cfg: &TreeConfig, rows: &[u64]) -> Result<(), TreeError> {
    if cfg.dim == 0 || !(1..=2).contains(&cfg.copies) {
        return Err(TreeError::Invalid(format!("dimension {} or copies {}", cfg.dim, cfg.copies)));
    }
    if rows.windows(2).any(|w| w[0] >= w[1]) || rows.len() > u32::MAX as usize {
        return Err(TreeError::Invalid("rows must be ascending, without duplicates, fewer than 2^32".into()));
    }
    Ok(())
}

fn build_here(cfg: &TreeConfig, rows: &[u64], env: &Env<'_>) -> Result<Tree, TreeError> {
    let mut reader = Reader::new(cfg, env);
    reader.cache_if_small(rows)?;
    env.report(Stage::Sample, 0, rows.len() as u64);
    let (mean, bands) = sample::mean_and_bands(cfg, &reader, rows)?;
    let small = rows.len() as u64 <= cfg.small_limit;
    let params = TreeParams {
        split_size: if small { UNSPLIT } else { sample::split_size(cfg.dim, rows.len()) },
        mean,
        bands: if small { Vec::new() } else { bands },
    };
    let mut tree = Tree {
        params,
        leaves: BTreeMap::new(),
        groups: BTreeMap::new(),
        inners: BTreeMap::new(),
        top: Top { child_level: 1, children: Vec::new() },
        next_id: 0,
        scrub_cursor: 0,
    };
    if !rows.is_empty() {
        grow(cfg, &mut tree, &reader, rows)?;
    }
    let mut state = State::new(cfg, reader, &NoRows, tree);
    state.unplaced = rows.to_vec();
    let leaves: Vec<u64> = state.tree.leaves.keys().copied().collect();
    state.refresh(&leaves)?;
    state.balance()?;
    let (mut tree, _) = state.finish()?;
    mark_all(&mut tree);
    Ok(tree)
}

/// Plants the first leaves and their groups.
fn grow(cfg: &TreeConfig, tree: &mut Tree, reader: &Reader<'_>, rows: &[u64]) -> Result<(), TreeError> {
    let mean = tree.params.mean.clone();
    let space = Space { dim: cfg.dim, metric: cfg.metric, kernels: reader.env.kernels, mean: &mean };
    let target = if tree.params.is_small() { usize::MAX } else { target_rows(tree.params.split_size) };
    for (band, rows) in by_band(&space, &tree.params.bands, reader, rows)?.into_iter().enumerate() {
        if rows.is_empty() {
            continue;
        }
        let k = rows.len().div_ceil(target);
        let seed = hash(&[cfg.seed, 3, band as u64]);
        let first = if k == 1 {
            // The centroid is computed with the other numbers of the leaf.
            first::FirstLeaves { centroids: vec![0f32; cfg.dim], rows: vec![rows], groups: vec![vec![0]] }
        } else {
            first::first_leaves(reader, &space, &rows, k, seed)?
        };
        let base = tree.next_id;
        for (rows, centroid) in first.rows.into_iter().zip(first.centroids.chunks_exact(cfg.dim)) {
            let id = tree.next_id;
            tree.next_id += 1;
            let leaf = Leaf {
                id,
                band: band as u8,
                whole: false,
                centroid: centroid.to_vec(),
                r2: 0.0,
                primaries: rows,
                secondaries: Vec::new(),
                change: Change::Rewritten,
            };
            tree.leaves.insert(id, leaf);
        }
        for group in first.groups {
            let mut leaves: Vec<u64> = group.into_iter().map(|i| base + u64::from(i)).collect();
            leaves.sort_unstable();
            let id = tree.next_id;
            tree.next_id += 1;
            tree.groups.insert(
                id,
                Group { id, leaves, centroid: vec![0f32; cfg.dim], changed: true, recoded: true },
            );
        }
    }
    Ok(())
}

/// Rows of each norm band.
fn by_band(
    space: &Space<'_>,
    thresholds: &[f32],
    reader: &Reader<'_>,
    rows: &[u64],
) -> Result<Vec<Vec<u64>>, TreeError> {
    if thresholds.is_empty() {
        return Ok(vec![rows.to_vec()]);
    }
    let mut out = vec![Vec::new(); thresholds.len() + 1];
    reader.batches(rows, |first, prepared| {
        for (i, x) in prepared.chunks_exact(space.dim).enumerate() {
            out[usize::from(band_of(space, thresholds, x))].push(rows[first + i]);
        }
        Ok(())
    })?;
    Ok(out)
}
