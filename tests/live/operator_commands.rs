//! The operator's subcommands: each one's effect, that its dry run has none, and what it refuses.

use std::time::Duration;

use semel::protocol::lane::Mark;
use serde_json::Value;

use crate::support::broker::wait_until;
use crate::support::daemon::{Settings, run};
use crate::support::database::Database;
use crate::support::generator::{COPY, EVENT_ID, Message};
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(60);

/// Exit code, and what was printed to stdout and stderr.
fn told(arguments: &[&str], settings: &Settings) -> (i32, String) {
    let output = run(arguments, settings);
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8")).concat();
    (output.status.code().expect("it ends by itself"), text)
}

fn expect(arguments: &[&str], settings: &Settings, code: i32, words: &[&str]) -> String {
    let (found, text) = told(arguments, settings);
    assert_eq!(found, code, "{arguments:?}:\n{text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?} does not say {word:?}:\n{text}");
    }
    text
}

fn json(arguments: &[&str], settings: &Settings) -> Value {
    let text = expect(arguments, settings, 0, &[]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The messages of a list of (partition, event id).
fn messages(first_copy: u64, ids: &[(i32, &str)]) -> Vec<Message> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock past 1970");
    let message = |(copy, (partition, id)): (u64, &(i32, &str))| Message {
        copy,
        partition: *partition,
        key: Some(id.as_bytes().to_vec()),
        value: Some(b"{}".to_vec()),
        headers: vec![
            (EVENT_ID.to_owned(), Some(id.as_bytes().to_vec())),
            (COPY.to_owned(), Some(copy.to_string().into_bytes())),
        ],
        timestamp: now.as_millis() as i64,
    };
    (first_copy..).zip(ids).map(message).collect()
}

/// Runs a daemon over what there is, and kills it: no drain is recorded.
fn work_and_die(world: &World) {
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    daemon.kill();
}

/// Waits until the group is rid of its dead member.
fn wait_for_empty_group(world: &World) {
    wait_until("the group is empty", SOON, || !told(&["recover"], &world.settings).1.contains("has members"));
}

fn count(database: &Database, sql: &str) -> i64 {
    database.query(sql, &[])[0].get(0)
}

fn claims(database: &Database) -> i64 {
    count(database, "SELECT count(*) FROM processed_kafka_events")
}

/// Everything that a dry run must leave alone.
fn everything(world: &World) -> String {
    let database = Database::open(&world.database);
    let text = |sql: &str| database.query(sql, &[]).iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>();
    let streams = text("SELECT s::text FROM semel_streams AS s ORDER BY stream");
    let lanes = text("SELECT l::text FROM semel_lanes AS l ORDER BY lane");
    let claims = text("SELECT e::text FROM processed_kafka_events AS e ORDER BY e::text");
    format!("{streams:?}\n{lanes:?}\n{claims:?}\n{:?}\n{:?}", world.offsets(false, true), world.offsets(true, true))
}

/// Claims that were made on the open lane of a partition and never settled.
fn claim_in_doubt(world: &World, partition: i32, ids: &[&str]) {
    let (settled, metadata) = world.offsets(true, true)[partition as usize].clone().expect("a settled offset");
    let lane = Mark::decode(&metadata).expect("Semel's own").lane.0;
    for (n, id) in ids.iter().enumerate() {
        insert_claim(
            world,
            id,
            "date_trunc('week', now() AT TIME ZONE 'UTC')::date",
            &lane.to_string(),
            settled + n as i64,
        );
    }
}

fn insert_claim(world: &World, id: &str, week: &str, lane: &str, position: i64) {
    let (scope, topic) = (&world.scope, &world.input);
    Database::open(&world.database).execute(&format!(
        r#"INSERT INTO processed_kafka_events
               (consumer_scope_id, event_id, week_start, lane, position, topic, "partition", "offset", first_seen_at)
           VALUES ('{scope}', '{id}', {week}, {lane}, {position}, '{topic}', 0, {position}, now())"#
    ));
}

fn forwarded(world: &World) -> usize {
    world.broker.read(&world.output).iter().map(|log| log.records.len()).sum()
}

#[test]
fn why_tells_what_became_of_an_event() {
    let mut world = World::new("why", 1);
    let sent = messages(0, &[(0, "first"), (0, "second"), (0, "first")]);
    world.send(sent);
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    claim_in_doubt(&world, 0, &["doubtful"]);
    insert_claim(&world, "imported", "DATE '0001-01-01'", "NULL", 0);

    let settled = json(&["why", "first", "--json"], &world.settings);
    let claim = &settled["claims"][0];
    assert_eq!(settled["claims"].as_array().map(Vec::len), Some(1), "{settled}");
    let expected = (Some("settled"), Some(0), Some(0), Some(3), Some(world.group.as_str()));
    let number = |name: &str| claim[name].as_i64();
    let found =
        (claim["state"].as_str(), number("partition"), number("offset"), number("settled"), claim["group"].as_str());
    assert_eq!(found, expected, "{settled}");

    let duplicate_of = "is a duplicate of it and is dropped";
    let origin = format!("claimed   by {}/0/0 at ", world.input);
    expect(&["why", "first"], &world.settings, 0, &[&origin, "state     settled", duplicate_of, "semel release event"]);
    let doubtful = ["state     unsettled", "not known to have committed", "settled up to 3"];
    expect(&["why", "doubtful"], &world.settings, 0, &doubtful);
    expect(&["why", "imported"], &world.settings, 0, &["week      undated", "lane      none", "settled for ever"]);
    expect(&["why", "nobody"], &world.settings, 0, &["nothing claimed it", "header:ce_id", &world.scope]);
    assert_eq!(json(&["why", "nobody", "--json"], &world.settings)["claims"], serde_json::json!([]));

    // In two weeks: the times of its copies differ.
    insert_claim(&world, "first", "DATE '0001-01-01'", "NULL", 0);
    expect(&["why", "first"], &world.settings, 0, &["has claims in 2 weeks", "SEMEL_EVENT_TIME"]);

    // In every scope, where none is named.
    world.set("SEMEL_SCOPE", "another");
    expect(&["why", "first"], &world.settings, 0, &["nothing claimed it: no claim of this id in scope another"]);
    expect(&["why", "first", "--all-scopes"], &world.settings, 0, &[&format!("scope     {}", world.scope)]);
    world.settings.remove("SEMEL_SCOPE");
    expect(&["why", "first"], &world.settings, 0, &[&format!("scope     {}", world.scope)]);

    // A part with a plus in it, as the recipe writes composites; and the same id as the table holds it.
    world.set("SEMEL_EVENT_ID", "header:tenant+header:ce_id");
    insert_claim(&world, r"a\++b", "DATE '0001-01-01'", "NULL", 0);
    expect(&["why", "a+", "b"], &world.settings, 0, &[r"event     a\++b", "settled for ever"]);
    expect(&["why", "--stored", r"a\++b"], &world.settings, 0, &["settled for ever"]);
    expect(&["why", "a", "+b"], &world.settings, 0, &["nothing claimed it"]);

    // Without the brokers it says what it does not know.
    world.set("SEMEL_EVENT_ID", "header:ce_id");
    world.settings.remove("SEMEL_SOURCE");
    expect(&["why", "second"], &world.settings, 0, &["state     unknown", "SEMEL_SOURCE is not set"]);
}

#[test]
fn an_event_is_let_through_again() {
    let mut world = World::new("release-event", 1);
    world.send(messages(0, &[(0, "once")]));
    work_and_die(&world);
    insert_claim(&world, "once", "DATE '0001-01-01'", "NULL", 0);
    let database = Database::open(&world.database);

    let before = everything(&world);
    let dry = ["2 claims would be deleted", "dry run: nothing was changed", "undated"];
    expect(&["release", "event", "once"], &world.settings, 0, &dry);
    assert_eq!(everything(&world), before);

    expect(&["release", "event", "once", "--week", "undated", "--yes"], &world.settings, 0, &["1 claim deleted"]);
    assert_eq!(claims(&database), 1);
    expect(&["release", "event", "other", "--yes"], &world.settings, 0, &["there is nothing to free"]);
    expect(&["release", "event", "once", "--week", "2026-01-07"], &world.settings, 64, &["begins on 2026-01-05"]);
    assert_eq!(claims(&database), 1);
    expect(&["release", "event", "once", "--yes"], &world.settings, 0, &["1 claim deleted"]);
    assert_eq!(claims(&database), 0);

    // A copy of it is forwarded now, once.
    world.send(messages(1, &[(0, "once"), (0, "once")]));
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 2);

    world.settings.remove("SEMEL_SCOPE");
    expect(&["release", "event", "once", "--yes"], &world.settings, 64, &["SEMEL_SCOPE: it must be given"]);
}

