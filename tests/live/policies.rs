//! What becomes of messages that cannot be claimed, of duplicates, and of all while the store is away: every word of
//! every policy. One daemon shows one word of each.

use std::time::Duration;

use crate::support::broker::wait_until;
use crate::support::by_hand::{all, bare, copies, event, forwarded, marked, now};
use crate::support::daemon::Daemon;
use crate::support::generator::Message;
use crate::support::proxy::Proxy;
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(60);
const WEEK: i64 = 7 * 86_400_000;

/// Copies that each policy is about; see [`messages`].
const WITHOUT_ID: [u64; 3] = [0, 1, 2];
const NULL_PARTS: [u64; 3] = [3, 4, 5];
const WITHOUT_TIME: [u64; 2] = [6, 7];
const BAD_TIME: [u64; 2] = [8, 9];
const OLD: [u64; 2] = [10, 11];
const FUTURE: [u64; 2] = [12, 13];
const FIRST: [u64; 4] = [20, 21, 22, 23];
const AGAIN: [u64; 2] = [24, 25];

/// What each of those that cannot be claimed is told to be.
const CAUSES: &[(&[u64], &str)] = &[
    (&WITHOUT_ID, "missing_id"),
    (&NULL_PARTS, "missing_id"),
    (&WITHOUT_TIME, "missing_time"),
    (&BAD_TIME, "bad_time"),
    (&OLD, "old_event"),
    (&FUTURE, "future_event"),
];

/// Two or three of everything that cannot be claimed, and six messages that can, of which the last two are duplicates.
/// Weeks 8 back and 1 ahead are kept, in place of the usual 5 and 2.
fn messages() -> Vec<Message> {
    let at = |millis: i64| millis.to_string();
    let (present, kept, old, future) = (at(now()), at(now() - 8 * WEEK), at(now() - 10 * WEEK), at(now() + 2 * WEEK));
    let present = Some(present.as_str());
    let mut messages = vec![];
    messages.extend(WITHOUT_ID.map(|copy| bare(copy, &[("at", present)])));
    messages.extend(NULL_PARTS.map(|copy| bare(copy, &[("a", None), ("b", None), ("at", present)])));
    let timed = |copy: u64, at| bare(copy, &[("a", Some("x")), ("b", Some(&copy.to_string())), ("at", at)]);
    messages.extend(WITHOUT_TIME.map(|copy| timed(copy, None)));
    messages.extend(BAD_TIME.map(|copy| timed(copy, Some("yesterday"))));
    messages.extend(OLD.map(|copy| timed(copy, Some(&old))));
    messages.extend(FUTURE.map(|copy| timed(copy, Some(&future))));
    messages.extend(FIRST.map(|copy| timed(copy, if copy == 20 { Some(&kept) } else { present })));
    messages.extend(AGAIN.map(|copy| bare(copy, &[("a", Some("x")), ("b", Some("22")), ("at", present)])));
    messages
}

fn world(name: &str, policies: &[(&str, &str)]) -> World {
    let mut world = World::new(name, 1);
    let usual = [
        ("SEMEL_EVENT_ID", "header:ce_id|header:a+header:b"),
        ("SEMEL_EVENT_TIME", "header:at:ms"),
        ("SEMEL_RETENTION_WEEKS", "9"),
        ("SEMEL_WEEKS_AHEAD", "1"),
    ];
    for (name, value) in usual.iter().chain(policies) {
        world.set(name, value);
    }
    world
}

/// The copies of these groups, each with the same word.
fn with(groups: &[(&[u64], &str)]) -> Vec<(u64, String)> {
    let mut all: Vec<_> =
        groups.iter().flat_map(|(copies, word)| copies.iter().map(|copy| (*copy, (*word).to_owned()))).collect();
    all.sort_unstable();
    all
}

