//! Decodes ranges of a segment that the side block placed and whose pages were checked.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::MutableBuffer;

use crate::arrow_message::record_batch;
use crate::error::{FormatError, ObjectKind};
use crate::ids::RecordId;
use crate::rows::{Column, Rows, ids_from_arrays, vector_from_array};
use crate::segment::side::BatchIds;
use crate::segment::{SegmentSide, segment_schema};
use crate::value::Value;

/// A decoded record batch.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentBatch {
    /// Row numbers, ascending.
    pub numbers: Vec<u64>,
    /// Hashes of the ids.
    pub id_hashes: Vec<u64>,
    /// The records.
    pub rows: Rows,
}

/// Ids and attributes of a record batch.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentPayload {
    /// Ids, by index in the batch.
    pub ids: Vec<RecordId>,
    /// Attributes that the segment has columns for.
    pub columns: Vec<Column>,
}

impl SegmentPayload {
    /// Attribute of one record; None when absent.
    pub fn value(&self, index: usize, name: &str) -> Option<Value> {
        let at = self.columns.binary_search_by(|c| c.name().cmp(name)).ok()?;
        self.columns[at].value(index)
    }
}

fn damaged(what: impl Into<String>) -> FormatError {
    FormatError::damaged(ObjectKind::Segment, what)
}

/// Little-endian u64 values of a byte range.
fn u64s(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
}

impl SegmentSide {
    /// Little-endian f32 elements of `bytes` into `out`. Both must have the same number of elements.
    pub fn decode_vector(bytes: &[u8], out: &mut [f32]) -> Result<(), FormatError> {
        if bytes.len() != 4 * out.len() {
            return Err(damaged("a vector does not have its length"));
        }
        for (x, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *x = f32::from_le_bytes(*b);
        }
        Ok(())
    }

    /// Row numbers or id hashes of a batch from the bytes of their range.
    pub fn decode_u64s(bytes: &[u8]) -> Vec<u64> {
        u64s(bytes)
    }

    /// All ids of a batch from the bytes of [`SegmentSide::ids_range`].
    pub fn decode_ids(&self, batch: usize, bytes: &[u8]) -> Result<Vec<RecordId>, FormatError> {
        (0..self.batch_rows(batch)).map(|i| self.decode_id(batch, i, bytes)).collect()
    }

    /// Where in the bytes of [`SegmentSide::ids_range`] a read of this id begins: a hint for what to fetch ahead.
    pub fn id_hint(&self, batch: usize, index: usize) -> usize {
        let layout = self.layout(batch);
        let at = match self.batches[batch].ids {
            BatchIds::Numbers => layout.numbers + 8 * index as u64,
            _ => layout.string_offsets + 4 * index as u64,
        };
        (at - layout.ids) as usize
    }

    /// The id at an index of a batch from the bytes of [`SegmentSide::ids_range`].
    pub fn decode_id(&self, batch: usize, index: usize, bytes: &[u8]) -> Result<RecordId, FormatError> {
        let layout = self.layout(batch);
        let part = |start: u64, len: usize| -> Result<&[u8], FormatError> {
            let start = (start - layout.ids) as usize;
            bytes.get(start..start + len).ok_or_else(|| damaged("ids are cut short"))
        };
        let is_number = match (self.batches[batch].ids, layout.number_valid) {
            (BatchIds::Mixed, Some(valid)) => part(valid + index as u64 / 8, 1)?[0] >> (index % 8) & 1 == 1,
            (ids, _) => ids == BatchIds::Numbers,
        };
        if is_number {
            let id = part(layout.numbers + 8 * index as u64, 8)?;
            return Ok(RecordId::U64(u64::from_le_bytes(*id.first_chunk().expect("8 bytes"))));
        }
        let ends = part(layout.string_offsets + 4 * index as u64, 8)?;
        let end = |at: usize| u32::from_le_bytes(*ends[at..at + 4].first_chunk().expect("4 bytes"));
        let (start, end) = (end(0), end(4));
        if start > end || end > self.batches[batch].text {
            return Err(damaged("an id does not lie in its column"));
        }
        let text = part(layout.text + u64::from(start), (end - start) as usize)?;
        let text = std::str::from_utf8(text).map_err(|_| damaged("an id is not UTF-8"))?;
        let id = RecordId::Str(text.to_owned());
        id.check().map_err(|e| damaged(e.what))?;
        Ok(id)
    }

