//! An engine in a temporary directory, random records, and a model of what it should answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pando_coordination::InProcess;
use pando_engine::api::*;
use pando_engine::environment::SystemRandom;
use pando_engine::{Components, Engine, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions, SystemClock};

/// Opens an engine on `dir`. Checkpoints run by command only.
pub async fn open(dir: &Path) -> Arc<Engine> {
    open_with(dir, Settings { auto_compact: false, threads: 2, ..Settings::default() }).await
}

/// Opens an engine with these settings.
pub async fn open_with(dir: &Path, settings: Settings) -> Arc<Engine> {
    let clock = Arc::new(SystemClock);
    let store = Store::open_local(dir, StoreOptions::default()).expect("the directory opens");
    let components = Components {
        store,
        coordinator: Arc::new(InProcess::new(clock.clone())),
        kernels: Kernels::from_env().expect("PANDO_SIMD is available"),
        clock,
        random: Arc::new(SystemRandom),
    };
    Engine::open(components, settings).await.expect("the engine opens")
}

/// A small deterministic generator.
pub struct Generator(pub u64);

impl Generator {
    /// The next number (splitmix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Uniform in -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// A vector near one of 40 centres.
    pub fn vector(&mut self, dim: usize) -> Vec<f32> {
        let centre = self.below(40);
        let mut around = Generator(centre * 7 + 1);
        (0..dim).map(|_| around.unit() + 0.4 * self.unit()).collect()
    }
}

/// What a collection should hold.
#[derive(Default, Clone)]
pub struct Model(pub BTreeMap<RecordId, Vec<f32>>);

impl Model {
    /// The `k` nearest by the contract's distance, ties by id.
    pub fn nearest(&self, metric: Metric, query: &[f32], k: usize) -> Vec<(RecordId, f64)> {
        let kernels = Kernels::detect();
        let mut all: Vec<(RecordId, f64)> =
            self.0.iter().map(|(id, v)| (id.clone(), kernels.distance_f64(metric, query, v))).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(k);
        all
    }
}

/// Records for an upsert, with an attribute that names the id.
pub fn rows(dim: usize, records: &[(RecordId, Vec<f32>)]) -> Rows {
    let mut builder = pando_format::RowsBuilder::new(dim);
    for (id, vector) in records {
        let text = Value::String(format!("text of {id}"));
        builder.push(id.clone(), vector, [("text", &text)]).expect("a good record");
    }
    builder.finish().expect("good records")
}

/// A query with the defaults.
pub fn query(collection: &str, vector: &[f32], top_k: u32) -> QueryRequest {
    QueryRequest {
        collection: collection.into(),
        vectors: vec![vector.to_vec()],
        top_k,
        include: Include::default(),
        consistency: Consistency::Strong,
        at: At::Now,
        exact: false,
        effort: Effort::default(),
        epsilon: None,
    }
}

/// Ids and distances of one answer.
pub fn found(answer: &QueryAnswer) -> Vec<(RecordId, f64)> {
    answer.matches.iter().map(|m| (m.record.id.clone(), m.distance)).collect()
}

/// No progress shown.
pub fn quiet() -> pando_engine::ProgressSink {
    Arc::new(|_| {})
}
