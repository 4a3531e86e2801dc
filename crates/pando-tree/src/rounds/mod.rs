//! One checkpoint of an existing tree: add rows, balance in rounds, scrub, place secondaries.

use crate::error::TreeError;
use crate::types::{Env, Report, RowSet, Tree, TreeConfig};

/// Advances `tree` (change marks relative to its root are cleared first) by `new_rows` (ascending, in no leaf yet).
///
/// `dead` holds every dead row that may be in a leaf or in `new_rows`, newly dead ones included.
pub fn advance(
    _cfg: &TreeConfig,
    _tree: Tree,
    _new_rows: &[u64],
    _dead: &dyn RowSet,
    _env: &Env<'_>,
) -> Result<(Tree, Report), TreeError> {
    Err(TreeError::Invalid("not built yet".into()))
}
