//! From the configuration to what a worker is told, and to the two ends it works between.

use std::path::PathBuf;
use std::time::Duration;

use super::outlet::{settled_group, transactional_id};
use super::{KafkaOutlet, Options, Outlet, WindowOptions};
use crate::config::ends::{Sink as SinkConfig, Source as SourceConfig};
use crate::config::leased::LeasedConfig;
use crate::config::{file_end, kafka_end, nats, rabbitmq};
use crate::kafka::admin::{AdminError, TopicFacts, cluster_id, topic_facts};
use crate::kafka::client::ClusterOptions;
use crate::pipeline::transactional::wiring::{BATCH_BYTES_MAX, cluster};
use crate::protocol::lane::{StoreId, StreamId};
use crate::sink::Sink;
use crate::sink::file::{FileOptions, FileSink, Format};
use crate::sink::kafka::{KafkaSinkOptions, Topics};
use crate::sink::kafka_slot::SlotSinkOptions;
use crate::sink::nats::{NatsOptions, NatsSink, Servers};
use crate::sink::rabbitmq::{RabbitOptions, RabbitSink, Route, Server};
use crate::source::Source;
use crate::source::lines::{LinesOptions, LinesSource};
use crate::source::nats::{NatsSource, NatsSourceOptions};
use crate::source::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions};
use crate::store::StoreError;
use crate::store::slots::SlotStore;

/// Of connecting to a source.
const CONNECT: Duration = Duration::from_secs(10);
/// RabbitMQ gives up a consumer that keeps a delivery for 30 minutes; NATS is asked for more time as long as it lasts.
const HOLD: Duration = Duration::from_secs(10 * 60);
/// Lines that are out at a time.
const LINES: usize = 10_000;

pub fn slot(config: &LeasedConfig) -> StreamId {
    StreamId::slot(&config.pipeline, &config.instance)
}

pub fn options(config: &LeasedConfig, slot: StreamId) -> Options {
    Options {
        slot,
        scope: config.scope.clone(),
        extraction: config.keys.extraction.clone(),
        bounds: config.retention.bounds,
        policies: config.policies,
        accept_recipe: config.keys.accept_change.then(|| config.keys.extraction.digest()),
        window: WindowOptions {
            messages_max: config.window.messages_max,
            bytes_max: config.window.bytes_max,
            linger: config.window.linger,
        },
        lease: config.lease,
        publish_timeout: config.publish_timeout,
        hold: HOLD,
    }
}

pub fn source(config: &LeasedConfig) -> Box<dyn Source> {
    let client = format!("{}/{}", config.pipeline, config.instance);
    match &config.source {
        SourceConfig::RabbitMq(source) => Box::new(RabbitMqSource::new(rabbitmq_source(source, client))),
        SourceConfig::Nats(source) => Box::new(NatsSource::new(nats_source(source, client))),
        SourceConfig::Stdin => Box::new(LinesSource::new(LinesOptions { path: None, prefetch: LINES })),
    }
}

fn rabbitmq_source(
    rabbitmq::Source { servers, vhost, queue, prefetch }: &rabbitmq::Source,
    client: String,
) -> RabbitMqSourceOptions {
    let user = servers.user.clone();
    RabbitMqSourceOptions {
        hosts: servers.hosts.clone(),
        tls: servers.tls,
        user: user.map(|user| (user, password(servers).unwrap_or_default())),
        vhost: vhost.clone(),
        queue: queue.clone(),
        prefetch: *prefetch,
        client,
        timeout: CONNECT,
    }
}

fn nats_source(source: &nats::Source, client: String) -> NatsSourceOptions {
    let nats::Source { servers, stream, consumer, prefetch, ack_wait } = source;
    NatsSourceOptions {
        hosts: servers.hosts.clone(),
        tls: servers.tls,
        user: servers.user.clone(),
        password: password(servers),
        stream: stream.clone(),
        consumer: consumer.clone(),
        prefetch: usize::from(*prefetch),
        ack_wait: *ack_wait,
        client,
        timeout: CONNECT,
    }
}

