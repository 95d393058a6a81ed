//! What operators do to a group: rewind, skip, delete its offsets; after a clean stop, and right after a crash.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::load::{Endless, wait_busy};
use crate::support::by_hand::{event, forwarded, now};
use crate::support::database::Database;
use crate::support::generator::Message;
use crate::support::proxy::{Api, Moment, Proxy, Sight, Then};
use crate::support::world::World;
use crate::{MINUTE, full};

const SOON: Duration = Duration::from_secs(60);

/// Back to the start: what was settled stays deduplicated.
#[test]
fn a_rewind_after_a_clean_stop() {
    let world = World::new("rewind", 3);
    let sent = world.send(world.recipe(0, 5_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    world.broker.move_offsets(&world.group, &world.input, &[(0, 0), (1, 10), (2, 500)]);
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// Claimed on a Sunday, read again after the week has turned, on a server and in a process elsewhere: the same claim. The
/// week is the event's own.
#[test]
fn a_rewind_after_the_week_has_turned() {
    let mut world = World::new("week", 1);
    const DAY: i64 = 86_400_000;
    // Monday 00:00 UTC, two weeks before this one; 1970-01-05 was a Monday.
    let monday = (now() / DAY - 4) / 7 * 7 + 4 - 14;
    let at = |copy, id, timestamp| Message { timestamp, ..event(copy, id) };
    let sent = world.send([at(0, "sunday", monday * DAY - 1), at(1, "monday", monday * DAY)]);
    let database = Database::open(&world.database);
    for zone in ["Pacific/Kiritimati", "Pacific/Pago_Pago"] {
        let name = world.database.rsplit_once('/').expect("a URL with a database").1;
        database.execute(&format!("ALTER DATABASE {name} SET timezone = '{zone}'"));
        world.set("TZ", zone);
        let daemon = world.daemon("a");
        world.check(sent.clone(), SOON);
        daemon.stop();
        world.broker.move_offsets(&world.group, &world.input, &[(0, 0)]);
    }
    assert_eq!(forwarded(&world), [0, 1]);
    let rows = database.query("SELECT event_id, week_start - DATE '1970-01-01' FROM processed_kafka_events", &[]);
    let weeks: BTreeMap<String, i32> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!((i64::from(weeks["sunday"]), i64::from(weeks["monday"])), (monday - 7, monday));
}

/// Forward: what was jumped over stays out, unless another copy of it is read; all else comes through.
#[test]
fn a_skip_after_a_clean_stop() {
    let mut world = World::new("skip", 3);
    let mut sent = world.send(world.recipe(0, 3_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    let from = world.ends();
    sent.extend(world.send(world.recipe(1, 3_000).iter()));
    let to: Vec<(i32, i64)> = from.iter().zip(0..).map(|(end, partition)| (partition, end + 300)).collect();
    world.broker.move_offsets(&world.group, &world.input, &to);
    for (partition, to) in to {
        world.skipped(partition, to - 300, to, false);
    }
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// Retention deletes what the group has not read: it goes on where the log begins.
#[test]
fn retention_overtakes_the_group() {
    let mut world = World::new("retention", 3);
    let mut sent = world.send(world.recipe(0, 3_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    let from = world.ends();
    sent.extend(world.send(world.recipe(1, 3_000).iter()));
    world.remember_input();
    let below: Vec<(i32, i64)> = from.iter().zip(0..).map(|(end, partition)| (partition, end + 200)).collect();
    world.broker.delete_records(&world.input, &below);
    for (partition, to) in below {
        world.skipped(partition, to - 200, to, false);
    }
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// Partitions are added under a running daemon: they are read from their start.
#[test]
fn partitions_are_added() {
    let mut world = World::new("grown", 2);
    world.set("SEMEL_SOURCE_KAFKA_TOPIC_METADATA_REFRESH_INTERVAL_MS", "1000");
    let daemon = world.daemon("a");
    let mut sent = world.send(world.recipe(0, 1_000).iter());
    world.wait_done(SOON);
    world.broker.add_partitions(&world.input, 4);
    world.partitions = 4;
    sent.extend(world.send(world.recipe(1, 2_000).iter()));
    world.check(sent, SOON);
    daemon.stop();
}

/// The group is deleted: it goes on from the settled offsets, which are in another group.
#[test]
fn deletion_of_the_groups_offsets() {
    let world = World::new("deleted", 3);
    let mut sent = world.send(world.recipe(0, 3_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    world.broker.delete_group(&world.group);
    sent.extend(world.send(world.recipe(1, 3_000).iter()));
    let daemon = world.daemon("a");
    world.check(sent.clone(), SOON);
    daemon.stop();
    // The settled offsets too: a clean stop recorded them.
    world.broker.delete_group(&format!("{}.settled", world.group));
    sent.extend(world.send(world.recipe(2, 1_000).iter()));
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// Crashes with claims unsettled, then moves the group's offsets, then goes on.
fn after_a_crash(name: &str, mut moves: impl FnMut(&mut World, Vec<i64>)) {
    let mut world = World::new(name, 3);
    world.set("SEMEL_WINDOW_SIZE", "300"); // So that there are many commits to be killed before.
    let proxy = Proxy::of_kafka(world.services.kafka_port());
    let direct = world.settings.clone();
    let mut sent = Vec::new();
    for round in 0..if full() { 6 } else { 2 } {
        let feeding = World::recipe(&world, 10 + round, 6_000);
        let feed = crate::support::feed::Feed::start(&world.services.kafka, &world.input, feeding.all(), 2_000);
        world.through(Some(proxy.port()), None);
        let daemon = world.daemon("a");
        crate::support::broker::wait_until("the daemon claims", MINUTE, || {
            daemon.metric("im2be_dedup_claims_total", &[]) > 0.0
        });
        let handle = daemon.handle();
        let act = move || {
            handle.kill();
            Then::Cut
        };
        proxy.on(Sight::Kafka(Api::EndTxn), Moment::Before, 3, act).wait(MINUTE, "a commit");
        let left = world.kill_and_count(daemon);
        assert!(left > 0, "round {round}: killed before a commit, and no claim was left unsettled");
        sent.extend(feed.finish());
        let settled = world.offsets(true, true).into_iter().map(|found| found.expect("a settled offset").0).collect();
        moves(&mut world, settled);
        world.settings = direct.clone();
        let daemon = world.daemon("a");
        world.wait_done(SOON);
        daemon.stop();
    }
    world.check(sent, SOON);
}

#[test]
fn a_rewind_right_after_a_crash() {
    after_a_crash("crash-rewind", |world, settled| {
        let back: Vec<(i32, i64)> =
            settled.iter().zip(0..).map(|(at, p)| (p, (at - 100 * i64::from(p)).max(0))).collect();
        world.broker.move_offsets(&world.group, &world.input, &back);
    });
}

#[test]
fn a_skip_right_after_a_crash() {
    after_a_crash("crash-skip", |world, settled| {
        let ends = world.ends();
        let mut to = Vec::new();
        for (partition, (&at, &end)) in (0..).zip(settled.iter().zip(&ends)) {
            let there = (at + 40).min(end);
            world.skipped(partition, at, there, true);
            to.push((partition, there));
        }
        world.broker.move_offsets(&world.group, &world.input, &to);
    });
}

#[test]
fn deletion_of_the_groups_offsets_right_after_a_crash() {
    after_a_crash("crash-delete", |world, _| {
        world.broker.delete_group(&world.group);
    });
}

/// The settled offsets are lost after a crash: nothing says where the lane left off, and Semel does not guess.
#[test]
fn settled_offsets_deleted_after_a_crash() {
    let world = World::new("halt", 2);
    let mut feed = Endless::start(&world, 4_000, 2_000);
    let daemon = world.daemon("a");
    wait_busy(&daemon, &mut feed);
    world.kill_and_count(daemon);
    let sent = feed.finish();
    world.broker.delete_group(&format!("{}.settled", world.group));
    let mut daemon = world.daemon_unready("a");
    let status = daemon.wait_end(MINUTE);
    assert!(!status.success(), "it ended well");
    assert!(
        daemon.log_text().contains("semel recover"),
        "the operator is not told of semel recover: {}",
        daemon.tail()
    );
    assert!(!sent.is_empty());
}
