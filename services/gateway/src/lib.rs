//! The gateway role: gRPC and Arrow Flight in front of the engine, on one port; metrics and health on another.
//!
//! A call passes [`edge`](mod@edge) (deadline, limits of calls under way, panics, metrics), then its service checks limits, converts
//! the message, asks the engine and converts the answer. Errors are mapped in one place.

mod api;
mod convert;
mod dimensions;
mod edge;
mod errors;
mod flight;
mod http;
mod limits;
mod progress;
mod server;
mod settings;

pub use server::{Gateway, ServeError};
pub use settings::Settings;
