//! One open collection on this node: its view, its writer, catching up with the log and switching roots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use pando_format::{
    CollectionRecord, Head, HeadRoot, KeyRecord, Manifest, Nonce, Operation, RecordId, RootId, WindowEntry,
};
use pando_tree::search::Frame;
use tokio::sync::{Mutex, Notify};

use crate::api::{At, Consistency, Token};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::log::belief::{Belief, HeadFacts, Look, Window, believe};
use crate::log::{Fetched, Write, Writer, fetch_entry, load_entry, newest_head, read_head};
use crate::query::on_cpu;
use crate::root::OpenRoot;
use crate::rootio::{RootIo, damaged, stored};
use crate::tail::{BodyRows, CodedRows, LoadedEntry, LogFacts, Prepared, Tail, body_rows};
use crate::view::View;

/// Entries read ahead while catching up.
const READ_AHEAD: usize = 8;
/// Deletes are admitted until the tail is so many times over the limit.
const DELETE_SLACK: u64 = 2;
/// How long a new root may load leaves and vectors before it takes over; it goes on loading afterwards.
const WARM_BEFORE_SWITCH: Duration = Duration::from_secs(5);
/// Opened older roots kept for reads `at` them.
const OLD_VIEWS: usize = 4;

/// An open collection.
pub struct Collection {
    pub(crate) env: Environment,
    pub(crate) record: Arc<CollectionRecord>,
    io: RootIo,
    view: ArcSwap<View>,
    /// Held while an entry is applied or the root is switched: views change one step at a time.
    applying: Mutex<()>,
    probe: Probe,
    writer: std::sync::OnceLock<Writer>,
    /// Told of every entry applied, for whoever decides on compaction.
    pub(crate) grown: Notify,
    /// Serialises checkpoints of this process.
    pub(crate) compacting: Mutex<()>,
    old: parking_lot::Mutex<Vec<(RootId, Arc<View>)>>,
    window: tokio::sync::Mutex<Option<(RootId, Arc<Keys>)>>,
    pub(crate) last_used: AtomicU64,
    me: std::sync::Weak<Self>,
    /// Whether a task is about to switch to a newer head.
    following: std::sync::atomic::AtomicBool,
}

/// The root of a read is gone.
fn expired() -> Error {
    Error::new(
        ErrorKind::FailedPrecondition,
        "ROOT_EXPIRED",
        "the root that was read from is no longer kept; read again, from a newer one",
    )
}

/// Idempotency keys that a root remembers, with the entries they are in.
type Keys = std::collections::HashMap<String, (u64, KeyRecord)>;

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collection({})", self.record.uuid)
    }
}

/// Probes of the log's end, shared among those who wait: a probe serves everybody who came before it began.
#[derive(Default)]
struct Probe {
    tickets: AtomicU64,
    /// The first ticket that the last completed probe does not serve.
    served: Mutex<u64>,
}

