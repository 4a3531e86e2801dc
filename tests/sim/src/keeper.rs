//! Somebody who names roots: tags that move, a pin that stays. The engine has no call for either yet, but its collection of
//! garbage heeds them, so this client writes their objects itself, by the handshake that `gc` documents: the name first, then a
//! look for the marks of sweeps. A root whose name came in time stays readable until the name is taken away, whatever
//! storage, sweeps and deaths do.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use pando_engine::api::*;
use pando_format::{CollectionUuid, PinRecord, RootRef, Stored, TagRecord};
use pando_store::{CreateOutcome, Folder, Key, Store, StoreOptions};
use uuid::Uuid;

use crate::client::{NAME, Reader, Verdict, World, tolerable, vector};
use crate::random::Dice;

const TAGS: [&str; 2] = ["best", "old"];
/// The number by which storage knows this client.
const NODE: usize = 99;

/// Names that came too late, or of which nobody knows yet: a sweep may meet one whose root is gone, and stops.
#[derive(Clone, Debug, Default)]
pub struct Loose(Arc<AtomicI64>);

impl Loose {
    /// Whether there is one.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, Default)]
struct Name {
    /// Number of the tag's newest object.
    n: u64,
    /// What it is known to hold.
    holds: Option<RootRef>,
}

/// The client.
pub struct Keeper {
    world: World,
    dice: Dice,
    store: Store,
    uuid: Uuid,
    tags: [Name; TAGS.len()],
    pin: Option<RootRef>,
    pinned: bool,
    /// How many names held, and how many came too late.
    pub(crate) count: [u64; 2],
}

impl Keeper {
    /// A client that did nothing yet.
    pub fn new(world: World, dice: Dice, store: Store, uuid: Uuid) -> Self {
        Self { world, dice, store, uuid, tags: Default::default(), pin: None, pinned: false, count: [0; 2] }
    }

    /// How its requests are repeated.
    pub fn options(clock: crate::clock::SimClock) -> StoreOptions {
        StoreOptions {
            clock: Arc::new(clock),
            read_timeout: Duration::from_millis(500),
            read_attempts: 4,
            backoff: Duration::from_millis(10),
            max_backoff: Duration::from_millis(200),
            write_timeout: Duration::from_millis(1_500),
        }
    }

    /// Storage as it sees it.
    pub fn store(
        storage: &crate::storage::Storage,
        clock: crate::clock::SimClock,
    ) -> pando_store::Result<Store> {
        Store::new(storage.seen_by(NODE), "", None, Self::options(clock))
    }

    /// Names, looks and takes names away; afterwards, in calm weather, [`Keeper::settle`].
    pub async fn run(mut self) -> Verdict<Self> {
        for _ in 0..self.world.weather.calls / 3 {
            tokio::time::sleep(Duration::from_millis(self.dice.below(400))).await;
            let at = self.dice.below(TAGS.len() as u64) as usize;
            match self.dice.below(8) {
                0..3 => self.tag(at).await?,
                3 => self.untag(at).await?,
                4 => self.pin().await?,
                _ => self.look().await?,
            }
        }
        Ok(self)
    }

    /// Everything that is held is what the log was, after sweeps with nothing in their way.
    pub async fn settle(self) -> Verdict<[u64; 2]> {
        for node in &self.world.nodes {
            let engine = node.engine().ok_or("a process is not running")?;
            if let Err(error) = engine.collect_garbage(NAME, false, Arc::new(|_| {})).await
                && !self.world.loose.any()
            {
                return Err(format!("keeper: a sweep in calm weather: {error:?}"));
            }
            for root in self.held() {
                let at = At::Root(root.root);
                let (history, weather) = (&self.world.history, &*self.world.weather);
                let reader = Reader {
                    engine: &engine,
                    history,
                    weather,
                    at: at.clone(),
                    consistency: Consistency::Strong,
                };
                reader.all(&self.dice).await.map_err(|e| format!("keeper: {root:?}, which is held: {e}"))?;
                let report = engine.verify(NAME, at, Arc::new(|_| {})).await;
                match report {
                    Ok(report) if report.ok => {}
                    other => return Err(format!("keeper: {root:?}, which is held: {other:?}")),
                }
            }
        }
        Ok(self.count)
    }

    fn held(&self) -> Vec<RootRef> {
        self.tags.iter().filter_map(|tag| tag.holds).chain(self.pin).collect()
    }

    /// Some root that is listed as readable.
    async fn some_root(&self) -> Verdict<Option<RootRef>> {
        let node = self.dice.pick(&self.world.nodes);
        match node.call("roots", |engine| async move { engine.list_roots(NAME).await }).await {
            Some(Ok(roots)) => {
                let roots: Vec<_> = roots.into_iter().filter(|root| root.readable).collect();
                let pick = |root: &RootDescription| RootRef {
                    root: root.root,
                    depth: root.depth,
                    generation: root.generation,
                };
                Ok((!roots.is_empty()).then(|| pick(self.dice.pick(&roots))))
            }
            Some(Err(error)) => tolerable(&error, &self.world.weather, "list of roots").map(|()| None),
            None => Ok(None),
        }
    }

