//! From the configuration to what a worker is told, and to its sink.

use std::time::Duration;

use super::Options;
use crate::config::ends::Sink as SinkConfig;
use crate::config::settled::SettledConfig;
use crate::kafka::client::ClusterOptions;
use crate::pipeline::leased::wiring::{PlainSink, plain_sink};
use crate::pipeline::transactional::WindowOptions;
use crate::pipeline::transactional::wiring::{cluster, source_of};
use crate::sink::Sink;

const TOPIC_CHECK: Duration = Duration::from_secs(10);

pub fn source_cluster(config: &SettledConfig) -> ClusterOptions {
    cluster(&config.oauth_token_file, &config.source.brokers, &config.source.properties)
}

pub fn options(config: &SettledConfig) -> Options {
    Options {
        source: source_of(&config.source, &config.oauth_token_file),
        scope: config.scope.clone(),
        extraction: config.keys.extraction.clone(),
        bounds: config.retention.bounds,
        policies: config.policies,
        accept_recipe: config.keys.accept_change.then(|| config.keys.extraction.digest()),
        reset: config.source.reset,
        window: WindowOptions {
            messages_max: config.window.messages_max,
            bytes_max: config.window.bytes_max,
            linger: config.window.linger,
        },
        lease: config.lease,
        publish_timeout: config.publish_timeout,
        topic_check: TOPIC_CHECK,
    }
}

/// Of the worker with this number. None for Kafka, which is no sink of this pipeline's.
pub fn sink(config: &SettledConfig, worker: usize) -> Option<Box<dyn Sink>> {
    plain_sink(&PlainSink {
        sink: &config.sink,
        name: format!("semel {}/{}/{worker}", config.identity.pipeline, config.identity.instance),
        dead_letter: config.dead_letter.as_deref(),
        duplicates: config.duplicates.as_deref(),
        publish_timeout: config.publish_timeout,
        lease: config.lease,
    })
}

/// README's table of promises, for this pair.
pub fn promise(config: &SettledConfig) -> &'static str {
    match config.sink {
        SinkConfig::Nats(_) => "never lost; once within the stream's duplicate window",
        SinkConfig::File(_) => {
            "never lost; twice only after a crash between write and settle, or an owner that outlived its lease"
        }
        SinkConfig::RabbitMq(_) | SinkConfig::Kafka(_) => {
            "never lost; twice, with the same message_id, only after a publish in doubt, a crash between publish and \
             settle, or an owner that outlived its lease"
        }
    }
}
