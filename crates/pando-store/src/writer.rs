//! Objects too large for memory, whose name is the hash of their bytes and so is known last.

use std::io::{self, Read, Seek, SeekFrom, Write};

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions};

use crate::counters::Op;
use crate::data_dir::TempFile;
use crate::error::{ErrorKind, StoreError};
use crate::keys::{Key, ObjectKind};
use crate::retry::{read_error, within};
use crate::{PutOutcome, Result, Store};

/// Bytes gathered before they are hashed and handed to the file.
const BUFFER: usize = 1 << 20;
/// Bytes of one part of an upload. S3 takes at most 10,000 parts, so this carries 160 GB.
const PART: usize = 16 << 20;

/// Writes one object piece by piece: first to a temporary file under the data directory (or to memory, when the
/// store has none), then to the store under a key that is given at the end. Dropped unfinished, it leaves nothing.
///
/// Call [`ObjectWriter::write`] from async code, or [`ObjectWriter::write_blocking`] (also as [`std::io::Write`])
/// from worker threads.
#[derive(Debug)]
pub struct ObjectWriter {
    store: Store,
    kind: ObjectKind,
    buffer: Vec<u8>,
    /// Away while a blocking thread writes to it, for ever if that call was dropped.
    sink: Option<Sink>,
    len: u64,
}

#[derive(Debug)]
struct Sink {
    target: Target,
    hasher: blake3::Hasher,
}

#[derive(Debug)]
enum Target {
    File(TempFile),
    Memory(Vec<u8>),
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        match &mut self.target {
            Target::File(file) => file.write_all(bytes),
            Target::Memory(all) => {
                all.extend_from_slice(bytes);
                Ok(())
            }
        }
    }
}

impl Store {
    /// Starts an object. Blocking, but only for the creation of an empty file.
    pub fn writer(&self, kind: ObjectKind) -> Result<ObjectWriter> {
        let target = match self.data_dir() {
            Some(dir) => Target::File(dir.temp_file()?),
            None => Target::Memory(Vec::new()),
        };
        let sink = Sink { target, hasher: blake3::Hasher::new() };
        Ok(ObjectWriter { store: self.clone(), kind, buffer: Vec::new(), sink: Some(sink), len: 0 })
    }
}

impl ObjectWriter {
    /// Appends bytes. If the future is dropped midway the writer is unusable.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.buffer.len() < BUFFER { Ok(()) } else { self.drain().await }
    }

    /// Appends bytes, on the calling thread.
    pub fn write_blocking(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(|e| local_failure(self.kind, "write", &e))
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// BLAKE3 of the bytes so far.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = self.sink.as_ref().map(|s| s.hasher.clone()).unwrap_or_default();
        hasher.update(&self.buffer);
        *hasher.finalize().as_bytes()
    }

    /// Publishes the object under a key that holds the hash of its bytes. Skipped if an object of that name and
    /// length is there. When it returns, the object is durable.
    pub async fn finish(mut self, key: &Key) -> Result<PutOutcome> {
        if !self.buffer.is_empty() {
            self.drain().await?;
        }
        let sink = self.sink.take().ok_or_else(|| interrupted(self.kind))?;
        let store = self.store.clone();
        match sink.target {
            Target::Memory(bytes) => store.put_content_addressed(key, bytes.into()).await,
            Target::File(temp) => match &store.inner.local {
                Some(dir) => store.publish_local(dir, key, temp, self.len).await,
                None => upload(&store, key, temp, self.len).await,
            },
        }
    }

    async fn drain(&mut self) -> Result<()> {
        let mut sink = self.sink.take().ok_or_else(|| interrupted(self.kind))?;
        let buffer = std::mem::take(&mut self.buffer);
        if matches!(sink.target, Target::Memory(_)) {
            // Nothing blocks; and a simulation, which has no disk, must not come upon a thread of real time.
            let out = sink.write(&buffer);
            (self.sink, self.buffer) = (Some(sink), buffer);
            self.buffer.clear();
            return out.map_err(|e| local_failure(self.kind, "write", &e));
        }
        let work = tokio::task::spawn_blocking(move || {
            let out = sink.write(&buffer);
            (sink, buffer, out)
        });
        let (sink, mut buffer, out) = work.await.map_err(|_| interrupted(self.kind))?;
        out.map_err(|e| local_failure(self.kind, "write", &e))?;
        buffer.clear();
        self.buffer = buffer;
        self.sink = Some(sink);
        Ok(())
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        if self.buffer.len() >= BUFFER {
            let sink = self.sink.as_mut().ok_or_else(|| io::Error::other("an earlier write was cut off"))?;
            if let Err(e) = sink.write(&self.buffer) {
                // The file's length is unknown now; nothing more may come of this writer.
                self.sink = None;
                return Err(e);
            }
            self.buffer.clear();
        }
        Ok(bytes.len())
    }

    /// Does nothing: [`ObjectWriter::finish`] is what makes bytes durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn local_failure(kind: ObjectKind, what: &str, e: &io::Error) -> StoreError {
    StoreError::new(ErrorKind::Unavailable, kind, format!("{what} a temporary file: {e}"))
}

