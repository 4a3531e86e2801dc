//! The index as data: build, add, balance in rounds, navigate, scan. No I/O, no async.
