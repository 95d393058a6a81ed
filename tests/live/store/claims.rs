//! Promises 1, 2, 3, 5 and 6 of a claim.

use std::collections::{BTreeMap, BTreeSet};

use semel::protocol::event::{EventId, Scope, Week};
use semel::protocol::lane::{LaneId, Token};
use semel::protocol::verdict::Claimed;
use semel::store::{ClaimWindow, Guard, StoreError};

use super::Subject;
use super::kit::{Answers, NOW, Writer, claim, count, fresh, id, inserted, of, room, scope, trying, week};

/// Of many that claim one key at once, one inserts; the others find that one, and its claim is committed by then.
pub async fn one_caller_inserts(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    let ids: Vec<String> = (0..200).map(|n| format!("event {n}")).collect();
    let calls = (0..8).map(|caller| {
        let (store, ids) = (store.clone(), ids.clone());
        tokio::spawn(async move {
            let writer = Writer::open(&*store, &format!("stream {caller}")).await;
            let mut found = Answers::new();
            for part in ids.chunks(50) {
                let part: Vec<&str> = part.iter().map(String::as_str).collect();
                let answers = writer.claim(&*store, &part, found.len() as i64).await.expect("a claim");
                for (key, answer) in &answers {
                    if let Claimed::Held(holder) = answer {
                        let there = store.find(Some(&scope()), &key.0).await.expect("an answer");
                        assert_eq!(there.iter().map(|claim| claim.holder).collect::<Vec<_>>(), [*holder]);
                    }
                }
                found.extend(answers);
            }
            (writer, found)
        })
    });
    let mut winners: BTreeMap<EventId, Vec<LaneId>> = BTreeMap::new();
    let mut told: BTreeMap<EventId, BTreeSet<LaneId>> = BTreeMap::new();
    for call in calls.collect::<Vec<_>>() {
        let (writer, found) = call.await.expect("no panic");
        for ((event_id, _), answer) in found {
            match answer {
                Claimed::Inserted => winners.entry(event_id).or_default().push(writer.lane),
                Claimed::Held(holder) => drop(told.entry(event_id).or_default().insert(holder.lane.expect("a lane"))),
            }
        }
    }
    assert_eq!(winners.len(), 200);
    for (event_id, lanes) in winners {
        let [winner] = lanes[..] else { panic!("{event_id} was inserted by {lanes:?}") };
        assert!(
            told[&event_id].iter().eq([&winner]),
            "{event_id}: {winner} inserted, but {:?} was told",
            told[&event_id]
        );
    }
}

/// Repeated after an unknown outcome, under a new token: every claim recognises its own coordinate.
pub async fn the_same_window_again(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let mut writer = Writer::open(store, "stream").await;
    writer.claim(store, &["a", "b"], 10).await.expect("a claim");
    writer.take(store).await;
    let answers = writer.claim(store, &["a", "b", "c"], 10).await.expect("a claim");
    assert_eq!([of(&answers, "a"), of(&answers, "b")], [writer.at(10), writer.at(11)]);
    assert_eq!(of(&answers, "c"), Claimed::Inserted);
}

/// One row without room: no row of the window is written.
pub async fn all_or_nothing(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    let far = week().plus(40);
    let rows = || vec![writer.ask("a", 1), writer.ask_in(far, id("b"), 2), writer.ask("c", 3)];
    let refused = claim(store, &[writer.guard()], rows()).await;
    assert!(matches!(refused, Err(StoreError::NoWeek(missing)) if missing == far), "{refused:?}");
    let refused = store.try_claim(&[trying("t", week()), trying("t", far)], NOW).await;
    assert!(matches!(refused, Err(StoreError::NoWeek(missing)) if missing == far), "{refused:?}");
    for event_id in ["a", "b", "c", "t"] {
        assert_eq!(count(store, event_id).await, 0, "{event_id}");
    }
    store.ensure_weeks(far, far).await.expect("room");
    let answers = claim(store, &[writer.guard()], rows()).await.expect("a claim");
    assert_eq!(inserted(&answers), 3);
}

