//! The side door for machines: /metrics, /healthz, /readyz.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use pando_telemetry::Metrics;

/// `ready` is false before the server serves and once it is about to stop.
pub fn router(metrics: Metrics, ready: Arc<AtomicBool>) -> Router {
    let render = move || {
        let metrics = metrics.clone();
        async move { ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render()) }
    };
    let readyz = move || {
        let ready = ready.load(Ordering::Acquire);
        async move {
            if ready { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
        }
    };
    Router::new()
        .route("/metrics", get(render))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
}
