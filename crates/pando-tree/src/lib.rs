//! The index as data: build, add, balance in rounds, navigate, scan. No I/O, no async.
//!
//! Everything here is a pure function of its arguments: the same rows, configuration and parent tree give the same
//! tree on every machine, for any number of threads and any memory budget.

pub mod search;
