//! Real data, where it is: `PANDO_DATA` names a folder with `minilm_wordnet/` and `glove50/` (docs/testing.md). These
//! tests take minutes, and are skipped with a line when the folder or one of its sets is not there.

use std::path::PathBuf;

use pando_tests::Fixture;
use pando_tests::data::Vectors;
use pando_tests::files::{read_npy, read_npy_ids, write_npy};
use pando_tests::grpc::{Api, How};
use pando_tests::oracle::recall;
use pando_tests::server::Options;

/// The first of `files` that exists in the set's folder below one of the folders in `PANDO_DATA` (`:` between them).
fn find(set: &str, file: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PANDO_DATA")?;
    std::env::split_paths(&folders).map(|d| d.join(set).join(file)).find(|p| p.exists())
}

/// Base, queries and true neighbours, or `None` and a line.
fn load(set: &str, base: &str, queries: &str, truth: &str) -> Option<(Vectors, Vectors, Vec<Vec<u64>>)> {
    let (Some(b), Some(q), Some(t)) = (find(set, base), find(set, queries), find(set, truth)) else {
        println!("skipped: {set}/{base}, {queries} or {truth} is in no folder of PANDO_DATA");
        return None;
    };
    Some((read_npy(&b), read_npy(&q), read_npy_ids(&t)))
}

async fn floors(name: &str, metric: &str, base: &Vectors, queries: &Vectors, truth: &[Vec<u64>]) {
    let f = Fixture::start_with(&Options { compactor_memory: Some("256MiB".into()), ..Options::default() });
    let path = f.path("base.npy");
    write_npy(&path, base);
    f.server.create("real", base.dim, metric);
    let ingest = f.server.json(&["ingest", "real", path.to_str().expect("UTF-8")]);
    let compact = f.server.json(&["compact", "real", "--wait"]);
    let about = f.server.json(&["describe", "real"]);
    println!("{name} {metric}: ingest {ingest}, compact {compact}, {about}");
    println!("{name} {metric}: {} MiB resident", f.server.resident_bytes() >> 20);
    f.server.verify("real");

    let mut api = Api::connect(&f.server).await;
    let ids = |list: &[(u64, f64)]| list.iter().map(|m| m.0).collect::<Vec<u64>>();
    for k in [10usize, 100] {
        let mut last = 0.0;
        for how in [How::Target(0.8), How::Target(0.9), How::Default, How::Target(0.97), How::Target(0.99)] {
            let found = api.search("real", queries, k as u32, how).await;
            let mean = found.iter().zip(truth).map(|(a, t)| recall(&ids(a), &t[..k])).sum::<f64>()
                / found.len() as f64;
            println!("{name} {metric} recall@{k} {how:?}: {mean:.4}");
            match how {
                How::Default => {
                    assert!(mean >= 0.94, "{name} {metric} recall@{k} at the default target: {mean}")
                }
                How::Target(t) if t >= 0.97 => {
                    assert!(mean >= 0.95, "{name} {metric} recall@{k} at {t}: {mean}")
                }
                _ => {}
            }
            assert!(mean + 0.005 >= last, "recall rises with effort");
            last = mean;
        }
    }
    let some = queries.slice(0..100.min(queries.len()));
    let exact = api.search("real", &some, 100, How::Exact).await;
    assert_eq!(api.search("real", &some, 100, How::Target(1.0)).await, exact, "full effort is exact");
    for (found, want) in exact.iter().zip(truth) {
        assert_eq!(&ids(found), want, "{name} {metric}: exact search against the ground truth");
    }
    if metric != "dot" {
        let step = base.len() / 5000;
        let sample: Vec<usize> = (0..5000).map(|i| i * step).collect();
        let flat = sample.iter().flat_map(|&i| base.row(i).iter().copied()).collect();
        let rows = Vectors { dim: base.dim, flat };
        let found = api.search("real", &rows, 1, How::Default).await;
        // An exact duplicate of a row may come first in its place.
        let own = |i: usize| {
            let (id, _) = found[i][0];
            id == sample[i] as u64 || base.row(id as usize) == rows.row(i)
        };
        let share = (0..sample.len()).filter(|&i| own(i)).count() as f64 / sample.len() as f64;
        println!("{name} {metric}: {share} of rows find themselves first");
        assert!(share >= 0.999, "{name} {metric}: {share}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn minilm_wordnet_cosine() {
    let set = load("minilm_wordnet", "base_f16.npy", "queries_f16.npy", "gt_cosine_ids.npy");
    let Some((base, queries, truth)) = set else { return };
    floors("minilm-wordnet", "cosine", &base, &queries, &truth).await;
}

async fn glove50(metric: &str, truth: &str) {
    let Some((base, queries, truth)) = load("glove50", "base.npy", "queries.npy", truth) else { return };
    floors("glove50", metric, &base, &queries, &truth).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn glove50_cosine() {
    glove50("cosine", "gt_cosine_ids.npy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn glove50_l2() {
    glove50("l2", "gt_l2_ids.npy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn glove50_dot() {
    glove50("dot", "gt_ip_ids.npy").await;
}
