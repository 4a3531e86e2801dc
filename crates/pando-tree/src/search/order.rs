//! Ranks leaves by d', lazily: a query looks at a few dozen of thousands.
//!
//! Few leaves are all scored. Of many, those in the nearest groups are, and more groups are opened the further the
//! order is followed: the share of groups that holds the first r leaves of n grows with r / n. What is opened depends
//! on the rank alone, so the order is a function of the query and the tree.
//!
//! The leaf with the nearest centroid comes before all others, whatever its radius: it is where a row that equals the
//! query lies, most likely. (Not under dot, where rows need not find themselves.)
#![allow(clippy::neg_cmp_op_on_partial_ord)] // Written so that a NaN takes the other way.

use super::nav::{Nav, NavState};

/// Up to this many leaves all are scored.
const FLAT_LEAVES: usize = 512;
/// Up to this many nodes of an inner level all are scored.
const FLAT_NODES: usize = 16_384;
/// Share of a level's nodes that is opened at first. With the growth below, minilm_wordnet (62 groups, so treated)
/// loses 0.02 points of recall against scoring all leaves, 0.1 for far queries; a fixed 0.4 loses 0.2 and 1.5.
const BEAM_SHARE: f32 = 0.25;
/// How fast the share of opened groups grows with the share of ranked leaves.
const BEAM_GROWTH: f32 = 9.0;
/// At least this many nodes are opened.
const BEAM_MIN: usize = 16;
/// Leaves tested at once.
const CHUNK: usize = 16;
/// Leaves ranked at first.
const FIRST: usize = 16;

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
    /// Scores of the leaves that are opened, without the query's constant.
    scores: Vec<f32>,
    /// Their ordinals; empty when all leaves are opened in order.
    ordinals: Vec<u32>,
    /// Opened leaves that are not in the prefix.
    left: usize,
    /// Opened leaves with scores up to this are in the prefix.
    taken: Option<f32>,
    /// The leaf that was put first.
    front: Option<u32>,
    /// The smallest d'.
    first: f32,
    /// Groups that the beam reaches, by score; those before `open` are opened.
    groups: Vec<u64>,
    open: usize,
    /// Nodes above the groups that the beam passed over: (level, node).
    deferred: Vec<(u32, u32)>,
    // Scratch.
    minima: Vec<f32>,
    ordered: Vec<u32>,
    keys: Vec<u64>,
    nodes: Vec<u32>,
    node_scores: Vec<f32>,
}

impl LeafOrder {
    /// Scores the leaves if they are few, else the nodes above them; nothing is ranked yet.
    pub(crate) fn begin(&mut self, nav: &Nav, query: &NavState) {
        self.prefix.clear();
        self.ordinals.clear();
        self.groups.clear();
        self.deferred.clear();
        self.open = 0;
        (self.taken, self.front, self.first) = (None, None, f32::INFINITY);
        let leaves = nav.leaves();
        if leaves > FLAT_LEAVES {
            self.scores.clear();
            self.left = 0;
            self.reach_groups(nav, query);
            return;
        }
        self.left = leaves;
        // What is in it from the query before is overwritten.
        self.scores.resize(leaves, 0.0);
        if leaves > 1 {
            nav.score(query, nav.levels() - 1, 0..leaves, &mut self.scores);
        }
    }

    /// The leaf of this rank; `None` past the last.
    #[inline]
    pub(crate) fn get(&mut self, nav: &Nav, query: &NavState, rank: usize) -> Option<Ranked> {
        while rank >= self.prefix.len() {
            let want = self.prefix.len().max(FIRST);
            self.open_groups(nav, query, want);
            if self.left == 0 && !self.open_deferred(nav, query) {
                return None;
            }
            if self.prefix.is_empty() {
                self.place_nearest(nav, query.constant);
            }
            self.grow(want, query.constant);
        }
        Some(self.prefix[rank])
    }

    /// The smallest d', once a leaf is ranked.
    pub(crate) fn first(&self) -> f32 {
        self.first
    }

