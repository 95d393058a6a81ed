//! Lanes of instances in PostgreSQL: statements that wait, what one reserve costs and needs, whose clock it is.

use std::sync::Arc;
use std::time::Duration;

use semel::protocol::lane::{Holder, LaneId};
use semel::protocol::slot::Conflicting;
use semel::store::StoreError;
use semel::store::slots::{Reserved, SlotStore, TakenSlot};

use super::super::kit::{count, room};
use super::super::slots::{Answers, LONG, OVER, RUNS, Run, claims_of, not_owner, taken};
use super::super::subjects::connect;
use super::{Own, run, side, while_it_waits};

const INSERT_K: &str = "INSERT INTO processed_kafka_events
    (consumer_scope_id, event_id, week_start, first_seen_at, topic, \"partition\", \"offset\")
    VALUES ('billing', 'k', '2025-12-29', now(), 'orders', 3, 77)";

type Waiting = tokio::task::JoinHandle<Result<Answers, StoreError>>;

/// Reserves `j` and `k` from position 1 on; where a test inserts `k` in an open transaction, it waits there.
fn reserving(own: &Own, run: &Run) -> Waiting {
    let (store, run) = (own.store.clone(), run.clone());
    tokio::spawn(async move { run.reserve(&*store, &["j", "k"], 1, (1, LONG)).await })
}

/// Claims, settled position, lease and the guard's lock are one transaction's, whatever the size of the window.
#[test]
fn one_reserve_is_one_commit() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let instance = Run::start(&*own.store, "one", LONG).await;
        let side = own.side().await;
        let ids: Vec<String> = (0..1_000).map(|n| format!("event {n}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut last = String::new();
        for (round, window) in [&ids[..1], &ids[..], &[]].into_iter().enumerate() {
            let from = round as i64 * 10_000;
            instance.reserve(&*own.store, window, from, (from, LONG)).await.expect("a reserve");
            let writers = format!(
                "SELECT xmin::text FROM processed_kafka_events WHERE position >= {from}
                 UNION SELECT xmin::text FROM semel_lanes UNION SELECT xmax::text FROM semel_streams"
            );
            let writers = side.query(&writers, &[]).await.expect("rows");
            let writers: Vec<String> = writers.iter().map(|row| row.get(0)).collect();
            let [writer] = &writers[..] else { panic!("window {round} was written by {writers:?}") };
            assert_ne!(*writer, last, "nothing was written");
            last.clone_from(writer);
        }
    });
}

/// A takeover waits for a reserve that is under way, and releases what that has written: the release is a statement of its
/// own, since the one that waited does not see it.
#[test]
fn a_takeover_sees_what_it_waited_for() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        for (ends, released) in [("COMMIT", 1), ("ROLLBACK", 2)] {
            let instance = Run::start(&*own.store, ends, LONG).await;
            let side = own.side().await;
            side.batch_execute("DELETE FROM processed_kafka_events").await.expect("an empty table");
            side.batch_execute(&format!("BEGIN; {INSERT_K}")).await.expect("a row");
            let reserve = reserving(&own, &instance);
            while_it_waits().await;
            let (store, before, next) = (own.store.clone(), instance.clone(), instance.next());
            let taking = tokio::spawn(async move {
                let former = before.knows(0);
                next.take(&*store, Some(&before), Some(former), LONG).await
            });
            while_it_waits().await;
            assert!(!reserve.is_finished() && !taking.is_finished(), "nobody waits");
            side.batch_execute(ends).await.expect("an end");
            let answers = reserve.await.expect("no panic").expect("a reserve");
            assert_eq!(answers["j"], Reserved::Inserted);
            assert_eq!(taking.await.expect("no panic").expect("the slot"), taken(released), "{ends}");
            assert_eq!(claims_of(&*own.store, instance.lane, 0).await, 0, "{ends}");
        }
    });
}

/// The mirror that the reserve raised is what the takeover goes by, and so is the lease: it had lapsed when the takeover
/// began to wait.
#[test]
fn a_takeover_judges_the_lease_that_it_waited_for() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let instance = Run::start(&*own.store, "one", OVER).await;
        let side = own.side().await;
        side.batch_execute(&format!("BEGIN; {INSERT_K}")).await.expect("a row");
        let reserve = reserving(&own, &instance);
        while_it_waits().await;
        let (store, before, thief) = (own.store.clone(), instance.clone(), instance.next());
        let taking = tokio::spawn(async move { thief.take(&*store, Some(&before), None, OVER).await });
        while_it_waits().await;
        assert!(!reserve.is_finished() && !taking.is_finished(), "nobody waits");
        side.batch_execute("COMMIT").await.expect("an end");
        let answers = reserve.await.expect("no panic").expect("a reserve");
        // The claim of the side's transaction, which the reserve's first statement could not see.
        let holder = Holder { lane: None, position: 77 };
        assert_eq!(answers["k"], Reserved::InTheWay(Some(Conflicting { holder, lane: None })));
        super::super::slots::leased(taking.await.expect("no panic"));
        assert_eq!((instance.open(&*own.store).await.seen.settled, count(&*own.store, "j").await), (1, 1));
    });
}

