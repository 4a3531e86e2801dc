//! Segments of the new root: the new rows', merged ones, kept ones.

use pando_format::{
    AttributeSchema, BlockRef, Hash, Manifest, ObjectRef, PackKind, RowSet, Rows, SegmentEntry, SegmentSide,
    SegmentWriter, Stored,
};
use pando_store::{ObjectKind, ObjectWriter};

use super::context::Context;
use super::live::Condemned;
use super::merge_plan::{SegmentSize, merges};
use super::packs::{Packs, Ticket};
use super::staging::Staged;
use crate::error::{Error, Result};
use crate::rootio::{SegmentReader, SegmentTable, stored};

/// A segment that was written and stored.
pub struct Written {
    pub object: ObjectRef,
    pub side: SegmentSide,
}

/// A segment being written.
pub struct Writer(SegmentWriter<ObjectWriter>);

fn writing(e: pando_format::FormatError) -> Error {
    Error::internal(format!("writing a segment: {e}"))
}

impl Writer {
    /// Adds those records of a body that are among `wanted`; record `i` is row `first + i`.
    pub fn push_some(&mut self, first: u64, rows: &Rows, wanted: &RowSet) -> Result<()> {
        let numbers: Vec<u64> =
            (first..first + rows.len() as u64).filter(|row| wanted.contains(*row)).collect();
        self.push(&numbers, rows, |row| (row - first) as u32)
    }

    fn push(&mut self, numbers: &[u64], rows: &Rows, place: impl Fn(u64) -> u32) -> Result<()> {
        if numbers.len() == rows.len() {
            return self.0.push(numbers, rows).map_err(writing);
        }
        if numbers.is_empty() {
            return Ok(());
        }
        let places: Vec<u32> = numbers.iter().map(|row| place(*row)).collect();
        self.0.push(numbers, &rows.take(&places)).map_err(writing)
    }

    /// Adds the rows of another segment that are not to be dropped.
    fn push_segment(&mut self, ctx: &Context, segment: &SegmentReader, drop: &RowSet) -> Result<()> {
        for i in 0..segment.side().batches.len() {
            ctx.check_cancel()?;
            let batch = ctx.block(segment.batch(i))?;
            let keep = |row: &u64| !drop.contains(*row);
            let numbers: Vec<u64> = batch.numbers.iter().copied().filter(keep).collect();
            let place = |row: u64| batch.numbers.partition_point(|r| *r < row) as u32;
            self.push(&numbers, &batch.rows, place)?;
        }
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.0.rows()
    }
}

/// Writes and stores a segment of the rows that `fill` adds in ascending order; nothing if it adds none.
pub fn write_segment(
    ctx: &Context,
    attributes: &AttributeSchema,
    fill: impl FnOnce(&mut Writer) -> Result<()>,
) -> Result<Option<Written>> {
    let sink = ctx.io.store().writer(ObjectKind::Segment).map_err(stored)?;
    let mut writer = Writer(SegmentWriter::new(sink, ctx.dim(), attributes).map_err(writing)?);
    fill(&mut writer)?;
    if writer.rows() == 0 {
        return Ok(None);
    }
    let (sink, summary, side) = writer.0.finish().map_err(writing)?;
    let object = ObjectRef { depth: ctx.depth, hash: Hash(sink.hash()) };
    if object.hash != summary.hash {
        return Err(Error::internal("a segment's writer and its file disagree on its hash"));
    }
    ctx.block(sink.finish(&ctx.io.segment_key(&object))).map_err(stored)?;
    Ok(Some(Written { object, side }))
}

/// Where a segment's side block lies.
enum SidePlace {
    Kept(BlockRef),
    New(Ticket),
}

/// A segment of the root being made.
pub struct Draft {
    entry: SegmentEntry,
    side: SidePlace,
}

impl Draft {
    /// The manifest's entry, once packs are sealed.
    pub fn entry(self, packs: &Packs<'_>) -> Result<SegmentEntry> {
        let side = match self.side {
            SidePlace::Kept(block) => block,
            SidePlace::New(ticket) => packs.resolve(ticket)?,
        };
        Ok(SegmentEntry { side, ..self.entry })
    }
}

/// The segments of the new root, and all rows in them.
pub struct Segments {
    pub drafts: Vec<Draft>,
    pub rows: RowSet,
}

