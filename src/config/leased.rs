//! What `semel run` is told where messages have no offsets: from RabbitMQ, NATS JetStream or standard input into
//! RabbitMQ, NATS JetStream, Kafka or a file.
//!
//! [`super::route::Route::of`] decides by the URLs whether a process runs this or Kafka to Kafka, and answers
//! [`LeasedConfig`] checked as a whole: names fit their broker, no queue feeds itself, `publish_timeout` is shorter than
//! `lease` and not longer than `grace`, what is Kafka's alone was not given.
//!
//! - `pipeline` and `instance` are the two parts of the slot's name (`StreamId::slot`).
//! - `source` and `sink` hold the servers with their log-in (a password is `expose`d only to a client) and what is read
//!   or written there. A sink whose URL names no host has the source's servers in here.
//! - `dead_letter` and `duplicates` are queues of the sink's virtual host (by the default exchange), subjects on the sink's
//!   servers, or files. They are there wherever a policy needs them, and nowhere else.

use std::net::SocketAddr;
use std::time::Duration;

use super::ends::{Sink, Source};
use super::extraction::{EVENT_TIME, Keys};
use super::identity::{self, ALLOW_SHARED_SCOPE, BROADCAST, GRACE, WORKERS};
use super::ingest;
use super::kafka::{OAUTH_TOKEN_FILE, Side};
use super::outside::{self, Log};
use super::policy::{self, Policies};
use super::reader::Reader;
use super::retention::{self, Retention};
use super::setting::{Default, Kind, Setting};
use super::sink::{DEAD_LETTER, DUPLICATES_TOPIC, SINK_PASSWORD, TRANSACTION_TIMEOUT, check_topics_needed};
use super::source::{ASSIGNMENT, FETCH_AHEAD, SESSION_TIMEOUT, SOURCE_PASSWORD, START};
use super::store::Store;
use super::units::show_duration;
use super::window::{RECENT_IDS, Window};
use crate::key::TimeRecipe;
use crate::protocol::event::Scope;

pub const LEASE: Setting = Setting::new(
    "SEMEL_LEASE",
    Kind::Duration,
    Default::Value("30s"),
    "How long the unfinished messages of an instance that is gone hold others up, or its partitions. Not for Kafka to Kafka.",
);

pub const PUBLISH_TIMEOUT: Setting = Setting::new(
    "SEMEL_PUBLISH_TIMEOUT",
    Kind::Duration,
    Default::Value("10s"),
    "How long a sink without transactions may take to confirm; what is late is in doubt. Shorter than SEMEL_LEASE. Not \
     for Kafka to Kafka.",
);

pub const SETTINGS: &[&Setting] = &[&LEASE, &PUBLISH_TIMEOUT];

/// Settings that would do nothing from Kafka to Kafka, and why.
pub(super) const OF_OTHERS: &[(&Setting, &str)] = &[
    (&SOURCE_PASSWORD, "Kafka's password is SEMEL_SOURCE_KAFKA_SASL_PASSWORD"),
    (&SINK_PASSWORD, "Kafka's password is SEMEL_SINK_KAFKA_SASL_PASSWORD"),
    (&LEASE, "from Kafka to Kafka there are no leases"),
    (&PUBLISH_TIMEOUT, "from Kafka to Kafka SEMEL_TRANSACTION_TIMEOUT says it"),
];

/// Settings of Kafka's, which would do nothing here.
const OF_KAFKA: &[&Setting] = &[
    &BROADCAST,
    &ALLOW_SHARED_SCOPE,
    &WORKERS,
    &START,
    &ASSIGNMENT,
    &SESSION_TIMEOUT,
    &FETCH_AHEAD,
    &TRANSACTION_TIMEOUT,
    &OAUTH_TOKEN_FILE,
    &RECENT_IDS,
];

#[derive(Debug, Clone)]
pub struct LeasedConfig {
    pub scope: Scope,
    /// Without a slash.
    pub pipeline: String,
    pub instance: String,
    /// How long a drain may take.
    pub grace: Duration,
    pub source: Source,
    pub sink: Sink,
    pub dead_letter: Option<String>,
    pub duplicates: Option<String>,
    pub lease: Duration,
    /// Shorter than the lease. Into Kafka the transaction's.
    pub publish_timeout: Duration,
    pub store: Store,
    pub keys: Keys,
    pub policies: Policies,
    pub window: Window,
    pub retention: Retention,
    pub http: Option<SocketAddr>,
    pub log: Log,
}

