//! A small index without the builder: plain k-means, everything in memory.

use std::sync::Arc;

use pando_kernels::{ExactQuery, Kernels, Metric};

use crate::search::*;
use crate::{EncodedRows, TreeConfig, TreeError, TreeParams, UNSPLIT, VectorSource, encode_leaf};

/// splitmix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in 0..1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// About Gaussian: the sum of twelve uniforms.
    pub fn gauss(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

/// Rows of a Gaussian mixture: centres of unit spread per dimension, clusters of `spread`.
pub fn mixture(rng: &mut Rng, n: usize, dim: usize, clusters: usize, spread: f32) -> Vec<f32> {
    let centres: Vec<f32> = (0..clusters * dim).map(|_| rng.gauss()).collect();
    let mut out = Vec::with_capacity(n * dim);
    for _ in 0..n {
        let c = rng.below(clusters);
        // Cluster sizes and norms differ.
        let c = c * (1 + rng.below(2)) / 2;
        let scale = 0.5 + rng.unit();
        out.extend((0..dim).map(|i| scale * centres[c * dim + i] + spread * rng.gauss()));
    }
    out
}

/// Vectors in memory, row number = place * stride + 5 (so that places and row numbers are never mixed up).
pub struct Vectors {
    pub dim: usize,
    pub data: Vec<f32>,
}

pub const STRIDE: u64 = 3;

pub fn row_number(place: usize) -> u64 {
    place as u64 * STRIDE + 5
}

impl Vectors {
    pub fn len(&self) -> usize {
        self.data.len() / self.dim
    }

    pub fn row(&self, row: u64) -> &[f32] {
        let place = ((row - 5) / STRIDE) as usize;
        &self.data[place * self.dim..(place + 1) * self.dim]
    }
}

impl VectorSource for Vectors {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(self.dim)) {
            out.copy_from_slice(self.row(*row));
        }
        Ok(())
    }
}

pub struct TestLeaf {
    pub centroid: Vec<f32>,
    /// (rows, codes), as if one base slot and one delta slot.
    pub parts: Vec<(Vec<u64>, EncodedRows)>,
}

pub struct Index {
    pub nav: Nav,
    pub metric: Metric,
    pub leaves: Vec<TestLeaf>,
    pub vectors: Vectors,
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub metric: Metric,
    /// Rows a leaf, about.
    pub leaf: usize,
    pub copies: u8,
    pub refine: bool,
    /// Leaves a group.
    pub group: usize,
}

impl Index {
    pub fn build(kernels: Kernels, vectors: Vectors, shape: Shape) -> Index {
        let (n, dim) = (vectors.len(), vectors.dim);
        let mut prepared = vec![0.0; n * dim];
        let plain = Frame::new(kernels, shape.metric, 1, vec![0.0; dim]);
        for (x, out) in vectors.data.chunks_exact(dim).zip(prepared.chunks_exact_mut(dim)) {
            plain.prepare(x, out);
        }
        // As the builder does: no mean under dot.
        let mut mean = vec![0.0; dim];
        if shape.metric != Metric::Dot && n > 0 {
            for x in prepared.chunks_exact(dim) {
                mean.iter_mut().zip(x).for_each(|(m, x)| *m += x / n as f32);
            }
        }
        let frame = Arc::new(Frame::new(kernels, shape.metric, 1, mean.clone()));
        let (centroids, nearest) = cluster(&kernels, &prepared, dim, n.div_ceil(shape.leaf));
        let leaves = centroids.len() / dim;
        let config = TreeConfig {
            dim,
            metric: shape.metric,
            seed: 1,
            copies: shape.copies,
            refine: shape.refine,
            small_limit: 0,
        };
        let params = TreeParams { split_size: UNSPLIT, mean, bands: Vec::new() };
        let mut members = vec![(Vec::new(), Vec::new()); leaves];
        for (place, &(first, second)) in nearest.iter().enumerate() {
            members[first].0.push(row_number(place));
            if let (true, Some(second)) = (shape.copies > 1, second) {
                members[second].1.push(row_number(place));
            }
        }
        let mut built = Vec::new();
        let mut children = Vec::new();
        for (i, (primaries, secondaries)) in members.into_iter().enumerate() {
            let centroid = &centroids[i * dim..(i + 1) * dim];
            let spread = primaries.iter().map(|&row| {
                let place = ((row - 5) / STRIDE) as usize;
                kernels.l2(&prepared[place * dim..(place + 1) * dim], centroid)
            });
            let r2 = spread.sum::<f32>() / primaries.len().max(1) as f32;
            let mut nibbles = vec![0; frame.padded() / 2];
            let constants = encode_nav_child(&frame, centroid, r2, &mut nibbles);
            children.push((nibbles, constants, centroid.to_vec(), r2, primaries.len() as u64));
            // Two parts: the first two thirds and the rest.
            let rows: Vec<u64> = primaries.into_iter().chain(secondaries).collect();
            let cut = rows.len() * 2 / 3;
            let parts = [&rows[..cut], &rows[cut..]].into_iter().filter(|r| !r.is_empty());
            let parts = parts.map(|rows| {
                let codes =
                    encode_leaf(&config, &params, frame.rotation(), &kernels, centroid, rows, &vectors);
                (rows.to_vec(), codes.expect("vectors in memory"))
            });
            built.push(TestLeaf { centroid: centroid.to_vec(), parts: parts.collect() });
        }
        Index { nav: navigation(frame, &children, shape.group), metric: shape.metric, leaves: built, vectors }
    }

