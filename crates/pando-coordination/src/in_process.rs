//! Coordination within one process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream;
use pando_store::Clock;
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch as signal;
use uuid::Uuid;

use crate::{
    Coordinator, DirtyHint, HeadHint, Lease, LeaseHandle, LeaseKey, Member, Result, Watch, WatchEvent,
    Watched,
};

/// Events that a slow watcher may lag behind before it is told everything anew.
const BACKLOG: usize = 1024;

/// Coordination for one process: leases end by the given clock, nothing outlives the process. Cheap to clone;
/// clones are the same coordinator, so a test can run a cluster on one.
#[derive(Clone, Debug)]
pub struct InProcess {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    owners: Mutex<BTreeMap<LeaseKey, Holding>>,
    members: Mutex<Table<Member>>,
    heads: Mutex<Table<HeadHint>>,
    dirty: Mutex<Table<DirtyHint>>,
    next: Mutex<u64>,
}

#[derive(Debug)]
struct Holding {
    id: u64,
    expires: Duration,
}

/// Things by key, each perhaps with an end, and those who watch them.
#[derive(Debug)]
struct Table<T: Watched> {
    rows: BTreeMap<T::Key, Row<T>>,
    events: broadcast::Sender<WatchEvent<T>>,
    /// Bumped when an end may have moved forward, so that watchers look again when to wake.
    ends: signal::Sender<u64>,
}

#[derive(Debug)]
struct Row<T> {
    id: u64,
    value: T,
    expires: Option<Duration>,
}

impl<T: Watched> Table<T> {
    fn new() -> Self {
        Self { rows: BTreeMap::new(), events: broadcast::Sender::new(BACKLOG), ends: signal::Sender::new(0) }
    }

    fn put(&mut self, id: u64, value: T, expires: Option<Duration>) {
        self.rows.insert(value.key(), Row { id, value: value.clone(), expires });
        self.tell(WatchEvent::Put(value));
        self.ends.send_modify(|n| *n += 1);
    }

    fn remove(&mut self, key: &T::Key) {
        if self.rows.remove(key).is_some() {
            self.tell(WatchEvent::Gone(key.clone()));
        }
    }

