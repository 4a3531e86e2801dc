//! Navigation: 4-bit codes of every node's children, in memory, scored by an 8-bit integer query.

use std::ops::Range;
use std::sync::Arc;

use pando_kernels::{CodeSpace, NavQuery, encode_nav};

use super::frame::Frame;
use crate::TreeError;

/// Share of a node's mean squared radius that is added to the squared distance of its centroid (l2, cosine).
const RADIUS_SHARE: f32 = 0.3;
/// Share of a node's radius, times the query's norm, that is taken off minus the inner product (dot).
const RADIUS_SHARE_DOT: f32 = 0.75;

/// Constants of one child of a node, as they lie in a node block beside the child's nibbles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NavConstants {
    /// Scale of the 4-bit code.
    pub scale: f32,
    /// `|c - mean|^2` (l2, cosine) or `-<mean, c - mean>` (dot).
    pub add: f32,
    /// Mean squared radius: of the rows around a leaf's centroid, see [`inner_r2`] for inner nodes.
    pub r2: f32,
}

/// Encodes a child's centroid (prepared space) for its parent's node block: `padded / 2` bytes and three constants.
pub fn encode_nav_child(frame: &Frame, centroid: &[f32], r2: f32, nibbles: &mut [u8]) -> NavConstants {
    let kernels = frame.kernels();
    let residual: Vec<f32> = centroid.iter().zip(frame.mean()).map(|(c, m)| c - m).collect();
    let mut rotated = vec![0.0; frame.padded()];
    frame.rotation().apply(kernels, &residual, &mut rotated);
    let scale = encode_nav(kernels, &rotated, nibbles);
    let add = match frame.space() {
        CodeSpace::L2 => kernels.norm2(&residual),
        CodeSpace::Ip => -kernels.dot(frame.mean(), &residual),
    };
    NavConstants { scale, add, r2 }
}

/// Mean squared radius of an inner node: the mean over its children `(centroid, r2, live primaries)`, weighted by
/// live primaries, of `|c_child - c|^2 + r2_child`. The sum runs in the order given.
pub fn inner_r2<'a>(
    frame: &Frame,
    centroid: &[f32],
    children: impl Iterator<Item = (&'a [f32], f32, u64)>,
) -> f32 {
    let (mut sum, mut weight) = (0.0f64, 0.0f64);
    for (child, r2, live) in children {
        let spread = frame.kernels().l2(child, centroid) + r2;
        sum += f64::from(spread) * live as f64;
        weight += live as f64;
    }
    if weight > 0.0 { (sum / weight) as f32 } else { 0.0 }
}

/// One level of the tree: all children of all nodes of the level above, node by node.
#[derive(Default)]
struct Level {
    nibbles: Vec<u8>,
    /// Factor of the code's inner product with the query.
    w: Vec<f32>,
    /// Constant of the score (l2, cosine: the radius term is folded in).
    add: Vec<f32>,
    /// The radius term of the score: already in `add` (l2, cosine), or to be multiplied by the query's norm (dot).
    radius: Vec<f32>,
    /// Start of each node's children in this level, one more than the level above has entries.
    starts: Vec<u32>,
}

impl Level {
    fn len(&self) -> usize {
        self.w.len()
    }
}

/// The in-memory navigation structure of one root. Leaves have *ordinals*: their position in the order in which they
/// were pushed. Empty and one-leaf trees are fine.
pub struct Nav {
    frame: Arc<Frame>,
    levels: Vec<Level>,
}

impl Nav {
    /// The navigation of a collection that has no root yet: no leaves, only extra rows can be searched.
    pub fn empty(frame: Arc<Frame>) -> Self {
        Self { frame, levels: Vec::new() }
    }

    /// Kernels, metric, rotation and mean.
    pub fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    /// Number of leaves.
    pub fn leaves(&self) -> usize {
        self.levels.last().map_or(0, Level::len)
    }

    /// Number of levels below the top node, leaves included.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Number of entries of a level.
    pub(crate) fn width(&self, level: usize) -> usize {
        self.levels[level].len()
    }

    /// Position, among the nodes of the level above the leaves, of the node that holds leaf `ordinal`.
    pub fn leaf_group(&self, ordinal: u32) -> u32 {
        let starts = &self.levels.last().expect("a leaf exists").starts;
        (starts.partition_point(|&s| s <= ordinal) - 1) as u32
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        let level =
            |l: &Level| l.nibbles.len() + 4 * (l.w.len() + l.add.len() + l.radius.len() + l.starts.len());
        self.levels.iter().map(level).sum()
    }

    /// Children in level `level + 1` of entry `node` of `level`.
    pub(crate) fn children(&self, level: usize, node: u32) -> Range<usize> {
        let starts = &self.levels[level + 1].starts;
        starts[node as usize] as usize..starts[node as usize + 1] as usize
    }

    /// Leaves under entry `node` of `level`.
    pub(crate) fn leaves_under(&self, level: usize, node: u32) -> Range<usize> {
        let mut range = node as usize..node as usize + 1;
        for below in level + 1..self.levels.len() {
            let starts = &self.levels[below].starts;
            range = starts[range.start] as usize..starts[range.end] as usize;
        }
        range
    }

