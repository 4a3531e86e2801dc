//! .fvecs of the TEXMEX collections: each row is its dimension (i32) and its elements (f32), little-endian.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use arrow_array::Float32Array;

use super::{ReadOptions, Source, positions};

/// Largest dimension of a collection.
const MAX_DIMENSION: i32 = 16_384;

pub fn open(path: &Path, options: &ReadOptions) -> Result<Source> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut start = [0; 4];
    ensure!(reader.read_exact(&mut start).is_ok(), "it is empty or too short to be a .fvecs file");
    let dimension = i32::from_le_bytes(start);
    ensure!(
        (1..=MAX_DIMENSION).contains(&dimension),
        "its first row has dimension {dimension}, which must be 1 to {MAX_DIMENSION}; it is not a .fvecs file of f32"
    );
    let dimension = dimension as usize;
    let row_bytes = 4 + 4 * dimension as u64;
    ensure!(
        length.is_multiple_of(row_bytes),
        "it is cut short in row {}, or its rows differ in dimension: rows of {dimension} elements take {row_bytes} \
         bytes, and the file has {length}; copy or write it again",
        length / row_bytes
    );
    let rows = length / row_bytes;
    let step = (options.batch_bytes / (4 * dimension)).max(1) as u64;
    let mut first = 0;
    let batches = std::iter::from_fn(move || {
        let count = step.min(rows - first);
        if count == 0 {
            return None;
        }
        let start = first;
        first += count;
        let mut read = || {
            let mut elements = vec![0f32; count as usize * dimension];
            for (i, row) in elements.chunks_exact_mut(dimension).enumerate() {
                let position = start + i as u64;
                if position > 0 {
                    let mut head = [0; 4];
                    reader.read_exact(&mut head)?;
                    let found = i32::from_le_bytes(head);
                    ensure!(
                        found == dimension as i32,
                        "row {position} has dimension {found}, the rows before it {dimension}"
                    );
                }
                reader.read_exact(bytemuck::cast_slice_mut(row))?;
            }
            positions(start, dimension, Arc::new(Float32Array::from(elements)))
        };
        Some(read())
    });
    Ok(Source { rows: Some(rows), batches: Box::new(batches) })
}
