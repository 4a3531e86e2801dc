//! CPU work and blocking stages of one simulated process, one at a time in an order that only the seed decides.
//!
//! Long work runs on a thread of its own, but never beside the runtime: the runtime's thread hands over its turn when it
//! polls the work, and gets it back when the work waits for storage or ends.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pando_engine::workers::{Work, Workers};
use parking_lot::{Condvar, Mutex};
use rayon::ThreadPool;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::random::Dice;

/// See the module.
#[derive(Debug)]
pub struct SimWorkers {
    dice: Dice,
    /// Longest time of one piece of CPU work, in milliseconds.
    longest: u64,
    handle: Handle,
    /// Long work of one process runs one at a time: the pool has one thread, which the work holds while it waits.
    turn: Arc<Semaphore>,
    current: Arc<Mutex<Option<Arc<Strand>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Runtime,
    Work,
    Done,
}

/// One thread of long work.
#[derive(Debug)]
struct Strand {
    state: Mutex<(Turn, bool)>,
    changed: Condvar,
    waker: Mutex<Option<Waker>>,
}

/// What unwinds the thread of work that was abandoned.
struct Abandoned;

impl Strand {
    fn give(&self, turn: Turn) {
        self.state.lock().0 = turn;
        self.changed.notify_all();
    }

    /// Waits until the work may go on; unwinds when it was abandoned.
    fn wait_for_work(&self) {
        let mut state = self.state.lock();
        while state.0 != Turn::Work {
            self.changed.wait(&mut state);
        }
        let abandoned = state.1;
        drop(state);
        if abandoned {
            resume_unwind(Box::new(Abandoned));
        }
    }

    /// Lets the work go on until it waits or ends.
    fn run(&self, abandon: bool) -> Turn {
        let mut state = self.state.lock();
        if state.0 == Turn::Done {
            return Turn::Done;
        }
        *state = (Turn::Work, state.1 || abandon);
        self.changed.notify_all();
        while state.0 == Turn::Work {
            self.changed.wait(&mut state);
        }
        state.0
    }
}

impl Wake for Strand {
    fn wake(self: Arc<Self>) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

/// The runtime's end of a strand.
struct Driver {
    strand: Arc<Strand>,
    thread: Option<JoinHandle<()>>,
}

impl Future for Driver {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.strand.waker.lock() = Some(context.waker().clone());
        match self.strand.run(false) {
            Turn::Done => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        while self.strand.run(true) != Turn::Done {}
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SimWorkers {
    /// Workers whose short work takes up to `longest` milliseconds. Inside of the run's runtime.
    pub fn new(dice: Dice, longest: u64) -> Arc<Self> {
        let (turn, current) = (Arc::new(Semaphore::new(1)), Arc::default());
        Arc::new(Self { dice, longest, handle: Handle::current(), turn, current })
    }
}

impl Workers for SimWorkers {
    fn cpu(&self, _: &Arc<ThreadPool>, work: Work) -> BoxFuture<'static, ()> {
        let time = Duration::from_millis(self.dice.below(self.longest + 1));
        async move {
            if !time.is_zero() {
                tokio::time::sleep(time).await;
            }
            // What panics here fails its caller, as on a pool.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
        .boxed()
    }

    fn blocking(&self, work: Work) -> BoxFuture<'static, ()> {
        let (turn, current) = (self.turn.clone(), self.current.clone());
        async move {
            let _permit = turn.acquire_owned().await;
            let state = Mutex::new((Turn::Runtime, false));
            let strand = Arc::new(Strand { state, changed: Condvar::new(), waker: Mutex::default() });
            *current.lock() = Some(strand.clone());
            let own = strand.clone();
            let thread = std::thread::spawn(move || {
                let done = catch_unwind(AssertUnwindSafe(|| {
                    own.wait_for_work();
                    work();
                }));
                drop(done);
                own.give(Turn::Done);
            });
            Driver { strand, thread: Some(thread) }.await;
        }
        .boxed()
    }

    fn block_on(&self, mut future: Pin<&mut dyn Future<Output = ()>>) {
        let strand = self.current.lock().clone().expect("long work is running");
        let waker = Waker::from(strand.clone());
        loop {
            let _guard = self.handle.enter();
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return;
            }
            strand.give(Turn::Runtime);
            strand.wait_for_work();
        }
    }
}
