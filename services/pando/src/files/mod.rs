//! Files of vectors, read as a stream of Arrow record batches in bounded memory.
//!
//! `.npy` and `.fvecs` hold vectors only: ids are the row positions. In `.parquet`, `.arrow` and `.jsonl` one column is the id,
//! one the vector, and the rest are attributes. Every error names the file, the row where there is one, and what to do.

mod arrow;
mod fvecs;
mod jsonl;
pub mod npy;
mod parquet;
#[cfg(test)]
mod tests;
pub mod vectors;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use arrow_array::{ArrayRef, FixedSizeListArray, RecordBatch, UInt64Array};
use arrow_schema::{Field, Schema};

/// Batches in file order, all of one schema.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// How a file is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The column of ids, where the file has columns; `None` when nobody needs ids.
    pub id_column: Option<String>,
    /// The column of vectors, where the file has columns.
    pub vector_column: String,
    /// Bytes that a batch aims at.
    pub batch_bytes: usize,
    /// Attributes that the collection has as `float64`: whole numbers in JSON become floats there.
    pub float_attributes: BTreeSet<String>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            id_column: Some("id".into()),
            vector_column: "vector".into(),
            batch_bytes: 8 << 20,
            float_attributes: BTreeSet::new(),
        }
    }
}

/// An open file.
pub struct Source {
    /// Rows in all, where the file says.
    pub rows: Option<u64>,
    /// The rows.
    pub batches: Batches,
}

/// Opens a file by its extension.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let open = match extension.to_ascii_lowercase().as_str() {
        "npy" => npy::open,
        "fvecs" => fvecs::open,
        "jsonl" | "ndjson" => jsonl::open,
        "parquet" => parquet::open,
        "arrow" | "feather" | "ipc" | "arrows" => arrow::open,
        _ => bail!(
            "{}: the ending says nothing that can be read; give the file one of .npy .parquet .arrow .fvecs .jsonl",
            path.display()
        ),
    };
    let shown = path.display().to_string();
    let source = open(path, options).with_context(|| shown.clone())?;
    let batches = source.batches.map(move |batch| batch.with_context(|| shown.clone()));
    Ok(Source { rows: source.rows, batches: Box::new(batches) })
}

/// Whether a file of this ending has named columns; in others the columns are `id` and `vector`.
pub fn has_columns(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    !matches!(extension.to_ascii_lowercase().as_str(), "npy" | "fvecs")
}

/// Leaves out the first `rows` rows.
pub fn skip(batches: Batches, rows: u64) -> Batches {
    let mut left = rows;
    Box::new(batches.filter_map(move |batch| match batch {
        Ok(batch) if left > 0 => {
            let cut = left.min(batch.num_rows() as u64) as usize;
            left -= cut as u64;
            (cut < batch.num_rows()).then(|| Ok(batch.slice(cut, batch.num_rows() - cut)))
        }
        other => Some(other),
    }))
}

/// A batch of vectors whose ids are the row positions from `first`.
fn positions(first: u64, dimension: usize, elements: ArrayRef) -> Result<RecordBatch> {
    let rows = elements.len() / dimension;
    let item = Arc::new(Field::new("item", elements.data_type().clone(), false));
    let vectors = FixedSizeListArray::try_new(item, dimension.try_into()?, elements, None)?;
    let ids = UInt64Array::from_iter_values(first..first + rows as u64);
    let columns: Vec<(&str, ArrayRef)> = vec![("id", Arc::new(ids)), ("vector", Arc::new(vectors))];
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), false)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// Checks that a file's schema has the id and the vector column.
fn check_columns(schema: &Schema, options: &ReadOptions) -> Result<()> {
    let id = options.id_column.as_ref().map(|column| (column, "--id-column"));
    for (wanted, flag) in id.into_iter().chain([(&options.vector_column, "--vector-column")]) {
        if schema.column_with_name(wanted).is_none() {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            bail!("there is no column {wanted:?}; the file has {names:?}: name the right one with {flag}");
        }
    }
    Ok(())
}

/// A decoder's panic on a damaged file is the file's fault, not a reason to show a backtrace.
fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(anyhow::anyhow!("the file is damaged; write it again from its source")))
}

/// Cuts a batch into pieces of about `bytes` bytes.
fn cut(batch: RecordBatch, bytes: usize) -> impl Iterator<Item = RecordBatch> {
    let rows = batch.num_rows();
    let total = batch.get_array_memory_size().max(1);
    let piece =
        if total <= bytes * 2 { rows } else { ((rows as u128 * bytes as u128) / total as u128) as usize };
    let piece = piece.clamp(1, rows.max(1));
    (0..rows).step_by(piece).map(move |first| batch.slice(first, piece.min(rows - first)))
}
