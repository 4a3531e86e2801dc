//! Every file format brings the same rows, and a file may be loaded again.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Float64Array, Int32Array, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use pando_proto::v1::value::Kind;
use pando_tests::data::{Mixture, Vectors};
use pando_tests::grpc::{Api, How, as_number, number, text};
use pando_tests::{Fixture, files, flight};

#[tokio::test(flavor = "multi_thread")]
async fn every_format_brings_the_same_rows() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    let rows = Mixture::new(2, 24, 10).rows(1, 2000);
    let ids: Vec<u64> = (0..2000).collect();
    files::write_npy(&f.path("a.npy"), &rows);
    files::write_fvecs(&f.path("a.fvecs"), &rows);
    files::write_jsonl(&f.path("a.jsonl"), &rows);
    files::write_arrow(&f.path("a.arrow"), &files::batch(&ids, &rows));
    files::write_parquet(&f.path("a.parquet"), &files::batch(&ids, &rows));
    let query = rows.slice(5..6);

    for format in ["npy", "fvecs", "jsonl", "arrow", "parquet"] {
        f.server.create(format, 24, "l2");
        let path = f.path(&format!("a.{format}"));
        let report = f.server.json(&["ingest", format, path.to_str().expect("UTF-8")]);
        assert_eq!(report["rows"], 2000, "{format}");
        let all = api.scan(format).await.expect("scan");
        assert_eq!(all.len(), 2000, "{format}");
        for (i, record) in all.iter().enumerate() {
            assert_eq!(as_number(&record.id), i as u64, "{format}: scans are in id order");
            let values = &record.vector.as_ref().expect("a vector").values;
            assert_eq!(values, rows.row(i), "{format}: row {i}");
        }
        let best = &api.search(format, &query, 1, How::Default).await[0];
        assert_eq!(best[0], (5, 0.0), "{format}");
    }
    let with_attribute = api.fetch("jsonl", vec![number(7)]).await.expect("fetch");
    let tag = &with_attribute[0].as_ref().expect("row 7").attributes["tag"];
    assert_eq!(tag.kind, Some(Kind::String("row 7".into())));

    // Half precision.
    f.server.create("half", 24, "l2");
    let rounded = files::write_npy_f16(&f.path("h.npy"), &rows);
    f.server.json(&["ingest", "half", f.path("h.npy").to_str().expect("UTF-8")]);
    let record = api.fetch("half", vec![number(1999)]).await.expect("fetch").remove(0).expect("row 1999");
    assert_eq!(record.vector.expect("a vector").values, rounded.row(1999));

    // Again: the same ids, so the same records.
    let again = f.server.json(&["ingest", "npy", f.path("a.npy").to_str().expect("UTF-8")]);
    assert_eq!(again["rows"], 2000);
    assert_eq!(f.server.count("npy"), 2000);
    f.server.compact("npy");
    assert_eq!(f.server.count("npy"), 2000);
    f.server.verify("npy");
}

