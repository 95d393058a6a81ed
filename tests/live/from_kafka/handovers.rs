//! Partitions that go from one instance to another: gracefully, and by kills.

use std::collections::BTreeSet;
use std::time::Duration;

use super::kit::{Plain, To};
use crate::load::{Endless, wait_busy};
use crate::support::daemon::Daemon;
use crate::support::random::Random;
use crate::{MINUTE, full};

fn kills(name: &str, to: To) {
    let (messages, kills) = if full() { (60_000, 30) } else { (12_000, 6) };
    let mut plain = Plain::new(name, 4, to);
    let mut random = Random::new(plain.world.seed);
    let sent = plain.world.recipe(0, messages).all();
    let mut daemons = ["a", "b"].map(|instance| Some(plain.world.daemon(instance)));
    let (mut counted, mut tried) = (0, 0);
    let mut parts = sent.chunks(messages as usize / (kills + 2));
    let mut fed = Vec::new();
    // Where a window is over sooner than it is killed, few are hit.
    while counted < kills && tried < 5 * kills + 10 {
        if let Some(part) = parts.next() {
            fed.extend(plain.world.send(part.iter().cloned()));
        } else {
            let more = plain.world.recipe(100 + tried as u64, messages / (kills as u64 + 2)).all();
            fed.extend(plain.world.send(more));
        }
        let which = tried % 2;
        let daemon = daemons[which].as_mut().expect("a daemon");
        daemon.wait_ready();
        std::thread::sleep(Duration::from_millis(random.among(0..400)));
        let left = plain.kill(daemons[which].take().expect("a daemon"));
        (counted, tried) = (counted + usize::from(left > 0), tried + 1);
        println!("kill {tried} of {}: {left} claims unsettled", ["a", "b"][which]);
        daemons[which] = Some(plain.world.daemon_unready(["a", "b"][which]));
    }
    fed.extend(parts.flat_map(|part| plain.world.send(part.iter().cloned())).collect::<Vec<_>>());
    println!("{counted} of {tried} kills left unsettled claims behind");
    assert!(counted > 0, "no kill hit a busy daemon");
    let doubled = plain.check(fed, 3 * MINUTE);
    assert!(to == To::RabbitMq || doubled.is_empty(), "the stream drops second copies: {doubled:?}");
    daemons.into_iter().flatten().for_each(Daemon::stop);
}

#[test]
fn kills_lose_nothing_to_rabbitmq() {
    kills("from-kafka-kills", To::RabbitMq);
}

#[test]
fn kills_lose_nothing_to_nats() {
    kills("from-kafka-kills-nats", To::Nats);
}

/// Members come and go, and say so: nothing comes out twice, and nobody waits for a lease.
fn come_and_go(name: &str, strategy: &str) {
    let mut plain = Plain::new(name, 6, To::RabbitMq);
    plain.set(&[("SEMEL_ASSIGNMENT", strategy), ("SEMEL_LEASE", "60s"), ("SEMEL_PUBLISH_TIMEOUT", "20s")]);
    let world = plain.world.beside();
    let mut feed = Endless::start(&world, 8_000, 1_000);
    let mut members: Vec<Daemon> = vec![world.daemon("m0")];
    wait_busy(&members[0], &mut feed);
    for n in 1..if full() { 20 } else { 5 } {
        feed.keep_on();
        members.push(world.daemon(&format!("m{n}")));
        std::thread::sleep(Duration::from_millis(1_500));
        feed.keep_on();
        if n % 2 == 0 {
            members.remove(0).stop();
            std::thread::sleep(Duration::from_millis(1_000));
        }
    }
    let sent = feed.finish();
    assert_eq!(plain.check(sent, 2 * MINUTE), BTreeSet::new(), "no event came out twice");
    members.into_iter().for_each(Daemon::stop);
    let logs = plain.logs();
    assert!(!logs.contains("waiting for the lease"), "{logs}");
    let kept =
        logs.lines().filter(|line| line.contains("partitions were")).any(|line| !line.contains(r#""retained":0"#));
    assert_eq!(kept, strategy == "cooperative");
}

#[test]
fn eager_members_come_and_go() {
    come_and_go("from-kafka-eager", "eager");
}

#[test]
fn cooperative_members_come_and_go() {
    come_and_go("from-kafka-coop", "cooperative");
}

/// Halted for longer than its session, an instance is still waited for until its lease is over: what it had published
/// then it settles itself, or it comes out again once.
#[test]
fn a_paused_instance_is_waited_for() {
    let mut plain = Plain::new("from-kafka-pause", 3, To::RabbitMq);
    let mut random = Random::new(plain.world.seed);
    let mut sent = Vec::new();
    let mut daemons = ["a", "b"].map(|instance| plain.world.daemon(instance));
    for n in 0..4 {
        sent.extend(plain.world.send(plain.world.recipe(n, 2_000).iter()));
        std::thread::sleep(Duration::from_millis(random.among(0..150)));
        let daemon = &mut daemons[n as usize % 2];
        daemon.halt();
        std::thread::sleep(Duration::from_millis(150));
        plain.unsettled_at_kills.extend(plain.unsettled().into_iter().map(|(event, _)| event));
        std::thread::sleep(Duration::from_secs(8));
        daemon.go_on();
    }
    plain.check(sent, 2 * MINUTE);
    daemons.into_iter().for_each(Daemon::stop);
}
