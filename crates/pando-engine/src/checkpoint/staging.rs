//! The rows that a plan adds, until their segment is written for good: in memory when they fit a share of the budget,
//! else as a segment of their own that is read back.

use std::sync::Arc;

use pando_format::{AttributeSchema, RowSet, Rows};

use super::context::Context;
use super::entries;
use super::fold::Folded;
use super::segments::{Written, write_segment};
use crate::error::Result;
use crate::rootio::SegmentReader;

/// Where the new rows are.
pub enum Staged {
    /// No row survives.
    Nothing,
    /// Bodies with the row number of their first record, ascending.
    Memory(Vec<(u64, Arc<Rows>)>),
    /// Written and stored.
    Stored(Written, Arc<SegmentReader>),
}

/// Stages the surviving rows of a fold.
pub fn stage(ctx: &Context, folded: &mut Folded) -> Result<Staged> {
    if folded.ids.survivors.is_empty() {
        folded.bodies = None;
        return Ok(Staged::Nothing);
    }
    if let Some(bodies) = folded.bodies.take() {
        return Ok(Staged::Memory(bodies));
    }
    let survivors = &folded.ids.survivors;
    let taken = folded.taken.iter().copied();
    let written = write_segment(ctx, &folded.attributes, |writer| {
        ctx.block(entries::for_each(&ctx.io, taken, |loaded| {
            ctx.check_cancel()?;
            for (i, rows) in loaded.bodies.iter().enumerate() {
                writer.push_some(loaded.entry.first_row_of(i), rows, survivors)?;
            }
            ctx.report("writing rows", writer.rows(), survivors.len());
            Ok(())
        }))
    })?;
    let Some(written) = written else { return Ok(Staged::Nothing) };
    let reader = SegmentReader::with_side(&ctx.io, &written.object, written.side.clone());
    Ok(Staged::Stored(written, Arc::new(reader)))
}

impl Staged {
    /// The new rows' segment as it is when nothing is merged into it.
    pub fn into_written(
        self,
        ctx: &Context,
        attributes: &AttributeSchema,
        survivors: &RowSet,
    ) -> Result<Option<Written>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Stored(written, _) => Ok(Some(written)),
            Self::Memory(bodies) => write_segment(ctx, attributes, |writer| {
                bodies.iter().try_for_each(|(first, rows)| writer.push_some(*first, rows, survivors))
            }),
        }
    }
}
