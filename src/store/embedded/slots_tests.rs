//! What is this store's own of the lanes of instances, beside the promises that every store keeps.

use std::time::Duration;

use super::*;
use crate::protocol::lane::{Holder, Token};
use crate::protocol::slot::{Conflicting, LaneSeen};
use crate::store::slots::{Former, Reserve, Reserved, SlotAsk, SlotStore, TakeSlot, TakenSlot};
use crate::store::{Ask, LaneFor};

const LONG: Duration = Duration::from_secs(3600);
const OVER: Duration = Duration::ZERO;
const FIRST_SEEN: EventTime = EventTime::from_micros(1_767_225_600_000_000);

fn event(position: Position) -> EventId {
    EventId::from_stored(format!("event-{:08x}", (position as u32).wrapping_mul(0x9e37_79b1)))
}

fn guard(lane: i64) -> Guard {
    Guard { lane: LaneId(lane), token: Token(lane) }
}

struct World {
    folder: tempfile::TempDir,
    scope: Scope,
    slot: StreamId,
    lane_for: LaneFor,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn new() -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let scope = Scope::new("billing").expect("a scope");
        let lane_for = LaneFor { scope: scope.clone(), recipe: "header:id".into() };
        World { folder, scope, slot: StreamId::slot("orders", "pod-0"), lane_for, runtime }
    }

    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(self.folder.path()).expect("the store opens")
    }

    fn reopened(&self, store: EmbeddedStore) -> EmbeddedStore {
        drop(store);
        self.open()
    }

    /// Lanes and their tokens have the same numbers.
    fn take(&self, store: &EmbeddedStore, (lane, before): (i64, Option<i64>), former: Option<Former<'_>>) -> TakenSlot {
        let take = TakeSlot {
            slot: &self.slot,
            token: Token(lane),
            lane: LaneId(lane),
            instead_of: before.map(Token),
            former,
            lane_for: &self.lane_for,
            lease: LONG,
            now: FIRST_SEEN,
        };
        self.runtime.block_on(store.take_slot(&take)).expect("an answer")
    }

    fn try_reserve(
        &self,
        store: &EmbeddedStore,
        lane: i64,
        (committed, lease): (Position, Duration),
        positions: impl Iterator<Item = (Position, Position)>,
    ) -> Result<Vec<Reserved>, StoreError> {
        let mut rows: Vec<(Position, SlotAsk)> = positions
            .map(|(of, position)| (of, SlotAsk { event_id: event(of), week: Week::UNDATED, position }))
            .collect();
        rows.sort_by(|(_, a), (_, b)| a.event_id.cmp(&b.event_id));
        let (of, rows): (Vec<Position>, Vec<SlotAsk>) = rows.into_iter().unzip();
        let reserve = Reserve {
            guard: guard(lane),
            scope: &self.scope,
            committed,
            lease,
            rows: &rows,
            origin: &"queue".into(),
            partition: None,
            first_seen_at: FIRST_SEEN,
        };
        let answers = self.runtime.block_on(store.reserve(&reserve))?;
        let mut answers: Vec<(Position, Reserved)> = of.into_iter().zip(answers).collect();
        answers.sort_by_key(|(of, _)| *of);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Each event at the position of its own number. Answers how many were inserted.
    fn reserve(
        &self,
        store: &EmbeddedStore,
        lane: i64,
        committed: Position,
        positions: std::ops::Range<Position>,
    ) -> usize {
        let rows = positions.map(|position| (position, position));
        let answers = self.try_reserve(store, lane, (committed, LONG), rows).expect("reserved");
        answers.iter().filter(|answer| **answer == Reserved::Inserted).count()
    }

    /// What an event meets. The position is one that nobody else has.
    fn meets(&self, store: &EmbeddedStore, lane: i64, of: Position) -> Conflicting {
        match self.try_reserve(store, lane, (0, LONG), [(of, 1_000_000)].into_iter()).expect("reserved")[..] {
            [Reserved::InTheWay(Some(found))] => found,
            ref other => panic!("event {of}: {other:?}"),
        }
    }

    fn claim(&self, store: &EmbeddedStore, position: Position) -> Option<Claim> {
        self.runtime.block_on(store.find(None, &event(position))).expect("found").pop()
    }

    fn claimed(&self, store: &EmbeddedStore, positions: std::ops::Range<Position>) -> Vec<Position> {
        positions.filter(|position| self.claim(store, *position).is_some()).collect()
    }

    fn sweep(&self, store: &EmbeddedStore, lane: i64) -> Option<u64> {
        self.runtime.block_on(store.sweep(LaneId(lane))).expect("an answer")
    }
}

