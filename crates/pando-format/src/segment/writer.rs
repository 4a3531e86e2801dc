//! Writes a segment to a sink, one record batch in memory at a time.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};

use crate::error::{FormatError, ObjectKind};
use crate::ids::{Hash, RecordId, id_hash};
use crate::row_set::RowSet;
use crate::rows::{Rows, ids_to_arrays, new_null, vector_to_array};
use crate::segment::side::BatchIds;
use crate::segment::{BatchPlace, PAGE_BYTES, SegmentSide, rows_per_batch, segment_schema};
use crate::value::{AttributeField, AttributeSchema};

const KIND: ObjectKind = ObjectKind::Segment;

/// Passes bytes on and keeps hash, page checksums and count; notes the first bytes after a mark.
struct PageSink<W> {
    sink: W,
    hasher: blake3::Hasher,
    written: u64,
    crc: u32,
    crcs: Vec<u32>,
    head: Vec<u8>,
}

impl<W: Write> Write for PageSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        self.hasher.update(bytes);
        let missing = 8usize.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..missing]);
        while !bytes.is_empty() {
            let room = (PAGE_BYTES - self.written % PAGE_BYTES) as usize;
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.crc = crc32c::crc32c_append(self.crc, now);
            self.written += now.len() as u64;
            if self.written.is_multiple_of(PAGE_BYTES) {
                self.crcs.push(std::mem::take(&mut self.crc));
            }
            bytes = rest;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// What came out of a [`SegmentWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// BLAKE3 of the segment: its name.
    pub hash: Hash,
    /// Its length.
    pub bytes: u64,
    /// Rows in it.
    pub rows: u64,
    /// First row number.
    pub first_row: u64,
    /// Last row number.
    pub last_row: u64,
}

/// Writes rows in ascending order of row number. The bytes do not depend on how rows were grouped in calls.
pub struct SegmentWriter<W: Write> {
    writer: FileWriter<PageSink<W>>,
    schema: SchemaRef,
    dim: usize,
    attributes: Vec<AttributeField>,
    pending: Vec<Rows>,
    pending_rows: Vec<u64>,
    side: SegmentSide,
}

fn sink_error(e: ArrowError) -> FormatError {
    FormatError::Sink { kind: KIND, what: e.to_string() }
}

impl<W: Write> SegmentWriter<W> {
    /// Begins a segment with a column for each attribute of `attributes`; rows may lack any of them but have
    /// no other. The sink is written in small pieces: give a buffered one.
    pub fn new(sink: W, dim: usize, attributes: &AttributeSchema) -> Result<Self, FormatError> {
        let attributes: Vec<AttributeField> =
            attributes.iter().map(|(name, ty)| AttributeField { name: name.to_owned(), ty }).collect();
        let schema = segment_schema(dim, &attributes);
        let sink = PageSink {
            sink,
            hasher: blake3::Hasher::new(),
            written: 0,
            crc: 0,
            crcs: Vec::new(),
            head: Vec::new(),
        };
        let side = SegmentSide {
            dim: u32::try_from(dim).map_err(|_| FormatError::invalid(KIND, "its dimension is not valid"))?,
            rows_per_batch: rows_per_batch(dim) as u32,
            attributes: attributes.clone(),
            bytes: 0,
            rows: 0,
            first_row: 0,
            last_row: 0,
            holes: RowSet::new(),
            batches: Vec::new(),
            page_crcs: Vec::new(),
        };
        let writer = FileWriter::try_new(sink, &schema).map_err(sink_error)?;
        Ok(Self { writer, schema, dim, attributes, pending: Vec::new(), pending_rows: Vec::new(), side })
    }

