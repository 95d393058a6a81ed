//! What is this store's own beside the promises that every store keeps.

use std::sync::Arc;

use super::*;
use crate::protocol::lane::{Cut, Token};
use crate::store::{Ask, LaneFor};

const STREAM: &str = "kafka:c/g/t/0";

fn event(position: i64) -> EventId {
    // In an order of their own, as ids are.
    EventId::from_stored(format!("event-{:08x}", (position as u32).wrapping_mul(0x9e37_79b1)))
}

struct World {
    folder: tempfile::TempDir,
    scope: Scope,
    runtime: tokio::runtime::Runtime,
}

impl World {
    fn new() -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        World { folder, scope: Scope::new("billing").expect("a scope"), runtime }
    }

    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(self.folder.path()).expect("the store opens")
    }

    fn open_lane(&self, store: &EmbeddedStore, lane: i64, cut: Option<Cut>) -> u64 {
        let stream = StreamId::from_stored(STREAM);
        let lane_for = LaneFor { scope: self.scope.clone(), recipe: "header:id".into() };
        let (token, now) = (Token(lane), EventTime::from_micros(0));
        self.runtime.block_on(async {
            store.take(&Take { stream: &stream, token, instead_of: None }).await.expect("taken");
            let open = OpenLane { stream: &stream, token, lane: LaneId(lane), cut, lane_for: &lane_for, now };
            store.open_lane(&open).await.expect("opened")
        })
    }

    fn claim(&self, store: &EmbeddedStore, lane: i64, positions: std::ops::Range<i64>) -> usize {
        let topic: Arc<str> = "orders".into();
        let ask = |position| Ask {
            event_id: event(position),
            week: Week::UNDATED,
            lane: LaneId(lane),
            position,
            topic: topic.clone(),
            partition: 0,
            offset: position,
        };
        let mut rows: Vec<Ask> = positions.map(ask).collect();
        rows.sort_by(|a, b| a.event_id.cmp(&b.event_id));
        let guards = [Guard { lane: LaneId(lane), token: Token(lane) }];
        let first_seen_at = EventTime::from_micros(0);
        let window = ClaimWindow { scope: &self.scope, guards: &guards, rows: &rows, first_seen_at };
        let answers = self.runtime.block_on(store.claim(&window)).expect("claimed");
        answers.iter().filter(|answer| **answer == Claimed::Inserted).count()
    }

    fn is_claimed(&self, store: &EmbeddedStore, position: i64) -> bool {
        !self.runtime.block_on(store.find(None, &event(position))).expect("found").is_empty()
    }
}

/// Above and below what the ring of recent windows covers, before and after the store was opened again.
#[test]
fn a_cut_releases_exactly_what_lies_at_or_above_it() {
    const WINDOWS: i64 = 40;
    for reopened in [false, true] {
        for cut in [0, 1, 95, 239, 240, 241, 399, 400, 1_000] {
            let world = World::new();
            let mut store = world.open();
            world.open_lane(&store, 1, None);
            (0..WINDOWS).for_each(|n| assert_eq!(world.claim(&store, 1, n * 10..n * 10 + 10), 10));
            if reopened {
                drop(store);
                store = world.open();
            }
            let all = WINDOWS * 10;
            let released = world.open_lane(&store, 2, Some(Cut { prev: LaneId(1), cut }));
            assert_eq!(released, (all - cut.min(all)) as u64, "cut {cut}, reopened: {reopened}");
            for position in 0..all {
                assert_eq!(world.is_claimed(&store, position), position < cut, "{position}, cut {cut}");
            }
            assert_eq!(world.claim(&store, 2, 0..all), (all - cut.min(all)) as usize, "free again, or not");
        }
    }
}

