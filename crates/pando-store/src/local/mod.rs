//! Objects as files in a directory, with the promise of an object store: what was acknowledged is durable, and
//! what can be read is durable too.
//!
//! `object_store`'s own local backend is not used, for three reasons. It leaves staging files among the objects
//! after a crash; here they lie in a folder of their own and are removed at the start. It lets a reader see an
//! object whose name is not yet on disk, so that a strong read could report a write that a power cut then undoes;
//! here such a reader waits. And when the sync of a name fails, a later look finds the object as if all was well,
//! although Linux reports a failed sync only once; here the store refuses all further work until a restart.
//!
//! A create costs two syncs, the file's and its directory's. Publishing is by hard link, which fails when the name
//! exists: that is the exclusive create. Content-addressed objects are published by rename.

mod handles;
mod object_store_impl;
mod opened;

pub(crate) use object_store_impl::LocalBackend;
pub(crate) use opened::Opened;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind as Io, Write};
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::data_dir::{DataDir, TempFile, make_dir, sync_dir};
use crate::error::ErrorKind;
use handles::Handles;

/// Why a local operation failed, in the terms that decide what a caller may conclude.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error("{what}: {source}")]
    NotApplied { what: &'static str, source: io::Error },
    #[error("{what}: {source}")]
    MaybeApplied { what: &'static str, source: io::Error },
    #[error("an earlier write could not be made durable; the server must be restarted")]
    Failed,
    #[error("no such object")]
    NotFound,
    #[error("not a name of an object")]
    BadName,
}

impl LocalError {
    pub(crate) fn read_kind(&self) -> ErrorKind {
        match self {
            Self::NotFound => ErrorKind::NotFound,
            Self::BadName => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn create_kind(&self) -> ErrorKind {
        match self {
            Self::MaybeApplied { .. } => ErrorKind::Unclear,
            Self::BadName => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        }
    }
}

fn not_applied(what: &'static str) -> impl FnOnce(io::Error) -> LocalError {
    move |source| LocalError::NotApplied { what, source }
}

/// The directory of a local store. Blocking; `object_store_impl` moves the work off the async threads.
#[derive(Debug)]
pub(crate) struct LocalDir {
    data: DataDir,
    root: PathBuf,
    /// Directories whose own name, and whose entries as they were when first touched, are known to be durable.
    durable: RwLock<HashSet<PathBuf>>,
    pending: Pending,
    handles: Handles,
    failed: AtomicBool,
}

/// Whether a write found the object there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Written,
    Existed,
}

impl LocalDir {
    pub(crate) fn new(data: DataDir) -> Self {
        let root = data.objects();
        Self {
            data,
            root,
            durable: RwLock::default(),
            pending: Pending::default(),
            handles: Handles::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Writes an object that must not exist yet.
    pub(crate) fn create<'a>(
        &self,
        key: &str,
        chunks: impl Iterator<Item = &'a Bytes>,
    ) -> Result<Applied, LocalError> {
        let (folder, path) = self.locate(key)?;
        self.check()?;
        // Spares the losers of a race, and late repeats, the cost of writing; the link below decides.
        if path.exists() {
            self.settled(&path)?;
            self.make_durable(&folder)?;
            return Ok(Applied::Existed);
        }
        let temp = self.filled_temp(chunks)?;
        self.make_durable(&folder)?;
        let _publishing = self.pending.begin(&path);
        match std::fs::hard_link(temp.path(), &path) {
            Ok(()) => {
                self.sync_names(&folder)?;
                Ok(Applied::Written)
            }
            Err(e) if e.kind() == Io::AlreadyExists => {
                // The winner may not have come to its sync yet. What we report as existing must last.
                self.sync_names(&folder)?;
                Ok(Applied::Existed)
            }
            Err(source) => Err(LocalError::NotApplied { what: "link the object", source }),
        }
    }

    /// Writes an object over whatever lies under its name.
    pub(crate) fn replace<'a>(
        &self,
        key: &str,
        chunks: impl Iterator<Item = &'a Bytes>,
    ) -> Result<(), LocalError> {
        let (folder, path) = self.locate(key)?;
        self.check()?;
        let temp = self.filled_temp(chunks)?;
        self.rename_into_place(temp, &folder, &path, key)
    }

    /// Publishes a complete temporary file, unless an object of the same length is there.
    pub(crate) fn publish(&self, key: &str, temp: TempFile, len: u64) -> Result<Applied, LocalError> {
        let (folder, path) = self.locate(key)?;
        self.check()?;
        match self.open(key) {
            Ok(opened) if opened.meta.len() == len => return Ok(Applied::Existed),
            Ok(_) | Err(LocalError::NotFound) => {}
            Err(e) => return Err(e),
        }
        self.publish_over(temp, &folder, &path, key)?;
        Ok(Applied::Written)
    }

    /// Publishes a complete temporary file over whatever lies under its name.
    pub(crate) fn publish_always(&self, key: &str, temp: TempFile) -> Result<(), LocalError> {
        let (folder, path) = self.locate(key)?;
        self.check()?;
        self.publish_over(temp, &folder, &path, key)
    }

    /// Opens an object for reading. What it returns is durable.
    pub(crate) fn open(&self, key: &str) -> Result<Opened, LocalError> {
        let (folder, path) = self.locate(key)?;
        self.check()?;
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), Io::NotFound | Io::NotADirectory) => {
                return Err(LocalError::NotFound);
            }
            Err(source) => return Err(LocalError::NotApplied { what: "open the object", source }),
        };
        let meta = file.metadata().map_err(not_applied("look at the object"))?;
        if !meta.is_file() {
            return Err(LocalError::NotFound);
        }
        self.settled(&path)?;
        self.make_durable(&folder)?;
        Ok(Opened { file, path, meta })
    }

    /// [`LocalDir::open`] for reads of parts of objects that are read often: they stay open for a while.
    pub(crate) fn open_to_stay(&self, key: &str) -> Result<Arc<Opened>, LocalError> {
        self.check()?;
        if let Some(opened) = self.handles.get(key) {
            return Ok(opened);
        }
        let changes = self.handles.changes();
        let opened = Arc::new(self.open(key)?);
        self.handles.keep(key, &opened, changes);
        Ok(opened)
    }

    /// An object that [`LocalDir::open_to_stay`] left open.
    pub(crate) fn kept_open(&self, key: &str) -> Option<Arc<Opened>> {
        self.check().ok()?;
        self.handles.get(key)
    }

    /// Removes an object. Not synced: an object that comes back after a power cut is collected again.
    pub(crate) fn remove(&self, key: &str) -> Result<(), LocalError> {
        let (_, path) = self.locate(key)?;
        self.check()?;
        let removed = std::fs::remove_file(&path);
        // An open file keeps its bytes on the disk.
        self.handles.forget(key);
        match removed {
            Ok(()) => Ok(()),
            Err(e) if matches!(e.kind(), Io::NotFound | Io::NotADirectory) => Err(LocalError::NotFound),
            Err(source) => Err(LocalError::MaybeApplied { what: "remove the object", source }),
        }
    }

    /// The objects of one folder, and its folders; strays are left out.
    pub(crate) fn read_folder(&self, folder: &str) -> Result<FolderEntries, LocalError> {
        self.check()?;
        let path = if folder.is_empty() { self.root.clone() } else { self.locate(folder)?.1 };
        let mut out = FolderEntries::default();
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if matches!(e.kind(), Io::NotFound | Io::NotADirectory) => return Ok(out),
            Err(source) => return Err(LocalError::NotApplied { what: "list a folder", source }),
        };
        for entry in entries {
            let entry = entry.map_err(not_applied("list a folder"))?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|n| safe_part(n)) else {
                tracing::debug!(path = %entry.path().display(), "stray entry ignored");
                continue;
            };
            let key = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            match std::fs::metadata(entry.path()) {
                Ok(meta) if meta.is_dir() => out.folders.push(key),
                Ok(meta) if meta.is_file() => out.objects.push((key, meta)),
                Ok(_) => {}
                // Deleted meanwhile, or a link to nowhere.
                Err(e) if e.kind() == Io::NotFound => {}
                Err(source) => return Err(LocalError::NotApplied { what: "look at an object", source }),
            }
        }
        Ok(out)
    }

    pub(crate) fn data_dir(&self) -> &DataDir {
        &self.data
    }

    fn locate(&self, key: &str) -> Result<(PathBuf, PathBuf), LocalError> {
        if key.is_empty() || !key.split('/').all(safe_part) {
            return Err(LocalError::BadName);
        }
        let path = self.root.join(key);
        let folder = path.parent().unwrap_or(&self.root).to_path_buf();
        Ok((folder, path))
    }

    fn check(&self) -> Result<(), LocalError> {
        if self.failed.load(SeqCst) { Err(LocalError::Failed) } else { Ok(()) }
    }

    fn filled_temp<'a>(&self, chunks: impl Iterator<Item = &'a Bytes>) -> Result<TempFile, LocalError> {
        let mut temp = self.data.temp_file().map_err(|e| LocalError::NotApplied {
            what: "create a temporary file",
            source: io::Error::other(e.internal().to_owned()),
        })?;
        for chunk in chunks {
            temp.write_all(chunk).map_err(not_applied("write the file"))?;
        }
        // Data and length; other attributes are nobody's business.
        temp.file().sync_data().map_err(not_applied("sync the file"))?;
        Ok(temp)
    }

    fn publish_over(
        &self,
        temp: TempFile,
        folder: &FsPath,
        path: &FsPath,
        key: &str,
    ) -> Result<(), LocalError> {
        temp.file().sync_data().map_err(not_applied("sync the file"))?;
        self.rename_into_place(temp, folder, path, key)
    }

    fn rename_into_place(
        &self,
        temp: TempFile,
        folder: &FsPath,
        path: &FsPath,
        key: &str,
    ) -> Result<(), LocalError> {
        self.make_durable(folder)?;
        let _publishing = self.pending.begin(path);
        std::fs::rename(temp.path(), path).map_err(not_applied("rename the object"))?;
        self.handles.forget(key);
        self.sync_names(folder)
    }

    /// Syncs a directory. A failure is final: Linux reports it once, and a second sync would lie.
    fn sync_names(&self, folder: &FsPath) -> Result<(), LocalError> {
        sync_dir(folder).map_err(|source| {
            self.failed.store(true, SeqCst);
            tracing::error!(error = %source, "a directory cannot be synced; the local store stops");
            LocalError::MaybeApplied { what: "sync the directory", source }
        })
    }

    /// Creates a directory if need be and makes it and its present entries durable, once per process.
    ///
    /// Present entries too: a process that was killed between the link and the sync left a name that can be read
    /// but may not last.
    fn make_durable(&self, folder: &FsPath) -> Result<(), LocalError> {
        if self.durable.read().contains(folder) {
            return Ok(());
        }
        let mut new = false;
        if folder != self.root {
            let parent = folder.parent().unwrap_or(&self.root);
            self.make_durable(parent)?;
            new = make_dir(folder).map_err(not_applied("create a folder"))?;
            self.sync_names(parent)?;
        }
        if !new {
            self.sync_names(folder)?;
        }
        self.durable.write().insert(folder.to_path_buf());
        Ok(())
    }

    /// Waits until nobody is in the middle of publishing `path`.
    fn settled(&self, path: &FsPath) -> Result<(), LocalError> {
        self.pending.wait(path);
        self.check()
    }

    /// As after a directory sync that failed.
    #[cfg(test)]
    pub(crate) fn fail_for_test(&self) {
        self.failed.store(true, SeqCst);
    }
}

