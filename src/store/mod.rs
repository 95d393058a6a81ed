//! Where claims are kept, and what every store promises.
//!
//! [`ClaimStore`] has three implementations: [`postgres`] (many instances), [`embedded`] (one process, a folder) and
//! [`memory`] (the reference that the conformance suite compares the others with). They share these promises:
//!
//! 1. **Insert or nothing.** Of any number of concurrent callers that claim one key, exactly one finds
//!    [`Claimed::Inserted`]; all others find who holds it.
//! 2. **Durable.** What a call that returned `Ok` wrote survives a kill and a power cut.
//! 3. **All or nothing.** A claim of a window writes all its rows or none.
//! 4. **Guarded.** A claim, an opening or a drain under a token that was overwritten changes nothing and answers
//!    [`StoreError::NotOwner`]. A token that is written waits for statements under the old one, or makes them fail.
//! 5. **Repeatable.** Every call may be repeated after an unknown outcome: claims recognise their own coordinate,
//!    tokens and lane ids are chosen by the caller. But before a *claim* is repeated, a new token is written
//!    ([`ClaimStore::take`] with `instead_of`), since the first may still land.
//! 6. **Answered from what is committed.** A holder that is reported has committed its claim.

use std::sync::Arc;

use async_trait::async_trait;

use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{Cut, Holder, LaneId, Position, StoreId, StreamId, Token};
use crate::protocol::start::Row;
use crate::protocol::verdict::Claimed;

pub mod embedded;
pub mod memory;
pub mod open;
pub mod postgres;
pub mod slots;

/// The right under which a window extends one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guard {
    pub lane: LaneId,
    pub token: Token,
}

/// One asked claim of a window.
#[derive(Debug, Clone)]
pub struct Ask {
    pub event_id: EventId,
    pub week: Week,
    pub lane: LaneId,
    pub position: Position,
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

/// The claims of one window: distinct keys, ascending by (event id, week). Each has a position of its own on its
/// lane.
#[derive(Debug, Clone)]
pub struct ClaimWindow<'a> {
    pub scope: &'a Scope,
    /// One per lane that the rows name.
    pub guards: &'a [Guard],
    pub rows: &'a [Ask],
    pub first_seen_at: EventTime,
}

impl ClaimWindow<'_> {
    /// Refuses a window that breaks what is said above. Every store asks this before it does anything.
    pub fn check(&self) -> Result<(), StoreError> {
        let guarded = |row: &Ask| self.guards.iter().any(|guard| guard.lane == row.lane);
        let problem = if !self.rows.is_sorted_by(|a, b| (&a.event_id, a.week) < (&b.event_id, b.week)) {
            "the keys of a window are not distinct and ascending"
        } else if !self.rows.iter().all(guarded) {
            "a row of the window names a lane without a guard"
        } else {
            return Ok(());
        };
        Err(StoreError::Rejected(problem.into()))
    }
}

/// A claim without a lane: settled for ever once it is made.
#[derive(Debug, Clone)]
pub struct TryClaim {
    pub scope: Scope,
    pub event_id: EventId,
    pub week: Week,
    pub topic: Arc<str>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
}

/// A claim as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub scope: Scope,
    pub event_id: EventId,
    pub week: Week,
    pub holder: Holder,
    pub topic: String,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    pub first_seen_at: EventTime,
    /// Of the holder's lane, where it has one that the store still knows.
    pub stream: Option<StreamId>,
}

/// What a pipeline writes when it takes a stream.
#[derive(Debug, Clone)]
pub struct Take<'a> {
    pub stream: &'a StreamId,
    pub token: Token,
    /// None at an assignment: overwrite whoever owned the stream. Some: only where this token still stands there, else
    /// [`StoreError::NotOwner`]; for the new token before a claim of unknown outcome is repeated.
    pub instead_of: Option<Token>,
}

/// What the store knows of a stream that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// None where no lane of the stream is open.
    pub row: Option<Row>,
    /// Scope and recipe under which the open lane was opened.
    pub opened_for: Option<LaneFor>,
}

/// What a lane's claims mean: changing it under a lane would make old claims say something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFor {
    pub scope: Scope,
    /// Digest of the way event id and event time are extracted.
    pub recipe: String,
}

/// Rule 7 (c): release what the cut names, close its lane wherever it is open, open the new one.
#[derive(Debug, Clone)]
pub struct OpenLane<'a> {
    pub stream: &'a StreamId,
    pub token: Token,
    pub lane: LaneId,
    pub cut: Option<Cut>,
    pub lane_for: &'a LaneFor,
    pub now: EventTime,
}

/// A stream as `semel why`, `semel release` and `semel recover` show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    pub stream: StreamId,
    pub owner: Option<Token>,
    pub row: Option<Row>,
    pub opened_for: Option<LaneFor>,
}

/// The place of one week's claims, or of several weeks' where an earlier guard put them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub first: Week,
    pub last: Week,
    /// By the store's own statistics, which may lag; None where it keeps none.
    pub claims_estimate: Option<u64>,
    /// On disk, indexes included.
    pub bytes: Option<u64>,
}

/// The open lane of the same partition when its topic had another id. Of several, one that was not drained.
pub fn former<'a>(streams: impl Iterator<Item = (&'a StreamId, Option<Row>)>, stream: &StreamId) -> Option<Row> {
    let now = stream.as_kafka()?;
    let former = streams.filter(|(stream, _)| stream.as_kafka().is_some_and(|of| of.is_former_of(&now)));
    former.filter_map(|(_, row)| row).min_by_key(|row| row.drained.is_some())
}

