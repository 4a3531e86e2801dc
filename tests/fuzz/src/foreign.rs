//! Bytes from strangers: files for the command line, and Arrow Flight messages for the server.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use futures::{FutureExt, StreamExt, TryStreamExt};
use pando_format::Rows;
use parquet::arrow::ArrowWriter;
use prost::Message;

use crate::Target;
use crate::common::rows;
use crate::files::{ReadOptions, open};

const DIM: usize = 4;
/// Readers have buffers of a fixed size; parquet and compressed Arrow unfold what repeats.
const BASE: usize = 96 << 20;
const FACTOR: usize = 4096;
/// More is not looked at: a short file may stand for many rows.
const ROWS: usize = 100_000;

fn file(extension: &'static str) -> impl Fn(&[u8]) -> bool + Send + Sync {
    let folder = tempfile::tempdir().expect("a folder");
    move |input: &[u8]| {
        let path = folder.path().join(format!("input.{extension}"));
        let mut file = std::fs::File::create(&path).expect("a file");
        file.write_all(input).expect("a file");
        drop(file);
        let options = ReadOptions { batch_bytes: 64 << 10, ..ReadOptions::default() };
        let Ok(source) = open(&path, &options) else { return false };
        let (mut seen, mut whole) = (0, true);
        for batch in source.batches {
            let Ok(batch) = batch else { return false };
            seen += batch.num_rows();
            whole &= Rows::from_record_batch(&batch, "id", "vector", DIM).is_ok();
            if seen > ROWS {
                return false;
            }
        }
        whole && seen > 0
    }
}

/// Length-delimited Flight messages, decoded as the server does.
fn flight(input: &[u8]) -> bool {
    let mut rest = input;
    let mut messages = Vec::new();
    while !rest.is_empty() && messages.len() < 64 {
        match FlightData::decode_length_delimited(&mut rest) {
            Ok(message) if message.data_header.is_empty() => {}
            Ok(message) => {
                let header = arrow_ipc::root_as_message(&message.data_header);
                // The server takes uncompressed bodies only.
                let compressed = header.is_ok_and(|header| {
                    let dictionary = header.header_as_dictionary_batch().and_then(|d| d.data());
                    let batch = header.header_as_record_batch().or(dictionary);
                    batch.is_some_and(|batch| batch.compression().is_some())
                });
                if compressed {
                    return false;
                }
                messages.push(Ok(message));
            }
            Err(_) => break,
        }
    }
    let mut good = 0;
    let decoded = async {
        let mut decoder = FlightDataDecoder::new(futures::stream::iter(messages).boxed());
        // As the server: what makes the decoder panic is the message's fault.
        while let Ok(Ok(Some(message))) = AssertUnwindSafe(decoder.try_next()).catch_unwind().await {
            if let DecodedPayload::RecordBatch(batch) = message.payload
                && batch.num_rows() <= ROWS
            {
                good += usize::from(Rows::from_record_batch(&batch, "id", "vector", DIM).is_ok());
            }
        }
    };
    decoded.now_or_never().expect("nothing waits");
    good > 0
}

fn batch(n: usize) -> RecordBatch {
    let whole = rows(n, DIM).to_record_batch().expect("a batch");
    // As a caller spells it: one column of ids.
    let keep: Vec<usize> =
        (0..whole.num_columns()).filter(|i| whole.schema_ref().field(*i).name() != "id_string").collect();
    let whole = whole.project(&keep).expect("columns");
    let names = whole.schema_ref().fields().iter().map(|field| {
        let name = match field.name().as_str() {
            "id_u64" => "id",
            name => name.strip_prefix("attr.").unwrap_or(name),
        };
        Arc::new(field.as_ref().clone().with_name(name))
    });
    let schema = arrow_schema::Schema::new(names.collect::<Vec<_>>());
    let mut columns = whole.columns().to_vec();
    let at = schema.index_of("id").expect("the ids");
    columns[at] = Arc::new(UInt64Array::from_iter_values(0..n as u64));
    RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")
}

fn arrow_file(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
    writer.write(batch).expect("a batch");
    writer.into_inner().expect("bytes")
}

fn arrow_stream(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
    writer.write(batch).expect("a batch");
    writer.into_inner().expect("bytes")
}

fn parquet_file(batch: &RecordBatch) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).expect("a writer");
    writer.write(batch).expect("a batch");
    writer.close().expect("bytes");
    out
}

fn npy_file() -> Vec<u8> {
    let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }".to_owned();
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    (0..12).for_each(|i| out.extend((i as f32).to_le_bytes()));
    out
}

fn fvecs_file() -> Vec<u8> {
    let row =
        |i: i32| [4i32.to_le_bytes().to_vec(), (0..4).flat_map(|j| ((i + j) as f32).to_le_bytes()).collect()];
    (0..3).flat_map(row).flatten().collect()
}

const JSONL: &[u8] =
    br#"{"id": 1, "vector": [0.5, 1, -2e1, 3], "text": "a", "n": 3, "list": [1, 2], "yes": true}
{"id": 2, "vector": [0.25, 1, 2, 3], "text": null, "n": 4.5, "list": []}
{"vector": [1, 2, 3, 4], "id": 18446744073709551615}
"#;

fn flight_messages(batch: RecordBatch) -> Vec<u8> {
    let encoded = FlightDataEncoderBuilder::new().build(futures::stream::iter([Ok(batch)]));
    let messages: Vec<FlightData> =
        encoded.try_collect().now_or_never().expect("nothing waits").expect("messages");
    messages.iter().flat_map(|message| message.encode_length_delimited_to_vec()).collect()
}

/// Every reader of foreign bytes.
pub fn targets() -> Vec<Target> {
    let batch = batch(9);
    let target = |name: &str, run: crate::Run, seeds: Vec<Vec<u8>>| Target {
        name: name.to_owned(),
        run,
        seeds,
        base: BASE,
        factor: FACTOR,
    };
    let files = [
        ("npy", vec![npy_file()]),
        ("fvecs", vec![fvecs_file()]),
        ("jsonl", vec![JSONL.to_vec()]),
        ("parquet", vec![parquet_file(&batch)]),
        ("arrow", vec![arrow_file(&batch), arrow_stream(&batch)]),
    ];
    let mut all: Vec<Target> = files
        .into_iter()
        .map(|(kind, seeds)| target(&format!("file_{kind}"), Box::new(file(kind)), seeds))
        .collect();
    all.push(target("flight_messages", Box::new(flight), vec![flight_messages(batch)]));
    all
}
