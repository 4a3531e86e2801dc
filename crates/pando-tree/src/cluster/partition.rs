//! k-way partition of many points: k-means on a sample, in two levels when k is large.
//!
//! Sample sizes depend on the dimension and on k alone, never on the memory budget.

use rayon::prelude::*;

use super::Clusters;
use super::kmeans::{KMeans, assign_nearest, kmeans, members};
use crate::error::TreeError;
use crate::hashing::{hash, sample};
use crate::reader::{Reader, block_rows};
use crate::space::Space;

/// Up to this many clusters are found by one k-means.
const FLAT: usize = 64;
/// Sample points per cluster of the upper level, at most.
const TOP_SHARE: usize = 512;
/// Sample points per cluster of the lower level, at most.
const SUB_SHARE: usize = 64;

/// Most points sampled at once: 64 MiB of f32, at least 2,048 points, at most 65,536.
pub(crate) fn sample_rows(dim: usize) -> usize {
    ((1usize << 24) / dim).clamp(2048, 65_536)
}

/// Points in routing space that are fetched as needed.
pub(crate) trait Points: Sync {
    /// Number of points.
    fn len(&self) -> usize;
    /// What names point `i` in the seeded hash of a sample.
    fn key(&self, i: usize) -> u64;
    /// The points at the given places, row-major.
    fn fetch(&self, places: &[u32], out: &mut [f32]) -> Result<(), TreeError>;
    /// Nearest centroid of every point.
    fn assign(&self, how: &KMeans, centroids: &[f32], assign: &mut [u32]) -> Result<(), TreeError>;
}

/// Points in memory.
pub(crate) struct MemoryPoints<'a> {
    pub points: &'a [f32],
    pub dim: usize,
}

impl Points for MemoryPoints<'_> {
    fn len(&self) -> usize {
        self.points.len() / self.dim
    }
    fn key(&self, i: usize) -> u64 {
        i as u64
    }
    fn fetch(&self, places: &[u32], out: &mut [f32]) -> Result<(), TreeError> {
        for (&i, x) in places.iter().zip(out.chunks_exact_mut(self.dim)) {
            x.copy_from_slice(&self.points[i as usize * self.dim..][..self.dim]);
        }
        Ok(())
    }
    fn assign(&self, how: &KMeans, centroids: &[f32], assign: &mut [u32]) -> Result<(), TreeError> {
        assign_nearest(&how.kernels, self.points, centroids, self.dim, assign);
        Ok(())
    }
}

/// Rows behind a reader, relative to `space.mean`.
pub(crate) struct RowPoints<'a> {
    pub reader: &'a Reader<'a>,
    pub rows: &'a [u64],
    pub space: Space<'a>,
}

impl Points for RowPoints<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }
    fn key(&self, i: usize) -> u64 {
        self.rows[i]
    }
    fn fetch(&self, places: &[u32], out: &mut [f32]) -> Result<(), TreeError> {
        let rows: Vec<u64> = places.iter().map(|&i| self.rows[i as usize]).collect();
        let mut prepared = vec![0f32; out.len()];
        self.reader.read(&rows, &mut prepared)?;
        self.space.route(&prepared, out);
        Ok(())
    }
    fn assign(&self, how: &KMeans, centroids: &[f32], assign: &mut [u32]) -> Result<(), TreeError> {
        let d = self.space.dim;
        let block = block_rows(d);
        self.reader.batches(self.rows, |first, prepared| {
            let assign = &mut assign[first..first + prepared.len() / d];
            assign.par_chunks_mut(block).zip(prepared.par_chunks(block * d)).for_each(
                |(assign, prepared)| {
                    let mut points = vec![0f32; prepared.len()];
                    self.space.route(prepared, &mut points);
                    assign_nearest(&how.kernels, &points, centroids, d, assign);
                },
            );
            Ok(())
        })
    }
}

/// Sampled places in ascending order (so that they are read in order).
fn sampled(points: &dyn Points, count: usize, seed: u64) -> Vec<u32> {
    let mut places = sample(points.len(), count, seed, |i| points.key(i));
    places.sort_unstable();
    places
}

/// Splits `points` into about `k` clusters. Every point goes to the nearest centroid of its upper cluster; with
/// `assign` false only the centroids are found and `Clusters::assign` stays empty.
pub(crate) fn partition(
    points: &dyn Points,
    how: &KMeans,
    k: usize,
    assign: bool,
) -> Result<Clusters, TreeError> {
    let n = points.len();
    if n == 0 {
        return Ok(Clusters::default());
    }
    if k <= FLAT { flat(points, how, k, assign) } else { two_levels(points, how, k, assign) }
}

