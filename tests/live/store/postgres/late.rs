//! Statements that wait, land late, or land without their caller.

use semel::protocol::lane::{Cut, Holder, LaneId};
use semel::protocol::verdict::Claimed;
use semel::store::{ClaimStore, StoreError};

use super::super::kit::{NOW, Writer, count, fresh, inserted, of, room, trying, week};
use super::super::subjects::connect;
use super::{Own, run, while_it_waits};
use crate::support::proxy::Proxy;
use crate::support::services::Services;

const INSERT_K: &str = "INSERT INTO processed_kafka_events
    (consumer_scope_id, event_id, week_start, first_seen_at, topic, \"partition\", \"offset\")
    VALUES ('billing', 'k', '2025-12-29', now(), 'orders', 3, 77)";

/// Sent in time, held up on the way, carried out after another has taken the stream: it writes nothing.
#[test]
fn a_claim_that_lands_after_a_new_token() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let port = Services::shared().postgres_port();
        let proxy = Proxy::of_postgres(port);
        let through = own.url.replace(&format!(":{port}/"), &format!(":{}/", proxy.port())) + "?sslmode=disable";
        let slow = connect(&through).await;
        let mut writer = Writer::open(&*own.store, "stream").await;
        let old = writer.clone();
        assert_eq!(inserted(&old.claim(&slow, &["early"], 1).await.expect("a claim")), 1);
        proxy.stall(true);
        let late = tokio::spawn(async move { old.claim(&slow, &["late"], 2).await });
        while_it_waits().await;
        writer.take(&*own.store).await;
        proxy.stall(false);
        let late = late.await.expect("no panic");
        assert!(matches!(late, Err(StoreError::NotOwner)), "{late:?}");
        assert_eq!(count(&*own.store, "late").await, 0);
    });
}

/// It finds the token being written, waits, and then finds itself overtaken.
#[test]
fn a_claim_waits_for_a_takeover() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        for (ends, owner) in [("COMMIT", false), ("ROLLBACK", true)] {
            let writer = Writer::open(&*own.store, ends).await;
            let side = own.side().await;
            let token = fresh();
            let taking = format!("BEGIN; UPDATE semel_streams SET owner = {token} WHERE stream = '{ends}'");
            side.batch_execute(&taking).await.expect("a token");
            let (store, claimer) = (own.store.clone(), writer.clone());
            let claim = tokio::spawn(async move { claimer.claim(&*store, &[ends], 1).await });
            while_it_waits().await;
            assert!(!claim.is_finished(), "a claim did not wait for a takeover");
            side.batch_execute(ends).await.expect("an end");
            let claim = claim.await.expect("no panic");
            match owner {
                true => assert_eq!(of(&claim.expect("a claim"), ends), Claimed::Inserted),
                false => assert!(matches!(claim, Err(StoreError::NotOwner)), "{claim:?}"),
            }
            assert_eq!(count(&*own.store, ends).await, usize::from(owner));
        }
    });
}

/// A claim that is under way, here waiting for another's insert, holds takeover and opening up; they see what it wrote.
#[test]
fn takeovers_wait_for_a_claim() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        for ends in ["COMMIT", "ROLLBACK"] {
            let writer = Writer::open(&*own.store, ends).await;
            let side = own.side().await;
            side.batch_execute("DELETE FROM processed_kafka_events").await.expect("an empty table");
            side.batch_execute(&format!("BEGIN; {INSERT_K}")).await.expect("a row");
            let (store, claimer) = (own.store.clone(), writer.clone());
            let claim = tokio::spawn(async move { claimer.claim(&*store, &["j", "k"], 1).await });
            while_it_waits().await;
            let (store, opener) = (own.store.clone(), Writer { lane: LaneId(fresh()), ..writer.clone() });
            let cut = Cut { prev: writer.lane, cut: 0 };
            let opening = tokio::spawn(async move { opener.open_lane(&*store, Some(cut)).await });
            let (store, mut taker) = (own.store.clone(), writer.clone());
            while_it_waits().await;
            let taking = tokio::spawn(async move { taker.take(&*store).await });
            while_it_waits().await;
            assert!(!claim.is_finished() && !opening.is_finished() && !taking.is_finished(), "nobody waits");
            side.batch_execute(ends).await.expect("an end");
            let answers = claim.await.expect("no panic").expect("a claim");
            let (k, freed) = match ends {
                // Not visible to the statement that waited for it, and yet told.
                "COMMIT" => (Claimed::Held(Holder { lane: None, position: 77 }), 1),
                _ => (Claimed::Inserted, 2),
            };
            assert_eq!((of(&answers, "j"), of(&answers, "k")), (Claimed::Inserted, k), "{ends}");
            // The two take turns in either order; if the token came first, the opening is refused.
            let opened = opening.await.expect("no panic");
            taking.await.expect("no panic");
            match opened {
                Ok(released) => assert_eq!(released, freed, "{ends}: the opening did not see what it waited for"),
                Err(error) => assert!(matches!(error, StoreError::NotOwner), "{error:?}"),
            }
        }
    });
}

