//! Object storage as Pando uses it: keys, create-if-absent and its probe, checked reads, and the block cache.
//!
//! One primitive carries all decisions: [`Store::create_if_absent`]. It is never retried here, because a create
//! whose answer is lost may have been applied; [`ErrorKind::Unclear`] says so, and the log protocol (DESIGN
//! section 4) decides by reading the object back. Reads are retried with back-off and checked for length; who
//! holds a reference with a hash also has the content checked ([`Store::get_block`]).
//!
//! * [`keys`]: every key of DESIGN section 3.
//! * [`Store`]: a cheap handle; [`Store::open_local`] for a directory, [`Store::new`] for any other backend.
//! * [`ObjectWriter`]: objects larger than memory whose name is known when they are complete.
//! * [`BlockCache`]: verified, decoded blocks within a budget of bytes.
//! * [`conformance`]: what every backend must do, as functions for tests.

mod at_hand;
pub mod cache;
mod clock;
pub mod conformance;
mod counters;
mod data_dir;
mod error;
pub mod keys;
mod local;
mod newest;
mod probe;
mod retry;
mod store;
mod writer;

pub use at_hand::AtHand;
pub use cache::{BlockCache, BlockKey, CacheStats, Cached};
pub use clock::{Clock, SystemClock};
pub use counters::{Counters, KindCounters};
pub use data_dir::{DataDir, TempFile};
pub use error::{ErrorKind, StoreError};
pub use keys::{Folder, Hex, Key, ObjectKind, Series, valid_name};
pub use store::{CreateOutcome, Listed, ObjectInfo, PutOutcome, Store, StoreOptions};
pub use writer::ObjectWriter;

/// What this crate's functions return.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
