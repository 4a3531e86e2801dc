//! Parquet, by row group, a few thousand rows at a time.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{ReadOptions, Source, check_columns, guarded};

pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
    let file = File::open(path)?;
    let builder = guarded(|| {
        ParquetRecordBatchReaderBuilder::try_new(file)
            .context("it is not a whole Parquet file (its end is missing or damaged); copy or write it again")
    })?;
    let schema = builder.schema().clone();
    check_columns(&schema, options)?;
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).ok();
    // Lists without a fixed size say their length only in the data; a thousand rows of them are a fair guess.
    let row_bytes = match schema.field_with_name(&options.vector_column).map(|field| field.data_type()) {
        // A damaged schema may state a dimension below 0.
        Ok(DataType::FixedSizeList(_, dimension)) => usize::try_from(*dimension).unwrap_or(0) * 4 + 512,
        _ => options.batch_bytes / 1024,
    };
    let step = (options.batch_bytes / row_bytes.max(1)).clamp(1, 65_536);
    let mut reader = guarded(|| Ok(builder.with_batch_size(step).build()?))?;
    let mut read = 0;
    let mut failed = false;
    let batches = std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let batch = guarded(|| reader.next().transpose().map_err(Into::into));
        let batch = batch
            .with_context(|| format!("it cannot be read on from row {read}; copy or write the file again"))
            .transpose();
        match &batch {
            Some(Ok(batch)) => read += batch.num_rows(),
            Some(Err(_)) => failed = true,
            None => {}
        }
        batch
    });
    Ok(Source { rows, batches: Box::new(batches) })
}