/// What lies in one folder.
#[derive(Default)]
pub(crate) struct FolderEntries {
    pub(crate) objects: Vec<(String, std::fs::Metadata)>,
    pub(crate) folders: Vec<String>,
}

/// Names this crate's keys are made of; everything else in the directory is a stray. No leading dot: that
/// excludes `.` and `..`, too.
fn safe_part(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Objects whose names are linked but perhaps not durable yet. Few at any time.
#[derive(Debug, Default)]
struct Pending {
    count: AtomicUsize,
    paths: Mutex<Vec<PathBuf>>,
    done: Condvar,
}

impl Pending {
    fn begin(&self, path: &FsPath) -> Publishing<'_> {
        self.paths.lock().push(path.to_path_buf());
        self.count.fetch_add(1, SeqCst);
        Publishing { pending: self, path: path.to_path_buf() }
    }

    fn wait(&self, path: &FsPath) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        let mut paths = self.paths.lock();
        while paths.iter().any(|p| p == path) {
            self.done.wait(&mut paths);
        }
    }
}

struct Publishing<'a> {
    pending: &'a Pending,
    path: PathBuf,
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        let mut paths = self.pending.paths.lock();
        if let Some(at) = paths.iter().position(|p| *p == self.path) {
            paths.swap_remove(at);
        }
        self.pending.count.fetch_sub(1, SeqCst);
        self.pending.done.notify_all();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
