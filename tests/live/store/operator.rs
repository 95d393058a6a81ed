//! What operators and callers of the API ask, and the records that a sink refused.

use semel::protocol::event::{EventTime, Scope, Week};
use semel::protocol::lane::{Holder, LaneId};
use semel::protocol::verdict::Claimed;
use semel::store::{Claim, Free, Refused, TryClaim};

use super::Subject;
use super::kit::{NOW, Writer, count, fresh, id, of, room, scope, trying, week};

const SETTLED: Claimed = Claimed::Held(Holder { lane: None, position: 77 });

/// Inserted once; held for ever after, by nobody's lane; repeats in one call are answered by the first.
pub async fn try_claims(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    writer.claim(store, &["w"], 5).await.expect("a claim");
    let other = TryClaim { scope: Scope::new("other").expect("a scope"), ..trying("a", week()) };
    let bare = TryClaim { partition: None, offset: None, ..trying("bare", week()) };
    let rows = [
        trying("b", week()),
        trying("a", week()),
        trying("b", week()),
        trying("a", week().plus(1)),
        trying("a", Week::UNDATED),
        trying("w", week()),
        TryClaim { offset: Some(1), ..trying("b", week()) },
        other.clone(),
        bare.clone(),
        bare.clone(),
    ];
    let first = store.try_claim(&rows, NOW).await.expect("claims");
    let nowhere = Claimed::Held(Holder { lane: None, position: 0 });
    let Claimed::Inserted = first[0] else { panic!("{first:?}") };
    let expected = [
        Claimed::Inserted,
        Claimed::Inserted,
        SETTLED,
        Claimed::Inserted,
        Claimed::Inserted,
        writer.at(5),
        SETTLED,
        Claimed::Inserted,
        Claimed::Inserted,
        nowhere,
    ];
    assert_eq!(first, expected);
    let again = store.try_claim(&[trying("a", week()), bare], NOW).await.expect("claims");
    assert_eq!(again, [SETTLED, nowhere]);
    // A window meets it, and no position makes it its own.
    let answers = writer.claim(store, &["b"], 77).await.expect("a claim");
    assert_eq!(of(&answers, "b"), SETTLED);
    assert!(store.try_claim(&[], NOW).await.expect("an answer").is_empty());
}

/// Many calls for one key at once: one inserts, all others are told a duplicate; none hangs or fails.
pub async fn try_claims_at_once(subject: Subject) {
    let store = subject.store;
    room(&*store).await;
    for round in 0..20 {
        let calls: Vec<_> = (0..6)
            .map(|caller| {
                let store = store.clone();
                tokio::spawn(async move {
                    let mut rows: Vec<_> = (0..5).map(|n| trying(&format!("{round}/{n}"), week())).collect();
                    rows.rotate_left(caller % 5);
                    store.try_claim(&rows, NOW).await.expect("claims")
                })
            })
            .collect();
        let mut made = 0;
        for call in calls {
            let answers = call.await.expect("no panic");
            assert!(answers.iter().all(|answer| [Claimed::Inserted, SETTLED].contains(answer)), "{answers:?}");
            made += answers.iter().filter(|answer| **answer == Claimed::Inserted).count();
        }
        assert_eq!(made, 5, "round {round}");
    }
}

/// Everything that a claim's row says, in all weeks and scopes, in order.
pub async fn finds(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    writer.claim(store, &["a"], 5).await.expect("a claim");
    let micros = EventTime::from_micros(NOW.micros() + 123_456);
    let elsewhere = Scope::new("accounting").expect("a scope");
    let rows = [
        TryClaim { scope: elsewhere.clone(), partition: None, offset: None, ..trying("a", week().plus(1)) },
        trying("a", week().plus(-1)),
        trying("other", week()),
    ];
    store.try_claim(&rows, micros).await.expect("claims");
    let claimed = Claim {
        scope: scope(),
        event_id: id("a"),
        week: week(),
        holder: Holder { lane: Some(writer.lane), position: 5 },
        topic: "orders".into(),
        partition: Some(3),
        offset: Some(5),
        first_seen_at: NOW,
        stream: Some(writer.stream.clone()),
    };
    let tried = Claim {
        week: week().plus(-1),
        holder: Holder { lane: None, position: 77 },
        offset: Some(77),
        first_seen_at: micros,
        stream: None,
        ..claimed.clone()
    };
    let bare = Claim {
        scope: elsewhere.clone(),
        week: week().plus(1),
        holder: Holder { lane: None, position: 0 },
        partition: None,
        offset: None,
        ..tried.clone()
    };
    let all = [bare.clone(), tried.clone(), claimed.clone()];
    assert_eq!(store.find(None, &id("a")).await.expect("claims"), all);
    assert_eq!(store.find(Some(&scope()), &id("a")).await.expect("claims"), all[1..]);
    assert_eq!(store.find(Some(&elsewhere), &id("a")).await.expect("claims"), all[..1]);
    assert_eq!(store.find(None, &id("none")).await.expect("claims"), []);
}