    /// The first k rows by (distance, row) that `mask` does not hide, exactly.
    pub fn truth(&self, query: &[f32], k: usize, mask: &dyn Fn(u64) -> bool) -> Vec<u64> {
        let exact = ExactQuery::new(self.nav.frame().kernels(), self.metric, query);
        let all = (0..self.vectors.len()).map(row_number).filter(|&row| !mask(row));
        let mut all: Vec<(f64, u64)> = all.map(|row| (exact.distance(self.vectors.row(row)), row)).collect();
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        all.truncate(k);
        all.into_iter().map(|(_, row)| row).collect()
    }

    /// Runs the state machine as the engine does.
    pub fn search(
        &self,
        searcher: &mut Searcher,
        query: &[f32],
        params: &SearchParams,
        mask: &dyn Fn(u64) -> bool,
    ) -> Vec<u64> {
        searcher.begin(&self.nav, query, params);
        loop {
            if searcher.next_wave(&self.nav).is_empty() {
                break;
            }
            searcher.scan_wave(&self.nav, self, &|row: u64| mask(row));
            if searcher.should_rerank() {
                self.measure(searcher);
            }
        }
        self.measure(searcher);
        self.rank(searcher, query, params.k)
    }

    pub fn measure(&self, searcher: &mut Searcher) {
        let mut distances = Vec::new();
        loop {
            let rows = searcher.next_rerank().to_vec();
            if rows.is_empty() {
                break;
            }
            distances.clear();
            for row in rows {
                distances.push(self.nav.frame().exact(searcher.prepared_query(), self.vectors.row(row)));
            }
            searcher.feed_rerank(&distances);
        }
    }

    /// The final ranking in f64.
    pub fn rank(&self, searcher: &mut Searcher, query: &[f32], k: usize) -> Vec<u64> {
        let exact = ExactQuery::new(self.nav.frame().kernels(), self.metric, query);
        let hits = searcher.finish().iter();
        let mut hits: Vec<(f64, u64)> =
            hits.map(|h| (exact.distance(self.vectors.row(h.row)), h.row)).collect();
        hits.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        hits.truncate(k);
        hits.into_iter().map(|(_, row)| row).collect()
    }
}

impl LeafSource for Index {
    fn centroid(&self, leaf: u32) -> &[f32] {
        &self.leaves[leaf as usize].centroid
    }

    fn parts(&self, leaf: u32) -> usize {
        self.leaves[leaf as usize].parts.len()
    }

    fn part(&self, leaf: u32, part: usize) -> LeafPart<'_> {
        let (rows, codes) = &self.leaves[leaf as usize].parts[part];
        leaf_part(rows, codes)
    }
}

