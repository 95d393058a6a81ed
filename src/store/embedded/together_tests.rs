use super::*;
use crate::protocol::event::{EventId, Week};
use crate::protocol::lane::{Holder, LaneId, StreamId, Token};
use crate::protocol::slot::{Conflicting, LaneSeen};
use crate::store::embedded::EmbeddedStore;
use crate::store::slots::{SlotStore, TakeSlot};
use crate::store::{ClaimStore, LaneFor};

const LONG: Duration = Duration::from_secs(3_600);
const NOW: EventTime = EventTime::from_micros(1_767_225_600_000_000);

fn id(text: &str) -> EventId {
    EventId::from_stored(text)
}

fn guard(lane: i64) -> Guard {
    Guard { lane: LaneId(lane), token: Token(lane) }
}

struct World {
    store: EmbeddedStore,
    scope: Scope,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl World {
    /// With so many slots, each with a lane of its number.
    fn new(lanes: i64) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path()).expect("the store opens");
        let scope = Scope::new("billing").expect("a scope");
        let lane_for = LaneFor { scope: scope.clone(), recipe: "json:/id".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for lane in 1..=lanes {
            let slot = StreamId::slot("orders", &format!("pod/{lane}"));
            let Guard { token, lane } = guard(lane);
            let (slot, lane_for) = (&slot, &lane_for);
            let take = TakeSlot { slot, token, lane, instead_of: None, former: None, lane_for, lease: LONG, now: NOW };
            runtime.block_on(store.take_slot(&take)).expect("the slot");
        }
        World { store, scope, runtime, _folder: folder }
    }

    fn asked(&self, lane: i64, committed: Position, rows: &[(&str, Position)]) -> Arc<Asked> {
        self.asked_by(guard(lane), committed, rows)
    }

    fn asked_by(&self, guard: Guard, committed: Position, rows: &[(&str, Position)]) -> Arc<Asked> {
        let ask = |&(text, position): &(&str, Position)| SlotAsk { event_id: id(text), week: Week::UNDATED, position };
        let (rows, origin): (Vec<SlotAsk>, _) = (rows.iter().map(ask).collect(), "acme/orders".into());
        let (scope, first_seen_at) = (&self.scope, NOW);
        let reserve = Reserve {
            guard,
            scope,
            committed,
            lease: LONG,
            rows: &rows,
            origin: &origin,
            partition: None,
            first_seen_at,
        };
        self.store.queue.push(&reserve)
    }

    /// Batches that were written so far.
    fn batches(&self) -> u64 {
        self.store.inner.lock().expect("no panic").database.seqno()
    }

    fn together(&self) {
        let queued = self.store.queue.take();
        reserve(self.store.inner.lock().expect("no panic"), &queued);
    }
}

fn held(lane: i64, position: Position, settled: Position) -> Reserved {
    let holder = Holder { lane: Some(LaneId(lane)), position };
    Reserved::InTheWay(Some(Conflicting { holder, lane: Some(LaneSeen { settled, open: true, lapsed: false }) }))
}

/// As one after another: the next sees what those before it in the batch have claimed and settled.
#[test]
fn the_next_sees_the_one_before() {
    let world = World::new(3);
    let first = world.asked(1, 0, &[("a", 0), ("b", 1)]);
    let second = world.asked(2, 0, &[("b", 0), ("c", 1)]);
    let settling = world.asked(1, 2, &[]);
    let third = world.asked(3, 0, &[("a", 0), ("c", 1), ("d", 2)]);
    let before = world.batches();
    world.together();
    assert_eq!(world.batches() - before, 1);
    let answers = |asked: &Asked| asked.answer().expect("an answer").expect("no error");
    assert_eq!(answers(&first), [Reserved::Inserted; 2]);
    assert_eq!(answers(&second), [held(1, 1, 0), Reserved::Inserted]);
    assert_eq!(answers(&settling), []);
    assert_eq!(answers(&third), [held(1, 0, 2), held(2, 1, 0), Reserved::Inserted]);
    // And so it stands in the store.
    let again = world.asked(3, 3, &[("a", 3), ("b", 4), ("c", 5), ("d", 6)]);
    world.together();
    assert_eq!(answers(&again), [held(1, 0, 2), held(1, 1, 2), held(2, 1, 0), held(3, 2, 3)]);
}

/// Whoever is refused has written nothing, and holds nobody up.
#[test]
fn one_that_is_refused_is_left_out() {
    let world = World::new(2);
    let first = world.asked(1, 0, &[("a", 0)]);
    let stale = world.asked_by(Guard { lane: LaneId(1), token: Token(9) }, 0, &[("b", 0)]);
    let unknown = world.asked(7, 0, &[("c", 0)]);
    let last = world.asked(2, 0, &[("d", 0)]);
    world.together();
    for refused in [stale, unknown] {
        assert!(matches!(refused.answer(), Some(Err(StoreError::NotOwner))));
    }
    for taken in [first, last] {
        assert_eq!(taken.answer().expect("an answer").expect("no error"), [Reserved::Inserted]);
    }
    for (text, claims) in [("a", 1), ("b", 0), ("c", 0), ("d", 1)] {
        let found = world.runtime.block_on(world.store.find(None, &id(text))).expect("an answer");
        assert_eq!(found.len(), claims, "{text}");
    }
}

/// Those that come while the store is busy share a batch, and so a sync.
#[test]
fn callers_at_the_same_time_share_a_sync() {
    const CALLERS: i64 = 8;
    let world = World::new(CALLERS);
    let before = world.batches();
    std::thread::scope(|scope| {
        let busy = world.store.draft(NOW).expect("nobody has it");
        for lane in 1..=CALLERS {
            let (store, of_scope) = (&world.store, &world.scope);
            scope.spawn(move || {
                let rows = [SlotAsk { event_id: id(&format!("e{lane}")), week: Week::UNDATED, position: 0 }];
                let (guard, origin) = (guard(lane), "acme/orders".into());
                let reserve = Reserve {
                    guard,
                    scope: of_scope,
                    committed: 0,
                    lease: LONG,
                    rows: &rows,
                    origin: &origin,
                    partition: None,
                    first_seen_at: NOW,
                };
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                assert_eq!(runtime.block_on(store.reserve(&reserve)).expect("a reserve"), [Reserved::Inserted]);
            });
        }
        while world.store.queue.0.lock().expect("no panic").len() < CALLERS as usize {
            std::thread::yield_now();
        }
        drop(busy);
    });
    assert_eq!(world.batches() - before, 1);
}
