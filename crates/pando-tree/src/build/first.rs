//! First leaves of one band: k-way partition of a sample, then passes of every row to its nearest centroid.

use pando_kernels::Metric;
use rayon::prelude::*;

use crate::cluster::{KMeans, RowPoints, add, mean_of, members, partition};
use crate::error::TreeError;
use crate::hashing::hash;
use crate::nodes::{Children, GROUP, one_per_band, regroup};
use crate::reader::{Reader, block_rows};
use crate::route::Router;
use crate::space::Space;
use crate::types::Stage;

/// Lloyd iterations on samples.
const ITERATIONS: usize = 10;
/// Passes of all rows to their nearest centroid, centroids refreshed after each.
const PASSES: usize = 2;
/// Candidates by dot product that are compared exactly.
const EXACT: usize = 4;

/// Leaves before they have ids: centroids (prepared space, row-major), rows of each, and groups of them.
pub(crate) struct FirstLeaves {
    pub centroids: Vec<f32>,
    pub rows: Vec<Vec<u64>>,
    pub groups: Vec<Vec<u32>>,
}

/// Clusters `rows` (ascending) into about `k` leaves.
pub(crate) fn first_leaves(
    reader: &Reader<'_>,
    space: &Space<'_>,
    rows: &[u64],
    k: usize,
    seed: u64,
) -> Result<FirstLeaves, TreeError> {
    let d = space.dim;
    let spherical = space.metric == Metric::Dot;
    let how =
        KMeans { kernels: space.kernels, dim: d, spherical, iterations: ITERATIONS, seed: hash(&[seed, 2]) };
    reader.env.report(Stage::Cluster, 0, rows.len() as u64);
    let points = RowPoints { reader, rows, space: *space };
    let mut vectors = partition(&points, &how, k, false)?.centroids;
    let mut groups = group(&how, &vectors)?;
    let mut centroids = Vec::new();
    let mut assign = Vec::new();
    for _ in 0..PASSES {
        let router = Router::new(&how, &vectors, &groups)?;
        let sums;
        (assign, sums) = pass(reader, space, rows, &router, vectors.len() / d)?;
        // Centroids that no row is nearest to go.
        let (starts, _) = members(&assign, vectors.len() / d);
        let mut renumber = vec![u32::MAX; vectors.len() / d];
        centroids = Vec::with_capacity(vectors.len());
        for j in (0..renumber.len()).filter(|&j| starts[j] < starts[j + 1]) {
            renumber[j] = (centroids.len() / d) as u32;
            let at = centroids.len();
            centroids.resize(at + d, 0f32);
            mean_of(&sums[j * d..(j + 1) * d], starts[j + 1] - starts[j], &mut centroids[at..]);
        }
        assign.iter_mut().for_each(|a| *a = renumber[*a as usize]);
        for group in &mut groups {
            group.retain(|&j| renumber[j as usize] != u32::MAX);
            group.iter_mut().for_each(|j| *j = renumber[*j as usize]);
        }
        groups.retain(|g| !g.is_empty());
        vectors = vec![0f32; centroids.len()];
        space.route(&centroids, &mut vectors);
    }
    let (starts, order) = members(&assign, centroids.len() / d);
    let lists =
        starts.windows(2).map(|w| order[w[0]..w[1]].iter().map(|&i| rows[i as usize]).collect()).collect();
    Ok(FirstLeaves { centroids, rows: lists, groups })
}

fn group(how: &KMeans, vectors: &[f32]) -> Result<Vec<Vec<u32>>, TreeError> {
    let bands = vec![0u8; vectors.len() / how.dim];
    let children = Children { vectors, bands: &bands };
    Ok(regroup(how, &children, one_per_band(&bands), GROUP)?.into_iter().map(|n| n.members).collect())
}

/// Sends every row to its nearest centroid; returns the assignment and the sums of prepared vectors, added in row
/// order whatever the batches are.
fn pass(
    reader: &Reader<'_>,
    space: &Space<'_>,
    rows: &[u64],
    router: &Router,
    leaves: usize,
) -> Result<(Vec<u32>, Vec<f64>), TreeError> {
    let d = space.dim;
    let block = block_rows(d);
    let mut assign = vec![0u32; rows.len()];
    let mut sums = vec![0f64; leaves * d];
    reader.batches(rows, |first, prepared| {
        let assign = &mut assign[first..first + prepared.len() / d];
        assign.par_chunks_mut(block).zip(prepared.par_chunks(block * d)).try_for_each(
            |(assign, prepared)| {
                reader.env.check_cancel()?;
                let mut points = vec![0f32; prepared.len()];
                space.route(prepared, &mut points);
                for (a, nearest) in assign.iter_mut().zip(router.nearest(&points, EXACT)) {
                    *a = nearest.first().map_or(0, |&(_, place)| router.item(place));
                }
                Ok::<(), TreeError>(())
            },
        )?;
        let (starts, order) = members(assign, leaves);
        sums.par_chunks_mut(d).enumerate().for_each(|(leaf, sum)| {
            for &i in &order[starts[leaf]..starts[leaf + 1]] {
                add(sum, &prepared[i as usize * d..][..d]);
            }
        });
        reader.env.report(Stage::Route, (first + assign.len()) as u64, rows.len() as u64);
        Ok(())
    })?;
    Ok((assign, sums))
}
