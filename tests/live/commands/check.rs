//! `semel check` from Kafka to Kafka.

use super::{SOON, everything, expect, forwarded, messages, wait_for_empty_group, work_and_die};
use crate::support::daemon::Settings;
use crate::support::database::Database;
use crate::support::world::World;

#[test]
fn finds_nothing_wrong_and_changes_nothing() {
    let mut world = World::new("check", 2);
    world.send(messages(0, &[(0, "a")]));
    work_and_die(&world);
    wait_for_empty_group(&world);
    let before = everything(&world);
    let topic = format!("topic {}", world.input);
    let words = [
        "ok    promise",
        "exactly once, as seen by a read_committed reader",
        "PostgreSQL ",
        "ok    schema",
        "ok    privileges",
        "ok    clock",
        "ok    weeks",
        "transaction.max.timeout.ms is 900000",
        "transaction.state.log.replication.factor is 1: a crash of that broker",
        "offsets.topic.replication.factor is 1: a crash of that broker",
        &topic,
        "2 partitions, 1 replica,",
        "warn  topic",
        "transactional ids semel.",
        "this client may read the source's and write the sink's",
        "nobody is in it, as it should be",
        "2 open lanes, all for this recipe",
        "no other group claims the same topics",
        "a start goes on where 2 partitions left off",
    ];
    let text = expect(&["check"], &world.settings, 0, &words);
    assert!(!text.contains("FAIL"), "{text}");
    assert_eq!(everything(&world), before);

    // While it is at work: nothing is halted or fenced by being looked at.
    let mut daemon = world.daemon("one");
    world.set("SEMEL_INSTANCE", "one");
    world.send(messages(2, &[(0, "c")]));
    world.wait_done(SOON);
    expect(&["check"], &world.settings, 0, &["1 member now", "it is at work"]);
    world.send(messages(1, &[(1, "b")]));
    world.wait_done(SOON);
    assert!(daemon.has_ended().is_none() && !daemon.log_text().contains("fenced"), "{}", daemon.tail());
}

#[test]
fn tells_everything_that_is_wrong_at_once() {
    let mut world = World::new("check-wrong", 1);
    let name = |end: &str| format!("{}.{end}", world.input);
    let (compacted, broker_time, missing) = (name("compacted"), name("broker-time"), name("missing"));
    world.broker.make_topic(&compacted, 1, &[("cleanup.policy", "compact")]);
    world.broker.make_topic(&broker_time, 1, &[("message.timestamp.type", "LogAppendTime")]);
    let source = world.settings["SEMEL_SOURCE"].replace(&world.input, &format!("{compacted},{broker_time},{missing}"));
    world.set("SEMEL_SOURCE", &source.replace(&format!("{compacted},{broker_time},{missing}.group"), &world.group));
    world.database = world.services.make_database();
    world.set("SEMEL_STORE", &format!("{}?sslmode=disable", world.database));
    let lines = [
        format!("FAIL  topic {compacted}"),
        "raise min.compaction.lag.ms".to_owned(),
        format!("FAIL  topic {broker_time}"),
        "LogAppendTime".to_owned(),
        format!("FAIL  topic {missing}"),
        "it is not there".to_owned(),
        "FAIL  schema".to_owned(),
        "run `semel migrate`".to_owned(),
        "ok    promise".to_owned(),
    ];
    expect(&["check"], &world.settings, 1, &lines.each_ref().map(String::as_str));
    assert_eq!(world.broker.partitions(&missing), 0, "looking at a topic does not make it");
}

#[test]
fn tells_who_does_not_answer_and_shows_no_secret() {
    let mut world = World::new("check-away", 1);
    let store = world.settings["SEMEL_STORE"].clone();
    let secret = store.split([':', '@']).nth(2).expect("a password").to_owned();
    world.set("SEMEL_STORE", &store.replace(&secret, "wr0ng-hidden"));
    let text = expect(&["check"], &world.settings, 1, &["FAIL  store", "password authentication failed", ":***@"]);
    assert!(!text.contains("wr0ng-hidden"), "{text}");
    assert!(text.contains("ok    kafka"), "what else there is, is told as well:\n{text}");

    world.set("SEMEL_STORE", &store);
    let kafka = world.services.kafka.clone();
    let away = world.settings["SEMEL_SOURCE"].replace(&kafka, "127.0.0.1:1");
    world.set("SEMEL_SOURCE", &away);
    world.set("SEMEL_SINK", &format!("kafka:///{}", world.output));
    expect(&["check"], &world.settings, 1, &["FAIL  source", "127.0.0.1:1 do not answer", "ok    schema"]);
}

#[test]
fn names_what_the_role_may_not_do() {
    let mut world = World::new("check-role", 1);
    let name = world.database.rsplit_once('/').expect("a name").1.to_owned();
    let role = format!("{name}_role");
    // Only a superuser makes roles.
    let admin =
        std::env::var("SEMEL_TEST_POSTGRES_ADMIN").expect("SEMEL_TEST_POSTGRES_ADMIN is not set: run tests/run");
    let database = Database::open(&format!("{}/{name}", admin.rsplit_once('/').expect("a database").0));
    database.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'narrow'"));
    let tables = "processed_kafka_events, semel_streams, semel_lanes, semel_store, semel_migrations";
    database.execute(&format!("GRANT SELECT, INSERT ON {tables} TO {role}"));
    let (_, host) = world.database.split_once('@').expect("a user");
    world.set("SEMEL_STORE", &format!("postgres://{role}:narrow@{host}?sslmode=disable"));
    let words = [
        "FAIL  privileges",
        "missing: DELETE on processed_kafka_events, UPDATE on processed_kafka_events, UPDATE on semel_lanes, UPDATE on \
         semel_streams. grant them",
        "may neither make nor retire weeks",
        "FAIL  weeks",
        "as the owner of the table",
    ];
    expect(&["check"], &world.settings, 1, &words);

    database.execute(&format!("GRANT DELETE, UPDATE ON {tables} TO {role}"));
    let by_the_owner = Settings::from([("SEMEL_STORE".to_owned(), format!("{}?sslmode=disable", world.database))]);
    expect(&["partitions", "--ensure"], &by_the_owner, 0, &["made the week of "]);
    let text = expect(&["check"], &world.settings, 0, &["ok    privileges", "warn  privileges", "ok    weeks"]);
    // What is granted is enough to work with.
    assert!(!text.contains("narrow"), "{text}");
    world.send(messages(0, &[(0, "a"), (0, "a")]));
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 1);
    database.execute(&format!("DROP OWNED BY {role}"));
    database.execute(&format!("DROP ROLE {role}"));
}

#[test]
fn compares_lanes_and_recipe() {
    let mut world = World::new("check-recipe", 1);
    world.send(messages(0, &[(0, "a")]));
    work_and_die(&world);
    wait_for_empty_group(&world);
    world.set("SEMEL_EVENT_ID", "key");
    let text = expect(&["check"], &world.settings, 1, &["FAIL  recipe", "SEMEL_ACCEPT_RECIPE="]);
    let digest = text.split("SEMEL_ACCEPT_RECIPE=").nth(1).and_then(|rest| rest.split_whitespace().next());
    world.set("SEMEL_ACCEPT_RECIPE", digest.expect("the digest"));
    expect(&["check"], &world.settings, 0, &["warn  recipe"]);
}