    /// Adds rows: `numbers[i]` is the row number of record `i`. Numbers ascend within and across calls.
    pub fn push(&mut self, numbers: &[u64], rows: &Rows) -> Result<(), FormatError> {
        let invalid = |what: &str| FormatError::invalid(KIND, what);
        if numbers.len() != rows.len() || rows.dim() != self.dim {
            return Err(invalid("rows, numbers and dimension do not fit"));
        }
        for (name, ty) in rows.fields() {
            if !self.attributes.iter().any(|a| a.name == name && a.ty == ty) {
                return Err(invalid("a row has an attribute that the segment has not"));
            }
        }
        self.note_numbers(numbers)?;
        let mut at = 0;
        while at < rows.len() {
            let room = self.side.rows_per_batch as usize - self.pending_rows.len();
            let end = rows.len().min(at + room);
            self.pending.push(rows.slice(at..end));
            self.pending_rows.extend_from_slice(&numbers[at..end]);
            at = end;
            if self.pending_rows.len() == self.side.rows_per_batch as usize {
                self.write_batch()?;
            }
        }
        Ok(())
    }

    fn note_numbers(&mut self, numbers: &[u64]) -> Result<(), FormatError> {
        for &row in numbers {
            if self.side.rows == 0 {
                self.side.first_row = row;
            } else if row <= self.side.last_row {
                return Err(FormatError::invalid(KIND, "row numbers do not ascend"));
            } else if row > self.side.last_row + 1 {
                self.side.holes.insert_range(self.side.last_row + 1..row);
            }
            self.side.last_row = row;
            self.side.rows += 1;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), FormatError> {
        let parts = std::mem::take(&mut self.pending);
        let rows = Rows::concat(self.dim, &parts.iter().collect::<Vec<_>>())?;
        let numbers = std::mem::take(&mut self.pending_rows);
        let hashes: Vec<u64> = rows.ids().iter().map(id_hash).collect();
        let (id_numbers, id_strings) = ids_to_arrays(rows.ids().iter());
        let text = id_strings.values().len();
        let strings = rows.ids().iter().filter(|id| matches!(id, RecordId::Str(_))).count();
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(numbers)),
            Arc::new(UInt64Array::from(hashes)),
            Arc::new(vector_to_array(self.dim, rows.vectors().to_vec())),
            Arc::new(id_numbers),
            Arc::new(id_strings),
        ];
        for field in &self.attributes {
            let column = rows.column(&field.name);
            arrays.push(column.map_or_else(|| new_null(field.ty, rows.len()), |c| Arc::clone(c.array())));
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(sink_error)?;
        let sink = self.writer.get_mut();
        let offset = sink.written;
        sink.head.clear();
        self.writer.write(&batch).map_err(sink_error)?;
        let sink = self.writer.get_ref();
        // A message begins with four 0xFF and the length of what follows of its metadata.
        let meta =
            u32::from_le_bytes(*sink.head[4..8].first_chunk().expect("a message has 8 bytes of framing"));
        let meta_len = meta + 8;
        self.side.batches.push(BatchPlace {
            offset,
            meta_len,
            body_len: sink.written - offset - u64::from(meta_len),
            ids: match strings {
                0 => BatchIds::Numbers,
                n if n == rows.len() => BatchIds::Strings,
                _ => BatchIds::Mixed,
            },
            text: text as u32,
        });
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.side.rows
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.writer.get_ref().written
    }

    /// Ends the segment: the sink, flushed, its name, and its side block. A segment without rows is refused.
    pub fn finish(mut self) -> Result<(W, SegmentSummary, SegmentSide), FormatError> {
        if self.side.rows == 0 {
            return Err(FormatError::invalid(KIND, "it has no rows"));
        }
        if !self.pending_rows.is_empty() {
            self.write_batch()?;
        }
        let mut sink = self.writer.into_inner().map_err(sink_error)?;
        if !sink.written.is_multiple_of(PAGE_BYTES) {
            sink.crcs.push(sink.crc);
        }
        let side = SegmentSide { bytes: sink.written, page_crcs: sink.crcs, ..self.side };
        let summary = SegmentSummary {
            hash: Hash(*sink.hasher.finalize().as_bytes()),
            bytes: side.bytes,
            rows: side.rows,
            first_row: side.first_row,
            last_row: side.last_row,
        };
        Ok((sink.sink, summary, side))
    }
}
