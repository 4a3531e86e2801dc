//! The engine: every collection of one store, on one node.

use std::sync::Arc;

use crate::api::*;
use crate::error::Result;

/// Every collection of one store. Cheap to clone behind [`Arc`]; all methods are cancel-safe: a write that was handed to the
/// log goes on in its own task when the caller leaves.
pub struct Engine {}

/// A stream of pages of one scan, all of one position.
pub type ScanStream = futures::stream::BoxStream<'static, Result<ScanPage>>;
/// Told of the progress of long work.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

#[allow(unused_variables)]
impl Engine {
    /// Creates a collection. ALREADY_EXISTS when the name is taken.
    pub async fn create_collection(&self, create: CreateCollection) -> Result<CollectionDescription> {
        todo!()
    }
    /// Describes a collection.
    pub async fn describe(&self, collection: &str) -> Result<CollectionDescription> {
        todo!()
    }
    /// Names of all collections, sorted.
    pub async fn list_collections(&self) -> Result<Vec<String>> {
        todo!()
    }
    /// Closes and drops a collection; its name is free afterwards.
    pub async fn delete_collection(&self, collection: &str) -> Result<()> {
        todo!()
    }
    /// Inserts or replaces whole records; durable when it returns. One call is one entry: all or nothing.
    pub async fn upsert(&self, collection: &str, rows: Rows, idempotency_key: Option<String>) -> Result<WriteOutcome> {
        todo!()
    }
    /// Deletes records by id; ids that do not exist count 0. An empty list deletes nothing.
    pub async fn delete_ids(
        &self,
        collection: &str,
        ids: Vec<RecordId>,
        idempotency_key: Option<String>,
    ) -> Result<WriteOutcome> {
        todo!()
    }
    /// Records by id, in the order asked for.
    pub async fn fetch(
        &self,
        collection: &str,
        ids: Vec<RecordId>,
        include: Include,
        consistency: Consistency,
        at: At,
    ) -> Result<FetchAnswer> {
        todo!()
    }
    /// Searches; one answer per query vector, all of one position.
    pub async fn query(&self, request: QueryRequest) -> Result<Vec<QueryAnswer>> {
        todo!()
    }
    /// Every live record of one position, in id order.
    pub async fn scan(
        &self,
        collection: &str,
        include: Include,
        consistency: Consistency,
        at: At,
        page_size: u32,
    ) -> Result<ScanStream> {
        todo!()
    }
    /// Live records.
    pub async fn count(&self, collection: &str, consistency: Consistency, at: At) -> Result<CountAnswer> {
        todo!()
    }
    /// Runs checkpoints until the root covers everything written before the call.
    pub async fn compact(&self, collection: &str, progress: ProgressSink) -> Result<CompactOutcome> {
        todo!()
    }
    /// Approximate against exact search at one position, on the server.
    pub async fn measure_recall(
        &self,
        collection: &str,
        vectors: Vec<Vec<f32>>,
        top_k: u32,
        effort: Effort,
        progress: ProgressSink,
    ) -> Result<RecallReport> {
        todo!()
    }
    /// Published roots, newest first.
    pub async fn list_roots(&self, collection: &str) -> Result<Vec<RootDescription>> {
        todo!()
    }
    /// Re-reads a root with the production decoders and checks every checksum and law 4.
    pub async fn verify(&self, collection: &str, at: At, progress: ProgressSink) -> Result<VerifyReport> {
        todo!()
    }
    /// Stops background work; in-flight writes are finished first.
    pub async fn shutdown(&self) {
        todo!()
    }
}
