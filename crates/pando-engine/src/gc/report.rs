//! Counts of a sweep.

use std::collections::BTreeMap;

use pando_store::ObjectKind;

use crate::api::{GarbageOfKind, GarbageReport};

/// Counts while a sweep runs.
#[derive(Debug, Default)]
pub struct Tally {
    kinds: BTreeMap<ObjectKind, GarbageOfKind>,
    /// Objects that could not be deleted.
    pub failed: u64,
}

impl Tally {
    fn of(&mut self, kind: ObjectKind) -> &mut GarbageOfKind {
        let none = GarbageOfKind { kind, deleted: 0, deleted_bytes: 0, kept: 0, kept_bytes: 0 };
        self.kinds.entry(kind).or_insert(none)
    }

    /// An object that stays.
    pub fn kept(&mut self, kind: ObjectKind, bytes: u64) {
        let counts = self.of(kind);
        (counts.kept, counts.kept_bytes) = (counts.kept + 1, counts.kept_bytes + bytes);
    }

    /// An object that went.
    pub fn deleted(&mut self, kind: ObjectKind, bytes: u64) {
        let counts = self.of(kind);
        (counts.deleted, counts.deleted_bytes) = (counts.deleted + 1, counts.deleted_bytes + bytes);
    }

    /// By kind.
    pub fn kinds(&self) -> Vec<GarbageOfKind> {
        self.kinds.values().copied().collect()
    }
}

/// Into the metrics.
pub fn count(report: &GarbageReport) {
    for kind in &report.kinds {
        let label = kind.kind.label();
        metrics::counter!("pando_gc_deleted_objects_total", "kind" => label).increment(kind.deleted);
        metrics::counter!("pando_gc_deleted_bytes_total", "kind" => label).increment(kind.deleted_bytes);
    }
    metrics::counter!("pando_gc_failed_deletes_total").increment(report.failed);
}
