//! Targets of the fuzzers: each takes any bytes and must neither panic, nor take memory out of proportion to them, nor decode
//! one object from two encodings. `tests/mutations.rs` mutates seeds and corpora for a few seconds; `fuzz/` hands the same
//! targets to libFuzzer.

mod drive;
mod foreign;
mod stored;

/// The command line's readers of files, compiled in: they are no library.
#[path = "../../../services/pando/src/files/mod.rs"]
#[allow(dead_code, missing_docs)]
mod files;

/// One small object of every kind, with its decoder, from the tests of the format.
#[path = "../../../crates/pando-format/tests/format/common.rs"]
#[allow(dead_code, missing_docs)]
mod common;

pub use drive::{Mutator, corpus, corpus_folder};
pub use peak_alloc::PeakAlloc;

/// Takes bytes from anywhere; whether all of them made sense.
pub type Run = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// One decoder or reader.
pub struct Target {
    /// What it is called in `fuzz/` and in the corpora.
    pub name: String,
    /// Feeds it.
    pub run: Run,
    /// Well-formed inputs to start from.
    pub seeds: Vec<Vec<u8>>,
    /// Bytes of memory that any input may cost …
    pub base: usize,
    /// … and per byte of input.
    pub factor: usize,
}

/// All targets, by name.
pub fn targets() -> Vec<Target> {
    let mut all = stored::targets();
    all.extend(foreign::targets());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The target of this name.
pub fn target(name: &str) -> Target {
    let mut all = targets();
    let at = all.iter().position(|target| target.name == name);
    all.swap_remove(at.unwrap_or_else(|| panic!("there is no target {name}")))
}

impl Target {
    /// Runs an input and panics if it took more memory than it may. One at a time in a process.
    pub fn check(&self, allocator: &PeakAlloc, input: &[u8]) -> bool {
        let before = allocator.current_usage();
        allocator.reset_peak_usage();
        let whole = (self.run)(input);
        let taken = allocator.peak_usage().saturating_sub(before);
        let bound = self.base + self.factor * input.len();
        assert!(taken <= bound, "{}: {taken} bytes of memory for {} bytes of input", self.name, input.len());
        whole
    }
}
