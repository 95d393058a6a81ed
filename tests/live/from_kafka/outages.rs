//! The sink and the store, stopped hard and brought back. A test's own services.

use std::collections::BTreeSet;
use std::time::Duration;

use super::kit::{Plain, To};
use crate::load::{Endless, wait_busy};
use crate::support::broker::wait_until;
use crate::support::services::{OwnServices, Service};
use crate::{MINUTE, full};

#[test]
fn the_store_is_away() {
    let own = OwnServices::start(&[Service::Postgres]);
    let mut plain = Plain::on(own.services.clone(), "from-kafka-store", 3, To::RabbitMq);
    plain.set(&[("SEMEL_LEASE", "30s"), ("SEMEL_PUBLISH_TIMEOUT", "20s")]);
    let world = plain.world.beside();
    let mut feed = Endless::start(&world, 8_000, 1_000);
    let daemon = world.daemon("a");
    for round in 0..if full() { 8 } else { 2 } {
        wait_busy(&daemon, &mut feed);
        own.stop(Service::Postgres, true);
        std::thread::sleep(Duration::from_secs(2));
        let before = daemon.metric("semel_forwarded_messages_total", &[]);
        std::thread::sleep(Duration::from_secs(1 + 4 * (round % 2)));
        assert_eq!(daemon.metric("semel_forwarded_messages_total", &[]), before, "nothing goes out without a claim");
        own.bring_back(Service::Postgres);
        wait_until(&format!("it goes on: {}", daemon.tail()), MINUTE, || {
            feed.keep_on();
            daemon.metric("semel_forwarded_messages_total", &[]) > before
        });
    }
    let sent = feed.finish();
    assert_eq!(plain.check(sent, 2 * MINUTE), BTreeSet::new(), "a store that is away makes no second copy");
    daemon.stop();
}

#[test]
fn the_sink_is_away() {
    let own = OwnServices::start(&[Service::RabbitMq]);
    let mut plain = Plain::on(own.services.clone(), "from-kafka-sink", 3, To::RabbitMq);
    let world = plain.world.beside();
    let mut feed = Endless::start(&world, 8_000, 1_000);
    let daemon = world.daemon("a");
    for round in 0..if full() { 6 } else { 2 } {
        wait_busy(&daemon, &mut feed);
        own.stop(Service::RabbitMq, true);
        // Longer than the lease: it is renewed, since nobody else may have the partitions.
        std::thread::sleep(Duration::from_secs(2 + 4 * (round % 2)));
        assert_eq!(world.broker.members(&world.group), 1, "the membership is kept");
        let before = daemon.metric("semel_forwarded_messages_total", &[]);
        own.bring_back(Service::RabbitMq);
        wait_until(&format!("it goes on: {}", daemon.tail()), MINUTE, || {
            feed.keep_on();
            daemon.metric("semel_forwarded_messages_total", &[]) > before
        });
    }
    plain.check_in_any_order(feed.finish(), 2 * MINUTE);
    daemon.stop();
}
