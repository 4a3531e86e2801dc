//! Single calls: sizes, ids byte for byte, deadlines, pages, what is not there.

use std::time::Duration;

use arrow_flight::{Action, FlightDescriptor, Ticket};
use futures::StreamExt;
use pando_client::{Code, proto};
use pando_proto::v1::record_service_client::RecordServiceClient;
use tonic::Request;

use crate::fixture::{Fixture, batch, messages, reason, record};

fn all() -> Option<proto::Include> {
    Some(proto::Include { vector: true, all_attributes: true, attributes: Vec::new() })
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_above_four_mebibytes_pass_and_above_sixty_four_are_refused_by_name() {
    let fixture = Fixture::start().await;
    fixture.create("large", 1536).await;
    let records = (0..2000u64).map(|id| record(id, vec![id as f32; 1536])).collect();
    assert_eq!(fixture.client.upsert("large", records).await.unwrap().upserted, 2000);

    let ids: Vec<proto::Id> = (0..2000u64).map(Into::into).collect();
    let request =
        proto::FetchRequest { collection: "large".into(), ids, include: all(), ..Default::default() };
    let fetched = fixture.client.fetch(request).await.unwrap();
    for (id, result) in fetched.results.iter().enumerate() {
        assert_eq!(result.record.as_ref().unwrap().vector.as_ref().unwrap().values, vec![id as f32; 1536]);
    }

    // 67 MB: our limit, with words.
    let records = (0..11_000u64).map(|id| record(id, vec![0.5; 1536])).collect();
    let request = proto::UpsertRequest { collection: "large".into(), records, ..Default::default() };
    let mut service = RecordServiceClient::new(fixture.channel.clone());
    let refused = service.upsert(request).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::ResourceExhausted, "MESSAGE_TOO_LARGE"),
        "{refused}"
    );
    assert!(refused.message().contains("64 MiB") && refused.message().contains("DoPut"), "{refused}");
    // 98 MB: tonic's limit, in the same words.
    let records = (0..16_000u64).map(|id| record(id, vec![0.5; 1536])).collect();
    let request = proto::UpsertRequest { collection: "large".into(), records, ..Default::default() };
    let refused = service.upsert(request).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::ResourceExhausted, "MESSAGE_TOO_LARGE"),
        "{refused}"
    );
    assert_eq!(fixture.count("large").await, 2000);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_come_back_byte_for_byte_and_missing_ones_are_marked() {
    let fixture = Fixture::start().await;
    fixture.create("ids", 2).await;
    let odd = [
        "a\0b",
        " a",
        "a ",
        "🌲",
        "é",
        "e\u{301}",
        "../x",
        "a/b",
        "a%2Fb",
        "100%",
        "*",
        "7",
        &"x".repeat(512),
    ];
    let mut records: Vec<_> =
        odd.iter().enumerate().map(|(i, id)| record(*id, vec![i as f32, 0.0])).collect();
    records.push(record(7u64, vec![100.0, 0.0]));
    assert_eq!(fixture.client.upsert("ids", records).await.unwrap().upserted, odd.len() as u64 + 1);

    let mut ids: Vec<proto::Id> = odd.iter().map(|id| (*id).into()).collect();
    ids.extend([7u64.into(), "zz".into(), "🌲".into()]);
    let request = proto::FetchRequest {
        collection: "ids".into(),
        ids: ids.clone(),
        include: all(),
        ..Default::default()
    };
    let fetched = fixture.client.fetch(request).await.unwrap();
    assert_eq!(fetched.results.len(), ids.len());
    for (asked, result) in ids.iter().zip(&fetched.results) {
        assert_eq!(result.id.as_ref(), Some(asked));
        match &result.record {
            Some(record) => assert_eq!(record.id.as_ref(), Some(asked)),
            None => assert_eq!(asked, &proto::Id::from("zz")),
        }
    }
    assert_eq!(fixture.client.delete_ids("ids", vec!["7".into(), "nobody".into()]).await.unwrap().deleted, 1);
    assert_eq!(fixture.count("ids").await, odd.len() as u64);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_write_with_its_key_is_applied_once() {
    let fixture = Fixture::start().await;
    fixture.create("once", 2).await;
    let mut service = RecordServiceClient::new(fixture.channel.clone());
    let upsert = |value: f32, key: &str| proto::UpsertRequest {
        collection: "once".into(),
        records: vec![record(1u64, vec![value, 0.0])],
        idempotency_key: key.into(),
    };
    let first = service.upsert(upsert(1.0, "k")).await.unwrap().into_inner();
    let again = service.upsert(upsert(1.0, "k")).await.unwrap().into_inner();
    assert_eq!(again, first);
    let other = service.upsert(upsert(2.0, "k")).await.unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument, "{other}");
    let long = service.upsert(upsert(1.0, &"k".repeat(129))).await.unwrap_err();
    assert_eq!(reason(&long), "INVALID_IDEMPOTENCY_KEY");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_a_call_with_words() {
    let fixture = Fixture::start().await;
    fixture.create("slow", 4).await;
    // A stream that never ends: its answer has begun when time is up.
    let endless =
        futures::stream::iter(messages("slow", &[batch(0, 10, 4)])).chain(futures::stream::pending());
    let mut request = Request::new(endless);
    request.set_timeout(Duration::from_millis(800));
    let mut answers = fixture.flight().do_put(request).await.unwrap().into_inner();
    answers.message().await.unwrap().expect("the batch is acknowledged");
    let late = answers.message().await.unwrap_err();
    assert_eq!(
        (late.code(), reason(&late).as_str()),
        (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        "{late:?}"
    );
    assert_eq!(fixture.count("slow").await, 10);

    let mut request = Request::new(proto::CountRequest { collection: "slow".into(), ..Default::default() });
    request.set_timeout(Duration::from_secs(20));
    RecordServiceClient::new(fixture.channel.clone()).count(request).await.unwrap();
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    use pando_proto::v1::collection_service_client::CollectionServiceClient;
    let fixture = Fixture::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        fixture.create(name, 1).await;
    }
    let mut service = CollectionServiceClient::new(fixture.channel.clone());
    let (mut names, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = proto::ListCollectionsRequest { page_size: Some(2), page_token };
        let page = service.list_collections(request).await.unwrap().into_inner();
        assert!(page.names.len() <= 2);
        names.extend(page.names);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    for size in [0, 10_001, u32::MAX] {
        let request = proto::ListCollectionsRequest { page_size: Some(size), ..Default::default() };
        assert_eq!(reason(&service.list_collections(request).await.unwrap_err()), "INVALID_PAGE_SIZE");
    }
    let request =
        proto::ListRootsRequest { collection: "a".into(), page_token: "first".into(), ..Default::default() };
    assert_eq!(reason(&service.list_roots(request).await.unwrap_err()), "BAD_PAGE_TOKEN");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_says_so() {
    let fixture = Fixture::start().await;
    fixture.create("here", 3).await;
    let mut flight = fixture.flight();
    let action = Action { r#type: "vacuum".into(), ..Default::default() };
    for refused in [
        flight.do_get(Ticket::default()).await.map(|_| ()).unwrap_err(),
        flight.do_action(action).await.map(|_| ()).unwrap_err(),
        flight.poll_flight_info(FlightDescriptor::default()).await.map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::Unimplemented);
        assert!(refused.message().contains("is not there"), "{refused}");
    }
    let descriptor = FlightDescriptor::new_path(vec!["here".into()]);
    let info = flight.get_flight_info(descriptor.clone()).await.unwrap().into_inner();
    let schema = info.try_decode_schema().unwrap();
    assert_eq!(schema.fields().len(), 2);
    assert!(!flight.get_schema(descriptor).await.unwrap().into_inner().schema.is_empty());
    let unknown = flight.get_schema(FlightDescriptor::new_path(vec!["gone".into()])).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown}");
    let nothing = flight.get_schema(FlightDescriptor::default()).await.unwrap_err();
    assert_eq!(reason(&nothing), "DESCRIPTOR_MISSING");
    fixture.stop().await;
}
