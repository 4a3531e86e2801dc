//! [`LocalDir`] as an [`ObjectStore`], so that wrappers (faults in tests, `pando copy`) fit on it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};
use parking_lot::Mutex;

use super::{Applied, LocalDir, LocalError};
use crate::data_dir::TempFile;

/// Up to this size an object is read in the same step as it is opened; larger ones are handed out as files.
const EAGER: u64 = 8 << 20;

/// A local directory as a backend. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LocalBackend(pub(crate) Arc<LocalDir>);

impl fmt::Display for LocalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalDir")
    }
}

fn wrap(path: &Path, error: LocalError) -> Error {
    match error {
        LocalError::NotFound => Error::NotFound { path: path.to_string(), source: Box::new(error) },
        error => Error::Generic { store: "LocalDir", source: Box::new(error) },
    }
}

fn meta_of(location: Path, meta: &std::fs::Metadata) -> Result<ObjectMeta> {
    let modified = meta.modified().map_err(|source| {
        wrap(&location, LocalError::NotApplied { what: "read the time of the object", source })
    })?;
    Ok(ObjectMeta { location, last_modified: modified.into(), size: meta.len(), e_tag: None, version: None })
}

impl LocalBackend {
    /// Runs blocking work on tokio's blocking threads.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&LocalDir, &str) -> Result<T, LocalError> + Send + 'static,
    ) -> Result<T> {
        let dir = Arc::clone(&self.0);
        let key = path.to_string();
        let out = tokio::task::spawn_blocking(move || work(&dir, &key)).await?;
        out.map_err(|e| wrap(path, e))
    }

    fn get(&self, location: &Path, options: &GetOptions) -> Result<GetResult> {
        // Parts of an object are often read again and again, whole objects once.
        let opened = match options.range {
            Some(_) => self.0.open_to_stay(location.as_ref()),
            None => self.0.open(location.as_ref()).map(Arc::new),
        };
        let opened = opened.map_err(|e| wrap(location, e))?;
        let meta = meta_of(location.clone(), &opened.meta)?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            // An empty object has no byte to start from; read whole, it is empty and not an error.
            None => 0..meta.size,
            Some(range) => range
                .as_range(meta.size)
                .map_err(|e| Error::Generic { store: "LocalDir", source: Box::new(e) })?,
        };
        let payload = if options.head {
            GetResultPayload::Stream(stream::empty().boxed())
        } else if range.end - range.start <= EAGER {
            let bytes = opened.read_range(range.clone()).map_err(|e| wrap(location, e))?;
            GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed())
        } else {
            // Its reader moves the file's offset: not one that others read.
            let alone = self.0.open(location.as_ref()).map_err(|e| wrap(location, e))?;
            GetResultPayload::File(alone.file, alone.path)
        };
        Ok(GetResult {
            payload,
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Default::default(),
        })
    }
}

fn put_result() -> PutResult {
    PutResult { e_tag: None, version: None, extensions: Default::default() }
}

#[async_trait]
impl ObjectStore for LocalBackend {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let applied = match options.mode {
            PutMode::Create => self.run(location, move |dir, key| dir.create(key, payload.iter())).await?,
            PutMode::Overwrite => {
                self.run(location, move |dir, key| dir.replace(key, payload.iter())).await?;
                Applied::Written
            }
            PutMode::Update(_) => {
                return Err(Error::NotImplemented {
                    operation: "update of an object".into(),
                    implementer: self.to_string(),
                });
            }
        };
        match applied {
            Applied::Written => Ok(put_result()),
            Applied::Existed => {
                Err(Error::AlreadyExists { path: location.to_string(), source: "the object is there".into() })
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let temp = self
            .run(location, |dir, _| {
                dir.data_dir().temp_file().map_err(|e| LocalError::NotApplied {
                    what: "create a temporary file",
                    source: std::io::Error::other(e.internal().to_owned()),
                })
            })
            .await?;
        Ok(Box::new(LocalUpload {
            backend: self.clone(),
            location: location.clone(),
            temp: Arc::new(Mutex::new(Some(temp))),
            len: 0,
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (backend, location) = (self.clone(), location.clone());
        tokio::task::spawn_blocking(move || backend.get(&location, &options)).await?
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let ranges = ranges.to_vec();
        self.run(location, move |dir, key| {
            let opened = dir.open_to_stay(key)?;
            let size = opened.meta.len();
            let clip = |r: Range<u64>| r.start.min(size)..r.end.min(size);
            ranges.into_iter().map(|r| opened.read_range(clip(r))).collect()
        })
        .await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let backend = self.clone();
        locations
            .and_then(move |location| {
                let backend = backend.clone();
                async move {
                    backend.run(&location, |dir, key| dir.remove(key)).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let backend = self.clone();
        let start = prefix.cloned().unwrap_or_default();
        // One folder at a time, so that memory follows the largest folder and not the store.
        stream::try_unfold(vec![start], move |mut folders| {
            let backend = backend.clone();
            async move {
                let Some(folder) = folders.pop() else { return Ok::<_, Error>(None) };
                let entries = backend.run(&folder, |dir, key| dir.read_folder(key)).await?;
                for name in entries.folders {
                    folders.push(Path::parse(name)?);
                }
                let objects = entries
                    .objects
                    .into_iter()
                    .map(|(key, meta)| meta_of(Path::parse(key)?, &meta))
                    .collect::<Result<Vec<_>>>()?;
                Ok(Some((stream::iter(objects.into_iter().map(Ok)), folders)))
            }
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let folder = prefix.cloned().unwrap_or_default();
        let entries = self.run(&folder, |dir, key| dir.read_folder(key)).await?;
        let mut out =
            ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
        for name in entries.folders {
            out.common_prefixes.push(Path::parse(name)?);
        }
        for (key, meta) in entries.objects {
            out.objects.push(meta_of(Path::parse(key)?, &meta)?);
        }
        Ok(out)
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".into(), implementer: self.to_string() })
    }
}

/// A multi-part upload: a temporary file that is renamed into place.
#[derive(Debug)]
struct LocalUpload {
    backend: LocalBackend,
    location: Path,
    temp: Arc<Mutex<Option<TempFile>>>,
    len: u64,
}

fn aborted() -> LocalError {
    LocalError::NotApplied { what: "upload", source: std::io::Error::other("the upload has ended") }
}

#[async_trait]
impl MultipartUpload for LocalUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        use std::io::{Seek, SeekFrom, Write};
        let offset = self.len;
        self.len += data.content_length() as u64;
        let (backend, location, temp) = (self.backend.clone(), self.location.clone(), Arc::clone(&self.temp));
        async move {
            backend
                .run(&location, move |_, _| {
                    let fail = |source| LocalError::NotApplied { what: "write the file", source };
                    let mut guard = temp.lock();
                    let file = guard.as_mut().ok_or_else(aborted)?;
                    file.seek(SeekFrom::Start(offset)).map_err(fail)?;
                    data.iter().try_for_each(|chunk| file.write_all(chunk)).map_err(fail)
                })
                .await
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let temp = Arc::clone(&self.temp);
        self.backend
            .run(&self.location, move |dir, key| {
                let temp = temp.lock().take().ok_or_else(aborted)?;
                dir.publish_always(key, temp)
            })
            .await?;
        Ok(put_result())
    }

    async fn abort(&mut self) -> Result<()> {
        self.temp.lock().take();
        Ok(())
    }
}
