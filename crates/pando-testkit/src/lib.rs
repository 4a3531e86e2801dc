//! Faults, clocks and clusters for tests.
