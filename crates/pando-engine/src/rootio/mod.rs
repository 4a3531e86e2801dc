//! Low-level readers of one collection's stored objects: verified blocks, manifests, nodes, segments, id runs, deaths.
//!
//! Everything that comes back was checked for length and hash (or page checksum) before it is handed out (law 2).
//! Nothing is cached here: the query path keeps decoded blocks in the block cache, a checkpoint reads each block once.
//! Readers are async and small; decoding large blocks belongs on a CPU pool (`block_on` from there runs the future on
//! the calling thread).

mod block;
mod deaths;
mod error;
mod ids;
mod nodes;
mod segment;

pub use block::RootIo;
pub use error::{damaged, damaged_at, stored, undecodable};
pub use ids::{IdRunCursor, newest_first};
pub use nodes::{Node, NodeLevels, NodePlace};
pub use segment::{SegmentReader, SegmentTable};