/// The caller is gone; the statement runs to its end, nothing stays open, and a new token waits for that end.
#[test]
fn a_dropped_claim_leaves_nothing_open() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let mut writer = Writer::open(&*own.store, "stream").await;
        let side = own.side().await;
        side.batch_execute(&format!("BEGIN; {INSERT_K}")).await.expect("a row");
        let (store, claimer) = (own.store.clone(), writer.clone());
        let claim = tokio::spawn(async move { claimer.claim(&*store, &["j", "k"], 1).await });
        while_it_waits().await;
        claim.abort();
        assert!(claim.await.is_err_and(|error| error.is_cancelled()));
        let store = own.store.clone();
        let taking = tokio::spawn(async move {
            writer.take(&*store).await;
            writer
        });
        while_it_waits().await;
        let before = taking.is_finished();
        side.batch_execute("COMMIT").await.expect("an end");
        let writer = taking.await.expect("no panic");
        let j = count(&*own.store, "j").await;
        // Closing its connection may have ended it, or it has landed before the new token; never after.
        assert!(j == 0 || !before, "the claim landed after the new token");
        while_it_waits().await;
        assert_eq!(count(&*own.store, "j").await, j, "the claim landed after the new token");
        let open = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
        assert_eq!(side.query_one(open, &[]).await.expect("a count").get::<_, i64>(0), 0);
        let answers = writer.claim(&*own.store, &["j"], 1).await.expect("a claim");
        assert!([Claimed::Inserted, writer.at(1)].contains(&of(&answers, "j")), "{answers:?}");
    });
}

/// A key whose claim is deleted between the insert that met it and the reading of its holder is claimed again.
#[test]
fn a_claim_that_comes_and_goes() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let writer = Writer::open(&*own.store, "stream").await;
        let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (store, stop) = (own.store.clone(), ended.clone());
        let others = tokio::spawn(async move {
            let free = |event_id| semel::store::Free::Event {
                scope: super::super::kit::scope(),
                event_id: super::super::kit::id(event_id),
                week: None,
            };
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                store.try_claim(&[trying("k", week())], NOW).await.expect("a claim");
                store.free(&free("k"), false).await.expect("freed");
            }
        });
        let mut found = [0, 0];
        for n in 0..300 {
            let answers = writer.claim(&*own.store, &["k"], n).await.expect("a claim, whatever comes and goes");
            match of(&answers, "k") {
                Claimed::Inserted => found[0] += 1,
                Claimed::Held(holder) => {
                    found[1] += 1;
                    assert_eq!(holder, Holder { lane: None, position: 77 });
                }
            }
            let refused = semel::store::Refused {
                event_id: super::super::kit::id("k"),
                week: week(),
                lane: writer.lane,
                position: n,
            };
            own.store.forget_refused(&super::super::kit::scope(), &[refused]).await.expect("freed");
        }
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        others.await.expect("no panic");
        assert!(found[0] > 0 && found[1] > 0, "inserted and held: {found:?}");
    });
}
