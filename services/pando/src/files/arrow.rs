//! Arrow IPC, file or stream. A batch of the file is the unit of reading.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader, read_footer_length};
use arrow_schema::ArrowError;

use super::{ReadOptions, Source, check_columns, cut, guarded};

const DAMAGED: &str = "it is not a whole Arrow IPC file or stream; write it again";

pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
    let mut file = File::open(path)?;
    let mut magic = Vec::new();
    file.by_ref().take(6).read_to_end(&mut magic)?;
    file.rewind()?;
    ensure!(!magic.is_empty(), "it is empty; an Arrow file has at least a schema");
    let whole = magic != b"ARROW1" || guarded(|| lengths_fit(&mut file))?;
    ensure!(whole, "{DAMAGED}");
    file.rewind()?;
    let file = BufReader::with_capacity(1 << 20, file);
    if magic == b"ARROW1" {
        let reader = guarded(|| FileReader::try_new(file, None).context(DAMAGED))?;
        check_columns(&reader.schema(), options)?;
        Ok(source(reader, options))
    } else {
        let reader = guarded(|| StreamReader::try_new(file, None).context(DAMAGED))?;
        check_columns(&reader.schema(), options)?;
        Ok(source(reader, options))
    }
}

/// Whether footer and blocks lie in the file. The reader takes memory for what the footer states before it reads it.
fn lengths_fit(file: &mut File) -> Result<bool> {
    /// Length of the footer and the mark behind it.
    const END: u64 = 10;
    let len = file.metadata()?.len();
    if len < END {
        return Ok(false);
    }
    let mut end = [0; END as usize];
    file.seek(SeekFrom::Start(len - END))?;
    file.read_exact(&mut end)?;
    let Ok(footer_len) = read_footer_length(end) else { return Ok(false) };
    if footer_len as u64 > len - END {
        return Ok(false);
    }
    let mut footer = vec![0; footer_len];
    file.seek(SeekFrom::Start(len - END - footer_len as u64))?;
    file.read_exact(&mut footer)?;
    let Ok(footer) = arrow_ipc::root_as_footer(&footer) else { return Ok(false) };
    let fits = |block: &arrow_ipc::Block| {
        let parts = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()];
        let end = parts.iter().try_fold(0u64, |end, part| end.checked_add(u64::try_from(*part).ok()?));
        end.is_some_and(|end| end <= len)
    };
    Ok([footer.dictionaries(), footer.recordBatches()].into_iter().flatten().flatten().all(fits))
}

fn source(
    mut reader: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    options: &ReadOptions,
) -> Source {
    let bytes = options.batch_bytes;
    let mut number = 0;
    let mut failed = false;
    let batches = std::iter::from_fn(move || {
        if failed {
            return None;
        }
        let batch = guarded(|| reader.next().transpose().map_err(Into::into));
        let batch = batch.with_context(|| format!("batch {number} cannot be read: {DAMAGED}")).transpose();
        number += 1;
        failed = matches!(batch, Some(Err(_)));
        batch
    });
    let pieces = batches.flat_map(move |batch| -> Box<dyn Iterator<Item = Result<RecordBatch>> + Send> {
        match batch {
            Ok(batch) => Box::new(cut(batch, bytes).map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    });
    Source { rows: None, batches: Box::new(pieces) }
}
