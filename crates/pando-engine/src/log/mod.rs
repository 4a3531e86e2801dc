//! The log of a collection: numbered entries, each created if absent, and the heads that say which root covers them.

mod assemble;
// The writer and the reader still decide inline, rightly for a directory of their own only.
#[cfg_attr(not(test), expect(dead_code, reason = "to be called by writer and reader for shared stores"))]
pub mod belief;
mod heads;
mod reader;
mod writer;

pub use heads::{newest_head, read_head};
pub use reader::{Fetched, fetch_entry, load_entry};
pub use writer::{CallOutcome, Write, Writer};
