//! The engine: every collection of one store, on one node.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{StreamExt, TryStreamExt};
use pando_coordination::Coordinator;
use pando_kernels::{Kernels, denormals_on};
use pando_store::Store;

use crate::api::*;
use crate::arena::Arena;
use crate::block::Cache;
use crate::catalog::Catalog;
use crate::collection::Collection;
use crate::compaction;
use crate::environment::{Clock, Environment, MemoryBudget, Random, Tasks};
use crate::error::{Error, ErrorKind, Result};
use crate::gc;
use crate::log::{Write, newest_head, read_head};
use crate::query::{self, Place, Plan};
use crate::rootio::damaged;
use crate::settings::Settings;
use crate::validate;
use crate::view::View;
use crate::workers::{CpuPool, ShortWork, Workers};

/// A stream of pages of one scan, all of one position.
pub type ScanStream = futures::stream::BoxStream<'static, Result<ScanPage>>;
/// Told of the progress of long work.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// Roots listed at most.
const LISTED_ROOTS: usize = 1000;
/// A collection that nobody used for so long is unloaded.
const IDLE: Duration = Duration::from_secs(300);
/// Share of the cache memory for resident leaves and vectors, and for tails; the rest is the block cache's.
const RESIDENT_PERCENT: u64 = 75;
const TAIL_PERCENT: u64 = 15;

/// Every collection of one store. Cheap to share behind [`Arc`]; all methods are cancel-safe: a write that was handed to
/// the log goes on in its own task when the caller leaves.
pub struct Engine {
    env: Environment,
    catalog: Arc<Catalog>,
}

/// Components of an engine; a test swaps any of them.
pub struct Components {
    /// Object storage, probed.
    pub store: Store,
    /// Leases, members, hints.
    pub coordinator: Arc<dyn Coordinator>,
    /// Kernel set.
    pub kernels: Kernels,
    /// Ages, deadlines, back-off.
    pub clock: Arc<dyn Clock>,
    /// Nonces and uuids.
    pub random: Arc<dyn Random>,
}

impl Engine {
    /// Starts an engine: checks the store, starts the CPU pools and the background work.
    pub async fn open(components: Components, settings: Settings) -> Result<Arc<Self>> {
        Self::open_scheduled(components, settings, None).await
    }

    /// [`Engine::open`] with a schedule of its own for CPU and blocking work.
    pub async fn open_scheduled(
        components: Components,
        settings: Settings,
        workers: Option<Arc<dyn Workers>>,
    ) -> Result<Arc<Self>> {
        components.store.probe().await?;
        let threads = match settings.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let share = |percent: u64| settings.cache_memory / 100 * percent;
        let cache =
            Cache::new("blocks", settings.cache_memory - share(RESIDENT_PERCENT) - share(TAIL_PERCENT));
        let env = Environment {
            store: components.store,
            coordinator: components.coordinator,
            kernels: components.kernels,
            clock: components.clock,
            random: components.random,
            cpu: CpuPool::scheduled(pool("cpu", threads)?, workers.clone())
                .with_short_work(short_work("search", threads)?),
            compact_cpu: CpuPool::scheduled(pool("compact", threads)?, workers),
            cache,
            resident: MemoryBudget::new(share(RESIDENT_PERCENT)),
            arena: Arena::default(),
            tails: MemoryBudget::new(share(TAIL_PERCENT)),
            searchers: Arc::default(),
            tasks: Tasks::default(),
            garbage: Arc::default(),
            settings: Arc::new(settings),
        };
        let engine = Arc::new(Self { catalog: Arc::new(Catalog::new(env.clone())), env });
        // A checkpoint that is dropped gives up; its work is repeated to the same bytes.
        engine.env.tasks.spawn(compaction::run(engine.env.clone(), engine.catalog.clone()));
        engine.env.tasks.spawn(compaction::sweep(engine.env.clone(), engine.catalog.clone()));
        engine.env.tasks.spawn(gc::schedule::run(engine.env.clone(), engine.catalog.clone()));
        engine.env.tasks.spawn(unload(engine.env.clone(), engine.catalog.clone()));
        Ok(engine)
    }

