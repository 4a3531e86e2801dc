//! Health, reflection, metrics, and stopping in good order.

use std::time::Duration;

use futures::StreamExt;
use pando_client::{Code, proto};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::fixture::{Fixture, batch, messages, reason};

/// Status line and body of a GET.
async fn get(address: &str, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn health_reflection_and_metrics() {
    let fixture = Fixture::start().await;
    for service in ["", "pando.v1.QueryService", "arrow.flight.protocol.FlightService"] {
        let request = HealthCheckRequest { service: service.into() };
        let health = HealthClient::new(fixture.channel.clone()).check(request).await.unwrap().into_inner();
        assert_eq!(health.status(), ServingStatus::Serving, "{service}");
    }
    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut answers = ServerReflectionClient::new(fixture.channel.clone())
        .server_reflection_info(futures::stream::iter([request]))
        .await
        .unwrap()
        .into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.next().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services")
    };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["CollectionService", "RecordService", "QueryService", "AdminService"] {
        assert!(names.contains(&format!("pando.v1.{name}")), "{names:?}");
    }

    fixture.client.list_collections().await.unwrap();
    assert!(get(&fixture.http, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(&fixture.http, "/readyz").await.starts_with("HTTP/1.1 200"));
    let metrics = get(&fixture.http, "/metrics").await;
    let counted = "pando_requests_total{method=\"/pando.v1.CollectionService/ListCollections\",code=\"Ok\"}";
    assert!(metrics.contains(counted), "{metrics}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_bulk_streams_after_the_batch_under_way_and_says_so() {
    let mut fixture = Fixture::start().await;
    fixture.create("c", 4).await;
    let endless = futures::stream::iter(messages("c", &[batch(0, 10, 4)])).chain(futures::stream::pending());
    let mut answers = fixture.flight().do_put(endless).await.unwrap().into_inner();
    answers.message().await.unwrap().expect("the batch is acknowledged");
    fixture.ask_to_stop();
    let ended = tokio::time::timeout(Duration::from_secs(10), answers.message()).await.unwrap().unwrap_err();
    assert_eq!((ended.code(), reason(&ended).as_str()), (Code::Unavailable, "SHUTTING_DOWN"), "{ended}");
    assert!(tonic_types::StatusExt::get_error_details(&ended).retry_info().is_some());
    drop(answers);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_streams_its_result_last() {
    let fixture = Fixture::start().await;
    fixture.create("c", 4).await;
    fixture.put(futures::stream::iter(messages("c", &[batch(1, 100, 4)]))).await.1.unwrap();
    let outcome = fixture.client.compact("c", true, |_| {}).await.unwrap().unwrap();
    assert!(outcome.published && outcome.root.len() == 64, "{outcome:?}");
    assert_eq!(fixture.client.list_roots("c").await.unwrap()[0].root, outcome.root);
    let report = fixture.client.verify("c", None, |_| {}).await.unwrap();
    assert!(report.ok && report.records == 100, "{report:?}");
    let recall = proto::MeasureRecallRequest {
        collection: "c".into(),
        vectors: vec![vec![7.0; 4].into()],
        top_k: 5,
        effort: None,
    };
    assert_eq!(fixture.client.measure_recall(recall, |_| {}).await.unwrap().queries, 1);
    assert_eq!(fixture.client.compact("gone", false, |_| {}).await.unwrap_err().code, Code::NotFound);
    fixture.stop().await;
}