/// Which claims to free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Free {
    /// One event, in one week or in all.
    Event { scope: Scope, event_id: EventId, week: Option<Week> },
    /// The claims of a lane at or above a position (a retired group's unsettled ones).
    Unsettled { lane: LaneId, from: Position },
}

/// A record that the sink refused after it was claimed: all of key, lane and position must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub event_id: EventId,
    pub week: Week,
    pub lane: LaneId,
    pub position: Position,
}

#[async_trait]
pub trait ClaimStore: Send + Sync {
    /// Drawn once, when the store is made. One round trip at most.
    async fn store_id(&self) -> Result<StoreId, StoreError>;

    /// Writes the owner token of a stream and reads what is known of it. One round trip, one commit.
    async fn take(&self, take: &Take<'_>) -> Result<Taken, StoreError>;

    /// Claims a window: one answer per row, in their order. One commit; a second round trip where rows were held.
    ///
    /// Cancel safety: a dropped call has an unknown outcome.
    async fn claim(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError>;

    /// Opens a lane, after its Kafka step has committed. Answers how many claims were released. Repeating it with the
    /// same lane is a no-op that answers 0. One commit.
    async fn open_lane(&self, open: &OpenLane<'_>) -> Result<u64, StoreError>;

    /// Closes the open lane of a stream, with none in its place, and releases its claims at or above `cut`: for a group
    /// that is retired. Answers how many were released. Repeating it is a no-op that answers 0. One commit.
    async fn close_lane(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        now: EventTime,
    ) -> Result<u64, StoreError>;

    /// Records where a lane's owner left off, after its last window is known to have committed.
    async fn record_drain(&self, stream: &StreamId, guard: Guard, settled: Position) -> Result<(), StoreError>;

    /// Forgets a recorded drain, before the first claim that follows it.
    async fn forget_drain(&self, stream: &StreamId, guard: Guard) -> Result<(), StoreError>;

    /// Whether this lane is open, on whatever stream.
    async fn is_open(&self, lane: LaneId) -> Result<bool, StoreError>;

    /// Claims without a lane, each for itself in one shared commit: inserted, or who holds it. Keys may repeat: the
    /// first of them counts.
    async fn try_claim(&self, rows: &[TryClaim], first_seen_at: EventTime) -> Result<Vec<Claimed>, StoreError>;

    /// Every claim of an event id, in all weeks, in one scope or in all.
    async fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, StoreError>;

    /// Every stream that the store knows, by name.
    async fn streams(&self) -> Result<Vec<StreamState>, StoreError>;

    /// How many claims `free` would delete, and, unless `dry_run`, deletes them.
    async fn free(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError>;

    /// Deletes the claims of records that the sink refused, after the transaction with their dead letters committed.
    async fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError>;

    /// Makes room for the claims of these weeks (and always for the undated week). Idempotent; never waits long on, or
    /// blocks, claims in other weeks.
    async fn ensure_weeks(&self, first: Week, last: Week) -> Result<(), StoreError>;

    /// The weeks that have room, the undated one included, ascending.
    async fn weeks(&self) -> Result<Vec<Week>, StoreError>;

    /// The weeks that have room, as [`ClaimStore::weeks`] answers them, with their sizes. Reads no claim.
    async fn rooms(&self) -> Result<Vec<Room>, StoreError>;

    /// Retires the weeks before `first_kept`, the undated one excepted. Answers those it retired. At most one caller
    /// at a time does the work; another answers none.
    async fn retire_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError>;
}

/// Why a store call did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Surely nothing was written: out of reach, not open, throttled.
    #[error("the claim store is unavailable")]
    Unavailable(#[source] Source),
    /// The call may have been carried out, now or later.
    #[error("the outcome of a claim store call is unknown")]
    Unknown(#[source] Source),
    /// Another owner's token stands on the stream, or another lane is open. Nothing was written.
    #[error("another instance owns the stream")]
    NotOwner,
    /// There is no partition for this week. Nothing was written.
    #[error("the claim store has no partition for the week of {0}")]
    NoWeek(Week),
    /// The store refused what it was given; repeating it is useless. Nothing was written.
    #[error("the claim store refused the call")]
    Rejected(#[source] Source),
}

pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// What the caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The same call again, after a wait.
    Retry,
    /// Write a new token in place of the old one, then the same call again.
    Retake,
    /// Give the stream up and rejoin.
    Rejoin,
    /// Make the missing week, then the same call again.
    EnsureWeeks(Week),
    /// Leave; an operator is needed.
    ShutDown,
}

impl Recovery {
    /// For metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Recovery::Retry => "retry",
            Recovery::Retake => "retake",
            Recovery::Rejoin => "rejoin",
            Recovery::EnsureWeeks(_) => "ensure_weeks",
            Recovery::ShutDown => "shut_down",
        }
    }
}

impl StoreError {
    pub fn recovery(&self) -> Recovery {
        match self {
            StoreError::Unavailable(_) => Recovery::Retry,
            StoreError::Unknown(_) => Recovery::Retake,
            StoreError::NotOwner => Recovery::Rejoin,
            StoreError::NoWeek(week) => Recovery::EnsureWeeks(*week),
            StoreError::Rejected(_) => Recovery::ShutDown,
        }
    }
}
