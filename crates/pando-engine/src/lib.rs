//! The collection engine: log, head, checkpoint, open root, tail and queries. Joins kernels, tree, format, store and coordination.

pub mod api;
pub mod block;
mod engine;
pub mod environment;
pub mod error;
pub mod rootio;
pub mod query;
pub mod root;
mod settings;
pub mod tail;
pub mod view;

pub use engine::{Engine, ProgressSink, ScanStream};
pub use error::{Error, ErrorKind, Result};
pub use settings::Settings;