pub fn leaf_part<'a>(rows: &'a [u64], codes: &'a EncodedRows) -> LeafPart<'a> {
    LeafPart {
        rows,
        packed: &codes.packed,
        f_add: &codes.f_add,
        f_rescale: &codes.f_rescale,
        norm: &codes.norm,
        refine: codes.refine.as_ref().map(|r| RefinePart {
            nibbles: &r.nibbles,
            f_add: &r.f_add,
            f_rescale: &r.f_rescale,
            f_error: &r.f_error,
        }),
        away: None,
    }
}

impl CalibrationSource for Index {
    fn with_leaves(&self, _: &[u32], f: &mut dyn FnMut(&dyn LeafSource)) -> Result<(), TreeError> {
        f(self);
        Ok(())
    }
}

/// k-means from every (n / k)-th row, a few passes: centroids, and for each row its nearest and second leaf.
fn cluster(kernels: &Kernels, rows: &[f32], dim: usize, k: usize) -> (Vec<f32>, Vec<(usize, Option<usize>)>) {
    let n = rows.len() / dim;
    let mut centroids: Vec<f32> =
        (0..k).flat_map(|i| rows[i * n / k * dim..(i * n / k + 1) * dim].to_vec()).collect();
    let mut nearest = vec![(0, None); n];
    for _ in 0..4 {
        for (x, near) in rows.chunks_exact(dim).zip(nearest.iter_mut()) {
            let distances: Vec<f32> = centroids.chunks_exact(dim).map(|c| kernels.l2(x, c)).collect();
            let first = (0..k).min_by(|&a, &b| distances[a].total_cmp(&distances[b])).expect("k > 0");
            let second =
                (0..k).filter(|&i| i != first).min_by(|&a, &b| distances[a].total_cmp(&distances[b]));
            *near = (first, second);
        }
        let mut sums = vec![0.0; k * dim];
        let mut counts = vec![0usize; k];
        for (x, near) in rows.chunks_exact(dim).zip(&nearest) {
            sums[near.0 * dim..(near.0 + 1) * dim].iter_mut().zip(x).for_each(|(s, x)| *s += x);
            counts[near.0] += 1;
        }
        for i in 0..k {
            if counts[i] > 0 {
                for j in i * dim..(i + 1) * dim {
                    centroids[j] = sums[j] / counts[i] as f32;
                }
            }
        }
    }
    (centroids, nearest)
}

type Child = (Vec<u8>, NavConstants, Vec<f32>, f32, u64);

/// Two levels: groups of `group` leaves in the order given.
fn navigation(frame: Arc<Frame>, leaves: &[Child], group: usize) -> Nav {
    let mut builder = NavBuilder::new(frame.clone());
    let groups: Vec<&[Child]> = leaves.chunks(group).collect();
    let mut tops = Vec::new();
    for group in &groups {
        let mut centroid = vec![0.0; frame.dim()];
        for child in *group {
            centroid.iter_mut().zip(&child.2).for_each(|(c, x)| *c += x / group.len() as f32);
        }
        let r2 = inner_r2(&frame, &centroid, group.iter().map(|c| (&c.2[..], c.3, c.4)));
        let mut nibbles = vec![0; frame.padded() / 2];
        let constants = encode_nav_child(&frame, &centroid, r2, &mut nibbles);
        tops.push((nibbles, constants, centroid, r2, 0));
    }
    if !groups.is_empty() {
        push(&mut builder, 0, &tops);
    }
    for group in groups {
        push(&mut builder, 1, group);
    }
    builder.finish().expect("whole")
}

fn push(builder: &mut NavBuilder, level: usize, children: &[Child]) {
    let nibbles: Vec<u8> = children.iter().flat_map(|c| c.0.clone()).collect();
    let column = |f: fn(&NavConstants) -> f32| -> Vec<f32> { children.iter().map(|c| f(&c.1)).collect() };
    builder
        .push_node(level, &nibbles, &column(|c| c.scale), &column(|c| c.add), &column(|c| c.r2))
        .expect("fits");
}