    /// Place, among opened leaves with these scores and ordinals (empty: all, in order), of the one whose centroid is
    /// nearest. None under dot.
    pub(crate) fn nearest_leaf(&self, scores: &[f32], ordinals: &[u32]) -> Option<usize> {
        let radius = &self.levels.last()?.radius;
        match self.frame.space() {
            CodeSpace::Ip => None,
            CodeSpace::L2 if ordinals.is_empty() => {
                place_of_smallest(scores.iter().copied(), radius.iter().copied())
            }
            CodeSpace::L2 => {
                let radius = ordinals.iter().map(|&leaf| radius[leaf as usize]);
                place_of_smallest(scores.iter().copied(), radius)
            }
        }
    }

    /// Scores entries `range` of `level`: d' of the query to each, less the query's constant. Lower is nearer.
    pub(crate) fn score(&self, query: &NavState, level: usize, range: Range<usize>, out: &mut [f32]) {
        let l = &self.levels[level];
        let row = self.frame.padded() / 2;
        let codes = &l.nibbles[range.start * row..range.end * row];
        let (w, add) = (&l.w[range.clone()], &l.add[range.clone()]);
        self.frame.kernels().nav(&query.query, codes, w, add, out);
        if self.frame.space() == CodeSpace::Ip {
            for (d, radius) in out.iter_mut().zip(&l.radius[range]) {
                *d -= query.norm * radius;
            }
        }
    }
}

/// Place of the smallest difference (the first of equal ones); none if there is no number among them.
fn place_of_smallest(
    a: impl Iterator<Item = f32> + Clone,
    b: impl Iterator<Item = f32> + Clone,
) -> Option<usize> {
    let differences = || a.clone().zip(b.clone()).map(|(a, b)| a - b);
    // Two passes: the first has no branches.
    let min = differences().fold(f32::INFINITY, |m, d| if d < m { d } else { m });
    differences().position(|d| d == min)
}

/// A query as navigation needs it.
#[derive(Default)]
pub(crate) struct NavState {
    pub(crate) query: NavQuery,
    /// `|q - mean|^2` (l2, cosine) or `-<q, mean>` (dot).
    pub(crate) constant: f32,
    /// Norm of the query (dot).
    pub(crate) norm: f32,
}

/// Builds a [`Nav`] from decoded node blocks, level by level or depth first: what counts is the order within a level.
pub struct NavBuilder {
    frame: Arc<Frame>,
    levels: Vec<Level>,
}

impl NavBuilder {
    /// Starts an empty structure.
    pub fn new(frame: Arc<Frame>) -> Self {
        Self { frame, levels: Vec::new() }
    }

    /// Adds one node: its children's nibbles (`padded / 2` bytes each) and constants. Level 0 takes the top node alone;
    /// level `l + 1` takes one node for each child pushed at level `l`, in that order. The deepest level holds the
    /// leaves.
    pub fn push_node(
        &mut self,
        level: usize,
        nibbles: &[u8],
        scale: &[f32],
        add: &[f32],
        r2: &[f32],
    ) -> Result<(), TreeError> {
        let n = scale.len();
        if add.len() != n || r2.len() != n || nibbles.len() != n * self.frame.padded() / 2 {
            return Err(TreeError::Broken(format!(
                "node of {n} children has {} code bytes, {} and {} constants",
                nibbles.len(),
                add.len(),
                r2.len()
            )));
        }
        if level > self.levels.len() || (level == 0 && !self.levels.is_empty()) {
            return Err(TreeError::Broken(format!("node of level {level} without a parent")));
        }
        if level == self.levels.len() {
            self.levels.push(Level::default());
        }
        let l = &mut self.levels[level];
        if l.len() + n > u32::MAX as usize {
            return Err(TreeError::Broken(format!("more than {} nodes on level {level}", u32::MAX)));
        }
        l.starts.push(l.len() as u32);
        l.nibbles.extend_from_slice(nibbles);
        match self.frame.space() {
            CodeSpace::L2 => {
                l.w.extend(scale.iter().map(|s| -2.0 * s));
                l.radius.extend(r2.iter().map(|r2| RADIUS_SHARE * r2));
                l.add.extend(add.iter().zip(r2).map(|(a, r2)| a + RADIUS_SHARE * r2));
            }
            CodeSpace::Ip => {
                l.w.extend(scale.iter().map(|s| -s));
                l.add.extend_from_slice(add);
                l.radius.extend(r2.iter().map(|r2| RADIUS_SHARE_DOT * r2.sqrt()));
            }
        }
        Ok(())
    }

    /// Checks that every child has its node and returns the structure.
    pub fn finish(mut self) -> Result<Nav, TreeError> {
        let mut expected = 1;
        for (depth, level) in self.levels.iter_mut().enumerate() {
            if level.starts.len() != expected {
                return Err(TreeError::Broken(format!(
                    "level {depth} has {} nodes, its parents have {expected} children",
                    level.starts.len()
                )));
            }
            level.starts.push(level.w.len() as u32);
            expected = level.w.len();
        }
        Ok(Nav { frame: self.frame, levels: self.levels })
    }
}
