//! When checkpoints run: by command, or by themselves when a tail is long, large or old.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::api::CompactOutcome;
use crate::catalog::Catalog;
use crate::checkpoint::{CheckpointOutcome, Surroundings, run_checkpoint};
use crate::collection::Collection;
use crate::engine::ProgressSink;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::log::newest_head;

/// How often tails are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How often collections that nobody opened are looked for: what a restart left behind.
const SWEEP: Duration = Duration::from_secs(600);
/// Pause after a failure, doubled with each further one.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// What checkpoints and verifications of a collection work with.
pub fn surroundings(env: &Environment, collection: &Collection, progress: ProgressSink) -> Surroundings {
    Surroundings {
        store: env.store.clone(),
        record: collection.record.clone(),
        kernels: env.kernels,
        pool: env.compact_cpu.clone(),
        memory: env.settings.compactor_memory,
        progress,
    }
}

/// Runs checkpoints until the root covers `target`.
pub async fn compact(
    env: &Environment,
    collection: &Arc<Collection>,
    target: u64,
    progress: ProgressSink,
) -> Result<CompactOutcome> {
    let _one = collection.compacting.lock().await;
    let mut published = false;
    loop {
        let view = collection.view();
        let base = view.tail.base();
        if base.sequence >= target {
            return Ok(CompactOutcome {
                root: view.root.as_ref().map(|root| root.id()),
                generation: view.generation,
                sequence: base.sequence,
                published,
            });
        }
        let around = surroundings(env, collection, progress.clone());
        let head = newest_head(&env.store, collection.record.uuid.0, view.generation).await?;
        let started = env.clock.now();
        let outcome = match run_checkpoint(&around, head.as_ref(), view.tail.facts().sequence).await {
            // Somebody else was so much faster that what this run worked on was collected meanwhile.
            Err(error) if error.kind == ErrorKind::DataLoss => {
                let known = head.as_ref().map_or(0, |head| head.generation);
                match newest_head(&env.store, collection.record.uuid.0, known).await? {
                    Some(newer) if newer.generation > known => CheckpointOutcome::LostRace(Box::new(newer)),
                    _ => return Err(error),
                }
            }
            outcome => outcome?,
        };
        match outcome {
            CheckpointOutcome::Published(finished) => {
                for skipped in &finished.skipped {
                    tracing::error!(collection = %collection.record.uuid, skipped, "an entry of the log was skipped");
                }
                let seconds = env.clock.now().saturating_sub(started).as_secs_f64();
                metrics::histogram!("pando_checkpoint_seconds").record(seconds);
                tracing::info!(
                    collection = %collection.record.uuid,
                    generation = finished.head.generation,
                    root = %finished.root,
                    sequence = finished.head.sequence,
                    records = finished.manifest.counts.live,
                    seconds,
                    "published a root"
                );
                published = true;
                env.garbage.later(collection.record.uuid.0, env.clock.now());
                collection.switch_to(&finished.head).await?;
            }
            CheckpointOutcome::LostRace(head) => collection.switch_to(&head).await?,
            CheckpointOutcome::NothingToDo => {
                let Some(head) = head else {
                    return Err(Error::internal("a log with entries has nothing to compact"));
                };
                if head.closed.is_some() {
                    return Err(collection.closed());
                }
                if head.generation <= view.generation {
                    return Err(Error::internal("the log ends before an entry that was acknowledged"));
                }
                collection.switch_to(&head).await?;
            }
        }
    }
}

/// Whether a collection's tail asks for a checkpoint, and how many rows wait.
fn due(env: &Environment, collection: &Collection) -> Option<u64> {
    let view = collection.view();
    let (facts, base) = (view.tail.facts(), view.tail.base());
    if facts.sequence == base.sequence || facts.closed {
        return None;
    }
    let rows = facts.cumulative_rows - base.cumulative_rows;
    let bytes = facts.cumulative_bytes - base.cumulative_bytes;
    let age =
        view.tail.read().oldest().map_or(Duration::ZERO, |oldest| env.clock.now().saturating_sub(oldest));
    let settings = &env.settings;
    let due = rows >= settings.compact_rows || bytes >= settings.compact_bytes || age >= settings.compact_age;
    due.then_some(rows)
}

/// The background loop: the longest backlog first, one checkpoint at a time (they share one memory budget). A collection
/// whose checkpoint fails waits, longer each time, and is reported; others go on.
pub async fn run(env: Environment, catalog: Arc<Catalog>) {
    let mut failures: HashMap<Uuid, (u32, Duration)> = HashMap::new();
    loop {
        env.clock.sleep(LOOK).await;
        if !env.settings.auto_compact {
            continue;
        }
        let now = env.clock.now();
        let waiting = |uuid: &Uuid| failures.get(uuid).is_some_and(|(_, until)| *until > now);
        let mut backlog: Vec<(u64, Arc<Collection>)> = Vec::new();
        for collection in catalog.all_open() {
            if let Some(rows) = due(&env, &collection).filter(|_| !waiting(&collection.record.uuid.0)) {
                backlog.push((rows, collection));
            }
        }
        metrics::gauge!("pando_compaction_backlog_collections").set(backlog.len() as f64);
        backlog.sort_by_key(|(rows, _)| std::cmp::Reverse(*rows));
        for (_, collection) in backlog {
            let uuid = collection.record.uuid.0;
            let target = collection.view().tail.facts().sequence;
            let outcome = compact(&env, &collection, target, Arc::new(|_| {})).await;
            match outcome {
                Ok(_) => {
                    failures.remove(&uuid);
                }
                Err(error) => {
                    let count = failures.get(&uuid).map_or(0, |(count, _)| *count) + 1;
                    let pause = (BACKOFF * 2u32.saturating_pow(count.min(16) - 1)).min(LONGEST_BACKOFF);
                    tracing::error!(collection = %uuid, %error, internal = error.internal.as_deref(), count, ?pause,
                        "a checkpoint failed");
                    metrics::counter!("pando_checkpoint_failures_total").increment(1);
                    failures.insert(uuid, (count, env.clock.now() + pause));
                }
            }
        }
    }
}

/// Opens collections that have a backlog and that nobody opened, so that [`run`] sees them.
pub async fn sweep(env: Environment, catalog: Arc<Catalog>) {
    loop {
        if env.settings.auto_compact {
            match catalog.dirty_unopened().await {
                Ok(names) => {
                    for name in names {
                        if let Err(error) = catalog.get(&name).await {
                            tracing::warn!(collection = name, %error, "opening a collection that waits for compaction");
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "looking for collections that wait for compaction"),
            }
        }
        env.clock.sleep(SWEEP).await;
    }
}
