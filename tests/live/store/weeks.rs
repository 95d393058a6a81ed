//! Room for weeks, and their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use semel::protocol::event::{EventTime, Week};
use semel::protocol::verdict::Claimed;
use semel::store::StoreError;

use super::Subject;
use super::kit::{NOW, Writer, claim, count, id, inserted, room, scope, trying, week};

/// Undated claims always have room; others when it was made, once or often.
pub async fn makes_room(subject: Subject) {
    let store = subject.store;
    assert_eq!(store.weeks().await.expect("weeks"), [Week::UNDATED]);
    assert_eq!(store.try_claim(&[trying("a", Week::UNDATED)], NOW).await.expect("a claim"), [Claimed::Inserted]);
    let refused = store.try_claim(&[trying("a", week())], NOW).await;
    assert!(matches!(refused, Err(StoreError::NoWeek(missing)) if missing == week()), "{refused:?}");
    let calls: Vec<_> = (0..4)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.ensure_weeks(week().plus(n % 2), week().plus(3)).await })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic").expect("room, whoever makes it");
    }
    store.ensure_weeks(week().plus(2), week().plus(2)).await.expect("room");
    store.ensure_weeks(week().plus(1), week()).await.expect("nothing to do");
    let expected = [Week::UNDATED, week(), week().plus(1), week().plus(2), week().plus(3)];
    assert_eq!(store.weeks().await.expect("weeks"), expected);
    assert_eq!(store.try_claim(&[trying("a", week())], NOW).await.expect("a claim"), [Claimed::Inserted]);
}

/// The week is the event's own, on both sides of Monday 00:00 UTC, whatever zone the server is in.
pub async fn boundaries(subject: Subject) {
    let store = &*subject.store;
    let turns = ["2024-12-30", "2025-12-22", "2021-01-04", "1969-12-29", "2026-03-30"];
    let writer = Writer::open(store, "stream").await;
    for (n, monday) in (0i64..).zip(turns) {
        let midnight = format!("{monday}T00:00:00Z").parse::<chrono::DateTime<chrono::Utc>>().expect("a time");
        let midnight = EventTime::from(midnight);
        let (before, after) = (Week::of(EventTime::from_micros(midnight.micros() - 1)), Week::of(midnight));
        assert_eq!(before.plus(1), after);
        store.ensure_weeks(before, before).await.expect("room");
        let rows = || vec![writer.ask_in(before, id(monday), 2 * n), writer.ask_in(after, id(monday), 2 * n + 1)];
        let refused = claim(store, &[writer.guard()], rows()).await;
        assert!(matches!(refused, Err(StoreError::NoWeek(missing)) if missing == after), "{monday}: {refused:?}");
        store.ensure_weeks(after, after).await.expect("room");
        let answers = claim(store, &[writer.guard()], rows()).await.expect("a claim");
        assert_eq!(inserted(&answers), 2, "{monday}");
        let found = store.find(Some(&scope()), &id(monday)).await.expect("claims");
        assert_eq!(found.iter().map(|claim| claim.week).collect::<Vec<_>>(), [before, after]);
    }
}

/// Retired weeks are gone with their claims; the undated one and the kept ones are not.
pub async fn retires(subject: Subject) {
    let store = &*subject.store;
    store.ensure_weeks(week().plus(-3), week()).await.expect("room");
    let rows: Vec<_> = (-3..=0).map(|n| trying("a", week().plus(n))).chain([trying("a", Week::UNDATED)]).collect();
    store.try_claim(&rows, NOW).await.expect("claims");
    assert_eq!(store.retire_weeks(week().plus(-3)).await.expect("an answer"), []);
    let retired = store.retire_weeks(week().plus(-1)).await.expect("an answer");
    assert_eq!(retired, [week().plus(-3), week().plus(-2)]);
    assert_eq!(store.retire_weeks(week().plus(-1)).await.expect("an answer"), []);
    assert_eq!(store.weeks().await.expect("weeks"), [Week::UNDATED, week().plus(-1), week()]);
    assert_eq!(count(store, "a").await, 3);
    let refused = store.try_claim(&rows[..1], NOW).await;
    assert!(matches!(refused, Err(StoreError::NoWeek(missing)) if missing == week().plus(-3)), "{refused:?}");
    store.ensure_weeks(week().plus(-3), week().plus(-3)).await.expect("room");
    assert_eq!(store.try_claim(&rows[..1], NOW).await.expect("a claim"), [Claimed::Inserted], "made again, and empty");
}

/// A room for each week that there is, and what is known of its size.
pub async fn tells_sizes(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let rows: Vec<_> = (0..50).map(|n| trying(&format!("event {n}"), week())).collect();
    store.try_claim(&rows, NOW).await.expect("claims");
    let rooms = store.rooms().await.expect("rooms");
    assert!(rooms.iter().all(|room| room.first == room.last));
    assert_eq!(rooms.iter().map(|room| room.first).collect::<Vec<_>>(), store.weeks().await.expect("weeks"));
    // Statistics may lag, but nothing is made up.
    for room in rooms {
        let most = if room.first == week() { 50 } else { 0 };
        assert!(room.claims_estimate.is_none_or(|claims| claims <= most), "{room:?}");
    }
}

/// Weeks come and go while four writers claim in others: no window fails, none waits long.
pub async fn under_load(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    let ended = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (store, ended) = (store.clone(), ended.clone());
            tokio::spawn(async move {
                let writer = Writer::open(&*store, &format!("stream {n}")).await;
                let (mut windows, mut longest) = (0, Duration::ZERO);
                while windows < 5 || !ended.load(Ordering::SeqCst) {
                    let ids: Vec<String> = (0..50).map(|k| format!("{n}/{windows}/{k}")).collect();
                    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let begun = Instant::now();
                    let answers = writer.claim(&*store, &ids, windows * 50).await.expect("no window fails");
                    longest = longest.max(begun.elapsed());
                    assert_eq!(inserted(&answers), 50);
                    windows += 1;
                }
                (windows, longest)
            })
        })
        .collect();
    let old = week().plus(-60);
    for round in 0..10 {
        let made = old.plus(round);
        store.ensure_weeks(made, made.plus(1)).await.expect("room");
        store.try_claim(&[trying("old", made)], NOW).await.expect("a claim");
        assert_eq!(store.retire_weeks(made.plus(1)).await.expect("an answer"), [made], "round {round}");
    }
    ended.store(true, Ordering::SeqCst);
    for writer in writers {
        let (windows, longest) = writer.await.expect("no panic");
        assert!(longest < Duration::from_secs(2), "{windows} windows, the longest {longest:?}");
    }
}
