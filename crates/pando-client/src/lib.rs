//! Rust client: gRPC and Arrow Flight.
