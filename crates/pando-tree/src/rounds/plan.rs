//! The read-only half of a round: which leaves split and how, which merge, which rows would rather be elsewhere.

use pando_kernels::Metric;
use rayon::prelude::*;

use super::state::{State, rows_in_hand};
use crate::build::target_rows;
use crate::cluster::{Clusters, KMeans, MemoryPoints, RowPoints, add, mean_of, members, partition};
use crate::error::TreeError;
use crate::hashing::hash;
use crate::routing::Routing;
use crate::space::{Space, is_zero_radius};

/// Leaves around a split or merged leaf that are looked at.
pub(crate) const NEIGHBOURS: usize = 8;
/// Lloyd iterations of a split.
const ITERATIONS: usize = 12;

/// A part of a split leaf.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Ascending.
    pub rows: Vec<u64>,
    /// Routing vector of its centroid.
    pub vector: Vec<f32>,
}

/// A split, or the finding that the rows cannot be told apart (one part).
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub leaf: u64,
    pub parts: Vec<Part>,
    /// Nearest leaves that are not split themselves.
    pub neighbours: Vec<u64>,
    /// Own rows that are nearer to a neighbour than to their part, and farther from their part than from the old
    /// centroid: (row, part, neighbour).
    pub leaving: Vec<(u64, u32, u64)>,
}

/// A leaf to be dissolved.
#[derive(Clone, Debug)]
pub(crate) struct Merge {
    pub leaf: u64,
    pub rows: Vec<u64>,
    pub neighbours: Vec<u64>,
    /// Squared distance of each row to each neighbour, row-major.
    pub distances: Vec<f32>,
}

/// A row of an old leaf that is nearer to a part of a split leaf: (row, its leaf, place of the split, part).
pub(crate) type Joining = (u64, u64, u32, u32);

/// A move that lost a conflict in an earlier round and still holds: row, from, to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Move {
    pub from: u64,
    pub row: u64,
    pub to: u64,
}

/// Everything a round would like to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Ascending by leaf.
    pub splits: Vec<Split>,
    /// Ascending by leaf.
    pub merges: Vec<Merge>,
    /// Ascending by (leaf, row).
    pub joining: Vec<Joining>,
    /// Ascending.
    pub moves: Vec<Move>,
}

/// Plans a round. `waiting` are the losers of the round before.
pub(crate) fn plan(
    state: &State<'_>,
    routing: &Routing,
    round: u64,
    waiting: &[Move],
) -> Result<Plan, TreeError> {
    let split_size = state.tree.params.split_size as usize;
    let mut over: Vec<u64> = Vec::new();
    let mut under: Vec<u64> = Vec::new();
    for leaf in state.tree.leaves.values() {
        let size = state.size(leaf.id);
        if size > split_size && !leaf.whole {
            over.push(leaf.id);
        } else if size * 4 < split_size {
            under.push(leaf.id);
        }
    }
    // A leaf that does not fit one task's memory is split with all threads, the others side by side.
    let (large, usual): (Vec<u64>, Vec<u64>) =
        over.iter().partition(|&&id| state.size(id) > rows_in_hand(state.cfg.dim));
    let one = |id: &u64| plan_split(state, routing, round, *id, &over);
    let mut splits: Vec<Split> = large.iter().map(one).collect::<Result<_, _>>()?;
    splits.extend(usual.par_iter().map(one).collect::<Result<Vec<_>, _>>()?);
    splits.sort_unstable_by_key(|s| s.leaf);
    let joining = plan_joining(state, routing, &splits)?;
    let merges =
        under.par_iter().map(|&id| plan_merge(state, routing, id, &over)).collect::<Result<_, _>>()?;
    let moves = still_wanted(state, routing, waiting, &over)?;
    Ok(Plan { splits, merges, joining, moves })
}

/// The nearest leaves to a leaf, without itself and those in `except` (ascending).
fn neighbours(routing: &Routing, leaf: u64, except: &[u64]) -> Vec<u64> {
    let Some((band, place)) = routing.place(leaf) else { return Vec::new() };
    let Some(leaves) = routing.band(band) else { return Vec::new() };
    let near = leaves.router.nearest(leaves.router.vector(place), NEIGHBOURS * 3);
    let ids = near.iter().flatten().map(|&(_, place)| leaves.ids[place as usize]);
    ids.filter(|&id| id != leaf && except.binary_search(&id).is_err()).take(NEIGHBOURS).collect()
}

/// Routing vectors of leaves.
fn vectors<'r>(routing: &'r Routing, ids: &[u64]) -> Result<Vec<&'r [f32]>, TreeError> {
    let missing = |id| TreeError::Broken(format!("leaf {id} is not routed"));
    ids.iter().map(|&id| routing.vector(id).ok_or_else(|| missing(id))).collect()
}

/// The nearest of some vectors: (squared distance, place), ties to the first.
pub(crate) fn nearest_of(space: &Space<'_>, x: &[f32], among: &[&[f32]]) -> Option<(f32, usize)> {
    let mut best: Option<(f32, usize)> = None;
    for (i, v) in among.iter().enumerate() {
        let distance = space.kernels.l2(x, v);
        if best.is_none_or(|(b, _)| distance < b) {
            best = Some((distance, i));
        }
    }
    best
}

