//! What goes wrong and when: rules, seeded chance, gates, and the log of requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use pando_store::{Clock, Key, ObjectKind, SystemClock};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::fault_store::FaultStore;

/// A request as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultOp {
    /// Read, whole or ranged, or several ranges.
    Get,
    /// Size and existence.
    Head,
    /// Create-if-absent.
    Create,
    /// Any other whole write.
    Put,
    /// Start, a part, or completion of a multi-part upload.
    Upload,
    /// Delete.
    Delete,
    /// List.
    List,
}

/// What a failing request says. How it comes out is how `object_store` reports that answer of a real store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 500, 503, a timeout, a broken connection: no more is known.
    Unavailable,
    /// 409: comes out as "already exists", though nothing need be there.
    Conflict,
    /// 412.
    Precondition,
    /// 404.
    NotFound,
    /// 403.
    Denied,
}

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not applied, and this answer.
    FailBefore(Failure),
    /// Applied, and this answer: a lost reply, when it is [`Failure::Unavailable`].
    FailAfter(Failure),
    /// Waits by the clock, then goes on.
    Delay(Duration),
    /// Never answers; not applied.
    HangBefore,
    /// Applied, never answers.
    HangAfter,
    /// Waits at the gate, then goes on.
    HoldBefore(Gate),
    /// Applied, then waits at the gate before it answers.
    HoldAfter(Gate),
    /// A read gives this many bytes less (down to none).
    Truncate(usize),
    /// A read gives one wrong bit, in the byte at this place (modulo the length).
    FlipByte(usize),
}

/// A fault, and which requests it befalls. Of several rules that fit, the first added applies, alone.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    op: Option<FaultOp>,
    kind: Option<ObjectKind>,
    contains: Option<String>,
    skip: u64,
    times: u64,
}

impl Rule {
    /// Befalls every request, until it is narrowed.
    pub fn new(fault: Fault) -> Self {
        Self { fault, op: None, kind: None, contains: None, skip: 0, times: u64::MAX }
    }

    /// Only this operation.
    pub fn op(mut self, op: FaultOp) -> Self {
        self.op = Some(op);
        self
    }

    /// Only objects of this kind.
    pub fn kind(mut self, kind: ObjectKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only paths that contain this.
    pub fn path(mut self, contains: impl Into<String>) -> Self {
        self.contains = Some(contains.into());
        self
    }

    /// Only this object.
    pub fn key(self, key: &Key) -> Self {
        self.path(key.path())
    }

    /// Lets the first `n` requests that fit pass.
    pub fn after(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// At most `n` times.
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Once.
    pub fn once(self) -> Self {
        self.times(1)
    }

    fn fits(&self, op: FaultOp, kind: ObjectKind, path: &str) -> bool {
        self.op.is_none_or(|o| o == op)
            && self.kind.is_none_or(|k| k == kind)
            && self.contains.as_ref().is_none_or(|c| path.contains(c.as_str()))
    }
}

/// Faults by chance, per thousand requests. The same seed and the same order of requests give the same faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomFaults {
    /// Chooses the faults.
    pub seed: u64,
    /// Not applied, and [`Failure::Unavailable`].
    pub fail_before: u32,
    /// Applied, and [`Failure::Unavailable`].
    pub fail_after: u32,
    /// [`Failure::Conflict`] with nothing applied; creates only.
    pub conflict: u32,
    /// Reads that come short.
    pub truncate: u32,
    /// Reads with a wrong bit.
    pub flip: u32,
    /// Delays.
    pub delay: u32,
    /// Longest delay.
    pub max_delay: Duration,
}

/// One request that reached the fault store.
#[derive(Clone, Debug)]
pub struct Request {
    /// What was asked.
    pub op: FaultOp,
    /// Of which object; the folder, for listings.
    pub path: String,
    /// The object's kind, `Other` for listings and strays.
    pub kind: ObjectKind,
    /// Bytes written or asked for, 0 where unknown.
    pub bytes: u64,
    /// The fault it met.
    pub fault: Option<String>,
    /// How it ended: `None` while it runs, and for ever if it hung or was dropped.
    pub ok: Option<bool>,
}

/// A place where requests wait until the test lets them go on.
#[derive(Clone, Debug)]
pub struct Gate {
    arrived: Arc<watch::Sender<usize>>,
    open: Arc<watch::Sender<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: Arc::new(watch::Sender::new(0)), open: Arc::new(watch::Sender::new(false)) }
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Completes when `n` requests have come to the gate so far.
    pub async fn arrived(&self, n: usize) {
        let mut arrived = self.arrived.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = arrived.wait_for(|count| *count >= n).await;
    }