/// Whoever has not both the owner's token and the open lane writes nothing, whatever else is in the window.
pub async fn guarded(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let mine = Writer::open(store, "mine").await;
    let mut other = Writer::open(store, "other").await;
    let before = other.clone();
    other.discontinue(store, 0).await;
    let cases = [
        ("another's token", Guard { token: other.token, ..mine.guard() }),
        ("a token of nobody's", Guard { token: Token(fresh()), ..mine.guard() }),
        ("a lane that was closed", before.guard()),
        ("a lane of nobody's", Guard { lane: LaneId(fresh()), token: mine.token }),
    ];
    for (why, guard) in cases {
        let bad = Writer { lane: guard.lane, token: guard.token, ..mine.clone() };
        let refused = bad.claim(store, &["a"], 1).await;
        assert!(matches!(refused, Err(StoreError::NotOwner)), "{why}: {refused:?}");
        // Beside a good guard, in either order.
        for guards in [[mine.guard(), guard], [guard, mine.guard()]] {
            let refused = claim(store, &guards, vec![mine.ask("a", 1), bad.ask("b", 2)]).await;
            assert!(matches!(refused, Err(StoreError::NotOwner)), "{why}, second lane: {refused:?}");
        }
    }
    assert_eq!((count(store, "a").await, count(store, "b").await), (0, 0));
    let rows = vec![mine.ask("a", 1), other.ask("b", 2)];
    let answers = claim(store, &[mine.guard(), other.guard()], rows).await.expect("two lanes in one window");
    assert_eq!(inserted(&answers), 2);
    // All conflicted is another answer than not owned.
    let answers = mine.claim(store, &["b"], 7).await.expect("a claim");
    assert_eq!(of(&answers, "b"), other.at(2));
}

/// Claims, lanes, weeks and the store's id are there for the next process.
pub async fn survives(subject: Subject) {
    let Subject { store, reopen: Some(reopen), keep, .. } = subject else { return };
    room(&*store).await;
    let writer = Writer::open(&*store, "stream").await;
    writer.claim(&*store, &["a"], 1).await.expect("a claim");
    store.try_claim(&[trying("t", Week::UNDATED)], NOW).await.expect("a claim");
    store.record_drain(&writer.stream, writer.guard(), 2).await.expect("a drain");
    let (id_before, streams, weeks) =
        (store.store_id().await.expect("an id"), store.streams().await.expect("streams"), store.weeks().await);
    let store = reopen(store).await;
    assert_eq!(store.store_id().await.expect("an id"), id_before);
    assert_eq!(store.streams().await.expect("streams"), streams);
    assert_eq!(store.weeks().await.expect("weeks"), weeks.expect("weeks"));
    let answers = writer.claim(&*store, &["a"], 5).await.expect("a claim");
    assert_eq!(of(&answers, "a"), writer.at(1));
    assert_eq!(count(&*store, "t").await, 1);
    drop(keep);
}

/// Two windows with the same 500 ids read in opposite orders, a hundred times: no deadlock, and each id inserted once.
pub async fn opposite_orders(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    let writers = [Writer::open(&*store, "up").await, Writer::open(&*store, "down").await];
    for round in 0..100 {
        let calls = writers.clone().map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let ids = (0..500).map(|n| id(&format!("{round}/{n}")));
                let at = |n: i64| if writer.stream.as_str() == "up" { n } else { 499 - n };
                let rows = ids.zip(0..).map(|(id, n)| writer.ask_in(week(), id, round * 500 + at(n))).collect();
                claim(&*store, &[writer.guard()], rows).await.expect("no deadlock surfaces")
            })
        });
        let [up, down] = calls;
        let (up, down) = (up.await.expect("no panic"), down.await.expect("no panic"));
        assert_eq!(inserted(&up) + inserted(&down), 500, "round {round}");
        for (key, answer) in &up {
            assert!((*answer == Claimed::Inserted) != (down[key] == Claimed::Inserted), "round {round}: {key:?}");
        }
    }
}

