//! Logs and metrics of the process. Traces have their place beside them: another layer of the same subscriber.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
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

/// Libraries that tell of each of their steps: of `info` and more for all, only their warnings are let through, unless
/// they are named. RabbitMQ's client warns of every returned message with all that is in it: what becomes of those is
/// told without their contents.
///
/// This is no part of the setting's default, because it has to hold beside a level that somebody gives too: who asks for
/// `debug` wants to hear of Semel, not of every table that the engine merges.
fn quiet(filter: &str) -> String {
    const LOUD: &str = "fjall=warn,lsm_tree=warn,async_nats=warn";
    const RETURNED: &str = "lapin::returned_messages=error";
    let level = |one: &str| one.parse::<LevelFilter>().ok();
    // What is named behind these goes over them.
    match filter.split(',').filter_map(level).max() {
        Some(LevelFilter::OFF) => filter.to_owned(),
        Some(level) if level > LevelFilter::WARN => format!("{LOUD},{RETURNED},{filter}"),
        _ => format!("{RETURNED},{filter}"),
    }
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

#[cfg(test)]
mod tests {
    use super::quiet;

    #[test]
    fn libraries_are_never_louder_than_was_asked_for() {
        let returned = |filter: &str| format!("lapin::returned_messages=error,{filter}");
        let quieted = |filter: &str| format!("fjall=warn,lsm_tree=warn,async_nats=warn,{}", returned(filter));
        for filter in ["info", "debug,semel=trace", "trace,fjall=debug"] {
            assert_eq!(quiet(filter), quieted(filter));
        }
        for filter in ["error", "warn", "semel::store=debug", "warn,fjall=info"] {
            assert_eq!(quiet(filter), returned(filter), "nothing of the engine's would be shown anyhow");
        }
        assert_eq!(quiet("off"), "off");
    }
}
