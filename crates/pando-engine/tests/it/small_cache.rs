//! Caches that hold some of what a search needs: neither nothing nor everything. Answers are the same, and there are answers.

use std::sync::Arc;
use std::time::Duration;

use pando_engine::api::*;
use pando_engine::{Engine, ErrorKind, Settings};

use crate::checks::*;
use crate::support::*;

const DIM: usize = 48;
const ROWS: u64 = 40_000;

type Answers = Vec<Vec<(RecordId, f64)>>;

fn queries(n: usize) -> Vec<Vec<f32>> {
    let mut generator = Generator(3);
    (0..n).map(|_| generator.vector(DIM)).collect()
}

async fn fill(engine: &Engine, rows_a_call: usize) {
    engine.create_collection(CreateCollection::new("c", DIM as u32, Metric::L2)).await.unwrap();
    let mut generator = Generator(4);
    let records: Vec<_> = (0..ROWS).map(|id| (RecordId::U64(id), generator.vector(DIM))).collect();
    for part in records.chunks(rows_a_call) {
        engine.upsert("c", rows(DIM, part), None).await.unwrap();
    }
    engine.compact("c", quiet()).await.unwrap();
    // A second root with delta blocks, whose slots are of the other kind.
    let records: Vec<_> = (0..300).map(|i| (RecordId::U64(i * 131), generator.vector(DIM))).collect();
    engine.upsert("c", rows(DIM, &records), None).await.unwrap();
    engine.compact("c", quiet()).await.unwrap();
}

async fn ask(engine: &Engine, queries: &[Vec<f32>], what: &str) -> Answers {
    let mut answers = Vec::new();
    for (at, vector) in queries.iter().enumerate() {
        let (target, k) = [(0.99, 10), (0.9, 1), (0.95, 100), (1.0, 5)][at % 4];
        let effort = Effort::RecallTarget(target);
        let request = QueryRequest { vectors: vec![vector.clone()], effort, ..query("c", &[], k) };
        let answer = tokio::time::timeout(Duration::from_secs(60), engine.query(request)).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer with {what}")).unwrap();
        answers.push(found(&answer[0]));
    }
    answers
}

/// Sizes for which the block cache (a tenth) holds one slot of a leaf, two, some, or what a wave needs; the rest decides which
/// blocks stay and which can be read in parts. A search that lost what it loaded for a wave before the wave was scanned would
/// load it in turns for ever.
const SIZES: [u64; 12] = [
    0,
    50 << 10,
    100 << 10,
    200 << 10,
    300 << 10,
    500 << 10,
    800 << 10,
    1300 << 10,
    2 << 20,
    4 << 20,
    7 << 20,
    12 << 20,
];

#[tokio::test(flavor = "multi_thread")]
async fn searches_end_with_a_cache_of_any_size() {
    let objects = bucket();
    let queries = queries(12);
    let engine = join(&objects, by_hand()).await;
    fill(&engine, 5000).await;
    let want = ask(&engine, &queries, "everything").await;
    engine.shutdown().await;
    for cache_memory in SIZES {
        let what = format!("{cache_memory} bytes");
        let engine = join(&objects, Settings { cache_memory, ..by_hand() }).await;
        // Twice: blocks are read whole at first, and in parts afterwards.
        for _ in 0..2 {
            assert_eq!(ask(&engine, &queries, &what).await, want, "{what}");
        }
        within_budget(&engine, cache_memory);
        engine.shutdown().await;
    }
}

/// The same on a directory, where parts are read on the spot.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_answers_the_same_with_a_cache_of_any_size() {
    let dir = tempfile::tempdir().unwrap();
    let queries = queries(12);
    let engine = open(dir.path()).await;
    fill(&engine, 5000).await;
    let want = ask(&engine, &queries, "everything").await;
    engine.shutdown().await;
    drop(engine);
    for cache_memory in SIZES {
        let what = format!("{cache_memory} bytes");
        let engine = open_with(dir.path(), Settings { cache_memory, ..by_hand() }).await;
        for _ in 0..2 {
            assert_eq!(ask(&engine, &queries, &what).await, want, "{what}");
        }
        // Searches at the same time share what is loaded.
        let shared = Arc::new(queries.clone());
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (engine, queries) = (engine.clone(), shared.clone());
                tokio::spawn(async move { ask(&engine, &queries, "others beside it").await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), want, "{what}");
        }
        within_budget(&engine, cache_memory);
        engine.shutdown().await;
    }
}

fn within_budget(engine: &Engine, cache_memory: u64) {
    let env = engine.environment();
    assert!(env.resident.used() <= env.resident.limit());
    let kept = env.cache.stats().kept_bytes + env.resident.used();
    assert!(kept <= cache_memory, "{kept} of {cache_memory} bytes");
}

/// Parts that are read alone are checked, too: damage that comes when blocks were read whole before is found.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    fill(&engine, 5000).await;
    let queries = queries(12);
    let want = ask(&engine, &queries, "everything").await;
    engine.shutdown().await;
    drop(engine);
    // The leaf blocks and some refine blocks do not fit; no cache keeps anything for long.
    for cache_memory in [500 << 10, 4 << 20] {
        let engine = open_with(dir.path(), Settings { cache_memory, ..by_hand() }).await;
        for _ in 0..2 {
            assert_eq!(ask(&engine, &queries, "nothing damaged").await, want);
        }
        for folder in ["packs", "segments"] {
            let files = files_in(dir.path(), folder);
            let whole: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
            for (file, bytes) in files.iter().zip(&whole) {
                // In place, as a disk does it: the file that is open is the one that is damaged.
                let flipped: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x10).collect();
                overwrite(file, &flipped);
            }
            let mut refused = 0;
            for (vector, want) in queries.iter().zip(&want).step_by(4) {
                let effort = Effort::RecallTarget(0.99);
                let request = QueryRequest { vectors: vec![vector.clone()], effort, ..query("c", &[], 10) };
                match engine.query(request).await {
                    Ok(answer) => assert_eq!(&found(&answer[0]), want),
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::DataLoss, "{error:?}");
                        refused += 1;
                    }
                }
            }
            assert!(refused > 0, "{folder}, {cache_memory} bytes: all answered");
            for (file, bytes) in files.iter().zip(&whole) {
                overwrite(file, bytes);
            }
            assert_eq!(ask(&engine, &queries, "damage mended").await, want);
        }
        engine.shutdown().await;
    }
}

fn overwrite(file: &std::path::Path, bytes: &[u8]) {
    use std::io::Write;
    std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all(bytes).unwrap();
}

/// Objects of a kind, of the only collection.
fn files_in(dir: &std::path::Path, folder: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.join("store")];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.parent().unwrap().ends_with(folder) => found.push(path),
                false => {}
            }
        }
    }
    found
}
