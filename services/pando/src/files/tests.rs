//! Good and malformed files.

use std::fs::File;
use std::path::PathBuf;

use ::parquet::arrow::ArrowWriter;
use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, Int64Array, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::DataType;
use half::f16;

use super::*;

/// A directory and the files in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn bytes(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn read(path: &std::path::Path, options: &ReadOptions) -> Result<Vec<RecordBatch>> {
    open(path, options)?.batches.collect()
}

/// Ids and vectors of all batches, as f32.
fn rows(batches: &[RecordBatch]) -> Vec<(u64, Vec<f32>)> {
    let mut rows = Vec::new();
    for batch in batches {
        let mut found = Vec::new();
        vectors::extend(&mut found, batch, "vector").unwrap();
        let ids = batch.column_by_name("id").unwrap().as_primitive::<UInt64Type>().values().to_vec();
        rows.extend(ids.into_iter().zip(found));
    }
    rows
}

#[track_caller]
fn refused(path: &std::path::Path, words: &[&str]) {
    let error = match read(path, &ReadOptions::default()) {
        Ok(batches) => panic!("{} was read: {batches:?}", path.display()),
        Err(error) => format!("{error:#}"),
    };
    assert!(error.contains(path.file_name().unwrap().to_str().unwrap()), "the file is named: {error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn npy_of_every_float_is_read_in_batches() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..15).map(|x| x as f32).collect();
    let expected: Vec<(u64, Vec<f32>)> =
        (0..5u64).map(|i| (i, values[i as usize * 3..][..3].to_vec())).collect();
    let single = folder.write(
        "a.npy",
        &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), }\n", &bytes(&values)),
    );
    // Two rows a batch.
    let small = ReadOptions { batch_bytes: 24, ..ReadOptions::default() };
    let batches = read(&single, &small).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(rows(&batches), expected);
    assert_eq!(open(&single, &small).unwrap().rows, Some(5));

    let halves: Vec<u8> = values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
    let half =
        folder.write("h.npy", &npy("{'shape': (5,3), 'fortran_order': False, 'descr': '<f2'}", &halves));
    let batches = read(&half, &ReadOptions::default()).unwrap();
    let kept = batches[0].column(1).as_fixed_size_list().values().clone();
    assert!(kept.as_primitive_opt::<Float16Type>().is_some(), "halves travel as halves");
    assert_eq!(rows(&batches), expected);

    let doubles: Vec<u8> = values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
    let double =
        folder.write("d.npy", &npy("{'descr': '<f8', 'fortran_order': False, 'shape': (5, 3), }", &doubles));
    assert_eq!(rows(&read(&double, &ReadOptions::default()).unwrap()), expected);

    let empty =
        folder.write("e.npy", &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", &[]));
    assert!(read(&empty, &ReadOptions::default()).unwrap().is_empty());
}

#[test]
fn skipped_rows_keep_their_positions() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..10).map(|x| x as f32).collect();
    let file = folder.write(
        "a.npy",
        &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (10, 1), }", &bytes(&values)),
    );
    let options = ReadOptions { batch_bytes: 16, ..ReadOptions::default() };
    for skipped in [0, 3, 4, 5, 10, 99] {
        let batches = skip(open(&file, &options).unwrap().batches, skipped);
        let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
        let ids: Vec<u64> = rows(&batches).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, (skipped.min(10)..10).collect::<Vec<_>>());
    }
}

