//! Threads for CPU work, and how blocking stages wait for storage. A simulation puts its own scheduling in their place, so
//! that everything runs in one order that a seed decides.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use futures::future::BoxFuture;
use metrics::{Gauge, gauge};
use parking_lot::{Condvar, Mutex};
use rayon::ThreadPool;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Work that is run once.
pub type Work = Box<dyn FnOnce() + Send>;

/// Decides where and when work runs, instead of the pool's threads and tokio's blocking threads.
pub trait Workers: Send + Sync + Debug {
    /// Runs short CPU work, done when the future is.
    fn cpu(&self, pool: &Arc<ThreadPool>, work: Work) -> BoxFuture<'static, ()>;
    /// Runs long work, which may call [`Workers::block_on`] from the thread it is on or from the pool's. The future is done
    /// when the work is; dropped earlier, the work is abandoned where it waits.
    fn blocking(&self, work: Work) -> BoxFuture<'static, ()>;
    /// Waits for a future, from inside of [`Workers::blocking`].
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>);
}

/// A pool of threads for CPU work. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CpuPool {
    pool: Arc<ThreadPool>,
    workers: Option<Arc<dyn Workers>>,
    short: Option<Arc<ShortWork>>,
}

impl From<Arc<ThreadPool>> for CpuPool {
    fn from(pool: Arc<ThreadPool>) -> Self {
        Self { pool, workers: None, short: None }
    }
}

impl Deref for CpuPool {
    type Target = ThreadPool;
    fn deref(&self) -> &ThreadPool {
        &self.pool
    }
}

impl CpuPool {
    /// A pool whose work is scheduled by `workers`.
    pub fn scheduled(pool: Arc<ThreadPool>, workers: Option<Arc<dyn Workers>>) -> Self {
        Self { pool, workers, short: None }
    }

    /// The same with threads for short work beside the pool's, see [`CpuPool::run_short`].
    pub fn with_short_work(self, short: ShortWork) -> Self {
        Self { short: Some(Arc::new(short)), ..self }
    }

    /// Runs CPU work on the pool.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.run_by(|work| self.pool.spawn(work), work).await
    }

    /// Runs work of some ten microseconds that is not itself parallel. A thread of the pool that has nothing to do looks
    /// for parts of others' work before it sleeps, which takes as long as such work itself: this runs on threads that wait
    /// for whole pieces.
    pub async fn run_short<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        match &self.short {
            Some(short) => self.run_by(|work| short.push(work), work).await,
            None => self.run(work).await,
        }
    }

    async fn run_by<T: Send + 'static>(
        &self,
        spawn: impl FnOnce(Work),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (send, receive) = oneshot::channel();
        let work = move || {
            // Nobody waits any more: the work is not worth beginning.
            if !send.is_closed() {
                let _ = send.send(work());
            }
        };
        match &self.workers {
            None => spawn(Box::new(work)),
            Some(workers) => workers.cpu(&self.pool, Box::new(work)).await,
        }
        receive.await.map_err(|_| Error::internal("a task of the CPU pool did not finish"))
    }

    /// Runs long work on the pool, which waits for storage by [`CpuPool::waiter`]. Inside of tokio.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let pool = self.pool.clone();
        let work = move || pool.install(work);
        match &self.workers {
            None => tokio::task::spawn_blocking(work)
                .await
                .map_err(|e| Error::internal(format!("the thread of long work ended: {e}"))),
            Some(workers) => {
                let (send, receive) = oneshot::channel();
                workers.blocking(Box::new(move || drop(send.send(work())))).await;
                receive.await.map_err(|_| Error::internal("the thread of long work ended"))
            }
        }
    }

    /// How long work waits. Inside of tokio.
    pub fn waiter(&self) -> Waiter {
        match &self.workers {
            None => Waiter(How::Tokio(Handle::current())),
            Some(workers) => Waiter(How::Workers(workers.clone())),
        }
    }
}

