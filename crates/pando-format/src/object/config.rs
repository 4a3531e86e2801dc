//! Configuration of a collection and its record.

use pando_kernels::Metric;

use crate::codec::{Bad, code, record};
use crate::envelope::stored;
use crate::ids::{CollectionUuid, RootId};
use crate::object::names::check_collection_name;

/// Largest dimension.
pub const MAX_DIMENSION: u32 = 16_384;

code!(Metric { Metric::L2 = 1, Metric::Cosine = 2, Metric::Dot = 3 });

record! {
    /// What a collection is made with and keeps for life. Part of every root.
    #[derive(Eq)]
    pub struct CollectionConfig {
        /// Elements of a vector, 1 to 16,384.
        pub dim: u32,
        /// Distance.
        pub metric: Metric,
        /// 1: primaries only; 2: primaries and secondaries.
        pub copies: u8,
        /// Whether leaves have refine blocks (4 more bits a dimension).
        pub refine: bool,
        /// Seed of rotation and clustering.
        pub seed: u64,
        /// Up to so many live rows the tree is one leaf.
        pub small_limit: u64,
        /// How long log entries are kept after a head covers them, in seconds.
        pub log_retention_seconds: u64,
    }
}

impl CollectionConfig {
    pub(crate) fn rules(&self) -> Result<(), Bad> {
        if self.dim == 0 || self.dim > MAX_DIMENSION {
            return Err("the dimension is not in 1..=16384");
        }
        if !(1..=2).contains(&self.copies) {
            return Err("copies is neither 1 nor 2");
        }
        Ok(())
    }

    /// Bits of a code: the dimension padded to max(128, next multiple of 64).
    pub fn padded(&self) -> usize {
        padded_dim(self.dim as usize)
    }
}

/// max(128, next multiple of 64).
pub fn padded_dim(dim: usize) -> usize {
    dim.next_multiple_of(64).max(128)
}

record! {
    /// One ancestor of a fork: objects up to this depth lie under its prefix.
    #[derive(Copy, Eq)]
    pub struct Ancestor {
        /// The ancestor.
        pub uuid: CollectionUuid,
        /// Depth of the root that was forked.
        pub up_to_depth: u64,
    }
}

record! {
    /// Where a fork begins.
    #[derive(Copy, Eq)]
    pub struct ForkPoint {
        /// Root forked from.
        pub root: RootId,
        /// Its depth.
        pub depth: u64,
        /// Its sequence; the fork's log goes on at the next one.
        pub sequence: u64,
        /// Its next row number.
        pub next_row: u64,
    }
}

record! {
    /// The record of a collection: written once, never changed.
    #[derive(Eq)]
    pub struct CollectionRecord {
        /// Its identity.
        pub uuid: CollectionUuid,
        /// The name it was created with. The owner of a name is decided by name objects alone.
        pub name: String,
        /// Its configuration.
        pub config: CollectionConfig,
        /// Ancestors, oldest first; empty unless it is a fork.
        pub lineage: Vec<Ancestor>,
        /// Where it was forked; present exactly when `lineage` is not empty.
        pub forked: Option<ForkPoint>,
        /// Number of shards; 1 today.
        pub shards: u32,
    }
}

impl CollectionRecord {
    /// The collection under whose prefix an object of this depth lies.
    pub fn owner_of(&self, depth: u64) -> CollectionUuid {
        self.lineage.iter().find(|a| depth <= a.up_to_depth).map_or(self.uuid, |a| a.uuid)
    }
}

stored!(CollectionRecord, Record, |record| {
    record.config.rules()?;
    check_collection_name(&record.name).map_err(|_| "the collection's name is not valid")?;
    if record.shards != 1 {
        return Err("it has more than one shard");
    }
    if record.forked.is_some() == record.lineage.is_empty() {
        return Err("lineage and fork point do not fit");
    }
    if !record.lineage.is_sorted_by(|a, b| a.up_to_depth < b.up_to_depth) {
        return Err("the lineage is not in order of depth");
    }
    if record.forked.map(|f| f.depth) != record.lineage.last().map(|a| a.up_to_depth) {
        return Err("the fork point is not the end of the lineage");
    }
    Ok(())
});
