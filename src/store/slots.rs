//! What a store promises where it is told how far a lane is settled: the lanes of instances, and those of partitions whose
//! sink has no transactions.
//!
//! A slot is a stream ([`StreamId::slot`], [`StreamId::partition`]) whose open lane has, beside what a Kafka partition's has
//! otherwise, a *settled* position and a *lease*. [`crate::protocol::slot`] says what they mean and decides; the model of it in the tests
//! (`tests/protocol/slots/store.rs`) is what each call here has to do. On top of [`ClaimStore`]'s promises:
//!
//! 1. **One read.** A claim that was in the way and its lane are reported as one statement read them, and a claim that
//!    was gone by then as gone.
//! 2. **The store's clock.** A lease is set and judged by the store's clock alone.
//! 3. **Guarded.** Under a lane that is not open, or not this token's, nothing is written: [`StoreError::NotOwner`].
//! 4. **Settled never falls**, and the lease is never renewed without it.
//! 5. **Repeatable.** Takeovers and openings may be repeated as they are after an unknown outcome: tokens and lane ids
//!    are the caller's own. A *reserve* or *release* of unknown outcome is not: the lane is given up and the slot taken
//!    with a new one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{ClaimStore, Guard, LaneFor, StoreError};
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{Cut, LaneId, Position, StreamId, Token};
use crate::protocol::slot::{Conflicting, LaneSeen};

/// A window of an instance. Without rows it is the idle flush.
#[derive(Debug, Clone)]
pub struct Reserve<'a> {
    pub guard: Guard,
    pub scope: &'a Scope,
    /// The lane's settled position is raised to this: everything below is published.
    pub committed: Position,
    /// From now on, by the store's clock.
    pub lease: Duration,
    /// Distinct keys, ascending by (event id, week); each has a position of its own on the guard's lane.
    pub rows: &'a [SlotAsk],
    /// The name that claims keep of where their messages came from: a queue, `tenant/table`, a topic.
    pub origin: &'a Arc<str>,
    /// Of a partition's lane: claims keep it, and their positions as offsets.
    pub partition: Option<i32>,
    pub first_seen_at: EventTime,
}

#[derive(Debug, Clone)]
pub struct SlotAsk {
    pub event_id: EventId,
    pub week: Week,
    pub position: Position,
}

impl Reserve<'_> {
    /// Refuses rows that break what is said above. Every store asks this before it does anything.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.rows.is_sorted_by(|a, b| (&a.event_id, a.week) < (&b.event_id, b.week)) {
            Ok(())
        } else {
            Err(StoreError::Rejected("the keys of a window are not distinct and ascending".into()))
        }
    }
}

/// The answer to one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    Inserted,
    /// None: the claim in the way was gone by the time that it was read.
    InTheWay(Option<Conflicting>),
}

/// A lane of whatever kind, from what a store has of it: the settled position and what is left of the lease, which a
/// Kafka partition's lane has not. As far as the store knows, the claims of such a lane are in flight while it is open;
/// once it is closed, those that it still has are settled, since closing released the others.
pub(super) fn lane_seen(settled: Option<Position>, open: bool, lease_left: Option<Duration>) -> LaneSeen {
    let settled = settled.unwrap_or(if open { 0 } else { Position::MAX });
    LaneSeen { settled, open, lapsed: lease_left == Some(Duration::ZERO) }
}

/// A slot as one statement reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub owner: Token,
    pub open: Option<OpenSlotLane>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSlotLane {
    pub lane: LaneId,
    pub seen: LaneSeen,
    /// Zero where it has lapsed.
    pub lease_left: Duration,
    /// A claim of the lane lies at or above its settled position.
    pub claimed_above: bool,
}

/// A stream as its next owner finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSeen {
    pub owner: Token,
    pub open: Option<LaneStanding>,
    /// Of the open lane.
    pub opened_for: Option<LaneFor>,
}

/// How far an open lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneStanding {
    pub lane: LaneId,
    pub settled: Position,
    /// Zero where it has lapsed.
    pub lease_left: Duration,
}

/// Taking a slot for a sink without transactions: release what the lane before left unsettled, close it, open `lane`.
/// One commit.
#[derive(Debug, Clone)]
pub struct TakeSlot<'a> {
    pub slot: &'a StreamId,
    pub token: Token,
    pub lane: LaneId,
    /// The owner that was seen before; None where the slot had no row.
    pub instead_of: Option<Token>,
    /// What the taker itself had there, if this is its own slot after a fault: then no lease is waited for.
    pub former: Option<Former<'a>>,
    pub lane_for: &'a LaneFor,
    /// Of the lane to be opened. Zero for another's slot: nobody extends it, its next run opens one of its own.
    pub lease: Duration,
    pub now: EventTime,
}

