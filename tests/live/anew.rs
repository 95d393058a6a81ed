//! The input topic is deleted and made again under its name.

use std::collections::BTreeSet;
use std::time::Duration;

use semel::protocol::event::EventId;

use crate::support::checker::Log;
use crate::support::generator::Recipe;
use crate::support::proxy::{Api, Moment, Proxy, Sight, Then};
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(90);

/// The new log holds events that were forwarded from the old one, and new ones, from offset 0 on. Old offsets say
/// nothing about it: it is read whole.
#[test]
fn made_anew_while_the_daemon_is_stopped() {
    let mut world = World::new("anew", 3);
    let mut sent = world.send(world.recipe(0, 3_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    sent.extend(after(&mut world));
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// The same under a running daemon. What it had not read when the old topic went is gone; so it had read all.
#[test]
fn made_anew_while_the_daemon_runs() {
    let mut world = World::new("anew-live", 3);
    let mut sent = world.send(world.recipe(0, 3_000).iter());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    sent.extend(after(&mut world));
    world.check(sent, SOON);
    daemon.stop();
}

/// More messages than before, so that the old offsets lie within the new log: a third of the events are old ones.
fn after(world: &mut World) -> Vec<crate::support::generator::Message> {
    world.make_input_anew(3);
    let again = Recipe { first_copy: 500_000_000, ..world.recipe(0, 2_000) };
    let mut sent = world.send(again.iter());
    sent.extend(world.send(world.recipe(1, 4_000).iter()));
    sent
}

/// The same in the middle of its work: claims of the old log are made and not published. What it had not read went with
/// the log, but every event of the new log comes out.
#[test]
fn made_anew_while_the_daemon_is_at_work() {
    let mut world = World::new("anew-work", 3);
    world.set("SEMEL_WINDOW_SIZE", "300");
    let mut sent = world.send(world.recipe(0, 40_000).iter());
    let daemon = world.daemon("a");
    world.wait_forwarded(2_000, SOON);
    let settled = world.offsets(true, false);
    sent.extend(after(&mut world));
    for (partition, settled) in (0..3).zip(settled) {
        world.lost_with_its_log(partition, settled.map_or(0, |found| found.0));
    }
    world.check(sent, SOON);
    let evidence = world.evidence(vec![]);
    let events = |logs: &[Log], generation| -> BTreeSet<EventId> {
        let logs = logs.iter().filter(|log| log.generation == generation);
        logs.flat_map(|log| &log.records).filter_map(|record| record.event()).collect()
    };
    let (new, forwarded) = (events(&evidence.input, 1), events(&evidence.output, 0));
    assert_eq!(new.difference(&forwarded).count(), 0, "of {} events of the new log", new.len());
    daemon.stop();
}

/// Claims of the old log were never published, and the offsets that would tell which were deleted with the topic. To
/// read on would drop the events of the new log against them: nothing is guessed, the operator is asked.
#[test]
fn made_anew_right_after_a_crash() {
    let mut world = World::new("anew-crash", 3);
    world.set("SEMEL_WINDOW_SIZE", "300"); // So that there are many commits to be killed before.
    world.send(world.recipe(0, 3_000).iter());
    let proxy = Proxy::of_kafka(world.services.kafka_port());
    let direct = world.settings.clone();
    world.through(Some(proxy.port()), None);
    let daemon = world.daemon_unready("a");
    let handle = daemon.handle();
    let act = move || {
        handle.kill();
        Then::Cut
    };
    // The first transaction of all opens the lanes.
    proxy.on(Sight::Kafka(Api::EndTxn), Moment::Before, 3, act).wait(SOON, "a commit");
    let left = world.kill_and_count(daemon);
    assert!(left > 0, "no claim was left unsettled");
    world.settings = direct;
    after(&mut world);
    let before = world.broker.read(&world.output).iter().map(|log| log.records.len()).sum::<usize>();
    let mut daemon = world.daemon_unready("a");
    let status = daemon.wait_end(SOON);
    assert!(!status.success(), "it ended well");
    assert!(
        daemon.log_text().contains("semel recover"),
        "the operator is not told of semel recover: {}",
        daemon.tail()
    );
    let after = world.broker.read(&world.output).iter().map(|log| log.records.len()).sum::<usize>();
    assert_eq!(before, after, "it halted, and forwarded");
}
