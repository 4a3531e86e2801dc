//! The first build of a tree, and every later one that starts anew.

use crate::error::TreeError;
use crate::types::{Env, Tree, TreeConfig};

/// Whether the next checkpoint builds the tree anew instead of advancing it.
///
/// `live_before` and `live_after` are the live rows of the parent root and of the plan's end.
pub fn should_rebuild(cfg: &TreeConfig, tree: &Tree, live_before: u64, live_after: u64) -> bool {
    if tree.leaves.is_empty() {
        return live_after > 0;
    }
    if tree.params.is_small() {
        return live_after > cfg.small_limit;
    }
    live_after >= live_before.saturating_mul(2) || live_after <= cfg.small_limit / 2
}

/// Builds the tree of `live_rows` (ascending, no duplicates) from nothing.
pub fn build(_cfg: &TreeConfig, _live_rows: &[u64], _env: &Env<'_>) -> Result<Tree, TreeError> {
    Err(TreeError::Invalid("not built yet".into()))
}
