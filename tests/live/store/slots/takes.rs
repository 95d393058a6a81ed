//! Taking slots, and what of a lane is released, kept or settled for ever.

use semel::protocol::lane::{Holder, Token};
use semel::protocol::slot::Conflicting;
use semel::store::slots::{Former, Reserved, Slot};

use super::super::kit::{NOW, count, fresh, id, lane_for, room, scope};
use super::{LONG, OVER, Run, Subject, claims_of, leased, not_owner, taken};

/// A slot without a row is taken in place of nobody, and only so.
pub async fn first(subject: Subject) {
    let store = &*subject.store;
    let run = Run::of("one");
    assert_eq!(store.slot(&run.slot).await.expect("an answer"), None);
    not_owner(run.take(store, Some(&run.next()), None, LONG).await);
    not_owner(run.take(store, Some(&run), None, LONG).await);
    assert_eq!(store.streams().await.expect("streams"), [], "a refused one makes no stream");
    assert_eq!(run.take(store, None, None, LONG).await.expect("the slot"), taken(0));
    let Slot { owner, open: Some(open) } = store.slot(&run.slot).await.expect("an answer").expect("a slot") else {
        panic!("no lane is open")
    };
    assert_eq!((owner, open.lane, open.seen.settled, open.claimed_above), (run.token, run.lane, 0, false));
    not_owner(run.next().take(store, None, None, LONG).await);
    not_owner(run.next().take(store, Some(&run.next()), Some(run.knows(0)), LONG).await);
    let streams = store.streams().await.expect("streams");
    let [state] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((&state.stream, state.owner), (&run.slot, Some(run.token)));
    assert_eq!(state.row.map(|row| (row.open, row.drained)), Some((run.lane, None)));
    assert_eq!(state.opened_for, Some(lane_for()));
    assert!(store.is_open(run.lane).await.expect("an answer"));
}

/// After an unknown outcome as it was: nothing more is released, whatever was claimed since.
pub async fn repeated(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::of("one");
    for _ in 0..2 {
        assert_eq!(run.take(store, None, None, LONG).await.expect("the slot"), taken(0));
    }
    run.claims(store, &["a", "b"], 0).await;
    let next = run.next();
    assert_eq!(next.take(store, Some(&run), Some(run.knows(1)), LONG).await.expect("the slot"), taken(1));
    next.claims(store, &["b", "c"], 0).await;
    for instead_of in [Some(&run), None, Some(&next)] {
        assert_eq!(next.take(store, instead_of, Some(run.knows(1)), LONG).await.expect("the slot"), taken(0));
    }
    assert_eq!((claims_of(store, next.lane, 0).await, claims_of(store, run.lane, 0).await), (2, 1));
    next.claims(store, &["d"], 2).await;
}

/// A lane is opened once: one that another has followed never comes back, under whatever token, on whatever slot.
pub async fn once(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let first = Run::start(store, "one", OVER).await;
    let second = first.next();
    assert_eq!(second.take(store, Some(&first), None, OVER).await.expect("the slot"), taken(0));
    let cases = [
        ("the straggler itself", first.clone(), None),
        ("under a new token", Run { lane: first.lane, ..first.next() }, Some(&second)),
        ("under the token that stands", Run { lane: first.lane, ..second.clone() }, Some(&second)),
        ("on another slot", Run { lane: first.lane, ..Run::of("other") }, None),
        ("open elsewhere", Run { lane: second.lane, ..Run::of("other") }, None),
    ];
    for (why, late, instead_of) in cases {
        println!("{why}");
        not_owner(late.take(store, instead_of, None, LONG).await);
    }
    assert_eq!(second.open(store).await.lane, second.lane);
    assert!(!store.is_open(first.lane).await.expect("an answer"));
    assert_eq!(store.streams().await.expect("streams").len(), 1);
    // The token that stands may open another lane: it is the owner.
    let third = Run { token: second.token, ..second.next() };
    assert_eq!(third.take(store, Some(&second), None, LONG).await.expect("the slot"), taken(0));
    assert_eq!(third.open(store).await.lane, third.lane);
    let fourth = Run { token: second.token, ..second.next() };
    leased(fourth.take(store, Some(&second), None, LONG).await);
}

