//! Binds the ports, serves, and stops in good order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use pando_engine::Engine;
use pando_proto::v1::{
    admin_service_server::AdminServiceServer, collection_service_server::CollectionServiceServer,
    query_service_server::QueryServiceServer, record_service_server::RecordServiceServer,
};
use pando_proto::{FILE_DESCRIPTOR_SET, MAX_WIRE_BYTES};
use pando_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;

use crate::api::Api;
use crate::edge::EdgeLayer;
use crate::flight::Flight;
use crate::http;
use crate::settings::Settings;

/// Why the gateway cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A port is taken, or the address is not this machine's.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The server stopped by itself.
    #[error("the server stopped: {0}")]
    Stopped(String),
}

/// Services whose health is told, and the server as a whole.
const SERVICES: [&str; 6] = [
    "",
    "pando.v1.CollectionService",
    "pando.v1.RecordService",
    "pando.v1.QueryService",
    "pando.v1.AdminService",
    "arrow.flight.protocol.FlightService",
];

/// HTTP/2 windows: large enough that bulk data does not wait for window updates, small enough for many connections.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// A gateway whose ports are bound.
pub struct Gateway {
    engine: Arc<Engine>,
    settings: Settings,
    metrics: Metrics,
    grpc: TcpListener,
    http: Option<TcpListener>,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bound.await.map_err(|error| ServeError::Bind { address, error })
}

impl Gateway {
    /// Binds the ports.
    pub async fn bind(engine: Arc<Engine>, settings: Settings, metrics: Metrics) -> Result<Self, ServeError> {
        let (grpc, address) = bind(settings.listen).await?;
        let (http, http_address) = match settings.http {
            Some(address) => {
                let (listener, address) = bind(address).await?;
                (Some(listener), Some(address))
            }
            None => (None, None),
        };
        Ok(Self { engine, settings, metrics, grpc, http, address, http_address })
    }

    /// Where gRPC and Flight are served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics and health are served.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Serves until `shutdown` is ready. Then health says NOT_SERVING, new connections are refused, calls under way are finished
    /// within the drain time, and bulk streams end after the batch under way. The engine is left to its owner.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let stopping = CancellationToken::new();
        let (health, health_service) = tonic_health::server::health_reporter();
        let set_health = async |status: ServingStatus| {
            for service in SERVICES {
                health.set_service_status(service, status).await;
            }
        };

        let routes = routes(&self.engine, &stopping).add_service(health_service);
        let incoming = TcpIncoming::from(self.grpc).with_nodelay(Some(true));
        let server = Server::builder()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(1024)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(Duration::from_secs(20)))
            .layer(EdgeLayer::new(&self.settings))
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, stopping.clone().cancelled_owned());
        // Before the first call can arrive.
        set_health(ServingStatus::Serving).await;
        let mut server = tokio::spawn(server);

        let ready = Arc::new(AtomicBool::new(true));
        let http = self.http.map(|listener| {
            let router = http::router(self.metrics, ready.clone());
            tokio::spawn(async move { axum::serve(listener, router).await })
        });

        tokio::select! {
            () = shutdown => {}
            ended = &mut server => return Err(ServeError::Stopped(format!("{ended:?}"))),
        }
        ready.store(false, Ordering::Release);
        set_health(ServingStatus::NotServing).await;
        stopping.cancel();
        match tokio::time::timeout(self.settings.drain, &mut server).await {
            Ok(Ok(Ok(()))) => {}
            Ok(ended) => tracing::warn!("the server ended with {ended:?}"),
            Err(_) => {
                tracing::warn!("calls were still under way after {:?}; they are cut", self.settings.drain);
                server.abort();
            }
        }
        if let Some(http) = http {
            http.abort();
        }
        Ok(())
    }
}

fn routes(engine: &Arc<Engine>, stopping: &CancellationToken) -> Routes {
    let api = Api::new(engine.clone());
    macro_rules! sized {
        ($service:expr) => {
            $service.max_decoding_message_size(MAX_WIRE_BYTES).max_encoding_message_size(MAX_WIRE_BYTES)
        };
    }
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection_v1 = reflection().build_v1().expect("the compiled protos are well-formed");
    let reflection_v1alpha = reflection().build_v1alpha().expect("the compiled protos are well-formed");
    Routes::new(sized!(CollectionServiceServer::new(api.clone())))
        .add_service(sized!(RecordServiceServer::new(api.clone())))
        .add_service(sized!(QueryServiceServer::new(api.clone())))
        .add_service(sized!(AdminServiceServer::new(api.clone())))
        .add_service(sized!(FlightServiceServer::new(Flight::new(api, stopping.clone()))))
        .add_service(reflection_v1)
        .add_service(reflection_v1alpha)
}