fn taken(released: u64) -> TakenSlot {
    TakenSlot::Taken { released }
}

#[test]
fn a_lease_ends_with_the_process_and_what_is_settled_does_not() {
    let world = World::new();
    let store = world.open();
    assert_eq!(world.take(&store, (1, None), None), taken(0));
    assert_eq!(world.reserve(&store, 1, 0, 0..10), 10);
    assert_eq!(world.reserve(&store, 1, 7, 10..12), 2);
    let slot = |store: &EmbeddedStore| world.runtime.block_on(store.slot(&world.slot)).expect("read").expect("a slot");
    let before = slot(&store);
    assert!(matches!(world.take(&store, (2, Some(1)), None), TakenSlot::Leased { left } if left > LONG / 2));

    let store = world.reopened(store);
    let after = slot(&store);
    let (was, is) = (before.open.expect("open"), after.open.expect("open"));
    assert_eq!((after.owner, is.lane, is.claimed_above), (Token(1), LaneId(1), true));
    assert_eq!((was.seen, was.lease_left > LONG / 2), (LaneSeen { settled: 7, open: true, lapsed: false }, true));
    assert_eq!((is.seen, is.lease_left), (LaneSeen { settled: 7, open: true, lapsed: true }, Duration::ZERO));
    assert_eq!(world.take(&store, (2, Some(1)), None), taken(5));
    assert_eq!(world.take(&store, (2, Some(1)), None), taken(0), "repeated");
    let stale = world.try_reserve(&store, 1, (12, LONG), std::iter::empty());
    assert!(matches!(stale, Err(StoreError::NotOwner)), "{stale:?}");
    assert_eq!(world.claimed(&store, 0..12), (0..7).collect::<Vec<_>>());

    let store = world.reopened(store);
    let lane = Some(LaneSeen { settled: 7, open: false, lapsed: true });
    let found = Conflicting { holder: Holder { lane: Some(LaneId(1)), position: 6 }, lane };
    assert_eq!(world.meets(&store, 2, 6), found);
    assert_eq!(world.runtime.block_on(store.slot_of(LaneId(1))).expect("read"), Some(world.slot.clone()));
    let state = world.runtime.block_on(store.streams()).expect("read").pop().expect("a stream");
    assert_eq!((state.stream, state.opened_for), (world.slot.clone(), Some(world.lane_for.clone())));
}

/// A flush that raises something is on disk; one that raises nothing renews the lease all the same.
#[test]
fn an_idle_flush() {
    let world = World::new();
    let store = world.open();
    world.take(&store, (1, None), None);
    world.reserve(&store, 1, 0, 0..3);
    let flush = |store: &EmbeddedStore, committed, lease| {
        world.try_reserve(store, 1, (committed, lease), std::iter::empty()).expect("flushed");
    };
    flush(&store, 3, OVER);
    assert_eq!(world.meets(&store, 1, 2).lane, Some(LaneSeen { settled: 3, open: true, lapsed: false }), "as it asks");
    flush(&store, 3, OVER);
    let left = |store: &EmbeddedStore| {
        let slot = world.runtime.block_on(store.slot(&world.slot)).expect("read").expect("a slot");
        let open = slot.open.expect("open");
        (open.seen.settled, !open.lease_left.is_zero(), open.claimed_above)
    };
    assert_eq!(left(&store), (3, false, false));
    flush(&store, 2, LONG);
    assert_eq!(left(&store), (3, true, false), "settled never falls");
    assert_eq!(left(&world.reopened(store)), (3, false, false));
}