/// Published above the settled position: each by itself loses its lane and is a duplicate for ever.
pub async fn published_for_ever(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    let ids = ["a", "b", "c", "d", "e", "f"];
    run.claims(store, &ids, 0).await;
    assert_eq!(store.release(run.guard(), 1, &[2], 1, 4).await.expect("released"), 2);
    let next = run.next();
    let former = Former { published: &[5], ..run.knows(1) };
    assert_eq!(next.take(store, Some(&run), Some(former), LONG).await.expect("the slot"), taken(1));
    let answers = next.reserve(store, &ids, 0, (0, LONG)).await.expect("a reserve");
    let kept = |position| {
        let holder = Holder { lane: None, position };
        Reserved::InTheWay(Some(Conflicting { holder, lane: None }))
    };
    assert_eq!(answers["a"], run.at(0, 1, super::LEFT_BEHIND));
    assert_eq!([answers["c"], answers["f"]], [kept(2), kept(5)]);
    assert_eq!([answers["b"], answers["d"], answers["e"]], [Reserved::Inserted; 3]);
    let found = store.find(Some(&scope()), &id("c")).await.expect("claims");
    assert_eq!((found.len(), found[0].topic.as_str(), &found[0].stream), (1, super::ORIGIN, &None));
}

/// Exactly the positions of the window, on this lane alone; whatever was published among them stays.
pub async fn bounded_release(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let (run, other) = (Run::start(store, "one", LONG).await, Run::start(store, "other", LONG).await);
    run.claims(store, &["a", "b", "c", "d", "e", "f"], 10).await;
    other.claims(store, &["o"], 13).await;
    assert_eq!(store.release(run.guard(), 11, &[], 12, 14).await.expect("released"), 2);
    assert_eq!(run.open(store).await.seen.settled, 11);
    assert_eq!(store.release(run.guard(), 11, &[], 12, 14).await.expect("released"), 0);
    let mut left = Vec::new();
    for event_id in ["a", "b", "c", "d", "e", "f", "o"] {
        left.push(count(store, event_id).await);
    }
    assert_eq!(left, [1, 1, 0, 0, 1, 1, 1]);
    assert_eq!(store.release(run.guard(), 11, &[10, 11, 15], 10, 16).await.expect("released"), 1);
    assert_eq!(claims_of(store, run.lane, 0).await, 0, "three of them have no lane any more");
    assert_eq!((count(store, "a").await, count(store, "e").await, count(store, "f").await), (1, 0, 1));
}

/// What is released, closed and opened is of this slot alone.
pub async fn another_slot(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let (run, other) = (Run::start(store, "one", OVER).await, Run::start(store, "other", LONG).await);
    run.reserve(store, &["a", "b"], 0, (0, OVER)).await.expect("a reserve");
    other.claims(store, &["o"], 0).await;
    let next = run.next();
    assert_eq!(next.take(store, Some(&run), None, LONG).await.expect("the slot"), taken(2));
    assert_eq!(other.open(store).await.lane, other.lane);
    other.claims(store, &["a"], 1).await;
    assert_eq!(claims_of(store, other.lane, 0).await, 2);
    let stolen = Run { token: Token(fresh()), ..other.next() };
    not_owner(stolen.take(store, Some(&next), Some(other.knows(0)), LONG).await);
}

/// By an operator's hand: what is below the cut counts as done from then on, and is not swept.
pub async fn closed_by_hand(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    run.reserve(store, &["a", "b", "c"], 4, (1, OVER)).await.expect("a reserve");
    assert_eq!(store.close_lane(&run.slot, run.guard(), 6, NOW).await.expect("closed"), 1);
    not_owner(run.reserve(store, &[], 0, (9, LONG)).await);
    assert_eq!(store.slot(&run.slot).await.expect("an answer"), Some(Slot { owner: run.token, open: None }));
    assert_eq!(store.sweep(run.lane).await.expect("an answer"), Some(0));
    let next = run.next();
    assert_eq!(next.take(store, Some(&run), None, LONG).await.expect("the slot"), taken(0));
    let answers = next.reserve(store, &["b", "c"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["b"], run.at(5, 6, super::LEFT_BEHIND_LAPSED));
    assert_eq!(answers["c"], Reserved::Inserted);
}