fn counted(daemon: &Daemon, metric: &str, cause: &str) -> f64 {
    daemon.metric(metric, &[&format!(r#"cause="{cause}""#)])
}

fn duplicates(daemon: &Daemon) -> f64 {
    daemon.metric("im2be_dedup_claims_total", &[r#"outcome="duplicate""#])
}

/// Every cause, rejected: dead letters with their cause and origin, nothing of them forwarded, nothing a "duplicate".
/// Duplicates go to a topic of their own.
#[test]
fn rejected_and_duplicates_routed() {
    let mut world = world("reject", &[("SEMEL_DUPLICATES", "route")]);
    let route = format!("{}.twice", world.input);
    world.broker.make_topic(&route, 1, &[]);
    world.set("SEMEL_DUPLICATES_TOPIC", &route);
    world.send(messages());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), FIRST);
    let dead = all(&world.broker, &world.dead);
    assert_eq!(marked(&dead, "semel-cause"), with(CAUSES));
    let origins: Vec<_> = (0..14_u64).map(|copy| (copy, format!("{}/0/{copy}", world.input))).collect();
    assert_eq!(marked(&dead, "semel-origin"), origins);
    assert_eq!(marked(&dead, "semel-scope"), (0..14).map(|copy| (copy, world.scope.clone())).collect::<Vec<_>>());
    let routed = all(&world.broker, &route);
    assert_eq!(marked(&routed, "semel-verdict"), with(&[(&AGAIN, "duplicate")]));
    assert!(marked(&routed, "semel-origin").iter().all(|(_, origin)| origin.starts_with(&world.input)));
    assert_eq!((duplicates(&daemon), counted(&daemon, "semel_dead_letters_total", "missing_id")), (2.0, 6.0));
    daemon.stop();
}

/// Every cause, forwarded: all of them come through, marked as unclaimed and counted; duplicates come marked as well.
#[test]
fn forwarded_and_duplicates_marked() {
    let causes = ["SEMEL_MISSING_ID", "SEMEL_MISSING_TIME", "SEMEL_OLD_EVENT", "SEMEL_FUTURE_EVENT"];
    let mut policies: Vec<_> = causes.iter().map(|name| (*name, "forward")).collect();
    policies.push(("SEMEL_DUPLICATES", "mark"));
    let world = world("forward", &policies);
    world.send(messages());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    let output = all(&world.broker, &world.output);
    assert_eq!(marked(&output, "semel-unclaimed"), with(CAUSES));
    assert_eq!(marked(&output, "semel-verdict"), with(&[(&AGAIN, "duplicate")]));
    assert_eq!(copies(&output), copies_of_all());
    assert!(all(&world.broker, &world.dead).is_empty());
    assert_eq!((duplicates(&daemon), counted(&daemon, "semel_forwarded_unclaimed_total", "missing_id")), (2.0, 6.0));
    daemon.stop();
}

fn copies_of_all() -> Vec<u64> {
    messages().iter().map(|message| message.copy).collect()
}

/// It claims and judges as ever, and forwards duplicates too.
#[test]
fn observed() {
    let world = world("observe", &[("SEMEL_MODE", "observe")]);
    world.send(messages());
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    let output = all(&world.broker, &world.output);
    assert_eq!(copies(&output), [&FIRST[..], &AGAIN].concat());
    assert_eq!(marked(&output, "semel-verdict"), with(&[(&AGAIN, "duplicate")]));
    assert_eq!(duplicates(&daemon), 2.0);
    daemon.stop();
}

/// Stops at the first message of each kind, names it, and commits nothing of its window. Let go on by another word, it
/// stops at the next kind.
#[test]
fn stopped() {
    let kinds = [
        ("SEMEL_MISSING_ID", "missing_id"),
        ("SEMEL_MISSING_TIME", "missing_time"),
        ("SEMEL_OLD_EVENT", "old_event"),
        ("SEMEL_FUTURE_EVENT", "future_event"),
        ("SEMEL_OVERSIZE", "too_large"),
    ];
    let mut world = world("stop", &kinds.map(|(name, _)| (name, "stop")));
    let dead = world.settings.remove("SEMEL_DEAD_LETTER").expect("a topic");
    world.broker.set_topic(&world.output, &[("max.message.bytes", "10000")]);
    let mut sent: Vec<Message> =
        messages().into_iter().filter(|message| [0, 6, 10, 12].contains(&message.copy)).collect();
    sent.push(Message { value: Some(vec![b'v'; 20_000]), ..event(14, "large") });
    world.send(sent);
    for (n, (name, cause)) in kinds.iter().enumerate() {
        let mut daemon = world.daemon_unready("a");
        assert!(!daemon.wait_end(SOON).success());
        let place = format!("{}/0/{n}: stopped at a message by policy ({cause}:", world.input);
        assert!(daemon.log_text().contains(&place), "not {place:?}: {}", daemon.tail());
        let stand = world.offsets(false, false)[0].as_ref().map_or(0, |(offset, _)| *offset);
        assert_eq!((stand, forwarded(&world).len()), (0, 0), "{name}");
        world.set(name, "reject");
        world.set("SEMEL_DEAD_LETTER", &dead);
    }
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    let causes: Vec<String> =
        marked(&all(&world.broker, &world.dead), "semel-cause").into_iter().map(|(_, cause)| cause).collect();
    assert_eq!(causes, kinds.map(|(_, cause)| cause));
    daemon.stop();
}

/// Block: nothing is forwarded and nothing counted as a duplicate, and with the store back all come through once.
/// Forward: what is not known to be a duplicate comes marked and is counted; with the store back, claims are made again.
#[test]
fn the_store_is_away() {
    let mut world = World::new("store-policy", 1);
    let proxy = Proxy::of_postgres(world.services.postgres_port());
    world.through(None, Some(proxy.port()));
    let mut sent = world.send([event(0, "a")]);
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    proxy.refuse(true);
    sent.extend(world.send([event(1, "b"), event(2, "b"), event(3, "c")]));
    let failures = |daemon: &Daemon| daemon.metric("semel_store_errors_total", &[]);
    wait_until("the store is asked in vain", SOON, || failures(&daemon) >= 5.0);
    assert_eq!((forwarded(&world), duplicates(&daemon)), (vec![0], 0.0));
    assert_eq!(daemon.metric("semel_forwarded_messages_total", &[]), 1.0);
    proxy.refuse(false);
    world.check(sent, SOON);
    assert_eq!((forwarded(&world), duplicates(&daemon)), (vec![0, 1, 3], 1.0));
    daemon.stop();

    world.set("SEMEL_STORE_AWAY", "forward");
    let daemon = world.daemon("a");
    world.send([event(4, "d")]);
    world.wait_done(SOON);
    proxy.refuse(true);
    // That `d` is a duplicate is known without the store.
    world.send([event(5, "d"), event(6, "e"), event(7, "e"), event(8, "a")]);
    world.wait_done(SOON);
    assert_eq!(counted(&daemon, "semel_forwarded_unclaimed_total", "store_away"), 3.0);
    proxy.refuse(false);
    world.send([event(9, "e"), event(10, "e"), event(11, "a")]);
    world.wait_done(SOON);
    let output = all(&world.broker, &world.output);
    assert_eq!(copies(&output), [0, 1, 3, 4, 6, 7, 8, 9]);
    assert_eq!(marked(&output, "semel-unclaimed"), with(&[(&[6, 7, 8], "store_away")]));
    assert_eq!(duplicates(&daemon), 3.0);
    daemon.stop();
}
