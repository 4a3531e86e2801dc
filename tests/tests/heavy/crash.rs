//! kill -9 in the middle of an ingest and of a checkpoint: what was acknowledged is there, and after loading again every
//! row is there once.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use pando_tests::data::{Mixture, Vectors};
use pando_tests::grpc::{Api, How, as_number, number};
use pando_tests::server::{Options, Server, copy_dir, files_with};
use pando_tests::{Fixture, files, flight};

const DIM: usize = 32;

fn batches(rows: &Vectors, size: usize) -> Vec<arrow_array::RecordBatch> {
    (0..rows.len())
        .step_by(size)
        .map(|start| {
            let end = (start + size).min(rows.len());
            let ids: Vec<u64> = (start as u64..end as u64).collect();
            files::batch(&ids, &rows.slice(start..end))
        })
        .collect()
}

/// Count, scan, fetch and exact search agree that exactly `rows` are there.
async fn all_there_once(server: &Server, name: &str, rows: &Vectors) {
    let mut api = Api::connect(server).await;
    assert_eq!(api.count(name).await.expect("count"), rows.len() as u64);
    let scanned = api.scan(name).await.expect("scan");
    let ids: Vec<u64> = scanned.iter().map(|r| as_number(&r.id)).collect();
    assert_eq!(ids, (0..rows.len() as u64).collect::<Vec<_>>(), "a scan gives every id once");
    for (i, record) in scanned.into_iter().enumerate() {
        assert_eq!(record.vector.expect("a vector").values, rows.row(i), "row {i}");
    }
    for start in (0..rows.len()).step_by(5000) {
        let asked: Vec<u64> = (start as u64..(start + 5000).min(rows.len()) as u64).collect();
        let got = api.fetch(name, asked.iter().map(|&i| number(i)).collect()).await.expect("fetch");
        assert!(got.iter().all(Option::is_some), "every id is fetched");
    }
    // Every row once among the results, too.
    let found = api.search(name, &rows.slice(0..1), 10_000, How::Exact).await.remove(0);
    let distinct: BTreeSet<u64> = found.iter().map(|m| m.0).collect();
    assert_eq!(distinct.len(), found.len(), "an id came twice");
    assert_eq!(found.len(), rows.len().min(10_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_in_the_middle_of_an_ingest() {
    let rows = Mixture::new(21, DIM, 40).rows(1, 20_000);
    let mut f = Fixture::start_with(&Options { auto_compact: true, ..Options::default() });
    f.server.create("c", DIM, "cosine");
    // Each round kills the server after some more acknowledgements, while batches are on their way.
    for kill_after in [0usize, 1, 7, 23, 60] {
        let messages = flight::messages("c", batches(&rows, 200)).await;
        let acked = Arc::new(AtomicUsize::new(0));
        let (counter, mut client) = (acked.clone(), flight::connect(&f.server).await);
        let stream = futures::stream::iter(messages).then(async |m| {
            // So that the kill falls between the first and the last batch.
            tokio::time::sleep(Duration::from_millis(2)).await;
            m
        });
        let stream = Box::pin(stream);
        let load = tokio::spawn(async move {
            flight::put(&mut client, stream, |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            })
            .await
        });
        let start = Instant::now();
        while acked.load(Ordering::SeqCst) < kill_after && start.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let Fixture { server, dir } = f;
        server.kill();
        let end = load.await.expect("no panic");
        let acked = acked.load(Ordering::SeqCst);
        assert!(end.is_err() || acked == 100, "the stream broke");
        println!("killed after {acked} of 100 acknowledgements");
        let server = Server::start_with(
            &dir.path().join("data"),
            &Options { auto_compact: true, ..Options::default() },
        );
        f = Fixture { server, dir };
        // Law 1: what was acknowledged is there; a batch is there as a whole or not at all.
        let count = f.server.count("c");
        assert!(count >= acked as u64 * 200, "{count} records after {acked} acknowledged batches");
        assert_eq!(count % 200, 0);
        let mut api = Api::connect(&f.server).await;
        let ids = (0..acked as u64 * 200).step_by(37).map(number).collect::<Vec<_>>();
        if !ids.is_empty() {
            let got = api.fetch("c", ids).await.expect("fetch");
            assert!(got.iter().all(Option::is_some), "an acknowledged record is gone");
        }
    }
    flight::load(&f.server, "c", batches(&rows, 1000)).await.expect("load again");
    all_there_once(&f.server, "c", &rows).await;
    f.server.compact("c");
    f.server.verify("c");
    all_there_once(&f.server, "c", &rows).await;
}

/// What must have appeared in the data directory when the server is killed.
fn seen(data: &Path, part: &str, at_least: usize) -> bool {
    files_with(data, part).len() >= at_least
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_in_the_middle_of_a_checkpoint() {
    let mixture = Mixture::new(22, DIM, 40);
    let rows = mixture.rows(1, 20_000);
    let f = Fixture::start();
    f.server.create("c", DIM, "l2");
    flight::load(&f.server, "c", batches(&rows, 1000)).await.expect("load");
    // A second life for some rows, so that there are deaths as well.
    flight::load(&f.server, "c", batches(&rows.slice(0..2000), 500)).await.expect("load");
    let Fixture { server, dir } = f;
    server.stop();
    let data = dir.path().join("data");

    // What an undisturbed checkpoint gives, on a copy.
    let reference = dir.path().join("reference");
    copy_dir(&data, &reference);
    let server = Server::start(&reference);
    let start = Instant::now();
    let root = server.compact("c");
    let whole = start.elapsed();
    server.stop();
    println!("an undisturbed checkpoint takes {whole:?}");

    // Killed when the plan, the first segment, the first pack, the manifest is there, and at some times in between.
    let moments: Vec<(&str, Duration)> = vec![
        ("/plans/", Duration::ZERO),
        ("", whole / 4),
        ("", whole / 2),
        ("", whole * 3 / 4),
        ("/segments/", Duration::ZERO),
        ("/packs/", Duration::ZERO),
        ("/roots/", Duration::ZERO),
    ];
    for (number, (part, after)) in moments.into_iter().enumerate() {
        let copy = dir.path().join(format!("crash-{number}"));
        copy_dir(&data, &copy);
        let server = Server::start(&copy);
        let mut compact = server.command(&["compact", "c", "--wait"]).spawn().expect("pando runs");
        let start = Instant::now();
        while start.elapsed() < whole * 2 {
            if part.is_empty() && start.elapsed() >= after || !part.is_empty() && seen(&copy, part, 1) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        let _ = compact.wait();
        let heads = files_with(&copy, "/heads/").len();
        println!("killed at {part:?} {after:?}, {heads} heads in the bucket");

        let server = Server::start(&copy);
        all_there_once(&server, "c", &rows).await;
        assert_eq!(server.compact("c"), root, "repeated to the same bytes (law 3)");
        server.verify("c");
        all_there_once(&server, "c", &rows).await;
        // Ingest again, once.
        if number == 3 {
            flight::load(&server, "c", batches(&rows, 1000)).await.expect("load again");
            all_there_once(&server, "c", &rows).await;
            server.compact("c");
            server.verify("c");
            all_there_once(&server, "c", &rows).await;
        }
        server.stop();
        std::fs::remove_dir_all(&copy).expect("the copy goes");
    }
}
