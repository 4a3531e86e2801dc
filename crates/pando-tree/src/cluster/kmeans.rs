//! Lloyd's algorithm on points in memory. Sums are f64 in point order per cluster; ties go to the lower cluster.

use pando_kernels::Kernels;
use rayon::prelude::*;
use std::collections::BTreeSet;

use super::Clusters;
use crate::hashing::hash;
use crate::space::direction;

/// Points scored at a time.
const BLOCK: usize = 256;
/// Up to this many clusters start from k-means++ (one pass over the points each), more from random distinct points.
const PLUS_PLUS: usize = 16;

/// How to cluster.
#[derive(Clone, Copy)]
pub(crate) struct KMeans {
    pub kernels: Kernels,
    pub dim: usize,
    /// Centroids are normalised (points are directions).
    pub spherical: bool,
    /// Most Lloyd iterations; fewer when nothing moves any more.
    pub iterations: usize,
    pub seed: u64,
}

/// Clusters `points` (row-major) into at most `k` clusters, fewer when there are fewer distinct points.
pub(crate) fn kmeans(how: &KMeans, points: &[f32], k: usize) -> Clusters {
    let d = how.dim;
    let n = points.len() / d;
    let mut centroids = start(how, points, k.clamp(1, n.max(1)));
    let mut assign = vec![0u32; n];
    if centroids.len() > d {
        let mut before: Vec<u32> = Vec::new();
        for _ in 0..how.iterations {
            assign_nearest(&how.kernels, points, &centroids, d, &mut assign);
            refill(how, points, &centroids, &mut assign);
            if assign == before {
                break;
            }
            before.clone_from(&assign);
            centroids = means(how, points, &mut assign, centroids.len() / d);
        }
        assign_nearest(&how.kernels, points, &centroids, d, &mut assign);
    }
    centroids = means(how, points, &mut assign, centroids.len() / d);
    Clusters { centroids, assign }
}

/// Nearest centroid of every point by |c|^2 - 2<x,c>; ties to the lower one; NaN is never nearest.
pub(crate) fn assign_nearest(k: &Kernels, points: &[f32], centroids: &[f32], d: usize, assign: &mut [u32]) {
    let norms: Vec<f32> = centroids.chunks_exact(d).map(|c| k.norm2(c)).collect();
    assign.par_chunks_mut(BLOCK).zip(points.par_chunks(BLOCK * d)).for_each(|(assign, points)| {
        let mut dots = vec![0f32; assign.len() * norms.len()];
        k.dot_matrix(points, centroids, d, &mut dots);
        for (a, dots) in assign.iter_mut().zip(dots.chunks_exact(norms.len())) {
            let mut best = (f32::INFINITY, 0u32);
            for (j, (dot, n2)) in dots.iter().zip(&norms).enumerate() {
                let score = n2 - 2.0 * dot;
                if score < best.0 {
                    best = (score, j as u32);
                }
            }
            *a = best.1;
        }
    });
}

/// Places of the points of every cluster, in point order.
pub(crate) fn members(assign: &[u32], clusters: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0usize; clusters + 1];
    for &a in assign {
        starts[a as usize + 1] += 1;
    }
    for i in 0..clusters {
        starts[i + 1] += starts[i];
    }
    let mut next = starts.clone();
    let mut order = vec![0u32; assign.len()];
    for (i, &a) in assign.iter().enumerate() {
        order[next[a as usize]] = i as u32;
        next[a as usize] += 1;
    }
    (starts, order)
}

/// Mean of every cluster; drops empty clusters and renumbers.
fn means(how: &KMeans, points: &[f32], assign: &mut [u32], clusters: usize) -> Vec<f32> {
    let d = how.dim;
    let (starts, order) = members(assign, clusters);
    let mut renumber = vec![0u32; clusters];
    let mut kept: Vec<usize> = Vec::with_capacity(clusters);
    for j in 0..clusters {
        if starts[j] < starts[j + 1] {
            renumber[j] = kept.len() as u32;
            kept.push(j);
        }
    }
    let mut centroids = vec![0f32; kept.len() * d];
    centroids.par_chunks_mut(d).zip(&kept).for_each(|(c, &j)| {
        let mut sum = vec![0f64; d];
        let list = &order[starts[j]..starts[j + 1]];
        for &i in list {
            add(&mut sum, &points[i as usize * d..][..d]);
        }
        mean_of(&sum, list.len(), c);
        if how.spherical {
            let mean = c.to_vec();
            direction(&how.kernels, &mean, c);
        }
    });
    if kept.len() < clusters {
        assign.iter_mut().for_each(|a| *a = renumber[*a as usize]);
    }
    centroids
}

