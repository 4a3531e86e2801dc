//! A clock that moves only when it is told to.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pando_store::Clock;
use tokio::sync::watch;

/// Stands still until [`ManualClock::advance`]. Cheap to clone; clones are the same clock.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<watch::Sender<Duration>>,
}

impl Default for ManualClock {
    fn default() -> Self {
        // Not zero, so that code which subtracts from now is not spared.
        Self { now: Arc::new(watch::Sender::new(Duration::from_secs(1_000_000))) }
    }
}

impl ManualClock {
    /// A clock, as it is handed to options: `clock.clone()` turns into `Arc<dyn Clock>`.
    pub fn shared() -> Arc<Self> {
        Arc::default()
    }

    /// Moves on and wakes who slept until then.
    pub fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }

    /// How many sleep at this moment.
    pub fn sleepers(&self) -> usize {
        self.now.receiver_count()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut now = self.now.subscribe();
        let until = self.now() + duration;
        async move {
            if now.wait_for(|now| *now >= until).await.is_err() {
                // The clock is gone: nobody will ever move it.
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}
