//! The engine on a real directory, against a model in memory.
#![allow(clippy::type_complexity, clippy::drop_non_drop)] // Histories and dropped calls are spelled out.

mod checks;
mod churn;
mod concurrency;
mod damage;
mod engines;
mod faults;
mod garbage;
mod lifecycle;
mod lost;
mod odd;
mod roots;
mod send;
mod small_cache;
mod support;
mod tiny;

/// Counts bytes, for tests that bound memory.
#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;
