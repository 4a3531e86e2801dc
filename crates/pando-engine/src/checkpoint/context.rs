//! What one checkpoint works with. Nothing in it changes a byte of the result.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_format::{CollectionConfig, CollectionRecord};
use pando_kernels::Kernels;
use pando_store::Store;
use pando_tree::TreeConfig;

use crate::api::Progress;
use crate::error::{Error, ErrorKind, Result};
use crate::rootio::RootIo;
use crate::workers::{CpuPool, Waiter};

/// Surroundings of a checkpoint.
#[derive(Clone)]
pub struct Surroundings {
    /// Object storage.
    pub store: Store,
    /// The collection.
    pub record: Arc<CollectionRecord>,
    /// Kernel set.
    pub kernels: Kernels,
    /// Threads for CPU work.
    pub pool: CpuPool,
    /// Bytes for buffers of vectors and codes. The tree itself (about 20 bytes a row) and the ids of the plan come on
    /// top.
    pub memory: u64,
    /// Told of progress, for people.
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
}

/// A running checkpoint, as its blocking stages see it: they run on the CPU pool and wait for storage by
/// [`Context::block`].
pub struct Context {
    pub io: RootIo,
    pub kernels: Kernels,
    pub memory: u64,
    pub waiter: Waiter,
    pub cancel: Arc<AtomicBool>,
    /// Depth of the root being made.
    pub depth: u64,
    pub tree_config: TreeConfig,
    progress: Arc<dyn Fn(Progress) + Send + Sync>,
    pub pool: CpuPool,
}

/// The tree's view of a configuration.
pub fn tree_config(config: &CollectionConfig) -> TreeConfig {
    TreeConfig {
        dim: config.dim as usize,
        metric: config.metric,
        seed: config.seed,
        copies: config.copies,
        refine: config.refine,
        small_limit: config.small_limit,
    }
}

impl Context {
    pub fn new(around: &Surroundings, depth: u64, cancel: Arc<AtomicBool>) -> Self {
        Self {
            io: RootIo::new(around.store.clone(), around.record.clone()),
            kernels: around.kernels,
            memory: around.memory,
            waiter: around.pool.waiter(),
            cancel,
            depth,
            tree_config: tree_config(&around.record.config),
            progress: around.progress.clone(),
            pool: around.pool.clone(),
        }
    }

    /// The collection's configuration.
    pub fn config(&self) -> &CollectionConfig {
        &self.io.record().config
    }

    /// Elements of a vector.
    pub fn dim(&self) -> usize {
        self.tree_config.dim
    }

    /// Waits for storage. Only on CPU threads.
    pub fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.waiter.block_on(work)
    }

    /// Fails once somebody wants the checkpoint to stop.
    pub fn check_cancel(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(cancelled()) } else { Ok(()) }
    }

    /// Tells how far a stage is.
    pub fn report(&self, stage: &str, done: u64, total: u64) {
        (self.progress)(Progress { stage: stage.to_owned(), done, total });
    }
}

/// The checkpoint was told to stop.
pub fn cancelled() -> Error {
    Error::new(ErrorKind::Aborted, "CANCELLED", "the checkpoint was stopped before it was done")
}
