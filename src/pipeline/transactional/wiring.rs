//! From the configuration to what a worker is told.

use std::path::PathBuf;
use std::time::Duration;

use super::{Options, WindowOptions};
use crate::config::kafka::Properties;
use crate::config::{Config, sink, source};
use crate::kafka::client::ClusterOptions;
use crate::pipeline::preflight;
use crate::sink::kafka::{KafkaSinkOptions, Topics};
use crate::source::kafka::{Assignment, KafkaSourceOptions};

/// The settled offset of an idle partition is committed again this often; Kafka's own expiry is seven days.
const REFRESH: Duration = Duration::from_secs(24 * 3600);
const TOPIC_CHECK: Duration = Duration::from_secs(10);
/// A batch never exceeds what librdkafka fills it with by default, nor what the smallest topic takes.
pub const BATCH_BYTES_MAX: usize = 1_000_000;

pub fn source_cluster(config: &Config) -> ClusterOptions {
    cluster(&config.oauth_token_file, &config.source.brokers, &config.source.properties)
}

pub fn sink_cluster(config: &Config) -> ClusterOptions {
    cluster(&config.oauth_token_file, &config.sink.brokers, &config.sink.properties)
}

pub fn cluster(oauth_token_file: &Option<PathBuf>, brokers: &[String], properties: &Properties) -> ClusterOptions {
    ClusterOptions {
        brokers: brokers.join(","),
        properties: properties.0.clone(),
        oauth_token_file: oauth_token_file.clone(),
    }
}

pub fn source(config: &Config) -> KafkaSourceOptions {
    source_of(&config.source, &config.oauth_token_file)
}

/// The same for the operator's commands, which are told less.
pub fn source_of(source: &source::Source, oauth_token_file: &Option<PathBuf>) -> KafkaSourceOptions {
    KafkaSourceOptions {
        cluster: cluster(oauth_token_file, &source.brokers, &source.properties),
        topics: source.topics.clone(),
        group: source.group.clone(),
        assignment: match source.assignment {
            source::Assignment::Eager => Assignment::Eager,
            source::Assignment::Cooperative => Assignment::Cooperative,
        },
        session_timeout: source.session_timeout,
        fetch_ahead_kib: (source.fetch_ahead_bytes / 1024).clamp(1, 1 << 20) as u32,
    }
}

/// Options of the worker with this number.
pub fn options(config: &Config, topics: &preflight::Topics, worker: usize) -> Options {
    let smallest = topics.forward_bytes_max.min(topics.dead_letter_bytes_max);
    let largest = topics.forward_bytes_max.max(topics.dead_letter_bytes_max);
    Options {
        source: source(config),
        sink: KafkaSinkOptions {
            cluster: sink_cluster(config),
            transactional_id: config.identity.transactional_id(worker),
            transaction_timeout: config.sink.transaction_timeout,
            record_bytes_max: largest.clamp(1_000, 1_000_000_000),
            batch_bytes_max: smallest.min(BATCH_BYTES_MAX),
        },
        topics: Topics {
            forward: config.sink.topic.clone(),
            dead_letter: config.sink.dead_letter.clone(),
            duplicates: config.sink.duplicates.clone(),
        },
        same_partition: config.sink.partitioning == sink::Partitioning::Same,
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
        forward_bytes_max: topics.forward_bytes_max,
        dead_letter_bytes_max: topics.dead_letter_bytes_max,
        known_ids: config.window.recent_ids_max,
        refresh: REFRESH,
        topic_check: TOPIC_CHECK,
    }
}

#[cfg(test)]
#[path = "wiring_tests.rs"]
mod tests;
