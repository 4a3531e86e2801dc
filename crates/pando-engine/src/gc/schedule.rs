//! When sweeps run: some time after a root was published, again while something waits for its retention, and once a day
//! over every collection of the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use super::{Sweep, Swept};
use crate::catalog::Catalog;
use crate::engine::ProgressSink;
use crate::environment::Environment;
use crate::error::Result;
use crate::rootio::stored;

/// From a publication to the sweep, and from one sweep to the next.
const PERIOD: Duration = Duration::from_secs(600);
/// How often what is due is looked for.
const LOOK: Duration = Duration::from_secs(30);
/// Every collection of the store is swept so often: what a node that is gone left behind, dropped collections.
const EVERYTHING: Duration = Duration::from_secs(24 * 3600);

/// Collections whose garbage this node collects, with the times when. An idle collection is not in it.
#[derive(Debug, Default)]
pub struct Schedule {
    due: Mutex<BTreeMap<Uuid, Duration>>,
}

impl Schedule {
    /// A root of the collection was published, or a sweep has left something for later.
    pub fn later(&self, uuid: Uuid, now: Duration) {
        let mut due = self.due.lock();
        due.entry(uuid).or_insert(now + PERIOD);
        metrics::gauge!("pando_gc_waiting_collections").set(due.len() as f64);
    }

    /// Takes out what is due.
    fn take(&self, now: Duration) -> Vec<Uuid> {
        let mut due = self.due.lock();
        let ready: Vec<Uuid> = due.iter().filter(|(_, at)| **at <= now).map(|(uuid, _)| *uuid).collect();
        for uuid in &ready {
            due.remove(uuid);
        }
        metrics::gauge!("pando_gc_waiting_collections").set(due.len() as f64);
        ready
    }
}

/// Sweeps one collection, open or not.
pub async fn collect(
    env: &Environment,
    catalog: &Catalog,
    uuid: Uuid,
    dry_run: bool,
    progress: ProgressSink,
) -> Result<Swept> {
    let open = catalog.all_open().into_iter().find(|open| open.record.uuid.0 == uuid);
    let record = match &open {
        Some(open) => open.record.clone(),
        None => Arc::new(catalog.record(uuid).await?),
    };
    let sweep = Sweep {
        store: env.store.clone(),
        random: env.random.clone(),
        root_retention: env.settings.root_retention,
        drop_grace: env.settings.drop_grace,
        dry_run,
        progress,
    };
    let swept = sweep.run(&record, open.as_ref().map_or(0, |open| open.view().generation)).await?;
    if let (Some(open), Some(head)) = (open, &swept.published) {
        open.switch_to(head).await?;
    }
    if swept.unfinished && !dry_run {
        env.garbage.later(uuid, env.clock.now());
    }
    let (objects, bytes) = swept.report.deleted();
    if !dry_run && objects > 0 {
        tracing::info!(collection = %uuid, objects, bytes, failed = swept.report.failed, "collected garbage");
    }
    Ok(swept)
}

/// Sweeps every collection of the store.
pub async fn collect_all(env: &Environment, catalog: &Catalog) -> Result<()> {
    let uuids = env.store.list_collections().await.map_err(stored)?;
    let mut failed = Ok(());
    for uuid in uuids {
        if let Err(error) = collect_quietly(env, catalog, uuid).await {
            failed = failed.and(Err(error));
        }
    }
    failed
}

async fn collect_quietly(env: &Environment, catalog: &Catalog, uuid: Uuid) -> Result<()> {
    let swept = collect(env, catalog, uuid, false, Arc::new(|_| {})).await;
    if let Err(error) = &swept {
        let internal = error.internal.as_deref();
        tracing::warn!(collection = %uuid, %error, internal, "a collection of garbage failed");
        env.garbage.later(uuid, env.clock.now());
    }
    swept.map(drop)
}

/// The background loop, one collection at a time. What fails is reported and comes again.
pub async fn run(env: Environment, catalog: Arc<Catalog>) {
    if !env.settings.auto_collect {
        return;
    }
    let mut everything = env.clock.now() + PERIOD;
    loop {
        env.clock.sleep(LOOK).await;
        let now = env.clock.now();
        for uuid in env.garbage.take(now) {
            let _ = collect_quietly(&env, &catalog, uuid).await;
        }
        if now >= everything {
            everything = now + EVERYTHING;
            if let Err(error) = collect_all(&env, &catalog).await {
                tracing::warn!(%error, "the daily collection of garbage was not complete");
            }
        }
    }
}
