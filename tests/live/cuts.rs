//! Connections that break: in the middle of what matters, all at once, and for a while.

use std::sync::Arc;
use std::time::Duration;

use crate::load::{Endless, wait_busy};
use crate::support::proxy::{Api, CLAIM, Moment, Proxy, Sight, Then};
use crate::support::random::Random;
use crate::support::world::World;
use crate::{MINUTE, full};

/// The claim is surely not made; may be made; was made, and its answer is lost.
#[test]
fn connections_to_postgres_are_cut_in_and_after_the_commit() {
    let mut world = World::new("cut-claim", 3);
    let proxy = Proxy::of_postgres(world.services.postgres_port());
    world.through(None, Some(proxy.port()));
    let mut random = Random::new(world.seed);
    let mut feed = Endless::start(&world, 10_000, 1_000);
    let daemon = world.daemon("a");
    wait_busy(&daemon, &mut feed);
    for round in 0..if full() { 20 } else { 4 } {
        for moment in [Moment::Before, Moment::During, Moment::After] {
            let seen = proxy.on(CLAIM, moment, 1 + random.among(0..3) as usize, || Then::Cut);
            seen.wait_while(MINUTE, &format!("a claim ({moment:?}, round {round})"), || feed.keep_on());
            feed.keep_on();
        }
        proxy.cut();
    }
    proxy.refuse(true);
    std::thread::sleep(Duration::from_secs(3));
    proxy.refuse(false);
    proxy.await_sight(CLAIM, MINUTE, "a claim after the store was out of reach");
    proxy.stall(true);
    std::thread::sleep(Duration::from_secs(8)); // Longer than the group's session and the transaction.
    proxy.stall(false);
    world.check(feed.finish(), 2 * MINUTE);
    daemon.stop();
}

/// What is sent to Kafka is surely not done; may be done; was done, and the answer is lost.
#[test]
fn connections_to_kafka_are_cut_in_and_after_a_transaction() {
    let mut world = World::new("cut-txn", 3);
    let proxy = Proxy::of_kafka(world.services.kafka_port());
    world.through(Some(proxy.port()), None);
    let mut random = Random::new(world.seed);
    let mut feed = Endless::start(&world, 10_000, 1_000);
    let daemon = world.daemon("a");
    wait_busy(&daemon, &mut feed);
    let apis = [Api::Produce, Api::AddOffsetsToTxn, Api::TxnOffsetCommit, Api::EndTxn, Api::EndTxn];
    for round in 0..if full() { 10 } else { 1 } {
        for api in apis {
            for moment in [Moment::Before, Moment::During, Moment::After] {
                let seen = proxy.on(Sight::Kafka(api), moment, 1 + random.among(0..3) as usize, || Then::Cut);
                seen.wait_while(MINUTE, &format!("{api:?} ({moment:?}, round {round})"), || feed.keep_on());
                feed.keep_on();
            }
        }
        proxy.cut();
    }
    proxy.refuse(true);
    std::thread::sleep(Duration::from_secs(3));
    proxy.refuse(false);
    proxy.await_sight(Sight::Kafka(Api::EndTxn), MINUTE, "a commit after the broker was out of reach");
    proxy.stall(true);
    std::thread::sleep(Duration::from_secs(8));
    proxy.stall(false);
    world.check(feed.finish(), 2 * MINUTE);
    daemon.stop();
}

/// A window is claimed, and the broker then out of reach for longer than the producer and the coordinator wait: it is
/// read again, is no duplicate of its own claims, and comes through once.
#[test]
fn the_broker_is_away_after_a_claim_for_longer_than_a_transaction_lasts() {
    let mut world = World::new("gave-up", 3);
    world.set("SEMEL_TRANSACTION_TIMEOUT", "2s");
    let proxy = Arc::new(Proxy::of_kafka(world.services.kafka_port()));
    world.through(Some(proxy.port()), None);
    let daemon = world.daemon("a");
    let away = Arc::clone(&proxy);
    // At once: a client that is only cut off is back within milliseconds.
    let seen = proxy.on(Sight::Kafka(Api::Produce), Moment::Before, 1, move || {
        away.refuse(true);
        Then::Cut
    });
    let sent = world.send(world.recipe(0, 5_000).iter());
    seen.wait(MINUTE, "a window that is about to be published");
    std::thread::sleep(if full() { MINUTE } else { Duration::from_secs(6) });
    let left: i64 = world.unsettled().values().map(|left| left.claims).sum();
    assert!(left > 0, "nothing was in doubt");
    proxy.refuse(false);
    world.check(sent, 2 * MINUTE);
    let redelivered = daemon.metric("semel_redelivered_messages_total", &[]);
    assert!(redelivered >= left as f64, "{redelivered} of {left} were recognised");
    daemon.stop();
}
