//! What an operator tunes. Data only; components (store, clock, kernels, randomness) are arguments of [`crate::Engine::open`].

use std::time::Duration;

/// Engine settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads of the CPU pool for searches and compaction; 0 = one per core.
    pub threads: usize,
    /// Bytes for cached blocks, resident vectors and tails. Default 1 GiB. Lower: more reads from storage per query.
    pub cache_memory: u64,
    /// Bytes for a checkpoint's buffers. Default 1 GiB. Lower: slower checkpoints, the same bytes.
    pub compactor_memory: u64,
    /// Start checkpoints by themselves. Default true.
    pub auto_compact: bool,
    /// A checkpoint starts when the tail has so many rows … Default 20,000.
    pub compact_rows: u64,
    /// … or bytes … Default 64 MiB.
    pub compact_bytes: u64,
    /// … or its oldest entry is so old. Default 30 seconds.
    pub compact_age: Duration,
    /// Collect garbage by itself. Default true.
    pub auto_collect: bool,
    /// How long a root is kept after another took its place: a read that lasts longer may end with an error. Default
    /// 1 hour.
    pub root_retention: Duration,
    /// How long the objects of a dropped collection are kept. Default 24 hours.
    pub drop_grace: Duration,
    /// Writes are refused when the tail has so many rows … Default 4,000,000.
    pub backpressure_rows: u64,
    /// … or bytes. Default 8 GiB.
    pub backpressure_bytes: u64,
    /// How long a write may stay undecided before its outcome is reported as unknown. Default 30 seconds.
    pub write_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: 0,
            cache_memory: 1 << 30,
            compactor_memory: 1 << 30,
            auto_compact: true,
            compact_rows: 20_000,
            compact_bytes: 64 << 20,
            compact_age: Duration::from_secs(30),
            auto_collect: true,
            root_retention: Duration::from_secs(3600),
            drop_grace: Duration::from_secs(24 * 3600),
            backpressure_rows: 4_000_000,
            backpressure_bytes: 8 << 30,
            write_deadline: Duration::from_secs(30),
        }
    }
}
