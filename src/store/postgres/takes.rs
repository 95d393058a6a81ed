//! Taking slots and opening lanes on them.
//!
//! **One transaction of several statements**, in this order: lock the slot's row, which waits for reserves and is waited
//! for by those that come later; lock its open lane, and read settled position and lease as they are now; release; close;
//! open. Lock and release are two statements on purpose: as one, the release would not see the rows of a reserve that
//! the lock had waited for. For the same reason the lane is not read together with the slot.
//!
//! **Repeatable.** The slot's row bears token and open lane of a takeover that is done already. A straggler of one that
//! another has followed finds another token, or its lane in the history (`semel_lanes` has one row a lane, for ever).
//!
//! **A slot without a row** is made first, for this token, so that two who find none wait for one another: the second
//! one then finds the other's token. A refusal rolls it back.
//!
//! **The lease of a lane that is closed stays as it was**: what was left in doubt there is in flight until it lapses.
//!
//! **Cost.** Releasing looks in the index of slots' claims, once a week that is kept, under the slot's lock alone.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::lanes::{close, count};
use super::params::{Param, Stamp};
use super::pool::Lease;
use super::slots::{left, micros};
use crate::protocol::event::EventTime;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::store::slots::{Former, OpenSlot, TakeSlot, TakenSlot};
use crate::store::{Guard, LaneFor, StoreError};

/// What the statements of a transaction came to.
enum Done<T> {
    Write(T),
    /// There is nothing to be written.
    Leave(T),
}

const NOTHING_RELEASED: TakenSlot = TakenSlot::Taken { released: 0 };

impl PostgresStore {
    pub(super) async fn take_slot_whole(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&self.scan_limits).await?;
        let done = take_locked(&mut lease, take).await;
        end(lease, done).await
    }

    pub(super) async fn write_slot_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&self.limits).await?;
        let done = own_locked(&mut lease, slot, (token, instead_of), own).await;
        end(lease, done).await
    }

    pub(super) async fn open_taken_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&self.scan_limits).await?;
        let done = open_locked(&mut lease, open).await;
        end(lease, done).await
    }
}

async fn end<T>(lease: Lease, done: Result<Done<T>, StoreError>) -> Result<T, StoreError> {
    match done {
        Ok(Done::Write(answer)) => lease.commit().await.map(|()| answer),
        Ok(Done::Leave(answer)) => {
            lease.rollback().await;
            Ok(answer)
        }
        Err(error) => {
            lease.rollback().await;
            Err(error)
        }
    }
}

