//! What is done to claims and lanes: `why`, `release`, `recover`, `partitions`.

use super::{
    SOON, claim_in_doubt, claims, count, everything, expect, forwarded, insert_claim, json, messages,
    wait_for_empty_group, work_and_die,
};
use crate::support::daemon::Settings;
use crate::support::database::Database;
use crate::support::world::World;
use semel::protocol::lane::Mark;

#[test]
fn why_tells_what_became_of_an_event() {
    let mut world = World::new("why", 1);
    let sent = messages(0, &[(0, "first"), (0, "second"), (0, "first")]);
    world.send(sent);
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    claim_in_doubt(&world, 0, &["doubtful"]);
    insert_claim(&world, "imported", "DATE '0001-01-01'", "NULL", 0);

    let settled = json(&["why", "first", "--json"], &world.settings);
    let claim = &settled["claims"][0];
    assert_eq!(settled["claims"].as_array().map(Vec::len), Some(1), "{settled}");
    let expected = (Some("settled"), Some(0), Some(0), Some(3), Some(world.group.as_str()));
    let number = |name: &str| claim[name].as_i64();
    let found =
        (claim["state"].as_str(), number("partition"), number("offset"), number("settled"), claim["group"].as_str());
    assert_eq!(found, expected, "{settled}");

    let duplicate_of = "is a duplicate of it and is dropped";
    let origin = format!("claimed   by {}/0/0 at ", world.input);
    expect(&["why", "first"], &world.settings, 0, &[&origin, "state     settled", duplicate_of, "semel release event"]);
    let doubtful = ["state     unsettled", "not known to have committed", "settled up to 3"];
    expect(&["why", "doubtful"], &world.settings, 0, &doubtful);
    expect(&["why", "imported"], &world.settings, 0, &["week      undated", "lane      none", "settled for ever"]);
    expect(&["why", "nobody"], &world.settings, 0, &["nothing claimed it", "header:ce_id", &world.scope]);
    assert_eq!(json(&["why", "nobody", "--json"], &world.settings)["claims"], serde_json::json!([]));

    // In two weeks: the times of its copies differ.
    insert_claim(&world, "first", "DATE '0001-01-01'", "NULL", 0);
    expect(&["why", "first"], &world.settings, 0, &["has claims in 2 weeks", "SEMEL_EVENT_TIME"]);

    // In every scope, where none is named.
    world.set("SEMEL_SCOPE", "another");
    expect(&["why", "first"], &world.settings, 0, &["nothing claimed it: no claim of this id in scope another"]);
    expect(&["why", "first", "--all-scopes"], &world.settings, 0, &[&format!("scope     {}", world.scope)]);
    world.settings.remove("SEMEL_SCOPE");
    expect(&["why", "first"], &world.settings, 0, &[&format!("scope     {}", world.scope)]);

    // A part with a plus in it, as the recipe writes composites; and the same id as the table holds it.
    world.set("SEMEL_EVENT_ID", "header:tenant+header:ce_id");
    insert_claim(&world, r"a\++b", "DATE '0001-01-01'", "NULL", 0);
    expect(&["why", "a+", "b"], &world.settings, 0, &[r"event     a\++b", "settled for ever"]);
    expect(&["why", "--stored", r"a\++b"], &world.settings, 0, &["settled for ever"]);
    expect(&["why", "a", "+b"], &world.settings, 0, &["nothing claimed it"]);

    // Without the brokers it says what it does not know.
    world.set("SEMEL_EVENT_ID", "header:ce_id");
    world.settings.remove("SEMEL_SOURCE");
    expect(&["why", "second"], &world.settings, 0, &["state     unknown", "SEMEL_SOURCE is not set"]);
}