/// What a run knows of the lane that it gives up.
#[derive(Debug, Clone, Copy)]
pub struct Former<'a> {
    pub guard: Guard,
    /// Everything below is published.
    pub committed: Position,
    /// At or above `committed` and published all the same: settled for ever, each by itself (their rows lose their
    /// lane). Ascending.
    pub published: &'a [Position],
    /// At or above `committed` and in doubt: their claims stay behind on the closed lane until its lease has lapsed.
    /// Ascending.
    pub in_doubt: &'a [Position],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenSlot {
    /// How many claims were released. Zero where it was done already.
    Taken { released: u64 },
    /// The lease of the lane before still runs; nothing was written.
    Leased { left: Duration },
}

/// The last step of taking a slot whose truth is in Kafka, or a partition: only where `token` owns it and `cut.prev` is its open lane,
/// else [`StoreError::NotOwner`]. One commit.
#[derive(Debug, Clone)]
pub struct OpenSlot<'a> {
    pub slot: &'a StreamId,
    pub token: Token,
    pub lane: LaneId,
    /// None where the slot never had a lane.
    pub cut: Option<Cut>,
    /// Of the lane to be opened: where it begins.
    pub settled: Position,
    pub lane_for: &'a LaneFor,
    pub lease: Duration,
    pub now: EventTime,
}

/// A look at some claims of the undated week, of which those go that are kept long enough.
#[derive(Debug, Clone, Copy)]
pub struct Expire<'a> {
    pub scope: &'a Scope,
    /// Claims that were first seen before this go, where they are settled.
    pub seen_before: EventTime,
    /// Where the look before ended. None: from the first one on.
    pub after: Option<&'a Cursor>,
    /// So many claims are looked at, at most.
    pub claims_max: usize,
}

/// A place in the store's own order of a scope's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub(super) Box<[u8]>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    pub deleted: u64,
    /// None: there was no claim left to look at.
    pub reached: Option<Cursor>,
}

#[async_trait]
pub trait SlotStore: ClaimStore {
    /// Raises settled and lease, and claims: one answer per row, in their order. One commit; a second round trip where
    /// rows were in the way. An own claim that is in the way is reported like any other.
    ///
    /// Cancel safety: a dropped call has an unknown outcome.
    async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Reserved>, StoreError>;

    /// Raises settled to `committed`, marks `published` (positions at or above it) as settled for ever, and deletes the
    /// claims from `from` to below `to` that are not among them: surely not published. Answers how many it deleted. One
    /// commit.
    async fn release(
        &self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        from: Position,
        to: Position,
    ) -> Result<u64, StoreError>;

    /// Deletes these claims of the guard's lane, each at exactly its position: surely not published. Answers how many there
    /// were. One commit; reads no other claim.
    async fn give_back(&self, guard: Guard, scope: &Scope, claims: &[SlotAsk]) -> Result<u64, StoreError>;

    /// None where nobody ever took the stream. One round trip; reads no claim.
    async fn standing(&self, stream: &StreamId) -> Result<Option<StreamSeen>, StoreError>;

    /// None where the slot was never taken. One round trip.
    async fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, StoreError>;

    /// The slot that a lane was opened on. None for lanes that the store does not know.
    async fn slot_of(&self, lane: LaneId) -> Result<Option<StreamId>, StoreError>;

    /// [`StoreError::NotOwner`] where neither `instead_of` nor already `token` stands there.
    async fn take_slot(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError>;

    /// For a slot whose truth is in Kafka, or a partition: the token alone, in place of `instead_of` (None: the slot has no row). With
    /// `own` no lease is waited for; without, [`TakenSlot::Leased`] where one runs.
    async fn write_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError>;

    /// Answers how many claims were released. Repeating it with the same lane is a no-op that answers 0.
    async fn open_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError>;

    /// Deletes what was left in doubt on a closed lane whose lease is over, at or above its settled position. None
    /// where the lane is open or its lease runs: nothing was deleted.
    async fn sweep(&self, lane: LaneId) -> Result<Option<u64>, StoreError>;

    /// Deletes claims of the undated week whose time is over, of those that it looks at. A claim that is not known to be
    /// settled stays, and so does one that another call is at work on. One commit at most, of one small batch: no claim
    /// waits long for it. Repeatable.
    async fn expire(&self, expire: &Expire<'_>) -> Result<Expired, StoreError>;

    /// Every scope that has, or had, claims.
    async fn scopes(&self) -> Result<Vec<Scope>, StoreError>;
}