    /// A whole record batch from the bytes of [`SegmentSide::batch_range`].
    pub fn decode_batch(&self, batch: usize, bytes: &[u8]) -> Result<SegmentBatch, FormatError> {
        let decoded = self.decode_arrow(batch, &[(0, bytes)], None)?;
        let number = |i: usize| -> Result<Vec<u64>, FormatError> {
            let array = decoded.column(i).as_primitive_opt::<UInt64Type>();
            Ok(array.ok_or_else(|| damaged("a column has another type"))?.values().to_vec())
        };
        let (numbers, id_hashes) = (number(0)?, number(1)?);
        if !numbers.is_sorted_by(|a, b| a < b) {
            return Err(damaged("row numbers do not ascend"));
        }
        let dim = self.dim as usize;
        let vectors = vector_from_array(decoded.column(2), dim).map_err(damaged)?.to_vec();
        let ids = ids_from_arrays(decoded.column(3), decoded.column(4)).map_err(damaged)?;
        let columns = self.columns(&decoded.columns()[5..]);
        let rows = Rows::from_parts(dim, ids, vectors, columns).map_err(|e| damaged(e.to_string()))?;
        Ok(SegmentBatch { numbers, id_hashes, rows })
    }

    /// The whole record batch as Arrow, with the segment's own schema. For export.
    pub fn decode_arrow_batch(&self, batch: usize, bytes: &[u8]) -> Result<RecordBatch, FormatError> {
        self.decode_arrow(batch, &[(0, bytes)], None)
    }

    /// Ids and attributes of a record batch from the bytes of [`SegmentSide::payload_ranges`].
    pub fn decode_payload(
        &self,
        batch: usize,
        meta: &[u8],
        payload: &[u8],
    ) -> Result<SegmentPayload, FormatError> {
        let [first, second] = self.payload_ranges(batch);
        let at = (second.start - first.start) as usize;
        let columns: Vec<usize> = (3..5 + self.attributes.len()).collect();
        let decoded = self.decode_arrow(batch, &[(0, meta), (at, payload)], Some(columns))?;
        let ids = ids_from_arrays(decoded.column(0), decoded.column(1)).map_err(damaged)?;
        Ok(SegmentPayload { ids, columns: self.columns(&decoded.columns()[2..]) })
    }

    fn columns(&self, arrays: &[ArrayRef]) -> Vec<Column> {
        let pairs = self.attributes.iter().zip(arrays);
        pairs.map(|(a, array)| Column { name: a.name.clone(), ty: a.ty, array: array.clone() }).collect()
    }

    /// Decodes a message of which some byte ranges are at hand; what is not at hand reads as zeros and
    /// belongs to columns outside the projection.
    fn decode_arrow(
        &self,
        batch: usize,
        pieces: &[(usize, &[u8])],
        projection: Option<Vec<usize>>,
    ) -> Result<RecordBatch, FormatError> {
        let Range { start, end } = self.batch_range(batch);
        let len = usize::try_from(end - start).map_err(|_| damaged("a record batch is too long"))?;
        let last = pieces.last().map_or(0, |(at, bytes)| at + bytes.len());
        if last != len {
            return Err(damaged("a record batch does not have its length"));
        }
        let mut buffer = MutableBuffer::from_len_zeroed(len);
        for (at, bytes) in pieces {
            buffer.as_slice_mut()[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let schema = segment_schema(self.dim as usize, &self.attributes);
        let meta_len = self.batches[batch].meta_len as usize;
        let decoded = record_batch(schema, buffer.into(), meta_len, projection).map_err(damaged)?;
        if decoded.num_rows() != self.batch_rows(batch) {
            return Err(damaged("a record batch does not have its number of rows"));
        }
        Ok(decoded)
    }
}