#[test]
fn what_is_in_doubt_is_swept_after_a_restart() {
    let world = World::new();
    let store = world.open();
    world.take(&store, (1, None), None);
    for n in 0..4 {
        world.reserve(&store, 1, 0, n * 5..n * 5 + 5);
    }
    let former = Former { guard: guard(1), committed: 6, published: &[8, 13], in_doubt: &[7, 19] };
    assert_eq!(world.take(&store, (2, Some(1)), Some(former)), taken(10));
    let kept = [0, 1, 2, 3, 4, 5, 7, 8, 13, 19];
    assert_eq!(world.claimed(&store, 0..20), kept);
    let in_doubt = |lapsed| Conflicting {
        holder: Holder { lane: Some(LaneId(1)), position: 19 },
        lane: Some(LaneSeen { settled: 6, open: false, lapsed }),
    };
    let for_ever = Conflicting { holder: Holder { lane: None, position: 13 }, lane: None };
    assert_eq!((world.meets(&store, 2, 19), world.meets(&store, 2, 13)), (in_doubt(false), for_ever));
    assert_eq!(world.sweep(&store, 1), None, "its lease runs");
    assert_eq!(world.sweep(&store, 2), None, "it is open");

    let store = world.reopened(store);
    assert_eq!((world.meets(&store, 2, 19), world.meets(&store, 2, 13)), (in_doubt(true), for_ever));
    assert_eq!(world.claimed(&store, 0..20), kept);
    let in_ring = store.lock().expect("whole").tails[&LaneId(1)].places(LaneId(1), 6).is_some();
    assert!(in_ring, "it is found without a scan");
    let claim = world.claim(&store, 13).expect("there");
    assert_eq!((claim.topic.as_str(), claim.partition, claim.offset), ("queue", None, None));
    assert_eq!((claim.first_seen_at, claim.stream), (FIRST_SEEN, None));
    assert_eq!(world.sweep(&store, 1), Some(2));
    assert_eq!(world.sweep(&store, 1), Some(0), "repeated");
    assert_eq!(world.sweep(&store, 2), None, "an open lane is taken, not swept");
    assert_eq!(world.sweep(&store, 99), None, "nobody's");
    let swept = [0, 1, 2, 3, 4, 5, 8, 13];
    assert_eq!(world.claimed(&store, 0..20), swept);
    let store = world.reopened(store);
    assert_eq!((world.sweep(&store, 1), world.claimed(&store, 0..20)), (Some(0), swept.to_vec()));
}

/// Fewer and more than the ring has room for, taken over by this process and by the next.
#[test]
fn every_unsettled_claim_is_found_however_many_windows_are_under_way() {
    for (windows, in_ring) in [(10, true), (60, true), (300, false)] {
        for reopened in [false, true] {
            let world = World::new();
            let mut store = world.open();
            world.take(&store, (1, None), None);
            assert_eq!(world.reserve(&store, 1, 0, 0..30), 30);
            (30..windows).for_each(|at| assert_eq!(world.reserve(&store, 1, 9, at..at + 1), 1));
            if reopened {
                store = world.reopened(store);
            }
            let all = windows.max(30);
            let why = format!("{windows} windows, reopened: {reopened}");
            let ring = store.lock().expect("whole").tails[&LaneId(1)].places(LaneId(1), 9);
            assert_eq!(ring.is_some(), in_ring, "{why}");
            // The highest one is in doubt, and has to be found once more.
            let (committed, published, in_doubt) = (20, &[25][..], &[all - 1][..]);
            let former = Former { guard: guard(1), committed, published, in_doubt };
            assert_eq!(world.take(&store, (2, Some(1)), Some(former)), taken((all - 22) as u64), "{why}");
            let store = world.reopened(store);
            assert_eq!(world.sweep(&store, 1), Some(1), "{why}");
            let kept: Vec<Position> = (0..20).chain([25]).collect();
            assert_eq!(world.claimed(&store, 0..all), kept, "{why}");
            // What has nothing left needs no ring, and is never looked through again.
            let inner = store.lock().expect("whole");
            assert!(!inner.slot_lanes[&LaneId(1)].unsettled && !inner.tails.contains_key(&LaneId(1)), "{why}");
            assert_eq!(inner.tails_space.iter().count(), 0, "{why}");
        }
    }
}

