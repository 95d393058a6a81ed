//! From the configuration to what ingest is told and given.

use std::time::Duration;

use super::{BadTarget, Options, Undeduped, check_scope};
use crate::config::ends;
use crate::config::ingest::IngestConfig;
use crate::sink::Sink;
use crate::sink::nats::{self, NatsOptions, NatsSink};
use crate::sink::rabbitmq::{RabbitOptions, RabbitSink, Route, Server};

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
    #[error("SEMEL_SINK: there is no way there yet")]
    Kafka,
}

/// What the pair promises, for the log.
pub fn promise(config: &IngestConfig) -> &'static str {
    match config.sink {
        ends::Sink::RabbitMq(_) => {
            "never lost; twice, with one message_id, only after a publish in doubt, a crash between publish and commit, or \
             a lease that was outlived"
        }
        ends::Sink::Nats(_) => "never lost; once within the stream's duplicate window",
        ends::Sink::Kafka(_) | ends::Sink::File(_) => "none",
    }
}

pub fn options(config: &IngestConfig) -> Result<Options, BadConfig> {
    check_scope(&config.scope)?;
    let undeduped = match &config.undeduped {
        None => Undeduped::default(),
        Some(text) => Undeduped::parse(text).map_err(BadConfig::Undeduped)?,
    };
    Ok(Options {
        pipeline: config.pipeline.clone(),
        instance: config.instance.clone(),
        lanes: config.lanes,
        scope: config.scope.clone(),
        extraction: config.extraction.clone(),
        accept_recipe: config.accept_change.then(|| config.extraction.digest()),
        undeduped,
        window_records_max: config.window_records_max,
        window_bytes_max: WINDOW_BYTES_MAX,
        record_bytes_max: config.record_bytes_max,
        lease: config.lease,
        publish_timeout: config.publish_timeout,
    })
}

/// One connection to the sink, made when it is first used.
pub fn sink(config: &IngestConfig) -> Result<Box<dyn Sink>, BadConfig> {
    let (timeout, unconfirmed_max) = (config.publish_timeout, config.window_records_max);
    let name = format!("semel ingest {} {}", config.pipeline, config.instance);
    Ok(match &config.sink {
        ends::Sink::Kafka(_) | ends::Sink::File(_) => return Err(BadConfig::Kafka),
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
