//! Rounds of random upserts, replacements and deletes with a checkpoint and a collection of garbage each, until half of all
//! rows ever written are dead. Rounds are twenty minutes apart by the store's clock, so that roots and log entries grow old.
//! `PANDO_CHURN_ROUNDS` asks for more rounds than 10, `PANDO_CHURN_RECORDS` for more records than 5,000.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use pando_engine::Engine;
use pando_engine::api::*;
use pando_engine::rootio::RootIo;
use pando_format::{CollectionRecord, NodeChildren, Stored};
use pando_store::{Folder, Key};
use pando_testkit::Timed;

use crate::checks::*;
use crate::support::*;

/// Split size at this dimension.
const DIM: usize = 72;
const SPLIT: u32 = 128;

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Live primaries of every leaf of the newest root.
async fn leaf_sizes(engine: &Engine, name: &str) -> Vec<u32> {
    let uuid = engine.describe(name).await.unwrap().uuid;
    let store = engine.environment().store.clone();
    let record = CollectionRecord::decode(&store.get(&Key::Record { uuid }).await.unwrap()).unwrap();
    let root = engine.list_roots(name).await.unwrap().remove(0);
    let io = RootIo::new(store, Arc::new(record));
    let (manifest, _) = io.manifest(root.depth, &root.root).await.unwrap();
    let nodes = io.nodes(manifest.tree.as_ref().unwrap(), false).await.unwrap();
    let mut sizes = Vec::new();
    for node in nodes.groups() {
        if let NodeChildren::Group { leaves, .. } = &node.refs.children {
            sizes.extend(leaves.iter().map(|leaf| leaf.live));
        }
    }
    sizes
}

/// Bytes of everything that is stored of a collection.
async fn stored_bytes(engine: &Engine, name: &str) -> u64 {
    let uuid = engine.describe(name).await.unwrap().uuid;
    let store = &engine.environment().store;
    let listed = store.list(&Folder::Collection(uuid)).map_ok(|found| found.size);
    listed.try_fold(0, |sum, size| async move { Ok(sum + size) }).await.unwrap()
}

/// Bytes that the newest root needs: blocks that it reaches, rows that live, itself.
async fn live_bytes(engine: &Engine, name: &str) -> u64 {
    let uuid = engine.describe(name).await.unwrap().uuid;
    let store = engine.environment().store.clone();
    let record = CollectionRecord::decode(&store.get(&Key::Record { uuid }).await.unwrap()).unwrap();
    let root = engine.list_roots(name).await.unwrap().remove(0);
    let io = RootIo::new(store, Arc::new(record));
    let (manifest, bytes) = io.manifest(root.depth, &root.root).await.unwrap();
    let rows = manifest.segments.iter().map(|s| s.bytes * s.live_rows / s.rows).sum::<u64>();
    bytes.len() as u64 + rows + manifest.packs.iter().map(|pack| pack.live_bytes).sum::<u64>()
}

struct Churn {
    generator: Generator,
    model: Model,
    next: u64,
    written: u64,
    /// Right answers at k = 1, and queries.
    firsts: (f64, usize),
    records: u64,
}

impl Churn {
    fn some_id(&mut self) -> RecordId {
        let n = self.generator.below(self.next);
        Self::id(n)
    }

    fn id(n: u64) -> RecordId {
        if n.is_multiple_of(7) { RecordId::Str(format!("text {n}")) } else { RecordId::U64(n) }
    }

    /// One upsert and one deletion of random records.
    async fn write(&mut self, engine: &Engine, new: u64, replaced: u64, deleted: u64) {
        let mut batch = Vec::new();
        for _ in 0..new {
            batch.push((Self::id(self.next), self.generator.vector(DIM)));
            self.next += 1;
        }
        for _ in 0..replaced {
            // Some of these were deleted before: they come back.
            batch.push((self.some_id(), self.generator.vector(DIM)));
        }
        engine.upsert("c", rows(DIM, &batch), None).await.unwrap();
        self.written += batch.len() as u64;
        self.model.0.extend(batch);
        let gone: Vec<RecordId> = (0..deleted).map(|_| self.some_id()).collect();
        engine.delete_ids("c", gone.clone(), None).await.unwrap();
        gone.iter().for_each(|id| drop(self.model.0.remove(id)));
    }

