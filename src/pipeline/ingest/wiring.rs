//! From the configuration to what ingest is told and given.

use std::time::Duration;

use super::{BadTarget, Options, Retention, Schemas, Undeduped, check_scope};
use crate::config::ends;
use crate::config::ingest::IngestConfig;
use crate::pipeline::chain;
use crate::pipeline::leased::Outlet;
use crate::pipeline::leased::wiring::{self as leased, IntoKafka};
use crate::protocol::lane::StreamId;
use crate::sink::file::FileSink;
use crate::sink::kafka::Topics;
use crate::sink::nats::{self, NatsOptions, NatsSink};
use crate::sink::rabbitmq::{RabbitOptions, RabbitSink, Route, Server};
use crate::sink::{Sink, SinkError};
use crate::store::slots::SlotStore;

const CONNECT: Duration = Duration::from_secs(5);
/// Of a window: what a connection of the sink is given at a time.
const WINDOW_BYTES_MAX: usize = 8 << 20;

/// What the configuration alone cannot judge.
#[derive(Debug, thiserror::Error)]
pub enum BadConfig {
    #[error("SEMEL_SCOPE: {0}")]
    Scope(#[from] BadTarget),
    #[error("SEMEL_INGEST_UNDEDUPED: {0}")]
    Undeduped(String),
    #[error("SEMEL_INGEST_RETENTION: {0}")]
    Retention(String),
    #[error("SEMEL_INGEST_SCHEMAS: {0}")]
    Schemas(String),
}

/// What the pair promises, for the log.
pub fn promise(config: &IngestConfig) -> &'static str {
    match config.sink {
        ends::Sink::RabbitMq(_) => {
            "never lost; twice, with one message_id, only after a publish in doubt, a crash between publish and commit, or \
             a lease that was outlived"
        }
        ends::Sink::Nats(_) => "never lost; once within the stream's duplicate window",
        ends::Sink::Kafka(_) => "exactly once, as seen by a read_committed reader",
        ends::Sink::File(_) => {
            "never lost; twice only after a crash between write and commit, or a lease that was outlived"
        }
    }
}

pub fn options(config: &IngestConfig) -> Result<Options, BadConfig> {
    check_scope(&config.scope)?;
    let undeduped = match &config.undeduped {
        None => Undeduped::default(),
        Some(text) => Undeduped::of(text).map_err(BadConfig::Undeduped)?,
    };
    let retention = match &config.claims_kept {
        None => Retention::default(),
        Some(text) => Retention::of(text).map_err(BadConfig::Retention)?,
    };
    let schemas = match &config.schemas {
        None => Schemas::default(),
        Some(text) => Schemas::of(text).map_err(BadConfig::Schemas)?,
    };
    Ok(Options {
        pipeline: config.pipeline.clone(),
        instance: config.instance.clone(),
        lanes: config.lanes,
        scope: config.scope.clone(),
        extraction: config.extraction.clone(),
        accept_recipe: config.accept_change.then(|| config.extraction.digest()),
        undeduped,
        schemas,
        retention,
        window_records_max: config.window_records_max,
        window_bytes_max: WINDOW_BYTES_MAX,
        record_bytes_max: config.record_bytes_max,
        lease: config.lease,
        publish_timeout: config.publish_timeout,
    })
}

/// Where records go: a connection to the sink for each lane, made when it is first used.
pub struct Outlets<'a> {
    config: &'a IngestConfig,
    into_kafka: Option<IntoKafka>,
    /// All lanes write to one.
    file: Option<FileSink>,
}

