//! Settings whose effect nothing else shows, by the binary itself; several in each run.

use std::time::{Duration, Instant};

use crate::support::broker::wait_until;
use crate::support::by_hand::{event, forwarded};
use crate::support::daemon::{Daemon, run, run_well};
use crate::support::database::Database;
use crate::support::generator::Message;
use crate::support::proxy::Proxy;
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(60);

fn ends_at_once(world: &World, words: &str) -> String {
    let mut daemon = world.daemon_unready("a");
    assert!(!daemon.wait_end(SOON).success());
    let log = daemon.log_text();
    assert!(log.contains(words), "not {words:?}: {}", daemon.tail());
    log
}

/// Windows of at most so many messages.
fn windows(daemon: &Daemon, at_most: &str) -> f64 {
    daemon.metric("semel_window_messages_bucket", &[&format!(r#"le="{at_most}""#)])
}

fn all_windows(daemon: &Daemon) -> f64 {
    daemon.metric("semel_window_messages_count", &[])
}

fn store_commits(daemon: &Daemon) -> f64 {
    daemon.metric("semel_store_commits_total", &[])
}

/// SEMEL_WINDOW_SIZE, SEMEL_WINDOW_BYTES, SEMEL_LINGER, SEMEL_RECENT_IDS.
#[test]
fn the_shape_of_windows() {
    let mut world = World::new("windows", 1);
    world.set("SEMEL_WINDOW_SIZE", "100");
    let of_a_kilobyte = |copy| Message { value: Some(vec![b'v'; 1_000]), ..event(copy, &format!("id-{copy}")) };
    let mut sent = world.send((0..1_000).map(of_a_kilobyte));
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    assert_eq!(windows(&daemon, "100"), all_windows(&daemon));
    assert!(windows(&daemon, "10") < 10.0, "they are filled where there is enough");
    let before = store_commits(&daemon);
    sent.extend(world.send([event(1_000, "id-999")]));
    world.wait_done(SOON);
    assert_eq!(store_commits(&daemon), before, "a duplicate that is remembered needs no question");
    daemon.stop();

    world.settings.remove("SEMEL_WINDOW_SIZE");
    world.set("SEMEL_WINDOW_BYTES", "4KiB");
    world.set("SEMEL_RECENT_IDS", "0");
    world.set("SEMEL_LINGER", "3s");
    sent.extend(world.send((2_000..2_100).map(of_a_kilobyte)));
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    assert_eq!(windows(&daemon, "10"), all_windows(&daemon));
    let (asked, small, single) = (store_commits(&daemon), windows(&daemon, "10"), windows(&daemon, "1"));
    for copy in 3_000..3_004 {
        sent.extend(world.send([event(copy, "id-2050")]));
    }
    world.check(sent, SOON);
    assert_eq!(store_commits(&daemon), asked + 1.0, "one question for all four, and none from memory");
    assert_eq!((windows(&daemon, "10") - small, windows(&daemon, "1") - single), (1.0, 0.0), "one window of four");
    daemon.stop();
}

/// SEMEL_STORE=embedded, SEMEL_START, SEMEL_HTTP, SEMEL_LOG, SEMEL_LOG_FORMAT.
#[test]
fn an_embedded_store_from_the_latest_on_and_seen_by_nobody() {
    let mut world = World::new("quiet", 1);
    let usual = world.daemon("usual");
    assert_eq!(usual.listens_on().len(), 1);
    let log = usual.log_text();
    assert!(log.lines().all(|line| line.starts_with('{')) && log.contains("partitions were assigned"), "{log}");
    usual.stop();

    world.group = format!("{}.latest", world.input);
    world.set("SEMEL_SOURCE", &format!("kafka://{}/{}?group={}", world.services.kafka, world.input, world.group));
    world.set("SEMEL_STORE", &format!("embedded:{}", world.folder.join("claims").display()));
    let others = [
        ("SEMEL_START", "latest"),
        ("SEMEL_HTTP", "off"),
        ("SEMEL_LOG", "warn,semel::cli=info"),
        ("SEMEL_LOG_FORMAT", "human"),
    ];
    others.iter().for_each(|(name, value)| world.set(name, value));
    world.send([event(0, "a"), event(1, "b")]);
    let daemon = world.daemon_unready("a");
    wait_until("it has begun", SOON, || world.offsets(true, false)[0].is_some());
    world.send([event(2, "a"), event(3, "c"), event(4, "a")]);
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), [2, 3]);
    assert!(daemon.listens_on().is_empty());
    let log = daemon.log_text();
    assert!(log.contains("semel runs") && !log.contains("partitions were assigned"), "{log}");
    assert!(log.lines().all(|line| !line.starts_with('{')), "{log}");
    daemon.stop();
    let claims = Database::open(&world.database).query("SELECT 1 FROM processed_kafka_events", &[]);
    assert!(claims.is_empty(), "they are in the folder");
}

/// SEMEL_SCOPE, SEMEL_ALLOW_SHARED_SCOPE, SEMEL_ACCEPT_RECIPE, SEMEL_PIPELINE, SEMEL_INSTANCE.
#[test]
fn whose_events_they_are() {
    let mut world = World::new("whose", 1);
    world.send([event(0, "a"), event(1, "b")]);
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();

    world.set("SEMEL_EVENT_ID", "key");
    let log = ends_at_once(&world, "SEMEL_ACCEPT_RECIPE=");
    let digest = log.split("SEMEL_ACCEPT_RECIPE=").nth(1).and_then(|rest| rest.split([' ', '"', ',']).next());
    world.set("SEMEL_ACCEPT_RECIPE", digest.expect("the digest"));
    world.daemon("a").stop();
    world.settings.remove("SEMEL_ACCEPT_RECIPE");
    world.set("SEMEL_EVENT_ID", "header:ce_id");

    world.group = format!("{}.second", world.input);
    world.set("SEMEL_SOURCE", &format!("kafka://{}/{}?group={}", world.services.kafka, world.input, world.group));
    ends_at_once(&world, "SEMEL_ALLOW_SHARED_SCOPE=true");
    world.set("SEMEL_ALLOW_SHARED_SCOPE", "true");
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    assert_eq!(forwarded(&world), [0, 1], "what the first group has claimed is a duplicate to the second");

    world.group = format!("{}.third", world.input);
    world.set("SEMEL_SOURCE", &format!("kafka://{}/{}?group={}", world.services.kafka, world.input, world.group));
    world.settings.remove("SEMEL_ALLOW_SHARED_SCOPE");
    world.set("SEMEL_SCOPE", "somebody-else");
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    daemon.stop();
    assert_eq!(forwarded(&world), [0, 0, 1, 1], "another scope gets each once of its own");

    world.set("SEMEL_PIPELINE", "orders");
    world.set("SEMEL_INSTANCE", "one");
    let told = run_well(&["check"], &world.settings);
    assert!(told.contains("transactional ids semel.orders.one.*"), "{told}");
}

/// SEMEL_SESSION_TIMEOUT and SEMEL_GRACE.
#[test]
fn how_long_it_is_waited_for() {
    let mut world = World::new("waits", 1);
    let proxy = Proxy::of_postgres(world.services.postgres_port());
    world.through(None, Some(proxy.port()));
    world.set("SEMEL_TRANSACTION_TIMEOUT", "1s");
    world.set("SEMEL_GRACE", "1s");
    world.set("SEMEL_SESSION_TIMEOUT", "2s");
    let members = |count: usize, within: u64| {
        let what = format!("{count} members");
        wait_until(&what, Duration::from_secs(within), || world.broker.members(&world.group) == count);
    };
    let mut daemon = world.daemon("a");
    members(1, 10);
    daemon.halt();
    members(0, 6); // Without the setting it is 10 s from its last heartbeat, which is less than 3 s old.
    daemon.go_on();
    members(1, 60);
    daemon.wait_ready();
    proxy.stall(true);
    world.send([event(0, "a")]);
    let reads = || daemon.metric("semel_phase_seconds_count", &[r#"phase="gather""#]) > 0.0;
    wait_until("a window is handed to the claimer", SOON, reads);
    let begun = Instant::now();
    daemon.handle().signal(libc::SIGTERM);
    let status = daemon.wait_end(SOON);
    // The store's own limit is 30 s and the usual grace 25.
    assert!(!status.success() && begun.elapsed() < Duration::from_secs(15), "{status} after {:?}", begun.elapsed());
    assert!(daemon.log_text().contains("leaving without a finished drain"), "{}", daemon.tail());
    proxy.stall(false);
}

/// SEMEL_WORKERS, SEMEL_STORE_CONNECTIONS, SEMEL_STORE_LOCK_TIMEOUT.
#[test]
fn four_workers_on_two_connections() {
    let mut world = World::new("workers", 4);
    let settings = [("SEMEL_WORKERS", "4"), ("SEMEL_STORE_CONNECTIONS", "2"), ("SEMEL_STORE_LOCK_TIMEOUT", "500ms")];
    settings.iter().for_each(|(name, value)| world.set(name, value));
    let daemon = world.daemon("a");
    wait_until("four members", SOON, || world.broker.members(&world.group) == 4);
    let (holder, watcher) = (Database::open(&world.database), Database::open(&world.database));
    holder.execute("BEGIN");
    holder.execute("LOCK TABLE processed_kafka_events IN ACCESS EXCLUSIVE MODE");
    let sent = world.send(world.recipe(0, 400).iter());
    let failures = || daemon.metric("semel_store_errors_total", &[]);
    let mut most = 0;
    // The usual limit would have let the first of them wait for 10 s.
    wait_until("claims are given up for the lock", Duration::from_secs(8), || {
        let query = "SELECT count(*) FROM pg_stat_activity
                     WHERE application_name = 'semel' AND datname = current_database()";
        most = most.max(watcher.query(query, &[])[0].get::<_, i64>(0));
        failures() >= 4.0
    });
    assert_eq!(most, 2);
    holder.execute("ROLLBACK");
    world.check(sent, SOON);
    daemon.stop();
}

/// SEMEL_STORE_CONNECT_TIMEOUT: a store that takes connections and never answers.
#[test]
fn a_connection_is_not_waited_for_longer() {
    let mut world = World::new("connect", 1);
    let proxy = Proxy::of_postgres(world.services.postgres_port());
    world.through(None, Some(proxy.port()));
    world.set("SEMEL_STORE_CONNECT_TIMEOUT", "200ms");
    proxy.stall(true);
    let begun = Instant::now();
    let output = run(&["partitions"], &world.settings);
    assert!(!output.status.success() && begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    proxy.stall(false);
}
