//! Directories and files for tests.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A directory that is removed when the handle is dropped. Panics if the system cannot give one: this is for tests.
pub fn temp_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("pando-test-").tempdir().expect("a temporary directory")
}

/// Flips the lowest bit of one byte of a file.
pub fn damage(file: &Path, at: u64) {
    let mut f = OpenOptions::new().read(true).write(true).open(file).expect("open a file to damage");
    let mut byte = [0u8];
    f.seek(SeekFrom::Start(at)).expect("seek");
    f.read_exact(&mut byte).expect("a byte to damage");
    f.seek(SeekFrom::Start(at)).expect("seek");
    f.write_all(&[byte[0] ^ 1]).expect("write");
}

/// Cuts a file to `len` bytes.
pub fn truncate(file: &Path, len: u64) {
    OpenOptions::new().write(true).open(file).and_then(|f| f.set_len(len)).expect("truncate a file");
}