fn interrupted(kind: ObjectKind) -> StoreError {
    StoreError::new(ErrorKind::Invalid, kind, "an earlier write to this object failed or was cut off")
}

/// Sends a temporary file to a store elsewhere: one request when it is small, a multi-part upload otherwise.
async fn upload(store: &Store, key: &Key, temp: TempFile, len: u64) -> Result<PutOutcome> {
    let kind = key.kind();
    if len <= PART as u64 {
        let (_, bytes) = read_part(kind, temp, 0, len).await?;
        return store.put_content_addressed(key, bytes).await;
    }
    if store.is_present(key, len).await? {
        return Ok(PutOutcome::Present);
    }
    let path = store.path(key)?;
    let limit = store.inner.options.write_timeout;
    let begin = || async {
        let begun = store.inner.objects.put_multipart_opts(&path, PutMultipartOptions::default()).await;
        begun.map_err(|e| read_error(kind, e))
    };
    let mut upload = store.retried_for(kind, Op::Put, limit, begin).await?;
    let sent = send_parts(store, kind, upload.as_mut(), temp, len).await;
    if let Err(e) = sent {
        let clock = store.clock();
        // Best effort: what cannot be aborted now, the bucket's own rule for stale uploads removes.
        if !matches!(within(&**clock, limit, upload.abort()).await, Some(Ok(()))) {
            tracing::warn!(%key, "an unfinished upload stays behind");
        }
        return Err(e);
    }
    store.inner.instruments.written(kind, len);
    Ok(PutOutcome::Written)
}

async fn send_parts(
    store: &Store,
    kind: ObjectKind,
    upload: &mut dyn MultipartUpload,
    mut temp: TempFile,
    len: u64,
) -> Result<()> {
    let clock = store.clock();
    let limit = store.inner.options.write_timeout;
    let mut offset = 0;
    while offset < len {
        let bytes;
        (temp, bytes) = read_part(kind, temp, offset, (len - offset).min(PART as u64)).await?;
        offset += bytes.len() as u64;
        // A part cannot be sent twice through this interface; the backend retries it by itself.
        store.inner.instruments.request(kind, Op::Put);
        let sent = within(&**clock, limit, upload.put_part(bytes.into())).await;
        sent.unwrap_or_else(|| Err(timeout())).map_err(|e| read_error(kind, e))?;
    }
    store.inner.instruments.request(kind, Op::Put);
    let done = within(&**clock, limit, upload.complete()).await;
    done.unwrap_or_else(|| Err(timeout())).map_err(|e| read_error(kind, e))?;
    Ok(())
}

fn timeout() -> object_store::Error {
    object_store::Error::Generic { store: "upload", source: "no answer in time".into() }
}

async fn read_part(kind: ObjectKind, mut temp: TempFile, offset: u64, len: u64) -> Result<(TempFile, Bytes)> {
    let work = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0u8; len as usize];
        temp.seek(SeekFrom::Start(offset))?;
        temp.read_exact(&mut bytes)?;
        Ok::<_, io::Error>((temp, Bytes::from(bytes)))
    });
    let out = work.await.map_err(|_| interrupted(kind))?;
    out.map_err(|e| local_failure(kind, "read", &e))
}