    /// Stores an object that only this client writes, until it is certain that it is there.
    async fn certainly(&self, key: &Key, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        loop {
            if let Ok(CreateOutcome::Created) = self.store.create_if_absent(key, bytes.clone()).await {
                return;
            }
            if let Ok(Some(found)) = self.store.try_get(key).await
                && found == bytes
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(self.dice.between(10, 200))).await;
        }
    }

    /// The greatest depth of all marks of sweeps.
    async fn marked(&self) -> Option<u64> {
        loop {
            let listed: Result<Vec<_>, _> = self.store.list(&Folder::Dropped(self.uuid)).try_collect().await;
            if let Ok(marks) = listed {
                let depth =
                    |key: &Key| if let Key::Dropped { depth, .. } = key { Some(*depth) } else { None };
                return marks.iter().filter_map(|mark| depth(&mark.key)).max();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The next object of a tag.
    async fn point(&mut self, at: usize, target: Option<RootRef>) -> Verdict {
        self.tags[at].n += 1;
        let record = TagRecord { tag: TAGS[at].into(), number: self.tags[at].n, target };
        let key = Key::Tag { uuid: self.uuid, tag: record.tag.clone(), n: record.number };
        let bytes = record.encode().map_err(|e| format!("keeper: a tag: {e}"))?;
        self.certainly(&key, bytes).await;
        Ok(())
    }

    /// Whether a name that is stored came in time.
    async fn in_time(&mut self, root: &RootRef) -> bool {
        // Between the name and the look for marks anything may happen.
        tokio::time::sleep(Duration::from_millis(self.dice.below(500))).await;
        let held = self.marked().await.is_none_or(|marked| root.depth > marked);
        self.count[usize::from(!held)] += 1;
        held
    }

    async fn tag(&mut self, at: usize) -> Verdict {
        let Some(root) = self.some_root().await? else { return Ok(()) };
        self.world.loose.add(1);
        // From here on nothing is certain of what it held.
        self.tags[at].holds = None;
        self.point(at, Some(root)).await?;
        match self.in_time(&root).await {
            true => self.tags[at].holds = Some(root),
            false => self.point(at, None).await?,
        }
        self.world.loose.add(-1);
        Ok(())
    }

    async fn untag(&mut self, at: usize) -> Verdict {
        self.tags[at].holds = None;
        self.point(at, None).await
    }

    /// One pin a run: a pin is removed by deleting it, and a store may still carry out a create that it answered with an error,
    /// so a pin that came too late stays loose.
    async fn pin(&mut self) -> Verdict {
        if std::mem::replace(&mut self.pinned, true) {
            return Ok(());
        }
        let Some(root) = self.some_root().await? else { return Ok(()) };
        self.world.loose.add(1);
        let fork = CollectionUuid(Uuid::from_u128(u128::from(self.dice.next())));
        let bytes = PinRecord { fork, target: root }.encode().map_err(|e| format!("keeper: a pin: {e}"))?;
        let key = Key::Pin { uuid: self.uuid, fork: fork.0 };
        self.certainly(&key, bytes).await;
        if self.in_time(&root).await {
            self.pin = Some(root);
            self.world.loose.add(-1);
        } else {
            while self.store.delete(&key).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// What is held can be read.
    async fn look(&self) -> Verdict {
        let held = self.held();
        if held.is_empty() {
            return Ok(());
        }
        let root = *self.dice.pick(&held);
        let (world, dice) = (self.world.clone(), Dice::new(self.dice.next(), 12));
        let read = move |engine: Arc<pando_engine::Engine>| async move {
            let (history, weather) = (&world.history, &*world.weather);
            let at = At::Root(root.root);
            let reader = Reader { engine: &engine, history, weather, at, consistency: Consistency::Strong };
            match dice.below(3) {
                0 => reader.scan(50).await,
                1 => {
                    reader.search(vec![vector(&dice, weather.dim)], 5, false, Effort::RecallTarget(1.0)).await
                }
                _ => reader.count().await,
            }
        };
        let wrong = |error: &dyn std::fmt::Debug| Err(format!("keeper: {root:?}, which is held: {error:?}"));
        match self.dice.pick(&self.world.nodes).call("read of a held root", read).await {
            None => Ok(()),
            Some(Ok(verdict)) => verdict.or_else(|error| wrong(&error)),
            Some(Err(error)) => match tolerable(&error, &self.world.weather, "read of a held root") {
                Ok(()) => Ok(()),
                Err(_) => wrong(&error),
            },
        }
    }
}
