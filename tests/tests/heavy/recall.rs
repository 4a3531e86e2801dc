//! Floors on generated data: recall at the default target, more effort finds more, full effort is exact, and rows find
//! themselves.

use pando_tests::data::{Mixture, Vectors};
use pando_tests::grpc::{Api, How};
use pando_tests::oracle::{nearest, recall};
use pando_tests::{Fixture, files, flight};

const DIM: usize = 64;
const ROWS: usize = 24_000;

async fn load(f: &Fixture, name: &str, metric: &str, rows: &Vectors) {
    f.server.create(name, DIM, metric);
    let batches = (0..rows.len()).step_by(4000).map(|start| {
        let end = (start + 4000).min(rows.len());
        let ids: Vec<u64> = (start as u64..end as u64).collect();
        files::batch(&ids, &rows.slice(start..end))
    });
    flight::load(&f.server, name, batches.collect()).await.expect("load");
}

fn ids(list: &[(u64, f64)]) -> Vec<u64> {
    list.iter().map(|m| m.0).collect()
}

async fn floors(metric: &str, seed: u64) {
    let mixture = Mixture::new(seed, DIM, 150);
    let rows = mixture.rows(1, ROWS);
    let queries = mixture.rows(2, 200);
    let f = Fixture::start();
    load(&f, "r", metric, &rows).await;
    f.server.compact("r");
    let about = f.server.json(&["describe", "r"]);
    println!("{metric}: {about}");
    assert!(about["leaves"].as_u64() > Some(50), "a tree was built");

    let mut api = Api::connect(&f.server).await;
    for k in [10u32, 100] {
        let exact = api.search("r", &queries, k, How::Exact).await;
        // The server's own exact search against plain arithmetic, for some queries.
        for i in (0..queries.len()).step_by(20) {
            let want = nearest(metric, queries.row(i), &rows, k as usize, |_| true);
            assert_eq!(ids(&exact[i]), ids(&want), "{metric} query {i}");
        }
        let mut mean = async |how: How| {
            let found = api.search("r", &queries, k, how).await;
            found.iter().zip(&exact).map(|(a, b)| recall(&ids(a), &ids(b))).sum::<f64>()
                / queries.len() as f64
        };
        let at = [
            mean(How::Target(0.8)).await,
            mean(How::Default).await,
            mean(How::Target(0.97)).await,
            mean(How::Target(1.0)).await,
        ];
        println!("{metric} recall@{k} at 0.80, default, 0.97, 1.0: {at:?}");
        assert!(at[1] >= 0.94, "{metric} recall@{k} at the default target: {}", at[1]);
        assert!(at[2] >= 0.95, "{metric} recall@{k} at 0.97: {}", at[2]);
        assert!(at[0] <= at[1] + 0.005 && at[1] <= at[2] + 0.005, "recall rises with effort: {at:?}");
        assert_eq!(at[3], 1.0, "full effort is exact");
        let one = mean(How::Leaves(1)).await;
        let many = mean(How::Leaves(30)).await;
        assert!(one < many, "more leaves find more: {one} {many}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_l2() {
    floors("l2", 41).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_cosine() {
    floors("cosine", 42).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_dot() {
    floors("dot", 43).await;
}

/// Share of rows whose first result is the row itself.
async fn self_first(api: &mut Api, rows: &Vectors, first: usize, how: How) -> f64 {
    let mut hits = 0;
    for (i, list) in api.search("s", rows, 1, how).await.iter().enumerate() {
        hits += usize::from(list.first().map(|m| m.0) == Some((first + i) as u64));
    }
    hits as f64 / rows.len() as f64
}

async fn rows_find_themselves(metric: &str, seed: u64) {
    let mixture = Mixture::new(seed, DIM, 150);
    let rows = mixture.rows(1, ROWS);
    let f = Fixture::start();
    load(&f, "s", metric, &rows).await;
    let mut api = Api::connect(&f.server).await;
    let first = 9000;
    let sample = rows.slice(first..first + 3000);
    // Right after ingest everything is in the tail.
    let tail = self_first(&mut api, &sample.slice(0..500), first, How::Default).await;
    f.server.compact("s");
    let root = self_first(&mut api, &sample, first, How::Default).await;
    let full = self_first(&mut api, &sample.slice(0..500), first, How::Target(1.0)).await;
    println!("{metric}: {tail} in the tail, {root} in the root, {full} at full effort");
    assert!(tail >= 0.999 && root >= 0.999, "{metric}: {tail} in the tail, {root} in the root");
    assert_eq!(full, 1.0, "{metric} at full effort");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_find_themselves_l2() {
    rows_find_themselves("l2", 44).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_find_themselves_cosine() {
    rows_find_themselves("cosine", 45).await;
}