#[test]
fn a_retired_group_gives_up_what_it_did_not_forward() {
    let mut world = World::new("release-group", 2);
    world.send(messages(0, &[(0, "a"), (1, "b"), (0, "c"), (1, "a")]));
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    let group = world.group.clone();
    let release = |yes: &[&str], settings: &Settings, code, words: &[&str]| {
        expect(&[&["release", "group", &group], yes].concat(), settings, code, words)
    };
    release(&["--yes"], &world.settings, 1, &["has members", "stop them first"]);
    daemon.kill();
    wait_for_empty_group(&world);
    claim_in_doubt(&world, 0, &["lost-1", "lost-2"]);
    claim_in_doubt(&world, 1, &["lost-3"]);
    let database = Database::open(&world.database);

    let before = everything(&world);
    release(&[], &world.settings, 0, &["3 claims would be deleted and 2 lanes closed", "dry run"]);
    assert_eq!(everything(&world), before);

    // Another group of the same scope on the same topic is refused as long as this one is not retired.
    let mut heir = world.settings.clone();
    let source = world.settings["SEMEL_SOURCE"].replace(&group, "heir");
    heir.insert("SEMEL_SOURCE".to_owned(), source.replace("heir", &format!("{group}-heir")));
    expect(&["check"], &heir, 1, &[&format!("FAIL  scope {}", world.scope), "semel release"]);

    release(&["--yes"], &world.settings, 0, &["3 claims deleted, 2 lanes closed"]);
    assert_eq!(claims(&database), 3, "those below settled are of events that were forwarded");
    assert_eq!(count(&database, "SELECT count(*) FROM semel_streams WHERE open_lane IS NOT NULL"), 0);
    assert_eq!(count(&database, "SELECT count(*) FROM semel_lanes WHERE closed_at IS NULL"), 0);
    release(&["--yes"], &world.settings, 0, &["has no open lane in this store"]);
    expect(&["check"], &heir, 0, &["no other group claims the same topics"]);

    // The heir reads everything again and forwards what was given up.
    world.settings = heir;
    world.group = format!("{group}-heir");
    world.send(messages(4, &[(1, "lost-1"), (0, "a")]));
    let _daemon = world.daemon("two");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 4);
}