    /// Drops what has ended.
    fn sweep(&mut self, now: Duration) {
        let ended = |row: &Row<T>| row.expires.is_some_and(|e| e <= now);
        let gone: Vec<_> = self.rows.iter().filter(|(_, r)| ended(r)).map(|(k, _)| k.clone()).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    fn values(&self) -> Vec<T> {
        self.rows.values().map(|row| row.value.clone()).collect()
    }

    fn next_end(&self) -> Option<Duration> {
        self.rows.values().filter_map(|row| row.expires).min()
    }

    fn tell(&self, event: WatchEvent<T>) {
        // No receiver is no error.
        let _ = self.events.send(event);
    }
}

impl InProcess {
    /// An empty coordinator.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            clock,
            owners: Mutex::default(),
            members: Mutex::new(Table::new()),
            heads: Mutex::new(Table::new()),
            dirty: Mutex::new(Table::new()),
            next: Mutex::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Loses everything, as a wiped etcd would: leases, members and hints.
    pub fn wipe(&self) {
        self.shared.owners.lock().clear();
        wipe(&self.shared.members);
        wipe(&self.shared.heads);
        wipe(&self.shared.dirty);
    }
}

fn wipe<T: Watched>(table: &Mutex<Table<T>>) {
    let mut table = table.lock();
    let keys: Vec<_> = table.rows.keys().cloned().collect();
    keys.iter().for_each(|key| table.remove(key));
}

impl Shared {
    fn fresh_id(&self) -> u64 {
        let mut next = self.next.lock();
        *next += 1;
        *next
    }
}

/// Which of the shared tables a watch is on.
type Pick<T> = fn(&Shared) -> &Mutex<Table<T>>;

fn watch<T: Watched>(shared: &Arc<Shared>, pick: Pick<T>) -> Watch<T> {
    let (events, ends, all) = subscribe(shared, pick);
    let first = stream::once(async { WatchEvent::Reset(all) });
    let state = (Arc::clone(shared), events, ends);
    let rest = stream::unfold(state, move |(shared, mut events, mut ends)| async move {
        loop {
            let now = shared.clock.now();
            let end = {
                let mut table = pick(&shared).lock();
                table.sweep(now);
                table.next_end()
            };
            // Ends are noticed by whoever watches; without watchers, by the next one who asks.
            let ended = async {
                match end {
                    Some(end) => shared.clock.sleep(end.saturating_sub(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Ok(event) => return Some((event, (shared, events, ends))),
                    Err(RecvError::Lagged(_)) => {
                        let (fresh, ends, all) = subscribe(&shared, pick);
                        return Some((WatchEvent::Reset(all), (shared, fresh, ends)));
                    }
                    Err(RecvError::Closed) => return None,
                },
                _ = ends.changed() => {}
                () = ended => {}
            }
        }
    });
    first.chain(rest).boxed()
}

fn subscribe<T: Watched>(
    shared: &Shared,
    pick: Pick<T>,
) -> (broadcast::Receiver<WatchEvent<T>>, signal::Receiver<u64>, Vec<T>) {
    let mut table = pick(shared).lock();
    table.sweep(shared.clock.now());
    // All under one lock: nothing falls between the list and the first event.
    (table.events.subscribe(), table.ends.subscribe(), table.values())
}

#[async_trait]
impl Coordinator for InProcess {
    async fn acquire_lease(&self, key: &LeaseKey, ttl: Duration) -> Result<Option<Lease>> {
        let shared = &self.shared;
        let (now, id) = (shared.clock.now(), shared.fresh_id());
        let mut owners = shared.owners.lock();
        if owners.get(key).is_some_and(|held| held.expires > now) {
            return Ok(None);
        }
        owners.insert(key.clone(), Holding { id, expires: now + ttl });
        let held = Held { shared: Arc::clone(shared), what: What::Owner(key.clone()), id, ttl };
        Ok(Some(Lease::new(held)))
    }

    async fn register_member(&self, member: Member, ttl: Duration) -> Result<Lease> {
        let shared = &self.shared;
        let (now, id) = (shared.clock.now(), shared.fresh_id());
        let what = What::Member(member.node.clone());
        shared.members.lock().put(id, member, Some(now + ttl));
        Ok(Lease::new(Held { shared: Arc::clone(shared), what, id, ttl }))
    }

    async fn members(&self) -> Result<Vec<Member>> {
        let mut members = self.shared.members.lock();
        members.sweep(self.shared.clock.now());
        Ok(members.values())
    }

    async fn watch_members(&self) -> Result<Watch<Member>> {
        Ok(watch(&self.shared, |s| &s.members))
    }

    async fn hint_head(&self, hint: HeadHint) -> Result<()> {
        let mut heads = self.shared.heads.lock();
        if heads.rows.get(&hint.collection).is_none_or(|row| row.value.generation < hint.generation) {
            heads.put(0, hint, None);
        }
        Ok(())
    }

    async fn head_hint(&self, collection: Uuid) -> Result<Option<HeadHint>> {
        Ok(self.shared.heads.lock().rows.get(&collection).map(|row| row.value))
    }

    async fn watch_heads(&self) -> Result<Watch<HeadHint>> {
        Ok(watch(&self.shared, |s| &s.heads))
    }

    async fn hint_dirty(&self, hint: DirtyHint, ttl: Duration) -> Result<()> {
        let now = self.shared.clock.now();
        let mut dirty = self.shared.dirty.lock();
        dirty.sweep(now);
        let known = dirty.rows.get(&hint.collection).map(|row| row.value);
        let newest = known.filter(|known| known.sequence > hint.sequence).unwrap_or(hint);
        if known == Some(newest) {
            // Nothing new to tell; only the end moves.
            if let Some(row) = dirty.rows.get_mut(&hint.collection) {
                row.expires = Some(now + ttl);
            }
        } else {
            dirty.put(0, newest, Some(now + ttl));
        }
        Ok(())
    }

    async fn dirty(&self) -> Result<Vec<DirtyHint>> {
        let mut dirty = self.shared.dirty.lock();
        dirty.sweep(self.shared.clock.now());
        Ok(dirty.values())
    }

    async fn watch_dirty(&self) -> Result<Watch<DirtyHint>> {
        Ok(watch(&self.shared, |s| &s.dirty))
    }

    async fn clear_dirty(&self, collection: Uuid, sequence: u64) -> Result<()> {
        let mut dirty = self.shared.dirty.lock();
        if dirty.rows.get(&collection).is_some_and(|row| row.value.sequence <= sequence) {
            dirty.remove(&collection);
        }
        Ok(())
    }

    async fn forget(&self, collection: Uuid) -> Result<()> {
        self.shared.heads.lock().remove(&collection);
        self.shared.dirty.lock().remove(&collection);
        Ok(())
    }
}

#[derive(Debug)]
enum What {
    Owner(LeaseKey),
    Member(String),
}

/// A lease in this process: the holding of a key under an id, until a time.
#[derive(Debug)]
struct Held {
    shared: Arc<Shared>,
    what: What,
    id: u64,
    ttl: Duration,
}

impl Held {
    fn expires(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        let end = match &self.what {
            What::Owner(key) => {
                self.shared.owners.lock().get(key).filter(|h| h.id == self.id).map(|h| h.expires)
            }
            What::Member(node) => {
                let members = self.shared.members.lock();
                members.rows.get(node).filter(|row| row.id == self.id).and_then(|row| row.expires)
            }
        };
        end.filter(|end| *end > now)
    }
}

#[async_trait]
impl LeaseHandle for Held {
    fn is_held(&self) -> bool {
        self.expires().is_some()
    }

    async fn renew(&self) -> Result<bool> {
        if self.expires().is_none() {
            return Ok(false);
        }
        let end = self.shared.clock.now() + self.ttl;
        match &self.what {
            What::Owner(key) => {
                if let Some(holding) = self.shared.owners.lock().get_mut(key).filter(|h| h.id == self.id) {
                    holding.expires = end;
                }
            }
            What::Member(node) => {
                let mut members = self.shared.members.lock();
                if let Some(row) = members.rows.get_mut(node).filter(|row| row.id == self.id) {
                    row.expires = Some(end);
                }
            }
        }
        Ok(self.is_held())
    }

    async fn lost(&self) {
        // A lease that is taken away before its end (a wipe, a successor of the same name) is noticed at the end
        // that it had: late, as all news here may be.
        while let Some(end) = self.expires() {
            let now = self.shared.clock.now();
            self.shared.clock.sleep(end.saturating_sub(now)).await;
        }
    }

    fn release(&self) {
        match &self.what {
            What::Owner(key) => {
                let mut owners = self.shared.owners.lock();
                if owners.get(key).is_some_and(|held| held.id == self.id) {
                    owners.remove(key);
                }
            }
            What::Member(node) => {
                let mut members = self.shared.members.lock();
                if members.rows.get(node).is_some_and(|row| row.id == self.id) {
                    members.remove(node);
                }
            }
        }
    }
}
