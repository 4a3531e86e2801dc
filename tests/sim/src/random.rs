//! Random numbers of a run.

use std::sync::Arc;

use parking_lot::Mutex;

/// A generator (splitmix64, public domain). Clones share one sequence.
#[derive(Clone, Debug)]
pub struct Dice(Arc<Mutex<u64>>);

impl Dice {
    /// Its own sequence for each seed and purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let dice = Self(Arc::new(Mutex::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ purpose << 32)));
        dice.next();
        dice
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`; `n` is not 0.
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n
    }

    /// From `low` to `high`, both included.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `n` times in a thousand.
    pub fn chance(&self, n: u32) -> bool {
        self.below(1000) < u64::from(n)
    }

    /// One of `all`.
    pub fn pick<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Uniform in -1..1.
    pub fn unit(&self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

impl pando_engine::environment::Random for Dice {
    fn bytes16(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.next().to_le_bytes());
        out[8..].copy_from_slice(&self.next().to_le_bytes());
        out
    }
}