#[test]
fn lanes_of_unknown_extent_are_left_alone() {
    let world = World::new("release-unknown", 1);
    world.send(messages(0, &[(0, "a")]));
    work_and_die(&world);
    wait_for_empty_group(&world);
    world.broker.delete_group(&format!("{}.settled", world.group));
    let before = everything(&world);
    let words = ["left alone", "0 claims deleted, 0 lanes closed"];
    expect(&["release", "group", &world.group, "--yes"], &world.settings, 1, &words);
    assert_eq!(everything(&world), before);
}

#[test]
fn a_lost_settled_offset_is_recovered() {
    let world = World::new("recover", 3);
    let mut sent = world.send(world.recipe(0, 600).iter());
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    expect(&["recover", "--yes"], &world.settings, 1, &["has members"]);
    daemon.kill();
    wait_for_empty_group(&world);
    expect(&["recover", "--yes"], &world.settings, 0, &["nothing to recover"]);
    world.broker.delete_group(&format!("{}.settled", world.group));

    let mut halted = world.daemon_unready("one");
    assert!(!halted.wait_end(SOON).success());
    assert!(halted.log_text().contains("semel recover"), "{}", halted.tail());
    wait_for_empty_group(&world);
    expect(&["check"], &world.settings, 1, &[&format!("FAIL  partition {}/2", world.input), "semel recover"]);

    let before = everything(&world);
    let words = ["the settled offset is gone", "3 partitions to recover", "is lost", "dry run: nothing was changed"];
    expect(&["recover"], &world.settings, 0, &words);
    assert_eq!(everything(&world), before);

    let (committed, kept) = (world.offsets(false, true), claims(&Database::open(&world.database)));
    expect(&["recover", "--yes"], &world.settings, 0, &["goes on at"]);
    assert_eq!(world.offsets(false, true), committed, "the group's own offsets stay");
    let settled = world.offsets(true, true);
    for (own, settled) in committed.iter().zip(&settled) {
        let (own, (position, metadata)) = (own.as_ref().expect("committed"), settled.as_ref().expect("settled"));
        assert_eq!(own.0, *position);
        assert!(Mark::decode(metadata).is_some_and(|mark| mark.cut.is_none()), "{metadata}");
    }
    assert_eq!(claims(&Database::open(&world.database)), kept, "no claim is released");
    expect(&["recover", "--yes"], &world.settings, 0, &["nothing to recover"]);
    expect(&["check"], &world.settings, 0, &["a start goes on where 3 partitions left off"]);

    sent.extend(world.send(world.recipe(1, 300).iter()));
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    daemon.stop();
    // Read again from the start: the claims of before are foreign to the new lanes, and known.
    world.broker.move_offsets(&world.group, &world.input, &[(0, 0), (1, 0), (2, 0)]);
    let _daemon = world.daemon("one");
    world.check(sent, SOON);
}

