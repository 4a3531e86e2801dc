//! The clock of a run: tokio's paused time, which jumps to the next timer when nothing can run.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pando_store::Clock;
use tokio::runtime::Handle;
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

    /// Time since the start. Inside of the run's runtime: elsewhere tokio would tell real time.
    pub fn elapsed(&self) -> Duration {
        assert!(Handle::try_current().is_ok(), "simulated time is asked for outside of the runtime");
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
