//! The engine on a real directory, against a model in memory.
#![allow(clippy::type_complexity, clippy::drop_non_drop)] // Histories and dropped calls are spelled out.

mod checks;
mod churn;
mod concurrency;
mod damage;
mod engines;
mod faults;
mod lifecycle;
mod odd;
mod send;
mod support;