#[test]
fn only_what_is_halted_is_recovered() {
    let world = World::new("recover-one", 3);
    let mut sent = world.send(world.recipe(0, 300).iter());
    work_and_die(&world);
    wait_for_empty_group(&world);
    // Somebody "resets" the settled offset of one partition.
    world.broker.move_offsets(&format!("{}.settled", world.group), &world.input, &[(1, 7)]);
    let database = Database::open(&world.database);
    let streams = || {
        let rows = database.query("SELECT stream, owner, open_lane FROM semel_streams ORDER BY stream", &[]);
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect::<Vec<(String, i64, Option<i64>)>>()
    };
    let (before, settled) = (streams(), world.offsets(true, true));
    let words = ["the settled offset is not semel's", "1 partition to recover", "/1: goes on at"];
    expect(&["recover", "--yes"], &world.settings, 0, &words);
    for (was, is) in before.iter().zip(streams()) {
        assert_eq!(was.0.ends_with("/1"), *was != is, "{was:?} became {is:?}");
    }
    for partition in [0, 2] {
        assert_eq!(world.offsets(true, true)[partition], settled[partition]);
    }
    sent.extend(world.send(world.recipe(1, 100).iter()));
    let _daemon = world.daemon("one");
    world.check(sent, SOON);
}

#[test]
fn both_groups_gone_and_nothing_doubles() {
    let world = World::new("recover-both", 2);
    let mut sent = world.send(world.recipe(0, 300).iter());
    work_and_die(&world);
    wait_for_empty_group(&world);
    for group in [world.group.clone(), format!("{}.settled", world.group)] {
        world.broker.delete_group(&group);
    }
    let words = ["the group's own offset, which is missing, becomes the same", "goes on at 0"];
    expect(&["recover", "--yes"], &world.settings, 0, &words);
    sent.extend(world.send(world.recipe(1, 100).iter()));
    let _daemon = world.daemon("one");
    world.check(sent, SOON);
}

#[test]
fn another_store_is_started_over_by_the_operators_word() {
    let mut world = World::new("recover-store", 2);
    world.send(messages(0, &[(0, "a"), (1, "b"), (0, "c")]));
    work_and_die(&world);
    wait_for_empty_group(&world);
    world.database = world.services.make_database();
    world.set("SEMEL_STORE", &format!("{}?sslmode=disable", world.database));
    expect(&["migrate"], &world.settings, 0, &["applied migration 1"]);
    let mut halted = world.daemon_unready("one");
    assert!(!halted.wait_end(SOON).success());
    wait_for_empty_group(&world);
    // An operator moves the group back as well: what lies between is not claimed in the new store.
    world.broker.move_offsets(&world.group, &world.input, &[(0, 1)]);
    let words = ["belongs to claims in another store", "1 to 2 will be forwarded a second time", "goes on at 1"];
    expect(&["recover", "--yes"], &world.settings, 0, &words);
    world.send(messages(3, &[(0, "d")]));
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 5, "a, b, c, then c again as was said, and d");
}

