//! Ranks leaves by d', lazily: a query looks at a few dozen of thousands.

use super::nav::{Nav, NavState};

/// Up to this many entries a level is scored whole.
const FLAT_LIMIT: usize = 4096;
/// Share of a level's scored nodes whose children are scored in turn, when the leaves are too many to score all.
const BEAM_SHARE: f32 = 0.4;
/// At least this many nodes are opened.
const BEAM_MIN: usize = 96;
/// Leaves ranked at first.
const FIRST: usize = 32;

/// A leaf at its place in the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranked {
    /// d' of the leaf.
    pub(crate) score: f32,
    /// Its ordinal.
    pub(crate) leaf: u32,
}

/// The order of leaves for one query. Reusable.
#[derive(Default)]
pub(crate) struct LeafOrder {
    /// Ranked so far.
    prefix: Vec<Ranked>,
    /// Scores of the leaves that are opened; NaN = already in the prefix.
    scores: Vec<f32>,
    /// Their ordinals; empty when all leaves are opened in order.
    ordinals: Vec<u32>,
    /// Opened leaves that are not in the prefix.
    left: usize,
    /// Nodes passed over by the beam: (level, node).
    deferred: Vec<(u32, u32)>,
    // Scratch.
    minima: Vec<f32>,
    sorted: Vec<f32>,
    keys: Vec<u64>,
    nodes: Vec<u32>,
    next: Vec<u32>,
    node_scores: Vec<f32>,
}

impl LeafOrder {
    /// Scores what the beam reaches; nothing is ranked yet.
    pub(crate) fn begin(&mut self, nav: &Nav, query: &NavState) {
        self.prefix.clear();
        self.ordinals.clear();
        self.scores.clear();
        self.deferred.clear();
        let leaves = nav.leaves();
        self.left = leaves;
        if leaves <= FLAT_LIMIT {
            self.scores.resize(leaves, 0.0);
            if leaves > 1 {
                nav.score(query, nav.levels() - 1, 0..leaves, &mut self.scores);
            }
            return;
        }
        self.open_beam(nav, query);
    }

    /// The leaf of this rank; `None` past the last.
    #[inline]
    pub(crate) fn get(&mut self, nav: &Nav, query: &NavState, rank: usize) -> Option<Ranked> {
        while rank >= self.prefix.len() {
            if self.left == 0 && !self.open_deferred(nav, query) {
                return None;
            }
            self.grow();
        }
        Some(self.prefix[rank])
    }

    /// d' of the nearest leaf, once it is ranked.
    pub(crate) fn first(&self) -> Option<f32> {
        self.prefix.first().map(|r| r.score)
    }

    fn open_beam(&mut self, nav: &Nav, query: &NavState) {
        let leaf_level = nav.levels() - 1;
        // The deepest level that is cheap to score whole; the levels above it can be skipped.
        let mut level = (0..leaf_level).rev().find(|&l| nav.width(l) <= FLAT_LIMIT).unwrap_or(0);
        self.nodes.clear();
        self.nodes.extend(0..nav.width(level) as u32);
        self.node_scores.clear();
        self.node_scores.resize(nav.width(level), 0.0);
        nav.score(query, level, 0..nav.width(level), &mut self.node_scores);
        while level < leaf_level {
            self.select_nodes(level);
            self.next.clear();
            self.node_scores.clear();
            for &node in &self.nodes {
                let children = nav.children(level, node);
                let at = self.node_scores.len();
                self.node_scores.resize(at + children.len(), 0.0);
                nav.score(query, level + 1, children.clone(), &mut self.node_scores[at..]);
                self.next.extend(children.start as u32..children.end as u32);
            }
            std::mem::swap(&mut self.nodes, &mut self.next);
            level += 1;
        }
        std::mem::swap(&mut self.scores, &mut self.node_scores);
        std::mem::swap(&mut self.ordinals, &mut self.nodes);
        self.left = self.scores.len();
    }

