//! The engine on a real directory, against a model in memory.

mod lifecycle;
mod send;
mod support;
