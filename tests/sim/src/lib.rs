//! Seeded simulation of the engine (DESIGN section 2, laws 1 to 8): the production code on one thread, with simulated
//! storage, time and scheduling. A seed decides everything: what storage delays, loses, refuses, repeats and damages, when
//! processes die, and what clients ask. An oracle reads the log as storage first took it and knows every right answer.
//!
//! `docs/testing.md` says how to run one seed, and thousands.

pub mod client;
pub mod clock;
pub mod history;
pub mod keeper;
pub mod names;
pub mod node;
pub mod random;
pub mod run;
pub mod storage;
pub mod weather;
pub mod workers;

pub use run::{Ending, simulate};