impl<'a> Outlets<'a> {
    /// Looks whether the sink can be written to. Err: waiting may mend it; inner error: what is wrong with it for good.
    pub async fn find(
        config: &'a IngestConfig,
        store: &dyn SlotStore,
        timeout: Duration,
    ) -> Result<Result<Outlets<'a>, Vec<String>>, NotYet> {
        let ends::Sink::Kafka(kafka) = &config.sink else {
            let file = file(config);
            let shared = file.clone().map(|file| Box::new(file) as Box<dyn Sink>);
            let Some(mut sink) = shared.or_else(|| sink(config)) else {
                return Ok(Ok(Outlets { config, into_kafka: None, file }));
            };
            return match sink.check().await {
                Ok(()) => Ok(Ok(Outlets { config, into_kafka: None, file })),
                Err(SinkError::Refused(cause)) => Ok(Err(vec![format!("the sink refuses: {}", chain(&*cause))])),
                Err(error @ SinkError::Lost(_)) => Err(NotYet::Sink(error)),
            };
        };
        let topics = Topics { forward: kafka.topic.clone(), dead_letter: None, duplicates: None };
        let found = IntoKafka::find(kafka, topics, store, timeout).await?;
        Ok(found.map(|into| Outlets { config, into_kafka: Some(into), file: None }))
    }

    /// Of the slot of this name, and what it is called in the store.
    pub fn outlet(&self, name: &str) -> (Outlet, StreamId) {
        let pipeline = &self.config.pipeline;
        if let Some(file) = &self.file {
            return (Outlet::Plain(Box::new(file.clone())), StreamId::slot(pipeline, name));
        }
        match (&self.into_kafka, sink(self.config)) {
            (Some(into), _) => {
                let (mut outlet, slot) = into.outlet(pipeline, name);
                if let Outlet::Kafka(kafka) = &mut outlet {
                    // Somebody waits for the answer.
                    kafka.patience = kafka.patience.min(self.config.publish_timeout);
                }
                (outlet, slot)
            }
            (None, Some(sink)) => (Outlet::Plain(sink), StreamId::slot(pipeline, name)),
            (None, None) => unreachable!("only kafka and files have no sink of their own"),
        }
    }
}

/// Why the sink cannot be written to yet.
#[derive(Debug, thiserror::Error)]
pub enum NotYet {
    #[error(transparent)]
    Kafka(#[from] leased::NotYet),
    #[error(transparent)]
    Sink(SinkError),
}

fn file(config: &IngestConfig) -> Option<FileSink> {
    let ends::Sink::File(sink) = &config.sink else { return None };
    Some(leased::file_sink(sink, None, None))
}

/// One connection. None for Kafka, whose outlet is of another kind, and for a file, which is open once.
fn sink(config: &IngestConfig) -> Option<Box<dyn Sink>> {
    let (timeout, unconfirmed_max) = (config.publish_timeout, config.window_records_max);
    let name = format!("semel ingest {} {}", config.pipeline, config.instance);
    Some(match &config.sink {
        ends::Sink::Kafka(_) | ends::Sink::File(_) => return None,
        ends::Sink::RabbitMq(sink) => {
            let password = |servers: &crate::config::servers::Servers| {
                servers.password.as_ref().map_or_else(|| "guest".to_owned(), |password| password.expose().to_owned())
            };
            // RabbitMQ's own defaults, which it takes from its own machine only.
            let user = sink.servers.user.as_deref().unwrap_or("guest");
            let mut server = Server::new(sink.servers.hosts.clone(), user, &password(&sink.servers), &sink.vhost);
            (server.tls, server.name, server.connect_timeout) = (sink.servers.tls, name, CONNECT);
            let route = Route { exchange: sink.exchange.clone(), routing_key: sink.routing_key.clone() };
            Box::new(RabbitSink::new(RabbitOptions { timeout, unconfirmed_max, ..RabbitOptions::new(server, route) }))
        }
        ends::Sink::Nats(sink) => {
            let mut servers = nats::Servers::new(sink.servers.hosts.clone());
            (servers.tls, servers.name, servers.connect_timeout) = (sink.servers.tls, name, CONNECT);
            servers.user = sink.servers.user.clone();
            servers.password = sink.servers.password.as_ref().map(|password| password.expose().to_owned());
            let lease = config.lease;
            let options = NatsOptions { timeout, lease, unconfirmed_max, ..NatsOptions::new(servers, &sink.subject) };
            Box::new(NatsSink::new(options))
        }
    })
}
