//! The collection engine: log, head, checkpoint, open root, tail and queries. Joins kernels, tree, format, store and coordination.

pub mod api;
pub mod block;
mod catalog;
pub mod checkpoint;
mod collection;
mod compaction;
mod engine;
pub mod environment;
pub mod error;
pub mod rootio;
mod log;
pub mod query;
pub mod root;
mod settings;
pub mod tail;
mod validate;
pub mod verify;
pub mod view;

pub use engine::{Components, Engine, ProgressSink, ScanStream};
pub use error::{Error, ErrorKind, Result};
pub use settings::Settings;