    /// Puts the leaf with the nearest centroid first.
    fn place_nearest(&mut self, nav: &Nav, constant: f32) {
        let Some(slot) = nav.nearest_leaf(&self.scores, &self.ordinals) else { return };
        let leaf = self.ordinals.get(slot).copied().unwrap_or(slot as u32);
        self.front = Some(leaf);
        self.prefix.push(Ranked { score: self.scores[slot] + constant, leaf });
    }

    /// Scores the groups; where even they are many, those under the nearest nodes.
    fn reach_groups(&mut self, nav: &Nav, query: &NavState) {
        let Some(last) = nav.levels().checked_sub(2) else {
            // Leaves under the top node itself.
            self.deferred.extend((0..nav.leaves() as u32).map(|leaf| (0, leaf)));
            return;
        };
        // The deepest level that is cheap to score whole; the levels above it can be skipped.
        let mut level = (0..=last).rev().find(|&l| nav.width(l) <= FLAT_NODES).unwrap_or(0);
        self.node_scores.resize(nav.width(level), 0.0);
        nav.score(query, level, 0..nav.width(level), &mut self.node_scores);
        self.groups.extend(self.node_scores.iter().zip(0..).map(|(&s, node)| key(s, node)));
        while level < last {
            let keep = share(self.groups.len(), BEAM_SHARE);
            if keep < self.groups.len() {
                self.groups.select_nth_unstable(keep);
                self.deferred.extend(self.groups.drain(keep..).map(|k| (level as u32, k as u32)));
            }
            self.nodes.clear();
            self.nodes.extend(self.groups.drain(..).map(|k| k as u32));
            for &node in &self.nodes {
                let children = nav.children(level, node);
                self.node_scores.resize(children.len(), 0.0);
                nav.score(query, level + 1, children.clone(), &mut self.node_scores);
                let children = children.start as u32..;
                self.groups.extend(self.node_scores.iter().zip(children).map(|(&s, node)| key(s, node)));
            }
            level += 1;
        }
    }

    /// Opens as many groups as the next `want` leaves of the order call for.
    fn open_groups(&mut self, nav: &Nav, query: &NavState, want: usize) {
        if self.open == self.groups.len() {
            return;
        }
        let ranked = (self.prefix.len() + want) as f32 / nav.leaves() as f32;
        let target = share(self.groups.len(), BEAM_SHARE + BEAM_GROWTH * ranked);
        let more = target.saturating_sub(self.open).max(if self.left == 0 { 1 } else { 0 });
        if more == 0 {
            return;
        }
        self.forget_taken();
        let closed = &mut self.groups[self.open..];
        if more < closed.len() {
            closed.select_nth_unstable(more);
        }
        let until = self.groups.len().min(self.open + more);
        let level = nav.levels() - 2;
        for &group in &self.groups[self.open..until] {
            let leaves = nav.children(level, group as u32);
            append(nav, query, leaves, &mut self.scores, &mut self.ordinals);
        }
        self.open = until;
        self.left = self.scores.len();
    }

    /// Opens everything that the beam passed over; false if there is nothing.
    fn open_deferred(&mut self, nav: &Nav, query: &NavState) -> bool {
        self.forget_taken();
        for (level, node) in self.deferred.drain(..) {
            let leaves = nav.leaves_under(level as usize, node);
            append(nav, query, leaves, &mut self.scores, &mut self.ordinals);
        }
        self.left = self.scores.len();
        self.left > 0
    }

    /// Drops the scores of leaves that are ranked, so that others can be added.
    fn forget_taken(&mut self) {
        let Some(taken) = self.taken.take() else { return };
        // Without ordinals all leaves were opened at once, and nothing is added before all are ranked.
        if taken == f32::INFINITY || self.ordinals.is_empty() {
            self.scores.clear();
            self.ordinals.clear();
            return;
        }
        let mut kept = 0;
        for i in 0..self.scores.len() {
            if !(self.scores[i] <= taken) {
                self.scores[kept] = self.scores[i];
                self.ordinals[kept] = self.ordinals[i];
                kept += 1;
            }
        }
        self.scores.truncate(kept);
        self.ordinals.truncate(kept);
    }