/// What decides about segments.
pub struct Change<'a> {
    pub parent: Option<&'a Manifest>,
    /// The parent's segments.
    pub old: &'a SegmentTable,
    /// New rows.
    pub survivors: &'a RowSet,
    /// All dead rows.
    pub dead: &'a RowSet,
    /// Dead rows that are in no leaf: a segment that is written anew leaves them out.
    pub droppable: &'a RowSet,
    /// The collection is one leaf.
    pub small: bool,
    pub attributes: &'a AttributeSchema,
    /// Packs whose blocks are to move.
    pub condemned: &'a Condemned,
}

/// Writes the new rows' segment and whatever is to be merged.
pub fn write(ctx: &Context, change: &Change<'_>, staged: Staged, packs: &mut Packs<'_>) -> Result<Segments> {
    let old = change.old.segments();
    let held: Vec<RowSet> = old.iter().map(|s| rows_of(s.side())).collect();
    let mut sizes: Vec<SegmentSize> = held
        .iter()
        .map(|rows| SegmentSize { rows: rows.len(), droppable: rows.intersection_len(change.droppable) })
        .collect();
    if !change.survivors.is_empty() {
        sizes.push(SegmentSize { rows: change.survivors.len(), droppable: 0 });
    }
    let runs = merges(&sizes, change.small, 4 * ctx.dim() as u64);
    let mut out = Segments { drafts: Vec::new(), rows: RowSet::new() };
    let mut staged = Some(staged);
    let (mut at, mut next) = (0, 0);
    while at < sizes.len() {
        ctx.report("writing segments", at as u64, sizes.len() as u64);
        let run = runs.get(next).filter(|run| run.start == at);
        if run.is_none() && at < old.len() {
            out.keep(ctx, change, at, &held[at], packs)?;
            at += 1;
            continue;
        }
        let run = run.cloned().unwrap_or(at..at + 1);
        next += usize::from(runs.get(next) == Some(&run));
        let new = if run.end > old.len() { staged.take() } else { None };
        let written = match new {
            Some(new) if run.len() == 1 => new.into_written(ctx, change.attributes, change.survivors)?,
            new => merge(ctx, change, &old[run.start..run.end.min(old.len())], new)?,
        };
        if let Some(written) = written {
            out.add(change, written, packs)?;
        }
        at = run.end;
    }
    Ok(out)
}

fn merge(
    ctx: &Context,
    change: &Change<'_>,
    old: &[std::sync::Arc<SegmentReader>],
    new: Option<Staged>,
) -> Result<Option<Written>> {
    write_segment(ctx, change.attributes, |writer| {
        for segment in old {
            writer.push_segment(ctx, segment, change.droppable)?;
        }
        match new {
            None | Some(Staged::Nothing) => Ok(()),
            Some(Staged::Stored(_, reader)) => writer.push_segment(ctx, &reader, change.droppable),
            Some(Staged::Memory(bodies)) => {
                bodies.iter().try_for_each(|(first, rows)| writer.push_some(*first, rows, change.survivors))
            }
        }
    })
}

/// Row numbers of a segment.
pub fn rows_of(side: &SegmentSide) -> RowSet {
    let mut rows = RowSet::new();
    rows.insert_range(side.first_row..=side.last_row);
    rows - &side.holes
}

impl Segments {
    fn keep(
        &mut self,
        ctx: &Context,
        change: &Change<'_>,
        at: usize,
        rows: &RowSet,
        packs: &mut Packs<'_>,
    ) -> Result<()> {
        let entries = change.parent.map_or(&[][..], |p| &p.segments);
        let mut entry = entries[at].clone();
        entry.live_rows = entry.rows - rows.intersection_len(change.dead);
        let side = match change.condemned.has(&entry.side.pack) {
            true => SidePlace::New(packs.append(PackKind::Side, &ctx.block(ctx.io.block(&entry.side))?)?),
            false => SidePlace::Kept(entry.side),
        };
        self.rows |= rows;
        self.drafts.push(Draft { entry, side });
        Ok(())
    }

    fn add(&mut self, change: &Change<'_>, written: Written, packs: &mut Packs<'_>) -> Result<()> {
        let Written { object, side } = written;
        let rows = rows_of(&side);
        let block = side.encode().map_err(|e| Error::internal(format!("encoding a side block: {e}")))?;
        let ticket = packs.append(PackKind::Side, &block)?;
        let entry = SegmentEntry {
            object,
            bytes: side.bytes,
            rows: side.rows,
            live_rows: side.rows - rows.intersection_len(change.dead),
            first_row: side.first_row,
            last_row: side.last_row,
            side: BlockRef { pack: ObjectRef::SELF, offset: 0, len: 0, hash: Hash::default() },
            indexes: Vec::new(),
        };
        self.rows |= rows;
        self.drafts.push(Draft { entry, side: SidePlace::New(ticket) });
        Ok(())
    }
}
