//! Verified, decoded blocks within a budget of bytes.
//!
//! Keys name content (hash of the object, offset in it), so an entry is never stale and never needs to be
//! invalidated. Lookups on the warm path are synchronous and take one shared lock of one shard; a miss is loaded
//! once however many ask for it. Replacement is S3-FIFO (Yang et al., SOSP 2023): a small queue for what was seen
//! once, a main queue for what was asked for again, and a memory of keys that recently left the small queue; every
//! step costs O(1) amortised.
//!
//! A block that a query still reads is kept alive by its [`Cached`] handle even after it was evicted. Such blocks
//! are counted ([`CacheStats::live_bytes`]) and, up to a half of the budget, make room for themselves: what is kept
//! shrinks by as much.

mod shard;

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use hashbrown::HashMap;
use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::{Mutex, RwLock};

use crate::error::StoreError;
use crate::retry::mix;
use shard::{BuildKeyHasher, Shard};

/// Names a block by content: the hash that names its object, and its place in the object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BlockKey {
    /// Hash of the object (or, where blocks have references with hashes of their own, of the block).
    pub hash: [u8; 32],
    /// Where the block begins.
    pub offset: u64,
}

impl BlockKey {
    fn spread(&self) -> u64 {
        let mut word = [0u8; 8];
        word.copy_from_slice(&self.hash[..8]);
        mix(u64::from_le_bytes(word) ^ self.offset.rotate_left(32))
    }
}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.spread());
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", crate::keys::Hex(&self.hash[..8]), self.offset)
    }
}

/// A block in use. Keeps the block alive; clone it freely.
pub struct Cached<T> {
    entry: Arc<Entry<T>>,
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { entry: Arc::clone(&self.entry) }
    }
}

impl<T> Deref for Cached<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.entry.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.value.fmt(f)
    }
}

impl<T> Cached<T> {
    /// Bytes that the block counts for.
    pub fn weight(&self) -> u64 {
        self.entry.weight
    }
}

/// A block with its weight; tells the shard's account when the last handle goes.
pub(crate) struct Entry<T> {
    value: T,
    weight: u64,
    live: Arc<AtomicU64>,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        self.live.fetch_sub(self.weight, Relaxed);
    }
}

/// What a cache did and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found their block.
    pub hits: u64,
    /// Lookups that did not. Those that then waited for another's load are counted, too.
    pub misses: u64,
    /// Loads that were begun.
    pub loads: u64,
    /// Blocks that were dropped to make room.
    pub evictions: u64,
    /// Blocks kept.
    pub entries: u64,
    /// Bytes of the blocks kept. Never more than the budget.
    pub kept_bytes: u64,
    /// Bytes of all blocks alive: kept, or evicted but still in use, or too large to be kept and in use.
    pub live_bytes: u64,
}

type Flight<T, E> = Shared<BoxFuture<'static, Result<Cached<T>, E>>>;
type WeakFlight<T, E> = WeakShared<BoxFuture<'static, Result<Cached<T>, E>>>;

struct Slot<T, E> {
    blocks: RwLock<Shard<T>>,
    flights: Mutex<Flights<T, E>>,
    live: Arc<AtomicU64>,
}

struct Flights<T, E> {
    next: u64,
    by_key: HashMap<BlockKey, (u64, WeakFlight<T, E>), BuildKeyHasher>,
}

struct Inner<T, E> {
    slots: Box<[Slot<T, E>]>,
    hits: Counter,
    misses: Counter,
    evictions: Counter,
    kept_gauge: Gauge,
    live_gauge: Gauge,
    misses_count: AtomicU64,
    loads_count: AtomicU64,
    kept: AtomicU64,
}

/// A cache of blocks of type `T`; loads fail with `E`. Cheap to clone; clones are the same cache.
pub struct BlockCache<T, E = StoreError> {
    inner: Arc<Inner<T, E>>,
}

impl<T, E> Clone for BlockCache<T, E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T, E> fmt::Debug for BlockCache<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("shards", &self.inner.slots.len()).finish_non_exhaustive()
    }
}

/// A shard gets at least this much of the budget, so that a block of some hundred KiB is a small part of it.
const SHARD_BYTES: u64 = 16 << 20;
const MAX_SHARDS: u64 = 64;
/// An entry counts for at least its places in the map and the queues, so that empty blocks are bounded, too.
const MIN_WEIGHT: u64 = 128;

