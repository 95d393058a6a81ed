//! From what to what: the schemes of the two URLs decide which pipeline a process runs, before the rest is read.

use super::leased::LeasedConfig;
use super::reader::{Command, Reader};
use super::setting::Setting;
use super::settled::SettledConfig;
use super::sink::SINK;
use super::source::SOURCE;
use super::store::Store;
use super::values::Given;
use super::{Config, ConfigError};

/// Everything that `semel run` is told.
#[derive(Debug, Clone)]
pub enum Route {
    KafkaToKafka(Box<Config>),
    /// From Kafka into a sink without transactions.
    Settled(Box<SettledConfig>),
    /// From a source without offsets.
    Leased(Box<LeasedConfig>),
}

impl Route {
    pub fn store(&self) -> &Store {
        match self {
            Route::KafkaToKafka(config) => &config.store,
            Route::Settled(config) => &config.store,
            Route::Leased(config) => &config.store,
        }
    }

    pub fn of(given: Given) -> Result<Route, ConfigError> {
        super::read_all(given, Command::Run, Route::parts)
    }

    pub(super) fn parts(reader: &Reader<'_>) -> Option<Route> {
        let [source, sink] = [&SOURCE, &SINK].map(|setting| kind_of(reader, setting));
        match (source, sink) {
            (None | Some(Kind::Kafka), None | Some(Kind::Kafka)) => {
                Config::parts(reader).map(|config| Route::KafkaToKafka(Box::new(config)))
            }
            (Some(Kind::Kafka), Some(_)) => SettledConfig::parts(reader).map(|config| Route::Settled(Box::new(config))),
            _ => LeasedConfig::parts(reader).map(|config| Route::Leased(Box::new(config))),
        }
    }
}

/// None where there is no value, or none that could be read: a problem of its own.
pub(super) fn kind_of(reader: &Reader<'_>, setting: &Setting) -> Option<Kind> {
    kind(&reader.values.text(setting)?.ok()?).ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kafka,
    RabbitMq,
    Nats,
    Stdin,
    File,
}

/// Of what a URL is, by its beginning.
pub(super) fn kind(text: &str) -> Result<Kind, String> {
    const SCHEMES: [(&str, Kind); 6] = [
        ("kafka://", Kind::Kafka),
        ("amqp://", Kind::RabbitMq),
        ("amqps://", Kind::RabbitMq),
        ("nats://", Kind::Nats),
        ("stdin:", Kind::Stdin),
        ("file:", Kind::File),
    ];
    let found = SCHEMES.iter().find(|(begins, _)| text.starts_with(begins));
    let none = || format!("it must begin with one of {}", SCHEMES.map(|(begins, _)| begins).join(", "));
    found.map(|(_, kind)| *kind).ok_or_else(none)
}
