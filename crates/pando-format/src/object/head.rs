//! Head: generation g of a collection is this root, covering the log up to this sequence.

use crate::codec::record;
use crate::envelope::stored;
use crate::ids::{CollectionUuid, RootId};

record! {
    /// End of a collection, by drop or by restore.
    #[derive(Copy, Eq)]
    pub struct Closing {
        /// The collection that takes its name's place after a restore.
        pub successor: Option<CollectionUuid>,
    }
}

record! {
    /// The root of a head.
    #[derive(Copy, Eq)]
    pub struct HeadRoot {
        /// Its id.
        pub root: RootId,
        /// Its depth.
        pub depth: u64,
        /// Bytes of its manifest.
        pub len: u64,
        /// Id of the root it was built on; None for the first.
        pub parent: Option<RootId>,
    }
}

record! {
    /// A head. About 200 bytes; never deleted.
    #[derive(Eq)]
    pub struct Head {
        /// The collection, checked against the key it was read from.
        pub uuid: CollectionUuid,
        /// Number of this head, from 1, without gaps.
        pub generation: u64,
        /// The root; None only in the closing head of a collection that never had one.
        pub root: Option<HeadRoot>,
        /// Last log entry the root covers.
        pub sequence: u64,
        /// Entries at or below this may be deleted; 0 at first.
        pub log_floor: u64,
        /// Row number that the entry after `sequence` must begin with.
        pub next_row: u64,
        /// Rows of the log up to `sequence`, as in its entry.
        pub cumulative_rows: u64,
        /// Bytes of the log up to `sequence`, as in its entry.
        pub cumulative_bytes: u64,
        /// Set in the last head of a closed collection.
        pub closed: Option<Closing>,
    }
}

stored!(Head, Head, |head| {
    if head.generation == 0 {
        return Err("its generation is 0");
    }
    if head.log_floor > head.sequence {
        return Err("its log floor is past its sequence");
    }
    match head.root {
        Some(root) if root.depth == 0 || (root.depth == 1) != root.parent.is_none() => {
            Err("depth and parent do not fit")
        }
        None if head.closed.is_none() => Err("it has no root and is not closed"),
        _ => Ok(()),
    }
});
