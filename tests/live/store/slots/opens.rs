//! The two steps of taking a slot whose truth is in Kafka: the token, then the lane.

use std::time::Duration;

use semel::protocol::lane::{Cut, Position};
use semel::protocol::slot::LaneSeen;
use semel::store::StoreError;
use semel::store::slots::{OpenSlot, Reserved, Slot, SlotStore};

use super::super::kit::{NOW, Writer, lane_for, room};
use super::{LEFT_BEHIND, LONG, OVER, Run, Subject, claims_of, not_owner, taken};

async fn open(
    store: &dyn SlotStore,
    run: &Run,
    cut: Option<(&Run, Position)>,
    lease: Duration,
) -> Result<u64, StoreError> {
    let (lane_for, cut) = (lane_for(), cut.map(|(prev, cut)| Cut { prev: prev.lane, cut }));
    let Run { slot, lane, token } = run;
    let (token, lane) = (*token, *lane);
    let open = OpenSlot { slot, token, lane, cut, settled: 0, lane_for: &lane_for, lease, now: NOW };
    store.open_slot(&open).await
}

/// Only in place of what was seen; of two that saw the same, the second is refused. May be repeated.
pub async fn tokens(subject: Subject) {
    let store = &*subject.store;
    let (one, two) = (Run::of("one"), Run::of("one"));
    not_owner(store.write_token(&one.slot, one.token, Some(two.token), true).await);
    not_owner(store.write_token(&one.slot, one.token, Some(one.token), true).await);
    assert_eq!(store.slot(&one.slot).await.expect("an answer"), None);
    for _ in 0..2 {
        assert_eq!(store.write_token(&one.slot, one.token, None, false).await.expect("the token"), taken(0));
        let slot = Slot { owner: one.token, open: None };
        assert_eq!(store.slot(&one.slot).await.expect("an answer"), Some(slot));
    }
    not_owner(store.write_token(&one.slot, two.token, None, true).await);
    let (three, four) = (one.next(), one.next());
    for own in [true, false] {
        let written = store.write_token(&one.slot, three.token, Some(one.token), own).await;
        assert_eq!(written.expect("the token"), taken(0), "no lane is open: there is no lease");
        not_owner(store.write_token(&one.slot, four.token, Some(one.token), own).await);
    }
    assert_eq!(store.slot(&one.slot).await.expect("an answer").expect("a slot").owner, three.token);
}

