//! What an operator tunes. Data only.

use std::net::SocketAddr;
use std::time::Duration;

/// Settings of the gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where gRPC and Flight are served. Default 127.0.0.1:7700; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where /metrics, /healthz and /readyz are served; `None` for nowhere. Default 127.0.0.1:7701.
    pub http: Option<SocketAddr>,
    /// Reads under way at once; more wait. Default 256. Higher: more memory for answers.
    pub reads: usize,
    /// Writes under way at once, each of at most 64 MiB; more wait. Default 32. Higher: more memory for bodies.
    pub writes: usize,
    /// Bulk streams (DoPut) open at once; more wait. Default 16. Higher: more memory for batches.
    pub streams: usize,
    /// Calls that may wait for their turn, of each kind; more are refused with RESOURCE_EXHAUSTED. Default 1,024.
    pub waiting: usize,
    /// A call whose next message does not come for so long is ended with DEADLINE_EXCEEDED. Default 2 minutes.
    pub idle: Duration,
    /// How long calls under way may take after a shutdown began. Default 20 seconds.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 7701))),
            reads: 256,
            writes: 32,
            streams: 16,
            waiting: 1024,
            idle: Duration::from_secs(120),
            drain: Duration::from_secs(20),
        }
    }
}
