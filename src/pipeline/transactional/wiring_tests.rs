//! Settings whose effect is a client's, as far as the client's own words.

use std::time::Duration;

use super::options;
use crate::config::Config;
use crate::config::store::Store;
use crate::config::values::Given;
use crate::pipeline::preflight::Topics;
use crate::store::open;

const BASE: &[(&str, &str)] = &[
    ("SEMEL_SCOPE", "orders"),
    ("SEMEL_SOURCE", "kafka://h/in?group=g"),
    ("SEMEL_SINK", "kafka:///out"),
    ("SEMEL_STORE", "postgres://u@db/claims"),
    ("SEMEL_EVENT_ID", "json:/id"),
    ("SEMEL_DEAD_LETTER", "dead"),
    ("SEMEL_INSTANCE", "one"),
];

fn config(changes: &[(&str, &str)]) -> Config {
    let environment = BASE.iter().chain(changes).map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Config::of(Given { environment, ..Given::default() }).expect("valid")
}

#[test]
fn what_the_clients_are_told() {
    let topics = Topics { forward_bytes_max: 50_000, dead_letter_bytes_max: 2_000_000, ..Topics::default() };
    let cases = [
        ("SEMEL_ASSIGNMENT", "eager", "partition.assignment.strategy", "range"),
        ("SEMEL_ASSIGNMENT", "cooperative", "partition.assignment.strategy", "cooperative-sticky"),
        ("SEMEL_SESSION_TIMEOUT", "6s", "session.timeout.ms", "6000"),
        ("SEMEL_SESSION_TIMEOUT", "6s", "heartbeat.interval.ms", "1500"),
        ("SEMEL_FETCH_AHEAD", "64MiB", "queued.max.messages.kbytes", "65536"),
        ("SEMEL_SOURCE_KAFKA_FETCH_QUEUE_BACKOFF_MS", "7", "fetch.queue.backoff.ms", "7"),
        ("SEMEL_TRANSACTION_TIMEOUT", "7s", "transaction.timeout.ms", "7000"),
        ("SEMEL_TRANSACTION_TIMEOUT", "7s", "message.timeout.ms", "7000"),
        ("SEMEL_PIPELINE", "orders", "transactional.id", "semel.orders.one.3"),
        ("SEMEL_INSTANCE", "two", "transactional.id", "semel.g.two.3"),
        ("SEMEL_SINK_KAFKA_LINGER_MS", "1", "linger.ms", "1"),
    ];
    for (name, value, property, right) in cases {
        let options = options(&config(&[(name, value)]), &topics, 3);
        let clients = [options.source.consumer(), options.sink.producer()];
        assert!(clients.iter().any(|client| client.get(property) == Some(right)), "{name}={value}");
    }
    let sink = options(&config(&[]), &topics, 0).sink.producer();
    // The larger topic's record must pass; a batch must pass in both.
    assert_eq!((sink.get("message.max.bytes"), sink.get("batch.size")), (Some("2000000"), Some("50000")));
}

#[test]
fn what_the_store_is_told() {
    let seconds = Duration::from_secs;
    let config = config(&[
        ("SEMEL_STORE_CONNECTIONS", "3"),
        ("SEMEL_STORE_CONNECT_TIMEOUT", "4s"),
        ("SEMEL_STORE_TCP_TIMEOUT", "6s"),
        ("SEMEL_STORE_LOCK_TIMEOUT", "7s"),
        ("SEMEL_STORE_STATEMENT_TIMEOUT", "8s"),
        ("SEMEL_STORE_SCAN_TIMEOUT", "9s"),
    ]);
    let Store::Postgres(postgres) = &config.store else { panic!("PostgreSQL was asked for") };
    let told = open::options(postgres);
    assert_eq!((told.pool_size, told.connect_timeout, told.tcp_user_timeout), (3, seconds(4), seconds(6)));
    assert_eq!((told.lock_timeout, told.statement_timeout, told.scan_timeout), (seconds(7), seconds(8), seconds(9)));
}
