//! The gRPC services over one engine. Each method: check limits, convert, ask the engine, convert back.

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use pando_engine::{Engine, api};
use pando_format::{Rows, check_collection_name};
use pando_proto::v1;
use pando_proto::v1::admin_service_server::AdminService;
use pando_proto::v1::collection_service_server::CollectionService;
use pando_proto::v1::query_service_server::QueryService;
use pando_proto::v1::record_service_server::RecordService;
use prost::Message;
use tonic::{Request, Response, Status};

use crate::convert;
use crate::dimensions::Dimensions;
use crate::errors::{internal, invalid, status, status_in};
use crate::limits;
use crate::progress::{self, WhenLeft};

/// Implements every service. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    pub(crate) engine: Arc<Engine>,
    pub(crate) dimensions: Arc<Dimensions>,
}

type Answer<T> = Result<Response<T>, Status>;
type Streamed<T> = BoxStream<'static, Result<T, Status>>;

/// Records of one page that the engine is asked for when a page carries more than ids.
const ENGINE_PAGE: u32 = 512;
/// A message of a scan is closed when it has so many bytes.
const SCAN_MESSAGE_BYTES: usize = 16 << 20;

impl Api {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { dimensions: Arc::new(Dimensions::new(engine.clone())), engine }
    }

    /// The records of an upsert; the dimension is looked up again before anything is refused for it.
    async fn rows(&self, collection: &str, records: Vec<v1::Record>) -> Result<Rows, Status> {
        let dimension = self.dimensions.get(collection).await?;
        let suspicious = records
            .iter()
            .any(|record| record.vector.as_ref().is_none_or(|vector| vector.values.len() != dimension));
        let dimension = if suspicious { self.dimensions.fresh(collection).await? } else { dimension };
        blocking(move || convert::rows(records, dimension)).await
    }

    /// Refuses an answer of `lists` lists of up to `each` records that is sure to be too large, before any work.
    async fn expect(
        &self,
        collection: &str,
        include: &api::Include,
        lists: usize,
        each: usize,
    ) -> Result<(), Status> {
        let bytes = |each: u64, dimension: u64| {
            // Id, distance and frames of a record take some 16 bytes.
            lists as u64 * each * (16 + if include.vector { dimension * 4 } else { 0 })
        };
        if limits::answer_size(bytes(each as u64, 16_384)).is_ok() {
            return Ok(());
        }
        let described = self.engine.describe(collection).await.map_err(status)?;
        limits::answer_size(bytes(described.records.min(each as u64), described.config.dimension.into()))
    }
}

fn bad_page_token(token: &str) -> Status {
    invalid("BAD_PAGE_TOKEN", format!("page_token is {token:?}, which no page gave"))
}

/// Runs work that takes milliseconds of CPU off the threads that serve sockets.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(internal(format!("converting a request failed: {error}"))),
    }
}

#[tonic::async_trait]
impl CollectionService for Api {
    async fn create_collection(
        &self,
        request: Request<v1::CreateCollectionRequest>,
    ) -> Answer<v1::CreateCollectionResponse> {
        let create = convert::create(request.into_inner().config)?;
        let created = self.engine.create_collection(create).await.map_err(status)?;
        Ok(Response::new(v1::CreateCollectionResponse { collection: Some(convert::description(created)) }))
    }

    async fn get_collection(
        &self,
        request: Request<v1::GetCollectionRequest>,
    ) -> Answer<v1::GetCollectionResponse> {
        let described = self.engine.describe(&request.into_inner().collection).await.map_err(status)?;
        Ok(Response::new(v1::GetCollectionResponse { collection: Some(convert::description(described)) }))
    }

    async fn list_collections(
        &self,
        request: Request<v1::ListCollectionsRequest>,
    ) -> Answer<v1::ListCollectionsResponse> {
        let request = request.into_inner();
        let size = limits::page_size(request.page_size)? as usize;
        if !request.page_token.is_empty() && check_collection_name(&request.page_token).is_err() {
            return Err(bad_page_token(&request.page_token));
        }
        let mut names = self.engine.list_collections().await.map_err(status)?;
        names.retain(|name| *name > request.page_token);
        let more = names.len() > size;
        names.truncate(size);
        let next_page_token = if more { names.last().cloned().unwrap_or_default() } else { String::new() };
        Ok(Response::new(v1::ListCollectionsResponse { names, next_page_token }))
    }

