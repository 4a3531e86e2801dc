//! The server process: one on a data directory, health, metrics, a clean end, restarts.

use std::time::Duration;

use pando_tests::Fixture;
use pando_tests::data::Mixture;
use pando_tests::grpc::Api;
use pando_tests::server::{Options, Server};

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let f = Fixture::start();
    let mut second = Server::spawn(&f.path("data"), &Options::default());
    let why = second.wait_ready(Duration::from_secs(20)).expect_err("two servers on one directory");
    assert!(why.contains("ended"), "{why}");
    assert!(f.server.http("/readyz").is_some_and(|(status, _)| status == 200), "the first goes on");
    drop(second);
    // The lock goes with its owner.
    let Fixture { server, dir } = f;
    server.kill();
    let third = Server::start(&dir.path().join("data"));
    assert!(third.http("/healthz").is_some_and(|(status, _)| status == 200));
}

#[test]
fn it_ends_cleanly_and_starts_again_with_everything() {
    let f = Fixture::start();
    let rows = Mixture::new(4, 16, 5).rows(1, 500);
    pando_tests::files::write_npy(&f.path("a.npy"), &rows);
    f.server.create("kept", 16, "cosine");
    f.server.json(&["ingest", "kept", f.path("a.npy").to_str().expect("UTF-8")]);
    let root = f.server.compact("kept");
    f.server.json(&["ingest", "kept", f.path("a.npy").to_str().expect("UTF-8")]);
    let Fixture { server, dir } = f;
    server.stop();
    let server = Server::start(&dir.path().join("data"));
    assert_eq!(server.count("kept"), 500);
    let about = server.json(&["describe", "kept"]);
    assert_eq!(about["root"], root.as_str());
    assert_eq!(about["tail_records"], 500);
}

#[test]
fn metrics_are_prometheus_text() {
    let f = Fixture::start();
    f.server.create("seen", 4, "l2");
    let (status, body) = f.server.http("/metrics").expect("/metrics");
    assert_eq!(status, 200);
    assert!(body.lines().any(|l| l.starts_with("# TYPE pando_")), "{body}");
    for line in body.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    assert_eq!(f.server.http("/no-such-page").expect("an answer").0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_starts_by_itself() {
    let f = Fixture::start_with(&Options { auto_compact: true, ..Options::default() });
    let mut api = Api::connect(&f.server).await;
    f.server.create("auto", 8, "l2");
    // Past the size of tail that starts a checkpoint: 20,000 rows.
    let rows = Mixture::new(5, 8, 20).rows(1, 21_000);
    for start in (0..rows.len()).step_by(7000) {
        api.upsert_rows("auto", start as u64, &rows.slice(start..start + 7000)).await;
    }
    let start = std::time::Instant::now();
    loop {
        let about = f.server.json(&["describe", "auto"]);
        if about["generation"].as_u64() >= Some(1) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no root after a minute: {about}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(f.server.count("auto"), 21_000);
}
