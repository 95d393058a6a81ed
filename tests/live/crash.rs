//! kill -9 at random moments, while the daemons are busy, and on the sight of what matters.
//!
//! A kill counts only if it left claims behind that were not settled: the daemon was between a claim and the commit
//! that makes it good. A daemon that is killed idle shows nothing.

use std::time::Duration;

use crate::load::{Endless, wait_busy};
use crate::support::daemon::Daemon;
use crate::support::proxy::{Api, CLAIM, Moment, Proxy, Sight, Then};
use crate::support::random::Random;
use crate::support::world::World;
use crate::{MINUTE, full};

#[test]
fn kills_at_random_moments() {
    let (messages, kills) = if full() { (200_000, 30) } else { (40_000, 6) };
    let world = World::new("crash", 6);
    let mut random = Random::new(world.seed);
    let mut feed = Endless::start(&world, messages, 1_500);
    let mut daemons = ["a", "b"].map(|instance| Some(world.daemon(instance)));
    let (mut counted, mut tried) = (0, 0);
    while counted < kills {
        let which = random.among(0..2) as usize;
        let both = random.percent(15);
        wait_busy(daemons[which].as_ref().expect("a daemon"), &mut feed);
        std::thread::sleep(Duration::from_millis(random.among(0..700)));
        if both {
            daemons[1 - which].take().expect("a daemon").kill();
        }
        let left = world.kill_and_count(daemons[which].take().expect("a daemon"));
        (counted, tried) = (counted + u32::from(left > 0), tried + 1);
        println!("kill {tried} of {}: {left} claims unsettled", if both { "both" } else { ["a", "b"][which] });
        assert!(tried < 5 * kills + 10, "only {counted} of {tried} kills hit a busy daemon");
        for (daemon, instance) in daemons.iter_mut().zip(["a", "b"]) {
            daemon.get_or_insert_with(|| world.daemon(instance));
        }
    }
    println!("{counted} of {tried} kills left unsettled claims behind");
    world.check(feed.finish(), 2 * MINUTE);
    daemons.into_iter().flatten().for_each(Daemon::stop);
}

/// One daemon behind proxies, killed before, while and after it claims, produces, sends offsets, commits.
#[test]
fn kills_on_the_sight_of_a_claim_and_of_a_commit() {
    let table: &[(&str, Sight, Moment, bool)] = &[
        // (what, sight, moment, whether claims must be left unsettled)
        ("before a claim", CLAIM, Moment::Before, false),
        ("during a claim", CLAIM, Moment::During, false),
        ("after a claim's commit", CLAIM, Moment::After, true),
        ("before records are produced", Sight::Kafka(Api::Produce), Moment::Before, true),
        ("after records were produced", Sight::Kafka(Api::Produce), Moment::After, true),
        ("after offsets were sent", Sight::Kafka(Api::TxnOffsetCommit), Moment::After, true),
        ("before the commit", Sight::Kafka(Api::EndTxn), Moment::Before, true),
        ("during the commit", Sight::Kafka(Api::EndTxn), Moment::During, false),
        ("after the commit", Sight::Kafka(Api::EndTxn), Moment::After, false),
    ];
    let mut world = World::new("sight", 3);
    let kafka = Proxy::of_kafka(world.services.kafka_port());
    let postgres = Proxy::of_postgres(world.services.postgres_port());
    world.through(Some(kafka.port()), Some(postgres.port()));
    let mut random = Random::new(world.seed);
    let mut feed = Endless::start(&world, 10_000, 1_000);
    for _ in 0..if full() { 4 } else { 1 } {
        for &(what, sight, moment, must_leave) in table {
            let daemon = world.daemon("a");
            wait_busy(&daemon, &mut feed);
            let proxy = if matches!(sight, Sight::Sql(_)) { &postgres } else { &kafka };
            let handle = daemon.handle();
            let act = move || {
                handle.kill();
                Then::Cut
            };
            let seen = proxy.on(sight, moment, 1 + random.among(0..4) as usize, act);
            seen.wait_while(MINUTE, what, || feed.keep_on());
            let left = world.kill_and_count(daemon);
            println!("killed {what}: {left} claims unsettled");
            assert!(left > 0 || !must_leave, "killed {what}, and no claim was left unsettled");
            feed.keep_on();
        }
    }
    let daemon = world.daemon("a");
    world.check(feed.finish(), 2 * MINUTE);
    daemon.stop();
}