    async fn delete_collection(
        &self,
        request: Request<v1::DeleteCollectionRequest>,
    ) -> Answer<v1::DeleteCollectionResponse> {
        self.engine.delete_collection(&request.into_inner().collection).await.map_err(status)?;
        Ok(Response::new(v1::DeleteCollectionResponse {}))
    }

    async fn list_roots(&self, request: Request<v1::ListRootsRequest>) -> Answer<v1::ListRootsResponse> {
        let request = request.into_inner();
        let size = limits::page_size(request.page_size)? as usize;
        let before: u64 = match request.page_token.as_str() {
            "" => u64::MAX,
            token => token.parse().map_err(|_| bad_page_token(token))?,
        };
        let roots = self.engine.list_roots(&request.collection).await.map_err(status)?;
        let mut roots =
            roots.into_iter().filter(|root| root.generation < before).map(convert::root_description);
        let page: Vec<_> = roots.by_ref().take(size).collect();
        let next_page_token = match (roots.next(), page.last()) {
            (Some(_), Some(last)) => last.generation.to_string(),
            _ => String::new(),
        };
        Ok(Response::new(v1::ListRootsResponse { roots: page, next_page_token }))
    }

    type CompactStream = Streamed<v1::CompactResponse>;

    async fn compact(&self, request: Request<v1::CompactRequest>) -> Answer<Self::CompactStream> {
        use v1::compact_response::Event;
        let v1::CompactRequest { collection, wait } = request.into_inner();
        // An unknown name is an error also for a caller who does not wait.
        self.engine.describe(&collection).await.map_err(status)?;
        let engine = self.engine.clone();
        let stream = progress::stream(
            WhenLeft::GoOn,
            |news| v1::CompactResponse { event: Some(Event::Progress(convert::progress(news))) },
            |sink| async move {
                let done = engine.compact(&collection, sink).await.map_err(status)?;
                let outcome = v1::CompactOutcome {
                    root: convert::root(done.root),
                    generation: done.generation,
                    sequence: done.sequence,
                    published: done.published,
                };
                Ok(v1::CompactResponse { event: Some(Event::Outcome(outcome)) })
            },
        );
        Ok(Response::new(if wait { stream } else { futures::stream::empty().boxed() }))
    }
}

