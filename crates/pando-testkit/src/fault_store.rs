//! The wrapper that makes faults happen.

use std::fmt;
use std::future::{Future, pending};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};

use crate::faults::{Failure, Fault, FaultOp, Faults};

/// See [`Faults::wrap`].
#[derive(Debug)]
pub(crate) struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

impl FaultStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

fn failure(kind: Failure, path: &str) -> Error {
    let path = path.to_owned();
    let source = "injected fault".into();
    match kind {
        Failure::Unavailable => Error::Generic { store: "FaultStore", source },
        Failure::Conflict => Error::AlreadyExists { path, source },
        Failure::Precondition => Error::Precondition { path, source },
        Failure::NotFound => Error::NotFound { path, source },
        Failure::Denied => Error::PermissionDenied { path, source },
    }
}

/// Runs one request through its fault. `read` tells what becomes of an answer that is to be damaged.
async fn through<T>(
    faults: &Faults,
    op: FaultOp,
    path: &str,
    bytes: u64,
    work: impl Future<Output = Result<T>>,
    damage: fn(T, Fault) -> BoxFuture<'static, Result<T>>,
) -> Result<T> {
    let (request, fault) = faults.begin(op, path, bytes);
    let out = match fault {
        None => work.await,
        Some(Fault::FailBefore(kind)) => Err(failure(kind, path)),
        Some(Fault::FailAfter(kind)) => work.await.and(Err(failure(kind, path))),
        Some(Fault::Delay(time)) => {
            faults.clock().sleep(time).await;
            work.await
        }
        Some(Fault::HangBefore) => pending().await,
        Some(Fault::HangAfter) => {
            let _ = work.await;
            pending().await
        }
        Some(Fault::HoldBefore(gate)) => {
            gate.pass().await;
            work.await
        }
        Some(Fault::HoldAfter(gate)) => {
            let out = work.await;
            gate.pass().await;
            out
        }
        Some(fault @ (Fault::Truncate(_) | Fault::FlipByte(_))) => match work.await {
            Ok(answer) => damage(answer, fault).await,
            Err(e) => Err(e),
        },
    };
    faults.end(request, out.is_ok());
    out
}

fn undamaged<T: Send + 'static>(answer: T, _: Fault) -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Ok(answer) })
}

fn damage_bytes(bytes: &Bytes, fault: &Fault) -> Bytes {
    match fault {
        Fault::Truncate(less) => bytes.slice(..bytes.len().saturating_sub(*less)),
        Fault::FlipByte(at) if !bytes.is_empty() => {
            let mut copy = bytes.to_vec();
            let at = at % copy.len();
            copy[at] ^= 1;
            copy.into()
        }
        _ => bytes.clone(),
    }
}

fn damage_get(answer: GetResult, fault: Fault) -> BoxFuture<'static, Result<GetResult>> {
    Box::pin(async move {
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        let (attributes, extensions) = (answer.attributes.clone(), answer.extensions.clone());
        let bytes = damage_bytes(&answer.bytes().await?, &fault);
        let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    })
}

fn damage_ranges(mut answer: Vec<Bytes>, fault: Fault) -> BoxFuture<'static, Result<Vec<Bytes>>> {
    if let Some(last) = answer.last_mut() {
        *last = damage_bytes(last, &fault);
    }
    Box::pin(async { Ok(answer) })
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let op = if options.mode == PutMode::Create { FaultOp::Create } else { FaultOp::Put };
        let bytes = payload.content_length() as u64;
        let work = self.inner.put_opts(location, payload, options);
        through(&self.faults, op, location.as_ref(), bytes, work, undamaged).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let work = self.inner.put_multipart_opts(location, options);
        let inner = through(&self.faults, FaultOp::Upload, location.as_ref(), 0, work, undamaged).await?;
        Ok(Box::new(FaultUpload { inner, faults: self.faults.clone(), path: location.to_string() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let op = if options.head { FaultOp::Head } else { FaultOp::Get };
        let bytes = match &options.range {
            Some(object_store::GetRange::Bounded(range)) => range.end.saturating_sub(range.start),
            _ => 0,
        };
        let work = self.inner.get_opts(location, options);
        through(&self.faults, op, location.as_ref(), bytes, work, damage_get).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = ranges.iter().map(|r| r.end.saturating_sub(r.start)).sum();
        let work = self.inner.get_ranges(location, ranges);
        through(&self.faults, FaultOp::Get, location.as_ref(), bytes, work, damage_ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, faults) = (Arc::clone(&self.inner), self.faults.clone());
        locations
            .and_then(move |location| {
                let (inner, faults) = (Arc::clone(&inner), faults.clone());
                async move {
                    let work = inner.delete(&location);
                    through(&faults, FaultOp::Delete, location.as_ref(), 0, work, undamaged).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.map(Path::to_string).unwrap_or_default();
        let (faults, inner) = (self.faults.clone(), self.inner.list(prefix));
        stream::once(async move {
            let work = async { Ok(inner) };
            through(&faults, FaultOp::List, &path, 0, work, undamaged).await
        })
        .try_flatten()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.map(Path::to_string).unwrap_or_default();
        let work = self.inner.list_with_delimiter(prefix);
        through(&self.faults, FaultOp::List, &path, 0, work, undamaged).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let work = self.inner.copy_opts(from, to, options);
        through(&self.faults, FaultOp::Put, to.as_ref(), 0, work, undamaged).await
    }
}

#[derive(Debug)]
struct FaultUpload {
    inner: Box<dyn MultipartUpload>,
    faults: Faults,
    path: String,
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        let work = self.inner.put_part(data);
        let (faults, path) = (self.faults.clone(), self.path.clone());
        async move { through(&faults, FaultOp::Upload, &path, bytes, work, undamaged).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let work = self.inner.complete();
        through(&self.faults, FaultOp::Upload, &self.path, 0, work, undamaged).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
