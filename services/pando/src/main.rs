//! The pando binary.
fn main() {}
