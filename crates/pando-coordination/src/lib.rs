//! Leases, members and hints: the trait and its in-process backend.
