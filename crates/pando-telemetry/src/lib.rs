//! Logging and metrics of a process: set up once, at the start.
//!
//! Logs go to standard error, lines for people or JSON for machines; `PANDO_LOG` sets what is logged in the syntax of
//! tracing-subscriber ("info", "pando_engine=debug,warn"). Metrics are gathered through the `metrics` facade and rendered in
//! Prometheus' text format by whoever holds [`Metrics`].

use std::sync::OnceLock;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The environment variable that sets what is logged.
pub const LOG_VARIABLE: &str = "PANDO_LOG";

/// Starts logging to standard error. `default` applies where `PANDO_LOG` is not set or cannot be read. A second call does nothing.
pub fn init_logging(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match format {
        LogFormat::Text => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// The process's metrics.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// Upper bounds of the buckets of every `*_seconds` histogram: 100 µs to 60 s.
const SECONDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
];

impl Metrics {
    /// The process's recorder; installed at the first call.
    pub fn install() -> Result<Metrics, BuildError> {
        static INSTALLED: OnceLock<Metrics> = OnceLock::new();
        if let Some(metrics) = INSTALLED.get() {
            return Ok(metrics.clone());
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
            .build_recorder();
        let metrics = Metrics(recorder.handle());
        // Somebody else's recorder stays; then ours renders nothing, which is no reason to stop a server.
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::debug!("a metrics recorder is installed already");
        }
        Ok(INSTALLED.get_or_init(|| metrics).clone())
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> String {
        self.0.run_upkeep();
        self.0.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_metrics_hold_counters_and_buckets() {
        let metrics = Metrics::install().unwrap();
        assert!(Metrics::install().is_ok(), "a second call gives the same recorder");
        metrics::counter!("pando_test_total").increment(3);
        metrics::histogram!("pando_test_seconds").record(0.003);
        let text = metrics.render();
        assert!(text.contains("pando_test_total 3"), "{text}");
        assert!(text.contains("pando_test_seconds_bucket{le=\"0.005\"} 1"), "{text}");
    }
}
