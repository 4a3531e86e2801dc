//! The tree as plain data, and what its algorithms need from the outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_kernels::{Kernels, Metric};

use crate::error::TreeError;

/// `split_size` of a small collection: one leaf that is never split.
pub const UNSPLIT: u32 = u32::MAX;

/// Where the original vectors of rows come from.
pub trait VectorSource: Sync {
    /// Writes the original (not prepared) vectors of `rows`, in the order given, into `out`
    /// (`rows.len() * dim` values). May be called from several threads at once.
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError>;
}

/// A set of row numbers.
pub trait RowSet: Sync {
    /// Whether `row` is in the set.
    fn contains(&self, row: u64) -> bool;
    /// Whether the set is known to be empty (saves scans; `false` is always allowed).
    fn is_empty(&self) -> bool {
        false
    }
}

/// The empty set of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRows;

impl RowSet for NoRows {
    fn contains(&self, _row: u64) -> bool {
        false
    }
    fn is_empty(&self) -> bool {
        true
    }
}

impl RowSet for std::collections::BTreeSet<u64> {
    fn contains(&self, row: u64) -> bool {
        std::collections::BTreeSet::contains(self, &row)
    }
    fn is_empty(&self) -> bool {
        std::collections::BTreeSet::is_empty(self)
    }
}

/// What a collection fixes for its index at creation.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeConfig {
    /// Dimension of the vectors.
    pub dim: usize,
    /// Metric of the collection.
    pub metric: Metric,
    /// Seed of the rotation, of samples and of every k-means.
    pub seed: u64,
    /// Copies of a row's code: 1, or 2 (a secondary placed by the SOAR rule).
    pub copies: u8,
    /// Whether refine codes are written.
    pub refine: bool,
    /// Up to this many live rows the collection is one leaf.
    pub small_limit: u64,
}

/// What a (re)build fixes until the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeParams {
    /// Split size S in live primaries; [`UNSPLIT`] for a small collection.
    pub split_size: u32,
    /// Root mean in prepared space (`dim` values). All zeros under dot: the order of results under dot does not
    /// depend on the length of the query, and codes relative to a non-zero mean would.
    pub mean: Vec<f32>,
    /// Norm thresholds, ascending (dot only, at most 3): band of a row = how many of them its norm exceeds.
    pub bands: Vec<f32>,
}

impl TreeParams {
    /// Whether this is the one leaf of a small collection.
    pub fn is_small(&self) -> bool {
        self.split_size == UNSPLIT
    }
}

/// What became of a leaf since the parent root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Clean,
    /// Rows were added, none left; the centroid stays. The new rows (sorted) are also merged into the leaf's lists.
    Appended {
        /// New primaries.
        primaries: Vec<u64>,
        /// New secondaries.
        secondaries: Vec<u64>,
    },
    /// New, or rows left it, or it was scrubbed: centroid and r2 are fresh, dead rows are gone, all codes are new.
    Rewritten,
}

/// A posting list: the rows nearest one centroid.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// Unique in the tree (shared id space with groups and inner nodes).
    pub id: u64,
    /// Norm band under dot, else 0.
    pub band: u8,
    /// All rows are equal: not split until a different row arrives.
    pub whole: bool,
    /// Mean of the primaries that were live when the leaf was last rewritten, in prepared space.
    pub centroid: Vec<f32>,
    /// Mean squared distance of those primaries to the centroid.
    pub r2: f32,
    /// Row numbers, ascending; may contain dead rows.
    pub primaries: Vec<u64>,
    /// Row numbers whose primary leaf is another one, ascending; may contain dead rows.
    pub secondaries: Vec<u64>,
    /// Relative to the parent root.
    pub change: Change,
}

/// The lowest inner node (level 1): sibling leaves that share blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Unique in the tree.
    pub id: u64,
    /// Leaf ids, ascending. All of one band.
    pub leaves: Vec<u64>,
    /// Mean of the leaves' centroids weighted by live primaries, as of the last time the group was `recoded`.
    pub centroid: Vec<f32>,
    /// Anything at or below this node differs from the parent root.
    pub changed: bool,
    /// The set of leaves, or a leaf's centroid or r2, differs from the parent root: child codes must be written anew.
    /// Implies `changed`.
    pub recoded: bool,
}

