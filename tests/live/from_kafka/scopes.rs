//! One scope, several pipelines.

use std::collections::BTreeSet;
use std::time::Duration;

use super::kit::{Plain, To};
use crate::MINUTE;
use crate::support::broker::wait_until;
use crate::support::by_hand::event;
use crate::support::daemon::{Settings, run, run_well};
use crate::support::database::Database;

/// Kafka to Kafka drops what is in flight elsewhere, so it shares no scope with this.
#[test]
fn kafka_to_kafka_is_refused_in_its_scope() {
    let plain = Plain::new("from-kafka-kinds", 1, To::RabbitMq);
    let daemon = plain.world.daemon("a");
    let mut to_kafka: Settings = plain.world.settings.clone();
    for name in ["SEMEL_LEASE", "SEMEL_PUBLISH_TIMEOUT"] {
        to_kafka.remove(name);
    }
    let kafka = &plain.world.services.kafka;
    to_kafka.insert("SEMEL_SINK".to_owned(), format!("kafka://{kafka}/{}", plain.world.output));
    to_kafka.insert("SEMEL_DEAD_LETTER".to_owned(), plain.world.dead.clone());
    let refused = run(&["run"], &to_kafka);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(64), "{text}");
    assert!(text.contains("give this pipeline a scope of its own"), "{text}");
    let mut other_group = plain.world.settings.clone();
    let source = other_group["SEMEL_SOURCE"].clone() + "-other";
    other_group.insert("SEMEL_SOURCE".to_owned(), source);
    let refused = run(&["run"], &other_group);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(64), "{text}");
    assert!(text.contains("the events would split between the two"), "{text}");
    daemon.stop();
}

/// A lane of an instance that went with a claim, and whose lease runs for a while yet.
fn an_instance_holds(database: &Database, scope: &str, event: &str, timestamp: i64) {
    let days = timestamp.div_euclid(86_400_000);
    let week = days - (days + 3).rem_euclid(7);
    for statement in [
        "INSERT INTO semel_streams (stream, owner, open_lane, scope, recipe) VALUES ('slot:p/gone', 7, 77, 'x', 'y')",
        "INSERT INTO semel_lanes (lane, stream, scope, recipe, opened_at, settled, lease_until)
         VALUES (77, 'slot:p/gone', 'x', 'y', now(), 0, clock_timestamp() + interval '15 s')",
        &format!(
            "INSERT INTO processed_kafka_events
                 (consumer_scope_id, event_id, week_start, lane, position, first_seen_at, topic)
             VALUES ('{scope}', '{event}', date '1970-01-01' + {week}, 77, 0, now(), 'q')"
        ),
    ] {
        database.execute(statement);
    }
}

/// An instance's claim in flight holds its event's record, and what is behind it in its partition, and nothing else. Once
/// the instance is gone for good, its slot is taken, and the record comes out.
#[test]
fn an_instances_claim_in_flight_is_waited_for() {
    let mut plain = Plain::new("from-kafka-held", 2, To::RabbitMq);
    let world = plain.world.beside();
    let mut messages = vec![event(1, "one"), event(2, "held"), event(3, "behind")];
    messages.push(crate::support::generator::Message { partition: 1, ..event(4, "elsewhere") });
    let database = Database::open(&world.database);
    let daemon = world.daemon("a");
    an_instance_holds(&database, &world.scope, "held", messages[1].timestamp);
    let sent = world.send(messages);
    plain.wait_forwarded(&daemon, 2.0);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        daemon.metric("semel_forwarded_messages_total", &[]),
        2.0,
        "the one before it, and the other partition's"
    );
    let committed = world.offsets(false, false).into_iter().map(|found| found.map(|(offset, _)| offset));
    assert_eq!(committed.collect::<Vec<_>>(), [Some(1), Some(1)], "nothing behind it is passed over");
    let claims = || {
        let behind = "SELECT count(*) FROM processed_kafka_events WHERE event_id = 'behind'";
        database.query(behind, &[])[0].get::<_, i64>(0)
    };
    assert_eq!(claims(), 0, "nothing behind it stays claimed");
    wait_until(&format!("it comes out: {}", daemon.tail()), MINUTE, || {
        daemon.metric("semel_forwarded_messages_total", &[]) >= 4.0
    });
    assert_eq!(plain.check(sent, MINUTE), BTreeSet::new());
    assert!(plain.logs().contains("released the claims of an instance that is gone"));
    daemon.stop();
}