#[test]
fn an_event_is_let_through_again() {
    let mut world = World::new("release-event", 1);
    world.send(messages(0, &[(0, "once")]));
    work_and_die(&world);
    insert_claim(&world, "once", "DATE '0001-01-01'", "NULL", 0);
    let database = Database::open(&world.database);

    let before = everything(&world);
    let dry = ["2 claims would be deleted", "dry run: nothing was changed", "undated"];
    expect(&["release", "event", "once"], &world.settings, 0, &dry);
    assert_eq!(everything(&world), before);

    expect(&["release", "event", "once", "--week", "undated", "--yes"], &world.settings, 0, &["1 claim deleted"]);
    assert_eq!(claims(&database), 1);
    expect(&["release", "event", "other", "--yes"], &world.settings, 0, &["there is nothing to free"]);
    expect(&["release", "event", "once", "--week", "2026-01-07"], &world.settings, 64, &["begins on 2026-01-05"]);
    assert_eq!(claims(&database), 1);
    expect(&["release", "event", "once", "--yes"], &world.settings, 0, &["1 claim deleted"]);
    assert_eq!(claims(&database), 0);

    // A copy of it is forwarded now, once.
    world.send(messages(1, &[(0, "once"), (0, "once")]));
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 2);

    world.settings.remove("SEMEL_SCOPE");
    expect(&["release", "event", "once", "--yes"], &world.settings, 64, &["SEMEL_SCOPE: it must be given"]);
}

#[test]
fn a_retired_group_gives_up_what_it_did_not_forward() {
    let mut world = World::new("release-group", 2);
    world.send(messages(0, &[(0, "a"), (1, "b"), (0, "c"), (1, "a")]));
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    let group = world.group.clone();
    let release = |yes: &[&str], settings: &Settings, code, words: &[&str]| {
        expect(&[&["release", "group", &group], yes].concat(), settings, code, words)
    };
    release(&["--yes"], &world.settings, 1, &["has members", "stop them first"]);
    daemon.kill();
    wait_for_empty_group(&world);
    claim_in_doubt(&world, 0, &["lost-1", "lost-2"]);
    claim_in_doubt(&world, 1, &["lost-3"]);
    let database = Database::open(&world.database);

    let before = everything(&world);
    release(&[], &world.settings, 0, &["3 claims would be deleted and 2 lanes closed", "dry run"]);
    assert_eq!(everything(&world), before);

    // Another group of the same scope on the same topic is refused as long as this one is not retired.
    let mut heir = world.settings.clone();
    let source = world.settings["SEMEL_SOURCE"].replace(&group, "heir");
    heir.insert("SEMEL_SOURCE".to_owned(), source.replace("heir", &format!("{group}-heir")));
    expect(&["check"], &heir, 1, &[&format!("FAIL  scope {}", world.scope), "semel release"]);

    release(&["--yes"], &world.settings, 0, &["3 claims deleted, 2 lanes closed"]);
    assert_eq!(claims(&database), 3, "those below settled are of events that were forwarded");
    assert_eq!(count(&database, "SELECT count(*) FROM semel_streams WHERE open_lane IS NOT NULL"), 0);
    assert_eq!(count(&database, "SELECT count(*) FROM semel_lanes WHERE closed_at IS NULL"), 0);
    release(&["--yes"], &world.settings, 0, &["has no open lane in this store"]);
    expect(&["check"], &heir, 0, &["no other group claims the same topics"]);

    // The heir reads everything again and forwards what was given up.
    world.settings = heir;
    world.group = format!("{group}-heir");
    world.send(messages(4, &[(1, "lost-1"), (0, "a")]));
    let _daemon = world.daemon("two");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 4);
}

#[test]
fn lanes_of_unknown_extent_are_left_alone() {
    let world = World::new("release-unknown", 1);
    world.send(messages(0, &[(0, "a")]));
    work_and_die(&world);
    wait_for_empty_group(&world);
    world.broker.delete_group(&format!("{}.settled", world.group));
    let before = everything(&world);
    let words = ["left alone", "0 claims deleted, 0 lanes closed"];
    expect(&["release", "group", &world.group, "--yes"], &world.settings, 1, &words);
    assert_eq!(everything(&world), before);
}