/// Threads that take whole pieces of work, first come first served, and sleep meanwhile. They end with it.
#[derive(Debug)]
pub struct ShortWork {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<QueueState>,
    ready: Condvar,
    waiting: Gauge,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Work>,
    closed: bool,
}

impl Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

impl ShortWork {
    /// Starts `threads` threads. `name` labels them and the gauge of what waits.
    pub fn start(name: &'static str, threads: usize) -> std::io::Result<Self> {
        let waiting = gauge!("pando_cpu_work_waiting", "pool" => name);
        let this =
            Self { queue: Arc::new(Queue { state: Mutex::default(), ready: Condvar::new(), waiting }) };
        for at in 0..threads {
            let queue = this.queue.clone();
            std::thread::Builder::new().name(format!("pando-{name}-{at}")).spawn(move || {
                while let Some(work) = queue.next() {
                    // A task that panics fails its caller, not the server.
                    if catch_unwind(AssertUnwindSafe(work)).is_err() {
                        tracing::error!("a task of the CPU pool panicked");
                    }
                }
            })?;
        }
        Ok(this)
    }

    /// As long as what the calls that were let in have asked for: each waits for its own.
    fn push(&self, work: Work) {
        let waiting = {
            let mut state = self.queue.state.lock();
            state.waiting.push_back(work);
            state.waiting.len()
        };
        self.queue.waiting.set(waiting as f64);
        self.queue.ready.notify_one();
    }
}

impl Drop for ShortWork {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.ready.notify_all();
    }
}

impl Queue {
    /// The next piece; nothing when there is none and none will come.
    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            match state.waiting.pop_front() {
                Some(work) => {
                    self.waiting.set(state.waiting.len() as f64);
                    return Some(work);
                }
                None if state.closed => return None,
                None => self.ready.wait(&mut state),
            }
        }
    }
}

/// Waits for futures on a thread that may block. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Waiter(How);

#[derive(Clone, Debug)]
enum How {
    Tokio(Handle),
    Workers(Arc<dyn Workers>),
}

impl Waiter {
    /// Waits for `future`. Never on tokio's workers.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        match &self.0 {
            How::Tokio(handle) => handle.block_on(future),
            How::Workers(workers) => {
                let mut out = None;
                let keep = async { out = Some(future.await) };
                workers.block_on(std::pin::pin!(keep));
                out.expect("the future is done")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn pool() -> CpuPool {
        Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).panic_handler(|_| {}).build().unwrap()).into()
    }

    #[tokio::test]
    async fn short_work_runs_whole_and_ends_with_its_threads() {
        let pool = pool().with_short_work(ShortWork::start("short", 2).unwrap());
        let error = pool.run_short(|| panic!("a fault of ours")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        let sums = (0..100u64).map(|i| pool.run_short(move || (0..i).sum::<u64>()));
        let sums = futures::future::try_join_all(sums).await.unwrap();
        assert!(sums.iter().zip(0..).all(|(sum, i): (&u64, u64)| *sum == i * i.saturating_sub(1) / 2));
        let queue = Arc::downgrade(&pool.short.as_ref().unwrap().queue);
        drop(pool);
        for _ in 0..1000 {
            if queue.strong_count() == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the threads did not end");
    }

    #[tokio::test]
    async fn a_panic_fails_its_caller_alone() {
        let pool = pool();
        let error = pool.run(|| panic!("a fault of ours")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        let error = pool.run_blocking(|| panic!("a fault of ours")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
    }

    #[tokio::test]
    async fn long_work_waits_for_futures() {
        let pool = pool();
        let waiter = pool.waiter();
        let (send, receive) = oneshot::channel();
        let work = pool.run_blocking(move || waiter.block_on(receive).unwrap());
        let (got, ()) = tokio::join!(work, async { send.send(5).unwrap() });
        assert_eq!(got.unwrap(), 5);
    }
}
