//! Wire messages and services, generated from proto/pando/v1. Stored bytes have their own schema (pando-format).

mod values;

/// Version 1 of the API.
pub mod v1 {
    // Comments of the .proto files are the documentation.
    #![allow(missing_docs, clippy::all)]
    tonic::include_proto!("pando.v1");
}

/// The compiled .proto files, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pando_descriptor.bin"));

/// The largest message that is accepted or sent, in bytes: 64 MiB. Everything above is refused by name.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// What tonic itself is set to: the largest message plus room for its frame, so that a message that is somewhat too large is
/// refused by us, with words.
pub const MAX_WIRE_BYTES: usize = MAX_MESSAGE_BYTES + (16 << 20);
