//! An object that is open for reading.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use super::LocalError;

/// An opened object.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) meta: std::fs::Metadata,
}

impl Opened {
    /// Reads a range; shorter than asked for where the object ends: the caller compares lengths.
    pub(crate) fn read_range(&self, range: Range<u64>) -> Result<Bytes, LocalError> {
        let len = usize::try_from(range.end - range.start).map_err(|_| LocalError::NotApplied {
            what: "read the object",
            source: std::io::Error::other("range over the address space"),
        })?;
        let mut buf = vec![0u8; len];
        let mut done = 0;
        while done < len {
            match read_at(&self.file, &mut buf[done..], range.start + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(LocalError::NotApplied { what: "read the object", source }),
            }
        }
        buf.truncate(done);
        Ok(buf.into())
    }

    /// Fills `buf` from `offset` on without waiting for the disk: only if the system has all of it in memory.
    #[cfg(target_os = "linux")]
    pub(crate) fn read_from_memory(&self, offset: u64, buf: &mut [u8]) -> bool {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let mut done = 0;
        while done < buf.len() {
            let parts = &mut [std::io::IoSliceMut::new(&mut buf[done..])];
            match preadv2(&self.file, parts, offset + done as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => return false,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                // Not in memory, or not a file system that can tell.
                Err(_) => return false,
            }
        }
        true
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read_from_memory(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }
}

#[cfg(unix)]
fn read_at(file: &std::fs::File, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buf, offset)
}

#[cfg(windows)]
fn read_at(file: &std::fs::File, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buf, offset)
}