#[tonic::async_trait]
impl RecordService for Api {
    async fn upsert(&self, request: Request<v1::UpsertRequest>) -> Answer<v1::UpsertResponse> {
        let request = request.into_inner();
        limits::request_size(
            request.encoded_len(),
            "send fewer records a call, or load them with Arrow Flight's DoPut",
        )?;
        let key = limits::idempotency_key(request.idempotency_key)?;
        let rows = self.rows(&request.collection, request.records).await?;
        let written = self.engine.upsert(&request.collection, rows, key).await.map_err(status)?;
        Ok(Response::new(v1::UpsertResponse {
            token: Some(convert::token(written.token)),
            upserted: written.affected,
        }))
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Answer<v1::DeleteResponse> {
        let request = request.into_inner();
        limits::request_size(request.encoded_len(), "send fewer ids a call")?;
        let key = limits::idempotency_key(request.idempotency_key)?;
        let ids = match request.selector {
            Some(v1::delete_request::Selector::Ids(list)) => convert::record_ids(list.ids)?,
            None => {
                let words = "nothing says what to delete: set ids; a request without a selector never means everything";
                return Err(invalid("SELECTOR_MISSING", words));
            }
        };
        if ids.is_empty() {
            // Nothing to write: the answer is where the collection stands.
            let counted =
                self.engine.count(&request.collection, api::Consistency::Strong, api::At::Now).await;
            let token = Some(convert::token(counted.map_err(status)?.token));
            return Ok(Response::new(v1::DeleteResponse { token, deleted: 0 }));
        }
        let deleted = self
            .engine
            .delete_ids(&request.collection, ids, key)
            .await
            .map_err(|error| status_in("ids", error))?;
        Ok(Response::new(v1::DeleteResponse {
            token: Some(convert::token(deleted.token)),
            deleted: deleted.affected,
        }))
    }

    async fn fetch(&self, request: Request<v1::FetchRequest>) -> Answer<v1::FetchResponse> {
        let request = request.into_inner();
        limits::some("ids", request.ids.len(), limits::MAX_FETCH_IDS)?;
        let asked = request.ids.clone();
        let ids = convert::record_ids(request.ids)?;
        let include = convert::include(request.include);
        self.expect(&request.collection, &include, 1, ids.len()).await?;
        let consistency = convert::consistency(request.consistency)?;
        let at = convert::at(request.at)?;
        let found = self
            .engine
            .fetch(&request.collection, ids, include, consistency, at)
            .await
            .map_err(|error| status_in("ids", error))?;
        let results = asked
            .into_iter()
            .zip(found.records)
            .map(|(id, record)| v1::FetchResult { id: Some(id), record: record.map(convert::wire_record) });
        limits::fitting(v1::FetchResponse {
            results: results.collect(),
            root: convert::root(found.root),
            token: Some(convert::token(found.token)),
        })
        .map(Response::new)
    }

    type ScanStream = Streamed<v1::ScanResponse>;

    async fn scan(&self, request: Request<v1::ScanRequest>) -> Answer<Self::ScanStream> {
        let request = request.into_inner();
        let size = limits::page_size(request.page_size)?;
        let include = convert::include(request.include);
        let heavy = include.vector || include.attributes != api::IncludeAttributes::None;
        let size = if heavy { size.min(ENGINE_PAGE) } else { size };
        let consistency = convert::consistency(request.consistency)?;
        let at = convert::at(request.at)?;
        let pages =
            self.engine.scan(&request.collection, include, consistency, at, size).await.map_err(status)?;
        let messages = pages
            .map_err(status)
            .map_ok(|page| futures::stream::iter(scan_messages(page).into_iter().map(Ok)))
            .try_flatten();
        Ok(Response::new(messages.boxed()))
    }

    async fn count(&self, request: Request<v1::CountRequest>) -> Answer<v1::CountResponse> {
        let request = request.into_inner();
        let consistency = convert::consistency(request.consistency)?;
        let at = convert::at(request.at)?;
        let counted = self.engine.count(&request.collection, consistency, at).await.map_err(status)?;
        Ok(Response::new(v1::CountResponse {
            count: counted.count,
            root: convert::root(counted.root),
            token: Some(convert::token(counted.token)),
        }))
    }
}

/// A page as messages that are far from any limit.
fn scan_messages(page: api::ScanPage) -> Vec<v1::ScanResponse> {
    let (root, token) = (convert::root(page.root), convert::token(page.token));
    let message = |records| v1::ScanResponse { records, root: root.clone(), token: Some(token.clone()) };
    let (mut messages, mut records, mut bytes) = (Vec::new(), Vec::new(), 0);
    for record in page.records {
        let record = convert::wire_record(record);
        bytes += record.encoded_len();
        records.push(record);
        if bytes >= SCAN_MESSAGE_BYTES {
            messages.push(message(std::mem::take(&mut records)));
            bytes = 0;
        }
    }
    if !records.is_empty() {
        messages.push(message(records));
    }
    messages
}

#[tonic::async_trait]
impl QueryService for Api {
    async fn query(&self, request: Request<v1::QueryRequest>) -> Answer<v1::QueryResponse> {
        let request = request.into_inner();
        let top_k = limits::top_k(request.top_k)?;
        limits::some("vectors", request.vectors.len(), limits::MAX_QUERY_VECTORS)?;
        let exact = match v1::Mode::try_from(request.mode) {
            Ok(v1::Mode::Unspecified | v1::Mode::Approximate) => false,
            Ok(v1::Mode::Exact) => true,
            Err(_) => {
                return Err(invalid("INVALID_MODE", format!("mode is {}, which is none", request.mode)));
            }
        };
        if exact && request.effort.is_some() {
            let words =
                "effort has no meaning with mode exact, which compares with every record; leave it out";
            return Err(invalid("INVALID_EFFORT", words));
        }
        if let Some(epsilon) = request.epsilon.filter(|epsilon| !(*epsilon > 0.0 && *epsilon <= 10.0)) {
            let words = format!("epsilon is {epsilon}; it must be above 0 and at most 10");
            return Err(invalid("INVALID_EPSILON", words));
        }
        let include = convert::include(request.include);
        self.expect(&request.collection, &include, request.vectors.len(), top_k as usize).await?;
        let asked = api::QueryRequest {
            vectors: request.vectors.into_iter().map(|vector| vector.values).collect(),
            top_k,
            include,
            consistency: convert::consistency(request.consistency)?,
            at: convert::at(request.at)?,
            exact,
            effort: convert::effort(request.effort)?,
            epsilon: request.epsilon,
            collection: request.collection,
        };
        let answers = self.engine.query(asked).await.map_err(|error| status_in("vectors", error))?;
        let Some(first) = answers.first() else { return Err(internal("the engine gave no answer")) };
        let (root, token) = (convert::root(first.root), convert::token(first.token));
        limits::fitting(v1::QueryResponse {
            answers: answers.into_iter().map(convert::answer).collect(),
            root,
            token: Some(token),
        })
        .map(Response::new)
    }

