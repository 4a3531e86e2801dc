//! Whole files in memory: query vectors and true neighbours.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};

use super::{ReadOptions, has_columns, npy, open};

/// The vectors of a file; at least one.
pub fn load(path: &Path, vector_column: &str) -> Result<Vec<Vec<f32>>> {
    let options =
        ReadOptions { id_column: None, vector_column: vector_column.to_owned(), ..ReadOptions::default() };
    // Files without columns have one of this name.
    let column = if has_columns(path) { vector_column } else { "vector" };
    let mut vectors = Vec::new();
    for batch in open(path, &options)?.batches {
        extend(&mut vectors, &batch?, column).with_context(|| path.display().to_string())?;
    }
    ensure!(!vectors.is_empty(), "{}: it holds no vectors", path.display());
    Ok(vectors)
}

/// The vectors of a batch.
pub fn extend(vectors: &mut Vec<Vec<f32>>, batch: &RecordBatch, column: &str) -> Result<()> {
    let column = batch.column_by_name(column).with_context(|| format!("there is no column {column:?}"))?;
    ensure!(column.null_count() == 0, "row {} has no vector", vectors.len());
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let list = match column.data_type() {
        DataType::FixedSizeList(_, n) => arrow_cast::cast(column, &DataType::FixedSizeList(item, *n))?,
        DataType::List(_) | DataType::LargeList(_) => arrow_cast::cast(column, &DataType::LargeList(item))?,
        other => bail!("its vectors are {other}; they must be lists of numbers"),
    };
    let rows = (0..list.len()).map(|i| match list.data_type() {
        DataType::FixedSizeList(..) => list.as_fixed_size_list().value(i),
        _ => list.as_list::<i64>().value(i),
    });
    for row in rows {
        ensure!(row.null_count() == 0, "row {}: the vector has a missing element", vectors.len());
        vectors.push(row.as_primitive::<Float32Type>().values().to_vec());
    }
    Ok(())
}

/// True neighbours: a `.npy` of whole numbers, one row a query, best first; -1 fills short rows.
pub fn load_truth(path: &Path) -> Result<Vec<Vec<i64>>> {
    let read = || npy::Array2::open(path)?.integers();
    read().with_context(|| path.display().to_string())
}
