//! Data definition beside claims, and retirements that were interrupted.

use std::time::{Duration, Instant};

use semel::protocol::event::Week;
use semel::store::ClaimStore;
use tokio_postgres::Client;

use super::super::kit::{NOW, Writer, inserted, room, trying, week};
use super::{Own, run, while_it_waits};

async fn tables(side: &Client) -> Vec<String> {
    let rows = side
        .query("SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_2___%' ORDER BY 1", &[]);
    rows.await.expect("tables").iter().map(|row| row.get(0)).collect()
}

/// Somebody's transaction that has read the claims table stays open (a dump, a report): neither a new week nor a claim
/// waits for it; an old week's end waits, and nobody waits for that.
#[test]
fn an_open_transaction_on_the_table() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        own.store.ensure_weeks(week().plus(-9), week().plus(-9)).await.expect("room");
        own.store.try_claim(&[trying("old", week().plus(-9))], NOW).await.expect("a claim");
        let writer = Writer::open(&*own.store, "stream").await;
        let side = own.side().await;
        side.batch_execute("BEGIN; SELECT count(*) FROM processed_kafka_events").await.expect("a count");
        let begun = Instant::now();
        own.store.ensure_weeks(week().plus(5), week().plus(6)).await.expect("room");
        assert!(begun.elapsed() < Duration::from_secs(1), "a new week waited {:?}", begun.elapsed());
        let store = own.store.clone();
        let retiring = tokio::spawn(async move { store.retire_weeks(week().plus(-8)).await });
        while_it_waits().await;
        assert!(!retiring.is_finished(), "nothing to see: the retirement did not wait");
        for n in 0..20 {
            let begun = Instant::now();
            let claims = writer.claim(&*own.store, &[&format!("event {n}")], n).await.expect("a claim");
            assert_eq!(inserted(&claims), 1);
            own.store.ensure_weeks(week().plus(7), week().plus(7 + n as i32 / 10)).await.expect("room");
            assert!(begun.elapsed() < Duration::from_secs(1), "a claim waited {:?}", begun.elapsed());
        }
        side.batch_execute("COMMIT").await.expect("an end");
        assert_eq!(retiring.await.expect("no panic").expect("an answer"), [week().plus(-9)]);
    });
}

/// Detachment pending, detached and not dropped, marked and not detached: the next retirement goes on from there. A
/// table that an operator has detached is left alone.
#[test]
fn interrupted() {
    run(async || {
        let own = Own::migrated().await;
        room(&*own.store).await;
        let old = |n: i32| week().plus(-20 + n);
        own.store.ensure_weeks(old(0), old(3)).await.expect("room");
        let side = own.side().await;
        let names: Vec<String> = tables(&side).await.into_iter().take(4).collect();
        for (name, n) in names.iter().zip(0..4) {
            let (from, until) = (old(n).day_number(), old(n + 1).day_number());
            if n < 3 {
                let mark = format!("COMMENT ON TABLE {name} IS 'semel retires days {from} to {until}'");
                side.batch_execute(&mark).await.expect("a mark");
            }
        }
        let (reader, detacher) = (own.side().await, own.side().await);
        reader.batch_execute(&format!("BEGIN; SELECT FROM {}", names[0])).await.expect("a read");
        let cancel = detacher.cancel_token();
        let detach = format!("ALTER TABLE processed_kafka_events DETACH PARTITION {} CONCURRENTLY", names[0]);
        let detaching = tokio::spawn(async move { detacher.batch_execute(&detach).await });
        while_it_waits().await;
        cancel.cancel_query(tokio_postgres::NoTls).await.expect("cancelled");
        assert!(detaching.await.expect("no panic").is_err(), "the detachment was not interrupted");
        reader.batch_execute("COMMIT").await.expect("an end");
        for name in [&names[1], &names[3]] {
            let detach = format!("ALTER TABLE processed_kafka_events DETACH PARTITION {name}");
            side.batch_execute(&detach).await.expect("detached");
        }
        let kept: Vec<Week> = [-1, 0, 1].map(|n| week().plus(n)).to_vec();
        let there = own.store.weeks().await.expect("weeks");
        assert_eq!(there, [&[Week::UNDATED, old(2)][..], &kept].concat(), "no claim can be made in a pending week");
        let retired = own.store.retire_weeks(week().plus(-1)).await.expect("an answer");
        assert_eq!(retired, [old(0), old(1), old(2)]);
        assert_eq!(own.store.weeks().await.expect("weeks"), [&[Week::UNDATED][..], &kept].concat());
        let left = tables(&side).await;
        assert!(left.contains(&names[3]), "an operator's table was dropped: {left:?}");
        assert_eq!(left.len(), 4, "{left:?}");
    });
}

/// While one retires, another does nothing, at once.
#[test]
fn one_is_elected() {
    run(async || {
        let own = Own::migrated().await;
        own.store.ensure_weeks(week().plus(-2), week()).await.expect("room");
        let side = own.side().await;
        let elect = include_str!("../../../../src/store/postgres/sql/elect_retiring.sql");
        side.batch_execute("BEGIN").await.expect("begun");
        assert!(side.query_one(elect, &[]).await.expect("an answer").get::<_, bool>(0));
        let begun = Instant::now();
        assert_eq!(own.store.retire_weeks(week()).await.expect("an answer"), []);
        assert!(begun.elapsed() < Duration::from_secs(1));
        side.batch_execute("ROLLBACK").await.expect("an end");
        assert_eq!(own.store.retire_weeks(week()).await.expect("an answer").len(), 2);
        let calls = [(); 3].map(|()| {
            let store = own.store.clone();
            tokio::spawn(async move { store.retire_weeks(week().plus(1)).await.expect("an answer") })
        });
        let mut retired = Vec::new();
        for call in calls {
            retired.extend(call.await.expect("no panic"));
        }
        assert_eq!(retired, [week()]);
    });
}
