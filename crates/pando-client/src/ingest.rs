//! Bulk loading through Arrow Flight's DoPut.
//!
//! Batches are sent ahead of their acknowledgements, a few at a time, on one stream: the server writes them in order. A batch is
//! kept until it is acknowledged; when the stream breaks, or the server asks to wait, a new stream is opened and what is not
//! acknowledged is sent again under the same idempotency keys, so that nothing is written twice.

use std::collections::VecDeque;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_schema::{Schema, SchemaRef};
use pando_proto::{MAX_MESSAGE_BYTES, MAX_WIRE_BYTES};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Streaming};

use crate::client::Client;
use crate::error::{Error, Result};

/// How long a stream whose batches are all acknowledged may take to close.
const CLOSING: Duration = Duration::from_secs(2);

/// How a stream of batches is read by the server.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// The column of ids. Default `id`.
    pub id_column: String,
    /// The column of vectors. Default `vector`.
    pub vector_column: String,
    /// Batches that may be on their way without an acknowledgement. Default 4.
    pub in_flight: usize,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self { id_column: "id".into(), vector_column: "vector".into(), in_flight: 4 }
    }
}

/// What a stream came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngestSummary {
    /// Rows that are durable.
    pub rows: u64,
    /// The log entry of the newest acknowledged batch; 0 when there was none.
    pub sequence: u64,
    /// The collection; empty when no batch was acknowledged.
    pub uuid: String,
}

/// A stream of batches into one collection.
pub struct Ingest {
    client: Client,
    collection: String,
    options: IngestOptions,
    schema: Option<SchemaRef>,
    stream: Option<Open>,
    pending: VecDeque<Pending>,
    failures: u32,
    summary: IngestSummary,
}

struct Open {
    sender: mpsc::UnboundedSender<FlightData>,
    answers: Streaming<PutResult>,
}

struct Pending {
    messages: Vec<FlightData>,
    rows: u64,
}

impl Ingest {
    pub(crate) fn new(client: Client, collection: &str, options: IngestOptions) -> Self {
        Self {
            client,
            collection: collection.to_owned(),
            options,
            schema: None,
            stream: None,
            pending: VecDeque::new(),
            failures: 0,
            summary: IngestSummary::default(),
        }
    }

    /// Sends a batch; waits while as many as allowed are not acknowledged yet.
    pub async fn send(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = self.schema.get_or_insert_with(|| batch.schema());
        if *schema != batch.schema() {
            let words = "the columns of this batch are not those of the first one";
            return Err(Error::local(Code::InvalidArgument, "SCHEMA_CHANGED", words));
        }
        let messages = encode(batch)?;
        while self.pending.len() >= self.options.in_flight.max(1) {
            self.acknowledged().await?;
        }
        if self.stream.is_none() {
            self.reopen().await?;
        }
        self.push(&messages);
        self.pending.push_back(Pending { messages, rows: batch.num_rows() as u64 });
        Ok(())
    }

    /// What is durable so far.
    pub fn progress(&self) -> &IngestSummary {
        &self.summary
    }

    /// Waits for the last acknowledgement and closes the stream.
    pub async fn finish(&mut self) -> Result<IngestSummary> {
        while !self.pending.is_empty() {
            self.acknowledged().await?;
        }
        if let Some(Open { sender, mut answers }) = self.stream.take() {
            drop(sender);
            // Every batch is acknowledged: what the end of the stream says cannot change that.
            let end = async { while let Ok(Some(_)) = answers.message().await {} };
            let _ = tokio::time::timeout(CLOSING, end).await;
        }
        Ok(self.summary.clone())
    }

    /// Messages to a broken stream go nowhere; the next acknowledgement shows the break.
    fn push(&self, messages: &[FlightData]) {
        if let Some(open) = &self.stream {
            for message in messages {
                let _ = open.sender.send(message.clone());
            }
        }
    }

    /// Waits for one acknowledgement; repairs the stream when it breaks.
    async fn acknowledged(&mut self) -> Result<()> {
        let Some(open) = &mut self.stream else { return self.reopen().await };
        let error = match open.answers.message().await {
            Ok(Some(answer)) => match self.take(&answer) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            Ok(None) => {
                Error::local(Code::Unavailable, "CUT_SHORT", "the server ended the stream before its time")
            }
            Err(status) => status.into(),
        };
        self.stream = None;
        self.failed(error).await
    }

