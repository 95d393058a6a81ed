//! Messages that the sink does not take: found before they are claimed, or refused by the broker after it.

use std::time::Duration;

use semel::protocol::lane::Mark;

use crate::support::broker::wait_until;
use crate::support::by_hand::{all, copies, event, forwarded, marked, text};
use crate::support::checker::Record;
use crate::support::database::Database;
use crate::support::feed::send_compressed;
use crate::support::generator::Message;
use crate::support::world::World;

const SOON: Duration = Duration::from_secs(60);

fn large(copy: u64, id: &str, bytes: usize) -> Message {
    // Zeros, which compress to next to nothing.
    Message { value: Some(vec![0; bytes]), ..event(copy, id) }
}

/// A dead letter as it is sent again: with everything that Semel added.
fn again(record: &Record, copy: u64, value: Option<Vec<u8>>) -> Message {
    let headers = record.headers.iter().filter(|(name, _)| name != "copy").cloned();
    let headers = headers.chain(event(copy, "").headers.into_iter().filter(|(name, _)| name == "copy")).collect();
    let timestamp = record.timestamp.expect("a time");
    Message { copy, partition: 0, key: record.key.clone(), value, headers, timestamp }
}

fn names(record: &Record) -> Vec<&str> {
    let mut names: Vec<&str> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

fn claims(world: &World, id: &str) -> usize {
    Database::open(&world.database).query("SELECT 1 FROM processed_kafka_events WHERE event_id = $1", &[&id]).len()
}

/// Values that fit the input and not the output; 5 MB of zeros, compressed, fit neither the output nor the dead letters,
/// and only their origin and size are kept.
#[test]
fn too_large_for_the_sink() {
    let world = World::new("too-large", 1);
    world.broker.set_topic(&world.output, &[("max.message.bytes", "20000")]);
    let before = large(0, "before", 10);
    send_compressed(
        &world.services.kafka,
        &world.input,
        &[before, large(1, "large", 50_000), large(2, "huge", 5_000_000), large(3, "after", 10)],
    );
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), [0, 3], "the partition goes on");
    let dead = all(&world.broker, &world.dead);
    assert_eq!(marked(&dead, "semel-cause"), [(1, "too_large".to_owned()), (2, "too_large".to_owned())]);
    let origin = |offset| (offset, format!("{}/0/{offset}", world.input));
    assert_eq!(marked(&dead, "semel-origin"), [origin(1), origin(2)]);
    assert_eq!(dead[0].value.as_ref().map(Vec::len), Some(50_000));
    assert_eq!((&dead[1].value, text(&dead[1], "semel-value-bytes")), (&None, Some("5000000")));
    assert_eq!((claims(&world, "large"), claims(&world, "huge")), (0, 0));

    // The first one comes round as it is: dead again, with its new origin and no more headers than before.
    world.send([again(&dead[0], 4, dead[0].value.clone())]);
    world.wait_done(SOON);
    let second = all(&world.broker, &world.dead).pop().expect("a dead letter");
    assert_eq!(names(&second), names(&dead[0]));
    assert_eq!(text(&second, "semel-origin"), Some(&*format!("{}/0/4", world.input)));
    assert_eq!(daemon.metric("semel_dead_letters_total", &[r#"cause="too_large""#]), 3.0);

    // Mended, both come through, and once.
    let mended = |record, copy| again(record, copy, Some(b"mended".to_vec()));
    world.send([mended(&second, 5), mended(&dead[1], 6), mended(&dead[1], 7)]);
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), [0, 3, 5, 6]);

    // Claimed by a process that died before the broker could refuse it: the next one finds it too large at once, and
    // the claim is freed all the same.
    daemon.kill();
    let (settled, metadata) = world.offsets(true, true)[0].clone().expect("a settled offset");
    let lane = Mark::decode(&metadata).expect("Semel's own").lane.0;
    Database::open(&world.database).execute(&format!(
        r#"INSERT INTO processed_kafka_events
               (consumer_scope_id, event_id, week_start, lane, position, topic, "partition", "offset", first_seen_at)
           VALUES ('{}', 'late', date_trunc('week', now() AT TIME ZONE 'UTC')::date, {lane}, {settled}, '{}', 0, {settled}, now())"#,
        world.scope, world.input
    ));
    send_compressed(&world.services.kafka, &world.input, &[large(8, "late", 50_000)]);
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    wait_until("the claim is freed", SOON, || claims(&world, "late") == 0);
    world.send([Message { value: None, ..event(9, "late") }]);
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), [0, 3, 5, 6, 9]);
    daemon.stop();
}

