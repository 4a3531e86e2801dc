//! Finds the nearest leaves of many vectors at once: wide beams over inner nodes, blocked f32 dot products.
//!
//! Every vector's answer depends on that vector and the router alone; how vectors are grouped into blocks does not
//! matter.

use pando_kernels::Kernels;

use crate::cluster::KMeans;
use crate::error::TreeError;
use crate::nodes::{Children, INNER, center, one_per_band, regroup};

/// Nodes kept per level above the leaves.
pub(crate) const BEAM: usize = 16;
/// Up to this many groups are all scored; more are reached through nodes of groups.
const FLAT_GROUPS: usize = 512;
/// A candidate: (score or distance, place among the leaves of the router).
pub(crate) type Candidate = (f32, u32);

/// Centroids of one level in routing space; children of node i are `starts[i]..starts[i + 1]` of the next level.
#[derive(Clone, Debug, Default)]
struct Level {
    vectors: Vec<f32>,
    norms: Vec<f32>,
    starts: Vec<u32>,
}

impl Level {
    fn new(k: &Kernels, dim: usize, vectors: Vec<f32>, starts: Vec<u32>) -> Self {
        let norms = vectors.chunks_exact(dim).map(|v| k.norm2(v)).collect();
        Self { vectors, norms, starts }
    }
}

/// Levels from the top down; the last one holds the leaves.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    kernels: Kernels,
    dim: usize,
    levels: Vec<Level>,
    /// Item at each place of the last level.
    order: Vec<u32>,
}

/// The `keep` smallest candidates seen so far, ascending by (score, place).
#[derive(Clone, Debug, Default)]
struct Best {
    keep: usize,
    list: Vec<Candidate>,
}

impl Best {
    fn offer(&mut self, score: f32, place: u32) {
        // Only overflow can make a NaN; its sign differs between machines, so it must not be compared.
        let score = if score.is_nan() { f32::INFINITY } else { score };
        if self.list.len() == self.keep {
            let (worst, at) = self.list[self.keep - 1];
            if score > worst || (score == worst && place > at) {
                return;
            }
            self.list.pop();
        }
        let at = self.list.partition_point(|&(s, p)| s < score || (s == score && p < place));
        self.list.insert(at, (score, place));
    }
}

impl Router {
    /// A router over items (leaves) with the given routing vectors (row-major), which `groups` lists.
    pub fn new(how: &KMeans, vectors: &[f32], groups: &[Vec<u32>]) -> Result<Self, TreeError> {
        let (k, d) = (&how.kernels, how.dim);
        let mut centers = Vec::with_capacity(groups.len() * d);
        for group in groups {
            centers.extend(center(vectors, group, d));
        }
        let mut levels = Vec::new();
        let mut group_order: Vec<u32> = (0..groups.len() as u32).collect();
        if groups.len() > FLAT_GROUPS {
            let bands = vec![0u8; groups.len()];
            let children = Children { vectors: &centers, bands: &bands };
            let nodes = regroup(how, &children, one_per_band(&bands), INNER)?;
            let mut top = Vec::with_capacity(nodes.len() * d);
            let mut starts = vec![0u32];
            group_order.clear();
            for node in &nodes {
                top.extend(center(&centers, &node.members, d));
                group_order.extend(&node.members);
                starts.push(group_order.len() as u32);
            }
            levels.push(Level::new(k, d, top, starts));
        }
        let mut ordered = Vec::with_capacity(centers.len());
        let (mut starts, mut order) = (vec![0u32], Vec::new());
        for &g in &group_order {
            ordered.extend_from_slice(&centers[g as usize * d..][..d]);
            order.extend(&groups[g as usize]);
            starts.push(order.len() as u32);
        }
        levels.push(Level::new(k, d, ordered, starts));
        let mut leaves = Vec::with_capacity(order.len() * d);
        for &item in &order {
            leaves.extend_from_slice(&vectors[item as usize * d..][..d]);
        }
        levels.push(Level::new(k, d, leaves, Vec::new()));
        Ok(Self { kernels: *k, dim: d, levels, order })
    }

