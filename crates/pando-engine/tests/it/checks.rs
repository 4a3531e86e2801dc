//! What every read must answer, whatever happened to the collection: used by the tests of odd data, churn and faults.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use pando_coordination::InProcess;
use pando_engine::api::*;
use pando_engine::environment::SystemRandom;
use pando_engine::{Components, Engine, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions, SystemClock};

use crate::support::*;

/// Checkpoints by command only, two threads.
pub fn by_hand() -> Settings {
    Settings { auto_compact: false, threads: 2, ..Settings::default() }
}

/// Short pauses between attempts, so that a test of faults does not wait.
pub fn hasty() -> StoreOptions {
    StoreOptions {
        backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(4),
        read_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(2),
        ..StoreOptions::default()
    }
}

/// An empty store in memory that several engines may open.
pub fn bucket() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// An engine on objects that others may use too.
pub async fn join(objects: &Arc<dyn ObjectStore>, settings: Settings) -> Arc<Engine> {
    let store = Store::new(objects.clone(), "", None, hasty()).expect("a store on objects");
    open_store(store, settings).await.expect("the engine opens")
}

/// An engine on a store.
pub async fn open_store(store: Store, settings: Settings) -> pando_engine::Result<Arc<Engine>> {
    let clock = Arc::new(SystemClock);
    let components = Components {
        store,
        coordinator: Arc::new(InProcess::new(clock.clone())),
        kernels: Kernels::from_env().expect("PANDO_SIMD is available"),
        clock,
        random: Arc::new(SystemRandom),
    };
    Engine::open(components, settings).await
}

/// Compares a collection, now or at a root, with a model.
#[derive(Clone)]
pub struct Checker<'a> {
    /// The engine.
    pub engine: &'a Engine,
    /// Its collection.
    pub name: &'a str,
    /// Its metric.
    pub metric: Metric,
    /// Version to read.
    pub at: At,
}

impl<'a> Checker<'a> {
    /// The newest version of a collection.
    pub fn new(engine: &'a Engine, name: &'a str, metric: Metric) -> Self {
        Self { engine, name, metric, at: At::Now }
    }

    /// The same at a root.
    pub fn at(&self, root: RootId) -> Self {
        Self { at: At::Root(root), ..self.clone() }
    }

    /// Count, scan and fetch.
    pub async fn records(&self, model: &Model, missing: &[RecordId]) {
        let (engine, name, at) = (self.engine, self.name, &self.at);
        let count = engine.count(name, Consistency::Strong, at.clone()).await.expect("a count").count;
        assert_eq!(count, model.0.len() as u64, "count");
        let include = Include { vector: true, attributes: IncludeAttributes::All };
        let pages =
            engine.scan(name, include.clone(), Consistency::Strong, at.clone(), 999).await.expect("a scan");
        let scanned: Vec<Record> = pages
            .try_collect::<Vec<_>>()
            .await
            .expect("pages")
            .into_iter()
            .flat_map(|page| page.records)
            .collect();
        assert_eq!(scanned.len(), model.0.len(), "a scan gives every record once");
        for (record, (id, vector)) in scanned.iter().zip(&model.0) {
            self.is(record, id, vector);
        }
        let every = (model.0.len() / 50).max(1);
        let mut ids: Vec<RecordId> = model.0.keys().step_by(every).cloned().collect();
        ids.extend(missing.iter().cloned());
        let fetched =
            engine.fetch(name, ids.clone(), include, Consistency::Strong, at.clone()).await.expect("a fetch");
        for (id, record) in ids.iter().zip(&fetched.records) {
            match (model.0.get(id), record) {
                (Some(vector), Some(record)) => self.is(record, id, vector),
                (None, None) => {}
                (want, got) => panic!("fetch of {id}: {got:?} instead of {want:?}"),
            }
        }
    }

    fn is(&self, record: &Record, id: &RecordId, vector: &[f32]) {
        assert_eq!(record.id, *id);
        assert!(record.vector.as_deref() == Some(vector), "vector of {id}");
        assert_eq!(
            record.attributes.get("text"),
            Some(&Value::String(format!("text of {id}"))),
            "attribute of {id}"
        );
    }

    async fn ask(&self, queries: &[Vec<f32>], k: usize, exact: bool, effort: Effort) -> Vec<QueryAnswer> {
        let request = QueryRequest {
            vectors: queries.to_vec(),
            exact,
            effort,
            at: self.at.clone(),
            ..query(self.name, &[], k as u32)
        };
        self.engine.query(request).await.expect("a query")
    }