    /// Lets everyone through, from now on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) async fn pass(&self) {
        self.arrived.send_modify(|n| *n += 1);
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }
}

/// The control of one or more fault stores. Cheap to clone.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    random: Option<(RandomFaults, u64)>,
    requests: Vec<Request>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::with_clock(SystemClock::shared())
    }
}

impl Faults {
    /// No faults yet; delays by the machine's clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// No faults yet; delays by the given clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { clock, state: Mutex::default() }) }
    }

    /// A store that behaves like `inner` but for the faults.
    pub fn wrap(&self, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(FaultStore::new(inner, self.clone()))
    }

    /// An empty store in memory with these faults.
    pub fn wrap_in_memory(&self) -> Arc<dyn ObjectStore> {
        self.wrap(Arc::new(InMemory::new()))
    }

    /// Adds a rule.
    pub fn add(&self, rule: Rule) {
        self.shared.state.lock().rules.push(rule);
    }

    /// From now on faults by chance, for requests that no rule fits.
    pub fn random(&self, faults: RandomFaults) {
        self.shared.state.lock().random = Some((faults, faults.seed));
    }

    /// No more faults. Requests that hang go on hanging.
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        state.rules.clear();
        state.random = None;
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().requests.clone()
    }

    /// How many requests fit.
    pub fn count(&self, fits: impl Fn(&Request) -> bool) -> usize {
        self.shared.state.lock().requests.iter().filter(|r| fits(r)).count()
    }

    /// Forgets the requests so far. Not while requests run: they could not be told how they ended.
    pub fn forget_requests(&self) {
        self.shared.state.lock().requests.clear();
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Notes a request and decides its fault.
    pub(crate) fn begin(&self, op: FaultOp, path: &str, bytes: u64) -> (usize, Option<Fault>) {
        let kind = kind_of(path);
        let mut state = self.shared.state.lock();
        let fault = state.decide(op, kind, path);
        let label = fault.as_ref().map(|f| format!("{f:?}"));
        state.requests.push(Request { op, path: path.to_owned(), kind, bytes, fault: label, ok: None });
        (state.requests.len() - 1, fault)
    }

    pub(crate) fn end(&self, request: usize, ok: bool) {
        if let Some(request) = self.shared.state.lock().requests.get_mut(request) {
            request.ok = Some(ok);
        }
    }
}

impl State {
    fn decide(&mut self, op: FaultOp, kind: ObjectKind, path: &str) -> Option<Fault> {
        for rule in &mut self.rules {
            if !rule.fits(op, kind, path) || rule.times == 0 {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.times != u64::MAX {
                rule.times -= 1;
            }
            return Some(rule.fault.clone());
        }
        let (faults, state) = self.random.as_mut()?;
        faults.draw(op, state)
    }
}

impl RandomFaults {
    fn draw(&self, op: FaultOp, state: &mut u64) -> Option<Fault> {
        let mut at = (next_random(state) % 1000) as u32;
        let place = next_random(state) as usize;
        let read = op == FaultOp::Get;
        let delay = self.max_delay.mul_f64((place % 1000) as f64 / 1000.0);
        let table = [
            (self.fail_before, Fault::FailBefore(Failure::Unavailable), true),
            (self.fail_after, Fault::FailAfter(Failure::Unavailable), true),
            (self.conflict, Fault::FailBefore(Failure::Conflict), op == FaultOp::Create),
            (self.truncate, Fault::Truncate(1 + place % 64), read),
            (self.flip, Fault::FlipByte(place), read),
            (self.delay, Fault::Delay(delay), true),
        ];
        for (share, fault, fits) in table {
            if at < share {
                return fits.then_some(fault);
            }
            at -= share;
        }
        None
    }
}

/// SplitMix64 (public domain, Steele et al. 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The kind of the object at a path, whatever prefix the store has.
fn kind_of(path: &str) -> ObjectKind {
    let mut rest = path;
    loop {
        if let Some(key) = Key::parse(rest) {
            return key.kind();
        }
        match rest.split_once('/') {
            Some((_, tail)) => rest = tail,
            None => return ObjectKind::Other,
        }
    }
}
