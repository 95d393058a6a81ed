//! What `semel run` is told from Kafka into a sink without transactions: the source as from Kafka to Kafka, the sink, its
//! lease and its destinations as for sources without offsets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ends::Sink;
use super::extraction::Keys;
use super::identity::{self, Identity, WORKERS};
use super::kafka::{Clients, Side};
use super::leased::{LEASE, PUBLISH_TIMEOUT, check_times};
use super::outside::{self, Log};
use super::policy::{self, Policies};
use super::reader::Reader;
use super::retention::{self, Retention};
use super::setting::Setting;
use super::sink::{DEAD_LETTER, DUPLICATES_TOPIC, TRANSACTION_TIMEOUT, check_topics_needed};
use super::source::{SOURCE_PASSWORD, Source};
use super::store::Store;
use super::window::{RECENT_IDS, Window};
use super::{ingest, units::show_duration};
use crate::protocol::event::Scope;

/// Settings that would do nothing here, and why.
const OF_OTHERS: &[(&Setting, &str)] = &[
    (&SOURCE_PASSWORD, "Kafka's password is SEMEL_SOURCE_KAFKA_SASL_PASSWORD"),
    (&TRANSACTION_TIMEOUT, "the sink has no transactions: SEMEL_PUBLISH_TIMEOUT says it"),
    (&RECENT_IDS, "no ids are remembered with a sink without transactions"),
];

/// A worker polls while it publishes, but it may not be silent for longer than this: librdkafka's own default.
const PUBLISH_MOST: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct SettledConfig {
    pub scope: Scope,
    pub identity: Identity,
    pub source: Source,
    pub sink: Sink,
    pub dead_letter: Option<String>,
    pub duplicates: Option<String>,
    pub lease: Duration,
    /// Shorter than the lease.
    pub publish_timeout: Duration,
    pub store: Store,
    pub keys: Keys,
    pub policies: Policies,
    pub window: Window,
    pub retention: Retention,
    pub oauth_token_file: Option<PathBuf>,
    pub http: Option<SocketAddr>,
    pub log: Log,
}

impl SettledConfig {
    /// Every part is read, so that every problem is found, before one that is missing ends it.
    pub(super) fn parts(reader: &Reader<'_>) -> Option<SettledConfig> {
        let clients = Clients::read(reader);
        let source = Source::read(reader, clients.as_ref());
        let policies = Policies::read(reader);
        let sink = Sink::read(reader, None);
        let [dead_letter, duplicates] = [&DEAD_LETTER, &DUPLICATES_TOPIC]
            .map(|setting| sink.as_ref().map_or(Some(None), |sink| sink.destination(reader, setting)));
        if let Some(policies) = &policies {
            check_topics_needed(reader, policies);
        }
        let scope = identity::scope(reader);
        let identity = Identity::read(reader);
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
            sink.check_apart(reader, None, &given.collect::<Vec<(&Setting, &str)>>());
        }
        if let (Some(scope), Some(identity), Some(source)) = (&scope, &identity, &source) {
            identity::check_broadcast(reader, scope, identity, source);
        }
        if let (Some(lease), Some(publish_timeout)) = (lease, publish_timeout) {
            check_times(reader, identity.as_ref().map(|identity| identity.grace), lease, publish_timeout, false);
            if publish_timeout > PUBLISH_MOST {
                let [shown, most] = [publish_timeout, PUBLISH_MOST].map(show_duration);
                reader.problem_with(&PUBLISH_TIMEOUT, format!("{shown} is longer than {most}"));
            }
            if let (Some(retention), Some(source)) = (&retention, &source) {
                retention::check_kept(reader, retention, source.session_timeout + lease + publish_timeout);
            }
        }
        if let Some(Sink::File(_)) = &sink {
            reader.has_no_effect(&PUBLISH_TIMEOUT, "nobody has to confirm what is in a file");
            if identity.as_ref().is_some_and(|identity| identity.workers > 1) {
                reader.problem_with(&WORKERS, "a file has one writer");
            }
        }
        if let Some(keys) = &keys {
            policy::check_undated(reader, keys.extraction.time());
        }
        refuse_of_others(reader);
        ingest::refuse_elsewhere(reader);
        Some(SettledConfig {
            scope: scope?,
            identity: identity?,
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
            oauth_token_file: clients?.oauth_token_file,
            http: http?,
            log: log?,
        })
    }
}

fn refuse_of_others(reader: &Reader<'_>) {
    OF_OTHERS.iter().for_each(|(setting, why)| reader.has_no_effect(setting, why));
    for (_, value) in reader.values.kafka.iter().filter(|(place, _)| place.side == Side::Sink) {
        reader.problem(format!("{} ({}): it has no effect: the sink is not Kafka", value.name, value.origin));
    }
}

#[cfg(test)]
#[path = "settled_tests.rs"]
mod tests;
