//! Segments: bytes, rows, ids.

use pando_format::{Manifest, PAGE_BYTES, RecordId, RowSet, id_hash};

use super::{Findings, Held, pair_print};
use crate::checkpoint::{Context, rows_of};
use crate::error::Result;
use crate::rootio::{SegmentReader, SegmentTable, damaged};

/// Pages read at a time.
const PAGES: u64 = 256;

/// Reads every segment to the end.
pub(super) fn verify(
    ctx: &Context,
    manifest: &Manifest,
    table: &SegmentTable,
    dead: &RowSet,
    found: &mut Findings,
) -> Result<Held> {
    let mut held = Held { rows: RowSet::new(), pairs: 0, whole: true };
    let total = manifest.segments.len() as u64;
    for (i, (entry, segment)) in manifest.segments.iter().zip(table.segments()).enumerate() {
        ctx.report("verifying segments", i as u64, total);
        let rows = rows_of(segment.side());
        let live = entry.rows - rows.intersection_len(dead);
        found.expect(live == entry.live_rows, || {
            format!("a segment has {live} live rows, the root says {}", entry.live_rows)
        });
        held.rows |= &rows;
        held.whole &= found.noted(whole_file(ctx, segment, &entry.object.hash.0))?.is_some();
        for batch in 0..segment.side().batches.len() {
            let read = batch_rows(ctx, segment, batch, dead);
            match found.noted(read)? {
                Some(pairs) => held.pairs = held.pairs.wrapping_add(pairs),
                None => held.whole = false,
            }
        }
    }
    let live = held.rows.len() - held.rows.intersection_len(dead);
    found.expect(live == manifest.counts.live, || {
        format!("{live} rows of the segments are live, the root counts {}", manifest.counts.live)
    });
    Ok(held)
}

/// The file has its pages' checksums and the hash that it is named by.
fn whole_file(ctx: &Context, segment: &SegmentReader, hash: &[u8; 32]) -> Result<()> {
    let pages = segment.side().bytes.div_ceil(PAGE_BYTES);
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    while at < pages {
        ctx.check_cancel()?;
        let end = pages.min(at + PAGES);
        hasher.update(&ctx.block(segment.pages(at..end))?);
        at = end;
    }
    if hasher.finalize().as_bytes() == hash {
        Ok(())
    } else {
        Err(damaged("segment: it is not the one it is named as"))
    }
}

/// Decodes a batch and compares it with the side block; the sum of its live pairs.
fn batch_rows(ctx: &Context, segment: &SegmentReader, batch: usize, dead: &RowSet) -> Result<u128> {
    ctx.check_cancel()?;
    let read = ctx.block(segment.batch(batch))?;
    let side = segment.side();
    let first = batch as u64 * u64::from(side.rows_per_batch);
    let mut pairs = 0u128;
    for (i, (row, hash)) in read.numbers.iter().zip(&read.id_hashes).enumerate() {
        let id: &RecordId = &read.rows.ids()[i];
        if side.position(*row) != Some(first + i as u64) {
            return Err(damaged("segment: a row is not where its side block says"));
        }
        if id_hash(id) != *hash {
            return Err(damaged("segment: the hash of an id is wrong"));
        }
        if !dead.contains(*row) {
            pairs = pairs.wrapping_add(pair_print(*hash, *row));
        }
    }
    read.rows.validate(ctx.config().metric).map_err(|e| damaged(format!("segment: {e}")))?;
    Ok(pairs)
}
