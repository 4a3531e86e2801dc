//! The clock of a run: tokio's paused time, which jumps to the next timer when nothing can run.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pando_store::Clock;
use tokio::time::Instant;

/// Simulated time.
#[derive(Clone, Copy, Debug)]
pub struct SimClock {
    start: Instant,
}

/// Not zero, so that code which subtracts from now is not spared.
const ORIGIN: Duration = Duration::from_secs(1_000_000);

impl SimClock {
    /// A clock that starts now. Inside of the run's runtime.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        ORIGIN + self.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}
