//! The side block of a segment: where each record batch lies, which row numbers are missing, and the CRC32C
//! of each 16 KiB page. With it every read of a segment is one computed range, checked by its pages.

use std::ops::Range;

use crate::codec::{Bad, code, record};
use crate::envelope::stored;
use crate::error::{FormatError, ObjectKind};
use crate::object::config::MAX_DIMENSION;
use crate::row_set::RowSet;
use crate::segment::PAGE_BYTES;
use crate::value::AttributeField;

/// Which ids occur in a record batch; decides which validity bitmaps are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchIds {
    /// Integers only.
    Numbers,
    /// Strings only.
    Strings,
    /// Both.
    Mixed,
}

code!(BatchIds { BatchIds::Numbers = 0, BatchIds::Strings = 1, BatchIds::Mixed = 2 });

record! {
    /// Where a record batch lies.
    #[derive(Copy, Eq)]
    pub struct BatchPlace {
        /// Offset of its message in the file.
        pub offset: u64,
        /// Length of the message's metadata, framing and padding included.
        pub meta_len: u32,
        /// Length of the message's body.
        pub body_len: u64,
        /// Which ids occur.
        pub ids: BatchIds,
        /// Bytes of string ids.
        pub text: u32,
    }
}

record! {
    /// Side block of a segment.
    pub struct SegmentSide {
        /// Elements of a vector.
        pub dim: u32,
        /// Rows of each record batch but the last.
        pub rows_per_batch: u32,
        /// Attribute columns, sorted by name.
        pub attributes: Vec<AttributeField>,
        /// Length of the segment.
        pub bytes: u64,
        /// Rows in it.
        pub rows: u64,
        /// First row number.
        pub first_row: u64,
        /// Last row number.
        pub last_row: u64,
        /// Row numbers between first and last that are not in it.
        pub holes: RowSet,
        /// Its record batches.
        pub batches: Vec<BatchPlace>,
        /// CRC32C of each page of 16 KiB; the last page may be shorter.
        pub page_crcs: Vec<u32>,
    }
}

const fn pad(n: u64) -> u64 {
    n.next_multiple_of(64)
}

/// Offsets of buffers in a record batch's body.
pub(crate) struct BodyLayout {
    pub(crate) id_hash: u64,
    pub(crate) vector: u64,
    pub(crate) ids: u64,
    pub(crate) number_valid: Option<u64>,
    pub(crate) numbers: u64,
    pub(crate) string_offsets: u64,
    pub(crate) text: u64,
    pub(crate) attributes: u64,
}

impl BodyLayout {
    fn new(dim: u64, n: u64, place: &BatchPlace) -> Self {
        let bitmap = pad(n.div_ceil(8));
        let id_hash = pad(8 * n);
        let vector = 2 * pad(8 * n);
        let ids = vector + pad(4 * dim * n);
        let has_strings = place.ids != BatchIds::Numbers;
        let has_numbers = place.ids != BatchIds::Strings;
        let numbers = ids + if has_strings { bitmap } else { 0 };
        let string_valid = numbers + pad(8 * n);
        let string_offsets = string_valid + if has_numbers { bitmap } else { 0 };
        let text = string_offsets + pad(4 * (n + 1));
        Self {
            id_hash,
            vector,
            ids,
            number_valid: has_strings.then_some(ids),
            numbers,
            string_offsets,
            text,
            attributes: text + pad(u64::from(place.text)),
        }
    }
}

impl SegmentSide {
    /// Position of a row in the segment, from 0; None when it is not in it.
    pub fn position(&self, row: u64) -> Option<u64> {
        if row < self.first_row || row > self.last_row || self.holes.contains(row) {
            return None;
        }
        let holes = if self.holes.is_empty() { 0 } else { self.holes.rank(row) };
        Some(row - self.first_row - holes)
    }

    /// Record batch of a position, and the index in that batch.
    pub fn batch_of(&self, position: u64) -> (usize, usize) {
        let size = u64::from(self.rows_per_batch);
        ((position / size) as usize, (position % size) as usize)
    }

    /// Rows of record batch `batch`.
    pub fn batch_rows(&self, batch: usize) -> usize {
        let size = u64::from(self.rows_per_batch);
        (self.rows - batch as u64 * size).min(size) as usize
    }

    pub(crate) fn layout(&self, batch: usize) -> BodyLayout {
        BodyLayout::new(u64::from(self.dim), self.batch_rows(batch) as u64, &self.batches[batch])
    }

    fn body(&self, batch: usize) -> u64 {
        self.batches[batch].offset + u64::from(self.batches[batch].meta_len)
    }

    /// Bytes of the vector at a position: 4 × dim bytes, little-endian f32. Panics past the last position.
    pub fn vector_range(&self, position: u64) -> Range<u64> {
        let (batch, index) = self.batch_of(position);
        let size = 4 * u64::from(self.dim);
        let start = self.body(batch) + self.layout(batch).vector + index as u64 * size;
        start..start + size
    }

