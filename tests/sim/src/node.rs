//! A simulated process: an engine that can die at any moment and be started again on the same store.

use std::sync::Arc;
use std::time::Duration;

use pando_coordination::{Coordinator, InProcess};
use pando_engine::{Components, Engine, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::clock::SimClock;
use crate::random::Dice;
use crate::storage::Storage;
use crate::weather::Weather;
use crate::workers::SimWorkers;

/// One process. Clones are the same.
#[derive(Clone)]
pub struct Node {
    number: usize,
    storage: Storage,
    clock: SimClock,
    dice: Dice,
    weather: Arc<Weather>,
    coordinator: Arc<dyn Coordinator>,
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    engine: Option<Arc<Engine>>,
    /// Calls that run in it, and die with it.
    calls: Vec<(String, JoinHandle<()>)>,
}

impl Node {
    /// A process that was not started.
    pub fn new(
        number: usize,
        seed: u64,
        storage: Storage,
        clock: SimClock,
        weather: Arc<Weather>,
        shared: &Arc<dyn Coordinator>,
    ) -> Self {
        let coordinator = match weather.shared_coordination {
            true => shared.clone(),
            false => Arc::new(InProcess::new(Arc::new(clock))),
        };
        let dice = Dice::new(seed, 100 + number as u64);
        Self { number, storage, clock, dice, weather, coordinator, running: Arc::default() }
    }

    /// Its engine, if it runs.
    pub fn engine(&self) -> Option<Arc<Engine>> {
        self.running.lock().engine.clone()
    }

    /// Starts it; storage may not let it.
    pub async fn start(&self) -> pando_engine::Result<()> {
        let clock = Arc::new(self.clock);
        let options = StoreOptions {
            clock: clock.clone(),
            read_timeout: Duration::from_millis(500),
            read_attempts: 4,
            backoff: Duration::from_millis(10),
            max_backoff: Duration::from_millis(200),
            write_timeout: Duration::from_millis(1_500),
        };
        let store = Store::new(self.storage.seen_by(self.number), "", None, options)?;
        let components = Components {
            store,
            coordinator: self.coordinator.clone(),
            kernels: Kernels::from_env().expect("PANDO_SIMD is available"),
            clock,
            random: Arc::new(self.dice.clone()),
        };
        let settings = Settings {
            threads: 1,
            cache_memory: self.weather.cache_memory,
            compactor_memory: 64 << 20,
            auto_compact: self.weather.auto_compact.is_some(),
            compact_rows: self.weather.auto_compact.unwrap_or(u64::MAX),
            compact_age: Duration::from_secs(3),
            write_deadline: self.weather.write_deadline,
            root_retention: self.weather.root_retention,
            ..Settings::default()
        };
        let workers = SimWorkers::new(self.dice.clone(), self.weather.cpu);
        let engine = Engine::open_scheduled(components, settings, Some(workers)).await?;
        self.storage.note(&format!("node {} started", self.number));
        self.running.lock().engine = Some(engine);
        Ok(())
    }

    /// Starts it however often storage refuses.
    pub async fn start_at_last(&self) {
        while self.start().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The process ends at this very moment: every future of it is dropped where it waits.
    pub async fn kill(&self) {
        let Running { engine, calls } = std::mem::take(&mut *self.running.lock());
        let Some(engine) = engine else { return };
        self.storage.note(&format!("node {} dies", self.number));
        engine.crash();
        calls.iter().for_each(|(_, call)| call.abort());
        for (_, call) in calls {
            let _ = call.await;
        }
        engine.shutdown().await;
    }

    /// Runs a call in the process; `None` when the process dies first, or is not running.
    pub async fn call<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        what: &str,
        call: impl FnOnce(Arc<Engine>) -> F,
    ) -> Option<T> {
        let (send, receive) = tokio::sync::oneshot::channel();
        let what = format!("node {}: {what} from {:?}", self.number, self.clock.elapsed());
        self.storage.note(&what);
        {
            let mut running = self.running.lock();
            let work = call(running.engine.clone()?);
            running.calls.retain(|(_, call)| !call.is_finished());
            let (storage, end) = (self.storage.clone(), format!("ended: {what}"));
            let work = async move {
                let answer = work.await;
                storage.note(&end);
                drop(send.send(answer));
            };
            running.calls.push((what, tokio::spawn(work)));
        }
        receive.await.ok()
    }

    /// Calls that wait for an answer.
    pub fn unanswered(&self) -> Vec<String> {
        let running = self.running.lock();
        running.calls.iter().filter(|(_, call)| !call.is_finished()).map(|(what, _)| what.clone()).collect()
    }
}