    type MeasureRecallStream = Streamed<v1::MeasureRecallResponse>;

    async fn measure_recall(
        &self,
        request: Request<v1::MeasureRecallRequest>,
    ) -> Answer<Self::MeasureRecallStream> {
        use v1::measure_recall_response::Event;
        let request = request.into_inner();
        limits::request_size(request.encoded_len(), "send fewer vectors a call")?;
        let top_k = limits::top_k(request.top_k)?;
        limits::some("vectors", request.vectors.len(), limits::MAX_RECALL_VECTORS)?;
        let effort = convert::effort(request.effort)?;
        let vectors = request.vectors.into_iter().map(|vector| vector.values).collect();
        let engine = self.engine.clone();
        let stream = progress::stream(
            WhenLeft::Stop,
            |news| v1::MeasureRecallResponse { event: Some(Event::Progress(convert::progress(news))) },
            |sink| async move {
                let measured = engine
                    .measure_recall(&request.collection, vectors, top_k, effort, sink)
                    .await
                    .map_err(|error| status_in("vectors", error))?;
                let report = v1::RecallReport {
                    queries: measured.queries,
                    top_k: measured.top_k,
                    mean: measured.mean,
                    p5: measured.p5,
                    min: measured.min,
                };
                Ok(v1::MeasureRecallResponse { event: Some(Event::Report(report)) })
            },
        );
        Ok(Response::new(stream))
    }
}

#[tonic::async_trait]
impl AdminService for Api {
    type VerifyStream = Streamed<v1::VerifyResponse>;
    type CollectGarbageStream = Streamed<v1::CollectGarbageResponse>;

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Answer<Self::VerifyStream> {
        use v1::verify_response::Event;
        let request = request.into_inner();
        let at = convert::at(request.at)?;
        let engine = self.engine.clone();
        let stream = progress::stream(
            WhenLeft::Stop,
            |news| v1::VerifyResponse { event: Some(Event::Progress(convert::progress(news))) },
            |sink| async move {
                let found = engine.verify(&request.collection, at, sink).await.map_err(status)?;
                let report = v1::VerifyReport {
                    ok: found.ok,
                    root: convert::root(found.root),
                    records: found.records,
                    blocks: found.blocks,
                    problems: found.problems,
                };
                Ok(v1::VerifyResponse { event: Some(Event::Report(report)) })
            },
        );
        Ok(Response::new(stream))
    }

    async fn collect_garbage(
        &self,
        request: Request<v1::CollectGarbageRequest>,
    ) -> Answer<Self::CollectGarbageStream> {
        use v1::collect_garbage_response::Event;
        let v1::CollectGarbageRequest { collection, dry_run } = request.into_inner();
        let engine = self.engine.clone();
        let stream = progress::stream(
            WhenLeft::Stop,
            |news| v1::CollectGarbageResponse { event: Some(Event::Progress(convert::progress(news))) },
            |sink| async move {
                let report = engine.collect_garbage(&collection, dry_run, sink).await.map_err(status)?;
                Ok(v1::CollectGarbageResponse { event: Some(Event::Report(convert::garbage(&report))) })
            },
        );
        Ok(Response::new(stream))
    }
}