impl Collection {
    /// Opens a collection at its newest head and catches up with its log.
    pub async fn open(env: &Environment, record: CollectionRecord) -> Result<Arc<Self>> {
        let record = Arc::new(record);
        let io = RootIo::new(env.store.clone(), record.clone());
        let view = match newest_head(&env.store, record.uuid.0, 0).await? {
            Some(mut head) => loop {
                match open_view(env, &io, &head, None).await {
                    Err(error) => head = newer(env, &record, &head, error).await?,
                    view => break view?,
                }
            },
            None => empty_view(env, &record),
        };
        let collection = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            following: false.into(),
            env: env.clone(),
            record,
            io,
            view: ArcSwap::from_pointee(view),
            applying: Mutex::new(()),
            probe: Probe::default(),
            writer: std::sync::OnceLock::new(),
            grown: Notify::new(),
            compacting: Mutex::new(()),
            old: parking_lot::Mutex::new(Vec::new()),
            window: tokio::sync::Mutex::new(None),
            last_used: AtomicU64::new(env.clock.now().as_secs()),
        });
        collection.catch_up().await?;
        let _ = collection.writer.set(Writer::start(&collection));
        collection.warm_in_background();
        Ok(collection)
    }

    /// Elements of a vector.
    pub fn dim(&self) -> usize {
        self.record.config.dim as usize
    }

    /// Reader of its objects.
    pub fn io(&self) -> &RootIo {
        &self.io
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Writes; see [`Writer::write`].
    pub async fn write(&self, write: Write, key: Option<String>) -> Result<crate::log::CallOutcome> {
        match self.writer.get() {
            Some(writer) => writer.write(write, key).await,
            None => Err(Error::internal("a collection has no writer")),
        }
    }

    /// The error of a collection that was dropped.
    pub fn closed(&self) -> Error {
        Error::not_found("COLLECTION_NOT_FOUND", "the collection was deleted")
    }

    /// Whether its log is known to be closed: its name may have another owner by now.
    pub fn is_closed(&self) -> bool {
        self.view().tail.facts().closed
    }

    /// View and position of a read.
    pub async fn read_view(&self, consistency: Consistency, at: &At) -> Result<(Arc<View>, Token)> {
        self.last_used.store(self.env.clock.now().as_secs(), Ordering::Relaxed);
        if let At::Root(root) = at {
            let view = self.view_at(root).await?;
            let sequence = view.tail.base().sequence;
            return Ok((view, Token { uuid: self.record.uuid.0, sequence }));
        }
        match consistency {
            Consistency::Eventual => {}
            Consistency::Strong => self.probe_end().await?,
            Consistency::AtLeast(token) => {
                if token.uuid != self.record.uuid.0 {
                    return Err(Error::not_found(
                        "TOKEN_OF_ANOTHER_COLLECTION",
                        "the token is of another collection",
                    ));
                }
                if self.view().tail.facts().sequence < token.sequence {
                    self.probe_end().await?;
                }
                if self.view().tail.facts().sequence < token.sequence {
                    let message = "the token is past the end of the collection's log";
                    return Err(Error::new(ErrorKind::FailedPrecondition, "TOKEN_AHEAD", message));
                }
            }
        }
        let view = self.view();
        let facts = view.tail.facts();
        if facts.closed {
            return Err(self.closed());
        }
        Ok((view, Token { uuid: self.record.uuid.0, sequence: facts.sequence }))
    }

    /// Makes sure that everything acknowledged before this call is in the view.
    pub(crate) async fn probe_end(&self) -> Result<()> {
        if self.env.store.sole_owner() {
            // Nobody else can write to this directory, and our own writes are applied before they are acknowledged.
            return Ok(());
        }
        let ticket = self.probe.tickets.fetch_add(1, Ordering::AcqRel);
        let mut served = self.probe.served.lock().await;
        if *served > ticket {
            return Ok(());
        }
        let next = self.probe.tickets.load(Ordering::Acquire);
        self.catch_up().await?;
        *served = next;
        Ok(())
    }

    /// What the newest head says. A directory of our own has no head that this process does not know.
    pub(crate) async fn newest_facts(&self) -> Result<HeadFacts> {
        let view = self.view();
        if self.env.store.sole_owner() {
            return Ok(HeadFacts { sequence: view.tail.base().sequence, floor: view.log_floor });
        }
        let head = newest_head(&self.env.store, self.record.uuid.0, view.generation).await?;
        Ok(head.map_or_else(HeadFacts::default, |head| HeadFacts {
            sequence: head.sequence,
            floor: head.log_floor,
        }))
    }

    /// What the newest root remembers of entry `number`.
    pub(crate) async fn window_says(&self, number: u64, own: &Nonce) -> Result<Window> {
        let known = self.view().generation;
        let Some(mut head) = newest_head(&self.env.store, self.record.uuid.0, known).await? else {
            return Ok(Window::Missing);
        };
        loop {
            let Some(root) = head.root else { return Ok(Window::Missing) };
            match self.window_of(&root, number, own).await {
                Err(error) => head = newer(&self.env, &self.record, &head, error).await?,
                says => return says,
            }
        }
    }

    async fn window_of(&self, root: &HeadRoot, number: u64, own: &Nonce) -> Result<Window> {
        let (manifest, _) = self.io.manifest(root.depth, &root.root).await?;
        let holds = |entry: &&WindowEntry| (entry.first_sequence..=entry.last_sequence).contains(&number);
        let Some(entry) = manifest.window.iter().find(holds) else { return Ok(Window::Missing) };
        let block = self.io.window(entry).await?;
        Ok(Window::look(block.nonces.iter().map(|n| (n.sequence, &n.nonce)), number, own))
    }

    /// Reads and applies entries up to the log's end. What is read counts as [`believe`] says.
    pub async fn catch_up(&self) -> Result<()> {
        let mut gap = None;
        'log: loop {
            let from = self.view().tail.facts().sequence + 1;
            let reads: Vec<_> = (from..from + READ_AHEAD as u64)
                .map(|sequence| fetch_entry(&self.env, self.record.uuid, sequence))
                .collect();
            let mut entries = Vec::new();
            let (mut end, mut more) = (false, false);
            for fetched in futures::future::join_all(reads).await {
                if end {
                    more |= matches!(fetched, Ok(Fetched::Entry(_)));
                    continue;
                }
                match fetched? {
                    Fetched::Absent => end = true,
                    Fetched::Entry(entry) => entries.push(*entry),
                }
            }
            let absent = from + entries.len() as u64;
            if !self.env.store.sole_owner() {
                let head = newest_head(&self.env.store, self.record.uuid.0, self.view().generation).await?;
                let facts = head.as_ref().map_or_else(HeadFacts::default, |h| HeadFacts {
                    sequence: h.sequence,
                    floor: h.log_floor,
                });
                let base = self.view().tail.base().sequence;
                match believe(from, facts, Look::After) {
                    // The root that is read here was replaced longer ago than the log's retention: its objects, and
                    // entries past it, may go any time.
                    Belief::Believed if facts.floor > base => {
                        if let Some(head) = head {
                            self.switch_to(&head).await?;
                        }
                        continue;
                    }
                    // An entry that is absent and covered was folded after it was looked for.
                    Belief::Believed if !end || facts.sequence < absent => self.follow(head.as_ref()),
                    _ => {
                        if let Some(head) = head {
                            self.switch_to(&head).await?;
                        }
                        continue;
                    }
                }
            }
            for entry in entries {
                let loaded = load_entry(&self.env, Arc::new(entry), self.dim()).await?;
                let view = self.view();
                let prepared = self.prepare(&view, &loaded).await;
                if let Err(error) = self.apply(loaded, view.clone(), prepared).await {
                    self.renewed(&view, error).await?;
                    continue 'log;
                }
            }
            if !more && end {
                return Ok(());
            }
            if more {
                // Entries past one that is absent: they came while this read was under way, or the log has lost one.
                if gap == Some(absent) {
                    return Err(damaged(format!("log entry {absent} is missing")));
                }
                gap = Some(absent);
            }
        }
    }

    /// Switches to the newest head and catches up from there.
    pub(crate) async fn catch_up_with_heads(&self) -> Result<()> {
        if let Some(head) = newest_head(&self.env.store, self.record.uuid.0, self.view().generation).await? {
            self.switch_to(&head).await?;
        }
        self.catch_up().await
    }

    /// Works out what applying an entry to this view needs: codes on the CPU pool, lookups of its ids in the root.
    pub(crate) async fn prepare(&self, view: &View, loaded: &LoadedEntry) -> Result<Prepared> {
        let (frame, bodies) = (view.tail.frame().clone(), loaded.bodies.clone());
        let coded = on_cpu(&self.env.cpu, move || {
            bodies.iter().map(|rows| CodedRows::encode(&frame, rows.vectors())).collect::<Vec<_>>()
        });
        let lookups = root_rows(view, loaded);
        let (coded, (root_rows, live_root_rows)) = tokio::try_join!(coded, lookups)?;
        Ok(Prepared { coded, root_rows, live_root_rows })
    }

    /// Applies the next entry. What was prepared for another root is prepared again.
    pub(crate) async fn apply(
        &self,
        loaded: LoadedEntry,
        prepared_for: Arc<View>,
        prepared: Result<Prepared>,
    ) -> Result<()> {
        let _guard = self.applying.lock().await;
        let view = self.view();
        let prepared = match Arc::ptr_eq(&view, &prepared_for) {
            true => prepared?,
            false => self.prepare(&view, &loaded).await?,
        };
        view.tail.apply(&loaded, &prepared, self.env.clock.now());
        self.grown.notify_one();
        Ok(())
    }

    /// Makes `head`'s root the one that queries read, or that of a newer head, if `head`'s was collected meanwhile.
    pub async fn switch_to(&self, head: &Head) -> Result<()> {
        let Err(error) = self.switch_to_this(head).await else { return Ok(()) };
        let mut head = newer(&self.env, &self.record, head, error).await?;
        while let Err(error) = self.switch_to_this(&head).await {
            head = newer(&self.env, &self.record, &head, error).await?;
        }
        Ok(())
    }

    /// Entries past the root are applied to a new tail: most of them before the switch holds anything up.
    async fn switch_to_this(&self, head: &Head) -> Result<()> {
        let old = self.view();
        if head.generation <= old.generation {
            return Ok(());
        }
        if let Some(root) =
            old.root.as_ref().filter(|root| head.root.is_some_and(|new| new.root == root.id()))
        {
            // The same root under a new head, which raises the floor or closes the collection.
            let _guard = self.applying.lock().await;
            let now = self.view();
            let same = now.root.as_ref().is_some_and(|open| Arc::ptr_eq(open, root));
            if same && head.closed.is_none() && head.generation > now.generation {
                let tail = now.tail.clone();
                self.view.store(Arc::new(View::new(
                    Some(root.clone()),
                    head.generation,
                    head.log_floor,
                    tail,
                )));
            }
            if same && head.closed.is_none() {
                return Ok(());
            }
        }
        let new = open_view(&self.env, &self.io, head, old.root.as_deref()).await?;
        if let Some(root) = &new.root {
            let _ = tokio::time::timeout(WARM_BEFORE_SWITCH, root.warm()).await;
        }
        self.replay(&old, &new).await?;
        let guard = self.applying.lock().await;
        let now = self.view();
        if head.generation <= now.generation {
            return Ok(());
        }
        self.replay(&now, &new).await?;
        self.view.store(Arc::new(new));
        // What only the old root has gives its room to the new one's.
        drop((guard, now, old));
        self.warm_in_background();
        Ok(())
    }

    /// Applies to `new` what `from` has past it.
    async fn replay(&self, from: &View, new: &View) -> Result<()> {
        let after = new.tail.facts().sequence;
        let entries = from.tail.read().entries_after(after);
        for (entry, bodies, arrived) in entries {
            if entry.sequence != new.tail.facts().sequence + 1 {
                // The old tail begins past the new root: what lies between is read from the log later.
                break;
            }
            let loaded = match bodies.len() == entry.bodies.len() {
                false => load_entry(&self.env, entry, self.dim()).await?,
                true => {
                    let mut rows = Vec::with_capacity(bodies.len());
                    for body in bodies {
                        rows.push(match body {
                            BodyRows::Resident(rows) => rows,
                            BodyRows::Spilled { entry, index } => {
                                body_rows(&self.env, &entry, index, self.dim()).await?
                            }
                        });
                    }
                    LoadedEntry { entry, bodies: rows }
                }
            };
            let prepared = self.prepare(new, &loaded).await?;
            new.tail.apply(&loaded, &prepared, arrived);
        }
        Ok(())
    }

    /// Switches to a newer head beside the reads that go on with the older root and the tail.
    fn follow(&self, head: Option<&Head>) {
        let Some(head) = head.filter(|head| head.generation > self.view().generation) else { return };
        let Some(me) = self.me.upgrade() else { return };
        if self.following.swap(true, Ordering::AcqRel) {
            return;
        }
        let head = head.clone();
        self.env.tasks.spawn(async move {
            if let Err(error) = me.switch_to(&head).await {
                tracing::warn!(%error, "switching to a root that another node made");
            }
            me.following.store(false, Ordering::Release);
        });
    }

    /// What to say of an error of a read on `view`: when its root was collected meanwhile, that and not damage. `None`: the
    /// view was replaced, and the read begins again, if it may (`restart`).
    pub(crate) async fn explain(&self, view: &View, restart: bool, error: Error) -> Option<Error> {
        match self.is_gone(view, error).await {
            Err(error) => Some(error),
            Ok(()) if restart => self.catch_up().await.err(),
            Ok(()) => Some(expired()),
        }
    }

    /// After an error of work on `view`: `Ok` if that may be because its root was collected. Another view is the newest
    /// then, and the work may begin again on it.
    pub(crate) async fn renewed(&self, view: &View, error: Error) -> Result<()> {
        if error.kind == ErrorKind::DataLoss && self.view().generation > view.generation {
            return Ok(());
        }
        self.is_gone(view, error).await
    }

    /// Whether `error` came of the root of `view` having been collected. Switches to a newer one if so.
    async fn is_gone(&self, view: &View, error: Error) -> Result<()> {
        let Some(root) = view.root.as_ref().filter(|_| error.kind == ErrorKind::DataLoss) else {
            return Err(error);
        };
        let key = self.io.root_key(root.manifest().depth, &root.id());
        if self.env.store.try_head(&key).await.map_err(stored)?.is_some() {
            return Err(error);
        }
        let known = self.view().generation;
        if let Some(head) = newest_head(&self.env.store, self.record.uuid.0, known).await? {
            self.switch_to(&head).await?;
        }
        // The newest root is never collected: it was lost.
        if self.view().generation > view.generation { Ok(()) } else { Err(error) }
    }

    fn warm_in_background(&self) {
        if let Some(root) = self.view().root.clone() {
            self.env.tasks.spawn(async move {
                if let Err(error) = root.warm().await {
                    tracing::warn!(%error, "loading a root into memory");
                }
            });
        }
    }

    /// A read-only view of an older root.
    async fn view_at(&self, root: &RootId) -> Result<Arc<View>> {
        let newest = self.view();
        if newest.root.as_ref().is_some_and(|open| open.id() == *root)
            && newest.tail.facts().sequence == newest.tail.base().sequence
        {
            return Ok(newest);
        }
        if let Some((_, view)) = self.old.lock().iter().find(|(id, _)| id == root) {
            return Ok(view.clone());
        }
        let unknown = || Error::not_found("ROOT_NOT_FOUND", "no root of this collection has this id");
        let mut generation = newest.generation;
        if !self.env.store.sole_owner() {
            // It may be newer than what this node reads.
            let head = newest_head(&self.env.store, self.record.uuid.0, generation).await?;
            generation = head.map_or(0, |head| head.generation);
        }
        while generation > 0 {
            let head =
                read_head(&self.env.store, self.record.uuid.0, generation).await?.ok_or_else(unknown)?;
            if let Some(named) = head.root.filter(|named| named.root == *root) {
                let view = match open_view(&self.env, &self.io, &head, newest.root.as_deref()).await {
                    Ok(view) => Arc::new(view),
                    Err(error) if error.kind == ErrorKind::DataLoss => {
                        let key = self.io.root_key(named.depth, root);
                        if !matches!(self.env.store.try_head(&key).await, Ok(None)) {
                            return Err(error);
                        }
                        // The newest root is never collected: it was lost.
                        let newest = newest_head(&self.env.store, self.record.uuid.0, generation).await?;
                        let lost = newest.and_then(|head| head.root).is_some_and(|of| of.root == *root);
                        return Err(if lost { error } else { expired() });
                    }
                    Err(error) => return Err(error),
                };
                let mut old = self.old.lock();
                if old.len() == OLD_VIEWS {
                    old.remove(0);
                }
                old.push((*root, view.clone()));
                return Ok(view);
            }
            generation -= 1;
        }
        // Perhaps the collection was deleted, and the root is of the one that has its name now.
        self.probe_end().await?;
        Err(unknown())
    }

    /// The record of an idempotency key that the view's root remembers.
    pub(crate) async fn key_in_root(&self, view: &View, key: &str) -> Result<Option<(u64, KeyRecord)>> {
        let Some(root) = &view.root else { return Ok(None) };
        let mut cached = self.window.lock().await;
        let window = match &*cached {
            Some((id, window)) if *id == root.id() => window.clone(),
            _ => {
                let mut window = Keys::new();
                for entry in &root.manifest().window {
                    for found in self.io.window(entry).await?.keys {
                        window.entry(found.record.key.clone()).or_insert((found.sequence, found.record));
                    }
                }
                let window = Arc::new(window);
                *cached = Some((root.id(), window.clone()));
                window
            }
        };
        Ok(window.get(key).cloned())
    }

    /// Refuses a write while the tail is too long.
    pub(crate) fn check_backlog(&self, write: &Write) -> Result<()> {
        let view = self.view();
        let (facts, base) = (view.tail.facts(), view.tail.base().clone());
        let rows = facts.cumulative_rows.saturating_sub(base.cumulative_rows);
        let bytes = facts.cumulative_bytes.saturating_sub(base.cumulative_bytes);
        let slack = if matches!(write, Write::Upsert(_)) { 1 } else { DELETE_SLACK };
        let settings = &self.env.settings;
        if rows < settings.backpressure_rows * slack && bytes < settings.backpressure_bytes * slack {
            return Ok(());
        }
        let message = format!(
            "{rows} rows wait for compaction, which is the most this collection may have; try again later"
        );
        Err(Error::new(ErrorKind::ResourceExhausted, "BACKLOG_FULL", message)
            .with_retry_after(Duration::from_secs(1)))
    }
}