pub async fn frees_an_event(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let other = Scope::new("other").expect("a scope");
    let rows = [trying("a", week()), trying("a", week().plus(1)), trying("b", week())];
    store.try_claim(&rows, NOW).await.expect("claims");
    store.try_claim(&[TryClaim { scope: other, ..trying("a", week()) }], NOW).await.expect("a claim");
    let all = Free::Event { scope: scope(), event_id: id("a"), week: None };
    let one = Free::Event { scope: scope(), event_id: id("a"), week: Some(week()) };
    assert_eq!(store.free(&all, true).await.expect("a count"), 2);
    assert_eq!(store.free(&one, true).await.expect("a count"), 1);
    assert_eq!(count(store, "a").await, 2, "a dry run frees nothing");
    assert_eq!(store.free(&one, false).await.expect("a count"), 1);
    assert_eq!(store.free(&one, false).await.expect("a count"), 0);
    assert_eq!(store.free(&all, false).await.expect("a count"), 1);
    assert_eq!(count(store, "a").await, 0);
    assert_eq!(store.find(None, &id("a")).await.expect("claims").len(), 1, "another scope's is another claim");
    assert_eq!(count(store, "b").await, 1);
    assert_eq!(store.try_claim(&rows[..1], NOW).await.expect("a claim"), [Claimed::Inserted]);
}

pub async fn frees_the_unsettled(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    let neighbour = Writer::open(store, "neighbour").await;
    writer.claim(store, &["a", "b", "c"], 10).await.expect("a claim");
    neighbour.claim(store, &["n"], 12).await.expect("a claim");
    let free = Free::Unsettled { lane: writer.lane, from: 11 };
    assert_eq!(store.free(&free, true).await.expect("a count"), 2);
    assert_eq!(store.free(&free, false).await.expect("a count"), 2);
    assert_eq!(store.free(&free, false).await.expect("a count"), 0);
    let counts = [count(store, "a").await, count(store, "b").await, count(store, "n").await];
    assert_eq!(counts, [1, 0, 1]);
}

/// Only where event, week, lane and position all match.
pub async fn forgets_refused(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let writer = Writer::open(store, "stream").await;
    writer.claim(store, &["a", "b", "c"], 10).await.expect("a claim");
    store.try_claim(&[trying("t", week())], NOW).await.expect("a claim");
    let right = Refused { event_id: id("b"), week: week(), lane: writer.lane, position: 11 };
    let wrong = [
        Refused { event_id: id("a"), ..right.clone() },
        Refused { week: week().plus(1), ..right.clone() },
        Refused { lane: LaneId(fresh()), ..right.clone() },
        Refused { position: 12, ..right.clone() },
        Refused { event_id: id("t"), position: 77, ..right.clone() },
    ];
    assert_eq!(store.forget_refused(&scope(), &wrong).await.expect("a count"), 0);
    let other = Scope::new("other").expect("a scope");
    assert_eq!(store.forget_refused(&other, std::slice::from_ref(&right)).await.expect("a count"), 0);
    let both = [right, Refused { event_id: id("c"), week: week(), lane: writer.lane, position: 12 }];
    assert_eq!(store.forget_refused(&scope(), &both).await.expect("a count"), 2);
    assert_eq!(store.forget_refused(&scope(), &both).await.expect("a count"), 0, "may be repeated");
    assert_eq!(store.forget_refused(&scope(), &[]).await.expect("a count"), 0);
    let counts = [count(store, "a").await, count(store, "b").await, count(store, "c").await, count(store, "t").await];
    assert_eq!(counts, [1, 0, 0, 1]);
    assert_eq!(of(&writer.claim(store, &["b"], 30).await.expect("a claim"), "b"), Claimed::Inserted);
}

pub async fn lists_streams(subject: Subject) {
    let store = &*subject.store;
    assert_eq!(store.streams().await.expect("streams"), []);
    let second = Writer::open(store, "b").await;
    let mut first = Writer { stream: semel::protocol::lane::StreamId::from_stored("a"), ..second.clone() };
    first.take(store).await;
    let streams = store.streams().await.expect("streams");
    let names: Vec<&str> = streams.iter().map(|state| state.stream.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((streams[0].owner, streams[0].row, &streams[0].opened_for), (Some(first.token), None, &None));
    assert_eq!((streams[1].owner, streams[1].row.map(|row| row.open)), (Some(second.token), Some(second.lane)));
    assert_eq!(streams[1].opened_for, Some(super::kit::lane_for()));
}

/// One id that stays and fits into an offset's metadata, which is split at spaces.
pub async fn knows_its_id(subject: Subject) {
    let id = subject.store.store_id().await.expect("an id");
    assert_eq!(subject.store.store_id().await.expect("an id"), id);
    assert!((16..=64).contains(&id.0.len()) && id.0.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
}