fn flat(points: &dyn Points, how: &KMeans, k: usize, assign: bool) -> Result<Clusters, TreeError> {
    let (n, d) = (points.len(), how.dim);
    let places = sampled(points, sample_rows(d).min(k * TOP_SHARE).max(2048), hash(&[how.seed, 10]));
    let mut data = vec![0f32; places.len() * d];
    points.fetch(&places, &mut data)?;
    let mut clusters = kmeans(how, &data, k);
    if places.len() < n {
        clusters.assign = vec![0u32; if assign { n } else { 0 }];
        if assign {
            points.assign(how, &clusters.centroids, &mut clusters.assign)?;
            drop_empty(&mut clusters, d);
        }
    } else if !assign {
        clusters.assign = Vec::new();
    }
    Ok(clusters)
}

fn two_levels(points: &dyn Points, how: &KMeans, k: usize, assign: bool) -> Result<Clusters, TreeError> {
    let (n, d) = (points.len(), how.dim);
    let tops = (k as f64).sqrt().ceil() as usize;
    let places = sampled(points, sample_rows(d).min(tops * TOP_SHARE), hash(&[how.seed, 11]));
    let mut data = vec![0f32; places.len() * d];
    points.fetch(&places, &mut data)?;
    let top = kmeans(how, &data, tops);
    drop(data);
    let mut top_of = vec![0u32; n];
    points.assign(how, &top.centroids, &mut top_of)?;
    let tops = top.centroids.len() / d;
    let (starts, order) = members(&top_of, tops);
    drop(top_of);
    let parts: Vec<Clusters> = (0..tops)
        .into_par_iter()
        .map(|t| sub_clusters(points, how, &order[starts[t]..starts[t + 1]], t, k, assign))
        .collect::<Result<_, _>>()?;
    let mut out = Clusters { centroids: Vec::new(), assign: vec![0u32; if assign { n } else { 0 }] };
    for (t, part) in parts.into_iter().enumerate() {
        let base = (out.centroids.len() / d) as u32;
        for (&i, &a) in order[starts[t]..starts[t + 1]].iter().zip(&part.assign) {
            out.assign[i as usize] = base + a;
        }
        out.centroids.extend(part.centroids);
    }
    Ok(out)
}

/// Clusters the points of one upper cluster into their share of the `k`.
fn sub_clusters(
    points: &dyn Points,
    how: &KMeans,
    places: &[u32],
    t: usize,
    k: usize,
    assign: bool,
) -> Result<Clusters, TreeError> {
    let (n, m, d) = (points.len(), places.len(), how.dim);
    if m == 0 {
        return Ok(Clusters::default());
    }
    let k = ((m as u128 * k as u128 + n as u128 / 2) / n as u128).max(1) as usize;
    let how = KMeans { seed: hash(&[how.seed, 12, t as u64]), ..*how };
    let count = sample_rows(d).min(k * SUB_SHARE).max(256);
    let mut chosen: Vec<u32> = sample(m, count, how.seed, |i| points.key(places[i] as usize))
        .iter()
        .map(|&i| places[i as usize])
        .collect();
    chosen.sort_unstable();
    let mut data = vec![0f32; chosen.len() * d];
    points.fetch(&chosen, &mut data)?;
    let mut clusters = kmeans(&how, &data, k);
    if !assign {
        clusters.assign = Vec::new();
    } else if chosen.len() < m {
        clusters.assign = vec![0u32; m];
        for (assign, places) in clusters.assign.chunks_mut(count).zip(places.chunks(count)) {
            let data = &mut data[..places.len() * d];
            points.fetch(places, data)?;
            assign_nearest(&how.kernels, data, &clusters.centroids, d, assign);
        }
        drop_empty(&mut clusters, d);
    }
    Ok(clusters)
}

/// Removes clusters without points (a centroid of a sample may be nearest to no point).
pub(crate) fn drop_empty(clusters: &mut Clusters, d: usize) {
    let k = clusters.centroids.len() / d;
    let mut used = vec![false; k];
    clusters.assign.iter().for_each(|&a| used[a as usize] = true);
    if used.iter().all(|&u| u) {
        return;
    }
    let mut renumber = vec![0u32; k];
    let mut centroids = Vec::with_capacity(clusters.centroids.len());
    for (j, c) in clusters.centroids.chunks_exact(d).enumerate().filter(|(j, _)| used[*j]) {
        renumber[j] = (centroids.len() / d) as u32;
        centroids.extend_from_slice(c);
    }
    clusters.centroids = centroids;
    clusters.assign.iter_mut().for_each(|a| *a = renumber[*a as usize]);
}
