//! The format from outside: golden bytes, damage, segments, ids. One binary, so that it links once.

mod common;
mod damage;
mod golden;
mod ids;
mod segments;
