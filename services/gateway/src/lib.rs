//! The gateway role: gRPC and Flight in front of the engine.
