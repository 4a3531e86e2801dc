//! The handle that everything above storage works with.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as BackendError, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use uuid::Uuid;

use crate::clock::{Clock, SystemClock};
use crate::counters::{Counters, Instruments, Op};
use crate::data_dir::DataDir;
use crate::error::{ErrorKind, StoreError};
use crate::keys::{Folder, Hex, Key, ObjectKind};
use crate::local::{LocalBackend, LocalDir};
use crate::retry::{backoff, create_error, read_error, within};
use crate::{Result, local};

/// How a store waits.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Time for timeouts, back-off and request durations.
    pub clock: Arc<dyn Clock>,
    /// Limit of one attempt of a read, a delete or a page of a listing. Trade: too short and a slow store is asked
    /// again for what it was about to answer. Default 20 s.
    pub read_timeout: Duration,
    /// How often a read or an idempotent write is tried in all. Default 5.
    pub read_attempts: u32,
    /// Pause before the second attempt; doubles from then on. Default 50 ms.
    pub backoff: Duration,
    /// Longest pause. Default 2 s.
    pub max_backoff: Duration,
    /// Limit of one write request; a create that passes it is [`ErrorKind::Unclear`]. Default 60 s.
    pub write_timeout: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            clock: SystemClock::shared(),
            read_timeout: Duration::from_secs(20),
            read_attempts: 5,
            backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(2),
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// What a create found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The object is ours and durable.
    Created,
    /// An object is there; it was not touched. It may still be our own, from an attempt whose answer was lost:
    /// only reading it tells (DESIGN section 4).
    Exists,
}

/// What a content-addressed put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object was written.
    Written,
    /// An object of the same name and length was there.
    Present,
}

/// Size and age of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// In bytes.
    pub size: u64,
    /// By the store's clock. Compare it only with others of the same store.
    pub last_modified: SystemTime,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// In bytes.
    pub size: u64,
    /// By the store's clock.
    pub last_modified: SystemTime,
}

/// A handle on one store. Cheap to clone; clones share counters.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Set when `objects` is this directory and nothing lies in between.
    pub(crate) local: Option<Arc<LocalDir>>,
    pub(crate) prefix: String,
    pub(crate) data_dir: Option<DataDir>,
    pub(crate) options: StoreOptions,
    pub(crate) instruments: Instruments,
    salt: AtomicU64,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({}, {:?})", self.inner.objects, self.inner.prefix)
    }
}

impl Store {
    /// Opens (and creates, where needed) a local directory, alone: [`ErrorKind::Locked`] if another server has it.
    /// Objects lie under `<dir>/store/`, temporary files under `<dir>/tmp/`; blocking, for start-up.
    pub fn open_local(dir: &FsPath, options: StoreOptions) -> Result<Self> {
        let data = DataDir::open(dir)?;
        let local = Arc::new(LocalDir::new(data.clone()));
        let backend = Arc::new(LocalBackend(Arc::clone(&local)));
        Ok(Self::assemble(backend, Some(local), String::new(), Some(data), options))
    }