impl<T, E> BlockCache<T, E>
where
    T: Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// A cache that keeps at most `budget` bytes, as weighed by its callers. `name` labels its metrics.
    pub fn new(name: &'static str, budget: u64) -> Self {
        let shards = (budget / SHARD_BYTES).clamp(1, MAX_SHARDS);
        // A power of two, so that a shard is picked by a mask.
        let shards = 1u64 << shards.ilog2();
        let slots = (0..shards)
            .map(|i| {
                let live = Arc::new(AtomicU64::new(0));
                Slot {
                    blocks: RwLock::new(Shard::new(share(budget, shards, i), Arc::clone(&live))),
                    flights: Mutex::new(Flights { next: 0, by_key: HashMap::default() }),
                    live,
                }
            })
            .collect();
        let inner = Inner {
            slots,
            hits: counter!("pando_cache_hits_total", "cache" => name),
            misses: counter!("pando_cache_misses_total", "cache" => name),
            evictions: counter!("pando_cache_evictions_total", "cache" => name),
            kept_gauge: gauge!("pando_cache_kept_bytes", "cache" => name),
            live_gauge: gauge!("pando_cache_live_bytes", "cache" => name),
            misses_count: AtomicU64::new(0),
            loads_count: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The block, if it is here. Synchronous and without an exclusive lock: the warm path.
    pub fn get(&self, key: &BlockKey) -> Option<Cached<T>> {
        let slot = self.slot(key);
        match slot.blocks.read().get(key) {
            Some(entry) => {
                self.inner.hits.increment(1);
                Some(Cached { entry })
            }
            None => {
                self.inner.misses_count.fetch_add(1, Relaxed);
                self.inner.misses.increment(1);
                None
            }
        }
    }

    /// True if the block is here. Does not count as a use.
    pub fn contains(&self, key: &BlockKey) -> bool {
        self.slot(key).blocks.read().contains(key)
    }

    /// Keeps a block that was verified by the caller, `weight` bytes in memory. If it is here already, that one
    /// stays and is returned. A block larger than its shard's budget is returned but not kept.
    pub fn insert(&self, key: BlockKey, value: T, weight: usize) -> Cached<T> {
        let slot = self.slot(&key);
        let weight = (weight as u64).max(MIN_WEIGHT);
        slot.live.fetch_add(weight, Relaxed);
        let entry = Arc::new(Entry { value, weight, live: Arc::clone(&slot.live) });
        // Blocks are dropped after the lock is released: freeing half a megabyte takes its time.
        let mut evicted = Vec::new();
        let (kept, delta) = {
            let mut blocks = slot.blocks.write();
            let before = blocks.kept_bytes();
            let kept = blocks.insert(key, entry, &mut evicted);
            (kept, blocks.kept_bytes().wrapping_sub(before))
        };
        self.account(delta, evicted.len());
        drop(evicted);
        self.publish_gauges();
        Cached { entry: kept }
    }

    /// The block, loaded if it is not here. However many ask at a time, one `load` runs per key; if its asker goes
    /// away the others carry it on, and if all go away it stops. An error is told to all who wait and not kept.
    ///
    /// `load` gives the decoded block and its weight in bytes, and must have *verified* the bytes before it
    /// decodes them ([`crate::Store::get_block`] does): what is cached is trusted from then on.
    pub async fn get_or_load<F>(&self, key: BlockKey, load: impl FnOnce() -> F + Send) -> Result<Cached<T>, E>
    where
        F: Future<Output = Result<(T, usize), E>> + Send + 'static,
    {
        if let Some(found) = self.get(&key) {
            return Ok(found);
        }
        self.flight(key, load).await
    }

    fn flight<F>(&self, key: BlockKey, load: impl FnOnce() -> F) -> Flight<T, E>
    where
        F: Future<Output = Result<(T, usize), E>> + Send + 'static,
    {
        let slot = self.slot(&key);
        let mut flights = slot.flights.lock();
        if let Some(flight) = flights.by_key.get(&key).and_then(|(_, weak)| weak.upgrade()) {
            return flight;
        }
        // It may have landed between the lookup and this lock.
        if let Some(entry) = slot.blocks.read().get(&key) {
            return futures::future::ready(Ok(Cached { entry })).boxed().shared();
        }
        self.inner.loads_count.fetch_add(1, Relaxed);
        let id = flights.next;
        flights.next += 1;
        let landing = Landing { cache: Arc::downgrade(&self.inner), key, id };
        let loading = load();
        let flight: BoxFuture<'static, Result<Cached<T>, E>> = Box::pin(async move {
            let landing = landing;
            let (value, weight) = loading.await?;
            match landing.cache.upgrade() {
                Some(inner) => Ok(Self { inner }.insert(key, value, weight)),
                // The cache is gone; the block is still good for whoever waits.
                None => {
                    let live = Arc::new(AtomicU64::new(weight as u64));
                    Ok(Cached { entry: Arc::new(Entry { value, weight: weight as u64, live }) })
                }
            }
        });
        let flight = flight.shared();
        if let Some(weak) = flight.downgrade() {
            flights.by_key.insert(key, (id, weak));
        }
        flight
    }

    /// Forgets a block, for callers that found out it is no longer needed.
    pub fn remove(&self, key: &BlockKey) {
        let slot = self.slot(key);
        let (removed, delta) = {
            let mut blocks = slot.blocks.write();
            let before = blocks.kept_bytes();
            let removed = blocks.remove(key);
            (removed, blocks.kept_bytes().wrapping_sub(before))
        };
        self.account(delta, 0);
        drop(removed);
        self.publish_gauges();
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for slot in &self.inner.slots {
            let mut evicted = Vec::new();
            let delta = {
                let mut blocks = slot.blocks.write();
                let before = blocks.kept_bytes();
                blocks.clear(&mut evicted);
                blocks.kept_bytes().wrapping_sub(before)
            };
            self.account(delta, 0);
        }
        self.publish_gauges();
    }

    /// Changes the budget; what is over it goes at once. The number of shards stays, so a cache that was made small
    /// keeps to few locks.
    pub fn set_budget(&self, budget: u64) {
        let shards = self.inner.slots.len() as u64;
        for (i, slot) in self.inner.slots.iter().enumerate() {
            let mut evicted = Vec::new();
            let delta = {
                let mut blocks = slot.blocks.write();
                let before = blocks.kept_bytes();
                blocks.set_budget(share(budget, shards, i as u64), &mut evicted);
                blocks.kept_bytes().wrapping_sub(before)
            };
            self.account(delta, evicted.len());
        }
        self.publish_gauges();
    }

    /// What the cache did and holds.
    pub fn stats(&self) -> CacheStats {
        let mut out = CacheStats {
            misses: self.inner.misses_count.load(Relaxed),
            loads: self.inner.loads_count.load(Relaxed),
            ..CacheStats::default()
        };
        for slot in &self.inner.slots {
            let blocks = slot.blocks.read();
            out.hits += blocks.hits();
            out.evictions += blocks.evictions();
            out.entries += blocks.len() as u64;
            out.kept_bytes += blocks.kept_bytes();
            out.live_bytes += slot.live.load(Relaxed);
        }
        out
    }

    fn slot(&self, key: &BlockKey) -> &Slot<T, E> {
        // The map inside the shard uses the same hash from its other end.
        let mask = self.inner.slots.len() as u64 - 1;
        &self.inner.slots[((key.spread() >> 48) & mask) as usize]
    }

    fn account(&self, kept_delta: u64, evicted: usize) {
        self.inner.kept.fetch_add(kept_delta, Relaxed);
        if evicted > 0 {
            self.inner.evictions.increment(evicted as u64);
        }
    }

    fn publish_gauges(&self) {
        self.inner.kept_gauge.set(self.inner.kept.load(Relaxed) as f64);
        let live: u64 = self.inner.slots.iter().map(|s| s.live.load(Relaxed)).sum();
        self.inner.live_gauge.set(live as f64);
    }
}

/// Shard `i`'s part of a budget; the parts sum to the whole.
fn share(budget: u64, shards: u64, i: u64) -> u64 {
    budget / shards + u64::from(i < budget % shards)
}

/// Takes the flight off the board when it has landed, failed or been abandoned.
struct Landing<T, E> {
    cache: Weak<Inner<T, E>>,
    key: BlockKey,
    id: u64,
}

impl<T, E> Drop for Landing<T, E> {
    fn drop(&mut self) {
        let Some(inner) = self.cache.upgrade() else { return };
        let mask = inner.slots.len() as u64 - 1;
        let slot = &inner.slots[((self.key.spread() >> 48) & mask) as usize];
        let mut flights = slot.flights.lock();
        if flights.by_key.get(&self.key).is_some_and(|(id, _)| *id == self.id) {
            flights.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