/// Root rows of the ids that an entry writes or deletes, and which of the rows that it kills by number live in the root.
async fn root_rows(
    view: &View,
    loaded: &LoadedEntry,
) -> Result<(std::collections::HashMap<RecordId, u64>, Vec<u64>)> {
    let mut found = std::collections::HashMap::new();
    let mut live = Vec::new();
    let Some(root) = &view.root else { return Ok((found, live)) };
    let mut ids: Vec<&RecordId> = Vec::new();
    for operation in &loaded.entry.operations {
        match operation {
            Operation::Upsert { body, from, to } => {
                ids.extend(&loaded.bodies[*body as usize].ids()[*from as usize..*to as usize]);
            }
            Operation::DeleteIds(deleted) => ids.extend(deleted),
            Operation::DeleteRows(rows) => {
                live.extend(
                    rows.iter().filter(|row| root.locate(*row).is_some() && !root.deaths().contains(*row)),
                );
            }
            Operation::Closed(_) | Operation::Purge(_) => {}
        }
    }
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        if let Some(row) = root.live_row(id).await? {
            found.insert(id.clone(), row);
        }
    }
    live.sort_unstable();
    Ok((found, live))
}

/// After an error of work on the root of `head`: the newest head, if there is a newer one, since that root may have been
/// collected then. The newest root never is.
async fn newer(env: &Environment, record: &CollectionRecord, head: &Head, error: Error) -> Result<Head> {
    if error.kind != ErrorKind::DataLoss {
        return Err(error);
    }
    match newest_head(&env.store, record.uuid.0, head.generation).await? {
        Some(newest) if newest.generation > head.generation => Ok(newest),
        _ => Err(error),
    }
}