fn password(servers: &crate::config::servers::Servers) -> Option<String> {
    servers.password.as_ref().map(|password| password.expose().to_owned())
}

/// None for Kafka, whose outlet is of another kind.
pub fn sink(config: &LeasedConfig) -> Option<Box<dyn Sink>> {
    plain_sink(&PlainSink {
        sink: &config.sink,
        name: format!("semel {}/{}", config.pipeline, config.instance),
        dead_letter: config.dead_letter.as_deref(),
        duplicates: config.duplicates.as_deref(),
        publish_timeout: config.publish_timeout,
        lease: config.lease,
    })
}

/// What a sink without transactions is told.
pub(crate) struct PlainSink<'a> {
    pub sink: &'a SinkConfig,
    /// Of the connection.
    pub name: String,
    pub dead_letter: Option<&'a str>,
    pub duplicates: Option<&'a str>,
    pub publish_timeout: Duration,
    pub lease: Duration,
}

/// None for Kafka.
pub(crate) fn plain_sink(config: &PlainSink<'_>) -> Option<Box<dyn Sink>> {
    let name = config.name.clone();
    match config.sink {
        SinkConfig::RabbitMq(sink) => {
            let user = sink.servers.user.as_deref().unwrap_or("guest");
            let secret = password(&sink.servers).unwrap_or_else(|| "guest".to_owned());
            let mut server = Server::new(sink.servers.hosts.clone(), user, &secret, &sink.vhost);
            server.tls = sink.servers.tls;
            server.name = name;
            let route = Route { exchange: sink.exchange.clone(), routing_key: sink.routing_key.clone() };
            let mut options = RabbitOptions::new(server, route);
            options.dead_letter = config.dead_letter.map(Route::to_queue);
            options.duplicates = config.duplicates.map(Route::to_queue);
            options.timeout = config.publish_timeout;
            Some(Box::new(RabbitSink::new(options)))
        }
        SinkConfig::Nats(sink) => {
            let mut servers = Servers::new(sink.servers.hosts.clone());
            servers.tls = sink.servers.tls;
            servers.user = sink.servers.user.clone();
            servers.password = password(&sink.servers);
            servers.name = name;
            let mut options = NatsOptions::new(servers, &sink.subject);
            options.dead_letter = config.dead_letter.map(str::to_owned);
            options.duplicates = config.duplicates.map(str::to_owned);
            options.timeout = config.publish_timeout;
            options.lease = config.lease;
            Some(Box::new(NatsSink::new(options)))
        }
        SinkConfig::File(sink) => Some(Box::new(file_sink(sink, config.dead_letter, config.duplicates))),
        SinkConfig::Kafka(_) => None,
    }
}

pub(crate) fn file_sink(sink: &file_end::Sink, dead_letter: Option<&str>, duplicates: Option<&str>) -> FileSink {
    FileSink::new(FileOptions {
        path: sink.path.clone(),
        format: if sink.records { Format::Record } else { Format::Value },
        dead_letter: dead_letter.map(PathBuf::from),
        duplicates: duplicates.map(PathBuf::from),
    })
}

/// README's table of promises, for this pair.
pub fn promise(config: &LeasedConfig) -> String {
    let once = match config.sink {
        SinkConfig::Kafka(_) => "into kafka exactly once, as seen by a read_committed reader",
        SinkConfig::Nats(_) => "never lost; once within the stream's duplicate window",
        SinkConfig::File(_) => {
            "never lost; twice only after a crash between write and settle, or a holder that outlived its lease"
        }
        SinkConfig::RabbitMq(_) => {
            "never lost; twice, with the same message_id, only after a publish in doubt, a crash between publish and \
             settle, or a holder that outlived its lease"
        }
    };
    match config.source {
        SourceConfig::RabbitMq(_) | SourceConfig::Nats(_) => once.to_owned(),
        SourceConfig::Stdin => {
            format!("{once}; what this process had not done when it ended is for its sender to repeat")
        }
    }
}