async fn take_locked(lease: &mut Lease, take: &TakeSlot<'_>) -> Result<Done<TakenSlot>, StoreError> {
    let (owner, open) = lock_slot(lease, take.slot, take.token, take.instead_of).await?;
    if owner == take.token && open == Some(take.lane) {
        return Ok(Done::Leave(NOTHING_RELEASED));
    }
    let mut released = 0;
    if let Some(open) = open {
        let guard = Guard { lane: open, token: owner };
        let mine: Option<Former<'_>> = take.former.filter(|former| former.guard == guard);
        let (settled, left) = settle(lease, open, mine.map(|mine| mine.committed)).await?;
        if mine.is_none() && !left.is_zero() {
            return Ok(Done::Leave(TakenSlot::Leased { left }));
        }
        let (published, in_doubt) = mine.map_or((&[][..], &[][..]), |mine| (mine.published, mine.in_doubt));
        if !published.is_empty() {
            let params: [Param<'_>; 2] = [(&open.0, Type::INT8), (&published, Type::INT8_ARRAY)];
            lease.rows(include_str!("sql/keep_published.sql"), &params).await?;
        }
        let params: [Param<'_>; 3] = [(&open.0, Type::INT8), (&settled, Type::INT8), (&in_doubt, Type::INT8_ARRAY)];
        released = count(&lease.rows(include_str!("sql/delete_unsent.sql"), &params).await?)?;
        close(lease, open.0, Some(settled), Stamp(take.now)).await?;
    }
    open_on(lease, take.slot, Guard { lane: take.lane, token: take.token }, take.lane_for, (0, take.lease), take.now)
        .await?;
    Ok(Done::Write(TakenSlot::Taken { released }))
}

async fn own_locked(
    lease: &mut Lease,
    slot: &StreamId,
    (token, instead_of): (Token, Option<Token>),
    own: bool,
) -> Result<Done<TakenSlot>, StoreError> {
    let (owner, open) = lock_slot(lease, slot, token, instead_of).await?;
    if owner != token
        && !own
        && let Some(open) = open
    {
        let (_, left) = settle(lease, open, None).await?;
        if !left.is_zero() {
            return Ok(Done::Leave(TakenSlot::Leased { left }));
        }
    }
    let params: [Param<'_>; 2] = [(&slot.as_str(), Type::TEXT), (&token.0, Type::INT8)];
    lease.rows(include_str!("sql/own_slot.sql"), &params).await?;
    Ok(Done::Write(NOTHING_RELEASED))
}

async fn open_locked(lease: &mut Lease, open: &OpenSlot<'_>) -> Result<Done<u64>, StoreError> {
    // As if in place of its own token: where that does not stand, it is not the owner.
    let (_, found) = lock_slot(lease, open.slot, open.token, Some(open.token)).await?;
    if found == Some(open.lane) {
        return Ok(Done::Leave(0));
    }
    if found != open.cut.map(|cut| cut.prev) {
        return Err(StoreError::NotOwner);
    }
    let mut released = 0;
    if let Some(cut) = open.cut {
        settle(lease, cut.prev, Some(cut.cut)).await?;
        let params: [Param<'_>; 2] = [(&cut.prev.0, Type::INT8), (&cut.cut, Type::INT8)];
        released = count(&lease.rows(include_str!("sql/delete_unsettled_of_slot.sql"), &params).await?)?;
        close(lease, cut.prev.0, Some(cut.cut), Stamp(open.now)).await?;
    }
    open_on(
        lease,
        open.slot,
        Guard { lane: open.lane, token: open.token },
        open.lane_for,
        (open.settled, open.lease),
        open.now,
    )
    .await?;
    Ok(Done::Write(released))
}

/// Owner and open lane, where this token may be written or stands.
async fn lock_slot(
    lease: &mut Lease,
    slot: &StreamId,
    token: Token,
    instead_of: Option<Token>,
) -> Result<(Token, Option<LaneId>), StoreError> {
    let slot = slot.as_str();
    if instead_of.is_none() {
        let params: [Param<'_>; 2] = [(&slot, Type::TEXT), (&token.0, Type::INT8)];
        lease.rows(include_str!("sql/make_slot.sql"), &params).await?;
    }
    let rows = lease.rows(include_str!("sql/lock_slot.sql"), &[(&slot, Type::TEXT)]).await?;
    let row = rows.first().ok_or(StoreError::NotOwner)?;
    let owner = Token(row.get(0));
    if owner != token && Some(owner) != instead_of {
        return Err(StoreError::NotOwner);
    }
    Ok((owner, row.get::<_, Option<i64>>(1).map(LaneId)))
}

/// Locks a lane and raises what is settled on it, if so much is known. Answers that, and what is left of its lease.
async fn settle(
    lease: &mut Lease,
    lane: LaneId,
    committed: Option<Position>,
) -> Result<(Position, Duration), StoreError> {
    let params: [Param<'_>; 2] = [(&lane.0, Type::INT8), (&committed, Type::INT8)];
    let rows = lease.rows(include_str!("sql/settle_lane.sql"), &params).await?;
    // A partition's lane is nobody's to take here.
    let row = rows.first().ok_or(StoreError::NotOwner)?;
    Ok((row.get(0), left(row.get(1)).unwrap_or(Duration::MAX)))
}

async fn open_on(
    lease: &mut Lease,
    slot: &StreamId,
    guard: Guard,
    lane_for: &LaneFor,
    (settled, length): (Position, Duration),
    now: EventTime,
) -> Result<(), StoreError> {
    let LaneFor { scope, recipe } = lane_for;
    let params: [Param<'_>; 7] = [
        (&guard.lane.0, Type::INT8),
        (&slot.as_str(), Type::TEXT),
        (&scope.as_str(), Type::TEXT),
        (recipe, Type::TEXT),
        (&Stamp(now), Type::TIMESTAMPTZ),
        (&micros(length), Type::INT8),
        (&settled, Type::INT8),
    ];
    if lease.rows(include_str!("sql/record_slot_lane.sql"), &params).await?.is_empty() {
        return Err(StoreError::NotOwner);
    }
    let params: [Param<'_>; 5] = [
        (&slot.as_str(), Type::TEXT),
        (&guard.token.0, Type::INT8),
        (&guard.lane.0, Type::INT8),
        (&scope.as_str(), Type::TEXT),
        (recipe, Type::TEXT),
    ];
    lease.rows(include_str!("sql/open_slot.sql"), &params).await.map(|_| ())
}
