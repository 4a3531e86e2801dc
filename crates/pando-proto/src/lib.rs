//! Wire messages: gRPC services generated from proto/.
