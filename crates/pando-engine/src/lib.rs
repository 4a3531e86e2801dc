//! The collection engine: log, head, checkpoint, open root, tail and queries. Joins kernels, tree, format, store and coordination.

pub mod api;
mod engine;
pub mod environment;
pub mod error;
pub mod rootio;
mod settings;

pub use engine::{Engine, ProgressSink, ScanStream};
pub use error::{Error, ErrorKind, Result};
pub use settings::Settings;