    /// Bytes of all vectors of a record batch, row-major.
    pub fn vectors_range(&self, batch: usize) -> Range<u64> {
        let start = self.body(batch) + self.layout(batch).vector;
        start..start + 4 * u64::from(self.dim) * self.batch_rows(batch) as u64
    }

    /// Bytes of all row numbers of a record batch (u64).
    pub fn row_numbers_range(&self, batch: usize) -> Range<u64> {
        let start = self.body(batch);
        start..start + 8 * self.batch_rows(batch) as u64
    }

    /// Bytes of all id hashes of a record batch (u64).
    pub fn id_hashes_range(&self, batch: usize) -> Range<u64> {
        let start = self.body(batch) + self.layout(batch).id_hash;
        start..start + 8 * self.batch_rows(batch) as u64
    }

    /// Bytes of both id columns of a record batch, for [`SegmentSide::decode_ids`].
    pub fn ids_range(&self, batch: usize) -> Range<u64> {
        let layout = self.layout(batch);
        self.body(batch) + layout.ids..self.body(batch) + layout.attributes
    }

    /// Bytes of a whole record batch, for [`SegmentSide::decode_batch`].
    pub fn batch_range(&self, batch: usize) -> Range<u64> {
        let start = self.batches[batch].offset;
        start..self.body(batch) + self.batches[batch].body_len
    }

    /// Bytes of a record batch's metadata, and of its ids and attributes: what is left without row numbers,
    /// hashes and vectors. For [`SegmentSide::decode_payload`].
    pub fn payload_ranges(&self, batch: usize) -> [Range<u64>; 2] {
        let whole = self.batch_range(batch);
        [whole.start..self.body(batch), self.body(batch) + self.layout(batch).ids..whole.end]
    }

    /// The pages that hold a byte range, as a byte range to be read and checked.
    pub fn page_range(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start / PAGE_BYTES * PAGE_BYTES;
        start..range.end.next_multiple_of(PAGE_BYTES).min(self.bytes)
    }

    /// Checks whole pages read from offset `start`, a page boundary. To be called on every read.
    pub fn check_pages(&self, start: u64, bytes: &[u8]) -> Result<(), FormatError> {
        let end = start.checked_add(bytes.len() as u64);
        let whole = !bytes.is_empty()
            && start.is_multiple_of(PAGE_BYTES)
            && end
                .is_some_and(|end| end == self.bytes || (end.is_multiple_of(PAGE_BYTES) && end < self.bytes));
        if !whole {
            return Err(FormatError::damaged(ObjectKind::Segment, "a read is not of whole pages"));
        }
        let first = (start / PAGE_BYTES) as usize;
        for (page, crc) in
            bytes.chunks(PAGE_BYTES as usize).zip(&self.page_crcs[first.min(self.page_crcs.len())..])
        {
            if crc32c::crc32c(page) != *crc {
                return Err(FormatError::Checksum { kind: ObjectKind::Segment });
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Bad> {
        if self.dim == 0 || self.dim > MAX_DIMENSION {
            return Err("its dimension is not valid");
        }
        if self.rows == 0 || self.rows_per_batch == 0 || self.rows_per_batch > 1 << 20 {
            return Err("it has no rows");
        }
        let span = self.last_row.checked_sub(self.first_row).and_then(|d| d.checked_add(1));
        if span != self.rows.checked_add(self.holes.len()) {
            return Err("its rows and holes do not fill its range");
        }
        if self.holes.min().is_some_and(|min| min <= self.first_row)
            || self.holes.max().is_some_and(|max| max >= self.last_row)
        {
            return Err("a hole is outside its range");
        }
        if self.batches.len() as u64 != self.rows.div_ceil(u64::from(self.rows_per_batch)) {
            return Err("it does not have the right number of record batches");
        }
        if self.page_crcs.len() as u64 != self.bytes.div_ceil(PAGE_BYTES) {
            return Err("it does not have the right number of page checksums");
        }
        if !self.attributes.is_sorted_by(|a, b| a.name < b.name) {
            return Err("its attributes are not in order");
        }
        let mut end = 0;
        for (i, batch) in self.batches.iter().enumerate() {
            if batch.offset < end || batch.body_len < self.layout(i).attributes {
                return Err("a record batch overlaps or is too short");
            }
            end = batch
                .offset
                .checked_add(u64::from(batch.meta_len))
                .and_then(|body| body.checked_add(batch.body_len))
                .filter(|end| *end <= self.bytes)
                .ok_or("a record batch reaches past the end")?;
        }
        Ok(())
    }
}

stored!(SegmentSide, SegmentSide, SegmentSide::check);