    /// Keeps the nearest nodes, in ascending order; the others are deferred.
    fn select_nodes(&mut self, level: usize) {
        let n = self.nodes.len();
        let keep = ((n as f32 * BEAM_SHARE).ceil() as usize).max(BEAM_MIN);
        if keep >= n {
            return;
        }
        self.keys.clear();
        self.keys.extend(self.nodes.iter().zip(&self.node_scores).map(|(&node, &s)| key(s, node)));
        self.keys.select_nth_unstable(keep);
        self.deferred.extend(self.keys[keep..].iter().map(|&k| (level as u32, k as u32)));
        self.nodes.clear();
        self.nodes.extend(self.keys[..keep].iter().map(|&k| k as u32));
        self.nodes.sort_unstable();
    }

    /// Opens everything that the beam passed over; false if there is nothing.
    fn open_deferred(&mut self, nav: &Nav, query: &NavState) -> bool {
        if self.deferred.is_empty() {
            return false;
        }
        self.scores.clear();
        self.ordinals.clear();
        // The order in which the selection left them is not meaningful.
        self.deferred.sort_unstable();
        for &(level, node) in &self.deferred {
            let leaves = nav.leaves_under(level as usize, node);
            let at = self.scores.len();
            self.scores.resize(at + leaves.len(), 0.0);
            nav.score(query, nav.levels() - 1, leaves.clone(), &mut self.scores[at..]);
            self.ordinals.extend(leaves.start as u32..leaves.end as u32);
        }
        self.deferred.clear();
        self.left = self.scores.len();
        self.left > 0
    }

    /// Ranks at least one more leaf: about as many as are ranked already.
    fn grow(&mut self) {
        let want = self.prefix.len().max(FIRST).min(self.left);
        // m block minima are m distinct leaves, so the m-th smallest of them bounds the m-th smallest score.
        let block = (self.scores.len() / (4 * want)).clamp(1, 64);
        self.minima.clear();
        self.minima.extend(self.scores.chunks(block).map(block_min));
        let threshold = if want < self.minima.len() {
            self.sorted.clear();
            self.sorted.extend_from_slice(&self.minima);
            *self.sorted.select_nth_unstable_by(want - 1, f32::total_cmp).1
        } else {
            f32::INFINITY
        };
        self.keys.clear();
        for (b, (scores, &min)) in self.scores.chunks_mut(block).zip(&self.minima).enumerate() {
            if min > threshold {
                continue;
            }
            for (i, score) in scores.iter_mut().enumerate() {
                if *score <= threshold {
                    let slot = b * block + i;
                    let leaf = self.ordinals.get(slot).copied().unwrap_or(slot as u32);
                    self.keys.push(key(*score, leaf));
                    *score = f32::NAN;
                }
            }
        }
        self.keys.sort_unstable();
        self.left -= self.keys.len();
        self.prefix.extend(self.keys.iter().map(|&k| Ranked { score: unkey(k), leaf: k as u32 }));
    }
}

/// Smallest score of a block; scores already taken are NaN and do not count.
#[inline]
fn block_min(scores: &[f32]) -> f32 {
    let mut min = f32::INFINITY;
    for &s in scores {
        min = if s < min { s } else { min };
    }
    min
}

/// An integer that sorts like the float; NaN sorts with infinity.
#[inline]
pub(crate) fn ordered(x: f32) -> u32 {
    let x = if x.is_nan() { f32::INFINITY } else { x };
    let bits = x.to_bits();
    if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits }
}

/// Inverse of [`ordered`].
#[inline]
pub(crate) fn unordered(ordered: u32) -> f32 {
    f32::from_bits(if ordered >> 31 == 1 { ordered & 0x7fff_ffff } else { !ordered })
}

/// Sorts by score, then by number.
#[inline]
fn key(score: f32, number: u32) -> u64 {
    u64::from(ordered(score)) << 32 | u64::from(number)
}

#[inline]
fn unkey(key: u64) -> f32 {
    unordered((key >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::{key, unkey};

    #[test]
    fn keys_sort_like_floats() {
        let values = [f32::NEG_INFINITY, -3.0, -1e-20, 0.0, 1e-20, 2.5, f32::INFINITY];
        for pair in values.windows(2) {
            assert!(key(pair[0], 7) < key(pair[1], 3));
        }
        for v in values {
            assert_eq!(unkey(key(v, 9)), v);
            assert!(key(v, 1) < key(v, 2));
        }
    }
}
