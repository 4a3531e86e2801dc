//! Law 3: the same log gives the same root, whatever the threads, the memory and the instruction set.

use std::path::Path;

use pando_tests::data::{Mixture, Vectors};
use pando_tests::grpc::{Api, number};
use pando_tests::server::{Options, Server, copy_dir, files_with};
use pando_tests::{Fixture, files, flight};

const DIM: usize = 48;

fn variants() -> Vec<Options> {
    let mut all = Vec::new();
    for (simd, threads, memory) in [
        (None, 1, "1GiB"),
        (None, 2, "1GiB"),
        (Some("scalar"), 2, "1GiB"),
        (Some("avx2"), 1, "64MiB"),
        (Some("avx512"), 2, "1GiB"),
        (None, 2, "16MiB"),
    ] {
        let features: &[&str] = match simd {
            Some("avx2") => &["avx2", "fma"],
            Some("avx512") => &["avx512f", "avx512bw", "avx512vl", "avx512_vpopcntdq", "avx512_vnni"],
            _ => &[],
        };
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let missing: Vec<_> = features.iter().filter(|f| !cpu.split_whitespace().any(|w| w == **f)).collect();
        if !missing.is_empty() {
            println!(
                "skipped: PANDO_SIMD={} because this processor has no {missing:?}",
                simd.unwrap_or_default()
            );
            continue;
        }
        all.push(Options {
            simd: simd.map(str::to_owned),
            threads: Some(threads),
            compactor_memory: Some(memory.to_owned()),
            ..Options::default()
        });
    }
    all
}

/// Compacts a copy of `data` under `options`: the root id, and the names of all segments, packs and roots.
fn compacted(data: &Path, options: &Options, copy: &Path) -> (String, Vec<String>) {
    copy_dir(data, copy);
    let server = Server::start_with(copy, options);
    let root = server.compact("d");
    server.verify("d");
    server.stop();
    let mut names = Vec::new();
    for part in ["/segments/", "/packs/", "/roots/"] {
        for path in files_with(copy, part) {
            names.push(path.strip_prefix(copy).expect("a path in the copy").to_string_lossy().into_owned());
        }
    }
    (root, names)
}

fn all_equal(data: &Path, dir: &Path, step: &str) -> std::path::PathBuf {
    let mut first: Option<(String, Vec<String>)> = None;
    let mut kept = dir.join("none");
    for (i, options) in variants().iter().enumerate() {
        let copy = dir.join(format!("{step}-{i}"));
        let got = compacted(data, options, &copy);
        println!("{step}: {} with {options:?}", got.0);
        match &first {
            None => {
                first = Some(got);
                kept = copy;
            }
            Some(want) => {
                assert_eq!(&got.0, &want.0, "{step}: another root with {options:?}");
                assert_eq!(&got.1, &want.1, "{step}: other objects with {options:?}");
                std::fs::remove_dir_all(&copy).expect("the copy goes");
            }
        }
    }
    kept
}

async fn load(server: &Server, first: u64, rows: &Vectors) {
    let batches = (0..rows.len()).step_by(1000).map(|start| {
        let end = (start + 1000).min(rows.len());
        let ids: Vec<u64> = (first + start as u64..first + end as u64).collect();
        files::batch(&ids, &rows.slice(start..end))
    });
    flight::load(server, "d", batches.collect()).await.expect("load");
}

async fn same_log_same_root(metric: &str, seed: u64) {
    let mixture = Mixture::new(seed, DIM, 60);
    let rows = mixture.rows(1, 20_000);
    let f = Fixture::start();
    f.server.create("d", DIM, metric);
    load(&f.server, 0, &rows).await;
    let mut api = Api::connect(&f.server).await;
    api.delete("d", (0..300).map(|i| number(i * 61)).collect()).await.expect("delete");
    let Fixture { server, dir } = f;
    server.stop();

    // The first build of a tree.
    let built = all_equal(&dir.path().join("data"), dir.path(), "build");

    // A checkpoint on top of it: new rows, replaced rows, deleted rows.
    let server = Server::start(&built);
    load(&server, 19_000, &mixture.rows(2, 4000)).await;
    let mut api = Api::connect(&server).await;
    api.delete("d", (0..2000).map(|i| number(i * 7)).collect()).await.expect("delete");
    server.stop();
    let advanced = all_equal(&built, dir.path(), "advance");

    // And one more, which goes on balancing what is left over.
    let server = Server::start(&advanced);
    load(&server, 30_000, &mixture.rows(3, 500)).await;
    server.stop();
    all_equal(&advanced, dir.path(), "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn same_log_same_root_cosine() {
    same_log_same_root("cosine", 31).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn same_log_same_root_l2() {
    same_log_same_root("l2", 32).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn same_log_same_root_dot() {
    same_log_same_root("dot", 33).await;
}
