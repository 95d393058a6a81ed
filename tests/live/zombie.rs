//! A daemon that was believed dead and goes on: halted, or with a request on its way that arrives when another has taken
//! over.

use std::sync::mpsc::channel;
use std::time::Duration;

use crate::load::{Endless, wait_busy};
use crate::support::broker::wait_until;
use crate::support::daemon::Daemon;
use crate::support::proxy::{Api, CLAIM, Moment, Proxy, Sight, TAKE, Then};
use crate::support::random::Random;
use crate::support::world::World;
use crate::{MINUTE, full};

/// Past the session's and the transaction's time (3 s and 5 s here).
const TOO_LONG: Duration = Duration::from_secs(9);

#[test]
fn a_halted_daemon_goes_on_after_another_took_over() {
    let world = World::new("halted", 4);
    let mut random = Random::new(world.seed);
    let mut feed = Endless::start(&world, 10_000, 800);
    let (first, second) = (world.daemon("a"), world.daemon("b"));
    for round in 0..if full() { 10 } else { 2 } {
        let (zombie, other) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        wait_busy(zombie, &mut feed);
        wait_busy(other, &mut feed);
        std::thread::sleep(Duration::from_millis(random.among(0..500)));
        zombie.halt();
        std::thread::sleep(TOO_LONG);
        feed.keep_on();
        zombie.go_on();
        // It finds out that it was replaced, and works again.
        let before = zombie.metric("im2be_dedup_claims_total", &[]);
        wait_until("the zombie works again", MINUTE, || {
            feed.keep_on();
            zombie.metric("im2be_dedup_claims_total", &[]) > before
        });
    }
    world.check(feed.finish(), 2 * MINUTE);
    first.stop();
    second.stop();
}

/// The daemon is halted with a request in the network; the request arrives after the takeover, then the daemon goes on.
#[test]
fn requests_of_a_halted_daemon_arrive_late() {
    let sights = [
        ("a claim", CLAIM),
        ("records", Sight::Kafka(Api::Produce)),
        ("offsets", Sight::Kafka(Api::TxnOffsetCommit)),
        ("a commit", Sight::Kafka(Api::EndTxn)),
    ];
    let direct = World::new("late", 4);
    let kafka = Proxy::of_kafka(direct.services.kafka_port());
    let postgres = Proxy::of_postgres(direct.services.postgres_port());
    let mut random = Random::new(direct.seed);
    let mut feed = Endless::start(&direct, 10_000, 800);
    let proxied = direct.proxied(Some(kafka.port()), Some(postgres.port()));
    for _ in 0..if full() { 5 } else { 1 } {
        for (what, sight) in sights {
            let mut zombie = Daemon::start(&direct.folder, "a", &proxied);
            zombie.wait_ready();
            wait_busy(&zombie, &mut feed);
            let proxy = if matches!(sight, Sight::Sql(_)) { &postgres } else { &kafka };
            let (let_go, held) = channel();
            let handle = zombie.handle();
            let (seen, was_seen) = channel();
            let arrived = proxy.on(sight, Moment::Before, 1 + random.among(0..4) as usize, move || {
                handle.signal(libc::SIGSTOP);
                let _ = seen.send(());
                let _ = held.recv_timeout(2 * MINUTE);
                Then::Pass
            });
            wait_until(&format!("{what} is seen"), MINUTE, || {
                feed.keep_on();
                was_seen.try_recv().is_ok()
            });
            let other = direct.daemon("b");
            wait_busy(&other, &mut feed);
            let _ = let_go.send(());
            arrived.wait(MINUTE, what);
            std::thread::sleep(Duration::from_millis(300));
            zombie.go_on();
            std::thread::sleep(Duration::from_secs(2));
            feed.keep_on();
            zombie.stop();
            other.stop();
        }
    }
    let daemon = direct.daemon("a");
    direct.check(feed.finish(), 2 * MINUTE);
    daemon.stop();
}

/// A daemon is halted as it takes its partitions over, and its tokens are written after those of the owner that came
/// after it. Neither may work under what it does not own.
#[test]
fn tokens_of_a_halted_daemon_arrive_late() {
    let direct = World::new("late-token", 4);
    let postgres = Proxy::of_postgres(direct.services.postgres_port());
    let proxied = direct.proxied(None, Some(postgres.port()));
    let mut feed = Endless::start(&direct, 10_000, 800);
    let other = direct.daemon("b");
    let owns_all = || other.log_text().matches("\"partitions were assigned\",\"partitions\":4").count();
    for round in 0..if full() { 8 } else { 2 } {
        wait_busy(&other, &mut feed);
        let (let_go, held) = channel();
        let (seen, was_seen) = channel();
        let before = owns_all();
        let arrived = postgres.on(TAKE, Moment::Before, 1 + round % 2, move || {
            let _ = seen.send(());
            let _ = held.recv_timeout(2 * MINUTE);
            Then::Pass
        });
        let mut zombie = Daemon::start(&direct.folder, "a", &proxied);
        was_seen.recv_timeout(MINUTE).expect("a token on its way");
        zombie.halt();
        wait_until("the other owns all partitions again", MINUTE, || {
            feed.keep_on();
            owns_all() > before
        });
        let claimed = other.metric("im2be_dedup_claims_total", &[]);
        wait_until("the other works on them", MINUTE, || {
            feed.keep_on();
            other.metric("im2be_dedup_claims_total", &[]) > claimed
        });
        let _ = let_go.send(());
        arrived.wait(MINUTE, "the late token");
        // The other finds it with its next claim, and joins anew. Or it waits for the token's lock, where the COMMIT was
        // not sent before the halt: then the server ends that transaction. Then the late one goes on.
        wait_until("the other meets the late token", MINUTE, || {
            feed.keep_on();
            let met = |what: &str| other.log_text().matches(what).count();
            met("another instance owns the stream") + met("lock timeout") > round
        });
        zombie.go_on();
        zombie.wait_ready();
        feed.keep_on();
        let before = owns_all();
        zombie.stop();
        wait_until("the other owns all partitions after that", MINUTE, || owns_all() > before);
    }
    direct.check(feed.finish(), 2 * MINUTE);
    other.stop();
}
