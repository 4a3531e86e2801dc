//! `serve`: the engine on a local directory, behind the gateway.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use pando_coordination::InProcess;
use pando_engine::environment::{SystemClock, SystemRandom};
use pando_engine::{Components, Engine, Settings};
use pando_gateway::Gateway;
use pando_kernels::Kernels;
use pando_store::{Store, StoreOptions};
use pando_telemetry::Metrics;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{self, Role};
use crate::output::Printer;

/// Opens the engine on a directory, with coordination inside this process.
pub async fn open(directory: &Path, settings: Settings) -> Result<Arc<Engine>> {
    let store = Store::open_local(directory, StoreOptions::default())
        .map_err(|error| {
            tracing::error!(inside = error.internal(), "the data directory cannot be opened");
            anyhow::Error::new(error)
        })
        .with_context(|| format!("{} cannot be used as a data directory", directory.display()))?;
    let components = Components {
        coordinator: Arc::new(InProcess::new(store.clock().clone())),
        store,
        kernels: Kernels::from_env()?,
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Ok(Engine::open(components, settings).await?)
}

/// Ready when the process is asked to stop.
pub async fn asked_to_stop() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

pub async fn run(args: &cli::Serve, printer: Printer) -> Result<()> {
    let has = |role| args.role.contains(&role);
    if !has(Role::Gateway) || !has(Role::Query) {
        bail!(
            "--role must name gateway and query: on one machine a process has nobody to share this work with; \
             leave out only the compactor"
        );
    }
    let settings = Settings {
        threads: args.threads.map_or(0, usize::from),
        cache_memory: args.cache_memory.as_u64(),
        compactor_memory: args.compactor_memory.as_u64(),
        auto_compact: args.auto_compact && has(Role::Compactor),
        auto_collect: has(Role::Compactor),
        ..Settings::default()
    };
    let metrics = Metrics::install()?;
    let engine = open(&args.data_dir, settings).await?;
    let gateway = pando_gateway::Settings {
        listen: args.listen,
        http: Some(args.http),
        ..pando_gateway::Settings::default()
    };
    let gateway = Gateway::bind(engine.clone(), gateway, metrics).await?;
    let (address, http) = (gateway.address(), gateway.http_address());
    let http = http.map(|http| http.to_string()).unwrap_or_default();
    printer.result(
        || json!({ "listen": address.to_string(), "http": http, "kernels": engine.environment().kernels.simd().to_string() }),
        || {
            format!(
                "Pando serves gRPC and Arrow Flight on http://{address}, metrics on http://{http}/metrics, \
                 data in {}. Ctrl-C stops it.",
                args.data_dir.display()
            )
        },
    );
    let served = gateway.serve(asked_to_stop()).await;
    tracing::info!("stopping");
    engine.shutdown().await;
    Ok(served?)
}
