//! DoPut: acknowledgements, streams that end early or never begin, columns.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, DictionaryArray, RecordBatch};
use arrow_flight::{FlightData, FlightDescriptor};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use futures::StreamExt;
use pando_client::{Code, IngestOptions, proto};
use pando_gateway::Settings;

use crate::fixture::{Fixture, batch, messages, reason};

#[tokio::test(flavor = "multi_thread")]
async fn each_batch_is_acknowledged_with_what_is_durable() {
    let fixture = Fixture::start().await;
    fixture.create("c", 4).await;
    let batches: Vec<RecordBatch> =
        (0..3).map(|i| batch(i * 100, 100, 4)).chain([batch(300, 0, 4)]).collect();
    let (acks, result) = fixture.put(futures::stream::iter(messages("c", &batches))).await;
    result.unwrap();
    let durable: Vec<u64> = acks.iter().map(|ack| ack["rows_durable"].as_u64().unwrap()).collect();
    assert_eq!(durable, [100, 200, 300, 300]);
    let sequences: Vec<u64> = acks.iter().map(|ack| ack["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.is_sorted() && sequences[0] > 0, "{sequences:?}");
    assert_eq!(fixture.count("c").await, 300);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_streams_are_fine_and_a_missing_descriptor_is_not() {
    let fixture = Fixture::start().await;
    fixture.create("c", 4).await;
    let whole = messages("c", &[batch(0, 10, 4)]);
    let descriptor_only =
        FlightData { flight_descriptor: whole[0].flight_descriptor.clone(), ..Default::default() };
    for stream in [vec![], vec![descriptor_only.clone()], vec![whole[0].clone()]] {
        let (acks, result) = fixture.put(futures::stream::iter(stream)).await;
        result.unwrap();
        assert!(acks.is_empty());
    }
    // A descriptor of its own, then the schema.
    let split =
        vec![descriptor_only, FlightData { flight_descriptor: None, ..whole[0].clone() }, whole[1].clone()];
    fixture.put(futures::stream::iter(split)).await.1.unwrap();
    assert_eq!(fixture.count("c").await, 10);

    let nameless = FlightData { flight_descriptor: None, ..whole[0].clone() };
    let refused = fixture.put(futures::stream::iter([nameless])).await.1.unwrap_err();
    assert_eq!(reason(&refused), "DESCRIPTOR_MISSING", "{refused}");
    let two = FlightDescriptor::new_path(vec!["c".into(), "d".into()]);
    let two = FlightData { flight_descriptor: Some(two), ..whole[0].clone() };
    assert_eq!(reason(&fixture.put(futures::stream::iter([two])).await.1.unwrap_err()), "BAD_DESCRIPTOR");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_go_by_name_and_a_schema_stays() {
    let fixture = Fixture::start().await;
    fixture.create("c", 4).await;
    let renamed = |batch: &RecordBatch, id: &str, vector: &str| {
        let columns = [(id, batch.column(0).clone()), (vector, batch.column(1).clone())];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let other = renamed(&batch(0, 5, 4), "key", "emb");
    let refused =
        fixture.put(futures::stream::iter(messages("c", std::slice::from_ref(&other)))).await.1.unwrap_err();
    assert_eq!(reason(&refused), "COLUMN_MISSING");
    assert!(refused.message().contains("key"), "{refused}");

    let mut with_metadata = messages("c", std::slice::from_ref(&other));
    with_metadata[0].app_metadata = r#"{"id_column":"key","vector_column":"emb"}"#.into();
    fixture.put(futures::stream::iter(with_metadata)).await.1.unwrap();
    assert_eq!(fixture.count("c").await, 5);

    let twice = renamed(&batch(0, 5, 4), "id", "id");
    let refused = fixture.put(futures::stream::iter(messages("c", &[twice]))).await.1.unwrap_err();
    assert_eq!(reason(&refused), "DUPLICATE_COLUMN");

    let mut changed = messages("c", &[batch(10, 5, 4)]);
    changed.extend(messages("c", &[other]));
    let (acks, result) = fixture.put(futures::stream::iter(changed)).await;
    assert_eq!((acks.len(), reason(&result.unwrap_err()).as_str()), (1, "SCHEMA_CHANGED"));
    assert_eq!(fixture.count("c").await, 10);

    let mut bad = messages("c", &[batch(0, 5, 4)]);
    bad[1].app_metadata = "yes".into();
    assert_eq!(reason(&fixture.put(futures::stream::iter(bad)).await.1.unwrap_err()), "BAD_APP_METADATA");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_over_64_mib_is_refused_by_name() {
    let fixture = Fixture::start().await;
    fixture.create("c", 1024).await;
    let large = messages("c", &[batch(0, 10, 1024), batch(10, 16_500, 1024)]);
    let (acks, result) = fixture.put(futures::stream::iter(large)).await;
    let refused = result.unwrap_err();
    assert_eq!((acks.len(), reason(&refused).as_str()), (1, "BATCH_TOO_LARGE"), "{refused}");
    assert!(refused.message().contains("batch 1") && refused.message().contains("64 MiB"), "{refused}");
    let larger = messages("c", &[batch(0, 25_000, 1024)]);
    let refused = fixture.put(futures::stream::iter(larger)).await.1.unwrap_err();
    assert_eq!(reason(&refused), "MESSAGE_TOO_LARGE", "{refused}");
    assert_eq!(fixture.count("c").await, 10);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_ends_by_itself_and_keeps_what_was_acknowledged() {
    let settings = Settings { idle: Duration::from_millis(300), ..Settings::default() };
    let fixture = Fixture::start_with(settings).await;
    fixture.create("c", 4).await;
    let silent = futures::stream::iter(messages("c", &[batch(0, 10, 4)])).chain(futures::stream::pending());
    let (acks, result) = fixture.put(silent).await;
    let ended = result.unwrap_err();
    assert_eq!(
        (acks.len(), ended.code(), reason(&ended).as_str()),
        (1, Code::DeadlineExceeded, "STREAM_IDLE")
    );
    assert_eq!(fixture.count("c").await, 10);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_sends_ahead_and_counts_what_is_durable() {
    let fixture = Fixture::start().await;
    fixture.create("c", 8).await;
    let mut ingest = fixture.client.ingest("c", IngestOptions::default());
    for i in 0..20 {
        ingest.send(&batch(i * 50, 50, 8)).await.unwrap();
    }
    let summary = ingest.finish().await.unwrap();
    assert_eq!((summary.rows, fixture.count("c").await), (1000, 1000));

    let mut ingest = fixture.client.ingest("nowhere", IngestOptions::default());
    ingest.send(&batch(0, 1, 8)).await.unwrap();
    assert_eq!(ingest.finish().await.unwrap_err().code, Code::NotFound);
    let mut ingest = fixture.client.ingest("c", IngestOptions::default());
    ingest.send(&batch(0, 1, 7)).await.unwrap();
    assert_eq!(ingest.finish().await.unwrap_err().code, Code::InvalidArgument);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_change_from_batch_to_batch() {
    let fixture = Fixture::start().await;
    fixture.create("c", 2).await;
    let colours = |first: u64, names: [&str; 2]| {
        let plain = batch(first, 3, 2);
        let colours = DictionaryArray::<Int8Type>::from_iter([Some(names[0]), None, Some(names[1])]);
        let colours: ArrayRef = Arc::new(colours);
        let columns =
            [("id", plain.column(0).clone()), ("vector", plain.column(1).clone()), ("colour", colours)];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let mut ingest = fixture.client.ingest("c", IngestOptions::default());
    ingest.send(&colours(0, ["red", "blue"])).await.unwrap();
    ingest.send(&colours(3, ["green", "red"])).await.unwrap();
    ingest.finish().await.unwrap();
    let request = proto::FetchRequest {
        collection: "c".into(),
        ids: (0..6u64).map(Into::into).collect(),
        include: Some(proto::Include { all_attributes: true, ..Default::default() }),
        ..Default::default()
    };
    let found = fixture.client.fetch(request).await.unwrap().results.into_iter().map(|result| {
        let colour = result.record.unwrap().attributes.remove("colour")?.kind?;
        let proto::value::Kind::String(colour) = colour else { panic!("{colour:?}") };
        Some(colour)
    });
    let found: Vec<Option<String>> = found.collect();
    let expected = [Some("red"), None, Some("blue"), Some("green"), None, Some("red")];
    assert_eq!(found, expected.map(|colour| colour.map(str::to_owned)));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_refused_by_name() {
    let fixture = Fixture::start().await;
    fixture.create("c", 64).await;
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
    let whole = batch(0, 100, 64);
    let (_, compressed) = IpcDataGenerator::default()
        .encode(&whole, &mut DictionaryTracker::new(false), &options, &mut IpcWriteContext::default())
        .unwrap();
    let schema = messages("c", &[whole]).swap_remove(0);
    let refused = fixture.put(futures::stream::iter([schema, compressed.into()])).await.1.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "COMPRESSED_ARROW"));
    assert_eq!(fixture.count("c").await, 0);
    fixture.stop().await;
}
