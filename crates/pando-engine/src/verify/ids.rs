//! Id runs: order, filters, and that they lead to exactly the live rows.

use pando_format::{IdKind, IdRun, Manifest, RecordId, RowSet, id_hash, merge_ids};

use super::{Findings, Held, pair_print};
use crate::checkpoint::Context;
use crate::error::Result;
use crate::rootio::{IdRunCursor, damaged, newest_first};

/// Every live row is what its id resolves to, and no other id resolves to a live row.
pub(super) fn verify(
    ctx: &Context,
    manifest: &Manifest,
    held: &Held,
    dead: &RowSet,
    found: &mut Findings,
) -> Result<()> {
    let mut whole = held.whole;
    for run in &manifest.id_runs {
        let blocks = found.noted(run_blocks(ctx, run))?;
        whole &= blocks.is_some();
        found.blocks += blocks.unwrap_or(0);
    }
    if !whole {
        return Ok(());
    }
    let (mut pairs, mut live) = (0u128, 0u64);
    for kind in [IdKind::U64, IdKind::Str] {
        let cursor = |run: &&IdRun| IdRunCursor::new(&ctx.io, ctx.waiter.clone(), run);
        let streams = newest_first(&manifest.id_runs, kind).iter().map(cursor).collect();
        for pair in merge_ids(streams) {
            let Some((id, row)) = found.noted(pair)? else { return Ok(()) };
            if held.rows.contains(row) && !dead.contains(row) {
                live += 1;
                pairs = pairs.wrapping_add(pair_print(id_hash(&id), row));
            }
        }
    }
    found.expect(live == manifest.counts.live && pairs == held.pairs, || {
        format!("ids lead to {live} live rows, not to the root's {} (or to others)", manifest.counts.live)
    });
    Ok(())
}

/// Reads a run's blocks; how many there are.
fn run_blocks(ctx: &Context, run: &IdRun) -> Result<u64> {
    let mut blocks = 0;
    let mut last: Option<RecordId> = None;
    let mut ids = 0;
    for part in &run.parts {
        ctx.check_cancel()?;
        let index = ctx.block(ctx.io.id_index(part))?;
        let refs: Vec<_> = index.blocks.iter().map(|b| b.block).collect();
        let read = ctx.block(ctx.io.id_blocks(&refs))?;
        blocks += 1 + read.len() as u64;
        for (entry, block) in index.blocks.iter().zip(&read) {
            if block.kind() != run.kind || block.len() != entry.ids as usize || block.is_empty() {
                return Err(damaged("ids: a block is not the one its index names"));
            }
            if block.id(0).to_id() != entry.first || last.as_ref().is_some_and(|last| *last >= entry.first) {
                return Err(damaged("ids: the blocks of a run are not in order"));
            }
            if !block.iter().all(|(id, _)| entry.filter.may_contain(id_hash(&id.to_id()))) {
                return Err(damaged("ids: a filter denies an id of its block"));
            }
            last = Some(block.id(block.len() - 1).to_id());
            ids += block.len() as u64;
        }
        if last.as_ref() != Some(&part.last) {
            return Err(damaged("ids: a part of a run does not end where the root says"));
        }
    }
    if ids == run.ids { Ok(blocks) } else { Err(damaged("ids: a run does not have its number of ids")) }
}