/// A window that is claimed again, and one that only in part is new.
#[test]
fn the_ring_holds_what_was_inserted_and_no_more() {
    let world = World::new();
    let store = world.open();
    world.open_lane(&store, 1, None);
    for _ in 0..30 {
        world.claim(&store, 1, 0..10);
    }
    world.claim(&store, 1, 5..15);
    assert_eq!(world.open_lane(&store, 2, Some(Cut { prev: LaneId(1), cut: 8 })), 7);
    assert_eq!(world.claim(&store, 2, 0..15), 7);
}

#[test]
fn a_second_opener_is_told_who_has_it() {
    let world = World::new();
    let first = world.open();
    let second = EmbeddedStore::open(world.folder.path()).err().expect("refused");
    let words = second.to_string();
    let process = std::process::id().to_string();
    assert!(words.contains(&process) && words.contains(&*world.folder.path().to_string_lossy()), "{words}");
    drop(first);
    drop(world.open());
}

#[test]
fn a_folder_that_was_left_half_made_is_made_again() {
    let world = World::new();
    drop(world.open());
    let (whole, half) = (world.folder.path().join("semel.db"), world.folder.path().join("semel.db.new"));
    std::fs::rename(&whole, &half).expect("as before the rename");
    std::fs::remove_file(half.join("version")).expect("as before its end");
    let store = world.open();
    world.open_lane(&store, 1, None);
    assert_eq!(world.claim(&store, 1, 0..3), 3);
}

#[test]
fn a_folder_of_somebody_else_is_refused() {
    let world = World::new();
    std::fs::create_dir(world.folder.path().join("semel.db")).expect("made");
    assert!(matches!(EmbeddedStore::open(world.folder.path()), Err(OpenError::Foreign { .. })));
}

/// Numbers of scopes and origins that a dropped draft drew are not in the store, and others draw them again.
#[test]
fn a_draft_that_is_dropped_has_written_nothing() {
    let world = World::new();
    let store = world.open();
    let now = EventTime::from_micros(0);
    let claim = |commit: bool, scope: &str, topic: &str, id: &str| {
        let mut draft = store.draft(now).expect("a draft");
        let scope = draft.scope(&Scope::new(scope).expect("a scope"));
        let origin = draft.unlaned_origin(&topic.into());
        let key = ClaimKey::new(scope, &EventId::from_stored(id), Week::UNDATED);
        let first = draft.claim_unlaned(origin, &key, 7).expect("asked");
        draft.note(b"n", id.as_bytes());
        if commit {
            draft.commit().expect("committed");
        }
        first
    };
    assert!(claim(false, "dropped", "a", "x"));
    assert_eq!(store.note(b"n").expect("read"), None);
    assert!(claim(true, "kept", "b", "x"));
    assert!(!claim(true, "kept", "c", "x"));
    drop(store);
    let store = world.open();
    let found = world.runtime.block_on(store.find(None, &EventId::from_stored("x"))).expect("found");
    let found: Vec<_> = found.iter().map(|claim| (claim.scope.as_str(), claim.topic.as_str(), claim.offset)).collect();
    assert_eq!(found, [("kept", "b", Some(7))]);
    assert_eq!(store.note(b"n").expect("read").as_deref(), Some(&b"x"[..]));
}

#[test]
fn a_retired_week_is_gone_after_a_restart_too() {
    let world = World::new();
    let weeks = |store: &EmbeddedStore| world.runtime.block_on(store.weeks()).expect("weeks");
    let old = Week::of(EventTime::from_micros(0));
    let store = world.open();
    world.runtime.block_on(store.ensure_weeks(old, old.plus(2))).expect("made");
    assert_eq!(store.retire(old.plus(2)).expect("retired"), [old, old.plus(1)]);
    assert_eq!(weeks(&store), [Week::UNDATED, old.plus(2)]);
    drop(store);
    let store = world.open();
    assert_eq!(weeks(&store), [Week::UNDATED, old.plus(2)]);
    // Made again it is empty.
    world.runtime.block_on(store.ensure_weeks(old, old)).expect("made again");
    assert_eq!(weeks(&store), [Week::UNDATED, old, old.plus(2)]);
}
