//! Threads for CPU work, and how blocking stages wait for storage. A simulation puts its own scheduling in their place, so
//! that everything runs in one order that a seed decides.

use std::fmt::Debug;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use futures::future::BoxFuture;
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
}

impl From<Arc<ThreadPool>> for CpuPool {
    fn from(pool: Arc<ThreadPool>) -> Self {
        Self { pool, workers: None }
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
        Self { pool, workers }
    }

    /// Runs CPU work on the pool.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (send, receive) = oneshot::channel();
        let work = move || {
            // Nobody waits any more: the work is not worth beginning.
            if !send.is_closed() {
                let _ = send.send(work());
            }
        };
        match &self.workers {
            None => self.pool.spawn(work),
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