    /// Ranks at least one more leaf, if possible `want`.
    fn grow(&mut self, want: usize, constant: f32) {
        let threshold = self.threshold(want.min(self.left));
        let (scores, keys, ordinals) = (&self.scores, &mut self.keys, &self.ordinals);
        keys.clear();
        // Its score is passed like those of others, but it is not ranked twice.
        let front = self.front;
        // A NaN (infinity minus infinity, from vectors near the end of f32) counts as infinity.
        match (self.taken, threshold < f32::INFINITY) {
            (None, true) => collect(scores, ordinals, keys, |s| s <= threshold),
            (Some(taken), true) => collect(scores, ordinals, keys, |s| (s > taken) & (s <= threshold)),
            (None, false) => collect(scores, ordinals, keys, |_| true),
            (Some(taken), false) => collect(scores, ordinals, keys, |s| !(s <= taken)),
        }
        self.left -= keys.len();
        keys.retain(|&k| Some(k as u32) != front);
        keys.sort_unstable();
        self.taken = Some(threshold);
        self.prefix.extend(keys.iter().map(|&k| Ranked { score: unkey(k) + constant, leaf: k as u32 }));
        if self.first == f32::INFINITY {
            self.first = self.prefix.iter().take(2).fold(f32::INFINITY, |m, r| m.min(r.score));
        }
    }

    /// A score up to which there are at least `want` more leaves, and not many more; infinity for all that is left.
    fn threshold(&mut self, want: usize) -> f32 {
        // Leaves in columns: the minima of m columns are m distinct leaves, so the m-th smallest minimum bounds the
        // m-th smallest score.
        let columns = (4 * want).next_multiple_of(CHUNK);
        if self.scores.len() < 2 * columns {
            return f32::INFINITY;
        }
        self.minima.clear();
        self.minima.resize(columns, f32::INFINITY);
        let floor = self.taken;
        for row in self.scores.chunks(columns) {
            match floor {
                None => {
                    for (min, &s) in self.minima.iter_mut().zip(row) {
                        *min = if s < *min { s } else { *min };
                    }
                }
                Some(floor) => {
                    for (min, &s) in self.minima.iter_mut().zip(row) {
                        *min = if (s > floor) & (s < *min) { s } else { *min };
                    }
                }
            }
        }
        self.ordered.clear();
        self.ordered.extend(self.minima.iter().map(|&m| ordered(m)));
        unordered(*self.ordered.select_nth_unstable(want - 1).1)
    }
}

/// That share of `n` nodes, but not too few.
fn share(n: usize, share: f32) -> usize {
    ((n as f32 * share).ceil() as usize).max(BEAM_MIN).min(n)
}

/// Scores leaves and appends them.
fn append(
    nav: &Nav,
    query: &NavState,
    leaves: std::ops::Range<usize>,
    scores: &mut Vec<f32>,
    ordinals: &mut Vec<u32>,
) {
    let at = scores.len();
    scores.resize(at + leaves.len(), 0.0);
    nav.score(query, nav.levels() - 1, leaves.clone(), &mut scores[at..]);
    ordinals.extend(leaves.start as u32..leaves.end as u32);
}

/// Keys of the leaves whose score is wanted.
#[inline(always)]
fn collect(scores: &[f32], ordinals: &[u32], keys: &mut Vec<u64>, wanted: impl Fn(f32) -> bool) {
    let (chunks, rest) = scores.as_chunks::<CHUNK>();
    let mut push = |slot: usize, score: f32| {
        if wanted(score) {
            let leaf = ordinals.get(slot).copied().unwrap_or(slot as u32);
            keys.push(key(score, leaf));
        }
    };
    for (c, chunk) in chunks.iter().enumerate() {
        // Most chunks hold none: one test without branches.
        let mut any = 0u32;
        for &score in chunk {
            any |= u32::from(wanted(score));
        }
        if any != 0 {
            for (i, &score) in chunk.iter().enumerate() {
                push(c * CHUNK + i, score);
            }
        }
    }
    for (i, &score) in rest.iter().enumerate() {
        push(chunks.len() * CHUNK + i, score);
    }
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