    /// Exact search and full effort are the model's answers; default effort is never short, holds live records at their
    /// distances, once each, in order. The mean share of answers at default effort that are no farther than the true k-th.
    pub async fn searches(&self, model: &Model, queries: &[Vec<f32>], k: usize) -> f64 {
        let truths: Vec<_> = queries.iter().map(|q| model.nearest(self.metric, q, k)).collect();
        let exact = self.ask(queries, k, true, Effort::default()).await;
        let full = self.ask(queries, k, false, Effort::RecallTarget(1.0)).await;
        let default = self.ask(queries, k, false, Effort::default()).await;
        let mut recall = 0.0;
        for (at, truth) in truths.iter().enumerate() {
            same(&found(&exact[at]), truth, &format!("exact search {at}, k = {k}"));
            same(&found(&full[at]), truth, &format!("full effort {at}, k = {k}"));
            let answer = found(&default[at]);
            assert!(default[at].complete);
            assert_eq!(answer.len(), truth.len(), "default effort {at}, k = {k}: short");
            let unique: HashSet<&RecordId> = answer.iter().map(|(id, _)| id).collect();
            assert_eq!(unique.len(), answer.len(), "default effort {at}: a record twice");
            for (id, distance) in &answer {
                let vector =
                    model.0.get(id).unwrap_or_else(|| panic!("default effort {at}: {id} is not live"));
                assert_eq!(*distance, distance_of(self.metric, &queries[at], vector), "distance of {id}");
            }
            let ordered = answer
                .windows(2)
                .all(|w| w[0].1.total_cmp(&w[1].1).then_with(|| w[0].0.cmp(&w[1].0)).is_lt());
            assert!(ordered, "default effort {at}: out of order");
            let last = truth.last().map_or(0.0, |(_, distance)| *distance);
            let hits = answer.iter().filter(|(_, distance)| *distance <= last).count();
            recall += if truth.is_empty() { 1.0 } else { hits as f64 / truth.len() as f64 };
        }
        let recall = recall / queries.len().max(1) as f64;
        if std::env::var_os("PANDO_SHOW").is_some() {
            let scanned =
                default.iter().map(|a| a.work.leaves_scanned).sum::<u64>() as f64 / default.len() as f64;
            eprintln!(
                "{} of {}: recall {recall:.4} at k = {k}, {scanned:.1} leaves",
                self.metric,
                model.0.len()
            );
        }
        recall
    }

    /// The share of these records that are the first answer to their own vector (or as near as it).
    pub async fn self_first(&self, model: &Model, ids: &[RecordId], effort: Effort) -> f64 {
        let mut first = 0;
        for ids in ids.chunks(500) {
            let queries: Vec<Vec<f32>> = ids.iter().map(|id| model.0[id].clone()).collect();
            let answers = self.ask(&queries, 1, false, effort).await;
            let own = queries.iter().map(|q| distance_of(self.metric, q, q));
            first += answers.iter().zip(own).filter(|(a, own)| a.matches[0].distance <= *own).count();
        }
        let share = first as f64 / ids.len().max(1) as f64;
        if std::env::var_os("PANDO_SHOW").is_some() {
            eprintln!("{} of {}: {share:.4} find themselves, {effort:?}", self.metric, model.0.len());
        }
        share
    }

    /// `verify` finds nothing wrong and counts the model's records.
    pub async fn verified(&self, model: &Model) {
        let report = self.engine.verify(self.name, self.at.clone(), quiet()).await.expect("a verification");
        assert!(report.ok, "{:?}", report.problems);
        if report.root.is_some() {
            assert_eq!(report.records, model.0.len() as u64);
        }
    }
}

/// The contract's distance.
pub fn distance_of(metric: Metric, query: &[f32], vector: &[f32]) -> f64 {
    Kernels::detect().distance_f64(metric, query, vector)
}

/// Two ranked lists are the same; on a difference says where it begins, not all of both.
pub fn same(got: &[(RecordId, f64)], want: &[(RecordId, f64)], what: &str) {
    if got == want {
        return;
    }
    let at = got.iter().zip(want).take_while(|(a, b)| a == b).count();
    panic!(
        "{what}: {} results, {} expected; the first difference is at {at}: {:?} instead of {:?}",
        got.len(),
        want.len(),
        got.get(at),
        want.get(at)
    );
}