/// What lies at or above the cut is released, and below it settled, mirror or not.
pub async fn opened(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::of("one");
    store.write_token(&run.slot, run.token, None, true).await.expect("the token");
    for _ in 0..2 {
        assert_eq!(open(store, &run, None, LONG).await.expect("a lane"), 0);
    }
    assert_eq!(run.open(store).await.seen, LaneSeen { settled: 0, open: true, lapsed: false });
    run.claims(store, &["a", "b", "c"], 0).await;
    let next = run.next();
    store.write_token(&run.slot, next.token, Some(run.token), true).await.expect("the token");
    assert_eq!(open(store, &next, Some((&run, 1)), OVER).await.expect("a lane"), 2);
    let opened = next.open(store).await;
    assert_eq!((opened.lane, opened.seen.lapsed, opened.seen.settled), (next.lane, true, 0));
    assert!(!store.is_open(run.lane).await.expect("an answer"));
    let answers = next.reserve(store, &["a", "b", "c"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["a"], run.at(0, 1, LEFT_BEHIND));
    assert_eq!([answers["b"], answers["c"]], [Reserved::Inserted; 2]);
    // Repeated, it neither releases nor renews anything.
    next.reserve(store, &[], 0, (0, OVER)).await.expect("a flush");
    assert_eq!(open(store, &next, Some((&run, 1)), LONG).await.expect("a lane"), 0);
    assert_eq!((claims_of(store, next.lane, 0).await, next.open(store).await.seen.lapsed), (2, true));
    // A cut below the mirror, which the pipeline never asks for, does not take it back.
    next.reserve(store, &[], 0, (3, LONG)).await.expect("a flush");
    let last = next.next();
    store.write_token(&run.slot, last.token, Some(next.token), true).await.expect("the token");
    assert_eq!(open(store, &last, Some((&next, 2)), LONG).await.expect("a lane"), 1);
    let answers = last.reserve(store, &["b"], 0, (0, LONG)).await.expect("a reserve");
    assert_eq!(answers["b"], next.at(1, 3, LEFT_BEHIND));
}

/// Only under the token that stands, and only where the cut's lane is the open one.
pub async fn guarded(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::start(store, "one", LONG).await;
    let other = Run::start(store, "other", LONG).await;
    let partition = Writer::open(store, "stream").await;
    run.claims(store, &["a", "b"], 0).await;
    let next = run.next();
    not_owner(open(store, &next, Some((&run, 0)), LONG).await);
    store.write_token(&run.slot, next.token, Some(run.token), true).await.expect("the token");
    not_owner(open(store, &run.next(), Some((&run, 0)), LONG).await);
    not_owner(open(store, &Run { lane: run.next().lane, ..run.clone() }, Some((&run, 0)), LONG).await);
    not_owner(open(store, &next, None, LONG).await);
    not_owner(open(store, &next, Some((&next, 0)), LONG).await);
    not_owner(open(store, &next, Some((&other, 0)), LONG).await);
    not_owner(open(store, &Run { slot: Run::of("nobody").slot, ..next.clone() }, None, LONG).await);
    not_owner(open(store, &Run { lane: other.lane, ..next.clone() }, Some((&run, 0)), LONG).await);
    let stream = Run { slot: partition.stream.clone(), lane: next.lane, token: partition.token };
    not_owner(open(store, &stream, Some((&Run { lane: partition.lane, ..next.clone() }, 0)), LONG).await);
    assert_eq!((next.open(store).await.lane, claims_of(store, run.lane, 0).await), (run.lane, 2));
    assert_eq!(other.open(store).await.lane, other.lane);
    assert_eq!(open(store, &next, Some((&run, 0)), LONG).await.expect("a lane"), 2);
    // Its predecessor's lane was the open one, and no longer is.
    not_owner(open(store, &Run { lane: run.next().lane, ..next.clone() }, Some((&run, 0)), LONG).await);
    not_owner(open(store, &Run { lane: run.lane, ..next.clone() }, Some((&next, 0)), LONG).await);
    assert_eq!(next.open(store).await.lane, next.lane);
}

/// A lane tells its slot for ever, also after its claims.
pub async fn slots_of_lanes(subject: Subject) {
    let store = &*subject.store;
    let run = Run::start(store, "one", OVER).await;
    let next = run.next();
    assert_eq!(store.slot_of(next.lane).await.expect("an answer"), None);
    next.take(store, Some(&run), None, LONG).await.expect("the slot");
    for lane in [run.lane, next.lane] {
        assert_eq!(store.slot_of(lane).await.expect("an answer").as_ref(), Some(&run.slot));
    }
    let partition = Writer::open(store, "stream").await;
    assert_eq!(store.slot_of(partition.lane).await.expect("an answer"), Some(partition.stream));
}

/// Owner, open lane, how far it is settled, what is left of its lease, and what it was opened for. A lane begins settled
/// where it is told.
pub async fn standings(subject: Subject) {
    let store = &*subject.store;
    room(store).await;
    let run = Run::of("one");
    assert_eq!(store.standing(&run.slot).await.expect("an answer"), None);
    store.write_token(&run.slot, run.token, None, false).await.expect("the token");
    let seen = store.standing(&run.slot).await.expect("an answer").expect("a stream");
    assert_eq!((seen.owner, seen.open, seen.opened_for), (run.token, None, None));
    let lane_for = lane_for();
    let (slot, token, lane, lane_for) = (&run.slot, run.token, run.lane, &lane_for);
    let open = OpenSlot { slot, token, lane, cut: None, settled: 40, lane_for, lease: OVER, now: NOW };
    for _ in 0..2 {
        assert_eq!(store.open_slot(&open).await.expect("a lane"), 0);
    }
    let standing = async || {
        let seen = store.standing(&run.slot).await.expect("an answer").expect("a stream");
        assert_eq!((seen.owner, seen.opened_for.as_ref()), (run.token, Some(lane_for)));
        let open = seen.open.expect("a lane");
        assert_eq!(open.lane, run.lane);
        (open.settled, open.lease_left)
    };
    assert_eq!(standing().await, (40, OVER));
    run.claims(store, &["a", "b"], 40).await;
    let (settled, left) = standing().await;
    assert!(settled == 40 && left > LONG / 2 && left <= LONG, "{left:?}");
    run.reserve(store, &[], 0, (41, OVER)).await.expect("a flush");
    assert_eq!(standing().await, (41, OVER));
    // A cut below which nothing was claimed leaves the lane before settled there.
    let next = run.next();
    store.write_token(&run.slot, next.token, Some(run.token), false).await.expect("the token");
    let cut = Some(Cut { prev: run.lane, cut: 41 });
    let open = OpenSlot { token: next.token, lane: next.lane, cut, settled: 7, ..open };
    assert_eq!(store.open_slot(&open).await.expect("a lane"), 1);
    let seen = store.standing(&run.slot).await.expect("an answer").expect("a stream").open.expect("a lane");
    assert_eq!((seen.lane, seen.settled, seen.lease_left), (next.lane, 7, OVER));
    let answers = next.reserve(store, &["a", "b"], 7, (7, LONG)).await.expect("a reserve");
    let before = run.at(40, 41, (false, true));
    assert_eq!((answers["a"], answers["b"]), (before, Reserved::Inserted));
}