#[test]
fn a_lost_settled_offset_is_recovered() {
    let world = World::new("recover", 3);
    let mut sent = world.send(world.recipe(0, 600).iter());
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    expect(&["recover", "--yes"], &world.settings, 1, &["has members"]);
    daemon.kill();
    wait_for_empty_group(&world);
    expect(&["recover", "--yes"], &world.settings, 0, &["nothing to recover"]);
    world.broker.delete_group(&format!("{}.settled", world.group));

    let mut halted = world.daemon_unready("one");
    assert!(!halted.wait_end(SOON).success());
    assert!(halted.log_text().contains("semel recover"), "{}", halted.tail());
    wait_for_empty_group(&world);
    expect(&["check"], &world.settings, 1, &[&format!("FAIL  partition {}/2", world.input), "semel recover"]);

    let before = everything(&world);
    let words = ["the settled offset is gone", "3 partitions to recover", "is lost", "dry run: nothing was changed"];
    expect(&["recover"], &world.settings, 0, &words);
    assert_eq!(everything(&world), before);

    let (committed, kept) = (world.offsets(false, true), claims(&Database::open(&world.database)));
    expect(&["recover", "--yes"], &world.settings, 0, &["goes on at"]);
    assert_eq!(world.offsets(false, true), committed, "the group's own offsets stay");
    let settled = world.offsets(true, true);
    for (own, settled) in committed.iter().zip(&settled) {
        let (own, (position, metadata)) = (own.as_ref().expect("committed"), settled.as_ref().expect("settled"));
        assert_eq!(own.0, *position);
        assert!(Mark::decode(metadata).is_some_and(|mark| mark.cut.is_none()), "{metadata}");
    }
    assert_eq!(claims(&Database::open(&world.database)), kept, "no claim is released");
    expect(&["recover", "--yes"], &world.settings, 0, &["nothing to recover"]);
    expect(&["check"], &world.settings, 0, &["a start goes on where 3 partitions left off"]);

    sent.extend(world.send(world.recipe(1, 300).iter()));
    let daemon = world.daemon("one");
    world.wait_done(SOON);
    daemon.stop();
    // Read again from the start: the claims of before are foreign to the new lanes, and known.
    world.broker.move_offsets(&world.group, &world.input, &[(0, 0), (1, 0), (2, 0)]);
    let _daemon = world.daemon("one");
    world.check(sent, SOON);
}

#[test]
fn only_what_is_halted_is_recovered() {
    let world = World::new("recover-one", 3);
    let mut sent = world.send(world.recipe(0, 300).iter());
    work_and_die(&world);
    wait_for_empty_group(&world);
    // Somebody "resets" the settled offset of one partition.
    world.broker.move_offsets(&format!("{}.settled", world.group), &world.input, &[(1, 7)]);
    let database = Database::open(&world.database);
    let streams = || {
        let rows = database.query("SELECT stream, owner, open_lane FROM semel_streams ORDER BY stream", &[]);
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect::<Vec<(String, i64, Option<i64>)>>()
    };
    let (before, settled) = (streams(), world.offsets(true, true));
    let words = ["the settled offset is not semel's", "1 partition to recover", "/1: goes on at"];
    expect(&["recover", "--yes"], &world.settings, 0, &words);
    for (was, is) in before.iter().zip(streams()) {
        assert_eq!(was.0.ends_with("/1"), *was != is, "{was:?} became {is:?}");
    }
    for partition in [0, 2] {
        assert_eq!(world.offsets(true, true)[partition], settled[partition]);
    }
    sent.extend(world.send(world.recipe(1, 100).iter()));
    let _daemon = world.daemon("one");
    world.check(sent, SOON);
}

#[test]
fn both_groups_gone_and_nothing_doubles() {
    let world = World::new("recover-both", 2);
    let mut sent = world.send(world.recipe(0, 300).iter());
    work_and_die(&world);
    wait_for_empty_group(&world);
    for group in [world.group.clone(), format!("{}.settled", world.group)] {
        world.broker.delete_group(&group);
    }
    let words = ["the group's own offset, which is missing, becomes the same", "goes on at 0"];
    expect(&["recover", "--yes"], &world.settings, 0, &words);
    sent.extend(world.send(world.recipe(1, 100).iter()));
    let _daemon = world.daemon("one");
    world.check(sent, SOON);
}

#[test]
fn another_store_is_started_over_by_the_operators_word() {
    let mut world = World::new("recover-store", 2);
    world.send(messages(0, &[(0, "a"), (1, "b"), (0, "c")]));
    work_and_die(&world);
    wait_for_empty_group(&world);
    world.database = world.services.make_database();
    world.set("SEMEL_STORE", &format!("{}?sslmode=disable", world.database));
    expect(&["migrate"], &world.settings, 0, &["applied migration 1"]);
    let mut halted = world.daemon_unready("one");
    assert!(!halted.wait_end(SOON).success());
    wait_for_empty_group(&world);
    // An operator moves the group back as well: what lies between is not claimed in the new store.
    world.broker.move_offsets(&world.group, &world.input, &[(0, 1)]);
    let words = ["belongs to claims in another store", "1 to 2 will be forwarded a second time", "goes on at 1"];
    expect(&["recover", "--yes"], &world.settings, 0, &words);
    world.send(messages(3, &[(0, "d")]));
    let _daemon = world.daemon("one");
    world.wait_done(SOON);
    assert_eq!(forwarded(&world), 5, "a, b, c, then c again as was said, and d");
}

