//! Folds the entries of a plan: which rows survive, which ids are touched, what the log says of itself.
//!
//! The fold is total. What contradicts is skipped, the same way on every machine, and reported:
//! * an entry that does not begin at the running next row (nothing of it counts, its rows leave no trace);
//! * an entry whose attributes contradict the types that the log gave them before (its rows leave a hole);
//! * everything after a closing.
//!
//! After an entry that the plan steps over, the next row is taken from the entry that follows, if it does not go back.

use std::sync::Arc;

use pando_format::{
    AttributeSchema, Closing, Entry, Operation, PlanContents, RowSet, Rows, WindowKey, WindowNonce,
};

use super::collapse::{Collapse, Collapsed};
use super::context::Context;
use super::entries::{self, LoadedEntry};
use super::plan::Base;
use crate::error::Result;

/// What a plan comes to.
#[derive(Debug, Default)]
pub struct Folded {
    /// Last operation of each id.
    pub ids: Collapsed,
    /// Row number of the next entry's first record.
    pub next_row: u64,
    /// Rows of the log up to the plan's end.
    pub cumulative_rows: u64,
    /// Bytes of the log up to the plan's end.
    pub cumulative_bytes: u64,
    /// Attribute types, the parent's included.
    pub attributes: AttributeSchema,
    /// Nonces of the plan's entries.
    pub nonces: Vec<WindowNonce>,
    /// Their idempotency keys.
    pub keys: Vec<WindowKey>,
    /// The log is closed.
    pub closed: Option<Closing>,
    /// Entries whose rows count, ascending.
    pub taken: Vec<u64>,
    /// Bodies with the row number of their first record, when they all fit in the memory given.
    pub bodies: Option<Vec<(u64, Arc<Rows>)>>,
    /// What was skipped, in words.
    pub skipped: Vec<String>,
}

struct Folder {
    collapse: Collapse,
    stepped_over: bool,
    /// Bytes of records that may still be kept.
    memory: u64,
    done: Folded,
}

/// Folds the entries after `base` up to the plan's end. `attributes`: the parent root's. The decoded records are kept
/// while they take at most `memory` bytes.
pub fn fold(
    ctx: &Context,
    base: &Base,
    plan: &PlanContents,
    attributes: AttributeSchema,
    memory: u64,
) -> Result<Folded> {
    let mut folder = Folder {
        collapse: Collapse::default(),
        stepped_over: false,
        memory,
        done: Folded {
            next_row: base.next_row,
            cumulative_rows: base.cumulative_rows,
            cumulative_bytes: base.cumulative_bytes,
            attributes,
            bodies: Some(Vec::new()),
            ..Folded::default()
        },
    };
    let (first, total) = (base.sequence + 1, plan.end_sequence - base.sequence);
    let stepped = |sequence: &u64| plan.stepped_over.binary_search(sequence).is_ok();
    let read = (first..=plan.end_sequence).filter(|s| !stepped(s));
    ctx.block(entries::for_each(&ctx.io, read, |loaded| {
        ctx.check_cancel()?;
        let sequence = loaded.entry.sequence;
        folder.stepped_over |= sequence > first && stepped(&(sequence - 1));
        folder.entry(loaded);
        ctx.report("reading the log", sequence - base.sequence, total);
        Ok(())
    }))?;
    for line in &folder.done.skipped {
        tracing::error!(collection = %ctx.io.record().uuid, "{line}");
    }
    let Folder { collapse, mut done, .. } = folder;
    done.ids = collapse.finish(done.next_row);
    Ok(done)
}

impl Folder {
    fn entry(&mut self, loaded: LoadedEntry) {
        let LoadedEntry { entry, bodies } = loaded;
        let sequence = entry.sequence;
        if self.done.closed.is_some() {
            return self
                .done
                .skipped
                .push(format!("log entry {sequence} follows the closing of the collection"));
        }
        let resumes = std::mem::take(&mut self.stepped_over) && entry.first_row > self.done.next_row;
        if entry.first_row != self.done.next_row && !resumes {
            let (is, due) = (entry.first_row, self.done.next_row);
            return self.done.skipped.push(format!("log entry {sequence} begins at row {is}, not at {due}"));
        }
        self.done.next_row = entry.next_row();
        self.done.cumulative_rows = entry.cumulative_rows;
        self.done.cumulative_bytes = entry.cumulative_bytes;
        self.done.nonces.push(WindowNonce { sequence, nonce: entry.nonce });
        self.done.keys.extend(entry.keys.iter().map(|key| WindowKey { sequence, record: key.clone() }));
        let mut attributes = self.done.attributes.clone();
        if let Err(e) = bodies.iter().try_for_each(|rows| attributes.add_all(rows.fields())) {
            return self.done.skipped.push(format!("log entry {sequence} contradicts earlier ones: {e}"));
        }
        self.done.attributes = attributes;
        self.operations(&entry, &bodies);
        if !bodies.is_empty() {
            self.done.taken.push(sequence);
        }
        self.keep(&entry, bodies);
    }

    /// Keeps an entry's records, or gives up on keeping any.
    fn keep(&mut self, entry: &Entry, bodies: Vec<Arc<Rows>>) {
        let Some(kept) = &mut self.done.bodies else { return };
        match self.memory.checked_sub(entry.bodies.iter().map(|b| b.len).sum()) {
            Some(left) => {
                self.memory = left;
                kept.extend(bodies.into_iter().enumerate().map(|(i, rows)| (entry.first_row_of(i), rows)));
            }
            None => self.done.bodies = None,
        }
    }

    fn operations(&mut self, entry: &Entry, bodies: &[Arc<Rows>]) {
        for operation in &entry.operations {
            match operation {
                Operation::Upsert { body, from, to } => {
                    let first = entry.first_row_of(*body as usize);
                    let rows = &bodies[*body as usize];
                    for place in *from..*to {
                        self.collapse.upsert(&rows.ids()[place as usize], first + u64::from(place));
                    }
                }
                Operation::DeleteIds(ids) => ids.iter().for_each(|id| self.collapse.delete(id)),
                Operation::DeleteRows(rows) => {
                    let mut rows: RowSet = rows.clone();
                    rows.remove_range(self.done.next_row..);
                    self.collapse.kill(&rows);
                }
                Operation::Closed(closing) => {
                    self.done.closed = Some(*closing);
                    break;
                }
                Operation::Purge(_) => {}
            }
        }
    }
}
