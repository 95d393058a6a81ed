//! Kafka to RabbitMQ and to NATS by the real binary: never lost, and twice only where a kill, or the log, accounts for it.

mod handovers;
mod kit;
mod moves;
mod outages;
mod scopes;

use std::collections::BTreeSet;

use crate::MINUTE;
use kit::{Plain, To};

fn once(name: &str, to: To, promise: &str) {
    let mut plain = Plain::new(name, 3, to);
    let sent = plain
        .world
        .send(crate::support::generator::Recipe { without_id_percent: 1, ..plain.world.recipe(0, 4_000) }.iter());
    let daemon = plain.world.daemon("a");
    assert_eq!(plain.check(sent, MINUTE), BTreeSet::new(), "no event came out twice");
    let log = daemon.log_text();
    assert!(log.contains(promise), "{log}");
    assert!(daemon.metric("im2be_dedup_claims_total", &["outcome=\"duplicate\""]) > 0.0);
    assert!(daemon.metric("semel_dead_letters_total", &["cause=\"missing_id\""]) > 0.0);
    assert_eq!(daemon.metric("semel_lag_messages", &[]), 0.0);
    daemon.stop();
}

#[test]
fn each_event_once_to_rabbitmq() {
    once("from-kafka-rabbit", To::RabbitMq, "never lost; twice, with the same message_id, only after");
}

#[test]
fn each_event_once_to_nats() {
    once("from-kafka-nats", To::Nats, "never lost; once within the stream's duplicate window");
}
