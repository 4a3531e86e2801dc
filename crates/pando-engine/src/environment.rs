//! Everything the engine is given from outside: store, coordination, kernels, clock, randomness, pools and budgets. A test swaps any of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_coordination::Coordinator;
use pando_kernels::Kernels;
use pando_store::Store;
pub use pando_store::{Clock, SystemClock};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arena::Arena;
use crate::block::Cache;
use crate::gc::schedule::Schedule;
use crate::query::SearcherPool;
use crate::settings::Settings;
use crate::workers::CpuPool;

/// Where nonces and uuids come from: the only randomness of the engine, and none of it reaches a root's index.
pub trait Random: Send + Sync + std::fmt::Debug {
    /// Sixteen fresh bytes.
    fn bytes16(&self) -> [u8; 16];
}

/// The system's random numbers.
#[derive(Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn bytes16(&self) -> [u8; 16] {
        rand::random()
    }
}

/// One budget of bytes with reservations: who cannot reserve works without (paged vectors, spilled tails) instead of growing.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }
    /// Reserves `bytes`, or nothing.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|total| *total <= self.limit)
        });
        taken.ok().map(|_| Reservation { budget: self.clone(), bytes })
    }
    /// Bytes reserved now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }
    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

/// Reserved bytes, given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` in all. `false`, and nothing changes, if there is no room for more.
    pub fn resize(&mut self, bytes: u64) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            let Some(mut more) = self.budget.reserve(more) else { return false };
            // Its bytes are this one's now.
            more.bytes = 0;
        } else {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Background tasks of an engine: counted, told to stop, waited for.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    crash: CancellationToken,
}

impl Tasks {
    /// Starts a task that is dropped where it waits when the engine stops.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.spawn_to_end(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Starts a task that ends by itself soon after [`Tasks::stopping`] does.
    pub fn spawn_to_end(&self, work: impl Future<Output = ()> + Send + 'static) {
        let crash = self.crash.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = crash.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Drops every task where it waits, as the end of the process would. Nothing is finished, nobody is told.
    pub fn crash(&self) {
        self.crash.cancel();
        self.stop.cancel();
    }

    /// Ends when the engine stops.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the engine stops.
    pub fn stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Tells every task to stop and waits for them.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// What the engine works with; cheap to clone.
#[derive(Clone)]
pub struct Environment {
    /// Object storage.
    pub store: Store,
    /// Leases, members and hints; may be lost or old.
    pub coordinator: Arc<dyn Coordinator>,
    /// Chosen once at start.
    pub kernels: Kernels,
    /// Ages, deadlines, back-off.
    pub clock: Arc<dyn Clock>,
    /// Nonces and uuids.
    pub random: Arc<dyn Random>,
    /// CPU work: searches. Never on tokio's workers.
    pub cpu: CpuPool,
    /// CPU work of checkpoints, so that they do not starve searches.
    pub compact_cpu: CpuPool,
    /// Verified blocks.
    pub cache: Cache,
    /// Resident vectors and navigation of open roots.
    pub resident: Arc<MemoryBudget>,
    /// Where they lie.
    pub arena: Arena,
    /// Vectors and attributes of tails.
    pub tails: Arc<MemoryBudget>,
    /// Scratch memory of searches.
    pub searchers: Arc<SearcherPool>,
    /// Background tasks.
    pub tasks: Tasks,
    /// Collections whose garbage is to be collected.
    pub garbage: Arc<Schedule>,
    /// What an operator tunes.
    pub settings: Arc<Settings>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_bounded_and_given_back() {
        let budget = MemoryBudget::new(10);
        let first = budget.reserve(7).unwrap();
        assert!(budget.reserve(4).is_none());
        assert_eq!(budget.used(), 7);
        drop(first);
        let mut all = budget.reserve(10).unwrap();
        assert_eq!(all.bytes(), 10);
        assert!(all.resize(4) && !all.resize(11) && all.resize(9));
        assert_eq!((budget.used(), all.bytes()), (9, 9));
        drop(all);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(u64::MAX).is_none());
    }
}
