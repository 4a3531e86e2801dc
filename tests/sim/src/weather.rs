//! What a seed makes of storage, processes and data.

use std::time::Duration;

use pando_engine::api::Metric;

use crate::random::Dice;

/// Faults of storage, per thousand requests, and delays.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Longest ordinary delay of each way, in milliseconds.
    pub delay: u64,
    /// Much longer delays: how often …
    pub slow: u32,
    /// … and up to how many milliseconds.
    pub slowest: u64,
    /// Refused with 503, not applied.
    pub refused: u32,
    /// Applied, answered with 503.
    pub lost: u32,
    /// Applied or not, never answered.
    pub silent: u32,
    /// A write that is answered with 503 and applied later.
    pub late: u32,
    /// A write that is applied a second time later.
    pub twice: u32,
    /// A create that is answered with 409 or 412 without reason.
    pub conflict: u32,
    /// A read that comes short.
    pub cut: u32,
    /// A read with a wrong bit.
    pub flip: u32,
}

/// The kind of world that a seed is.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Of storage.
    pub faults: Faults,
    /// Processes on the store.
    pub nodes: usize,
    /// Mean milliseconds between deaths of a process; 0: none dies.
    pub deaths: u64,
    /// Whether processes share coordination, or each is alone with its own.
    pub shared_coordination: bool,
    /// Longest CPU work in milliseconds.
    pub cpu: u64,
    /// Elements of a vector.
    pub dim: usize,
    /// Distance.
    pub metric: Metric,
    /// Copies of codes.
    pub copies: u8,
    /// More bits.
    pub refine: bool,
    /// Rows of a collection of one leaf.
    pub small_limit: u64,
    /// Ids that are written.
    pub ids: u64,
    /// Records of a large upsert.
    pub burst: u64,
    /// Memory of caches.
    pub cache_memory: u64,
    /// Checkpoints by themselves, at so many rows.
    pub auto_compact: Option<u64>,
    /// Deadline of a write.
    pub write_deadline: Duration,
    /// Retention of the log.
    pub log_retention: Duration,
    /// How long a replaced root is kept.
    pub root_retention: Duration,
    /// Calls of every client.
    pub calls: u64,
    /// Clients.
    pub clients: u64,
}

impl Weather {
    /// Of a seed.
    pub fn of(seed: u64) -> Self {
        let dice = Dice::new(seed, 1);
        let calm = Faults { delay: 12, ..Faults::default() };
        let rough = Faults {
            delay: 20,
            slow: 30,
            slowest: 4_000,
            refused: 30,
            lost: 30,
            silent: 10,
            late: 30,
            twice: 20,
            conflict: 30,
            ..calm.clone()
        };
        let faults = match seed % 5 {
            0 => calm,
            1 => Faults { cut: 15, flip: 15, ..calm },
            2 => Faults { slow: 60, slowest: 120_000, late: 60, ..calm },
            3 => rough,
            _ => Faults { cut: 8, flip: 8, ..rough },
        };
        let wide = dice.chance(120);
        let dim = if wide { 500 } else { *dice.pick(&[1, 3, 8, 8, 24]) as usize };
        Self {
            faults,
            nodes: if dice.chance(250) { 1 } else { 2 },
            deaths: *dice.pick(&[0, 400, 1_500, 5_000]),
            shared_coordination: dice.chance(500),
            cpu: *dice.pick(&[0, 1, 4]),
            dim,
            metric: *dice.pick(&[Metric::L2, Metric::Cosine, Metric::Dot]),
            copies: dice.between(1, 2) as u8,
            refine: dice.chance(700),
            small_limit: *dice.pick(&[10, 60, 10_000]),
            ids: if wide { 220 } else { dice.between(40, 400) },
            burst: if wide { 150 } else { dice.between(60, 240) },
            cache_memory: *dice.pick(&[0, 1 << 20, 64 << 20]),
            auto_compact: dice.chance(600).then(|| dice.between(20, 200)),
            write_deadline: Duration::from_millis(*dice.pick(&[300, 2_000, 20_000])),
            log_retention: Duration::from_secs(*dice.pick(&[30, 3600])),
            root_retention: Duration::from_secs(*dice.pick(&[1, 10, 3600])),
            calls: dice.between(20, 50),
            clients: dice.between(2, 4),
        }
    }

    /// Whether calls may fail at all.
    pub fn may_fail(&self) -> bool {
        let f = &self.faults;
        self.deaths > 0 || f.slow + f.refused + f.lost + f.silent + f.late + f.conflict + f.cut + f.flip > 0
    }
}
