//! Collection of garbage (DESIGN section 7): what no kept root reaches is deleted, and log entries at or below the floor of
//! a published head.
//!
//! A sweep, in this order, which is what makes it safe beside checkpoints, tags and other sweeps:
//!
//! 1. The newest head is read. Its root's depth bounds what may be deleted ([`rules::may_delete`]): what a checkpoint in
//!    flight has written so far lies deeper, and what it will take over from its parent is reached by the parent.
//! 2. `held`: roots that were the newest within the retention are kept, by the store's own clock. A mark says up to which
//!    depth roots are no longer kept for their age; only then tags and pins are looked for. Who tags a root writes the tag
//!    first and looks for marks then ([`rules::may_name`]): at least one of the two sees the other.
//! 3. Everything that the manifests of kept roots list is held. A manifest of a kept root that cannot be read ends the
//!    sweep: nothing is deleted on a guess.
//! 4. `log`: entries at or below the floor, bodies before their entry. A head that only raises the floor is published
//!    first, when the collection is idle and its floor lags behind the retention.
//! 5. `objects`: manifests first, so that a root goes as a whole; then segments, packs, plans.
//!
//! Listings find what to delete; that something is *not* listed decides nothing, except for tags and pins: a store must
//! list an object that was written before (all supported ones do).
//!
//! A crash anywhere leaves garbage for the next sweep, and so does a delete whose answer is unclear.

mod held;
mod log;
#[cfg(test)]
mod model;
mod objects;
mod report;
pub mod rules;
pub mod schedule;

use std::sync::Arc;
use std::time::Duration;

use pando_format::{CollectionRecord, Head};
use pando_store::{Key, Store};

use self::held::Held;
use self::report::Tally;
use crate::api::{GarbageReport, Progress};
use crate::checkpoint::{Race, create_head};
use crate::engine::ProgressSink;
use crate::environment::Random;
use crate::error::Result;
use crate::log::belief::HeadFacts;
use crate::log::{floor_after, newest_head};
use crate::rootio::{RootIo, stored};

/// What a sweep works with.
pub struct Sweep {
    /// Reads and deletes.
    pub store: Store,
    /// Nonces of marks.
    pub random: Arc<dyn Random>,
    /// How long a root is kept after another took its place.
    pub root_retention: Duration,
    /// How long objects of a dropped collection are kept.
    pub drop_grace: Duration,
    /// Delete nothing, say what would be deleted.
    pub dry_run: bool,
    /// Told of progress.
    pub progress: ProgressSink,
}

/// What a sweep did.
pub struct Swept {
    /// For the caller.
    pub report: GarbageReport,
    /// The newest head, when this sweep published it.
    pub published: Option<Head>,
    /// Whether a later sweep will have more to do without anything being written meanwhile.
    pub unfinished: bool,
}

impl Sweep {
    /// Sweeps one collection. `known`: a generation that is known to exist (0: none is).
    pub async fn run(&self, record: &Arc<CollectionRecord>, known: u64) -> Result<Swept> {
        let started = self.store.clock().now();
        let swept = self.sweep(record, known).await;
        if !self.dry_run {
            metrics::counter!("pando_gc_sweeps_total").increment(1);
            let seconds = self.store.clock().now().saturating_sub(started).as_secs_f64();
            metrics::histogram!("pando_gc_seconds").record(seconds);
            match &swept {
                Ok(swept) => report::count(&swept.report),
                Err(_) => metrics::counter!("pando_gc_failures_total").increment(1),
            }
        }
        swept
    }

    async fn sweep(&self, record: &Arc<CollectionRecord>, known: u64) -> Result<Swept> {
        let io = RootIo::new(self.store.clone(), record.clone());
        let uuid = record.uuid.0;
        let mut report = GarbageReport { dry_run: self.dry_run, ..GarbageReport::default() };
        let Some(mut head) = newest_head(&self.store, uuid, known).await? else {
            // Whatever is there may belong to the first root in the making.
            return Ok(Swept { report, published: None, unfinished: false });
        };
        let now = self.store.time().await.map_err(stored)?;
        let key = Key::Head { uuid, generation: head.generation };
        let age = now.duration_since(self.store.head(&key).await.map_err(stored)?.last_modified);
        let dropped = head.closed.is_some();
        if dropped && age.unwrap_or_default() < self.drop_grace {
            report.generation = head.generation;
            return Ok(Swept { report, published: None, unfinished: true });
        }
        let mut published = None;
        if !dropped && let Some(raised) = self.raise_floor(&io, &head, now).await? {
            head = raised;
            published = (!self.dry_run).then(|| head.clone());
        }
        let held = match dropped {
            true => Held::by_pins(&io).await?,
            false => Held::find(self, &io, &head, now).await?,
        };
        report.generation = head.generation;
        report.up_to_depth = if dropped { u64::MAX } else { head.root.map_or(0, |root| root.depth) };
        report.log_floor = head.log_floor;
        (report.recent_roots, report.held_roots) = (held.recent, held.named);

        let mut tally = Tally::default();
        // Nobody reads or writes the log of a collection that was dropped.
        let facts = match dropped {
            true => HeadFacts { sequence: u64::MAX, floor: u64::MAX },
            false => HeadFacts { sequence: head.sequence, floor: head.log_floor },
        };
        self.report("the log", 0);
        self.log(&io, facts, &mut tally).await?;
        self.objects(&io, &held, report.up_to_depth, &mut tally).await?;
        if !self.dry_run {
            self.forget_marks(&io).await?;
        }
        report.kinds = tally.kinds();
        report.failed = tally.failed;
        let lagging = head.log_floor < head.sequence;
        let unfinished = report.failed > 0 || (!dropped && (held.recent > 1 || lagging));
        Ok(Swept { report, published, unfinished })
    }

    /// The floor rises with the next head. A collection in which nothing is written has none: so that its log can go all
    /// the same, a head of the same root says nothing but the new floor.
    async fn raise_floor(
        &self,
        io: &RootIo,
        head: &Head,
        now: std::time::SystemTime,
    ) -> Result<Option<Head>> {
        if head.log_floor == head.sequence {
            return Ok(None);
        }
        let log_floor = floor_after(&self.store, io.record(), head, now).await?;
        if log_floor != head.sequence {
            // Not old enough, or a checkpoint is not long ago: its successor will say it.
            return Ok(None);
        }
        let next = Key::Log { uuid: io.record().uuid.0, sequence: head.sequence + 1 };
        if self.store.try_head(&next).await.map_err(stored)?.is_some() {
            // The next checkpoint says it, and must not lose its race for nothing.
            return Ok(None);
        }
        if self.dry_run {
            return Ok(Some(Head { log_floor, ..head.clone() }));
        }
        let raised = Head { generation: head.generation + 1, log_floor, ..head.clone() };
        match create_head(io, &raised).await? {
            Race::Won(head) => Ok(Some(head)),
            Race::Lost(_) => Ok(None),
        }
    }

    fn report(&self, stage: &str, done: u64) {
        (self.progress)(Progress { stage: stage.to_owned(), done, total: 0 });
    }
}
