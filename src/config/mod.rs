//! Every setting: where it is said, what it means, what it is when nobody says it, and what does not go together.
//!
//! Each concern has a file with its settings, its type and how the one becomes the other. From the registry they make
//! up come the flags, `semel config schema` and README's table, so that a setting cannot be undocumented.
//!
//! | step | file |
//! | --- | --- |
//! | gather flags, environment and file, each value under its setting's name | [`values`], [`names`], [`file`] |
//! | read values as what they mean | [`reader`], [`units`], one file per concern |
//! | refuse what does not go together | [`Config::read`] |
//!
//! Every problem is found in one go and told in one line; none of them shows a secret.

use std::net::SocketAddr;

use crate::protocol::event::Scope;
use reader::{Command, Reader};
use setting::Setting;
use values::{Given, Problem, Values};

pub mod ends;
pub mod extraction;
pub mod file;
pub mod file_end;
pub mod identity;
pub mod ingest;
pub mod kafka;
pub mod kafka_end;
pub mod kafka_url;
pub mod leased;
pub mod mask;
pub mod names;
pub mod nats;
pub mod operator;
pub mod outside;
pub mod pipe;
pub mod policy;
mod properties;
pub mod rabbitmq;
pub mod reader;
pub mod retention;
pub mod route;
pub mod schema;
pub mod servers;
pub mod setting;
pub mod settled;
pub mod sink;
pub mod source;
pub mod store;
#[cfg(test)]
mod testing;
pub mod units;
pub mod values;
pub mod window;

/// The registry, by concern.
pub const CONCERNS: &[(&str, &[&Setting])] = &[
    ("Who", identity::SETTINGS),
    ("Source", source::SETTINGS),
    ("Sink", sink::SETTINGS),
    ("Leases", leased::SETTINGS),
    ("Ingest", ingest::SETTINGS),
    ("Store", store::SETTINGS),
    ("Event id and time", extraction::SETTINGS),
    ("Policies", policy::SETTINGS),
    ("Windows", window::SETTINGS),
    ("Retention", retention::SETTINGS),
    ("Kafka's clients", kafka::SETTINGS),
    ("Seen from outside", outside::SETTINGS),
    ("Configuration", &[&CONFIG]),
];

/// Every setting.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    CONCERNS.iter().flat_map(|(_, settings)| settings.iter().copied())
}

pub const CONFIG: Setting = Setting::new(
    values::CONFIG,
    setting::Kind::Path,
    setting::Default::Absent("none"),
    "File with settings, one NAME=VALUE a line.",
)
.in_pipe();

/// Everything that `semel run` is told from Kafka to Kafka; [`route`] decides whether it is.
#[derive(Debug, Clone)]
pub struct Config {
    pub scope: Scope,
    pub identity: identity::Identity,
    pub source: source::Source,
    pub sink: sink::Sink,
    pub store: store::Store,
    pub keys: extraction::Keys,
    pub policies: policy::Policies,
    pub window: window::Window,
    pub retention: retention::Retention,
    pub oauth_token_file: Option<std::path::PathBuf>,
    pub http: Option<SocketAddr>,
    pub log: outside::Log,
}

/// Every problem that was found, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<Problem>);

/// Gathers what was given, reads it, and fails with every problem of both.
fn read_all<T>(given: Given, command: Command, parts: fn(&Reader<'_>) -> Option<T>) -> Result<T, ConfigError> {
    let (values, mut problems) = Values::gather(given);
    let reader = Reader::new(&values, command);
    let read = parts(&reader);
    problems.extend(reader.finish().0);
    match read {
        Some(read) if problems.is_empty() => Ok(read),
        _ => Err(ConfigError(problems)),
    }
}

impl Config {
    pub fn of(given: Given) -> Result<Config, ConfigError> {
        read_all(given, Command::Run, Config::parts)
    }

    /// Every part is read, so that every problem is found, before one that is missing ends it.
    fn parts(reader: &Reader<'_>) -> Option<Config> {
        let clients = kafka::Clients::read(reader);
        let source = source::Source::read(reader, clients.as_ref());
        let policies = policy::Policies::read(reader);
        let sink = sink::Sink::read(reader, clients.as_ref(), source.as_ref(), policies.as_ref());
        let scope = identity::scope(reader);
        let identity = identity::Identity::read(reader);
        let store = store::Store::read(reader);
        let keys = extraction::Keys::read(reader);
        let window = window::Window::read(reader);
        let retention = retention::Retention::read(reader);
        let http = outside::http(reader);
        let log = outside::Log::read(reader);
        if let (Some(source), Some(sink)) = (&source, &sink) {
            sink::check_topics(reader, source, sink);
        }
        if let (Some(scope), Some(identity), Some(source)) = (&scope, &identity, &source) {
            identity::check_broadcast(reader, scope, identity, source);
        }
        if let (Some(identity), Some(sink)) = (&identity, &sink) {
            identity::check_grace(reader, identity, sink);
        }
        if let (Some(retention), Some(source), Some(sink)) = (&retention, &source, &sink) {
            retention::check_kept(reader, retention, source.session_timeout + sink.transaction_timeout);
        }
        if let Some(keys) = &keys {
            policy::check_undated(reader, keys.extraction.time());
        }
        leased::refuse_of_others(reader);
        ingest::refuse_elsewhere(reader);
        Some(Config {
            scope: scope?,
            identity: identity?,
            source: source?,
            sink: sink?,
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

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "commands_tests.rs"]
mod commands_tests;