#[test]
fn a_release_takes_what_it_names_and_no_more() {
    let world = World::new();
    let store = world.open();
    world.take(&store, (1, None), None);
    world.reserve(&store, 1, 0, 0..10);
    world.reserve(&store, 1, 0, 10..14);
    let release = |committed, published: &[Position], from, to| {
        world.runtime.block_on(store.release(guard(1), committed, published, from, to)).expect("released")
    };
    assert_eq!(release(2, &[3, 6], 5, 10), 4);
    assert_eq!(world.claimed(&store, 0..14), [0, 1, 2, 3, 4, 6, 10, 11, 12, 13]);
    let lane_of = |store: &EmbeddedStore, position| world.claim(store, position).expect("there").holder.lane;
    let lanes = |store: &EmbeddedStore| [2, 3, 4, 6].map(|position| lane_of(store, position).map(|lane| lane.0));
    assert_eq!(lanes(&store), [Some(1), None, Some(1), None]);
    assert_eq!(release(2, &[3, 6], 5, 10), 0, "there is nothing left of it");
    let store = world.reopened(store);
    assert_eq!(lanes(&store), [Some(1), None, Some(1), None]);
    assert_eq!(world.take(&store, (2, Some(1)), None), taken(6), "2, 4 and 10 to 13");
}

/// Its claims are in flight as long as nothing here says that they are settled.
#[test]
fn a_partitions_claim_in_the_way() {
    let world = World::new();
    let store = world.open();
    world.take(&store, (1, None), None);
    let stream = StreamId::from_stored("kafka:c/g/orders/t/0");
    let kafka = guard(77);
    let found = world.runtime.block_on(async {
        store.take(&Take { stream: &stream, token: kafka.token, instead_of: None }).await.expect("taken");
        let (token, lane, lane_for) = (kafka.token, kafka.lane, &world.lane_for);
        let open = OpenLane { stream: &stream, token, lane, cut: None, lane_for, now: FIRST_SEEN };
        store.open_lane(&open).await.expect("opened");
        let ask = Ask {
            event_id: event(5),
            week: Week::UNDATED,
            lane,
            position: 400,
            topic: "orders".into(),
            partition: 0,
            offset: 400,
        };
        let (guards, rows) = ([kafka], [ask]);
        let window = ClaimWindow { scope: &world.scope, guards: &guards, rows: &rows, first_seen_at: FIRST_SEEN };
        store.claim(&window).await.expect("claimed")
    });
    assert_eq!(found, [Claimed::Inserted]);
    let holder = Holder { lane: Some(kafka.lane), position: 400 };
    let seen = |settled, open| Conflicting { holder, lane: Some(LaneSeen { settled, open, lapsed: false }) };
    assert_eq!(world.meets(&store, 1, 5), seen(0, true), "under way, for all that is known");
    let closed = world.runtime.block_on(store.close_lane(&stream, kafka, 401, FIRST_SEEN));
    assert_eq!(closed.expect("closed"), 0);
    assert_eq!(world.meets(&store, 1, 5), seen(Position::MAX, false), "what is left was settled");
    assert_eq!((world.sweep(&store, 77), world.claimed(&store, 5..6)), (None, vec![5]), "never swept");
}

/// By an operator's hand: what is below the cut counts as done from then on.
#[test]
fn a_slot_that_is_closed_at_a_cut() {
    let world = World::new();
    let store = world.open();
    world.take(&store, (1, None), None);
    world.reserve(&store, 1, 2, 0..10);
    let closed = world.runtime.block_on(store.close_lane(&world.slot, guard(1), 6, FIRST_SEEN));
    assert_eq!(closed.expect("closed"), 4);
    let store = world.reopened(store);
    assert_eq!((world.sweep(&store, 1), world.claimed(&store, 0..10)), (Some(0), (0..6).collect()));
    assert_eq!(world.take(&store, (2, Some(1)), None), taken(0));
    assert_eq!(world.meets(&store, 2, 5).lane, Some(LaneSeen { settled: 6, open: false, lapsed: true }));
}
