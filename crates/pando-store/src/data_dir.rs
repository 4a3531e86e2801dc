//! A data directory: locked against a second server, with a place for temporary files.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{ErrorKind, StoreError};
use crate::keys::ObjectKind;

const LOCK: &str = "pando.lock";
const TEMP: &str = "tmp";
const OBJECTS: &str = "store";

/// A directory that this process owns as long as the handle (or a clone of it) lives. The lock is the operating
/// system's (`flock`), so it goes with the process, `kill -9` included; the lock *file* stays and means nothing.
#[derive(Clone, Debug)]
pub struct DataDir {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    next_temp: AtomicU64,
    _lock: File,
}

impl DataDir {
    /// Creates the directory where needed, locks it, and removes temporary files of an earlier process.
    /// [`ErrorKind::Locked`] if another server (or another handle in this process) holds it.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let fail = |what: &str, e: std::io::Error| {
            StoreError::new(
                ErrorKind::Unavailable,
                ObjectKind::Other,
                format!("{what} under {}: {e}", dir.display()),
            )
        };
        create_dir_durably(dir).map_err(|e| fail("create the data directory", e))?;
        let root = dir.canonicalize().map_err(|e| fail("resolve the data directory", e))?;
        let lock = lock(&root.join(LOCK))?;
        let temp = root.join(TEMP);
        // Only after the lock: another server's temporary files are not ours to remove.
        clean_temp(&temp).map_err(|e| fail("clean temporary files", e))?;
        for folder in [TEMP, OBJECTS] {
            create_dir_durably(&root.join(folder)).map_err(|e| fail("create a folder", e))?;
        }
        Ok(Self { inner: Arc::new(Inner { root, next_temp: AtomicU64::new(0), _lock: lock }) })
    }

    /// Where the objects of a local store lie.
    pub fn objects(&self) -> PathBuf {
        self.inner.root.join(OBJECTS)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.inner.root
    }

    /// A new temporary file under the directory. Removed when dropped, and at the next start if that fails.
    pub fn temp_file(&self) -> Result<TempFile, StoreError> {
        let temp = self.inner.root.join(TEMP);
        loop {
            let n = self.inner.next_temp.fetch_add(1, Relaxed);
            let path = temp.join(format!("{n:020}"));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(TempFile { file, path, _owner: self.clone() }),
                // A stray that could not be removed at the start.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(StoreError::new(
                        ErrorKind::Unavailable,
                        ObjectKind::Other,
                        format!("create {}: {e}", path.display()),
                    ));
                }
            }
        }
    }
}

/// A file for bytes on their way to the store, or for what does not fit into memory. Read and write it as a file.
#[derive(Debug)]
pub struct TempFile {
    file: File,
    path: PathBuf,
    // Keeps the lock while the file exists.
    _owner: DataDir,
}

impl TempFile {
    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it lies now.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Already gone when it was renamed into place; what stays is removed at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Write for TempFile {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.file.write(buf)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Read for TempFile {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.file.read(buf)
    }
}

impl Seek for TempFile {
    fn seek(&mut self, pos: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(pos)
    }
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let fail = |e: std::io::Error| {
        StoreError::new(ErrorKind::Unavailable, ObjectKind::Other, format!("lock {}: {e}", path.display()))
    };
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {
            // The pid is for the error message of whoever comes second; the lock itself is the kernel's.
            file.set_len(0).map_err(fail)?;
            writeln!(file, "{}", std::process::id()).map_err(fail)?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _ = file.take(32).read_to_string(&mut text);
            Err(StoreError::locked(text.trim().parse().ok(), format!("{} is locked", path.display())))
        }
        Err(TryLockError::Error(e)) => Err(fail(e)),
    }
}

fn clean_temp(temp: &Path) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(temp) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let mut removed = 0u64;
    for entry in entries {
        let entry = entry?;
        // A stray directory (`lost+found`, say) is nobody's business; it must not stop the start.
        match std::fs::remove_file(entry.path()) {
            Ok(()) => removed += 1,
            Err(e) => tracing::warn!(path = %entry.path().display(), error = %e, "stray entry left alone"),
        }
    }
    if removed > 0 {
        tracing::info!(files = removed, "removed temporary files of an earlier process");
    }
    Ok(())
}

/// Creates a directory and its missing parents, and makes their names durable.
pub(crate) fn create_dir_durably(dir: &Path) -> std::io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_dir_durably(parent)?;
    make_dir(dir)?;
    sync_dir(parent)
}

/// Creates one directory; one that is there already is fine. True if it is new.
pub(crate) fn make_dir(dir: &Path) -> std::io::Result<bool> {
    match std::fs::create_dir(dir) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(false),
        Err(e) => Err(e),
    }
}

/// Makes the names in a directory durable. Directories cannot be synced on Windows; there it does nothing.
pub(crate) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    File::open(dir)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}
