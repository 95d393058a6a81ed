//! Kafka to RabbitMQ and to NATS by the real binary: never lost, and twice only where a kill, or the log, accounts for it.

mod handovers;
mod kit;
mod moves;
mod outages;
mod scopes;

use std::collections::BTreeSet;

use crate::MINUTE;
use crate::support::broker::wait_until;
use crate::support::by_hand::event;
use crate::support::daemon::run_well;
use crate::support::world::World;
use kit::{Plain, To};

fn once(name: &str, to: To, promise: &str) {
    let mut plain = Plain::new(name, 3, to);
    let sent = plain
        .world
        .send(crate::support::generator::Recipe { without_id_percent: 1, ..plain.world.recipe(0, 4_000) }.iter());
    let told = run_well(&["check"], &plain.world.settings);
    assert!(told.contains(promise) && told.contains("this client may read it") && !told.contains("FAIL"), "{told}");
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

#[test]
fn each_event_once_to_a_file() {
    let mut world = World::new("from-kafka-file", 2);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.ndjson");
    world.settings.remove("SEMEL_TRANSACTION_TIMEOUT");
    world.set("SEMEL_SINK", &format!("file:{}?format=record", path.display()));
    world.set("SEMEL_DEAD_LETTER", &folder.path().join("dead.ndjson").display().to_string());
    world.send((0..600).map(|copy| event(copy, &format!("id-{}", copy % 400))));
    let told = run_well(&["check"], &world.settings);
    assert!(told.contains("never lost; twice only after a crash") && !told.contains("FAIL"), "{told}");
    let daemon = world.daemon("a");
    wait_until("everything is read", MINUTE, || daemon.metric("semel_read_messages_total", &[]) == 600.0);
    daemon.stop();
    let text = std::fs::read_to_string(&path).expect("an output");
    let lines: Vec<&str> = text.lines().collect();
    let keys: BTreeSet<&str> = lines.iter().filter_map(|line| line.split('"').nth(3)).collect();
    assert_eq!((lines.len(), keys.len()), (400, 400), "one line for each event");
}
