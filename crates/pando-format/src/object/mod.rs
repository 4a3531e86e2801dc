//! The small objects of a collection: record, log entry, plan, head, name, tag, pin, sweep mark, manifest.

pub mod config;
pub mod entry;
pub mod head;
pub mod manifest;
pub mod names;
pub mod plan;
