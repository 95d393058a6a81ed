use super::super::testing::{LEASED, given};
use super::*;
use crate::config::ConfigError;
use crate::config::route::Route;

const KAFKA: (&str, &str) = ("SEMEL_SOURCE", "kafka://k:1/orders,more?group=once");
const NATS: (&str, &str) = ("SEMEL_SINK", "nats://u:p@h?subject=orders.once");
const RABBIT: (&str, &str) = ("SEMEL_SINK", "amqp://u:p@h/v?queue=out");

const FILE: (&str, &str) = ("SEMEL_SINK", "file:out.ndjson");

/// From Kafka to RabbitMQ, with these changes.
fn read(changes: &[(&str, &str)]) -> Result<SettledConfig, Vec<String>> {
    let changes: Vec<(&str, &str)> = LEASED.iter().chain(&[KAFKA, RABBIT]).chain(changes).copied().collect();
    match Route::of(given(&changes)) {
        Ok(Route::Settled(config)) => Ok(*config),
        Ok(other) => panic!("another route: {other:?}"),
        Err(ConfigError(problems)) => Err(problems),
    }
}

#[test]
fn every_pair_is_there() {
    let config = read(&[("SEMEL_WORKERS", "2"), ("SEMEL_LEASE", "7s"), ("SEMEL_PUBLISH_TIMEOUT", "3s")]);
    let config = config.unwrap_or_else(|problems| panic!("{problems:?}"));
    let Sink::RabbitMq(sink) = &config.sink else { panic!("{:?}", config.sink) };
    assert_eq!((sink.queue(), config.dead_letter.as_deref()), (Some("out"), Some("dead")));
    assert_eq!((config.source.group.as_str(), config.source.topics.len(), config.identity.workers), ("once", 2, 2));
    assert_eq!(config.identity.pipeline, "once", "the group's name");
    assert_eq!((config.lease, config.publish_timeout), (Duration::from_secs(7), Duration::from_secs(3)));
    let to_nats = read(&[NATS, ("SEMEL_EVENT_TIME", "record")]).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert!(matches!(to_nats.sink, Sink::Nats(_)), "records have a time of their own");
    let to_file = read(&[FILE]).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert!(matches!(to_file.sink, Sink::File(_)));
}

#[test]
fn what_does_not_go_together() {
    let cases: [(&[(&str, &str)], &str); 10] = [
        (&[("SEMEL_TRANSACTION_TIMEOUT", "9s")], "SEMEL_TRANSACTION_TIMEOUT (environment): it has no effect"),
        (&[("SEMEL_RECENT_IDS", "9")], "SEMEL_RECENT_IDS (environment): it has no effect"),
        (&[("SEMEL_SOURCE_PASSWORD", "x")], "SEMEL_SOURCE_PASSWORD (environment): it has no effect"),
        (&[("SEMEL_SINK_KAFKA_LINGER_MS", "1")], "SEMEL_SINK_KAFKA_LINGER_MS (environment): it has no effect"),
        (&[("SEMEL_LEASE", "5s"), ("SEMEL_PUBLISH_TIMEOUT", "5s")], "5s is not shorter than SEMEL_LEASE, 5s"),
        (&[("SEMEL_LEASE", "1h"), ("SEMEL_PUBLISH_TIMEOUT", "6m"), ("SEMEL_GRACE", "1h")], "6m is longer than 5m"),
        (&[FILE, ("SEMEL_WORKERS", "2")], "SEMEL_WORKERS (environment): a file has one writer"),
        (&[FILE, ("SEMEL_PUBLISH_TIMEOUT", "1s")], "SEMEL_PUBLISH_TIMEOUT (environment): it has no effect"),
        (&[("SEMEL_SINK", "stdin:")], "nothing can be written to standard input"),
        (&[("SEMEL_DEAD_LETTER", "out")], "out is where SEMEL_SINK goes already"),
    ];
    for (changes, right) in cases {
        let problems = read(changes).err().unwrap_or_default();
        assert!(problems.len() == 1 && problems[0].contains(right), "{changes:?}: {problems:?}");
    }
}
