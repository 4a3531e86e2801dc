//! What a person, a script or a program in another language meets: the command line, gRPC and Flight of a running server.

mod bad_files;
mod bad_requests;
mod bench;
mod cli;
mod ids;
mod ingest;
mod python;
mod reads;
mod serve;
