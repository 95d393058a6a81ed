//! A configuration that is valid, for the tests to change.

use std::collections::BTreeMap;

use super::values::Given;
use super::{Config, ConfigError, ingest, leased};

/// Everything that is required and nothing else.
pub const BASE: &[(&str, &str)] = &[
    ("SEMEL_SCOPE", "orders"),
    ("SEMEL_SOURCE", "kafka://h1:9092,h2/in?group=g"),
    ("SEMEL_SINK", "kafka:///out"),
    ("SEMEL_STORE", "postgres://u:hidden@db/claims"),
    ("SEMEL_EVENT_ID", "json:/id"),
    ("SEMEL_DEAD_LETTER", "dead"),
];

/// The base as an environment, with these changes; an empty value takes a name away.
pub fn given(changes: &[(&str, &str)]) -> Given {
    let mut environment: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in BASE.iter().chain(changes) {
        environment.insert((*name).into(), (*value).into());
    }
    Given { environment, host: Some("this-host".into()), ..Given::default() }
}

/// Of a pipeline from RabbitMQ to RabbitMQ.
pub const LEASED: &[(&str, &str)] =
    &[("SEMEL_SOURCE", "amqp://u:hidden@h/v?queue=in"), ("SEMEL_SINK", "amqp:///?queue=out")];

pub fn config(changes: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::of(given(changes))
}

/// The problems of the base with these changes.
pub fn problems(changes: &[(&str, &str)]) -> Vec<String> {
    config(changes).err().map_or_else(Vec::new, |ConfigError(problems)| problems)
}

/// Settings that are not read from Kafka to Kafka.
pub fn elsewhere() -> impl Iterator<Item = &'static str> {
    let of_others = leased::OF_OTHERS.iter().map(|(setting, _)| setting.name);
    of_others.chain(ingest::SETTINGS.iter().map(|setting| setting.name))
}
