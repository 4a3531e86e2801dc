//! The collection engine: log, head, checkpoint, open root, tail and queries. Joins kernels, tree, format, store and coordination.

pub mod api;
pub mod arena;
pub mod block;
mod catalog;
pub mod checkpoint;
mod collection;
mod compaction;
mod engine;
pub mod environment;
pub mod error;
mod gc;
mod log;
pub mod query;
pub mod root;
pub mod rootio;
mod settings;
pub mod tail;
mod validate;
pub mod verify;
pub mod view;
pub mod workers;

pub use engine::{Components, Engine, ProgressSink, ScanStream};
pub use error::{Error, ErrorKind, Result};
pub use settings::Settings;