#[test]
fn weeks_are_listed_made_and_retired() {
    let mut world = World::new("partitions", 1);
    let text = expect(&["partitions"], &world.settings, 0, &["undated, kept for ever", "not made: ", "--ensure"]);
    assert!(!text.contains("present"), "{text}");
    world.set("SEMEL_RETENTION_WEEKS", "8");
    expect(&["partitions", "--ensure"], &world.settings, 0, &["made the week of ", "kept", "present", "ahead"]);
    let database = Database::open(&world.database);
    let partitions =
        || count(&database, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'processed_kafka_events'::regclass");
    assert_eq!(partitions(), 1 + 8 + 1 + 2);
    let old = "(date_trunc('week', now() AT TIME ZONE 'UTC') - interval '7 weeks')::date";
    for n in 0..20 {
        insert_claim(&world, &format!("old-{n}"), old, "NULL", n);
    }
    insert_claim(&world, "undated", "DATE '0001-01-01'", "NULL", 0);
    database.execute("ANALYZE processed_kafka_events");

    world.set("SEMEL_RETENTION_WEEKS", "5");
    let text = expect(&["partitions"], &world.settings, 0, &["older than what is kept: to be retired", "KiB"]);
    let row = text.lines().find(|line| line.split_whitespace().nth(1) == Some("20")).unwrap_or_default();
    assert!(row.ends_with("to be retired"), "{text}");
    assert_eq!((partitions(), claims(&database)), (12, 21), "listing changes nothing");
    let text = expect(&["partitions", "--retire"], &world.settings, 0, &["retired the week of "]);
    assert!(!text.contains("to be retired"), "{text}");
    assert_eq!((partitions(), claims(&database)), (9, 1));
    let text = expect(&["partitions", "--retire"], &world.settings, 0, &[]);
    assert!(!text.contains("retired"), "there was nothing to retire:\n{text}");
}

#[test]
fn an_embedded_store_is_looked_at_and_never_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let claims = folder.path().join("claims");
    let settings: Settings = [("SEMEL_STORE".to_owned(), format!("embedded:{}", claims.display()))].into();
    for command in [&["why", "a"][..], &["partitions"], &["release", "event", "a", "--scope", "s"]] {
        expect(command, &settings, 1, &["there is no claim store in"]);
    }
    assert!(!claims.exists());
    let input = folder.path().join("in.ndjson");
    std::fs::write(&input, "{\"id\":1}\n{\"id\":2}\n{\"id\":1}\n").expect("written");
    let output = folder.path().join("out.ndjson");
    let paths = [&input, &output].map(|path| path.to_str().expect("UTF-8"));
    expect(&["pipe", "--event-id", "json:/id", paths[0], paths[1]], &settings, 0, &[]);
    let line = format!("line      {}, byte 0", input.canonicalize().expect("a path").display());
    let words = ["scope     default", "week      undated", "claimed   by semel pipe at ", &line, "forwarded the line"];
    let text = expect(&["why", "1"], &settings, 0, &words);
    assert!(!text.contains("lane") && !text.contains('?'), "a line has neither lane nor partition:\n{text}");
    expect(&["why", "2"], &settings, 0, &["byte 9"]);
    let text = expect(&["partitions"], &settings, 0, &["undated, kept for ever"]);
    assert!(!text.contains("0 B"), "two claims take some room:\n{text}");
    let words = [", byte 0", "1 claim would be deleted"];
    expect(&["release", "event", "1", "--scope", "default"], &settings, 0, &words);
    expect(&["release", "event", "1", "--scope", "default", "--yes"], &settings, 0, &["1 claim deleted"]);
    expect(&["why", "1"], &settings, 0, &["nothing claimed it"]);
}
