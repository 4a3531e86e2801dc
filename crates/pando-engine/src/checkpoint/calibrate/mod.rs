//! The table of stopping margins: computed from the blocks as they were stored, or carried over.

mod leaves;

use std::collections::HashMap;
use std::sync::Arc;

use pando_format::Calibration;
use pando_tree::search::calibrate::{K_STEPS, TARGETS, calibrate, sample_rows};
use pando_tree::search::{Frame, NavBuilder};
use pando_tree::{Tree, VectorSource};

use self::leaves::Leaves;
use super::constants::CALIBRATE_PART;
use super::context::Context;
use super::vectors::tree_error;
use crate::error::Result;
use crate::rootio::NodeLevels;

/// The parent's table with the plan's changes counted, if it still holds: fewer than a tenth of the rows changed since
/// it was computed.
pub fn carried(parent: Option<&Calibration>, changed: u64) -> Option<Calibration> {
    let old = parent.filter(|c| !c.margins.is_empty())?;
    let changed = old.changed.saturating_add(changed);
    (changed.saturating_mul(CALIBRATE_PART) < old.rows).then(|| Calibration { changed, ..old.clone() })
}

/// Computes the table of a root whose blocks are stored. `live`: its live rows.
pub fn compute(
    ctx: &Context,
    frame: Arc<Frame>,
    tree: &Tree,
    nodes: &NodeLevels,
    live: &dyn Fn() -> Box<dyn Iterator<Item = u64>>,
    live_count: u64,
    dead: &(dyn Fn(u64) -> bool + Sync),
    vectors: &dyn VectorSource,
) -> Result<Calibration> {
    let mut nav = NavBuilder::new(frame);
    for (level, list) in nodes.levels.iter().enumerate() {
        for node in list {
            let c = &node.codes;
            nav.push_node(level, c.codes(), c.w(), c.add(), c.r2()).map_err(tree_error)?;
        }
    }
    let nav = nav.finish().map_err(tree_error)?;
    let mut sample = sample_rows(ctx.tree_config.seed, live(), live_count);
    // Neighbours one after the other: they ask for the same leaves.
    let place = places(tree, nodes, &sample);
    sample.sort_by_key(|row| (place.get(row).copied(), *row));
    ctx.report("calibrating", 0, sample.len() as u64);
    let leaves = Leaves::new(ctx, nodes, ctx.memory / 2)?;
    let table =
        calibrate(&nav, &sample, &leaves, vectors, &|row: u64| dead(row), &ctx.pool).map_err(tree_error)?;
    Ok(Calibration {
        rows: live_count,
        changed: 0,
        ks: K_STEPS.iter().map(|k| *k as u32).collect(),
        targets: TARGETS.iter().map(|t| (f64::from(*t) * 1e6).round() as u32).collect(),
        margins: table.margins.concat(),
    })
}

/// Place of each row's primary leaf among the stored leaves.
fn places(tree: &Tree, nodes: &NodeLevels, rows: &[u64]) -> HashMap<u64, usize> {
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    let mut out = HashMap::new();
    let groups = nodes.groups().iter().filter_map(|node| tree.groups.get(&node.refs.id));
    for (at, leaf) in groups.flat_map(|group| &group.leaves).enumerate() {
        let primaries = tree.leaves.get(leaf).map_or(&[][..], |l| &l.primaries);
        out.extend(primaries.iter().filter(|row| sorted.binary_search(row).is_ok()).map(|row| (*row, at)));
    }
    out
}