/// Calls `f(row, routing vector)` for every row, in order.
fn each_row(
    state: &State<'_>,
    space: &Space<'_>,
    rows: &[u64],
    mut f: impl FnMut(u64, &[f32]),
) -> Result<(), TreeError> {
    let d = space.dim;
    let mut u = vec![0f32; d];
    state.reader.batches(rows, |first, prepared| {
        for (i, p) in prepared.chunks_exact(d).enumerate() {
            space.route(p, &mut u);
            f(rows[first + i], &u);
        }
        Ok(())
    })
}

fn plan_split(
    state: &State<'_>,
    routing: &Routing,
    round: u64,
    id: u64,
    over: &[u64],
) -> Result<Split, TreeError> {
    let (space, d) = (state.space(), state.cfg.dim);
    let leaf = state.leaf(id)?;
    let rows = state.alive(&leaf.primaries);
    let k = rows.len().div_ceil(target_rows(state.tree.params.split_size)).max(2);
    let how = KMeans {
        kernels: space.kernels,
        dim: d,
        spherical: space.metric == Metric::Dot,
        iterations: ITERATIONS,
        seed: hash(&[state.cfg.seed, 40, id, round]),
    };
    let mut hand: Vec<f32> = Vec::new();
    let clusters = if rows.len() <= rows_in_hand(d) {
        hand = vec![0f32; rows.len() * d];
        state.reader.read(&rows, &mut hand)?;
        if all_equal(&space, &hand, &leaf.centroid) {
            return Ok(Split { leaf: id, parts: Vec::new(), neighbours: Vec::new(), leaving: Vec::new() });
        }
        hand_clusters(&space, &how, &hand, &leaf.centroid, k)?
    } else {
        let space = Space { mean: &leaf.centroid, ..space };
        let clusters = partition(&RowPoints { reader: &state.reader, rows: &rows, space }, &how, k, true)?;
        if clusters.centroids.len() > d || space.metric != Metric::Dot {
            clusters
        } else {
            let (space, how) = (Space { metric: Metric::L2, ..space }, KMeans { spherical: false, ..how });
            partition(&RowPoints { reader: &state.reader, rows: &rows, space }, &how, k, true)?
        }
    };
    // Means in prepared space, in row order.
    let parts = clusters.centroids.len() / d;
    let mut sums = vec![0f64; parts * d];
    let mut sum_up = |first: usize, prepared: &[f32]| {
        for (i, p) in prepared.chunks_exact(d).enumerate() {
            let part = clusters.assign[first + i] as usize;
            add(&mut sums[part * d..(part + 1) * d], p);
        }
    };
    if hand.is_empty() {
        state.reader.batches(&rows, |first, prepared| {
            sum_up(first, prepared);
            Ok(())
        })?;
    } else {
        sum_up(0, &hand);
    }
    let (starts, order) = members(&clusters.assign, parts);
    let mut out = Vec::with_capacity(parts);
    for part in 0..parts {
        let list = &order[starts[part]..starts[part + 1]];
        let mut mean = vec![0f32; d];
        mean_of(&sums[part * d..(part + 1) * d], list.len(), &mut mean);
        let mut vector = vec![0f32; d];
        space.route(&mean, &mut vector);
        out.push(Part { rows: list.iter().map(|&i| rows[i as usize]).collect(), vector });
    }
    let neighbours = neighbours(routing, id, over);
    let around = vectors(routing, &neighbours)?;
    let old = routing.vector(id).ok_or_else(|| TreeError::Broken(format!("leaf {id} is not routed")))?;
    let mut leaving = Vec::new();
    let mut u = vec![0f32; d];
    let mut judge = |first: usize, prepared: &[f32]| {
        for (i, p) in prepared.chunks_exact(d).enumerate() {
            let part = clusters.assign[first + i];
            space.route(p, &mut u);
            let new = space.kernels.l2(&u, &out[part as usize].vector);
            if new > space.kernels.l2(&u, old)
                && let Some((distance, n)) = nearest_of(&space, &u, &around)
                && distance < new
            {
                leaving.push((rows[first + i], part, neighbours[n]));
            }
        }
    };
    if hand.is_empty() {
        state.reader.batches(&rows, |first, prepared| {
            judge(first, prepared);
            Ok(())
        })?;
    } else {
        judge(0, &hand);
    }
    Ok(Split { leaf: id, parts: out, neighbours, leaving })
}

/// Clusters rows in memory relative to their centroid. Under dot rows of one direction are told apart by length.
fn hand_clusters(
    space: &Space<'_>,
    how: &KMeans,
    prepared: &[f32],
    centroid: &[f32],
    k: usize,
) -> Result<Clusters, TreeError> {
    let d = space.dim;
    let mut local = vec![0f32; prepared.len()];
    space.local(prepared, centroid, &mut local);
    let clusters = partition(&MemoryPoints { points: &local, dim: d }, how, k, true)?;
    if clusters.centroids.len() > d || space.metric != Metric::Dot {
        return Ok(clusters);
    }
    Space { metric: Metric::L2, ..*space }.local(prepared, centroid, &mut local);
    partition(&MemoryPoints { points: &local, dim: d }, &KMeans { spherical: false, ..*how }, k, true)
}

