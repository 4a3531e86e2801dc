//! Index of a part of an id run: for each id block its first id, reference and filter.

use crate::codec::record;
use crate::envelope::stored;
use crate::id_run::{ID_BLOCKS_PER_PART, IdFilter};
use crate::ids::{BlockRef, ObjectRef, RecordId, id_hash};

record! {
    /// An id block as its index knows it.
    #[derive(Eq)]
    pub struct IdIndexEntry {
        /// Its first id.
        pub first: RecordId,
        /// Ids in it.
        pub ids: u32,
        /// The block; may name [`ObjectRef::SELF`] (see [`IdIndex::resolve`]).
        pub block: BlockRef,
        /// Filter over its ids' hashes.
        pub filter: IdFilter,
    }
}

record! {
    /// Index block of a part of an id run.
    #[derive(Eq)]
    pub struct IdIndex {
        /// Its id blocks, in order of ids. Never empty.
        pub blocks: Vec<IdIndexEntry>,
    }
}

impl IdIndex {
    /// Makes references to the index's own pack whole. To be called once after decoding.
    pub fn resolve(&mut self, holder: ObjectRef) {
        for entry in &mut self.blocks {
            entry.block = entry.block.resolve(holder);
        }
    }

    /// The one block that may hold `id`; None when it is surely in none.
    pub fn find(&self, id: &RecordId) -> Option<&IdIndexEntry> {
        self.find_hashed(id, id_hash(id))
    }

    /// [`IdIndex::find`] with the id's hash at hand.
    pub fn find_hashed(&self, id: &RecordId, hash: u64) -> Option<&IdIndexEntry> {
        let after = self.blocks.partition_point(|b| b.first <= *id);
        self.blocks[..after].last().filter(|b| b.filter.may_contain(hash))
    }
}

stored!(IdIndex, IdIndex, |index| {
    if index.blocks.is_empty() || index.blocks.len() > ID_BLOCKS_PER_PART {
        return Err("it does not have 1 to 64 id blocks");
    }
    if !index.blocks.is_sorted_by(|a, b| a.first < b.first) {
        return Err("its id blocks are not in order");
    }
    if index.blocks.iter().any(|b| b.first.kind() != index.blocks[0].first.kind()) {
        return Err("its id blocks are of two kinds");
    }
    Ok(())
});
