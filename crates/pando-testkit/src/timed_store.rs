//! A store whose clock the test moves, and whose listings may lag.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// The control of a store made by [`Timed::wrap`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Timed {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    now: SystemTime,
    lag: Duration,
    /// When each object was written, by path.
    written: HashMap<String, SystemTime>,
}

impl Default for Timed {
    fn default() -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let state = State { now, lag: Duration::ZERO, written: HashMap::new() };
        Self { shared: Arc::new(Mutex::new(state)) }
    }
}

impl Timed {
    /// A clock that stands still.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store whose objects were last modified by this clock.
    pub fn wrap(&self, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(TimedStore { inner, timed: self.clone() })
    }

    /// Moves the store's clock on.
    pub fn advance(&self, by: Duration) {
        self.shared.lock().now += by;
    }

    /// From now on listings do not show what was written within this time.
    pub fn lag(&self, lag: Duration) {
        self.shared.lock().lag = lag;
    }

    fn note(&self, path: &Path) {
        let mut state = self.shared.lock();
        let now = state.now;
        state.written.insert(path.to_string(), now);
    }

    fn meta(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if let Some(written) = self.shared.lock().written.get(meta.location.as_ref()) {
            meta.last_modified = (*written).into();
        }
        meta
    }

    fn shown(&self, meta: &ObjectMeta) -> bool {
        let state = self.shared.lock();
        let written = state.written.get(meta.location.as_ref());
        state.lag.is_zero() || written.is_none_or(|written| *written + state.lag <= state.now)
    }
}

#[derive(Debug)]
struct TimedStore {
    inner: Arc<dyn ObjectStore>,
    timed: Timed,
}

impl fmt::Display for TimedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for TimedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let out = self.inner.put_opts(location, payload, options).await?;
        self.timed.note(location);
        Ok(out)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let out = self.inner.put_multipart_opts(location, options).await?;
        // The time of the start: earlier than a real store's, by nothing while the clock stands still.
        self.timed.note(location);
        Ok(out)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let out = self.inner.get_opts(location, options).await?;
        Ok(GetResult { meta: self.timed.meta(out.meta.clone()), ..out })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (timed, shown) = (self.timed.clone(), self.timed.clone());
        let listed = self.inner.list(prefix).map_ok(move |meta| timed.meta(meta));
        listed
            .try_filter(move |meta| {
                let show = shown.shown(meta);
                async move { show }
            })
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let out = self.inner.list_with_delimiter(prefix).await?;
        let objects = out.objects.into_iter().map(|meta| self.timed.meta(meta)).collect();
        Ok(ListResult { objects, ..out })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await?;
        self.timed.note(to);
        Ok(())
    }
}
