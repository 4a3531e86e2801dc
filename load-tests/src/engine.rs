//! The engine as it is measured: a local directory, coordination in this process, checkpoints by command only.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field};
use pando_coordination::InProcess;
use pando_engine::api::*;
use pando_engine::environment::{SystemClock, SystemRandom};
use pando_engine::{Components, Engine, ProgressSink, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions};

use crate::arguments::Common;

/// The collection of every index.
pub const NAME: &str = "bench";
/// Memory that did not change for so long is filled.
const QUIET: Duration = Duration::from_millis(300);

/// An engine on a directory, and the runtime of its background work.
pub struct Bench {
    /// The engine.
    pub engine: Arc<Engine>,
    /// Its store, for counters of requests.
    pub store: Store,
    /// Its runtime.
    pub runtime: tokio::runtime::Runtime,
}

impl Bench {
    /// Opens the engine on `index`.
    pub fn open(args: &Common, index: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let store = Store::open_local(index, StoreOptions::default())?;
        let settings = Settings {
            cache_memory: args.cache_memory.as_u64(),
            compactor_memory: args.compactor_memory.as_u64(),
            auto_compact: false,
            ..Settings::default()
        };
        let components = Components {
            coordinator: Arc::new(InProcess::new(store.clock().clone())),
            store: store.clone(),
            kernels: Kernels::from_env()?,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        };
        let engine = runtime.block_on(Engine::open(components, settings))?;
        Ok(Self { engine, store, runtime })
    }

    /// Creates the collection as the arguments say.
    pub fn create(&self, args: &Common, dim: usize) -> Result<()> {
        let create = CreateCollection {
            copies: args.copies,
            refine: !args.no_refine,
            ..CreateCollection::new(NAME, dim as u32, args.metric)
        };
        self.wait(self.engine.create_collection(create))?;
        Ok(())
    }

    /// Runs a future to its end on this thread.
    pub fn wait<T>(&self, work: impl Future<Output = pando_engine::Result<T>>) -> Result<T> {
        Ok(self.runtime.block_on(work)?)
    }

    /// Waits until leaves and vectors have filled the memory that they may use.
    pub fn warm(&self) -> Result<()> {
        self.wait(self.engine.describe(NAME))?;
        let used = || self.engine.environment().resident.used();
        let (mut last, mut since) = (used(), Instant::now());
        while since.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(20));
            if used() != last {
                (last, since) = (used(), Instant::now());
            }
        }
        Ok(())
    }

    /// Upserts rows in batches as bulk ingest makes them: two calls under way.
    pub fn ingest(&self, ids: &[u64], vectors: &[f32], dim: usize, batch_rows: usize) -> Result<()> {
        let batches = ids.chunks(batch_rows).zip(vectors.chunks(batch_rows * dim));
        let calls = batches.map(|(ids, vectors)| {
            let engine = self.engine.clone();
            let rows = rows(ids, vectors, dim);
            async move { Ok::<_, anyhow::Error>(engine.upsert(NAME, rows?, None).await?) }
        });
        self.runtime.block_on(async {
            use futures::stream::{StreamExt, TryStreamExt};
            futures::stream::iter(calls).buffered(2).try_for_each(|_| async { Ok(()) }).await
        })
    }

    /// A checkpoint of everything written.
    pub fn compact(&self) -> Result<CompactOutcome> {
        let quiet: ProgressSink = Arc::new(|_| {});
        self.wait(self.engine.compact(NAME, quiet))
    }

    /// Stops background work.
    pub fn close(self) {
        self.runtime.block_on(self.engine.shutdown());
    }
}

/// Rows of an Arrow batch, as Flight delivers them.
fn rows(ids: &[u64], vectors: &[f32], dim: usize) -> Result<Rows> {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let values: ArrayRef = Arc::new(Float32Array::from(vectors.to_vec()));
    let list = FixedSizeListArray::try_new(item, i32::try_from(dim)?, values, None)?;
    let ids: ArrayRef = Arc::new(UInt64Array::from(ids.to_vec()));
    let batch = RecordBatch::try_from_iter([("id", ids), ("vector", Arc::new(list) as ArrayRef)])?;
    Rows::from_record_batch(&batch, "id", "vector", dim).map_err(|e| anyhow::anyhow!("{e}"))
}

/// A query for `vector`.
pub fn request(vector: &[f32], top_k: usize, effort: Effort) -> QueryRequest {
    QueryRequest {
        collection: NAME.into(),
        vectors: vec![vector.to_vec()],
        top_k: top_k as u32,
        include: Include::default(),
        consistency: Consistency::Strong,
        at: At::Now,
        exact: false,
        effort,
        epsilon: None,
    }
}

/// Row numbers of an answer.
pub fn ids(answer: &QueryAnswer) -> Vec<u64> {
    let id = |found: &Match| match &found.record.id {
        RecordId::U64(id) => *id,
        RecordId::Str(_) => u64::MAX,
    };
    answer.matches.iter().map(id).collect()
}

/// The only answer of a call for one vector.
pub fn only(mut answers: Vec<QueryAnswer>) -> Result<QueryAnswer> {
    answers.pop().context("a call for one vector has one answer")
}
