//! One checkpoint of an existing tree: add rows, balance in rounds, scrub, place secondaries, settle the nodes.
//!
//! A round is planned on the frozen tree in parallel, resolved in sequence by leaf id, and applied leaf by leaf.

mod add;
mod apply;
mod finish;
mod locate;
mod plan;
mod resolve;
mod scrub;
mod state;

use crate::build::{build, validate};
use crate::error::TreeError;
use crate::reader::Reader;
use crate::types::{Change, Env, Report, RowSet, Stage, Tree, TreeConfig};

pub(crate) use state::{State, append};

/// Rounds of a checkpoint; what is left over is legal.
const ROUNDS: u64 = 8;

/// Advances `tree` (change marks relative to its root are cleared first) by `new_rows` (ascending, in no leaf yet).
///
/// `dead` holds every dead row that may be in a leaf or in `new_rows`, newly dead ones included. Afterwards every
/// live row is the primary of exactly one leaf and the secondary of at most one other.
pub fn advance(
    cfg: &TreeConfig,
    mut tree: Tree,
    new_rows: &[u64],
    dead: &dyn RowSet,
    env: &Env<'_>,
) -> Result<(Tree, Report), TreeError> {
    validate(cfg, new_rows)?;
    tree.clear_changes();
    let rows: Vec<u64> = new_rows.iter().copied().filter(|&row| !dead.contains(row)).collect();
    if tree.leaves.is_empty() {
        let tree = build(cfg, &rows, env)?;
        let added = rows.len() as u64;
        return Ok((tree, Report { added, live: added, ..Report::default() }));
    }
    env.pool.install(|| {
        let mut state = State::new(cfg, Reader::new(cfg, env), dead, tree);
        state.remove_empty();
        state.add(&rows)?;
        state.balance()?;
        state.scrub()?;
        state.finish()
    })
}

impl State<'_> {
    /// Splits, merges and reassigns in rounds until nothing moves.
    pub fn balance(&mut self) -> Result<(), TreeError> {
        if self.tree.params.is_small() {
            return Ok(());
        }
        let mut waiting = Vec::new();
        for round in 0..ROUNDS {
            self.reader.env.report(Stage::Balance, round, ROUNDS);
            let routing = self.routing()?;
            let plan = plan::plan(self, &routing, round, &waiting)?;
            drop(routing);
            let mut resolved = resolve::resolve(self, plan);
            waiting = std::mem::take(&mut resolved.waiting);
            let still = resolved.is_still();
            self.apply(resolved)?;
            if still {
                break;
            }
            self.report.rounds += 1;
        }
        Ok(())
    }
}

/// Everything of a build is new.
pub(crate) fn mark_all(tree: &mut Tree) {
    for leaf in tree.leaves.values_mut() {
        leaf.change = Change::Rewritten;
    }
    for group in tree.groups.values_mut() {
        (group.changed, group.recoded) = (true, true);
    }
    for inner in tree.inners.values_mut() {
        (inner.changed, inner.recoded) = (true, true);
    }
}