/// Killed before it gave back what it had claimed behind a record that waits, an owner leaves claims that others wait for,
/// further behind than the next window may reach: whoever goes on on its lane gives them back.
#[test]
fn what_the_owner_before_left_behind_is_given_back() {
    let mut plain = Plain::new("from-kafka-left", 1, To::RabbitMq);
    let mut sent = plain.world.send([event(1, "one")]);
    let daemon = plain.world.daemon("a");
    plain.check(sent.clone(), MINUTE);
    daemon.stop();
    let database = Database::open(&plain.world.database);
    database.execute(
        "INSERT INTO processed_kafka_events (consumer_scope_id, event_id, week_start, lane, position, first_seen_at, topic)
         SELECT e.consumer_scope_id, 'left', e.week_start, e.lane, 50, now(), e.topic
         FROM processed_kafka_events AS e WHERE e.event_id = 'one'",
    );
    let held = event(2, "held");
    an_instance_holds(&database, &plain.world.scope, "held", held.timestamp);
    sent.extend(plain.world.send([held]));
    let daemon = plain.world.daemon("a");
    let count = |id: &str| {
        let asked = "SELECT count(*) FROM processed_kafka_events WHERE event_id = $1";
        database.query(asked, &[&id])[0].get::<_, i64>(0)
    };
    wait_until(&format!("it is given back: {}", daemon.tail()), MINUTE, || count("left") == 0);
    assert_eq!(daemon.metric("semel_forwarded_messages_total", &[]), 0.0, "while the first one waits");
    assert_eq!(plain.check(sent, MINUTE), BTreeSet::new());
    daemon.stop();
}

/// A group that is stopped for good leaves a claim behind: it is told of as not settled, and released by the group's name.
#[test]
fn a_retired_groups_claims_are_released() {
    let mut plain = Plain::new("from-kafka-retired", 1, To::Nats);
    let sent = plain.world.send([event(1, "one"), event(2, "two")]);
    let daemon = plain.world.daemon("a");
    plain.check(sent, MINUTE);
    daemon.stop();
    let database = Database::open(&plain.world.database);
    database.execute(
        "INSERT INTO processed_kafka_events
             (consumer_scope_id, event_id, week_start, lane, position, first_seen_at, topic, \"partition\")
         SELECT e.consumer_scope_id, 'left', e.week_start, e.lane, 2, now(), e.topic, 0
         FROM processed_kafka_events AS e WHERE e.event_id = 'one'",
    );
    wait_until("the group is empty", MINUTE, || plain.world.broker.members(&plain.world.group) == 0);
    let settings = &plain.world.settings;
    let why = |id: &str| run_well(&["why", id], settings);
    assert!(why("one").contains("was published (position 0, settled up to 2)"), "{}", why("one"));
    assert!(why("left").contains("may be published or not"), "{}", why("left"));
    let group = plain.world.group.clone();
    let planned = run_well(&["release", "group", &group], settings);
    assert!(planned.contains("1 claim would be deleted and 1 lane closed"), "{planned}");
    let done = run_well(&["release", "group", &group, "--yes"], settings);
    assert!(done.contains("1 claim deleted, 1 lane closed"), "{done}");
    let left = "SELECT event_id FROM processed_kafka_events ORDER BY event_id";
    let left: Vec<String> = database.query(left, &[]).iter().map(|row| row.get(0)).collect();
    assert_eq!(left, ["one", "two"]);
    assert!(run_well(&["release", "group", &group], settings).contains("there is nothing to free"));
}