    /// What the engine works with.
    pub fn environment(&self) -> &Environment {
        &self.env
    }

    /// Collections that are open on this node. Idle ones are not.
    pub fn open_collections(&self) -> usize {
        self.catalog.all_open().len()
    }

    /// Creates a collection. ALREADY_EXISTS when the name is taken.
    pub async fn create_collection(&self, create: CreateCollection) -> Result<CollectionDescription> {
        let collection = self.catalog.create(&create).await?;
        Ok(self.description(&create.name, &collection))
    }

    /// Describes a collection.
    pub async fn describe(&self, collection: &str) -> Result<CollectionDescription> {
        let (open, ..) = self.read(collection, Consistency::Strong, &At::Now).await?;
        Ok(self.description(collection, &open))
    }

    /// The collection of this name, with the view and position of a read.
    async fn read(
        &self,
        name: &str,
        consistency: Consistency,
        at: &At,
    ) -> Result<(Arc<Collection>, Arc<View>, Token)> {
        loop {
            let collection = self.catalog.get(name).await?;
            match collection.read_view(consistency, at).await {
                Ok((view, token)) => return Ok((collection, view, token)),
                // It was deleted elsewhere since it was opened here: the name may be another's.
                Err(error) if error.kind == ErrorKind::NotFound && collection.is_closed() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn description(&self, name: &str, collection: &Collection) -> CollectionDescription {
        let view = collection.view();
        let config = &collection.record.config;
        let facts = view.tail.facts();
        let manifest = view.root.as_ref().map(|root| root.manifest());
        let attributes = view.tail.read().attributes().iter().map(|(n, t)| (n.to_owned(), t)).collect();
        CollectionDescription {
            config: CreateCollection {
                name: name.to_owned(),
                dimension: config.dim,
                metric: config.metric,
                copies: config.copies,
                refine: config.refine,
                seed: config.seed,
                small_limit: config.small_limit,
                log_retention: Duration::from_secs(config.log_retention_seconds),
            },
            uuid: collection.record.uuid.0,
            records: view.count(facts.sequence),
            root: view.root.as_ref().map(|root| root.id()),
            generation: view.generation,
            sequence: facts.sequence,
            tail_records: facts.cumulative_rows - view.tail.base().cumulative_rows,
            leaves: manifest.map_or(0, |m| m.leaf_count()),
            levels: manifest.map_or(0, |m| m.levels()),
            index_bytes: manifest.map_or(0, |m| m.index_bytes()),
            segment_bytes: manifest.map_or(0, |m| m.segment_bytes()),
            attributes,
        }
    }

    /// Names of all collections, sorted.
    pub async fn list_collections(&self) -> Result<Vec<String>> {
        self.catalog.list().await
    }

    /// Closes and drops a collection; its name is free afterwards.
    pub async fn delete_collection(&self, collection: &str) -> Result<()> {
        self.catalog.delete(collection).await
    }

    /// Inserts or replaces whole records; durable when it returns. One call is one entry: all or nothing.
    pub async fn upsert(
        &self,
        collection: &str,
        rows: Rows,
        idempotency_key: Option<String>,
    ) -> Result<WriteOutcome> {
        self.write(collection, Write::Upsert(Arc::new(rows)), idempotency_key).await
    }

    /// Deletes records by id; ids that do not exist count 0. An empty list deletes nothing.
    pub async fn delete_ids(
        &self,
        collection: &str,
        ids: Vec<RecordId>,
        idempotency_key: Option<String>,
    ) -> Result<WriteOutcome> {
        validate::ids(&ids)?;
        self.write(collection, Write::DeleteIds(ids), idempotency_key).await
    }

    async fn write(&self, name: &str, write: Write, key: Option<String>) -> Result<WriteOutcome> {
        let longest = pando_format::MAX_KEY_BYTES;
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > longest) {
            let message = format!("an idempotency key has 1 to {longest} bytes");
            return Err(Error::invalid("INVALID_IDEMPOTENCY_KEY", message));
        }
        if self.env.tasks.stopped() {
            return Err(Error::new(ErrorKind::Unavailable, "SHUTTING_DOWN", "the server is shutting down"));
        }
        loop {
            let collection = self.catalog.get(name).await?;
            if let Write::Upsert(rows) = &write {
                let (rows, dim, metric) = (rows.clone(), collection.dim(), collection.record.config.metric);
                query::on_cpu(&self.env.cpu, move || validate::rows(&rows, dim, metric)).await??;
            }
            match collection.write(write.clone(), key.clone()).await {
                Ok(outcome) => {
                    let token = Token { uuid: collection.record.uuid.0, sequence: outcome.sequence };
                    return Ok(WriteOutcome { token, affected: outcome.affected });
                }
                // It was deleted elsewhere since it was opened here: the name may be another's.
                Err(error) if error.kind == ErrorKind::NotFound && collection.is_closed() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Records by id, in the order asked for.
    pub async fn fetch(
        &self,
        collection: &str,
        ids: Vec<RecordId>,
        include: Include,
        consistency: Consistency,
        at: At,
    ) -> Result<FetchAnswer> {
        validate::ids(&ids)?;
        loop {
            let (collection, view, token) = self.read(collection, consistency, &at).await?;
            match query::fetch(&self.env, &view, token.sequence, &ids, &include).await {
                Ok(records) => {
                    let root = view.root.as_ref().map(|root| root.id());
                    return Ok(FetchAnswer { records, root, token });
                }
                Err(error) => again(collection.explain(&view, at == At::Now, error).await)?,
            }
        }
    }

    /// Searches; one answer per query vector, all of one position.
    pub async fn query(&self, request: QueryRequest) -> Result<Vec<QueryAnswer>> {
        self.query_at(request, Place::Pool).await
    }

    /// Like [`Engine::query`], with the CPU work of approximate searches on the thread that polls: for a program that
    /// embeds the engine and searches from threads of its own. Saves two changes of threads a query. Not for a runtime
    /// that serves connections: a search keeps its thread busy for as long as it needs nothing from storage.
    pub async fn query_here(&self, request: QueryRequest) -> Result<Vec<QueryAnswer>> {
        self.query_at(request, Place::Caller).await
    }

    async fn query_at(&self, request: QueryRequest, place: Place) -> Result<Vec<QueryAnswer>> {
        loop {
            let (collection, view, token) =
                self.read(&request.collection, request.consistency, &request.at).await?;
            validate::query(&request, collection.dim(), collection.record.config.metric)?;
            match self.query_view(&request, place, view.clone(), token).await {
                Ok(answers) => return Ok(answers),
                Err(error) => again(collection.explain(&view, request.at == At::Now, error).await)?,
            }
        }
    }

    async fn query_view(
        &self,
        request: &QueryRequest,
        place: Place,
        view: Arc<View>,
        token: Token,
    ) -> Result<Vec<QueryAnswer>> {
        let plan = Plan {
            view,
            position: token.sequence,
            token,
            top_k: request.top_k as usize,
            effort: request.effort,
            epsilon: request.epsilon,
            exact: request.exact,
            include: request.include.clone(),
            place,
        };
        if let [vector] = request.vectors.as_slice() {
            return Ok(vec![query::search(&self.env, &plan, vector.clone()).await?]);
        }
        if plan.exact {
            return query::exact(&self.env, &plan, request.vectors.clone()).await;
        }
        let searches: Vec<_> =
            request.vectors.iter().map(|vector| query::search(&self.env, &plan, vector.clone())).collect();
        futures::stream::iter(searches).buffered(self.env.cpu.current_num_threads() * 2).try_collect().await
    }

    /// Every live record of one position, in id order.
    pub async fn scan(
        &self,
        collection: &str,
        include: Include,
        consistency: Consistency,
        at: At,
        page_size: u32,
    ) -> Result<ScanStream> {
        let page_size = validate::page_size(page_size)?;
        let (collection, view, token) = self.read(collection, consistency, &at).await?;
        let scan = query::scan(self.env.clone(), view.clone(), token.sequence, token, include, page_size);
        // A scan that has begun cannot begin again: it ends with an error when its root goes.
        let ended = async move |error| collection.explain(&view, false, error).await;
        match scan.await {
            Ok(pages) => {
                let ended = Arc::new(ended);
                let explained = pages.or_else(move |error| {
                    let ended = ended.clone();
                    async move { Err(ended(error.clone()).await.unwrap_or(error)) }
                });
                Ok(explained.boxed())
            }
            Err(error) => Err(ended(error.clone()).await.unwrap_or(error)),
        }
    }

    /// Live records.
    pub async fn count(&self, collection: &str, consistency: Consistency, at: At) -> Result<CountAnswer> {
        let (_, view, token) = self.read(collection, consistency, &at).await?;
        let root = view.root.as_ref().map(|root| root.id());
        Ok(CountAnswer { count: view.count(token.sequence), root, token })
    }

    /// Runs checkpoints until the root covers everything written before the call.
    pub async fn compact(&self, collection: &str, progress: ProgressSink) -> Result<CompactOutcome> {
        let (collection, _, token) = self.read(collection, Consistency::Strong, &At::Now).await?;
        compaction::compact(&self.env, &collection, token.sequence, progress).await
    }

    /// Approximate against exact search at one position, on the server.
    pub async fn measure_recall(
        &self,
        collection: &str,
        vectors: Vec<Vec<f32>>,
        top_k: u32,
        effort: Effort,
        progress: ProgressSink,
    ) -> Result<RecallReport> {
        let request = QueryRequest {
            collection: String::new(),
            vectors,
            top_k,
            include: Include::default(),
            consistency: Consistency::Strong,
            at: At::Now,
            exact: false,
            effort,
            epsilon: None,
        };
        loop {
            let (collection, view, token) = self.read(collection, Consistency::Strong, &At::Now).await?;
            validate::query(&request, collection.dim(), collection.record.config.metric)?;
            if request.vectors.is_empty() {
                return Err(Error::invalid("NO_VECTORS", "recall needs at least one query vector"));
            }
            let (asked, progress) = (request.clone(), progress.clone());
            match query::measure_recall(&self.env, view.clone(), token, asked, progress).await {
                Err(error) => again(collection.explain(&view, true, error).await)?,
                report => return report,
            }
        }
    }

    /// Published roots, newest first.
    pub async fn list_roots(&self, collection: &str) -> Result<Vec<RootDescription>> {
        let (collection, view, _) = self.read(collection, Consistency::Strong, &At::Now).await?;
        let mut out = Vec::new();
        let newest = newest_head(&self.env.store, collection.record.uuid.0, view.generation).await?;
        let mut generation = newest.map_or(0, |head| head.generation);
        while generation > 0 && out.len() < LISTED_ROOTS {
            let head = read_head(&self.env.store, collection.record.uuid.0, generation).await?;
            if let Some(head) = head
                && let Some(root) = head.root
            {
                // Heads that only raise the floor name the root of the head before them: the first one counts.
                if let Some(last) =
                    out.last_mut().filter(|last: &&mut RootDescription| last.root == root.root)
                {
                    (last.generation, last.sequence) = (generation, head.sequence);
                    generation -= 1;
                    continue;
                }
                let manifest = collection.io().manifest(root.depth, &root.root).await;
                if let Err(error) = &manifest
                    && error.kind == ErrorKind::Unavailable
                {
                    return Err(error.clone());
                }
                let records = manifest.as_ref().map_or(0, |(manifest, _)| manifest.counts.live);
                out.push(RootDescription {
                    generation,
                    root: root.root,
                    sequence: head.sequence,
                    depth: root.depth,
                    records,
                    readable: manifest.is_ok(),
                });
            }
            generation -= 1;
        }
        Ok(out)
    }

    /// Re-reads a root with the production decoders and checks every checksum and law 4.
    pub async fn verify(&self, collection: &str, at: At, progress: ProgressSink) -> Result<VerifyReport> {
        loop {
            let (collection, view, _) = self.read(collection, Consistency::Strong, &at).await?;
            let Some(root) = &view.root else {
                // Nothing was built yet: there is nothing to be wrong.
                return Ok(VerifyReport {
                    ok: true,
                    root: None,
                    records: 0,
                    blocks: 0,
                    problems: Vec::new(),
                });
            };
            let around = compaction::surroundings(&self.env, &collection, progress.clone());
            let report = crate::verify::verify(&around, root.manifest().depth, root.id()).await?;
            if report.ok {
                return Ok(report);
            }
            // What is missing may have been collected under way.
            match collection.explain(&view, at == At::Now, damaged("verify: the root has problems")).await {
                None => {}
                Some(error) if error.kind == ErrorKind::DataLoss => return Ok(report),
                Some(error) => return Err(error),
            }
        }
    }

    /// Drops all background work where it waits, as a crash of the process would; for simulations of it. Calls that are under
    /// way are their callers' to drop.
    pub fn crash(&self) {
        self.env.tasks.crash();
    }

    /// Deletes what no kept root of the collection reaches, and log entries that no reader or writer needs. With `dry_run`
    /// nothing is deleted, and the report says what would be.
    pub async fn collect_garbage(
        &self,
        collection: &str,
        dry_run: bool,
        progress: ProgressSink,
    ) -> Result<GarbageReport> {
        let open = self.catalog.get(collection).await?;
        let uuid = open.record.uuid.0;
        Ok(gc::schedule::collect(&self.env, &self.catalog, uuid, dry_run, progress).await?.report)
    }

    /// Sweeps every collection of the store, dropped ones included, as the compactor does once a day. One that fails does
    /// not keep the others from being swept; the first error is returned at the end.
    pub async fn collect_all_garbage(&self) -> Result<()> {
        gc::schedule::collect_all(&self.env, &self.catalog).await
    }

    /// Stops background work; in-flight writes are finished first. Every method called afterwards fails.
    pub async fn shutdown(&self) {
        self.catalog.clear();
        self.env.tasks.stop().await;
    }
}

/// An error, or the read begins again.
fn again(error: Option<Error>) -> Result<()> {
    error.map_or(Ok(()), Err)
}

fn short_work(name: &'static str, threads: usize) -> Result<ShortWork> {
    ShortWork::start(name, threads)
        .map_err(|error| Error::internal(format!("starting the threads of the {name}: {error}")))
}

fn pool(name: &'static str, threads: usize) -> Result<Arc<rayon::ThreadPool>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |at| format!("pando-{name}-{at}"))
        // A task that panics fails its caller, not the server.
        .panic_handler(|_| tracing::error!("a task of the CPU pool panicked"))
        .build()
        .map_err(|error| Error::internal(format!("starting the {name} pool: {error}")))?;
    // Roots are a function of their input only with denormals as IEEE 754 has them.
    if !pool.broadcast(|_| denormals_on()).into_iter().all(|on| on) {
        return Err(Error::internal("denormal numbers are flushed to zero on this machine's threads"));
    }
    Ok(Arc::new(pool))
}

/// Unloads idle collections.
async fn unload(env: Environment, catalog: Arc<Catalog>) {
    loop {
        env.clock.sleep(IDLE / 10).await;
        catalog.drop_idle(env.clock.now().saturating_sub(IDLE).as_secs());
    }
}