/// Why Kafka cannot be written to yet. Waiting may mend it.
#[derive(Debug, thiserror::Error)]
pub enum NotYet {
    #[error(transparent)]
    Brokers(#[from] AdminError),
    #[error("the brokers {0} do not say which cluster they are")]
    Nameless(String),
    #[error("the claim store does not say which it is")]
    Store(#[from] StoreError),
}

/// The outlet and its slot, or what is wrong with the topics for good.
pub async fn kafka_outlet(
    config: &LeasedConfig,
    kafka: &kafka_end::Sink,
    store: &dyn SlotStore,
    timeout: Duration,
) -> Result<Result<(Outlet, StreamId), Vec<String>>, NotYet> {
    let topics = Topics {
        forward: kafka.topic.clone(),
        dead_letter: config.dead_letter.clone(),
        duplicates: config.duplicates.clone(),
    };
    let found = IntoKafka::find(kafka, topics, store, timeout).await?;
    Ok(found.map(|into| into.outlet(&config.pipeline, &config.instance)))
}

/// A cluster and its topics, as they were found.
pub struct IntoKafka {
    cluster_id: String,
    store_id: StoreId,
    cluster: ClusterOptions,
    topics: Topics,
    transaction_timeout: Duration,
    record_bytes_max: usize,
}

impl IntoKafka {
    /// Inner error: what is wrong with the topics for good.
    pub async fn find(
        kafka: &kafka_end::Sink,
        topics: Topics,
        store: &dyn SlotStore,
        timeout: Duration,
    ) -> Result<Result<IntoKafka, Vec<String>>, NotYet> {
        let cluster = cluster(&kafka.oauth_token_file, &kafka.brokers, &kafka.properties);
        let names: Vec<&str> = std::iter::once(topics.forward.as_str())
            .chain(topics.dead_letter.as_deref())
            .chain(topics.duplicates.as_deref())
            .collect();
        let facts = topic_facts(&cluster, &names, timeout).await?;
        let absent = |(name, facts): (&String, &TopicFacts)| {
            facts.partitions.is_none().then(|| format!("topic {name}: it is not there, or may not be described"))
        };
        let problems: Vec<String> = facts.iter().filter_map(absent).collect();
        if !problems.is_empty() {
            return Ok(Err(problems));
        }
        let cluster_id = cluster_id(&cluster, timeout)?.ok_or_else(|| NotYet::Nameless(cluster.brokers.clone()))?;
        let record_bytes_max = facts.values().map(|topic| topic.record_bytes_max).min().unwrap_or(BATCH_BYTES_MAX);
        let (store_id, transaction_timeout) = (store.store_id().await?, kafka.transaction_timeout);
        Ok(Ok(IntoKafka { cluster_id, store_id, cluster, topics, transaction_timeout, record_bytes_max }))
    }

    pub fn outlet(&self, pipeline: &str, instance: &str) -> (Outlet, StreamId) {
        let options = SlotSinkOptions {
            kafka: KafkaSinkOptions {
                cluster: self.cluster.clone(),
                transactional_id: transactional_id(pipeline, instance),
                transaction_timeout: self.transaction_timeout,
                record_bytes_max: self.record_bytes_max.clamp(1_000, 1_000_000_000),
                batch_bytes_max: self.record_bytes_max.min(BATCH_BYTES_MAX),
            },
            topics: self.topics.clone(),
            group: settled_group(pipeline, instance),
        };
        let slot = StreamId::slot_in_kafka(&self.cluster_id, pipeline, instance);
        (Outlet::Kafka(Box::new(KafkaOutlet::new(options, self.store_id.clone()))), slot)
    }
}
