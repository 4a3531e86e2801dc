//! Rust client of a Pando server: gRPC for calls, Arrow Flight for bulk loading.
//!
//! Writes carry an idempotency key and are repeated when the server is busy or does not answer; reads are repeated when it does
//! not answer. Both wait as long as the server asks.

mod client;
mod error;
mod ingest;
mod retry;

pub use client::{Client, ConnectOptions};
pub use error::{Error, Result};
pub use ingest::{Ingest, IngestOptions, IngestSummary};
pub use pando_proto::v1 as proto;
pub use retry::RetryPolicy;
pub use tonic::Code;