    /// A store on any backend. `prefix` is a path without slashes at its ends, or empty. `data_dir` takes the
    /// temporary files of [`Store::writer`]; without one they are kept in memory.
    ///
    /// The backend's own retries must be off or bounded well below [`StoreOptions::write_timeout`]; an
    /// `AlreadyExists` that follows such a retry is taken for what it is, a reason to read the object.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        prefix: &str,
        data_dir: Option<DataDir>,
        options: StoreOptions,
    ) -> Result<Self> {
        let clean = Path::parse(prefix).map_err(|e| {
            StoreError::new(ErrorKind::Invalid, ObjectKind::Other, format!("prefix {prefix:?}: {e}"))
        })?;
        Ok(Self::assemble(objects, None, clean.to_string(), data_dir, options))
    }

    /// A local directory seen through wrappers, such as injected faults. Reads and writes take the wrapped way
    /// throughout, and the store does not count as solely owned.
    pub fn open_local_wrapped(
        dir: &FsPath,
        options: StoreOptions,
        wrap: impl FnOnce(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>,
    ) -> Result<Self> {
        let data = DataDir::open(dir)?;
        let backend = Arc::new(LocalBackend(Arc::new(LocalDir::new(data.clone()))));
        Ok(Self::assemble(wrap(backend), None, String::new(), Some(data), options))
    }

    /// An empty store in memory, for tests.
    pub fn in_memory() -> Self {
        let objects = Arc::new(object_store::memory::InMemory::new());
        Self::assemble(objects, None, String::new(), None, StoreOptions::default())
    }

    fn assemble(
        objects: Arc<dyn ObjectStore>,
        local: Option<Arc<LocalDir>>,
        prefix: String,
        data_dir: Option<DataDir>,
        options: StoreOptions,
    ) -> Self {
        let inner = Inner {
            objects,
            local,
            prefix,
            data_dir,
            options,
            instruments: Instruments::new(),
            salt: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// True if nobody else can write to this store while the handle lives (a locked local directory), so that what
    /// this process knows of a log's end is the end.
    pub fn sole_owner(&self) -> bool {
        self.inner.local.is_some()
    }

    /// The data directory, if the store has one.
    pub fn data_dir(&self) -> Option<&DataDir> {
        self.inner.data_dir.as_ref()
    }

    /// The clock that the store waits by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.options.clock
    }

    /// Requests and bytes so far.
    pub fn counters(&self) -> Counters {
        self.inner.instruments.snapshot()
    }

    /// Reads a whole object.
    ///
    /// An object over [`ObjectKind::max_whole_read`] is [`ErrorKind::Corrupt`], not a reason to take the memory.
    pub async fn get(&self, key: &Key) -> Result<Bytes> {
        let kind = key.kind();
        let path = self.path(key)?;
        let read = || async {
            let answer = self.inner.objects.get_opts(&path, GetOptions::default()).await;
            let answer = answer.map_err(|e| read_error(kind, e))?;
            let size = answer.meta.size;
            if size > kind.max_whole_read() {
                return Err(StoreError::corrupt(kind, format!("{key}: {size} bytes, over the limit")));
            }
            let bytes = answer.bytes().await.map_err(|e| read_error(kind, e))?;
            exact(kind, key, size, bytes)
        };
        let bytes = self.retried(kind, Op::Get, read).await?;
        self.inner.instruments.read(kind, bytes.len() as u64);
        Ok(bytes)
    }

    /// [`Store::get`] for objects that may be absent.
    pub async fn try_get(&self, key: &Key) -> Result<Option<Bytes>> {
        optional(self.get(key).await)
    }

    /// Reads bytes `range` of an object: all of them, or [`ErrorKind::TooShort`].
    pub async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Bytes> {
        let kind = key.kind();
        let len = range_len(key, &range)?;
        let path = self.path(key)?;
        let read = || async {
            let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
            let answer = match self.inner.objects.get_opts(&path, options).await {
                Ok(answer) => answer,
                Err(e) => return Err(self.refine_range_error(kind, key, &path, &range, e).await),
            };
            let bytes = answer.bytes().await.map_err(|e| read_error(kind, e))?;
            exact(kind, key, len, bytes)
        };
        let bytes = self.retried(kind, Op::Get, read).await?;
        self.inner.instruments.read(kind, len);
        Ok(bytes)
    }

    /// Reads several ranges of one object, in the order given; each whole, or an error for all. Neighbouring
    /// ranges are fetched together where the backend gains by it. Counts as one request.
    pub async fn get_ranges(&self, key: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if let [range] = ranges {
            return Ok(vec![self.get_range(key, range.clone()).await?]);
        }
        let kind = key.kind();
        let mut total = 0;
        for range in ranges {
            total += range_len(key, range)?;
        }
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let path = self.path(key)?;
        let read = || async {
            let parts = match self.inner.objects.get_ranges(&path, ranges).await {
                Ok(parts) => parts,
                Err(e) => {
                    let last = ranges.iter().max_by_key(|r| r.end).unwrap_or(&ranges[0]);
                    return Err(self.refine_range_error(kind, key, &path, last, e).await);
                }
            };
            if parts.len() != ranges.len() {
                return Err(StoreError::new(ErrorKind::TooShort, kind, format!("{key}: ranges are missing")));
            }
            let whole = parts.into_iter().zip(ranges).map(|(p, r)| exact(kind, key, r.end - r.start, p));
            whole.collect()
        };
        let parts = self.retried(kind, Op::Get, read).await?;
        self.inner.instruments.read(kind, total);
        Ok(parts)
    }

    /// Reads a block by its reference and checks it: BLAKE3 of its bytes must be `hash`. A block that fails is read
    /// once more, in case it was damaged on the way; then it is [`ErrorKind::Corrupt`].
    pub async fn get_block(&self, key: &Key, offset: u64, len: u32, hash: &[u8; 32]) -> Result<Bytes> {
        let range = block_range(key, offset, len)?;
        for attempt in 0..2 {
            let bytes = self.get_range(key, range.clone()).await?;
            if blake3::hash(&bytes) == *hash {
                return Ok(bytes);
            }
            if attempt == 0 {
                tracing::warn!(%key, offset, len, "a block fails its checksum; reading it again");
            }
        }
        self.inner.instruments.error(key.kind());
        Err(StoreError::corrupt(
            key.kind(),
            format!("{key} bytes {}..{}: not the content named {}", range.start, range.end, Hex(hash)),
        ))
    }

    /// Size and age of an object.
    pub async fn head(&self, key: &Key) -> Result<ObjectInfo> {
        let kind = key.kind();
        let path = self.path(key)?;
        let meta = self
            .retried(kind, Op::Head, || async {
                self.inner.objects.head(&path).await.map_err(|e| read_error(kind, e))
            })
            .await?;
        Ok(ObjectInfo { size: meta.size, last_modified: meta.last_modified.into() })
    }

    /// [`Store::head`] for objects that may be absent.
    pub async fn try_head(&self, key: &Key) -> Result<Option<ObjectInfo>> {
        optional(self.head(key).await)
    }

    /// Creates an object that must not exist: the primitive that carries all decisions. One request, no retry.
    ///
    /// `Ok` is certain. [`ErrorKind::Unclear`] means that the object may be there or come to be there: read it.
    /// Any other error means that nothing was and will be written.
    pub async fn create_if_absent(&self, key: &Key, bytes: Bytes) -> Result<CreateOutcome> {
        let kind = key.kind();
        let path = self.path(key)?;
        let len = bytes.len() as u64;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.inner.objects.put_opts(&path, bytes.into(), options);
        match self.timed(kind, Op::Create, self.inner.options.write_timeout, put).await {
            Some(Ok(_)) => {
                self.inner.instruments.written(kind, len);
                Ok(CreateOutcome::Created)
            }
            Some(Err(BackendError::AlreadyExists { .. } | BackendError::Precondition { .. })) => {
                Ok(CreateOutcome::Exists)
            }
            Some(Err(e)) => {
                self.inner.instruments.error(kind);
                let error = create_error(kind, e);
                tracing::warn!(%key, error = ?error, "create failed");
                Err(error)
            }
            None => {
                self.inner.instruments.error(kind);
                tracing::warn!(%key, "create timed out");
                Err(StoreError::new(ErrorKind::Unclear, kind, format!("create {key}: no answer in time")))
            }
        }
    }

    /// Writes an object whose key holds the hash of its bytes. Skipped if an object of that name and length is
    /// there; one of another length is a torn write and is replaced. Repeating it is harmless, so it is retried.
    pub async fn put_content_addressed(&self, key: &Key, bytes: Bytes) -> Result<PutOutcome> {
        let kind = key.kind();
        if self.is_present(key, bytes.len() as u64).await? {
            return Ok(PutOutcome::Present);
        }
        let path = self.path(key)?;
        let len = bytes.len() as u64;
        let write = || async {
            let options = PutOptions::default();
            let put = self.inner.objects.put_opts(&path, bytes.clone().into(), options);
            put.await.map_err(|e| read_error(kind, e))
        };
        self.retried_for(kind, Op::Put, self.inner.options.write_timeout, write).await?;
        self.inner.instruments.written(kind, len);
        Ok(PutOutcome::Written)
    }

    /// True if an object of this key and length is there.
    pub(crate) async fn is_present(&self, key: &Key, len: u64) -> Result<bool> {
        let Some(info) = self.try_head(key).await? else { return Ok(false) };
        if info.size != len {
            tracing::warn!(%key, size = info.size, expected = len, "a torn object is replaced");
        }
        Ok(info.size == len)
    }

    /// Deletes an object; one that is absent is fine. Only garbage collection and the probe delete.
    pub async fn delete(&self, key: &Key) -> Result<()> {
        let kind = key.kind();
        let path = self.path(key)?;
        let delete = || async { self.inner.objects.delete(&path).await.map_err(|e| read_error(kind, e)) };
        optional(self.retried(kind, Op::Delete, delete).await).map(|_| ())
    }

    /// Lists a folder, in no order. What does not parse as a key is skipped. A listing may miss what is written
    /// meanwhile, and is not retried: it ends with an error instead of passing for complete, also when storage falls
    /// silent for longer than a read may take.
    pub fn list(&self, folder: &Folder) -> BoxStream<'static, Result<Listed>> {
        let kind = folder.kind();
        let path = match self.folder_path(folder) {
            Ok(path) => path,
            Err(e) => return futures::stream::once(async { Err(e) }).boxed(),
        };
        self.inner.instruments.request(kind, Op::List);
        let found = self.inner.objects.list(Some(&path));
        let store = self.clone();
        // Over after the first silence.
        let found = futures::stream::unfold(Some((found, store.clone())), move |state| async move {
            let (mut found, store) = state?;
            let options = &store.inner.options;
            match within(&*options.clock, options.read_timeout, found.next()).await {
                Some(next) => Some((next?.map_err(|e| read_error(kind, e)), Some((found, store)))),
                None => Some((Err(StoreError::new(ErrorKind::Unavailable, kind, "no answer in time")), None)),
            }
        });
        found
            .try_filter_map(move |meta| {
                let listed = store.parse_location(&meta.location).map(|key| Listed {
                    key,
                    size: meta.size,
                    last_modified: meta.last_modified.into(),
                });
                async { Ok(listed) }
            })
            .boxed()
    }

    /// All collection names that were ever given, sorted. Whether a name has an owner now, its newest number says.
    pub async fn list_names(&self) -> Result<Vec<String>> {
        let path = self.folder_path(&Folder::Names)?;
        let list = || async {
            let found = self.inner.objects.list_with_delimiter(Some(&path)).await;
            found.map_err(|e| read_error(ObjectKind::Name, e))
        };
        let found = self.retried(ObjectKind::Name, Op::List, list).await?;
        let last = |p: &Path| p.filename().map(str::to_owned);
        let mut names: Vec<String> = found.common_prefixes.iter().filter_map(last).collect();
        names.retain(|name| crate::keys::valid_name(name));
        names.sort_unstable();
        Ok(names)
    }

    /// Every collection that has any object, dropped ones included, sorted. Serves upkeep; nothing is decided by it.
    pub async fn list_collections(&self) -> Result<Vec<Uuid>> {
        let path = self.folder_path(&Folder::All)?;
        let list = || async {
            let found = self.inner.objects.list_with_delimiter(Some(&path)).await;
            found.map_err(|e| read_error(ObjectKind::Record, e))
        };
        let found = self.retried(ObjectKind::Record, Op::List, list).await?;
        let parse = |p: &Path| {
            let name = p.filename()?;
            Uuid::try_parse(name).ok().filter(|uuid| uuid.to_string() == name)
        };
        let mut uuids: Vec<Uuid> = found.common_prefixes.iter().filter_map(parse).collect();
        uuids.sort_unstable();
        Ok(uuids)
    }

    pub(crate) fn path(&self, key: &Key) -> Result<Path> {
        let full = self.joined(&key.path());
        Path::parse(&full)
            .map_err(|e| StoreError::new(ErrorKind::Invalid, key.kind(), format!("{full}: {e}")))
    }

    fn folder_path(&self, folder: &Folder) -> Result<Path> {
        let full = self.joined(&folder.path());
        Path::parse(&full)
            .map_err(|e| StoreError::new(ErrorKind::Invalid, folder.kind(), format!("{full}: {e}")))
    }

    fn joined(&self, path: &str) -> String {
        match (self.inner.prefix.as_str(), path) {
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}/{path}"),
        }
    }

    fn parse_location(&self, location: &Path) -> Option<Key> {
        let full = location.as_ref();
        let path = match self.inner.prefix.as_str() {
            "" => full,
            prefix => full.strip_prefix(prefix)?.strip_prefix('/')?,
        };
        let key = Key::parse(path);
        if key.is_none() {
            tracing::debug!(path, "stray object ignored");
        }
        key
    }

    /// A range past the end is answered in a backend's own words; find out whether that is what happened.
    async fn refine_range_error(
        &self,
        kind: ObjectKind,
        key: &Key,
        path: &Path,
        range: &Range<u64>,
        error: BackendError,
    ) -> StoreError {
        let error = read_error(kind, error);
        if error.kind() != ErrorKind::Unavailable {
            return error;
        }
        match self.inner.objects.head(path).await {
            Ok(meta) if meta.size < range.end => StoreError::new(
                ErrorKind::TooShort,
                kind,
                format!("{key}: {} bytes, asked for {}..{}", meta.size, range.start, range.end),
            ),
            _ => error,
        }
    }

    async fn retried<T, F: Future<Output = Result<T>>>(
        &self,
        kind: ObjectKind,
        op: Op,
        attempt: impl FnMut() -> F,
    ) -> Result<T> {
        self.retried_for(kind, op, self.inner.options.read_timeout, attempt).await
    }

    /// Runs an idempotent request until it gives an answer that trying again would not change.
    pub(crate) async fn retried_for<T, F: Future<Output = Result<T>>>(
        &self,
        kind: ObjectKind,
        op: Op,
        limit: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T> {
        let options = &self.inner.options;
        let salt = self.inner.salt.fetch_add(1, Relaxed);
        let mut tried = 0;
        loop {
            tried += 1;
            let error = match self.timed(kind, op, limit, attempt()).await {
                Some(Ok(out)) => return Ok(out),
                Some(Err(e)) => e,
                None => StoreError::new(ErrorKind::Unavailable, kind, "no answer in time"),
            };
            // A short answer may be a connection that broke midway; twice short, and the object is short.
            let again = error.is_transient() || (error.kind() == ErrorKind::TooShort && tried < 2);
            if !again || tried >= options.read_attempts.max(1) {
                if !error.is_not_found() {
                    self.inner.instruments.error(kind);
                    tracing::warn!(?op, tried, error = ?error, "storage request failed");
                }
                return Err(error);
            }
            self.inner.instruments.retry(kind);
            options.clock.sleep(backoff(options.backoff, options.max_backoff, tried, salt)).await;
        }
    }

    async fn timed<T>(
        &self,
        kind: ObjectKind,
        op: Op,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let clock = &*self.inner.options.clock;
        self.inner.instruments.request(kind, op);
        let start = clock.now();
        let out = within(clock, limit, work).await;
        self.inner.instruments.took(op, clock.now().saturating_sub(start));
        out
    }

    /// Publishes a temporary file without copying it, where the store is the directory it lies in.
    pub(crate) async fn publish_local(
        &self,
        dir: &Arc<LocalDir>,
        key: &Key,
        temp: crate::data_dir::TempFile,
        len: u64,
    ) -> Result<PutOutcome> {
        let kind = key.kind();
        let path = self.path(key)?;
        let backend = LocalBackend(Arc::clone(dir));
        let work = backend.run(&path, move |dir, name| dir.publish(name, temp, len));
        match self.timed(kind, Op::Put, self.inner.options.write_timeout, work).await {
            Some(Ok(local::Applied::Written)) => {
                self.inner.instruments.written(kind, len);
                Ok(PutOutcome::Written)
            }
            Some(Ok(local::Applied::Existed)) => Ok(PutOutcome::Present),
            Some(Err(e)) => Err(read_error(kind, e)),
            None => Err(StoreError::new(ErrorKind::Unavailable, kind, "no answer in time")),
        }
    }
}

fn optional<T>(out: Result<T>) -> Result<Option<T>> {
    match out {
        Ok(out) => Ok(Some(out)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

fn exact(kind: ObjectKind, key: &Key, expected: u64, bytes: Bytes) -> Result<Bytes> {
    if bytes.len() as u64 == expected {
        return Ok(bytes);
    }
    let detail = format!("{key}: {} bytes came, {expected} expected", bytes.len());
    Err(StoreError::new(ErrorKind::TooShort, kind, detail))
}

fn range_len(key: &Key, range: &Range<u64>) -> Result<u64> {
    match range.end.checked_sub(range.start) {
        Some(len) if len > 0 => Ok(len),
        _ => Err(StoreError::new(
            ErrorKind::Invalid,
            key.kind(),
            format!("{key}: empty range {}..{}", range.start, range.end),
        )),
    }
}

fn block_range(key: &Key, offset: u64, len: u32) -> Result<Range<u64>> {
    let end = offset.checked_add(u64::from(len));
    end.map(|end| offset..end).ok_or_else(|| {
        StoreError::new(ErrorKind::Invalid, key.kind(), format!("{key}: block at {offset} overflows"))
    })
}
