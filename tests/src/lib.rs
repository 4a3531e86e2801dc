//! Tests across crates: cluster, laws, command line.
