//! One daemon, nothing goes wrong.

use std::time::Duration;

use crate::support::by_hand::event;
use crate::support::checker::Partitioning;
use crate::support::feed;
use crate::support::generator::{Dress, Message, Recipe, Spread};
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(60);

/// 30 % duplicates over three partitions; afterwards a second start has nothing to do and does nothing.
#[test]
fn each_event_comes_through_once() {
    let world = World::new("plain", 3);
    let daemon = world.daemon("a");
    let sent = world.send(world.recipe(0, 20_000).iter());
    world.check(sent.clone(), SOON);
    daemon.stop();
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    daemon.stop();
}

/// A window that still waits for company when the daemon is told to leave: it is done first, all of it.
#[test]
fn a_window_that_was_never_full_is_done_before_the_daemon_leaves() {
    let mut world = World::new("half", 1);
    world.set("SEMEL_LINGER", "10s");
    let daemon = world.daemon("a");
    let sent = world.send(world.recipe(0, 200).iter());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(forwarded(&world), Vec::<String>::new(), "it did not wait");
    daemon.stop();
    world.wait_done(Duration::ZERO);
    world.check(sent, SOON);
}

/// Null and empty keys and values, headers that repeat or are null, odd ids; messages without one are dead letters.
#[test]
fn odd_messages_come_through_as_they_are() {
    let world = World::new("odd", 3);
    let daemon = world.daemon("a");
    let recipe = Recipe { dress: Dress::Odd, without_id_percent: 3, ..world.recipe(0, 10_000) };
    let sent = world.send(recipe.iter());
    world.check(sent, SOON);
    daemon.stop();
}

#[test]
fn the_partition_number_is_kept_where_that_is_asked_for() {
    let mut world = World::new("same", 4);
    world.partitioning = Partitioning::Same;
    let sink = format!("{}?partition=same", world.settings["SEMEL_SINK"]);
    world.set("SEMEL_SINK", &sink);
    let daemon = world.daemon("a");
    let recipe = Recipe { spread: Spread::SamePartition, ..world.recipe(0, 5_000) };
    let sent = world.send(recipe.iter());
    world.check(sent, SOON);
    daemon.stop();
}

fn message(copy: u64, id: &str) -> Message {
    Message { timestamp: Recipe::new(0, 0, 1).newest - 1_000, ..event(copy, id) }
}

fn header(name: &str, value: Option<&[u8]>) -> (String, Option<Vec<u8>>) {
    (name.to_owned(), value.map(<[u8]>::to_vec))
}

/// What came out, as ids in their order.
fn forwarded(world: &World) -> Vec<String> {
    let logs = world.broker.read(&world.output);
    let events = logs.iter().flat_map(|log| &log.records).filter_map(|record| record.event());
    events.map(|event| event.as_str().to_owned()).collect()
}

/// One poll of ids a, b, a, c: out come a, b, c in that order.
#[test]
fn a_repeat_inside_one_window() {
    let world = World::new("repeat", 1);
    let sent = world.send(["a", "b", "a", "c"].iter().zip(0..).map(|(id, copy)| message(copy, id)));
    let daemon = world.daemon("a");
    world.check(sent, SOON);
    assert_eq!(forwarded(&world), ["a", "b", "c"]);
    let claims = |outcome| daemon.metric("im2be_dedup_claims_total", &[outcome]);
    assert_eq!((claims(r#"outcome="claimed""#), claims(r#"outcome="duplicate""#)), (3.0, 1.0));
    daemon.stop();
}

/// A window of two ids that were claimed before and three fresh ones.
#[test]
fn a_mixed_replay() {
    let world = World::new("mixed", 1);
    let daemon = world.daemon("a");
    let mut sent = world.send(["a", "b"].iter().zip(0..).map(|(id, copy)| message(copy, id)));
    world.wait_done(SOON);
    sent.extend(world.send(["c", "a", "d", "b", "e"].iter().zip(2..).map(|(id, copy)| message(copy, id))));
    world.check(sent, SOON);
    assert_eq!(forwarded(&world), ["a", "b", "c", "d", "e"]);
    assert_eq!(daemon.metric("im2be_dedup_claims_total", &[r#"outcome="duplicate""#]), 2.0);
    daemon.stop();
}

/// The headers, values and times of cases.md, one by one.
#[test]
fn headers_tombstones_and_times() {
    let world = World::new("cases", 1);
    let daemon = world.daemon("a");
    let mut messages: Vec<Message> = (0..4).map(|copy| message(copy, &format!("id-{copy}"))).collect();
    let rest = [header("k", Some(b"1")), header("k", Some(b"2")), header("n", None), header("b", Some(&[0, 0xff]))];
    messages[0].headers.extend(rest);
    messages[1].value = None;
    messages[2].value = Some(vec![]);
    messages[3].key = None;
    let sent = world.send(messages);
    world.check(sent, SOON);
    daemon.stop();
}

/// Two daemons share the partitions, and one alone goes on when the other leaves.
#[test]
fn two_daemons_share_a_group() {
    let world = World::new("two", 4);
    let (first, second) = (world.daemon("a"), world.daemon("b"));
    let mut sent = world.send(world.recipe(0, 20_000).iter());
    world.wait_done(SOON);
    second.stop();
    sent.extend(world.send(world.recipe(1, 5_000).iter()));
    world.check(sent, SOON);
    first.stop();
}

/// A transactional input: what was aborted never comes out, and the lag reaches zero past the transactions' own records.
#[test]
fn a_transactional_input() {
    let world = World::new("txn-input", 2);
    let daemon = world.daemon("a");
    let messages = world.recipe(0, 4_000).all();
    let sent = feed::send_in_transactions(&world.services.kafka, &world.input, messages, 150);
    world.check(sent, SOON);
    daemon.stop();
}

/// The second process with an instance's name takes over; the first one says so and leaves.
#[test]
fn two_processes_with_one_name() {
    let world = World::new("clash", 2);
    let mut first = world.daemon("a");
    let mut sent = world.send(world.recipe(0, 1_000).iter());
    world.wait_done(SOON);
    let second = world.daemon("a");
    for n in 1..4 {
        sent.extend(world.send(world.recipe(n, 1_000).iter()));
        std::thread::sleep(Duration::from_secs(1));
    }
    let status = first.wait_end(SOON);
    assert!(!status.success(), "the first one ended well");
    world.check(sent, SOON);
    second.stop();
}

/// Two workers, one scope and week, the same ids upwards and downwards at once: each comes through once, and no deadlock
/// of the database is seen.
#[test]
fn two_workers_meet_the_same_ids_in_opposite_orders() {
    let mut world = World::new("opposite", 2);
    world.set("SEMEL_WORKERS", "2");
    let daemon = world.daemon("a");
    crate::support::broker::wait_until("two members", SOON, || world.broker.members(&world.group) == 2);
    let mut sent = vec![];
    for round in 0..10_u64 {
        // Both find a whole window at once.
        daemon.halt();
        let copies = (0..500_u64).flat_map(|n| [(0, n, n), (1, 499 - n, 500 + n)]);
        let messages = copies
            .map(|(partition, id, n)| Message { partition, ..message(round * 1_000 + n, &format!("{round}-{id}")) });
        sent.extend(world.send(messages));
        daemon.go_on();
        world.wait_done(SOON);
    }
    world.check(sent, SOON);
    assert_eq!(forwarded(&world).len(), 5_000);
    assert_eq!(daemon.metric("semel_store_errors_total", &[]), 0.0);
    daemon.stop();
}
