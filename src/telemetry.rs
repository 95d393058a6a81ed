//! Logs and metrics of the process. Traces have their place beside them: another layer of the same subscriber.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::outside::{Log, LogFormat};
use crate::metrics as names;

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("the log filter is not valid")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging is set up already")]
    Log(#[from] tracing_subscriber::util::TryInitError),
    #[error("metrics cannot be set up")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Libraries that tell of each of their steps are only let through with warnings, unless they are named. RabbitMQ's client
/// warns of every returned message with all that is in it: what becomes of those is told without their contents.
fn quiet(filter: &str) -> String {
    const LIBRARIES: &str = "fjall=warn,lsm_tree=warn,async_nats=warn,lapin::returned_messages=error";
    if filter.contains("off") { filter.to_owned() } else { format!("{LIBRARIES},{filter}") }
}

/// Called once, before anything is logged or counted.
pub fn set_up(log: &Log) -> Result<PrometheusHandle, TelemetryError> {
    let filter = EnvFilter::try_new(quiet(&log.filter))?;
    let registry = tracing_subscriber::registry().with(filter);
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    if json {
        let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
        registry.with(lines).try_init()?;
    } else {
        registry.with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr)).try_init()?;
    }
    let seconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
    let messages = [1.0, 10.0, 100.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 50_000.0];
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(names::PHASE_SECONDS.to_owned()), &seconds)?
        .set_buckets_for_metric(Matcher::Full(names::WINDOW_MESSAGES.to_owned()), &messages)?
        .install_recorder()?;
    names::describe();
    Ok(handle)
}
