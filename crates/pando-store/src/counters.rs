//! Requests and bytes per kind of object: as metrics for operators, as plain numbers for tests that bound the
//! number of requests an operation may make.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use crate::keys::ObjectKind;

/// A request as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Get,
    Head,
    Create,
    Put,
    Delete,
    List,
}

impl Op {
    const ALL: [Self; 6] = [Self::Get, Self::Head, Self::Create, Self::Put, Self::Delete, Self::List];

    fn label(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Create => "create",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

const KINDS: usize = ObjectKind::ALL.len();
const OPS: usize = Op::ALL.len();

/// Live counters of one store. Metric handles are taken once, here: install the recorder before opening a store.
pub(crate) struct Instruments {
    kinds: [KindInstruments; KINDS],
    seconds: [Histogram; OPS],
}

struct KindInstruments {
    requests: [(AtomicU64, Counter); OPS],
    bytes_read: (AtomicU64, Counter),
    bytes_written: (AtomicU64, Counter),
    errors: (AtomicU64, Counter),
    retries: (AtomicU64, Counter),
}

fn add(pair: &(AtomicU64, Counter), n: u64) {
    pair.0.fetch_add(n, Relaxed);
    pair.1.increment(n);
}

impl Instruments {
    pub(crate) fn new() -> Self {
        let kinds = ObjectKind::ALL.map(|kind| {
            let object = kind.label();
            let plain = |counter| (AtomicU64::new(0), counter);
            KindInstruments {
                requests: Op::ALL.map(|op| {
                    plain(counter!("pando_store_requests_total", "op" => op.label(), "object" => object))
                }),
                bytes_read: plain(counter!("pando_store_read_bytes_total", "object" => object)),
                bytes_written: plain(counter!("pando_store_written_bytes_total", "object" => object)),
                errors: plain(counter!("pando_store_errors_total", "object" => object)),
                retries: plain(counter!("pando_store_retries_total", "object" => object)),
            }
        });
        let seconds = Op::ALL.map(|op| histogram!("pando_store_request_seconds", "op" => op.label()));
        Self { kinds, seconds }
    }

    /// One request was sent, whatever comes of it.
    pub(crate) fn request(&self, kind: ObjectKind, op: Op) {
        add(&self.kinds[kind as usize].requests[op as usize], 1);
    }

    pub(crate) fn took(&self, op: Op, time: Duration) {
        self.seconds[op as usize].record(time.as_secs_f64());
    }

    pub(crate) fn read(&self, kind: ObjectKind, bytes: u64) {
        add(&self.kinds[kind as usize].bytes_read, bytes);
    }

    pub(crate) fn written(&self, kind: ObjectKind, bytes: u64) {
        add(&self.kinds[kind as usize].bytes_written, bytes);
    }

    pub(crate) fn error(&self, kind: ObjectKind) {
        add(&self.kinds[kind as usize].errors, 1);
    }

    pub(crate) fn retry(&self, kind: ObjectKind) {
        add(&self.kinds[kind as usize].retries, 1);
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let load = |pair: &(AtomicU64, Counter)| pair.0.load(Relaxed);
        let mut out = Counters::default();
        for (from, to) in self.kinds.iter().zip(&mut out.kinds) {
            let request = |op: Op| load(&from.requests[op as usize]);
            *to = KindCounters {
                gets: request(Op::Get),
                heads: request(Op::Head),
                creates: request(Op::Create),
                puts: request(Op::Put),
                deletes: request(Op::Delete),
                lists: request(Op::List),
                bytes_read: load(&from.bytes_read),
                bytes_written: load(&from.bytes_written),
                errors: load(&from.errors),
                retries: load(&from.retries),
            };
        }
        out
    }
}

/// What a store did so far, per kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    kinds: [KindCounters; KINDS],
}

/// What a store did so far with one kind of object. Each attempt of a retried read is a request of its own; a
/// call that reads many ranges of one object is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounters {
    /// Reads, whole or ranged.
    pub gets: u64,
    /// Questions for size and existence.
    pub heads: u64,
    /// Create-if-absent requests.
    pub creates: u64,
    /// Other writes: content-addressed puts, parts of uploads.
    pub puts: u64,
    /// Deletes.
    pub deletes: u64,
    /// Listings.
    pub lists: u64,
    /// Bytes received.
    pub bytes_read: u64,
    /// Bytes sent and acknowledged.
    pub bytes_written: u64,
    /// Calls that ended in an error other than not-found.
    pub errors: u64,
    /// Attempts after the first.
    pub retries: u64,
}

impl KindCounters {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.gets + self.heads + self.creates + self.puts + self.deletes + self.lists
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            gets: f(self.gets, other.gets),
            heads: f(self.heads, other.heads),
            creates: f(self.creates, other.creates),
            puts: f(self.puts, other.puts),
            deletes: f(self.deletes, other.deletes),
            lists: f(self.lists, other.lists),
            bytes_read: f(self.bytes_read, other.bytes_read),
            bytes_written: f(self.bytes_written, other.bytes_written),
            errors: f(self.errors, other.errors),
            retries: f(self.retries, other.retries),
        }
    }
}

impl Counters {
    /// Of one kind.
    pub fn of(&self, kind: ObjectKind) -> KindCounters {
        self.kinds[kind as usize]
    }

    /// Of all kinds.
    pub fn total(&self) -> KindCounters {
        self.kinds.iter().fold(KindCounters::default(), |a, b| a.zip(*b, u64::saturating_add))
    }

    /// What happened since an earlier snapshot of the same store.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut out = Self::default();
        for (i, o) in out.kinds.iter_mut().enumerate() {
            *o = self.kinds[i].zip(earlier.kinds[i], u64::saturating_sub);
        }
        out
    }
}
