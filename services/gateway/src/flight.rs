//! Arrow Flight on the port of the API: DoPut loads records in bulk; descriptors are paths of one part, the collection's name.

mod put;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use futures::stream::{BoxStream, StreamExt};
use pando_engine::ErrorKind;
use pando_engine::api::CollectionDescription;
use pando_format::AttributeType;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::api::Api;
use crate::convert;
use crate::errors::{internal, invalid, status, unimplemented};

/// The Flight service. Cheap to clone.
#[derive(Clone)]
pub struct Flight {
    api: Api,
    /// Set when the server is about to stop: bulk streams end after the batch under way.
    stopping: CancellationToken,
}

impl Flight {
    pub fn new(api: Api, stopping: CancellationToken) -> Self {
        Self { api, stopping }
    }

    async fn describe(&self, descriptor: &FlightDescriptor) -> Result<CollectionDescription, Status> {
        let collection = collection(Some(descriptor))?;
        self.api.engine.describe(&collection).await.map_err(status)
    }
}

/// The collection that a descriptor names.
fn collection(descriptor: Option<&FlightDescriptor>) -> Result<String, Status> {
    match descriptor.map(|descriptor| descriptor.path.as_slice()) {
        Some([name]) => Ok(name.clone()),
        Some([]) | None => Err(invalid(
            "DESCRIPTOR_MISSING",
            "the flight descriptor must be a path of one part: the collection's name",
        )),
        Some(path) => Err(invalid(
            "BAD_DESCRIPTOR",
            format!(
                "the flight descriptor's path has {} parts; it must have one, the collection's name",
                path.len()
            ),
        )),
    }
}

fn not_there(what: &str, instead: &str) -> Status {
    unimplemented(format!("{what} is not there; {instead}"))
}

/// Columns that DoPut takes for a collection. Ids may be UInt64 or Utf8, which one field cannot say; its metadata does.
fn schema(described: &CollectionDescription) -> Schema {
    let config = &described.config;
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let id = Field::new("id", DataType::UInt64, false)
        .with_metadata(HashMap::from([("pando.types".to_owned(), "uint64 or utf8".to_owned())]));
    let mut fields =
        vec![id, Field::new("vector", DataType::FixedSizeList(item, config.dimension as i32), false)];
    for (name, ty) in &described.attributes {
        fields.push(Field::new(name, data_type(*ty), true));
    }
    let metric =
        convert::wire_metric(config.metric).as_str_name().trim_start_matches("METRIC_").to_lowercase();
    Schema::new_with_metadata(fields, HashMap::from([("pando.metric".to_owned(), metric)]))
}

fn data_type(ty: AttributeType) -> DataType {
    let list = |item| DataType::List(Arc::new(Field::new("item", item, false)));
    match ty {
        AttributeType::Bool => DataType::Boolean,
        AttributeType::Int64 => DataType::Int64,
        AttributeType::Float64 => DataType::Float64,
        AttributeType::String => DataType::Utf8,
        AttributeType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        AttributeType::Bytes => DataType::Binary,
        AttributeType::BoolList => list(DataType::Boolean),
        AttributeType::Int64List => list(DataType::Int64),
        AttributeType::Float64List => list(DataType::Float64),
        AttributeType::StringList => list(DataType::Utf8),
    }
}

fn info(described: &CollectionDescription) -> Result<FlightInfo, Status> {
    let info = FlightInfo::new()
        .try_with_schema(&schema(described))
        .map_err(|error| internal(format!("a schema cannot be encoded: {error}")))?
        .with_descriptor(FlightDescriptor::new_path(vec![described.config.name.clone()]))
        .with_total_records(described.records.try_into().unwrap_or(-1))
        .with_total_bytes(-1);
    Ok(info)
}

type Answer<T> = Result<Response<T>, Status>;
type Streamed<T> = BoxStream<'static, Result<T, Status>>;

#[tonic::async_trait]
impl FlightService for Flight {
    type HandshakeStream = Streamed<HandshakeResponse>;
    type ListFlightsStream = Streamed<FlightInfo>;
    type DoGetStream = Streamed<FlightData>;
    type DoPutStream = Streamed<PutResult>;
    type DoExchangeStream = Streamed<FlightData>;
    type DoActionStream = Streamed<arrow_flight::Result>;
    type ListActionsStream = Streamed<ActionType>;

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        let columns = put::Columns::from_headers(request.metadata())?;
        let stream = put::stream(self.api.clone(), self.stopping.clone(), columns, request.into_inner());
        Ok(Response::new(stream))
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        let engine = self.api.engine.clone();
        let names = engine.list_collections().await.map_err(status)?;
        let flights = futures::stream::iter(names).then(move |name| {
            let engine = engine.clone();
            async move { engine.describe(&name).await }
        });
        // A collection that is dropped meanwhile is no longer a flight.
        let flights = flights.filter_map(|described| async move {
            match described {
                Ok(described) => Some(info(&described)),
                Err(error) if error.kind == ErrorKind::NotFound => None,
                Err(error) => Some(Err(status(error))),
            }
        });
        Ok(Response::new(flights.boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        Ok(Response::new(info(&self.describe(request.get_ref()).await?)?))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let schema = schema(&self.describe(request.get_ref()).await?);
        SchemaAsIpc::new(&schema, &IpcWriteOptions::default())
            .try_into()
            .map(Response::new)
            .map_err(|error| internal(format!("a schema cannot be encoded: {error}")))
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Answer<Self::ListActionsStream> {
        Ok(Response::new(futures::stream::empty().boxed()))
    }

    async fn handshake(
        &self,
        _request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        Err(not_there("Handshake", "this server asks for no credentials"))
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        Err(not_there("PollFlightInfo", "use GetFlightInfo"))
    }

    async fn do_get(&self, _request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        Err(not_there("DoGet", "read records with RecordService.Scan"))
    }

    async fn do_exchange(&self, _request: Request<Streaming<FlightData>>) -> Answer<Self::DoExchangeStream> {
        Err(not_there("DoExchange", "search with QueryService.Query"))
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        let action = request.into_inner().r#type;
        Err(not_there(
            &format!("the action {action:?}"),
            "the gRPC services on this port do what there is to do",
        ))
    }
}