fn empty_view(env: &Environment, record: &CollectionRecord) -> View {
    let config = &record.config;
    let frame = Arc::new(Frame::new(env.kernels, config.metric, config.seed, vec![0.0; config.dim as usize]));
    let tail = Tail::new(frame, LogFacts::default(), Default::default(), env.tails.clone());
    View::new(None, 0, 0, Arc::new(tail))
}

async fn open_view(env: &Environment, io: &RootIo, head: &Head, previous: Option<&OpenRoot>) -> Result<View> {
    let facts = LogFacts {
        sequence: head.sequence,
        next_row: head.next_row,
        cumulative_rows: head.cumulative_rows,
        cumulative_bytes: head.cumulative_bytes,
        closed: head.closed.is_some(),
    };
    let Some(head_root) = head.root else {
        let empty = empty_view(env, io.record());
        let tail = Tail::new(empty.tail.frame().clone(), facts, Default::default(), env.tails.clone());
        return Ok(View::new(None, head.generation, head.log_floor, Arc::new(tail)));
    };
    let (manifest, _) = io.manifest(head_root.depth, &head_root.root).await?;
    if (manifest.sequence, manifest.next_row) != (head.sequence, head.next_row)
        || manifest.config != io.record().config
    {
        return Err(damaged("root: head and manifest disagree"));
    }
    let manifest: Arc<Manifest> = Arc::new(manifest);
    let root = OpenRoot::open(env, io, head_root.root, manifest.clone(), previous).await?;
    let tail = Tail::new(root.frame().clone(), facts, manifest.attributes.clone(), env.tails.clone());
    Ok(View::new(Some(Arc::new(root)), head.generation, head.log_floor, Arc::new(tail)))
}
