//! Segments: checked reads of computed ranges, and where each row lies.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use pando_format::{PAGE_BYTES, SegmentBatch, SegmentEntry, SegmentPayload, SegmentSide, Stored};
use pando_store::Key;

use super::RootIo;
use super::error::{damaged, stored, undecodable};
use crate::error::Result;

/// Reads one segment. Every byte is checked against its page's checksum before it is used.
#[derive(Debug)]
pub struct SegmentReader {
    io: RootIo,
    key: Key,
    side: SegmentSide,
}

impl SegmentReader {
    /// Opens a segment by its manifest entry: reads the side block and checks that they agree.
    pub async fn open(io: &RootIo, entry: &SegmentEntry) -> Result<Self> {
        let side = io.block(&entry.side).await?;
        let side = SegmentSide::decode(&side).map_err(|e| undecodable(e, entry.side.pack))?;
        if (side.bytes, side.rows, side.first_row, side.last_row)
            != (entry.bytes, entry.rows, entry.first_row, entry.last_row)
            || side.dim != io.record().config.dim
        {
            return Err(damaged("segment: side block and manifest disagree"));
        }
        Ok(Self { io: io.clone(), key: io.segment_key(&entry.object), side })
    }

    /// A segment whose side block is at hand, such as one that was just written.
    pub fn with_side(io: &RootIo, object: &pando_format::ObjectRef, side: SegmentSide) -> Self {
        Self { io: io.clone(), key: io.segment_key(object), side }
    }

    /// Where its rows lie.
    pub fn side(&self) -> &SegmentSide {
        &self.side
    }

    /// Whole pages: `pages` counts pages of 16 KiB from the start of the file, the last one may be shorter.
    pub async fn pages(&self, pages: Range<u64>) -> Result<Bytes> {
        let start = pages.start * PAGE_BYTES;
        let range = start..(pages.end * PAGE_BYTES).min(self.side.bytes);
        let mut bytes = self.io.store().get_range(&self.key, range.clone()).await.map_err(stored)?;
        if self.side.check_pages(start, &bytes).is_err() {
            // Perhaps damaged on the way: read once more before it counts as damaged.
            tracing::warn!(key = %self.key, start, "segment pages fail their checksums; reading them again");
            bytes = self.io.store().get_range(&self.key, range).await.map_err(stored)?;
            self.side.check_pages(start, &bytes).map_err(|e| undecodable(e, &self.key))?;
        }
        Ok(bytes)
    }

    /// Several runs of whole pages with one request; otherwise as [`SegmentReader::pages`].
    pub async fn page_runs(&self, runs: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let ranges: Vec<Range<u64>> =
            runs.iter().map(|p| p.start * PAGE_BYTES..(p.end * PAGE_BYTES).min(self.side.bytes)).collect();
        let mut parts = self.io.store().get_ranges(&self.key, &ranges).await.map_err(stored)?;
        for (i, part) in parts.iter_mut().enumerate() {
            if self.side.check_pages(ranges[i].start, part).is_err() {
                *part = self.pages(runs[i].clone()).await?;
            }
        }
        Ok(parts)
    }

    /// Any byte range: its pages are read and checked.
    pub async fn range(&self, range: Range<u64>) -> Result<Bytes> {
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let first = pages.start * PAGE_BYTES;
        let bytes = self.pages(pages).await?;
        Ok(bytes.slice((range.start - first) as usize..(range.end - first) as usize))
    }

    /// Several byte ranges with one request: their pages are read and checked.
    pub async fn ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let pages = |range: &Range<u64>| range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let runs: Vec<Range<u64>> = ranges.iter().map(pages).collect();
        let read = self.page_runs(&runs).await?;
        let cut = |(range, bytes): (&Range<u64>, Bytes)| {
            let first = range.start / PAGE_BYTES * PAGE_BYTES;
            bytes.slice((range.start - first) as usize..(range.end - first) as usize)
        };
        Ok(ranges.iter().zip(read).map(cut).collect())
    }

    /// Key of the segment.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The store that it is read from.
    pub fn store(&self) -> &pando_store::Store {
        self.io.store()
    }

    /// A whole record batch.
    pub async fn batch(&self, batch: usize) -> Result<SegmentBatch> {
        let bytes = self.range(self.side.batch_range(batch)).await?;
        self.side.decode_batch(batch, &bytes).map_err(|e| undecodable(e, &self.key))
    }

    /// All vectors of a record batch, appended to `out` row-major.
    pub async fn vectors(&self, batch: usize, out: &mut Vec<f32>) -> Result<()> {
        let bytes = self.range(self.side.vectors_range(batch)).await?;
        let at = out.len();
        out.resize(at + bytes.len() / 4, 0.0);
        SegmentSide::decode_vector(&bytes, &mut out[at..]).map_err(|e| undecodable(e, &self.key))
    }

    /// Row numbers of a record batch.
    pub async fn row_numbers(&self, batch: usize) -> Result<Vec<u64>> {
        let bytes = self.range(self.side.row_numbers_range(batch)).await?;
        Ok(SegmentSide::decode_u64s(&bytes))
    }

    /// Ids and attributes of a record batch.
    pub async fn payload(&self, batch: usize) -> Result<SegmentPayload> {
        let [meta, payload] = self.side.payload_ranges(batch);
        let (meta, payload) = tokio::try_join!(self.range(meta), self.range(payload))?;
        self.side.decode_payload(batch, &meta, &payload).map_err(|e| undecodable(e, &self.key))
    }
}

/// The segments of a root, in row order: from row numbers to places.
#[derive(Clone, Debug, Default)]
pub struct SegmentTable {
    segments: Vec<Arc<SegmentReader>>,
}

impl SegmentTable {
    /// Opens every segment of a manifest.
    pub async fn open(io: &RootIo, entries: &[SegmentEntry]) -> Result<Self> {
        let open = entries.iter().map(|entry| SegmentReader::open(io, entry));
        let segments = futures::future::try_join_all(open).await?;
        Ok(Self { segments: segments.into_iter().map(Arc::new).collect() })
    }

    /// Adds a segment whose rows follow all others.
    pub fn push(&mut self, segment: Arc<SegmentReader>) {
        self.segments.push(segment);
    }

    /// The segments.
    pub fn segments(&self) -> &[Arc<SegmentReader>] {
        &self.segments
    }

    /// Segment and position in it of a row; `None` when no segment holds it.
    pub fn locate(&self, row: u64) -> Option<(usize, u64)> {
        let at = self.segments.partition_point(|s| s.side.last_row < row);
        let position = self.segments.get(at)?.side.position(row)?;
        Some((at, position))
    }
}
