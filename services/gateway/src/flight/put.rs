//! DoPut: each record batch is one write, acknowledged when it is durable, in order.
//!
//! The id and vector columns are `id` and `vector` unless the headers `pando-id-column` and `pando-vector-column`, or the JSON
//! `{"id_column": …, "vector_column": …}` in the app_metadata of the first message, say otherwise; all other columns are
//! attributes. A batch may carry `{"idempotency_key": …}` in its app_metadata. Its acknowledgement is a PutResult whose
//! app_metadata is the JSON `{"batch", "rows", "rows_durable", "sequence", "uuid"}`: `rows_durable` counts the rows of this stream
//! that survive whatever comes, and nothing else is promised. A batch is stored whole or not at all; the first one that is refused
//! ends the stream with words.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedFlightData, DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, PutResult};
use arrow_schema::Schema;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use futures::{FutureExt, Stream, TryFutureExt};
use pando_engine::{Error, ErrorKind};
use pando_format::Rows;
use pando_proto::MAX_MESSAGE_BYTES;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::collection;
use crate::api::{Api, blocking};
use crate::errors::{invalid, refuse, status};
use crate::{edge, limits};

/// Batches that are decoded ahead of the write under way.
const DECODE_AHEAD: usize = 2;

/// Which columns hold ids and vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    pub id: String,
    pub vector: String,
}

/// The JSON that a client may put into app_metadata.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppMetadata {
    id_column: Option<String>,
    vector_column: Option<String>,
    idempotency_key: Option<String>,
}

impl AppMetadata {
    fn parse(bytes: &[u8]) -> Result<Self, Status> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(bytes).map_err(|error| {
            let words = format!(
                "app_metadata must be empty or a JSON object with id_column, vector_column, idempotency_key: {error}"
            );
            invalid("BAD_APP_METADATA", words)
        })
    }
}

impl Columns {
    pub fn from_headers(headers: &MetadataMap) -> Result<Self, Status> {
        let column = |header: &str, default: &str| match headers.get(header) {
            None => Ok(default.to_owned()),
            Some(value) => value.to_str().map(str::to_owned).map_err(|_| {
                invalid(
                    "BAD_HEADER",
                    format!("the header {header} is not ASCII; name the column in app_metadata"),
                )
            }),
        };
        Ok(Self { id: column("pando-id-column", "id")?, vector: column("pando-vector-column", "vector")? })
    }

    fn update(&mut self, metadata: AppMetadata) {
        self.id = metadata.id_column.unwrap_or(std::mem::take(&mut self.id));
        self.vector = metadata.vector_column.unwrap_or(std::mem::take(&mut self.vector));
    }

    /// Both columns are there once, and no name occurs twice.
    fn check(&self, schema: &Schema) -> Result<(), Status> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(invalid("DUPLICATE_COLUMN", format!("the column {:?} occurs twice", twice.1)));
        }
        for wanted in [&self.id, &self.vector] {
            if !names.contains(&wanted.as_str()) {
                let words = format!(
                    "there is no column {wanted:?} among {names:?}; name the columns of ids and vectors with the \
                     headers pando-id-column and pando-vector-column"
                );
                return Err(invalid("COLUMN_MISSING", words));
            }
        }
        Ok(())
    }
}

/// One batch, ready to be written.
struct Batch {
    number: u64,
    rows: Rows,
    idempotency_key: Option<String>,
}

/// Writes the batches of `messages` in order.
pub fn stream(
    api: Api,
    stopping: CancellationToken,
    columns: Columns,
    messages: Streaming<FlightData>,
) -> BoxStream<'static, Result<PutResult, Status>> {
    let start = async move {
        let mut messages = messages.map_err(taken);
        let Some(first) = messages.try_next().await? else {
            return Ok::<_, Status>(futures::stream::empty().boxed());
        };
        let collection = collection(first.flight_descriptor.as_ref())?;
        let dimension = api.dimensions.fresh(&collection).await?;
        let messages = futures::stream::once(async { Ok(first) }).chain(messages);
        let batches = batches(columns, dimension, messages).boxed();
        let put = Put { api, stopping, collection, batches, rows_durable: 0, sequence: 0 };
        Ok(futures::stream::try_unfold(put, Put::next).boxed())
    };
    start.try_flatten_stream().boxed()
}

struct Put {
    api: Api,
    stopping: CancellationToken,
    collection: String,
    batches: BoxStream<'static, Result<Batch, Status>>,
    rows_durable: u64,
    sequence: u64,
}

impl Put {
    /// The acknowledgement of the next batch.
    async fn next(mut self) -> Result<Option<(PutResult, Self)>, Status> {
        let batch = tokio::select! {
            biased;
            () = self.stopping.cancelled() => {
                let words = "the server is stopping; what was acknowledged is kept, send the rest again";
                return Err(refuse(ErrorKind::Unavailable, "SHUTTING_DOWN", words));
            }
            batch = self.batches.try_next() => batch?,
        };
        let Some(Batch { number, rows, idempotency_key }) = batch else { return Ok(None) };
        let count = rows.len() as u64;
        let mut answer = json!({ "batch": number, "rows": count });
        if count > 0 {
            let written = self.api.engine.upsert(&self.collection, rows, idempotency_key).await;
            let token = written.map_err(|error| in_batch(number, error))?.token;
            self.sequence = token.sequence;
            self.rows_durable += count;
            answer["uuid"] = token.uuid.to_string().into();
        }
        answer["sequence"] = self.sequence.into();
        answer["rows_durable"] = self.rows_durable.into();
        Ok(Some((PutResult { app_metadata: answer.to_string().into() }, self)))
    }
}

