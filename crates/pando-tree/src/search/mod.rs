//! Reading the tree: navigation, waves of leaf scans, re-ranking, calibration.
//!
//! A query walks through one state machine, the [`Searcher`]: it ranks the leaves ([`Nav`]), asks its caller for the
//! leaves of one wave after another ([`LeafSource`]), scans their 1-bit codes, sharpens what survives with the refine
//! codes, and stops when the next leaf is too far for the effort asked ([`Effort`]). Then it asks for exact distances
//! in the order of the estimates until no other row can be among the first k. Nothing in here reads storage or waits:
//! the caller loads blocks and vectors between the steps.
//!
//! Waves are fixed by rank, and thresholds change only between waves, so the answer does not depend on where a leaf
//! is scanned or on what is cached. (INDEX_STUDY.md sections 3 to 5 and 9 give the measurements behind the rules.)

pub mod calibrate;
mod candidates;
mod frame;
mod leaf;
mod nav;
mod order;
mod rerank;
mod scan;
mod searcher;
#[cfg(test)]
mod tests;

pub use calibrate::{CalibrationSource, MarginTable, effort_for, margin_for};
pub use candidates::Candidate;
pub use frame::Frame;
pub use leaf::{LeafPart, LeafSource, NoMask, RefinePart, RefineRow, RowMask};
pub use nav::{Nav, NavBuilder, NavConstants, encode_nav_child, inner_r2};
pub use rerank::Hit;
pub use searcher::{Counters, DEFAULT_EPS0, Effort, NARROW_EPS0, SearchParams, Searcher, WIDE_EPS0};
