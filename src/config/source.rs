//! Where messages come from.

use std::time::Duration;

use super::kafka::{Clients, Properties};
use super::kafka_url::KafkaUrl;
use super::reader::Reader;
use super::route::kind;
use super::setting::{Choice, Default, Kind, Setting};
use crate::protocol::start::Reset;

pub const SOURCE: Setting = Setting::new(
    "SEMEL_SOURCE",
    Kind::Url(
        "kafka://HOST:PORT,…/TOPIC,…?group=GROUP, \
         amqp://USER:PASSWORD@HOST:PORT,…/VHOST?queue=QUEUE&prefetch=N (or amqps://), \
         nats://USER:PASSWORD@HOST:PORT,…?stream=STREAM&consumer=CONSUMER&prefetch=N&ack_wait=DURATION, stdin:",
    ),
    Default::Required,
    "What is read: topics and the consumer group to read them in, a queue of RabbitMQ, a durable consumer of NATS \
     JetStream, or lines. `prefetch` (2000) is how many messages are out at a time; what is out for longer than \
     `ack_wait` (30s) is delivered again.",
)
.with_references();

pub const SOURCE_PASSWORD: Setting = Setting::new(
    "SEMEL_SOURCE_PASSWORD",
    Kind::Text,
    Default::Absent("the one in the URL"),
    "Password of the user in SEMEL_SOURCE; for NATS without a user the token. Not for Kafka.",
)
.secret();

pub const START: Setting = Setting::choice::<Reset>(
    "SEMEL_START",
    "earliest",
    "Where a group begins that has read nothing yet. It never applies to an offset that was lost.",
);

pub const ASSIGNMENT: Setting = Setting::choice::<Assignment>(
    "SEMEL_ASSIGNMENT",
    "eager",
    "How partitions are dealt out: all anew (range), or only those that move (cooperative-sticky). The same in all members.",
);

pub const SESSION_TIMEOUT: Setting = Setting::new(
    "SEMEL_SESSION_TIMEOUT",
    Kind::Duration,
    Default::Value("10s"),
    "How long a member may be silent before its partitions go to others.",
);

pub const FETCH_AHEAD: Setting = Setting::new(
    "SEMEL_FETCH_AHEAD",
    Kind::Bytes,
    Default::Value("4MiB"),
    "How much each worker reads ahead of its windows.",
);

pub const SETTINGS: &[&Setting] = &[&SOURCE, &SOURCE_PASSWORD, &START, &ASSIGNMENT, &SESSION_TIMEOUT, &FETCH_AHEAD];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// The range assignor: a rebalance takes every partition away and offers anew.
    Eager,
    /// The cooperative-sticky assignor: only what moves is taken away.
    Cooperative,
}

impl Choice for Assignment {
    const ALL: &'static [(&'static str, Assignment)] =
        &[("eager", Assignment::Eager), ("cooperative", Assignment::Cooperative)];
}

impl Choice for Reset {
    const ALL: &'static [(&'static str, Reset)] = &[("earliest", Reset::Earliest), ("latest", Reset::Latest)];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// `host:port` each.
    pub brokers: Vec<String>,
    pub topics: Vec<String>,
    pub group: String,
    pub reset: Reset,
    pub assignment: Assignment,
    pub session_timeout: Duration,
    pub fetch_ahead_bytes: u64,
    pub properties: Properties,
}

/// Ends the name of the group that holds a group's settled offsets.
pub const SETTLED: &str = ".settled";

impl Source {
    pub(super) fn read(reader: &Reader<'_>, clients: Option<&Clients>) -> Option<Source> {
        let url = reader.parsed(&SOURCE, |text| {
            kind(text)?;
            let url = KafkaUrl::parse(text, &["group"])?;
            let group = url.parameter("group").ok_or("it names no group (`?group=…`)")?;
            if url.brokers.is_empty() {
                return Err("it names no broker".to_owned());
            }
            if group.ends_with(SETTLED) {
                return Err(format!("a group whose name ends in `{SETTLED}` holds the settled offsets of another"));
            }
            Ok((group.to_owned(), url))
        });
        let reset = reader.choice(&START);
        let assignment = reader.choice(&ASSIGNMENT);
        let session_timeout = reader.duration(&SESSION_TIMEOUT, "1s", "30m");
        let fetch_ahead_bytes = reader.bytes(&FETCH_AHEAD, "64KiB", "1GiB");
        let (group, url) = url?;
        Some(Source {
            brokers: url.brokers,
            topics: url.topics,
            group,
            reset: reset?,
            assignment: assignment?,
            session_timeout: session_timeout?,
            fetch_ahead_bytes: fetch_ahead_bytes?,
            properties: clients?.source.clone(),
        })
    }
}
