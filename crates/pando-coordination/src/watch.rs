//! Watching a set of things by key.

use futures::stream::BoxStream;

/// A thing that is watched: what tells it from others of its sort.
pub trait Watched: Clone + Send + Sync + 'static {
    /// Its key.
    type Key: Clone + Ord + Send + Sync + std::fmt::Debug + 'static;
    /// This one's key.
    fn key(&self) -> Self::Key;
}

impl Watched for crate::Member {
    type Key = String;
    fn key(&self) -> String {
        self.node.clone()
    }
}

impl Watched for crate::HeadHint {
    type Key = uuid::Uuid;
    fn key(&self) -> uuid::Uuid {
        self.collection
    }
}

impl Watched for crate::DirtyHint {
    type Key = uuid::Uuid;
    fn key(&self) -> uuid::Uuid {
        self.collection
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent<T: Watched> {
    /// Everything there is now; forget what was told before. The first event, and again whenever events were lost.
    Reset(Vec<T>),
    /// New or changed.
    Put(T),
    /// No longer there.
    Gone(T::Key),
}

/// Events as they come, without an end while the coordinator lives. States may be skipped (only the newest matters)
/// and told twice.
pub type Watch<T> = BoxStream<'static, WatchEvent<T>>;