/// It finds the token being written, waits, and then finds itself overtaken; its lease counts from after the wait.
#[test]
fn a_reserve_waits_for_a_takeover() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        for (ends, owner) in [("COMMIT", false), ("ROLLBACK", true)] {
            let instance = Run::start(&*own.store, ends, OVER).await;
            let side = own.side().await;
            let taking = format!("BEGIN; UPDATE semel_streams SET owner = 999999 WHERE stream = '{}'", instance.slot);
            side.batch_execute(&taking).await.expect("a token");
            let reserve = reserving(&own, &instance);
            while_it_waits().await;
            assert!(!reserve.is_finished(), "a reserve did not wait for a takeover");
            let clock = side.query_one("SELECT clock_timestamp()::text", &[]).await.expect("a time");
            let clock: String = clock.get(0);
            side.batch_execute(ends).await.expect("an end");
            let answers = reserve.await.expect("no panic");
            let lane =
                format!("SELECT settled, lease_until - INTERVAL '1 hour' >= '{clock}' FROM semel_lanes WHERE lane = ");
            let lane = side.query_one(&format!("{lane}{}", instance.lane), &[]).await.expect("a lane");
            assert_eq!((lane.get::<_, i64>(0), lane.get::<_, bool>(1)), (i64::from(owner), owner), "{ends}");
            match owner {
                true => assert_eq!(answers.expect("a reserve").len(), 2),
                false => not_owner(answers),
            }
            assert_eq!(count(&*own.store, "j").await, usize::from(owner));
        }
    });
}

/// Whose claim is in the way may hold its slot and its lane locked: nobody waits for that.
#[test]
fn a_reserve_locks_no_other_lane() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let (instance, other) =
            (Run::start(&*own.store, "one", LONG).await, Run::start(&*own.store, "other", LONG).await);
        other.claims(&*own.store, &["k"], 5).await;
        let side = own.side().await;
        let locks = format!(
            "BEGIN; SELECT FROM semel_streams WHERE stream = '{}' FOR UPDATE;
             SELECT FROM semel_lanes WHERE lane = {} FOR UPDATE",
            other.slot, other.lane
        );
        side.batch_execute(&locks).await.expect("locks");
        let answers = tokio::time::timeout(Duration::from_secs(5), reserving(&own, &instance)).await;
        let answers = answers.expect("a reserve waits for another's lane").expect("no panic").expect("a reserve");
        assert_eq!(answers["k"], other.at(5, 0, RUNS));
        side.batch_execute("ROLLBACK").await.expect("an end");
    });
}

/// A claim whose lane the store does not know is settled for ever, as one without a lane is.
#[test]
fn a_lane_that_is_not_known() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let instance = Run::start(&*own.store, "one", LONG).await;
        let side = own.side().await;
        side.batch_execute(&format!("{INSERT_K}; UPDATE processed_kafka_events SET lane = 424242, position = 9"))
            .await
            .expect("a row");
        let answers = instance.reserve(&*own.store, &["k"], 0, (0, LONG)).await.expect("a reserve");
        let holder = Holder { lane: Some(LaneId(424_242)), position: 9 };
        assert_eq!(answers["k"], Reserved::InTheWay(Some(Conflicting { holder, lane: None })));
    });
}

/// A role with what `missing_privileges.sql` lists, and no more, can do all of it.
#[test]
fn the_privileges_listed_are_enough() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let admin = std::env::var("SEMEL_TEST_POSTGRES_ADMIN").expect("SEMEL_TEST_POSTGRES_ADMIN is not set");
        let name = own.url.rsplit_once('/').expect("a name").1.to_owned();
        let role = format!("{name}_role");
        let admin = side(&format!("{}/{name}", admin.rsplit_once('/').expect("a database").0)).await;
        admin.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'narrow'")).await.expect("a role");
        let (_, host) = own.url.split_once('@').expect("a user");
        let narrow = Arc::new(connect(&format!("postgres://{role}:narrow@{host}")).await);
        let missing = narrow.privileges().await.expect("privileges").missing;
        assert!(missing.len() > 10, "{missing:?}");
        for grant in missing {
            admin.batch_execute(&format!("GRANT {grant} TO {role}")).await.expect("granted");
        }
        assert_eq!(narrow.privileges().await.expect("privileges").missing, [""; 0]);
        let store = &*narrow;
        let instance = Run::start(store, "one", OVER).await;
        instance.claims(store, &["a", "b", "c", "d"], 0).await;
        assert_eq!(store.release(instance.guard(), 0, &[1], 1, 3).await.expect("released"), 1);
        let next = instance.next();
        let former = semel::store::slots::Former { published: &[0], in_doubt: &[3], ..instance.knows(0) };
        assert_eq!(next.take(store, Some(&instance), Some(former), OVER).await.expect("the slot"), taken(0));
        assert_eq!(store.sweep(instance.lane).await.expect("an answer"), None);
        let last = next.next();
        let written = store.write_token(&last.slot, last.token, Some(next.token), true).await;
        assert_eq!(written.expect("the token"), TakenSlot::Taken { released: 0 });
        assert_eq!(last.open(store).await.lane, next.lane);
        assert_eq!(store.slot_of(next.lane).await.expect("an answer"), Some(next.slot.clone()));
        let first = Run::of("kafka's");
        store.write_token(&first.slot, first.token, None, false).await.expect("the token");
        let lane_for = super::super::kit::lane_for();
        let open = semel::store::slots::OpenSlot {
            slot: &first.slot,
            token: first.token,
            lane: first.lane,
            cut: None,
            settled: 0,
            lane_for: &lane_for,
            lease: LONG,
            now: super::super::kit::NOW,
        };
        assert_eq!(store.open_slot(&open).await.expect("a lane"), 0);
        drop(narrow);
        admin.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.expect("gone");
    });
}