#[tokio::test(flavor = "multi_thread")]
async fn named_columns_are_taken() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    let rows = Vectors { dim: 2, flat: vec![1.0, 2.0, 3.0, 4.0] };
    let names: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let batch = files::batch_with(names, &rows, vec![]);
    let schema = arrow_schema::Schema::new(vec![
        batch.schema().field(0).clone().with_name("key"),
        batch.schema().field(1).clone().with_name("embedding"),
    ]);
    let batch =
        arrow_array::RecordBatch::try_new(Arc::new(schema), batch.columns().to_vec()).expect("a batch");
    let path = f.path("named.parquet");
    files::write_parquet(&path, &batch);
    f.server.create("named", 2, "dot");
    let path = path.to_str().expect("UTF-8");
    // The default columns are not there: the error names them.
    let error = f.server.fails(&["ingest", "named", path]);
    assert!(error.contains("id") && error.contains("key"), "{error}");
    f.server.json(&["ingest", "named", path, "--id-column", "key", "--vector-column", "embedding"]);
    let found = api.fetch("named", vec![text("y"), text("z")]).await.expect("fetch");
    assert_eq!(found[0].as_ref().expect("y").vector.as_ref().expect("a vector").values, [3.0, 4.0]);
    assert_eq!(found[1], None);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_of_all_types_come_back() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("typed", 2, "l2");
    let rows = Vectors { dim: 2, flat: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
    let keys = DictionaryArray::<Int32Type>::from_iter([Some("red"), None, Some("blue")]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("int", Arc::new(Int32Array::from(vec![Some(-5), Some(7), None]))),
        ("float", Arc::new(Float64Array::from(vec![0.25, -0.0, 1e300]))),
        ("text", Arc::new(StringArray::from(vec![Some(""), Some("snow ☃"), None]))),
        ("when", Arc::new(TimestampMicrosecondArray::from(vec![0, -1, 1_700_000_000_000_000]))),
        ("raw", Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b"", b"x"]))),
        ("color", Arc::new(keys)),
    ];
    let ids: ArrayRef = Arc::new(UInt64Array::from(vec![1, 2, 3]));
    let batch = files::batch_with(ids, &rows, columns);
    flight::load(&f.server, "typed", vec![batch]).await.expect("DoPut");

    for round in ["tail", "root"] {
        let got = api.fetch("typed", vec![number(1), number(2), number(3)]).await.expect("fetch");
        let kind = |row: usize, name: &str| {
            let record = got[row].as_ref().expect("a record");
            record.attributes.get(name).and_then(|v| v.kind.clone())
        };
        assert_eq!(kind(0, "bool"), Some(Kind::Bool(true)), "{round}");
        assert_eq!(kind(1, "bool"), None, "{round}: null is absent");
        assert_eq!(kind(0, "int"), Some(Kind::Int64(-5)), "{round}");
        assert_eq!(kind(2, "float"), Some(Kind::Float64(1e300)), "{round}");
        assert_eq!(kind(0, "text"), Some(Kind::String(String::new())), "{round}: empty is not absent");
        assert_eq!(kind(1, "text"), Some(Kind::String("snow ☃".into())), "{round}");
        assert_eq!(kind(1, "when"), Some(Kind::TimestampMicros(-1)), "{round}");
        assert_eq!(kind(0, "raw"), Some(Kind::Bytes(vec![0, 255])), "{round}");
        assert_eq!(kind(0, "color"), Some(Kind::String("red".into())), "{round}");
        assert_eq!(kind(1, "color"), None, "{round}");
        f.server.compact("typed");
    }

    // The first type of an attribute stays: a batch that contradicts it is refused whole.
    let ids: ArrayRef = Arc::new(UInt64Array::from(vec![4, 5]));
    let wrong = files::batch_with(
        ids,
        &rows.slice(0..2),
        vec![("int", Arc::new(StringArray::from(vec!["one", "two"])) as ArrayRef)],
    );
    let error = flight::load(&f.server, "typed", vec![wrong]).await.expect_err("another type");
    assert!(error.message().contains("int"), "{error}");
    assert_eq!(f.server.count("typed"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn sliced_batches_bring_only_their_rows() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("sliced", 8, "l2");
    let rows = Mixture::new(3, 8, 3).rows(1, 1000);
    let ids: Vec<u64> = (0..1000).collect();
    let whole = files::batch(&ids, &rows);
    flight::load(&f.server, "sliced", vec![whole.slice(100, 50), whole.slice(900, 100)])
        .await
        .expect("DoPut");
    let all = api.scan("sliced").await.expect("scan");
    assert_eq!(all.len(), 150);
    for record in all {
        let id = as_number(&record.id) as usize;
        assert!((100..150).contains(&id) || id >= 900);
        assert_eq!(record.vector.expect("a vector").values, rows.row(id));
    }
}
