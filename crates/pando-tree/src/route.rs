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
#[derive(Clone, Debug)]
struct Best {
    keep: usize,
    /// Scores from here on cannot enter.
    limit: f32,
    list: Vec<Candidate>,
}

impl Best {
    fn new(keep: usize) -> Self {
        Self { keep, limit: f32::INFINITY, list: Vec::with_capacity(keep + 1) }
    }

    /// Scores of the places from `first` on. Places must come in ascending order over all calls: then an equal score
    /// never displaces an earlier one.
    #[inline]
    fn offer(&mut self, first: u32, dots: &[f32], norms: &[f32]) {
        for (j, (dot, norm)) in dots.iter().zip(norms).enumerate() {
            let score = norm - 2.0 * dot;
            if score < self.limit || score.is_nan() || self.list.len() < self.keep {
                self.insert(score, first + j as u32);
            }
        }
    }

    fn insert(&mut self, score: f32, place: u32) {
        // Only overflow can make a NaN; its sign differs between machines, so it must not be compared.
        let score = if score.is_nan() { f32::INFINITY } else { score };
        let at = self.list.partition_point(|c| c.0 <= score);
        if at < self.keep {
            self.list.insert(at, (score, place));
            self.list.truncate(self.keep);
            if self.list.len() == self.keep {
                self.limit = self.list[self.keep - 1].0;
            }
        }
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
            let mut next: Vec<Best> = (0..m).map(|_| Best::new(if last { keep } else { BEAM })).collect();
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
                best.offer(from as u32, dots, &level.norms[from..to]);
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
            let need = rows.len() * (to - from);
            if dots.len() < need {
                dots.resize(need, 0f32);
            }
            let dots = &mut dots[..need];
            self.kernels.dot_matrix(&gathered, &level.vectors[from * d..to * d], d, dots);
            for (&(_, row), dots) in rows.iter().zip(dots.chunks_exact((to - from).max(1))) {
                let best = &mut next[row as usize];
                best.offer(from as u32, dots, &level.norms[from..to]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_keeps_the_smallest_and_the_earlier_of_equals() {
        let mut best = Best::new(3);
        best.offer(0, &[0.0; 4], &[5.0, 1.0, f32::NAN, 5.0]);
        best.offer(9, &[0.0; 3], &[1.0, 7.0, 0.5]);
        assert_eq!(best.list, [(0.5, 11), (1.0, 1), (1.0, 9)]);
        let mut best = Best::new(2);
        best.offer(0, &[0.0; 3], &[f32::NAN, f32::NAN, f32::INFINITY]);
        assert_eq!(best.list, [(f32::INFINITY, 0), (f32::INFINITY, 1)]);
    }

    #[test]
    fn many_groups_are_reached_through_nodes() {
        let (d, n) = (8usize, 14_000usize);
        let at = |i: usize| (crate::hashing::hash(&[i as u64]) >> 40) as f32 / (1 << 24) as f32;
        let vectors: Vec<f32> = (0..n * d).map(at).collect();
        let kernels = Kernels::detect();
        let how = KMeans { kernels, dim: d, spherical: false, iterations: 5, seed: 1 };
        let bands = vec![0u8; n];
        let children = Children { vectors: &vectors, bands: &bands };
        let groups: Vec<Vec<u32>> = regroup(&how, &children, one_per_band(&bands), crate::nodes::GROUP)
            .unwrap()
            .into_iter()
            .map(|g| g.members)
            .collect();
        assert!(groups.len() > FLAT_GROUPS);
        let router = Router::new(&how, &vectors, &groups).unwrap();
        assert_eq!(router.levels.len(), 3);
        let queries: Vec<f32> = (0..200 * d).map(|i| at(i + 1_000_000)).collect();
        let found = router.nearest(&queries, 5);
        let mut right = 0;
        for (q, found) in queries.chunks_exact(d).zip(&found) {
            let best = (0..n).map(|i| kernels.l2(q, &vectors[i * d..][..d])).fold(f32::INFINITY, f32::min);
            right += usize::from(found[0].0 == best);
            assert_eq!(found[0].0, kernels.l2(q, &vectors[router.item(found[0].1) as usize * d..][..d]));
        }
        assert!(right >= 195, "{right} of 200");
    }
}
