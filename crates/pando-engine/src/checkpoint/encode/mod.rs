//! The tree as blocks: leaf and refine blocks by the fold rule, then nodes level by level.

mod blocks;
mod columns;
mod group;
mod nodes;
mod policy;

pub use blocks::{BlockWriter, Place};
pub use group::{GroupPlan, plan};
pub use nodes::{NodeWriter, WrittenTree};
