//! Segments: Arrow IPC files of rows in row-number order, and the side block that places each row.
//!
//! Columns: `row_number` u64, `id_hash` u64, `vector` FixedSizeList<f32, d>, `id_u64`, `id_string` (exactly
//! one set), then `attr.<name>` sorted by name. Every record batch but the last has [`rows_per_batch`] rows;
//! buffers are aligned to 64, not compressed. So the place of a row's vector follows from its position.

mod reader;
mod side;
mod writer;

pub use self::reader::{SegmentBatch, SegmentPayload};
pub use self::side::{BatchPlace, SegmentSide};
pub use self::writer::{SegmentSummary, SegmentWriter};

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::rows::{attribute_field, vector_field};
use crate::value::AttributeField;

/// Page of a segment that has its own CRC32C.
pub const PAGE_BYTES: u64 = 16 * 1024;

/// Rows of a full record batch: 1 MiB of vectors, a multiple of 8, at least 8 and at most 4,096 (so that
/// 4,096 × 64 KiB of attributes stay below the 2 GiB that Arrow's 32-bit offsets reach).
pub fn rows_per_batch(dim: usize) -> usize {
    ((1 << 20) / (4 * dim.max(1)) / 8 * 8).clamp(8, 4096)
}

/// Schema of a segment with these attributes, sorted by name.
pub(crate) fn segment_schema(dim: usize, attributes: &[AttributeField]) -> SchemaRef {
    let mut fields = vec![
        Field::new("row_number", DataType::UInt64, false),
        Field::new("id_hash", DataType::UInt64, false),
        vector_field(dim),
        Field::new("id_u64", DataType::UInt64, true),
        Field::new("id_string", DataType::Utf8, true),
    ];
    fields.extend(attributes.iter().map(|a| attribute_field(&a.name, a.ty)));
    Arc::new(Schema::new(fields))
}
