//! Requests that are refused: the right code, the culprit by name, nothing stored, nothing of the inside told, and the
//! server serves the next request.

use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, BinaryArray, Float32Array, ListArray, StringArray, UInt64Array};
use futures::StreamExt;
use pando_proto::v1;
use pando_tests::data::{Mixture, Vectors};
use pando_tests::grpc::{Api, How, number, reason, record, text};
use pando_tests::{Fixture, files, flight};
use tonic::{Code, Status};

/// Law 10: an error is for the caller, and says nothing of the inside.
#[track_caller]
fn well_made(f: &Fixture, error: &Status, code: Code, names: &[&str]) {
    assert_eq!(error.code(), code, "{error}");
    for name in names {
        assert!(error.message().contains(name), "{name} is not named: {}", error.message());
    }
    assert!(!reason(error).is_empty(), "no stable reason: {error:?}");
    let inside = f.dir.path().to_string_lossy().into_owned();
    for word in [inside.as_str(), "/0/log", "panicked", ".rs:", "RUST_BACKTRACE"] {
        assert!(!error.message().contains(word), "{word}: {}", error.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_batch_leaves_nothing() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("l2", 3, "l2");
    f.server.create("cosine", 3, "cosine");
    let good = |i: u64| record(number(i), &[1.0, 2.0, 3.0]);
    let long = "x".repeat(513);
    let huge = "y".repeat(64 << 10);
    let cases: Vec<(&str, v1::Record, &[&str])> = vec![
        ("l2", record(number(77), &[1.0, 2.0]), &["77", "2", "3"]),
        ("l2", record(number(77), &[1.0, f32::NAN, 3.0]), &["77"]),
        ("l2", record(number(77), &[1.0, f32::INFINITY, 3.0]), &["77"]),
        ("l2", record(number(77), &[1.0, f32::NEG_INFINITY, 3.0]), &["77"]),
        ("l2", record(number(77), &[]), &["77"]),
        ("l2", record(text(""), &[1.0, 2.0, 3.0]), &[]),
        ("l2", record(text(&long), &[1.0, 2.0, 3.0]), &["512"]),
        ("l2", record(text(&huge), &[1.0, 2.0, 3.0]), &["512"]),
        ("l2", record(v1::Id { kind: None }, &[1.0, 2.0, 3.0]), &[]),
        ("l2", v1::Record { id: Some(number(77)), ..Default::default() }, &["77"]),
        ("cosine", record(number(77), &[0.0, 0.0, 0.0]), &["77", "zero"]),
        ("cosine", record(number(77), &[0.0, -0.0, 0.0]), &["77", "zero"]),
        // The squared norm is not a normal f32.
        ("cosine", record(number(77), &[1e-30, 0.0, 0.0]), &["77"]),
        ("l2", record(number(77), &[3e38, 3e38, 3e38]), &["77"]),
    ];
    for (collection, bad, names) in cases {
        let batch = vec![good(1), good(2), bad.clone(), good(3)];
        let error = api.upsert(collection, batch).await.expect_err("a bad record in the middle");
        well_made(&f, &error, Code::InvalidArgument, names);
        assert_eq!(api.count(collection).await.expect("count"), 0, "{bad:?}");
    }
    // A zero vector is fine elsewhere.
    api.upsert("l2", vec![record(number(0), &[0.0, 0.0, 0.0])]).await.expect("zero under l2");
    api.upsert("cosine", vec![good(1)]).await.expect("the server serves the next request");

    // Attributes over 64 KiB.
    let mut fat = good(9);
    fat.attributes.insert("blob".into(), pando_tests::grpc::string(&"z".repeat(65 << 10)));
    let error = api.upsert("l2", vec![good(8), fat]).await.expect_err("attributes over 64 KiB");
    well_made(&f, &error, Code::InvalidArgument, &["9"]);
    // A type that contradicts.
    let mut typed = good(10);
    typed.attributes.insert("a".into(), pando_tests::grpc::string("text"));
    api.upsert("l2", vec![typed.clone()]).await.expect("the first type");
    typed.attributes.insert("a".into(), v1::Value { kind: Some(v1::value::Kind::Int64(1)) });
    let error = api.upsert("l2", vec![good(11), typed]).await.expect_err("another type");
    well_made(&f, &error, Code::InvalidArgument, &["a"]);
    assert_eq!(api.count("l2").await.expect("count"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_checked() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("c", 3, "cosine");
    api.upsert("c", vec![record(number(1), &[1.0, 2.0, 3.0])]).await.expect("upsert");
    let q = Vectors { dim: 3, flat: vec![1.0, 0.0, 0.0] };
    for k in [0, 10_001, 1 << 31, u32::MAX] {
        let error = api.query("c", &q, k, How::Default).await.expect_err("top_k");
        well_made(&f, &error, Code::InvalidArgument, &["top_k", "10"]);
    }
    let short = Vectors { dim: 2, flat: vec![1.0, 0.0] };
    let error = api.query("c", &short, 1, How::Default).await.expect_err("dimension");
    well_made(&f, &error, Code::InvalidArgument, &["2", "3"]);
    for x in [f32::NAN, f32::INFINITY] {
        let bad = Vectors { dim: 3, flat: vec![1.0, x, 0.0] };
        let error = api.query("c", &bad, 1, How::Default).await.expect_err("not finite");
        well_made(&f, &error, Code::InvalidArgument, &[]);
    }
    let zero = Vectors { dim: 3, flat: vec![0.0; 3] };
    let error = api.query("c", &zero, 1, How::Default).await.expect_err("zero under cosine");
    well_made(&f, &error, Code::InvalidArgument, &["zero"]);
    for target in [0.0, 0.5, 1.5, f32::NAN] {
        let error = api.query("c", &q, 1, How::Target(target)).await.expect_err("recall target");
        well_made(&f, &error, Code::InvalidArgument, &["recall_target"]);
    }
    let error = api.query("c", &q, 1, How::Leaves(0)).await.expect_err("no leaves");
    well_made(&f, &error, Code::InvalidArgument, &["leaves"]);
    let none = Vectors { dim: 3, flat: vec![] };
    let error = api.query("c", &none, 1, How::Default).await.expect_err("no vector");
    well_made(&f, &error, Code::InvalidArgument, &[]);
    let answer = api.search("c", &q, 10_000, How::Default).await;
    assert_eq!(answer[0].len(), 1, "min(k, live)");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_malformed_collections() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    let error = api.count("nowhere").await.expect_err("unknown");
    well_made(&f, &error, Code::NotFound, &["nowhere"]);
    let error = api.upsert("nowhere", vec![record(number(1), &[1.0])]).await.expect_err("unknown");
    well_made(&f, &error, Code::NotFound, &["nowhere"]);
    let long = "n".repeat(129);
    for name in ["", "UPPER", "-x", ".x", "a/b", "../x", "é", "a b", "a\0b", long.as_str()] {
        let config =
            v1::CollectionConfig { name: name.into(), dimension: 2, metric: 1, ..Default::default() };
        let request = v1::CreateCollectionRequest { config: Some(config) };
        let error = api.collections.create_collection(request).await.expect_err("a bad name");
        well_made(&f, &error, Code::InvalidArgument, &[]);
    }
    for (dimension, metric, copies) in [(0, 1, 2), (16_385, 1, 2), (3, 0, 2), (3, 9, 2), (3, 1, 0), (3, 1, 3)]
    {
        let copies = Some(copies);
        let config =
            v1::CollectionConfig { name: "x".into(), dimension, metric, copies, ..Default::default() };
        let request = v1::CreateCollectionRequest { config: Some(config) };
        let error = api.collections.create_collection(request).await.expect_err("a bad configuration");
        well_made(&f, &error, Code::InvalidArgument, &[]);
    }
    f.server.create("x", 2, "l2");
    let config = v1::CollectionConfig { name: "x".into(), dimension: 2, metric: 1, ..Default::default() };
    let request = v1::CreateCollectionRequest { config: Some(config) };
    let error = api.collections.create_collection(request).await.expect_err("taken");
    well_made(&f, &error, Code::AlreadyExists, &["x"]);
    // The edges of what is allowed.
    for (name, dimension) in [("0", 1), ("a.b_c-d", 16_384)] {
        f.server.create(name, dimension, "l2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_needs_exactly_one_selector() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("d", 2, "l2");
    api.upsert("d", vec![record(number(1), &[1.0, 2.0])]).await.expect("upsert");
    let none = v1::DeleteRequest { collection: "d".into(), ..Default::default() };
    let error = api.records.delete(none).await.expect_err("no selector");
    well_made(&f, &error, Code::InvalidArgument, &[]);
    let empty = api.delete("d", vec![]).await.expect("an empty list deletes nothing and is fine");
    assert_eq!(empty.deleted, 0);
    let missing = api.delete("d", vec![number(99), text("1")]).await.expect("ids that are not there");
    assert_eq!(missing.deleted, 0);
    assert_eq!(api.count("d").await.expect("count"), 1);
    assert_ne!(f.server.run(&["delete", "d"]).code, 0);
    assert_eq!(api.count("d").await.expect("count"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_flight_batch_is_refused_by_name_and_whole() {
    let f = Fixture::start();
    f.server.create("f", 4, "cosine");
    let rows = Mixture::new(1, 4, 3).rows(1, 100);
    let ids = |n: u64| -> ArrayRef { Arc::new(UInt64Array::from_iter_values(0..n)) };
    let with = |i: usize, x: f32| {
        let mut v = rows.clone();
        v.flat[i * 4 + 1] = x;
        v
    };
    let mut zero = rows.clone();
    zero.flat[40 * 4..41 * 4].fill(0.0);
    let narrow = Mixture::new(1, 3, 3).rows(1, 100);
    let mut empty_id: Vec<String> = (0..100).map(|i| i.to_string()).collect();
    empty_id[40] = String::new();
    let mut long_id = empty_id.clone();
    long_id[40] = "x".repeat(64 << 10);
    let null_ids: UInt64Array = (0..100).map(|i| if i == 40 { None } else { Some(i) }).collect();
    // Text ids that are not UTF-8 can only come as binary.
    let not_utf8: BinaryArray =
        (0..100).map(|i| Some(if i == 40 { &b"\xff\xfe"[..] } else { &b"ok"[..] })).collect();
    // A wrong dimension in the middle of a batch needs a list of variable length.
    let ragged =
        ListArray::from_iter_primitive::<Float32Type, _, _>((0..100).map(|i| {
            Some((0..if i == 40 { 3 } else { 4 }).map(|x| Some(x as f32 + 1.0)).collect::<Vec<_>>())
        }));
    let ragged =
        arrow_array::RecordBatch::try_from_iter([("id", ids(100)), ("vector", Arc::new(ragged) as ArrayRef)]);
    let no_vector = arrow_array::RecordBatch::try_from_iter([("id", ids(3))]);
    let scalar: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]));
    let not_a_list = arrow_array::RecordBatch::try_from_iter([("id", ids(3)), ("vector", scalar)]);
    let cases = vec![
        ("NaN", files::batch_with(ids(100), &with(40, f32::NAN), vec![]), "40"),
        ("infinity", files::batch_with(ids(100), &with(40, f32::INFINITY), vec![]), "40"),
        ("zero", files::batch_with(ids(100), &zero, vec![]), "40"),
        ("dimension", files::batch_with(ids(100), &narrow, vec![]), "4"),
        ("empty id", files::batch_with(Arc::new(StringArray::from(empty_id)), &rows, vec![]), "40"),
        ("long id", files::batch_with(Arc::new(StringArray::from(long_id)), &rows, vec![]), "40"),
        ("null id", files::batch_with(Arc::new(null_ids), &rows, vec![]), "40"),
        ("not UTF-8", files::batch_with(Arc::new(not_utf8), &rows, vec![]), ""),
        ("ragged", ragged.expect("a batch"), "40"),
        ("no vector column", no_vector.expect("a batch"), "vector"),
        ("vector is no list", not_a_list.expect("a batch"), "vector"),
    ];
    for (what, batch, name) in cases {
        let error = flight::load(&f.server, "f", vec![batch]).await.expect_err(what);
        assert!(error.message().contains(name), "{what}: {}", error.message());
        assert_eq!(error.code(), Code::InvalidArgument, "{what}: {error}");
        assert_eq!(f.server.count("f"), 0, "{what}");
    }
    let unknown = flight::load(&f.server, "nowhere", vec![files::batch(&[1], &rows.slice(0..1))]).await;
    assert_eq!(unknown.expect_err("unknown").code(), Code::NotFound);
    // A good batch before a bad one is stored and acknowledged; the bad one is not.
    let good = files::batch_with(ids(100), &rows, vec![]);
    let bad = files::batch_with(ids(100), &zero, vec![]);
    flight::load(&f.server, "f", vec![good, bad]).await.expect_err("the second batch");
    assert_eq!(f.server.count("f"), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_in_the_middle_stores_whole_batches_only() {
    let f = Fixture::start();
    f.server.create("cut", 16, "l2");
    let rows = Mixture::new(1, 16, 3).rows(1, 1000);
    let batches = (0..10u64).map(|b| {
        let ids: Vec<u64> = (b * 100..(b + 1) * 100).collect();
        files::batch(&ids, &rows.slice(b as usize * 100..(b as usize + 1) * 100))
    });
    let mut messages = flight::messages("cut", batches.collect()).await;

    // The connection ends after five batches, in the middle of the stream.
    {
        let first = messages[..6].to_vec();
        let endless = futures::stream::iter(first).chain(futures::stream::pending());
        let mut client = flight::connect(&f.server).await;
        let cut = flight::put(&mut client, endless, |_| ());
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1500), cut).await;
        // Dropping the client resets the stream.
    }
    let after = f.server.count("cut");
    assert!(after.is_multiple_of(100) && after <= 500, "{after} is not a number of whole batches");

    // A message whose body ends early, and one whose header is noise.
    messages[3].data_body = messages[3].data_body.slice(0..100);
    let stream = futures::stream::iter(messages.clone());
    let error =
        flight::put(&mut flight::connect(&f.server).await, stream, |_| ()).await.expect_err("a short body");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    messages[3].data_header = vec![0xff; 40].into();
    let stream = futures::stream::iter(messages[..5].to_vec());
    let error = flight::put(&mut flight::connect(&f.server).await, stream, |_| ()).await.expect_err("noise");
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    // Nothing at all.
    let _ = flight::put(&mut flight::connect(&f.server).await, futures::stream::empty(), |_| ()).await;

    let total = f.server.count("cut");
    assert!(total.is_multiple_of(100) && total <= 500, "{total}");
    let whole = (0..10u64).map(|b| {
        let ids: Vec<u64> = (b * 100..(b + 1) * 100).collect();
        files::batch(&ids, &rows.slice(b as usize * 100..(b as usize + 1) * 100))
    });
    let acks = flight::load(&f.server, "cut", whole.collect()).await.expect("a whole stream");
    assert_eq!(acks, 10, "each batch is acknowledged");
    assert_eq!(f.server.count("cut"), 1000);
}

/// Bytes that are no gRPC at all.
#[test]
fn noise_on_the_port_does_no_harm() {
    use std::io::{Read, Write};
    let f = Fixture::start();
    f.server.create("still", 2, "l2");
    let address = f.server.url().trim_start_matches("http://").to_owned();
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0u8; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = std::net::TcpStream::connect(&address).expect("a connection");
        stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a time limit");
        let _ = stream.write_all(noise);
        let _ = stream.read(&mut [0; 1024]);
    }
    assert_eq!(f.server.count("still"), 0);
}