/// Whether all rows equal their mean up to rounding.
fn all_equal(space: &Space<'_>, prepared: &[f32], centroid: &[f32]) -> bool {
    let norm2 = space.kernels.norm2(centroid);
    let first = &prepared[..space.dim];
    prepared.chunks_exact(space.dim).all(|x| is_zero_radius(space.kernels.l2(x, first), norm2))
}

/// SPFresh's second condition: rows of neighbour leaves that are nearer to a new part than to their own centroid and
/// than to the old one of the split leaf. Each leaf's rows are read once, however many splits it borders on.
fn plan_joining(state: &State<'_>, routing: &Routing, splits: &[Split]) -> Result<Vec<Joining>, TreeError> {
    let mut borders: Vec<(u64, u32)> = Vec::new();
    for (i, split) in splits.iter().enumerate().filter(|(_, s)| s.parts.len() > 1) {
        borders.extend(split.neighbours.iter().map(|&n| (n, i as u32)));
    }
    borders.sort_unstable();
    let leaves: Vec<&[(u64, u32)]> = borders.chunk_by(|a, b| a.0 == b.0).collect();
    let found: Vec<Vec<Joining>> = leaves
        .par_iter()
        .map(|list| {
            let space = state.space();
            let id = list[0].0;
            let rows = state.alive(&state.leaf(id)?.primaries);
            let own = vectors(routing, &[id])?[0];
            let ids: Vec<u64> = list.iter().map(|&(_, i)| splits[i as usize].leaf).collect();
            let olds = vectors(routing, &ids)?;
            let parts: Vec<Vec<&[f32]>> = list
                .iter()
                .map(|&(_, i)| splits[i as usize].parts.iter().map(|p| &p.vector[..]).collect())
                .collect();
            let mut joining = Vec::new();
            each_row(state, &space, &rows, |row, u| {
                let mut best = (space.kernels.l2(u, own), None);
                for (j, &(_, split)) in list.iter().enumerate() {
                    if let Some((distance, part)) = nearest_of(&space, u, &parts[j])
                        && distance < best.0
                        && distance < space.kernels.l2(u, olds[j])
                    {
                        best = (distance, Some((split, part as u32)));
                    }
                }
                if let Some((split, part)) = best.1 {
                    joining.push((row, id, split, part));
                }
            })?;
            Ok(joining)
        })
        .collect::<Result<_, TreeError>>()?;
    Ok(found.into_iter().flatten().collect())
}

fn plan_merge(state: &State<'_>, routing: &Routing, id: u64, over: &[u64]) -> Result<Merge, TreeError> {
    let rows = state.alive(&state.leaf(id)?.primaries);
    let room = state.tree.params.split_size as usize * 3 / 4;
    let mut neighbours = neighbours(routing, id, over);
    neighbours.retain(|&n| state.size(n) + rows.len() <= room);
    let around = vectors(routing, &neighbours)?;
    let mut distances = Vec::with_capacity(rows.len() * around.len());
    if !around.is_empty() {
        let space = state.space();
        each_row(state, &space, &rows, |_, u| {
            distances.extend(around.iter().map(|v| space.kernels.l2(u, v)))
        })?;
    }
    Ok(Merge { leaf: id, rows, neighbours, distances })
}

/// Moves of an earlier round that still make sense on the present leaves.
fn still_wanted(
    state: &State<'_>,
    routing: &Routing,
    waiting: &[Move],
    over: &[u64],
) -> Result<Vec<Move>, TreeError> {
    let space = state.space();
    let mut moves: Vec<Move> = Vec::new();
    let mut rows: Vec<u64> = Vec::new();
    for m in waiting {
        let here = state.tree.leaves.get(&m.from).is_some_and(|l| l.primaries.binary_search(&m.row).is_ok());
        let settled = over.binary_search(&m.from).is_err() && over.binary_search(&m.to).is_err();
        if here && settled && state.tree.leaves.contains_key(&m.to) {
            moves.push(*m);
        }
    }
    moves.sort_unstable_by_key(|m| m.row);
    moves.dedup_by_key(|m| m.row);
    rows.extend(moves.iter().map(|m| m.row));
    let mut at = 0;
    let mut keep = Vec::with_capacity(rows.len());
    each_row(state, &space, &rows, |_, u| {
        let m = moves[at];
        at += 1;
        let distance = |id| routing.vector(id).map_or(f32::INFINITY, |v| space.kernels.l2(u, v));
        keep.push(distance(m.to) < distance(m.from));
    })?;
    let mut keep = keep.into_iter();
    moves.retain(|_| keep.next().unwrap_or(false));
    moves.sort_unstable();
    Ok(moves)
}
