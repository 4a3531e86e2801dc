//! Vector files, written and read by hand: an independent opinion on the formats.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use half::f16;

use crate::data::Vectors;

fn npy_header(descr: &str, rows: usize, dim: usize) -> Vec<u8> {
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    // Magic, version, length and dictionary together are a multiple of 64, closed by a newline.
    let pad = 64 - (10 + dict.len() + 1) % 64;
    dict.push_str(&" ".repeat(pad));
    dict.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((dict.len() as u16).to_le_bytes());
    out.extend(dict.as_bytes());
    out
}

/// A float32 .npy file.
pub fn write_npy(path: &Path, v: &Vectors) {
    let mut out = npy_header("<f4", v.len(), v.dim);
    out.extend(v.flat.iter().flat_map(|x| x.to_le_bytes()));
    std::fs::write(path, out).expect("a file");
}

/// A float16 .npy file, and the values as float32 that it holds after rounding.
pub fn write_npy_f16(path: &Path, v: &Vectors) -> Vectors {
    let mut out = npy_header("<f2", v.len(), v.dim);
    let halves: Vec<f16> = v.flat.iter().map(|&x| f16::from_f32(x)).collect();
    out.extend(halves.iter().flat_map(|x| x.to_le_bytes()));
    std::fs::write(path, out).expect("a file");
    Vectors { dim: v.dim, flat: halves.iter().map(|x| x.to_f32()).collect() }
}

/// An .fvecs file: for each row a little-endian i32 dimension, then its floats.
pub fn write_fvecs(path: &Path, v: &Vectors) {
    let mut out = Vec::new();
    for i in 0..v.len() {
        out.extend((v.dim as i32).to_le_bytes());
        out.extend(v.row(i).iter().flat_map(|x| x.to_le_bytes()));
    }
    std::fs::write(path, out).expect("a file");
}

/// A .jsonl file with numeric ids, vectors and one attribute.
pub fn write_jsonl(path: &Path, v: &Vectors) {
    let lines: Vec<String> = (0..v.len())
        .map(|i| {
            serde_json::json!({"id": i as u64, "vector": v.row(i), "tag": format!("row {i}")}).to_string()
        })
        .collect();
    std::fs::write(path, lines.join("\n") + "\n").expect("a file");
}

/// Rows as `FixedSizeList<float>`.
pub fn vector_array(v: &Vectors) -> FixedSizeListArray {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    FixedSizeListArray::new(item, v.dim as i32, Arc::new(Float32Array::from(v.flat.clone())), None)
}

/// Ids and vectors as a batch with columns `id` and `vector`.
pub fn batch(ids: &[u64], v: &Vectors) -> RecordBatch {
    batch_with(Arc::new(UInt64Array::from(ids.to_vec())), v, Vec::new())
}

/// A batch of any ids and further columns.
pub fn batch_with(ids: ArrayRef, v: &Vectors, more: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let vectors: ArrayRef = Arc::new(vector_array(v));
    let mut columns = vec![("id", ids), ("vector", vectors)];
    columns.extend(more);
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, a)| Field::new(*name, a.data_type().clone(), a.null_count() > 0))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect())
        .expect("columns of one length")
}

/// An Arrow IPC file of one batch.
pub fn write_arrow(path: &Path, batch: &RecordBatch) {
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = arrow_ipc::writer::FileWriter::try_new(file, &batch.schema()).expect("a writer");
    writer.write(batch).expect("a batch");
    writer.finish().expect("a footer");
}

/// A Parquet file with several row groups.
pub fn write_parquet(path: &Path, batch: &RecordBatch) {
    let properties =
        parquet::file::properties::WriterProperties::builder().set_max_row_group_row_count(Some(700)).build();
    let file = std::fs::File::create(path).expect("a file");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(batch).expect("a batch");
    writer.close().expect("a footer");
}

/// Reads a float32 or float16 .npy file of two dimensions.
pub fn read_npy(path: &Path) -> Vectors {
    let (descr, shape, body) = open_npy(path);
    let flat = match descr.as_str() {
        "<f4" => body.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(),
        "<f2" => body
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes(b.try_into().expect("2 bytes")).to_f32())
            .collect(),
        other => panic!("{}: {other}", path.display()),
    };
    Vectors { dim: shape[1], flat }
}

/// Reads an int32 .npy file of two dimensions as rows of ids.
pub fn read_npy_ids(path: &Path) -> Vec<Vec<u64>> {
    let (descr, shape, body) = open_npy(path);
    assert_eq!(descr, "<i4", "{}", path.display());
    let all: Vec<u64> =
        body.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().expect("4 bytes")) as u64).collect();
    all.chunks_exact(shape[1]).map(<[u64]>::to_vec).collect()
}

fn open_npy(path: &Path) -> (String, Vec<usize>, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{}", path.display());
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8_lossy(&bytes[10..end]).into_owned();
    let descr =
        header.split("'descr': '").nth(1).and_then(|s| s.split('\'').next()).expect("descr").to_owned();
    let shape = header.split("'shape': (").nth(1).and_then(|s| s.split(')').next()).expect("shape");
    let shape = shape.split(',').filter_map(|s| s.trim().parse().ok()).collect();
    (descr, shape, bytes[end..].to_vec())
}