/// Says which batch an error is about; its record is counted within the batch.
fn in_batch(number: u64, error: Error) -> Status {
    status(Error { message: format!("batch {number}: {}", error.message), ..error })
}

/// A message that could not be taken from the wire.
fn taken(error: Status) -> Status {
    edge::rewrite(&error).unwrap_or(error)
}

/// Decodes messages into batches of records. Order is kept; a few are worked on ahead.
fn batches(
    columns: Columns,
    dimension: usize,
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
) -> impl Stream<Item = Result<Batch, Status>> + Send {
    let mut checks = Checks::default();
    // Messages without a header carry a descriptor or metadata only.
    let messages = messages.try_filter_map(move |message| {
        let checked = if message.data_header.is_empty() { Ok(None) } else { checks.check(message).map(Some) };
        futures::future::ready(checked)
    });
    let decoder = FlightDataDecoder::new(messages.map_err(|status| FlightError::Tonic(Box::new(status))));
    let decoded =
        futures::stream::try_unfold((decoder, Reader::new(columns)), |(mut decoder, mut reader)| async {
            loop {
                // The decoder checks what it reads; should a crafted message make it panic, that message is to blame.
                let next = AssertUnwindSafe(decoder.try_next()).catch_unwind().await;
                let message = match next {
                    Ok(Ok(Some(message))) => message,
                    Ok(Ok(None)) => return Ok(None),
                    Ok(Err(error)) => return Err(malformed(error)),
                    Err(_) => return Err(malformed(FlightError::protocol("it makes no sense"))),
                };
                if let Some(batch) = reader.read(message)? {
                    return Ok(Some((batch, (decoder, reader))));
                }
            }
        });
    // An error is a future like the others: what came before it is written first.
    decoded
        .map(move |raw: Result<RawBatch, Status>| async move {
            let raw = raw?;
            let convert = move || {
                let rows = import(&raw.batch, &raw.columns, dimension)
                    .map_err(|error| in_batch(raw.number, error))?;
                Ok(Batch { number: raw.number, rows, idempotency_key: raw.idempotency_key })
            };
            blocking(convert).await
        })
        .buffered(DECODE_AHEAD)
}

/// Bounds of single messages, and of what dictionaries keep in memory.
#[derive(Default)]
struct Checks {
    batches: u64,
    dictionaries: HashMap<i64, usize>,
}

impl Checks {
    fn check(&mut self, message: FlightData) -> Result<FlightData, Status> {
        let too_large = |what: String, bytes: usize| {
            let words = format!(
                "{what} has {bytes} bytes, more than the {MAX_MESSAGE_BYTES} (64 MiB) that it may have; \
                 send fewer rows a batch"
            );
            refuse(ErrorKind::ResourceExhausted, "BATCH_TOO_LARGE", words)
        };
        let bytes = message.data_header.len() + message.data_body.len();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(too_large(format!("batch {}", self.batches), bytes));
        }
        let header = arrow_ipc::root_as_message(&message.data_header)
            .map_err(|error| malformed(FlightError::DecodeError(error.to_string())))?;
        let dictionary = header.header_as_dictionary_batch();
        let batch = header.header_as_record_batch().or(dictionary.and_then(|dictionary| dictionary.data()));
        if batch.is_some_and(|batch| batch.compression().is_some()) {
            let words = "the bodies of the messages are compressed; send them uncompressed";
            return Err(invalid("COMPRESSED_ARROW", words));
        }
        if let Some(dictionary) = dictionary {
            let kept = self.dictionaries.entry(dictionary.id()).or_default();
            *kept = if dictionary.isDelta() { *kept + bytes } else { bytes };
            let total: usize = self.dictionaries.values().sum();
            if total > MAX_MESSAGE_BYTES {
                return Err(too_large("the stream's dictionaries together".into(), total));
            }
        } else if header.header_as_record_batch().is_some() {
            self.batches += 1;
        }
        Ok(message)
    }
}

struct RawBatch {
    number: u64,
    batch: RecordBatch,
    columns: Columns,
    idempotency_key: Option<String>,
}

/// Follows the stream's one schema.
struct Reader {
    columns: Columns,
    has_schema: bool,
    batches: u64,
}

impl Reader {
    fn new(columns: Columns) -> Self {
        Self { columns, has_schema: false, batches: 0 }
    }

    fn read(&mut self, message: DecodedFlightData) -> Result<Option<RawBatch>, Status> {
        let metadata = AppMetadata::parse(&message.inner.app_metadata)?;
        match message.payload {
            DecodedPayload::None => Ok(None),
            DecodedPayload::Schema(_) if self.has_schema => {
                let words = "the schema changes within the stream; open a new stream for other columns";
                Err(invalid("SCHEMA_CHANGED", words))
            }
            DecodedPayload::Schema(schema) => {
                self.has_schema = true;
                self.columns.update(metadata);
                self.columns.check(&schema)?;
                Ok(None)
            }
            DecodedPayload::RecordBatch(batch) => {
                let number = self.batches;
                self.batches += 1;
                let idempotency_key = limits::idempotency_key(metadata.idempotency_key.unwrap_or_default())?;
                Ok(Some(RawBatch { number, batch, columns: self.columns.clone(), idempotency_key }))
            }
        }
    }
}

/// The records of a batch, each checked.
fn import(batch: &RecordBatch, columns: &Columns, dimension: usize) -> Result<Rows, Error> {
    Rows::from_record_batch(batch, &columns.id, &columns.vector, dimension).map_err(Error::from)
}

/// Bytes that are not Arrow messages, or not in an order that makes sense.
fn malformed(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        error => invalid(
            "MALFORMED_ARROW",
            format!("the stream does not hold well-formed Arrow messages: {error}"),
        ),
    }
}