impl LeasedConfig {
    /// Every part is read, so that every problem is found, before one that is missing ends it.
    pub(super) fn parts(reader: &Reader<'_>) -> Option<LeasedConfig> {
        let source = Source::read(reader);
        let policies = Policies::read(reader);
        let sink = Sink::read(reader, source.as_ref());
        let [dead_letter, duplicates] = [&DEAD_LETTER, &DUPLICATES_TOPIC]
            .map(|setting| sink.as_ref().map_or(Some(None), |sink| sink.destination(reader, setting)));
        if let Some(policies) = &policies {
            check_topics_needed(reader, policies);
        }
        let scope = identity::scope(reader);
        let pipeline = identity::pipeline(reader);
        let instance = identity::instance(reader);
        let grace = identity::grace(reader);
        let lease = reader.duration(&LEASE, "1s", "1h");
        let publish_timeout = reader.duration(&PUBLISH_TIMEOUT, "100ms", "1h");
        let store = Store::read(reader);
        let keys = Keys::read(reader);
        let window = Window::read(reader);
        let retention = Retention::read(reader);
        let http = outside::http(reader);
        let log = Log::read(reader);
        if let Some(sink) = &sink {
            let given = [(&DEAD_LETTER, &dead_letter), (&DUPLICATES_TOPIC, &duplicates)];
            let given = given.into_iter().filter_map(|(setting, name)| Some((setting, name.as_ref()?.as_deref()?)));
            sink.check_apart(reader, source.as_ref(), &given.collect::<Vec<(&Setting, &str)>>());
        }
        check_pipeline(reader, pipeline.as_deref(), source.as_ref());
        let publish_timeout = match &sink {
            Some(Sink::Kafka(kafka)) => Some(kafka.transaction_timeout),
            _ => publish_timeout,
        };
        if let (Some(lease), Some(publish_timeout)) = (lease, publish_timeout) {
            check_times(reader, grace, lease, publish_timeout, matches!(sink, Some(Sink::Kafka(_))));
            if let Some(retention) = &retention {
                retention::check_kept(reader, retention, lease + publish_timeout);
            }
        }
        if let Some(keys) = &keys {
            policy::check_undated(reader, keys.extraction.time());
            check_timeless(reader, keys, source.as_ref());
        }
        refuse_of_kafka(reader, matches!(sink, Some(Sink::Kafka(_))));
        if let Some(Sink::File(_)) = &sink {
            reader.has_no_effect(&PUBLISH_TIMEOUT, "nobody has to confirm what is in a file");
        }
        ingest::refuse_elsewhere(reader);
        Some(LeasedConfig {
            scope: scope?,
            pipeline: pipeline?,
            instance: instance?,
            grace: grace?,
            source: source?,
            sink: sink?,
            dead_letter: dead_letter?,
            duplicates: duplicates?,
            lease: lease?,
            publish_timeout: publish_timeout?,
            store: store?,
            keys: keys?,
            policies: policies?,
            window: window?,
            retention: retention?,
            http: http?,
            log: log?,
        })
    }
}

/// The name is one part of a path in the store.
fn check_pipeline(reader: &Reader<'_>, pipeline: Option<&str>, source: Option<&Source>) {
    let setting = &identity::PIPELINE;
    match (pipeline, source) {
        (Some(name), _) if name.contains('/') => reader.problem_with(setting, "there is a `/` in it"),
        (None, Some(source)) if !reader.is_given(setting) && source.pipeline().is_none() => {
            reader.problem(format!("{}: it must be given: the source has no name that it could take", setting.name));
        }
        _ => {}
    }
}

/// A confirm that is waited for beyond the lease could come after others took over, and one that a drain does not wait
/// for leaves its message in doubt.
pub(super) fn check_times(
    reader: &Reader<'_>,
    grace: Option<Duration>,
    lease: Duration,
    publish_timeout: Duration,
    into_kafka: bool,
) {
    let setting = if into_kafka { &TRANSACTION_TIMEOUT } else { &PUBLISH_TIMEOUT };
    let shown = show_duration(publish_timeout);
    if publish_timeout >= lease {
        let why = format!("{shown} is not shorter than {}, {}", LEASE.name, show_duration(lease));
        reader.problem_with(setting, format!("{why}: others could take over what is still being published"));
    }
    if let Some(grace) = grace.filter(|grace| *grace < publish_timeout) {
        let why = format!("{} is shorter than {}, {shown}", show_duration(grace), setting.name);
        reader.problem_with(&GRACE, format!("{why}: a drain could leave its last messages in doubt"));
    }
}

fn check_timeless(reader: &Reader<'_>, keys: &Keys, source: Option<&Source>) {
    let why = source.and_then(Source::is_timeless).filter(|_| *keys.extraction.time() == TimeRecipe::Record);
    if let Some(why) = why {
        reader.problem_with(&EVENT_TIME, format!("`record` has no meaning here: {why}"));
    }
}

fn refuse_of_kafka(reader: &Reader<'_>, into_kafka: bool) {
    let why = if into_kafka { "the source is not Kafka" } else { "neither source nor sink is Kafka" };
    let of_sink = |setting: &Setting| [TRANSACTION_TIMEOUT.name, OAUTH_TOKEN_FILE.name].contains(&setting.name);
    let idle = OF_KAFKA.iter().filter(|setting| !into_kafka || !of_sink(setting));
    idle.for_each(|setting| reader.has_no_effect(setting, why));
    let idle = reader.values.kafka.iter().filter(|(place, _)| !into_kafka || place.side == Side::Source);
    for (_, value) in idle {
        reader.problem(format!("{} ({}): it has no effect: {why}", value.name, value.origin));
    }
    if into_kafka {
        reader.has_no_effect(&PUBLISH_TIMEOUT, "into Kafka SEMEL_TRANSACTION_TIMEOUT says it");
    }
}

/// Refuses, from Kafka to Kafka, what is only for others.
pub(super) fn refuse_of_others(reader: &Reader<'_>) {
    OF_OTHERS.iter().for_each(|(setting, why)| reader.has_no_effect(setting, why));
}

#[cfg(test)]
#[path = "leased_tests.rs"]
mod tests;