/// A node of level 2 or more.
#[derive(Clone, Debug, PartialEq)]
pub struct Inner {
    /// Unique in the tree.
    pub id: u64,
    /// 2 for a node of groups, 3 for a node of level-2 nodes, ...
    pub level: u8,
    /// Ids of nodes of level `level - 1`, ascending. All of one band.
    pub children: Vec<u64>,
    /// As in [`Group`].
    pub centroid: Vec<f32>,
    /// As in [`Group`].
    pub changed: bool,
    /// As in [`Group`].
    pub recoded: bool,
}

/// The root node. It has no centroid and no id; it lies in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Top {
    /// Level of the children: 1 (groups), 2, ... The tree's levels above its leaves are 1..=child_level.
    pub child_level: u8,
    /// Ids ascending; empty only in a tree without rows.
    pub children: Vec<u64>,
}

/// A whole tree: the index of one root, without vectors and codes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Fixed since the last (re)build.
    pub params: TreeParams,
    /// Leaves by id.
    pub leaves: BTreeMap<u64, Leaf>,
    /// Groups by id.
    pub groups: BTreeMap<u64, Group>,
    /// Nodes of level 2 and more, by id.
    pub inners: BTreeMap<u64, Inner>,
    /// The root node.
    pub top: Top,
    /// The next id to give out.
    pub next_id: u64,
    /// Scrubbing goes on at the first group with at least this id.
    pub scrub_cursor: u64,
}

impl Tree {
    /// Declares the present state to be the parent root: every change mark is cleared.
    pub fn clear_changes(&mut self) {
        for leaf in self.leaves.values_mut() {
            leaf.change = Change::Clean;
        }
        for group in self.groups.values_mut() {
            (group.changed, group.recoded) = (false, false);
        }
        for inner in self.inners.values_mut() {
            (inner.changed, inner.recoded) = (false, false);
        }
    }
}

/// What part of the work is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Sample, mean, bands.
    Sample,
    /// k-means of the first build.
    Cluster,
    /// Rows to their nearest leaves.
    Route,
    /// Rounds of splits, merges and reassignments.
    Balance,
    /// Rewriting leaves that hold dead rows.
    Scrub,
    /// Second copies.
    Secondaries,
    /// Groups and inner nodes.
    Nodes,
}

/// How far a stage is. For people only: the numbers may depend on memory and threads.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Rows (or leaves) done.
    pub done: u64,
    /// Out of this many.
    pub total: u64,
}

/// What the algorithms need from their surroundings. Nothing in it changes the result.
pub struct Env<'a> {
    /// Kernel set.
    pub kernels: Kernels,
    /// Threads to use.
    pub pool: &'a rayon::ThreadPool,
    /// Original vectors.
    pub vectors: &'a dyn VectorSource,
    /// Bytes for buffers of vectors (the tree itself and a few words a row come on top).
    pub memory: usize,
    /// Called from time to time, from one thread at a time.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// Raise to stop early with [`TreeError::Cancelled`].
    pub cancel: &'a AtomicBool,
}

impl Env<'_> {
    /// Fails if the caller wants to stop.
    pub fn check_cancel(&self) -> Result<(), TreeError> {
        if self.cancel.load(Ordering::Relaxed) { Err(TreeError::Cancelled) } else { Ok(()) }
    }

    /// Reports progress.
    pub fn report(&self, stage: Stage, done: u64, total: u64) {
        (self.progress)(Progress { stage, done, total });
    }
}

/// What `advance` did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows added (new rows that are already dead are not added).
    pub added: u64,
    /// Rounds that changed something (at most 8).
    pub rounds: u32,
    /// Leaves split.
    pub splits: u64,
    /// Leaves merged into others.
    pub merges: u64,
    /// Empty leaves removed.
    pub removed: u64,
    /// Rows whose primary moved to a leaf other than a part of their own split leaf.
    pub moved: u64,
    /// Leaves rewritten only to drop dead rows.
    pub scrubbed: u64,
    /// Secondaries placed.
    pub secondaries_placed: u64,
    /// Live rows (primaries).
    pub live: u64,
    /// Dead rows still in a leaf as primary, ascending.
    pub dead_primaries: Vec<u64>,
    /// Dead rows still in a leaf as secondary, ascending. (D of the manifest must keep the union of both.)
    pub dead_secondaries: Vec<u64>,
}
