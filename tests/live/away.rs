//! PostgreSQL and Kafka stopped hard and brought back, under load. A test's own services.

use std::time::Duration;

use crate::load::{Endless, wait_busy};
use crate::support::proxy::{Api, Moment, Proxy, Sight, Then};
use crate::support::random::Random;
use crate::support::services::{OwnServices, Service};
use crate::support::world::World;
use crate::{MINUTE, full};

#[test]
fn postgres_is_stopped_hard_and_started() {
    let own = OwnServices::start(&[Service::Postgres]);
    let world = World::on(own.services.clone(), "store-away", 3);
    let mut feed = Endless::start(&world, 10_000, 1_000);
    let daemon = world.daemon("a");
    for round in 0..if full() { 8 } else { 2 } {
        wait_busy(&daemon, &mut feed);
        own.stop(Service::Postgres, true);
        std::thread::sleep(Duration::from_secs(2 + 6 * (round % 2)));
        own.bring_back(Service::Postgres);
        feed.keep_on();
        let before = daemon.metric("im2be_dedup_claims_total", &[]);
        crate::support::broker::wait_until("it claims again", MINUTE, || {
            feed.keep_on();
            daemon.metric("im2be_dedup_claims_total", &[]) > before
        });
    }
    world.check(feed.finish(), 2 * MINUTE);
    daemon.stop();
}

/// Longer than a broker's session: only then may it come back (tests/services.d/kafka.py).
const BROKERS_SESSION: Duration = Duration::from_secs(6);

/// The broker goes in the middle of work, longer than the producer's patience.
#[test]
fn kafka_is_stopped_hard_and_started() {
    let own = OwnServices::start(&[Service::Controller, Service::Kafka]);
    let world = World::on(own.services.clone(), "broker-away", 3);
    let sent = world.send(world.recipe(0, 30_000).iter());
    let daemon = world.daemon("a");
    world.wait_forwarded(3_000, MINUTE);
    own.stop(Service::Kafka, true);
    std::thread::sleep(if full() { MINUTE } else { 3 * BROKERS_SESSION });
    own.bring_back(Service::Kafka);
    world.check(sent, 2 * MINUTE);
    daemon.stop();
}

/// The only broker, killed before, while and after it carries out what a transaction is made of; and brought back
/// before or after the producer has lost its patience.
#[test]
fn kafka_is_killed_in_the_middle_of_a_transaction() {
    let own = OwnServices::start(&[Service::Controller, Service::Kafka]);
    let mut world = World::on(own.services.clone(), "broker-killed", 3);
    world.set("SEMEL_WINDOW_SIZE", "1000");
    let proxy = Proxy::of_kafka(world.services.kafka_port());
    world.through(Some(proxy.port()), None);
    let mut random = Random::new(world.seed);
    let mut sent = vec![];
    let daemon = world.daemon("a");
    let sights = [
        (Api::EndTxn, Moment::During),
        (Api::EndTxn, Moment::After),
        (Api::TxnOffsetCommit, Moment::After),
        (Api::Produce, Moment::During),
    ];
    for round in 0..if full() { 6 } else { 1 } {
        for (n, (api, moment)) in sights.into_iter().enumerate() {
            // All is stored before the broker goes: what a producer repeats after a crash may be stored twice.
            daemon.halt();
            sent.extend(world.send(world.recipe(round * 10 + n as u64, 6_000).iter()));
            let broker = own.handle(Service::Kafka);
            let nth = 1 + random.among(0..2) as usize;
            let seen = proxy.on(Sight::Kafka(api), moment, nth, move || {
                broker.kill();
                Then::Cut
            });
            daemon.go_on();
            seen.wait(MINUTE, &format!("{api:?} ({moment:?}, round {round})"));
            std::thread::sleep(BROKERS_SESSION * if random.percent(30) { 2 } else { 1 });
            own.bring_back(Service::Kafka);
            world.check(sent.clone(), 2 * MINUTE);
        }
    }
    daemon.stop();
}
