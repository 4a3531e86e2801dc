//! The log of a collection: numbered entries, each created if absent, and the heads that say which root covers them.

mod assemble;
pub mod belief;
mod floor;
mod heads;
mod reader;
mod writer;

pub use floor::{floor_after, newest_aged};
pub use heads::{newest_head, read_head};
pub use reader::{Fetched, fetch_entry, load_entry};
pub use writer::{CallOutcome, Write, Writer};
