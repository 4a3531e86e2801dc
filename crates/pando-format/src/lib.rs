//! Bytes on storage: log entries, segments, packs, blocks, manifests. No I/O, no async.
