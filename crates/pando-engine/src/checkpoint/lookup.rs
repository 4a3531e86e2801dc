//! Rows of the parent root that a plan replaces or deletes.

use pando_format::{IdKind, IdView, Manifest, RowSet};

use super::collapse::Collapsed;
use super::context::Context;
use crate::error::Result;
use crate::rootio::{SegmentTable, damaged};

/// Ids looked up at a time.
const CHUNK: usize = 1 << 18;

/// Rows that live in the parent root and die by this plan: the newest row of every id that the plan touches, and rows
/// killed by their number.
pub fn newly_dead(
    ctx: &Context,
    parent: &Manifest,
    segments: &SegmentTable,
    dead: &RowSet,
    ids: &Collapsed,
) -> Result<RowSet> {
    let lives = |row: u64| !dead.contains(row) && segments.locate(row).is_some();
    let mut found = RowSet::new();
    let mut done = 0;
    let mut look_up = |kind: IdKind, chunk: &[IdView<'_>]| -> Result<()> {
        ctx.check_cancel()?;
        let rows = ctx.block(ctx.io.lookup_sorted(&parent.id_runs, kind, chunk))?;
        for row in rows.into_iter().flatten().filter(|row| lives(*row)) {
            if !found.insert(row) {
                return Err(damaged("ids: two ids have the same row"));
            }
        }
        done += chunk.len();
        ctx.report("looking up ids", done as u64, ids.len() as u64);
        Ok(())
    };
    let mut chunk: Vec<IdView<'_>> = Vec::with_capacity(CHUNK.min(ids.len()));
    for (kind, views) in [
        (IdKind::U64, Box::new(ids.ints().map(IdView::U64)) as Box<dyn Iterator<Item = IdView<'_>>>),
        (IdKind::Str, Box::new(ids.strs().map(IdView::Str))),
    ] {
        for view in views {
            chunk.push(view);
            if chunk.len() == CHUNK {
                look_up(kind, &chunk)?;
                chunk.clear();
            }
        }
        if !chunk.is_empty() {
            look_up(kind, &chunk)?;
            chunk.clear();
        }
    }
    let mut by_number = ids.killed.clone();
    by_number.remove_range(parent.next_row..);
    found.extend(by_number.iter().filter(|row| lives(*row)));
    Ok(found)
}
