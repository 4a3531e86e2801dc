//! Object store wrappers, key paths, create-if-absent and its probe, and the block cache.
