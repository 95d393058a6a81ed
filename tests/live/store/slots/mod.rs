//! The promises of lanes of instances ([`semel::store::slots`]), one suite for every store. A store joins by a line
//! `slots!(name, make)`.
//!
//! Nothing here depends on how fast the machine is: a lease that is to run runs for an hour, one that is to be over is
//! over at once, or is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel::protocol::lane::{Holder, LaneId, Position, StreamId, Token};
use semel::protocol::slot::{Conflicting, LaneSeen};
use semel::store::slots::{Former, OpenSlotLane, Reserve, Reserved, SlotAsk, SlotStore, TakeSlot, TakenSlot};
use semel::store::{Guard, StoreError};

use super::kit::{NOW, fresh, id, lane_for, scope, week};

mod expires;
mod histories;
mod leases;
mod opens;
mod races;
mod reserves;
mod takes;

pub type Shared = Arc<dyn SlotStore>;
pub type Subject = super::Subject<dyn SlotStore>;

pub const ORIGIN: &str = "queue of orders";
pub const LONG: Duration = Duration::from_secs(3_600);
pub const SHORT: Duration = Duration::from_millis(200);
pub const OVER: Duration = Duration::ZERO;

/// One run of an instance.
#[derive(Debug, Clone)]
pub struct Run {
    pub slot: StreamId,
    pub lane: LaneId,
    pub token: Token,
}

/// What a reserve answered, by event id.
pub type Answers = BTreeMap<String, Reserved>;

impl Run {
    /// Draws what a run draws. It has taken nothing yet.
    pub fn of(name: &str) -> Run {
        Run { slot: StreamId::slot("orders", name), lane: LaneId(fresh()), token: Token(fresh()) }
    }

    /// The first run of a slot.
    pub async fn start(store: &dyn SlotStore, name: &str, lease: Duration) -> Run {
        let run = Run::of(name);
        let taken = run.take(store, None, None, lease).await.expect("the slot");
        assert_eq!(taken, TakenSlot::Taken { released: 0 });
        run
    }

    /// Another run of the same slot, which has taken nothing yet.
    pub fn next(&self) -> Run {
        Run { slot: self.slot.clone(), lane: LaneId(fresh()), token: Token(fresh()) }
    }

    pub async fn take(
        &self,
        store: &dyn SlotStore,
        instead_of: Option<&Run>,
        former: Option<Former<'_>>,
        lease: Duration,
    ) -> Result<TakenSlot, StoreError> {
        let (lane_for, instead_of) = (lane_for(), instead_of.map(|run| run.token));
        let Run { slot, lane, token } = self;
        let (lane, token) = (*lane, *token);
        let take = TakeSlot { slot, token, lane, instead_of, former, lane_for: &lane_for, lease, now: NOW };
        store.take_slot(&take).await
    }

    pub fn guard(&self) -> Guard {
        Guard { lane: self.lane, token: self.token }
    }

    /// What it knows of its lane when it gives it up.
    pub fn knows(&self, committed: Position) -> Former<'static> {
        Former { guard: self.guard(), committed, published: &[], in_doubt: &[] }
    }

    /// Reserves these ids from `position` on, each at the next one, with everything below `committed` published.
    pub async fn reserve(
        &self,
        store: &dyn SlotStore,
        ids: &[&str],
        from: Position,
        (committed, lease): (Position, Duration),
    ) -> Result<Answers, StoreError> {
        let ask = |(event_id, position): (&&str, Position)| SlotAsk { event_id: id(event_id), week: week(), position };
        let mut rows: Vec<SlotAsk> = ids.iter().zip(from..).map(ask).collect();
        rows.sort_by(|a, b| a.event_id.cmp(&b.event_id));
        let (scope, origin): (_, Arc<str>) = (scope(), ORIGIN.into());
        let (guard, first_seen_at) = (self.guard(), NOW);
        let (rows, origin) = (&rows[..], &origin);
        let reserve = Reserve { guard, scope: &scope, committed, lease, rows, origin, partition: None, first_seen_at };
        let answers = store.reserve(&reserve).await?;
        assert_eq!(answers.len(), rows.len(), "one answer a row");
        Ok(rows.iter().map(|row| row.event_id.as_str().to_owned()).zip(answers).collect())
    }

    /// Reserves what nobody holds.
    pub async fn claims(&self, store: &dyn SlotStore, ids: &[&str], from: Position) {
        let answers = self.reserve(store, ids, from, (0, LONG)).await.expect("a reserve");
        assert!(answers.values().all(|answer| *answer == Reserved::Inserted), "{answers:?}");
    }

    /// The lane that the slot has open.
    pub async fn open(&self, store: &dyn SlotStore) -> OpenSlotLane {
        store.slot(&self.slot).await.expect("an answer").expect("a slot").open.expect("an open lane")
    }

    /// A claim of this run that is in the way of others.
    pub fn at(&self, position: Position, settled: Position, (open, lapsed): (bool, bool)) -> Reserved {
        let holder = Holder { lane: Some(self.lane), position };
        Reserved::InTheWay(Some(Conflicting { holder, lane: Some(LaneSeen { settled, open, lapsed }) }))
    }
}

pub const RUNS: (bool, bool) = (true, false);
pub const LAPSED: (bool, bool) = (true, true);
pub const LEFT_BEHIND: (bool, bool) = (false, false);
pub const LEFT_BEHIND_LAPSED: (bool, bool) = (false, true);

pub fn taken(released: u64) -> TakenSlot {
    TakenSlot::Taken { released }
}

/// It is refused, since it does not own the lane.
#[track_caller]
pub fn not_owner<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::NotOwner)), "{answer:?}");
}

/// It is refused for now, since a lease of an hour runs.
#[track_caller]
pub fn leased(answer: Result<TakenSlot, StoreError>) {
    let Ok(TakenSlot::Leased { left }) = answer else { panic!("not leased: {answer:?}") };
    assert!(left > LONG - Duration::from_secs(600) && left <= LONG, "{left:?}");
}

/// How many claims a lane has at or above a position.
pub async fn claims_of(store: &dyn SlotStore, lane: LaneId, from: Position) -> u64 {
    store.free(&semel::store::Free::Unsettled { lane, from }, true).await.expect("a count")
}

macro_rules! slots {
    ($store:ident, $make:expr) => {
        slots!($store, $make;
            reserves: reserves, guarded, settled_never_falls, in_the_way, of_partitions, all_or_nothing,
                refuses_bad_windows, windows_of_any_size, survives, given_back, offsets;
            leases: of_reserves, of_others, of_ones_own, left_in_doubt, of_tokens;
            takes: first, repeated, once, published_for_ever, bounded_release, another_slot,
                closed_by_hand;
            opens: tokens, opened, guarded, slots_of_lanes, standings;
            races: one_inserts, one_taker, a_take_ends_reserves, of_one_lane, comes_and_goes;
            expires: by_age, settled_only, in_batches;
            histories: one_after_another;
        );
    };
    ($store:ident, $make:expr; $($part:ident: $($test:ident),*;)*) => {
        mod $store {
            $(mod $part {
                $(#[test]
                fn $test() {
                    let make = async || $make(|store| store as crate::store::slots::Shared).await;
                    crate::store::run(make, crate::store::slots::$part::$test);
                })*
            })*
        }
    };
}

mod conformance {
    slots!(memory, crate::store::subjects::memory);
    slots!(embedded, crate::store::subjects::embedded);
    slots!(postgres, crate::store::subjects::postgres);
    slots!(pgbouncer, crate::store::subjects::pgbouncer);
}