/// 22,000 rows in one window; then again, so that every one of them is held.
pub async fn big_window(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    let rows = || (0..22_000).map(|n| writer.ask(&format!("{n:08}-of-a-big-window"), n)).collect();
    let first = claim(store, &[writer.guard()], rows()).await.expect("a claim");
    assert_eq!(inserted(&first), 22_000);
    let again = claim(store, &[writer.guard()], rows()).await.expect("a claim");
    for (n, answer) in again.values().enumerate() {
        assert_eq!(*answer, writer.at(n as i64));
    }
}

/// Ids and scopes that have a meaning to somebody on the way.
pub async fn odd_names(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "kafka:c/group \"x\"/'; DROP TABLE --/{0}").await;
    let odd: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        b"a\0b".to_vec(),
        b"a".to_vec(),
        b"A".to_vec(),
        b" a ".to_vec(),
        vec![0xff, 0xfe],
        "e\u{301}".into(),
        "\u{e9}".into(),
        "\u{1F600}".into(),
        b"NULL".to_vec(),
        b"{a,\"b\"}".to_vec(),
        b"'; DELETE FROM x; --".to_vec(),
        b"\\".to_vec(),
        b"%_".to_vec(),
        b"~x00".to_vec(),
        vec![b'x'; 512],
        vec![b'x'; 513],
        vec![0; 100_000],
    ];
    let scopes = ["billing", "Billing", "billing ", "a\"b'c\\{}", &"s".repeat(255)]
        .map(|text| Scope::new(text).expect("a scope"));
    let mut position = 0;
    for scope in &scopes {
        let mut rows: Vec<_> = odd
            .iter()
            .map(|bytes| {
                position += 1;
                writer.ask_in(week(), EventId::encode(bytes).expect("an id"), position)
            })
            .collect();
        rows.sort_by(|a, b| a.event_id.cmp(&b.event_id));
        let guards = [writer.guard()];
        let window = ClaimWindow { scope, guards: &guards, rows: &rows, first_seen_at: NOW };
        let answers = store.claim(&window).await.expect("a claim");
        assert!(answers.iter().all(|answer| *answer == Claimed::Inserted), "{scope:?}: {answers:?}");
        let again = store.claim(&window).await.expect("a claim");
        for (row, answer) in rows.iter().zip(again) {
            assert_eq!(answer, writer.at(row.position));
            let found = store.find(Some(scope), &row.event_id).await.expect("an answer");
            assert_eq!(found.len(), 1, "{:?}", row.event_id);
            assert_eq!((&found[0].event_id, &found[0].scope), (&row.event_id, scope));
            assert_eq!(found[0].stream.as_ref(), Some(&writer.stream));
        }
    }
}

/// What breaks the contract is refused, and nothing is written.
pub async fn refuses_bad_windows(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    let scope = scope();
    let (a, b) = (writer.ask("a", 1), writer.ask("b", 2));
    let guards = [writer.guard()];
    let cases = [
        ("out of order", vec![b.clone(), a.clone()], &guards[..]),
        ("one key twice", vec![a.clone(), a.clone()], &guards[..]),
        ("a lane without a guard", vec![a, b], &[]),
    ];
    for (why, rows, guards) in &cases {
        let refused = store.claim(&ClaimWindow { scope: &scope, guards, rows, first_seen_at: NOW }).await;
        assert!(matches!(refused, Err(StoreError::Rejected(_))), "{why}: {refused:?}");
    }
    assert_eq!((count(store, "a").await, count(store, "b").await), (0, 0));
}

/// A window of nothing still says whether the stream is owned.
pub async fn empty_window(subject: Subject) {
    let store = &*subject.store;
    let writer = Writer::open(store, "stream").await;
    assert!(claim(store, &[writer.guard()], vec![]).await.expect("an answer").is_empty());
    let stale = Guard { token: Token(fresh()), ..writer.guard() };
    let refused = claim(store, &[stale], vec![]).await;
    assert!(matches!(refused, Err(StoreError::NotOwner)), "{refused:?}");
}
