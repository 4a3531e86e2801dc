//! The calls.

use std::time::Duration;

use futures::StreamExt;
use pando_proto::v1::{self, admin_service_client::AdminServiceClient};
use pando_proto::v1::{
    collection_service_client::CollectionServiceClient, query_service_client::QueryServiceClient,
    record_service_client::RecordServiceClient,
};
use pando_proto::{MAX_MESSAGE_BYTES, MAX_WIRE_BYTES};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use crate::error::{Error, Result, deepest};
use crate::ingest::{Ingest, IngestOptions};
use crate::retry::RetryPolicy;

/// How a server is reached.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Time to establish a connection. Default 5 s.
    pub connect_timeout: Duration,
    /// Repetition of failed calls.
    pub retry: RetryPolicy,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(5), retry: RetryPolicy::default() }
    }
}

/// A connection to a server. Clones share it; calls of many tasks are multiplexed.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) channel: Channel,
    pub(crate) retry: RetryPolicy,
}

/// HTTP/2 windows: large enough that bulk data does not wait for window updates.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

impl Client {
    /// Connects, for example to `http://127.0.0.1:7700`.
    pub async fn connect(url: &str, options: ConnectOptions) -> Result<Self> {
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| {
            let words = format!(
                "{url:?} is not the address of a server: {error}; it should look like http://127.0.0.1:7700"
            );
            Error::local(Code::InvalidArgument, "BAD_ADDRESS", words)
        })?;
        let channel = endpoint
            .connect_timeout(options.connect_timeout)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .connect()
            .await
            .map_err(|error| {
                let words = format!("no Pando server answers at {url}: {}", deepest(&error));
                Error::local(Code::Unavailable, "NO_SERVER", words)
            })?;
        Ok(Self { channel, retry: options.retry })
    }

    fn collections(&self) -> CollectionServiceClient<Channel> {
        CollectionServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_WIRE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn records(&self) -> RecordServiceClient<Channel> {
        RecordServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_WIRE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn queries(&self) -> QueryServiceClient<Channel> {
        QueryServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_WIRE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Creates a collection.
    pub async fn create_collection(&self, config: v1::CollectionConfig) -> Result<v1::Collection> {
        let request = v1::CreateCollectionRequest { config: Some(config) };
        let response = self.collections().create_collection(request).await?;
        Ok(response.into_inner().collection.unwrap_or_default())
    }

    /// Describes a collection.
    pub async fn describe(&self, collection: &str) -> Result<v1::Collection> {
        let response = self
            .retry
            .run(|| {
                let mut service = self.collections();
                let request = v1::GetCollectionRequest { collection: collection.to_owned() };
                async move { service.get_collection(request).await }
            })
            .await?;
        Ok(response.into_inner().collection.unwrap_or_default())
    }

    /// Names of all collections, sorted.
    pub async fn list_collections(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut request = v1::ListCollectionsRequest::default();
        loop {
            let page = self.collections().list_collections(request.clone()).await?.into_inner();
            names.extend(page.names);
            if page.next_page_token.is_empty() {
                return Ok(names);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Drops a collection.
    pub async fn delete_collection(&self, collection: &str) -> Result<()> {
        let request = v1::DeleteCollectionRequest { collection: collection.to_owned() };
        self.collections().delete_collection(request).await?;
        Ok(())
    }

    /// Published roots, newest first.
    pub async fn list_roots(&self, collection: &str) -> Result<Vec<v1::Root>> {
        let mut roots = Vec::new();
        let mut request = v1::ListRootsRequest { collection: collection.to_owned(), ..Default::default() };
        loop {
            let page = self.collections().list_roots(request.clone()).await?.into_inner();
            roots.extend(page.roots);
            if page.next_page_token.is_empty() {
                return Ok(roots);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Asks for a root that covers everything written so far. With `wait` the outcome is given when it is there.
    pub async fn compact(
        &self,
        collection: &str,
        wait: bool,
        progress: impl FnMut(v1::Progress),
    ) -> Result<Option<v1::CompactOutcome>> {
        let request = v1::CompactRequest { collection: collection.to_owned(), wait };
        let stream = self.collections().compact(request).await?.into_inner();
        last(stream, progress, |message| match message.event? {
            v1::compact_response::Event::Progress(progress) => Some(Step::Progress(progress)),
            v1::compact_response::Event::Outcome(outcome) => Some(Step::Done(outcome)),
        })
        .await
    }

    /// Inserts or replaces records.
    pub async fn upsert(&self, collection: &str, records: Vec<v1::Record>) -> Result<v1::UpsertResponse> {
        let request = v1::UpsertRequest {
            collection: collection.to_owned(),
            records,
            idempotency_key: uuid::Uuid::new_v4().to_string(),
        };
        let response = self
            .retry
            .run(|| {
                let (mut service, request) = (self.records(), request.clone());
                async move { service.upsert(request).await }
            })
            .await?;
        Ok(response.into_inner())
    }

    /// Deletes records by id.
    pub async fn delete_ids(&self, collection: &str, ids: Vec<v1::Id>) -> Result<v1::DeleteResponse> {
        let request = v1::DeleteRequest {
            collection: collection.to_owned(),
            selector: Some(v1::delete_request::Selector::Ids(v1::IdList { ids })),
            idempotency_key: uuid::Uuid::new_v4().to_string(),
        };
        let response = self
            .retry
            .run(|| {
                let (mut service, request) = (self.records(), request.clone());
                async move { service.delete(request).await }
            })
            .await?;
        Ok(response.into_inner())
    }

    /// Records by id, one result for each id, in order.
    pub async fn fetch(&self, request: v1::FetchRequest) -> Result<v1::FetchResponse> {
        let response = self
            .retry
            .run(|| {
                let (mut service, request) = (self.records(), request.clone());
                async move { service.fetch(request).await }
            })
            .await?;
        Ok(response.into_inner())
    }

    /// Every record, in id order, page by page. A stream that ends without an error is whole.
    pub async fn scan(&self, request: v1::ScanRequest) -> Result<Streaming<v1::ScanResponse>> {
        Ok(self.records().scan(request).await?.into_inner())
    }

    /// Counts records.
    pub async fn count(&self, request: v1::CountRequest) -> Result<v1::CountResponse> {
        let response = self
            .retry
            .run(|| {
                let (mut service, request) = (self.records(), request.clone());
                async move { service.count(request).await }
            })
            .await?;
        Ok(response.into_inner())
    }

    /// Searches.
    pub async fn query(&self, request: v1::QueryRequest) -> Result<v1::QueryResponse> {
        let response = self
            .retry
            .run(|| {
                let (mut service, request) = (self.queries(), request.clone());
                async move { service.query(request).await }
            })
            .await?;
        Ok(response.into_inner())
    }

    /// Searches once: a load generator must see what a repetition would hide.
    pub async fn query_once(&self, request: v1::QueryRequest) -> Result<v1::QueryResponse> {
        Ok(self.queries().query(request).await?.into_inner())
    }

    /// Approximate against exact search, on the server.
    pub async fn measure_recall(
        &self,
        request: v1::MeasureRecallRequest,
        progress: impl FnMut(v1::Progress),
    ) -> Result<v1::RecallReport> {
        let stream = self.queries().measure_recall(request).await?.into_inner();
        let report = last(stream, progress, |message| match message.event? {
            v1::measure_recall_response::Event::Progress(progress) => Some(Step::Progress(progress)),
            v1::measure_recall_response::Event::Report(report) => Some(Step::Done(report)),
        })
        .await?;
        report.ok_or_else(cut_short)
    }

    /// Verifies the newest root, or the one that `at` names.
    pub async fn verify(
        &self,
        collection: &str,
        at: Option<v1::At>,
        progress: impl FnMut(v1::Progress),
    ) -> Result<v1::VerifyReport> {
        let request = v1::VerifyRequest { collection: collection.to_owned(), at };
        let mut service =
            AdminServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_WIRE_BYTES);
        let stream = service.verify(request).await?.into_inner();
        let report = last(stream, progress, |message| match message.event? {
            v1::verify_response::Event::Progress(progress) => Some(Step::Progress(progress)),
            v1::verify_response::Event::Report(report) => Some(Step::Done(report)),
        })
        .await?;
        report.ok_or_else(cut_short)
    }

    /// Collects a collection's garbage; with `dry_run` only says what would be deleted.
    pub async fn collect_garbage(
        &self,
        collection: &str,
        dry_run: bool,
        progress: impl FnMut(v1::Progress),
    ) -> Result<v1::GarbageReport> {
        let request = v1::CollectGarbageRequest { collection: collection.to_owned(), dry_run };
        let mut service =
            AdminServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_WIRE_BYTES);
        let stream = service.collect_garbage(request).await?.into_inner();
        let report = last(stream, progress, |message| match message.event? {
            v1::collect_garbage_response::Event::Progress(progress) => Some(Step::Progress(progress)),
            v1::collect_garbage_response::Event::Report(report) => Some(Step::Done(report)),
        })
        .await?;
        report.ok_or_else(cut_short)
    }

    /// A stream for bulk loading, opened with its first batch. Every batch must have the columns of the first one.
    pub fn ingest(&self, collection: &str, options: IngestOptions) -> Ingest {
        Ingest::new(self.clone(), collection, options)
    }
}

enum Step<T> {
    Progress(v1::Progress),
    Done(T),
}

/// Reads a stream of progress to its end, which may bring a result.
async fn last<M, T>(
    mut stream: Streaming<M>,
    mut progress: impl FnMut(v1::Progress),
    step: impl Fn(M) -> Option<Step<T>>,
) -> Result<Option<T>> {
    let mut result = None;
    while let Some(message) = stream.next().await {
        match step(message?) {
            Some(Step::Progress(news)) => progress(news),
            Some(Step::Done(value)) => result = Some(value),
            None => {}
        }
    }
    Ok(result)
}

fn cut_short() -> Error {
    Error::local(Code::Unavailable, "CUT_SHORT", "the server's answer ended before its result")
}