/// The bound of the output is lowered while the daemon runs, so that what it claims is refused: each record that is too
/// large becomes a dead letter, and only it, though the broker refuses whole batches; its claim is freed.
#[test]
fn refused_by_the_broker_although_claimed() {
    let world = World::new("refused", 1);
    let mut daemon = world.daemon("a");
    let mut expected: Vec<u64> = (0..100).collect();
    world.send((0..100).map(|copy| event(copy, &format!("warm-{copy}"))));
    world.wait_done(SOON);
    world.broker.set_topic(&world.output, &[("max.message.bytes", "20000")]);
    daemon.halt();
    // Batches of far more than the bound, with two large ones among them.
    let id = |copy: u64| format!("id-{copy}");
    world.send((100..600).map(|copy| match copy {
        250 | 400 => large(copy, &id(copy), 100_000),
        _ => large(copy, &id(copy), 700),
    }));
    daemon.go_on();
    world.wait_done(SOON);
    expected.extend((100..600).filter(|copy| ![250, 400].contains(copy)));
    let dead = all(&world.broker, &world.dead);
    let refused = |copy| (copy, "refused_by_sink".to_owned());
    assert_eq!(marked(&dead, "semel-cause"), [refused(250), refused(400)]);
    assert_eq!(marked(&dead, "semel-origin"), [250, 400].map(|copy| (copy, format!("{}/0/{copy}", world.input))));
    assert_eq!(forwarded(&world), expected, "nothing else is lost or doubled");
    assert_eq!(daemon.metric("semel_dead_letters_total", &[r#"cause="refused_by_sink""#]), 2.0);
    wait_until("their claims are freed", SOON, || claims(&world, "id-250") + claims(&world, "id-400") == 0);
    assert_eq!(claims(&world, "id-251"), 1);

    // Mended ones come through, and once; and so does all else, at the daemon's own pace.
    let mended = |at: usize, copy| again(&dead[at], copy, Some(b"mended".to_vec()));
    world.send([mended(0, 600), mended(0, 601), mended(1, 602)]);
    world.send((700..1_000).map(|copy| large(copy, &id(copy), 700)));
    world.wait_done(SOON);
    expected.extend([600, 602].into_iter().chain(700..1_000));
    assert_eq!(forwarded(&world), expected);
    assert_eq!(copies(&all(&world.broker, &world.dead)), [250, 400]);

    // The dead-letter topic has no room for the value either: it goes without.
    world.broker.set_topic(&world.dead, &[("max.message.bytes", "20000")]);
    world.send([large(1_000, "no-room", 100_000), event(1_001, "behind")]);
    world.wait_done(SOON);
    let letter = all(&world.broker, &world.dead).pop().expect("a dead letter");
    assert_eq!((&letter.value, text(&letter, "semel-value-bytes")), (&None, Some("100000")));
    expected.push(1_001);
    assert_eq!(forwarded(&world), expected);

    // It has room for the markers of transactions only: nothing is passed over, the operator is told.
    world.broker.set_topic(&world.dead, &[("max.message.bytes", "150")]);
    world.send([large(1_002, "no-room-at-all", 100_000), event(1_003, "waits")]);
    assert_eq!(daemon.wait_end(SOON).code(), Some(1));
    let said = daemon.log_text();
    assert!(said.contains(&format!("the dead-letter topic {} refuses its record", world.dead)), "{}", daemon.tail());
    assert_eq!(forwarded(&world), expected, "nothing was passed over");
    world.broker.set_topic(&world.dead, &[("max.message.bytes", "1000000")]);
    let daemon = world.daemon("a");
    world.wait_done(SOON);
    expected.push(1_003);
    assert_eq!(forwarded(&world), expected);
    daemon.stop();
}
