//! Checkpoints: the next root from the parent root and the log entries of a plan (DESIGN section 5).
//!
//! A checkpoint is a pure function of the collection's configuration, the parent root, its plan and the plan's entries.
//! Repeated or raced it writes the same objects; everything exists before the head is created; who loses that race drops
//! its work. One run, in order:
//!
//! 1. `plan`: create or read the plan. 2. `fold`: collapse the plan's entries to the last operation of each id.
//! 3. `lookup`: rows of the parent that die. 4. `parent`: its tree, read back from leaf and centroid blocks.
//! 5. build or advance the tree (`pando_tree`), reading vectors through `vectors`; `gate`: law 4.
//! 6. `segments`, `encode`, `ids`, `deaths`, `window`: what changed, into segments and packs.
//! 7. `calibrate`, then `publish`: manifest and head.
//!
//! Memory: vectors and codes stay within [`Surroundings::memory`] (pages of vectors a quarter, the tree's buffers a
//! third, blocks being written a quarter, new rows kept in memory a quarter while there is no other use); the tree takes
//! 8 bytes a copy of a row and its centroids, the fold 16 bytes an operation, row sets a few bits a row.

mod calibrate;
mod collapse;
mod constants;
mod context;
mod deaths;
mod encode;
mod entries;
mod fold;
mod gate;
mod ids;
mod live;
mod lookup;
mod merge_plan;
mod packs;
mod parent;
mod plan;
mod publish;
mod run;
mod segments;
mod staging;
#[cfg(test)]
pub(crate) mod tests;
mod vectors;
mod window;

pub(crate) use context::Context;
pub use context::{Surroundings, tree_config};
pub(crate) use live::LiveBytes;
pub(crate) use parent::rows_of_leaf;
pub(crate) use publish::{Race, create_head};
pub use run::{CheckpointOutcome, Finished, run_checkpoint};
pub(crate) use segments::rows_of;
pub(crate) use staging::Staged;
pub(crate) use vectors::{Vectors, tree_error};