    async fn check(&mut self, checker: &Checker<'_>, queries: usize) {
        let queries: Vec<Vec<f32>> = (0..queries).map(|_| self.generator.vector(DIM)).collect();
        let gone: Vec<RecordId> =
            (0..self.next).map(Self::id).filter(|id| !self.model.0.contains_key(id)).take(40).collect();
        checker.records(&self.model, &gone).await;
        for k in [1, 10, 100] {
            let recall = checker.searches(&self.model, &queries, k).await;
            // At k = 1 an answer is right or wrong: few of them say little, so their mean over all rounds counts.
            let floor = if k == 1 { 0.75 } else { 0.9 };
            assert!(recall >= floor, "{}: recall {recall} at k = {k}", checker.metric);
            if k == 1 {
                self.firsts.0 += recall * queries.len() as f64;
                self.firsts.1 += queries.len();
            }
        }
    }
}

async fn churn(metric: Metric) {
    let rounds = from_env("PANDO_CHURN_ROUNDS", 10);
    let records = from_env("PANDO_CHURN_RECORDS", 5_000);
    let timed = Timed::new();
    let objects = timed.wrap(bucket());
    let engine = join(&objects, by_hand()).await;
    let create = CreateCollection { small_limit: 1000, ..CreateCollection::new("c", DIM as u32, metric) };
    engine.create_collection(create).await.unwrap();
    let mut churn = Churn {
        generator: Generator(20),
        model: Model::default(),
        next: 0,
        written: 0,
        firsts: (0.0, 0),
        records,
    };
    churn.write(&engine, records, 0, 0).await;
    engine.compact("c", quiet()).await.unwrap();
    let checker = Checker::new(&engine, "c", metric);
    let mut held: Vec<(RootId, Model)> = Vec::new();
    for round in 0..rounds {
        // Three writes of a third each, so that rows live and die within the plan of one checkpoint.
        for _ in 0..3 {
            let third = churn.records / 30;
            churn.write(&engine, third / 2, third, third / 2).await;
        }
        churn.check(&checker, 24).await;
        let outcome = engine.compact("c", quiet()).await.unwrap();
        assert!(outcome.published);
        churn.check(&checker, 40).await;
        checker.verified(&churn.model).await;
        let sizes = leaf_sizes(&engine, "c").await;
        assert_eq!(sizes.iter().map(|n| u64::from(*n)).sum::<u64>(), churn.model.0.len() as u64);
        let (largest, mean) = (sizes.iter().max().unwrap(), churn.model.0.len() / sizes.len());
        assert!(*largest <= 2 * SPLIT, "round {round}: a leaf of {largest}");
        assert!(
            (SPLIT as usize / 4..=SPLIT as usize).contains(&mean),
            "round {round}: leaves of {mean} on the average"
        );
        // Older roots answer what the collection held then, for an hour after they were replaced.
        held.push((outcome.root.unwrap(), churn.model.clone()));
        timed.advance(Duration::from_secs(1200));
        let report = engine.collect_garbage("c", false, quiet()).await.unwrap();
        assert!(round < 4 || report.deleted().1 > 0, "round {round}: {report:?}");
        let kept = held.len().min(3) as u64;
        for _ in 0..2 {
            let (root, model) = &held[held.len() - 1 - churn.generator.below(kept) as usize];
            let then = checker.at(*root);
            then.records(model, &[]).await;
            let queries: Vec<Vec<f32>> = (0..16).map(|_| churn.generator.vector(DIM)).collect();
            let recall = then.searches(model, &queries, 10).await;
            assert!(recall >= 0.9, "{metric}: recall {recall} at an older root");
        }
    }
    let first = churn.firsts.0 / churn.firsts.1 as f64;
    assert!(first >= 0.92, "{metric}: recall {first} at k = 1 over all rounds");
    let live = churn.model.0.len() as u64;
    assert!(rounds < 10 || 2 * live <= churn.written, "{live} of {} rows live", churn.written);
    // Quiet for the retention: what is left is one root, and the numbers of its heads.
    timed.advance(Duration::from_secs(3601));
    let report = engine.collect_garbage("c", false, quiet()).await.unwrap();
    assert_eq!((report.recent_roots, report.failed), (1, 0));
    let (stored, live) = (stored_bytes(&engine, "c").await, live_bytes(&engine, "c").await);
    println!("{metric}: {stored} bytes stored, {live} live: {:.2}", stored as f64 / live as f64);
    assert!(stored <= 2 * live, "{stored} bytes stored for {live} live ones");
    // An engine that has nothing but the objects finds the same.
    engine.shutdown().await;
    let engine = join(&objects, by_hand()).await;
    let checker = Checker::new(&engine, "c", metric);
    churn.check(&checker, 24).await;
    if let Some((root, model)) = held.last() {
        let then = checker.at(*root);
        then.records(model, &[]).await;
        then.verified(model).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn churn_l2() {
    churn(Metric::L2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn churn_cosine() {
    churn(Metric::Cosine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn churn_dot() {
    churn(Metric::Dot).await;
}