    /// The item at a place.
    pub fn item(&self, place: u32) -> u32 {
        self.order[place as usize]
    }

    /// Routing vector of a leaf.
    pub fn vector(&self, leaf: u32) -> &[f32] {
        &self.levels[self.levels.len() - 1].vectors[leaf as usize * self.dim..][..self.dim]
    }

    /// The (up to) `keep` nearest leaves of every row of `points`, ascending by (squared distance, place). The last
    /// choice is exact: distances are those of the l2 kernel. Callers pass some thousand rows at most.
    pub fn nearest(&self, points: &[f32], keep: usize) -> Vec<Vec<Candidate>> {
        let d = self.dim;
        let m = points.len() / d;
        // At the top every row looks at every node.
        let mut beams: Vec<Vec<Candidate>> = vec![Vec::new(); m];
        for (l, level) in self.levels.iter().enumerate() {
            let last = l + 1 == self.levels.len();
            let best = Best { keep: if last { keep } else { BEAM }, list: Vec::new() };
            let mut next: Vec<Best> = vec![best; m];
            if l == 0 {
                self.score_range(points, level, 0, level.norms.len(), &mut next);
            } else {
                self.score_children(points, &self.levels[l - 1], level, &beams, &mut next);
            }
            beams = next.into_iter().map(|b| b.list).collect();
        }
        for (x, list) in points.chunks_exact(d).zip(&mut beams) {
            for (score, leaf) in list.iter_mut() {
                *score = self.kernels.l2(x, self.vector(*leaf));
            }
            list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        beams
    }

    /// Scores all rows against nodes `from..to` of a level.
    fn score_range(&self, points: &[f32], level: &Level, from: usize, to: usize, next: &mut [Best]) {
        const BLOCK: usize = 128;
        let d = self.dim;
        let mut dots = vec![0f32; BLOCK * (to - from)];
        for (points, next) in points.chunks(BLOCK * d).zip(next.chunks_mut(BLOCK)) {
            let dots = &mut dots[..next.len() * (to - from)];
            self.kernels.dot_matrix(points, &level.vectors[from * d..to * d], d, dots);
            for (best, dots) in next.iter_mut().zip(dots.chunks_exact(to - from)) {
                for (j, dot) in dots.iter().enumerate() {
                    best.offer(level.norms[from + j] - 2.0 * dot, (from + j) as u32);
                }
            }
        }
    }

    /// Scores every row against the children of the nodes in its beam, node by node.
    fn score_children(
        &self,
        points: &[f32],
        parents: &Level,
        level: &Level,
        beams: &[Vec<Candidate>],
        next: &mut [Best],
    ) {
        let d = self.dim;
        let mut pairs: Vec<(u32, u32)> = beams
            .iter()
            .enumerate()
            .flat_map(|(row, beam)| beam.iter().map(move |&(_, node)| (node, row as u32)))
            .collect();
        pairs.sort_unstable();
        let (mut gathered, mut dots) = (Vec::new(), Vec::new());
        for rows in pairs.chunk_by(|a, b| a.0 == b.0) {
            let node = rows[0].0 as usize;
            let (from, to) = (parents.starts[node] as usize, parents.starts[node + 1] as usize);
            gathered.clear();
            for &(_, row) in rows {
                gathered.extend_from_slice(&points[row as usize * d..][..d]);
            }
            dots.resize(rows.len() * (to - from), 0f32);
            self.kernels.dot_matrix(&gathered, &level.vectors[from * d..to * d], d, &mut dots);
            for (&(_, row), dots) in rows.iter().zip(dots.chunks_exact((to - from).max(1))) {
                let best = &mut next[row as usize];
                for (j, dot) in dots.iter().enumerate() {
                    best.offer(level.norms[from + j] - 2.0 * dot, (from + j) as u32);
                }
            }
        }
    }
}
