//! For tests only: a store that fails on command, a clock that stands still, directories that go away.
//!
//! ```
//! # use pando_testkit::{Failure, Fault, FaultOp, Faults, Rule};
//! # use pando_store::{ObjectKind, Store, StoreOptions};
//! # fn main() -> Result<(), pando_store::StoreError> {
//! let faults = Faults::new();
//! let objects = faults.wrap_in_memory();
//! let store = Store::new(objects, "", None, StoreOptions::default())?;
//! // The next create of a log entry is applied, but its answer is lost.
//! faults.add(Rule::new(Fault::FailAfter(Failure::Unavailable)).op(FaultOp::Create).kind(ObjectKind::Log).once());
//! # Ok(()) }
//! ```

mod clock;
mod dirs;
mod fault_store;
mod faults;
mod timed_store;

pub use clock::ManualClock;
pub use dirs::{damage, temp_dir, truncate};
pub use faults::{Failure, Fault, FaultOp, Faults, Gate, RandomFaults, Request, Rule};
pub use timed_store::Timed;
