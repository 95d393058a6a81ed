//! The operator's subcommands: each one's effect, that its dry run has none, and what it refuses.

use std::time::Duration;

use semel::protocol::lane::Mark;
use serde_json::Value;

use crate::support::broker::wait_until;
use crate::support::daemon::{Settings, run};
use crate::support::database::Database;
use crate::support::generator::{COPY, EVENT_ID, Message};
use crate::support::world::World;

mod check;
mod check_leased;
mod claims;

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
