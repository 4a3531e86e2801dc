//! One shard: S3-FIFO over a slab, by bytes.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use hashbrown::{HashMap, HashSet};

use super::{BlockKey, Entry};

/// Keys spread themselves; this hasher passes their word through.
#[derive(Clone, Copy, Default)]
pub(crate) struct BuildKeyHasher;

#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl BuildHasher for BuildKeyHasher {
    type Hasher = KeyHasher;
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(0)
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        // Not used by `BlockKey`; right all the same.
        for b in bytes {
            self.0 = crate::retry::mix(self.0 ^ u64::from(*b));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// A use counts up to this; each pass of the hand takes one away.
const MAX_USES: u8 = 3;
/// How many blocks in use the hand passes over before it takes one all the same: they free nothing now.
const MAX_SPARED: usize = 8;

struct Held<T> {
    entry: Arc<Entry<T>>,
    uses: AtomicU8,
    main: bool,
    /// Tells this holding of the key from an earlier one that a queue still lists.
    stamp: u64,
}

pub(crate) struct Shard<T> {
    budget: u64,
    live: Arc<AtomicU64>,
    map: HashMap<BlockKey, Held<T>, BuildKeyHasher>,
    small: VecDeque<(BlockKey, u64)>,
    main: VecDeque<(BlockKey, u64)>,
    small_bytes: u64,
    main_bytes: u64,
    ghosts: VecDeque<BlockKey>,
    ghost_set: HashSet<BlockKey, BuildKeyHasher>,
    next_stamp: u64,
    hits: AtomicU64,
    evictions: u64,
}

impl<T> Shard<T> {
    pub(crate) fn new(budget: u64, live: Arc<AtomicU64>) -> Self {
        Self {
            budget,
            live,
            map: HashMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: VecDeque::new(),
            ghost_set: HashSet::default(),
            next_stamp: 0,
            hits: AtomicU64::new(0),
            evictions: 0,
        }
    }

    pub(crate) fn get(&self, key: &BlockKey) -> Option<Arc<Entry<T>>> {
        let held = self.map.get(key)?;
        // A lost update between two readers costs one use of three; not worth a compare-and-swap.
        let uses = held.uses.load(Relaxed);
        if uses < MAX_USES {
            held.uses.store(uses + 1, Relaxed);
        }
        self.hits.fetch_add(1, Relaxed);
        Some(Arc::clone(&held.entry))
    }

    pub(crate) fn contains(&self, key: &BlockKey) -> bool {
        self.map.contains_key(key)
    }

    /// Keeps `entry` unless the key is held already or the entry is larger than the budget. Returns what is to be
    /// used; what has to go is pushed to `evicted`.
    pub(crate) fn insert(
        &mut self,
        key: BlockKey,
        entry: Arc<Entry<T>>,
        evicted: &mut Vec<Arc<Entry<T>>>,
    ) -> Arc<Entry<T>> {
        if let Some(held) = self.map.get(&key) {
            evicted.reserve(1);
            return Arc::clone(&held.entry);
        }
        let weight = entry.weight;
        if weight > self.budget {
            return entry;
        }
        self.make_room(weight, evicted);
        let main = self.ghost_set.remove(&key);
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.push(key, stamp, weight, main);
        let held = Held { entry: Arc::clone(&entry), uses: AtomicU8::new(0), main, stamp };
        self.map.insert(key, held);
        entry
    }

    pub(crate) fn remove(&mut self, key: &BlockKey) -> Option<Arc<Entry<T>>> {
        let held = self.map.remove(key)?;
        *self.bytes_of(held.main) -= held.entry.weight;
        // Its place in the queue is skipped when the hand comes by.
        Some(held.entry)
    }

    pub(crate) fn clear(&mut self, evicted: &mut Vec<Arc<Entry<T>>>) {
        evicted.extend(self.map.drain().map(|(_, held)| held.entry));
        self.small.clear();
        self.main.clear();
        self.ghosts.clear();
        self.ghost_set.clear();
        self.small_bytes = 0;
        self.main_bytes = 0;
    }

    pub(crate) fn set_budget(&mut self, budget: u64, evicted: &mut Vec<Arc<Entry<T>>>) {
        self.budget = budget;
        self.make_room(0, evicted);
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Evicts until `weight` more bytes fit.
    fn make_room(&mut self, weight: u64, evicted: &mut Vec<Arc<Entry<T>>>) {
        let mut spared = 0;
        // Blocks that live outside (evicted or too large, but in use) narrow what may be kept, down to a half of
        // the budget: below that, evicting more would only cause more loads. The entry to come is alive already.
        let outside = self.live.load(Relaxed).saturating_sub(self.kept_bytes() + weight);
        let target = self.budget.saturating_sub(outside).max(self.budget / 2).max(weight);
        while self.kept_bytes() + weight > target {
            // A tenth of the budget is for newcomers; beyond it they are the first to go.
            let from_small = self.small_bytes > 0 && (self.small_bytes > target / 10 || self.main_bytes == 0);
            let done = if from_small { self.step_small(&mut spared) } else { self.step_main(&mut spared) };
            evicted.extend(done);
        }
    }

    /// One step of the hand over the small queue: promotes or evicts its oldest block.
    fn step_small(&mut self, spared: &mut usize) -> Option<Arc<Entry<T>>> {
        let (key, stamp) = self.small.pop_front()?;
        let held = self.map.get_mut(&key).filter(|h| h.stamp == stamp)?;
        let weight = held.entry.weight;
        let used = held.uses.load(Relaxed) > 0;
        if used || spare(&held.entry, spared) {
            held.uses.store(0, Relaxed);
            held.main = true;
            self.small_bytes -= weight;
            self.push(key, stamp, weight, true);
            return None;
        }
        self.remember(key);
        self.evict(&key)
    }

    /// One step of the hand over the main queue: gives a second chance or evicts.
    fn step_main(&mut self, spared: &mut usize) -> Option<Arc<Entry<T>>> {
        let (key, stamp) = self.main.pop_front()?;
        let held = self.map.get_mut(&key).filter(|h| h.stamp == stamp)?;
        let uses = held.uses.load(Relaxed);
        if uses > 0 || spare(&held.entry, spared) {
            held.uses.store(uses.saturating_sub(1), Relaxed);
            self.main.push_back((key, stamp));
            return None;
        }
        self.evict(&key)
    }

    fn evict(&mut self, key: &BlockKey) -> Option<Arc<Entry<T>>> {
        self.evictions += 1;
        self.remove(key)
    }

    /// Notes a key that left the small queue unused: if it comes back soon it goes to the main queue.
    fn remember(&mut self, key: BlockKey) {
        if self.ghost_set.insert(key) {
            self.ghosts.push_back(key);
        }
        // As many as there are blocks, as in the paper; keys that came back leave their place to be skipped.
        let limit = self.map.len().max(16);
        while self.ghosts.len() > limit {
            if let Some(old) = self.ghosts.pop_front() {
                self.ghost_set.remove(&old);
            }
        }
    }

    fn push(&mut self, key: BlockKey, stamp: u64, weight: u64, main: bool) {
        if main {
            self.main.push_back((key, stamp));
        } else {
            self.small.push_back((key, stamp));
        }
        *self.bytes_of(main) += weight;
    }

    fn bytes_of(&mut self, main: bool) -> &mut u64 {
        if main { &mut self.main_bytes } else { &mut self.small_bytes }
    }
}

/// True if the block is in use, a few times per eviction.
fn spare<T>(entry: &Arc<Entry<T>>, spared: &mut usize) -> bool {
    let in_use = Arc::strong_count(entry) > 1 && *spared < MAX_SPARED;
    *spared += usize::from(in_use);
    in_use
}