/// sum += x.
pub(crate) fn add(sum: &mut [f64], x: &[f32]) {
    for (s, v) in sum.iter_mut().zip(x) {
        *s += f64::from(*v);
    }
}

/// sum / count, rounded once.
pub(crate) fn mean_of(sum: &[f64], count: usize, out: &mut [f32]) {
    let n = count.max(1) as f64;
    for (o, s) in out.iter_mut().zip(sum) {
        *o = (s / n) as f32;
    }
}

/// Gives every empty cluster the point of the largest cluster that is farthest from its centroid.
fn refill(how: &KMeans, points: &[f32], centroids: &[f32], assign: &mut [u32]) {
    let d = how.dim;
    let clusters = centroids.len() / d;
    let mut counts = vec![0usize; clusters];
    assign.iter().for_each(|&a| counts[a as usize] += 1);
    for empty in 0..clusters {
        if counts[empty] > 0 {
            continue;
        }
        let largest = (0..clusters).max_by_key(|&j| (counts[j], std::cmp::Reverse(j))).unwrap_or(0);
        let mut far = (0f32, None);
        for (i, _) in assign.iter().enumerate().filter(|(_, a)| **a as usize == largest) {
            let dist = how.kernels.l2(&points[i * d..][..d], &centroids[largest * d..][..d]);
            if dist > far.0 {
                far = (dist, Some(i));
            }
        }
        let Some(i) = far.1 else { continue };
        assign[i] = empty as u32;
        counts[largest] -= 1;
        counts[empty] += 1;
    }
}

/// First centroids: distinct points.
fn start(how: &KMeans, points: &[f32], k: usize) -> Vec<f32> {
    let d = how.dim;
    let n = points.len() / d;
    if n == 0 || k <= 1 {
        return points[..d.min(points.len())].to_vec();
    }
    if k <= PLUS_PLUS { plus_plus(how, points, k) } else { random_distinct(how, points, k) }
}

fn random_distinct(how: &KMeans, points: &[f32], k: usize) -> Vec<f32> {
    let d = how.dim;
    let order =
        crate::hashing::sample(points.len() / d, points.len() / d, hash(&[how.seed, 1]), |i| i as u64);
    let mut seen: BTreeSet<[u8; 32]> = BTreeSet::new();
    let mut out = Vec::with_capacity(k * d);
    for i in order {
        let x = &points[i as usize * d..][..d];
        if seen.insert(*blake3::hash(bytemuck::cast_slice(x)).as_bytes()) {
            out.extend_from_slice(x);
            if out.len() == k * d {
                break;
            }
        }
    }
    out
}

/// k-means++ (Arthur, Vassilvitskii 2007): each next centroid with probability proportional to the squared distance.
fn plus_plus(how: &KMeans, points: &[f32], k: usize) -> Vec<f32> {
    let d = how.dim;
    let n = points.len() / d;
    let first = (hash(&[how.seed, 2]) % n as u64) as usize;
    let mut out = points[first * d..][..d].to_vec();
    let mut nearest = vec![f32::INFINITY; n];
    let mut dist = vec![0f32; n];
    for round in 1..k {
        let last = out[out.len() - d..].to_vec();
        dist.par_chunks_mut(BLOCK)
            .zip(points.par_chunks(BLOCK * d))
            .for_each(|(dist, points)| how.kernels.l2_rows(&last, points, dist));
        let mut total = 0f64;
        for (m, x) in nearest.iter_mut().zip(&dist) {
            if *x < *m {
                *m = *x;
            }
            total += weight(*m);
        }
        if total <= 0.0 {
            break;
        }
        // 53 random bits as a fraction of the total.
        let target = (hash(&[how.seed, 3, round as u64]) >> 11) as f64 / (1u64 << 53) as f64 * total;
        let (mut sum, mut pick) = (0f64, None);
        for (i, m) in nearest.iter().enumerate() {
            let w = weight(*m);
            sum += w;
            if w > 0.0 {
                pick = Some(i);
                if sum > target {
                    break;
                }
            }
        }
        let Some(i) = pick else { break };
        out.extend_from_slice(&points[i * d..][..d]);
    }
    out
}

/// Distances that overflowed weigh as much as the largest finite one.
fn weight(distance: f32) -> f64 {
    f64::from(distance.min(f32::MAX))
}