#[test]
fn malformed_npy_files_are_named_with_what_to_do() {
    let folder = Folder::new();
    let data = bytes(&[0.0; 12]);
    let header = |descr: &str, fortran: &str, shape: &str| {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
    };
    refused(&folder.write("magic.npy", b"\x93NUMPX\x01\x00"), &["np.save"]);
    refused(&folder.write("empty.npy", b""), &["np.save"]);
    refused(&folder.write("version.npy", b"\x93NUMPY\x09\x00\x00\x00"), &["version 9"]);
    refused(&folder.write("long.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), &["4294967295"]);
    refused(&folder.write("cut.npy", &npy(&header("<f4", "False", "(4, 3)"), &data)[..30]), &["cut short"]);
    refused(
        &folder.write("fortran.npy", &npy(&header("<f4", "True", "(4, 3)"), &data)),
        &["ascontiguousarray"],
    );
    refused(
        &folder.write("flat.npy", &npy(&header("<f4", "False", "(12,)"), &data)),
        &["[12]", "two dimensions"],
    );
    refused(
        &folder.write("cube.npy", &npy(&header("<f4", "False", "(2, 2, 3)"), &data)),
        &["two dimensions"],
    );
    refused(
        &folder.write("short.npy", &npy(&header("<f4", "False", "(5, 3)"), &data)),
        &["cut short", "row 4"],
    );
    refused(&folder.write("more.npy", &npy(&header("<f4", "False", "(3, 3)"), &data)), &["12 bytes more"]);
    refused(&folder.write("ints.npy", &npy(&header("<i4", "False", "(4, 3)"), &data)), &["float32"]);
    refused(&folder.write("big.npy", &npy(&header(">f4", "False", "(4, 3)"), &data)), &["big-endian"]);
    refused(&folder.write("objects.npy", &npy(&header("|O", "False", "(4, 3)"), &data)), &["astype"]);
    refused(
        &folder.write(
            "huge.npy",
            &npy(&header("<f4", "False", "(9223372036854775807, 9223372036854775807)"), &data),
        ),
        &[],
    );
    refused(&folder.write("none.npy", &npy(&header("<f4", "False", "(4, 0)"), &[])), &["no elements"]);
    refused(
        &folder.write("noshape.npy", &npy("{'descr': '<f4', 'fortran_order': False}", &data)),
        &["shape"],
    );
    let doubles: Vec<u8> = [0.0, 1e300].iter().flat_map(|x: &f64| x.to_le_bytes()).collect();
    refused(
        &folder.write("over.npy", &npy(&header("<f8", "False", "(2, 1)"), &doubles)),
        &["row 1", "float32"],
    );
    // One row is contiguous either way.
    let row = folder.write("row.npy", &npy(&header("<f4", "True", "(1, 12)"), &data));
    assert_eq!(read(&row, &ReadOptions::default()).unwrap()[0].num_rows(), 1);
}

#[test]
fn fvecs_are_read_and_checked() {
    let folder = Folder::new();
    let row = |dimension: i32, elements: &[f32]| {
        let mut row = dimension.to_le_bytes().to_vec();
        row.extend(bytes(elements));
        row
    };
    let good = [row(2, &[1.0, 2.0]), row(2, &[3.0, 4.0]), row(2, &[5.0, 6.0])].concat();
    let file = folder.write("a.fvecs", &good);
    let batches = read(&file, &ReadOptions { batch_bytes: 16, ..ReadOptions::default() }).unwrap();
    assert_eq!(rows(&batches), [(0, vec![1.0, 2.0]), (1, vec![3.0, 4.0]), (2, vec![5.0, 6.0])]);
    refused(&folder.write("empty.fvecs", b""), &["empty"]);
    refused(&folder.write("cut.fvecs", &good[..good.len() - 1]), &["row 2"]);
    refused(&folder.write("negative.fvecs", &row(-1, &[1.0])), &["-1"]);
    refused(&folder.write("huge.fvecs", &row(i32::MAX, &[1.0])), &["2147483647"]);
    let ragged = [row(2, &[1.0, 2.0]), row(3, &[3.0, 4.0])].concat();
    refused(&folder.write("ragged.fvecs", &ragged), &["row 1 has dimension 3"]);
}

/// Ids, vectors as lists, and a text.
fn table() -> RecordBatch {
    let mut vectors = ListBuilder::new(Float64Builder::new());
    for i in 0..4 {
        vectors.values().append_slice(&[f64::from(i), 0.5]);
        vectors.append(true);
    }
    let columns: [(&str, ArrayRef); 3] = [
        ("key", Arc::new(Int64Array::from(vec![10, 11, 12, 13]))),
        ("emb", Arc::new(vectors.finish())),
        ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some("c"), Some("d")]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn parquet_and_arrow_keep_their_columns() {
    let folder = Folder::new();
    let table = table();
    let path = |name: &str| folder.0.path().join(name);
    let mut writer =
        ArrowWriter::try_new(File::create(path("a.parquet")).unwrap(), table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    let mut writer = FileWriter::try_new(File::create(path("a.arrow")).unwrap(), &table.schema()).unwrap();
    writer.write(&table).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new(File::create(path("s.arrow")).unwrap(), &table.schema()).unwrap();
    writer.write(&table).unwrap();
    writer.finish().unwrap();

    let options =
        ReadOptions { id_column: Some("key".into()), vector_column: "emb".into(), ..ReadOptions::default() };
    for name in ["a.parquet", "a.arrow", "s.arrow"] {
        let batches = read(&path(name), &options).unwrap();
        let all = arrow_select_concat(&batches);
        assert_eq!(all.column(0).as_primitive::<Int64Type>().values(), &[10, 11, 12, 13], "{name}");
        assert!(all.column(2).is_null(1), "{name}");
        assert_eq!(vectors::load(&path(name), "emb").unwrap()[3], [3.0, 0.5], "{name}");
        // Wrong column names say which there are.
        let error = format!("{:#}", read(&path(name), &ReadOptions::default()).unwrap_err());
        assert!(error.contains("\"key\"") && error.contains("--id-column"), "{name}: {error}");
        // Every cut is refused, whatever it hits.
        let whole = std::fs::read(path(name)).unwrap();
        for length in [0, 1, 7, whole.len() / 2, whole.len() - 9] {
            let cut = folder.write(&format!("cut-{name}"), &whole[..length]);
            let result = read(&cut, &options);
            // A stream may lose its end mark and stay whole.
            let whole_anyway = name == "s.arrow" && length > whole.len() / 2;
            assert!(result.is_err() || whole_anyway, "{name} cut at {length}");
        }
    }
}

fn arrow_select_concat(batches: &[RecordBatch]) -> RecordBatch {
    assert_eq!(batches.len(), 1, "small files are one batch");
    batches[0].clone()
}

#[test]
fn compressed_arrow_files_are_read() {
    let folder = Folder::new();
    let batch = positions(0, 64, Arc::new(arrow_array::Float32Array::from(vec![0.5; 6400]))).unwrap();
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let path = folder.0.path().join("c.arrow");
        let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
        let mut writer =
            FileWriter::try_new_with_options(File::create(&path).unwrap(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        assert_eq!(read(&path, &ReadOptions::default()).unwrap()[0], batch);
    }
}

#[test]
fn query_vectors_need_no_ids() {
    let folder = Folder::new();
    let file = folder.write("q.jsonl", b"{\"emb\": [1, 2]}\n{\"emb\": [3, 4], \"text\": \"x\"}\n");
    assert_eq!(vectors::load(&file, "emb").unwrap(), [vec![1.0, 2.0], vec![3.0, 4.0]]);
    let error = format!("{:#}", vectors::load(&file, "vector").unwrap_err());
    assert!(error.contains("--vector-column") && !error.contains("--id-column"), "{error}");
}

#[test]
fn a_large_batch_is_cut_into_pieces() {
    let batch = positions(0, 4, Arc::new(arrow_array::Float32Array::from(vec![0.0; 40_000]))).unwrap();
    let pieces: Vec<RecordBatch> = cut(batch, 16 << 10).collect();
    assert!(pieces.len() > 5, "{}", pieces.len());
    assert_eq!(pieces.iter().map(RecordBatch::num_rows).sum::<usize>(), 10_000);
    assert_eq!(cut(RecordBatch::new_empty(table().schema()), 1).count(), 0);
}

#[test]
fn json_lines_become_typed_columns() {
    let folder = Folder::new();
    let text = r#"{"id": 1, "vector": [1, 2.5], "n": 1, "x": 1, "s": "a", "b": true, "l": ["p", "q"], "e": []}

{"id": 18446744073709551615, "vector": [3, 4], "x": 0.5, "n": null, "e": [1]}
"#;
    let file = folder.write("a.jsonl", text.as_bytes());
    let batches = read(&file, &ReadOptions::default()).unwrap();
    assert_eq!(rows(&batches), [(1, vec![1.0, 2.5]), (u64::MAX, vec![3.0, 4.0])]);
    let column = |name: &str| batches[0].column_by_name(name).unwrap();
    assert_eq!(column("n").data_type(), &DataType::Int64);
    assert_eq!(
        column("x").as_primitive::<Float64Type>().values(),
        &[1.0, 0.5],
        "whole and broken numbers are floats"
    );
    assert!(column("n").is_null(1) && column("s").is_null(1) && column("b").is_null(1));
    assert_eq!(column("l").as_list::<i32>().value(0).len(), 2);
    assert_eq!(column("e").as_list::<i32>().value(1).as_primitive::<Int64Type>().values(), &[1]);

    let floats = ReadOptions { float_attributes: BTreeSet::from(["n".to_owned()]), ..ReadOptions::default() };
    let batches = read(&file, &floats).unwrap();
    assert_eq!(
        batches[0].column_by_name("n").unwrap().data_type(),
        &DataType::Float64,
        "as the collection has it"
    );
    assert!(read(&folder.write("none.jsonl", b"\n\n"), &ReadOptions::default()).unwrap().is_empty());
}

#[test]
fn malformed_json_lines_are_named_by_line() {
    let folder = Folder::new();
    let second = |line: &str| {
        let text = format!("{{\"id\": 1, \"vector\": [1, 2], \"n\": 1}}\n{line}\n");
        folder.write("bad.jsonl", text.as_bytes())
    };
    refused(&second("{\"id\": 2, \"vec"), &["line 2", "JSON"]);
    refused(&second("[1, 2]"), &["line 2", "object"]);
    refused(&second(r#"{"id": 2}"#), &["line 2", "--vector-column"]);
    refused(&second(r#"{"vector": [1, 2]}"#), &["line 2", "--id-column"]);
    refused(&second(r#"{"id": -2, "vector": [1, 2]}"#), &["line 2", "-2"]);
    refused(&second(r#"{"id": 1.5, "vector": [1, 2]}"#), &["line 2", "1.5"]);
    refused(&second(r#"{"id": "a", "vector": [1, 2]}"#), &["line 2", "two files"]);
    refused(&second(r#"{"id": 2, "vector": [1, 2, 3]}"#), &["line 2", "3 elements"]);
    refused(&second(r#"{"id": 2, "vector": "1, 2"}"#), &["line 2", "list of numbers"]);
    refused(&second(r#"{"id": 2, "vector": [1, null]}"#), &["line 2", "element 1"]);
    refused(&second(r#"{"id": 2, "vector": [1, 1e300]}"#), &["line 2", "float32"]);
    refused(&second(r#"{"id": 2, "vector": [1, 2], "n": "x"}"#), &["line 2", "\"n\""]);
    refused(&second(r#"{"id": 2, "vector": [1, 2], "o": {"a": 1}}"#), &["line 2", "\"o\""]);
    refused(&second(r#"{"id": 2, "vector": [1, 2], "o": [1, "a"]}"#), &["line 2", "\"o\""]);
}

#[test]
fn other_files_are_refused() {
    let folder = Folder::new();
    refused(&folder.write("a.csv", b"1,2"), &[".npy"]);
    refused(&folder.0.path().join("absent.npy"), &["No such file"]);
    let nothing =
        folder.write("e.npy", &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", &[]));
    assert!(vectors::load(&nothing, "vector").is_err(), "queries need at least one vector");
    let truth = npy(
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 3), }",
        &[7, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0],
    );
    assert_eq!(vectors::load_truth(&folder.write("t.npy", &truth)).unwrap(), [vec![7, -1, 1]]);
}
