//! Plan of a checkpoint: fixes what the next root of a parent is made from.

use crate::codec::record;
use crate::envelope::stored;
use crate::ids::RootId;

/// Version of the index algorithm that this release runs. 0: index blocks may still change.
pub const ALGORITHM_VERSION: u32 = 0;

record! {
    /// What a plan decides. Part of the root that carries it out.
    #[derive(Eq)]
    pub struct PlanContents {
        /// Last log entry the checkpoint covers.
        pub end_sequence: u64,
        /// Version of the algorithm to run.
        pub algorithm: u32,
        /// Log entries stepped over by an operator's command, ascending.
        pub stepped_over: Vec<u64>,
    }
}

record! {
    /// Plan of the checkpoint that follows `parent`.
    #[derive(Eq)]
    pub struct Plan {
        /// Depth of the root to be made: the parent's plus one.
        pub depth: u64,
        /// Root it follows; None for the first.
        pub parent: Option<RootId>,
        /// 0, or more by an operator's command.
        pub number: u64,
        /// What it decides.
        pub contents: PlanContents,
    }
}

stored!(Plan, Plan, |plan| {
    if plan.depth == 0 || (plan.depth == 1) != plan.parent.is_none() {
        return Err("depth and parent do not fit");
    }
    if plan.contents.end_sequence == 0 {
        return Err("it ends before the first entry");
    }
    if !plan.contents.stepped_over.is_sorted_by(|a, b| a < b) {
        return Err("entries stepped over are not in order");
    }
    if plan.contents.stepped_over.last().is_some_and(|&last| last > plan.contents.end_sequence) {
        return Err("it steps over an entry past its end");
    }
    Ok(())
});
