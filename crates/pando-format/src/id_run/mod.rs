//! Id runs: sorted (id, row) pairs in blocks of about 64 KiB, with an index and a filter per block.

mod block;
mod builder;
mod filter;
mod index;
mod merge;

pub use self::block::{IdBlock, IdView, encode_id_block};
pub use self::builder::{IdRunBuilder, PendingIdRun};
pub use self::filter::IdFilter;
pub use self::index::{IdIndex, IdIndexEntry};
pub use self::merge::merge_ids;

/// Id blocks are closed when they reach this length.
pub const ID_BLOCK_BYTES: usize = 64 * 1024;
/// Most id blocks under one index block.
pub const ID_BLOCKS_PER_PART: usize = 64;