#[test]
fn check_finds_nothing_wrong_and_changes_nothing() {
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
fn check_tells_everything_that_is_wrong_at_once() {
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
fn check_tells_who_does_not_answer_and_shows_no_secret() {
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
fn check_names_what_the_role_may_not_do() {
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
fn check_compares_lanes_and_recipe() {
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

#[test]
fn weeks_are_listed_made_and_retired() {
    let mut world = World::new("partitions", 1);
    let text = expect(&["partitions"], &world.settings, 0, &["undated, kept for ever", "not made: ", "--ensure"]);
    assert!(!text.contains("present"), "{text}");
    world.set("SEMEL_RETENTION_WEEKS", "8");
    expect(&["partitions", "--ensure"], &world.settings, 0, &["made the week of ", "kept", "present", "ahead"]);
    let database = Database::open(&world.database);
    let partitions =
        || count(&database, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'processed_kafka_events'::regclass");
    assert_eq!(partitions(), 1 + 8 + 1 + 2);
    let old = "(date_trunc('week', now() AT TIME ZONE 'UTC') - interval '7 weeks')::date";
    for n in 0..20 {
        insert_claim(&world, &format!("old-{n}"), old, "NULL", n);
    }
    insert_claim(&world, "undated", "DATE '0001-01-01'", "NULL", 0);
    database.execute("ANALYZE processed_kafka_events");

    world.set("SEMEL_RETENTION_WEEKS", "5");
    let text = expect(&["partitions"], &world.settings, 0, &["older than what is kept: to be retired", "KiB"]);
    let row = text.lines().find(|line| line.split_whitespace().nth(1) == Some("20")).unwrap_or_default();
    assert!(row.ends_with("to be retired"), "{text}");
    assert_eq!((partitions(), claims(&database)), (12, 21), "listing changes nothing");
    let text = expect(&["partitions", "--retire"], &world.settings, 0, &["retired the week of "]);
    assert!(!text.contains("to be retired"), "{text}");
    assert_eq!((partitions(), claims(&database)), (9, 1));
    let text = expect(&["partitions", "--retire"], &world.settings, 0, &[]);
    assert!(!text.contains("retired"), "there was nothing to retire:\n{text}");
}

#[test]
fn an_embedded_store_is_looked_at_and_never_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let claims = folder.path().join("claims");
    let settings: Settings = [("SEMEL_STORE".to_owned(), format!("embedded:{}", claims.display()))].into();
    for command in [&["why", "a"][..], &["partitions"], &["release", "event", "a", "--scope", "s"]] {
        expect(command, &settings, 1, &["there is no claim store in"]);
    }
    assert!(!claims.exists());
    let input = folder.path().join("in.ndjson");
    std::fs::write(&input, "{\"id\":1}\n{\"id\":2}\n{\"id\":1}\n").expect("written");
    let output = folder.path().join("out.ndjson");
    let paths = [&input, &output].map(|path| path.to_str().expect("UTF-8"));
    expect(&["pipe", "--event-id", "json:/id", paths[0], paths[1]], &settings, 0, &[]);
    let line = format!("line      {}, byte 0", input.canonicalize().expect("a path").display());
    let words = ["scope     default", "week      undated", "claimed   by semel pipe at ", &line, "forwarded the line"];
    let text = expect(&["why", "1"], &settings, 0, &words);
    assert!(!text.contains("lane") && !text.contains('?'), "a line has neither lane nor partition:\n{text}");
    expect(&["why", "2"], &settings, 0, &["byte 9"]);
    let text = expect(&["partitions"], &settings, 0, &["undated, kept for ever"]);
    assert!(!text.contains("0 B"), "two claims take some room:\n{text}");
    let words = [", byte 0", "1 claim would be deleted"];
    expect(&["release", "event", "1", "--scope", "default"], &settings, 0, &words);
    expect(&["release", "event", "1", "--scope", "default", "--yes"], &settings, 0, &["1 claim deleted"]);
    expect(&["why", "1"], &settings, 0, &["nothing claimed it"]);
}
