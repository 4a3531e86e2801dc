//! A thin gRPC client over the generated code, without the conveniences of pando-client: requests go out as written.

use pando_proto::MAX_WIRE_BYTES;
use pando_proto::v1::collection_service_client::CollectionServiceClient;
use pando_proto::v1::query_service_client::QueryServiceClient;
use pando_proto::v1::record_service_client::RecordServiceClient;
use pando_proto::v1::{self, id, value};
use tonic::Status;
use tonic::transport::Channel;
use tonic_types::StatusExt;

use crate::data::Vectors;
use crate::server::Server;

/// One client a service.
#[derive(Clone, Debug)]
pub struct Api {
    /// Collections.
    pub collections: CollectionServiceClient<Channel>,
    /// Records.
    pub records: RecordServiceClient<Channel>,
    /// Queries.
    pub queries: QueryServiceClient<Channel>,
}

/// A numeric id.
pub fn number(n: u64) -> v1::Id {
    v1::Id { kind: Some(id::Kind::Number(n)) }
}

/// A text id.
pub fn text(s: &str) -> v1::Id {
    v1::Id { kind: Some(id::Kind::Text(s.to_owned())) }
}

/// A numeric id's value.
pub fn as_number(id: &Option<v1::Id>) -> u64 {
    match id {
        Some(v1::Id { kind: Some(id::Kind::Number(n)) }) => *n,
        other => panic!("not a number: {other:?}"),
    }
}

/// A record without attributes.
pub fn record(id: v1::Id, vector: &[f32]) -> v1::Record {
    v1::Record {
        id: Some(id),
        vector: Some(v1::Vector { values: vector.to_vec() }),
        attributes: Default::default(),
    }
}

/// A string value.
pub fn string(s: &str) -> v1::Value {
    v1::Value { kind: Some(value::Kind::String(s.to_owned())) }
}

/// `ErrorInfo.reason` of an error.
pub fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|i| i.reason).unwrap_or_default()
}

/// What a query asks for.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// Default effort.
    Default,
    /// A recall target.
    Target(f32),
    /// A bound on leaves.
    Leaves(u32),
    /// Every row.
    Exact,
}

impl Api {
    /// Connects.
    pub async fn connect(server: &Server) -> Api {
        let channel =
            Channel::from_shared(server.url()).expect("a URL").connect().await.expect("a connection");
        let big = MAX_WIRE_BYTES + (64 << 20);
        Api {
            collections: CollectionServiceClient::new(channel.clone()).max_decoding_message_size(big),
            records: RecordServiceClient::new(channel.clone())
                .max_decoding_message_size(big)
                .max_encoding_message_size(big),
            queries: QueryServiceClient::new(channel).max_decoding_message_size(big),
        }
    }

    /// Upsert.
    pub async fn upsert(
        &mut self,
        collection: &str,
        records: Vec<v1::Record>,
    ) -> Result<v1::UpsertResponse, Status> {
        let request = v1::UpsertRequest { collection: collection.into(), records, ..Default::default() };
        Ok(self.records.upsert(request).await?.into_inner())
    }

    /// Upsert of rows with numeric ids from `first`.
    pub async fn upsert_rows(&mut self, collection: &str, first: u64, v: &Vectors) {
        let records = (0..v.len()).map(|i| record(number(first + i as u64), v.row(i))).collect();
        self.upsert(collection, records).await.expect("upsert");
    }

    /// Delete by ids.
    pub async fn delete(&mut self, collection: &str, ids: Vec<v1::Id>) -> Result<v1::DeleteResponse, Status> {
        let selector = Some(v1::delete_request::Selector::Ids(v1::IdList { ids }));
        let request = v1::DeleteRequest { collection: collection.into(), selector, ..Default::default() };
        Ok(self.records.delete(request).await?.into_inner())
    }

    /// Fetch with vectors and all attributes: one option an id, in order.
    pub async fn fetch(
        &mut self,
        collection: &str,
        ids: Vec<v1::Id>,
    ) -> Result<Vec<Option<v1::Record>>, Status> {
        let request = v1::FetchRequest {
            collection: collection.into(),
            ids,
            include: Some(v1::Include { vector: true, all_attributes: true, ..Default::default() }),
            ..Default::default()
        };
        let answer = self.records.fetch(request).await?.into_inner();
        Ok(answer.results.into_iter().map(|r| r.record).collect())
    }

    /// Every record, with its vector and attributes, in the order sent.
    pub async fn scan(&mut self, collection: &str) -> Result<Vec<v1::Record>, Status> {
        let request = v1::ScanRequest {
            collection: collection.into(),
            include: Some(v1::Include { vector: true, all_attributes: true, ..Default::default() }),
            ..Default::default()
        };
        let mut stream = self.records.scan(request).await?.into_inner();
        let mut all = Vec::new();
        while let Some(page) = stream.message().await? {
            all.extend(page.records);
        }
        Ok(all)
    }

    /// Count.
    pub async fn count(&mut self, collection: &str) -> Result<u64, Status> {
        let request = v1::CountRequest { collection: collection.into(), ..Default::default() };
        Ok(self.records.count(request).await?.into_inner().count)
    }

    /// Query, raw.
    pub async fn query(
        &mut self,
        collection: &str,
        vectors: &Vectors,
        top_k: u32,
        how: How,
    ) -> Result<v1::QueryResponse, Status> {
        use v1::effort::Kind;
        let effort = match how {
            How::Target(t) => Some(v1::Effort { kind: Some(Kind::RecallTarget(t)) }),
            How::Leaves(n) => Some(v1::Effort { kind: Some(Kind::Leaves(n)) }),
            How::Default | How::Exact => None,
        };
        let mode = if matches!(how, How::Exact) { v1::Mode::Exact } else { v1::Mode::Unspecified };
        let request = v1::QueryRequest {
            collection: collection.into(),
            vectors: (0..vectors.len()).map(|i| v1::Vector { values: vectors.row(i).to_vec() }).collect(),
            top_k,
            effort,
            mode: mode.into(),
            ..Default::default()
        };
        Ok(self.queries.query(request).await?.into_inner())
    }

    /// Numeric ids and distances found, one list a query vector, asked in pieces of 256 vectors.
    pub async fn search(
        &mut self,
        collection: &str,
        vectors: &Vectors,
        top_k: u32,
        how: How,
    ) -> Vec<Vec<(u64, f64)>> {
        let mut out = Vec::with_capacity(vectors.len());
        for start in (0..vectors.len()).step_by(256) {
            let part = vectors.slice(start..(start + 256).min(vectors.len()));
            let answer = self.query(collection, &part, top_k, how).await.expect("query");
            assert_eq!(answer.answers.len(), part.len());
            for a in answer.answers {
                assert!(a.complete, "{}", a.incomplete_reason);
                let matches = a.matches.iter();
                out.push(
                    matches
                        .map(|m| (as_number(&m.record.as_ref().expect("a record").id), m.distance))
                        .collect(),
                );
            }
        }
        out
    }
}
