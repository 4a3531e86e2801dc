//! Records from upsert through checkpoints and restarts: every read path agrees with the model at every step.

use futures::TryStreamExt;
use pando_engine::api::*;
use pando_engine::{Engine, ErrorKind};

use crate::support::*;

const DIM: usize = 24;

async fn check(engine: &Engine, model: &Model, metric: Metric, generator: &mut Generator) {
    let count = engine.count("c", Consistency::Strong, At::Now).await.unwrap().count;
    assert_eq!(count, model.0.len() as u64);
    let all = Include { vector: true, attributes: IncludeAttributes::All };
    let pages = engine.scan("c", all.clone(), Consistency::Strong, At::Now, 97).await.unwrap();
    let scanned: Vec<Record> =
        pages.try_collect::<Vec<_>>().await.unwrap().into_iter().flat_map(|page| page.records).collect();
    let want: Vec<(RecordId, Vec<f32>)> = model.0.clone().into_iter().collect();
    let got: Vec<(RecordId, Vec<f32>)> =
        scanned.iter().map(|r| (r.id.clone(), r.vector.clone().unwrap())).collect();
    assert!(got == want, "a scan gives every record once, in id order");
    for record in scanned.iter().take(50) {
        let text = Value::String(format!("text of {}", record.id));
        assert_eq!(record.attributes.get("text"), Some(&text));
    }
    let mut ids: Vec<RecordId> = (0..40).map(|_| RecordId::U64(generator.below(4000))).collect();
    ids.push(RecordId::Str("s3".into()));
    let fetched = engine.fetch("c", ids.clone(), all, Consistency::Strong, At::Now).await.unwrap();
    for (id, record) in ids.iter().zip(fetched.records) {
        assert_eq!(record.map(|r| r.vector.unwrap()), model.0.get(id).cloned(), "fetch of {id}");
    }
    for _ in 0..20 {
        let vector = generator.vector(DIM);
        let truth = model.nearest(metric, &vector, 10);
        let exact = QueryRequest { exact: true, ..query("c", &vector, 10) };
        assert_eq!(found(&engine.query(exact).await.unwrap()[0]), truth, "exact search");
        let full = QueryRequest { effort: Effort::RecallTarget(1.0), ..query("c", &vector, 10) };
        assert_eq!(found(&engine.query(full).await.unwrap()[0]), truth, "full effort");
        let answer = &engine.query(query("c", &vector, 10)).await.unwrap()[0];
        let here = &engine.query_here(query("c", &vector, 10)).await.unwrap()[0];
        assert_eq!(
            (found(here), here.work),
            (found(answer), answer.work),
            "on the caller's thread as on the pool"
        );
        assert_eq!(answer.matches.len(), truth.len(), "as many results as there are");
        for (id, distance) in found(answer) {
            let vector_of = model.0.get(&id).unwrap_or_else(|| panic!("{id} is not live"));
            let want = pando_kernels::Kernels::detect().distance_f64(metric, &vector, vector_of);
            assert_eq!(distance, want);
        }
    }
}

async fn lifecycle(metric: Metric, small_limit: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path()).await;
    let create = CreateCollection { small_limit, ..CreateCollection::new("c", DIM as u32, metric) };
    engine.create_collection(create.clone()).await.unwrap();
    let error = engine.create_collection(create).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    let (mut model, mut generator) = (Model::default(), Generator(5));
    check(&engine, &model, metric, &mut generator).await;
    for step in 0..8 {
        for _ in 0..4 {
            let batch: Vec<(RecordId, Vec<f32>)> = (0..200)
                .map(|_| {
                    let id = match generator.below(10) {
                        0 => RecordId::Str(format!("s{}", generator.below(300))),
                        _ => RecordId::U64(generator.below(4000)),
                    };
                    (id, generator.vector(DIM))
                })
                .collect();
            let outcome = engine.upsert("c", rows(DIM, &batch), None).await.unwrap();
            let mut unique: Vec<_> = batch.iter().map(|(id, _)| id).collect();
            unique.sort();
            unique.dedup();
            assert_eq!(outcome.affected, unique.len() as u64);
            model.0.extend(batch);
            let gone: Vec<RecordId> = (0..30).map(|_| RecordId::U64(generator.below(4000))).collect();
            let outcome = engine.delete_ids("c", gone.clone(), None).await.unwrap();
            let deleted = gone.iter().filter(|id| model.0.remove(id).is_some()).count();
            assert_eq!(outcome.affected, deleted as u64);
        }
        check(&engine, &model, metric, &mut generator).await;
        if step % 2 == 1 {
            let outcome = engine.compact("c", quiet()).await.unwrap();
            assert!(outcome.published && outcome.root.is_some());
            check(&engine, &model, metric, &mut generator).await;
            let report = engine.verify("c", At::Now, quiet()).await.unwrap();
            assert!(report.ok, "{:?}", report.problems);
            assert_eq!(report.records, model.0.len() as u64);
        }
        if step % 3 == 2 {
            engine.shutdown().await;
            drop(engine);
            engine = open(dir.path()).await;
            check(&engine, &model, metric, &mut generator).await;
        }
    }
    let roots = engine.list_roots("c").await.unwrap();
    assert_eq!(roots.len(), 4);
    assert_eq!(roots[0].generation, 4);
    engine.delete_collection("c").await.unwrap();
    let error = engine.count("c", Consistency::Strong, At::Now).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    engine.create_collection(CreateCollection::new("c", 3, Metric::L2)).await.unwrap();
    assert_eq!(engine.count("c", Consistency::Strong, At::Now).await.unwrap().count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_with_a_tree() {
    lifecycle(Metric::L2, 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cosine_with_a_tree() {
    lifecycle(Metric::Cosine, 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dot_with_a_tree() {
    lifecycle(Metric::Dot, 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_collection() {
    lifecycle(Metric::Cosine, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_restart_left_behind_is_compacted_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    engine.create_collection(CreateCollection::new("c", DIM as u32, Metric::L2)).await.unwrap();
    let records: Vec<_> = (0..50).map(|id| (RecordId::U64(id), Generator(id).vector(DIM))).collect();
    engine.upsert("c", rows(DIM, &records), None).await.unwrap();
    engine.shutdown().await;
    drop(engine);
    let age = std::time::Duration::from_millis(1);
    let settings = pando_engine::Settings { compact_age: age, ..pando_engine::Settings::default() };
    let engine = open_with(dir.path(), settings).await;
    let started = std::time::Instant::now();
    // Nobody names the collection: heads are looked for on disk.
    let published = || walk(dir.path()).iter().any(|path| path.contains("/heads/"));
    while !published() {
        assert!(started.elapsed().as_secs() < 60, "no root was published");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(engine.count("c", Consistency::Strong, At::Now).await.unwrap().count, 50);
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            out.extend(walk(&path));
        } else {
            out.push(path.to_string_lossy().into_owned());
        }
    }
    out
}
