//! Laws and floors: crashes, determinism, recall. Each test uses the whole machine; nextest runs them one at a time.

mod crash;
mod determinism;
mod recall;
