//! A server in this process.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, UInt64Array};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::utils::batches_to_flight_data;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use arrow_schema::{DataType, Field};
use futures::{Stream, TryStreamExt};
use pando_client::{Client, ConnectOptions, proto};
use pando_coordination::InProcess;
use pando_engine::environment::{SystemClock, SystemRandom};
use pando_engine::{Components, Engine, Settings as EngineSettings};
use pando_gateway::{Gateway, ServeError, Settings};
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions};
use pando_telemetry::Metrics;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

pub struct Fixture {
    pub client: Client,
    pub channel: Channel,
    pub http: String,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
    engine: Arc<Engine>,
    _directory: tempfile::TempDir,
}

impl Fixture {
    pub async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    /// Ports are free ones, whatever `settings` say.
    pub async fn start_with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_local(directory.path(), StoreOptions::default()).unwrap();
        let components = Components {
            coordinator: Arc::new(InProcess::new(store.clock().clone())),
            store,
            kernels: Kernels::from_env().unwrap(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        };
        let engine =
            Engine::open(components, EngineSettings { auto_compact: false, ..EngineSettings::default() })
                .await
                .unwrap();
        let anywhere = ([127, 0, 0, 1], 0).into();
        let settings = Settings { listen: anywhere, http: Some(anywhere), ..settings };
        let gateway = Gateway::bind(engine.clone(), settings, Metrics::install().unwrap()).await.unwrap();
        let (url, http) =
            (format!("http://{}", gateway.address()), gateway.http_address().unwrap().to_string());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(gateway.serve(async {
            let _ = stopped.await;
        }));
        let client = Client::connect(&url, ConnectOptions::default()).await.unwrap();
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        Self { client, channel, http, stop: Some(stop), serving, engine, _directory: directory }
    }

    /// A collection with l2.
    pub async fn create(&self, name: &str, dimension: u32) {
        let metric = proto::Metric::L2.into();
        let config = proto::CollectionConfig { name: name.into(), dimension, metric, ..Default::default() };
        self.client.create_collection(config).await.unwrap();
    }

    pub async fn count(&self, name: &str) -> u64 {
        let request = proto::CountRequest { collection: name.into(), ..Default::default() };
        self.client.count(request).await.unwrap().count
    }

    pub fn flight(&self) -> FlightServiceClient<Channel> {
        FlightServiceClient::new(self.channel.clone()).max_encoding_message_size(usize::MAX)
    }

    /// Sends messages; the acknowledgements, or the first error after some.
    pub async fn put(
        &self,
        messages: impl Stream<Item = FlightData> + Send + 'static,
    ) -> (Vec<serde_json::Value>, Result<(), Status>) {
        let mut acks = Vec::new();
        let result = async {
            let mut answers = self.flight().do_put(messages).await?.into_inner();
            while let Some(PutResult { app_metadata }) = answers.try_next().await? {
                acks.push(serde_json::from_slice(&app_metadata).unwrap());
            }
            Ok(())
        };
        let result = result.await;
        (acks, result)
    }

    pub fn ask_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Stops the server and waits for it.
    pub async fn stop(mut self) {
        if self.stop.is_some() {
            self.ask_to_stop();
        }
        let Self { client, channel, serving, engine, .. } = self;
        drop((client, channel));
        tokio::time::timeout(Duration::from_secs(30), serving).await.unwrap().unwrap().unwrap();
        engine.shutdown().await;
    }
}

/// Rows with ids from `first`; every vector is filled with its id.
pub fn batch(first: u64, rows: u64, dimension: usize) -> RecordBatch {
    let ids: Vec<u64> = (first..first + rows).collect();
    let elements: Vec<f32> = ids.iter().flat_map(|id| std::iter::repeat_n(*id as f32, dimension)).collect();
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let vectors =
        FixedSizeListArray::try_new(item, dimension as i32, Arc::new(Float32Array::from(elements)), None)
            .unwrap();
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(UInt64Array::from(ids))), ("vector", Arc::new(vectors))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The messages of batches: a schema with the descriptor, then one message each.
pub fn messages(collection: &str, batches: &[RecordBatch]) -> Vec<FlightData> {
    let mut messages = batches_to_flight_data(batches[0].schema_ref(), batches).unwrap();
    messages[0].flight_descriptor = Some(FlightDescriptor::new_path(vec![collection.into()]));
    messages
}

/// A record.
pub fn record(id: impl Into<proto::Id>, vector: Vec<f32>) -> proto::Record {
    proto::Record { id: Some(id.into()), vector: Some(vector.into()), ..Default::default() }
}

/// The stable reason of a status.
pub fn reason(status: &Status) -> String {
    let details = tonic_types::StatusExt::get_error_details(status);
    details.error_info().map(|info| info.reason.clone()).unwrap_or_default()
}