    fn take(&mut self, answer: &PutResult) -> Result<()> {
        let bad = || Error::local(Code::Internal, "BAD_ANSWER", "an acknowledgement cannot be read");
        let json: serde_json::Value = serde_json::from_slice(&answer.app_metadata).map_err(|_| bad())?;
        let sequence = json["sequence"].as_u64().ok_or_else(bad)?;
        let done = self.pending.pop_front().ok_or_else(bad)?;
        self.summary.rows += done.rows;
        self.summary.sequence = sequence;
        if let Some(uuid) = json["uuid"].as_str() {
            self.summary.uuid = uuid.to_owned();
        }
        self.failures = 0;
        Ok(())
    }

    /// Waits as the policy says, or gives the error back.
    async fn failed(&mut self, error: Error) -> Result<()> {
        self.failures += 1;
        match self.client.retry.wait(&error, self.failures) {
            Some(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            None => Err(error),
        }
    }

    /// A new stream, to which everything that is not acknowledged is sent again.
    async fn reopen(&mut self) -> Result<()> {
        loop {
            match self.connect().await {
                Ok(open) => {
                    self.stream = Some(open);
                    self.pending.iter().for_each(|batch| self.push(&batch.messages));
                    return Ok(());
                }
                Err(status) => self.failed(status.into()).await?,
            }
        }
    }

    async fn connect(&self) -> Result<Open, tonic::Status> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(schema) = &self.schema {
            let mut first = Encoder::new(schema).schema;
            first.flight_descriptor = Some(FlightDescriptor::new_path(vec![self.collection.clone()]));
            let columns = json!({
                "id_column": self.options.id_column,
                "vector_column": self.options.vector_column,
            });
            first.app_metadata = columns.to_string().into();
            let _ = sender.send(first);
        }
        let mut service = FlightServiceClient::new(self.client.channel.clone())
            .max_decoding_message_size(MAX_WIRE_BYTES)
            .max_encoding_message_size(MAX_WIRE_BYTES);
        let answers = service.do_put(UnboundedReceiverStream::new(receiver)).await?.into_inner();
        Ok(Open { sender, answers })
    }
}

/// Encodes one message stream. Dictionaries get their numbers from the schema.
struct Encoder {
    schema: FlightData,
    dictionaries: DictionaryTracker,
}

impl Encoder {
    fn new(schema: &Schema) -> Self {
        let mut dictionaries = DictionaryTracker::new(false);
        let schema = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut dictionaries,
            &IpcWriteOptions::default(),
        );
        Self { schema: schema.into(), dictionaries }
    }
}

/// The messages of one batch: its dictionaries, then itself with a key of its own. They stand alone after the schema, so that they
/// can be sent again on another stream.
fn encode(batch: &RecordBatch) -> Result<Vec<FlightData>> {
    let cannot = |words: String| Error::local(Code::InvalidArgument, "BAD_BATCH", words);
    let mut encoder = Encoder::new(batch.schema_ref());
    let (dictionaries, batch_message) = IpcDataGenerator::default()
        .encode(
            batch,
            &mut encoder.dictionaries,
            &IpcWriteOptions::default(),
            &mut IpcWriteContext::default(),
        )
        .map_err(|error| cannot(format!("a batch cannot be sent: {error}")))?;
    let mut messages: Vec<FlightData> = dictionaries.into_iter().map(Into::into).collect();
    let mut last = FlightData::from(batch_message);
    if last.data_body.len() > MAX_MESSAGE_BYTES {
        return Err(cannot(format!(
            "a batch of {} rows has {} bytes, more than the 64 MiB that a batch may have; send fewer rows at a time",
            batch.num_rows(),
            last.data_body.len()
        )));
    }
    last.app_metadata = json!({ "idempotency_key": uuid::Uuid::new_v4().to_string() }).to_string().into();
    messages.push(last);
    Ok(messages)
}
