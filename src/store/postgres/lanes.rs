//! Taking a stream, opening and closing its lanes.
//!
//! **Taking** overwrites the owner token in one statement. It waits for the claims that hold the stream's row FOR
//! SHARE; claims that come later find another token.
//!
//! **Opening** is one transaction of several statements: lock the stream and whatever stream has the cut's lane open,
//! check the owner, delete the cut's claims, close, open. Lock and delete are two statements on purpose: as one, the
//! delete would not see the rows of a claim that the lock had waited for. Sorted locks, as claims take them too.
//!
//! **A lane is opened once.** `semel_lanes` remembers every lane that was, so that a straggling or repeated opening
//! under a token that still stands can never put a closed lane back: it finds its lane open (nothing to do) or in
//! the history (another has followed: [`StoreError::NotOwner`]).
//!
//! **Cost.** The delete reads every claim of the store, 0.15 to 0.25 s for a million that are cached, under the lock of
//! the stream's row alone: an index by lane would cost every insert, and a discontinuity is rare. (A BRIN index costs
//! little and was measured: it spares nearly everything for the lane with the highest positions and nothing for the
//! others, since each range of blocks holds claims of all lanes.) Not handled: a store so large that this takes longer
//! than `scan_timeout`; the call is then rolled back and answers Unavailable.

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::error::unexpected;
use super::params::{Param, Stamp};
use super::pool::Lease;
use crate::protocol::event::EventTime;
use crate::protocol::lane::{Cut, LaneId, Position, StreamId, Token};
use crate::protocol::start::Row;
use crate::store::{Guard, LaneFor, OpenLane, StoreError, Take, Taken};

impl PostgresStore {
    pub(super) async fn take_stream(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        let stream = take.stream.as_str();
        let rows = match take.instead_of {
            None => {
                let params: [Param<'_>; 2] = [(&stream, Type::TEXT), (&take.token.0, Type::INT8)];
                self.pool.rows(&self.limits, include_str!("sql/take_stream.sql"), &params).await?
            }
            Some(Token(old)) => {
                let params: [Param<'_>; 3] = [(&stream, Type::TEXT), (&take.token.0, Type::INT8), (&old, Type::INT8)];
                self.pool.rows(&self.limits, include_str!("sql/retake_stream.sql"), &params).await?
            }
        };
        let row = rows.first().ok_or(StoreError::NotOwner)?;
        let (row, opened_for) = stream_of(row, 0);
        Ok(Taken { row, opened_for })
    }

    pub(super) async fn open(&self, open: &OpenLane<'_>) -> Result<u64, StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&self.scan_limits).await?;
        match open_locked(&mut lease, open).await {
            Ok(Some(released)) => lease.commit().await.map(|()| released),
            Ok(None) => {
                lease.rollback().await;
                Ok(0)
            }
            Err(error) => {
                lease.rollback().await;
                Err(error)
            }
        }
    }

    pub(super) async fn close_open(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        now: EventTime,
    ) -> Result<u64, StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&self.scan_limits).await?;
        match close_locked(&mut lease, stream, guard, cut, Stamp(now)).await {
            Ok(Some(released)) => lease.commit().await.map(|()| released),
            other => {
                lease.rollback().await;
                other.map(|_| 0)
            }
        }
    }

    pub(super) async fn set_drained(
        &self,
        stream: &StreamId,
        guard: Guard,
        settled: Option<Position>,
    ) -> Result<(), StoreError> {
        let params: [Param<'_>; 4] = [
            (&stream.as_str(), Type::TEXT),
            (&guard.token.0, Type::INT8),
            (&guard.lane.0, Type::INT8),
            (&settled, Type::INT8),
        ];
        let rows = self.pool.rows(&self.limits, include_str!("sql/set_drained.sql"), &params).await?;
        if rows.is_empty() { Err(StoreError::NotOwner) } else { Ok(()) }
    }

    pub(super) async fn lane_is_open(&self, lane: LaneId) -> Result<bool, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/is_open.sql"), &[(&lane.0, Type::INT8)]).await?;
        rows.first().map(|row| row.get(0)).ok_or_else(|| unexpected("the lane's query answered no row"))
    }
}

/// The statements between BEGIN and COMMIT. None: this lane is open already, there is nothing to commit.
async fn open_locked(lease: &mut Lease, open: &OpenLane<'_>) -> Result<Option<u64>, StoreError> {
    let stream = open.stream.as_str();
    let prev = open.cut.map(|cut| cut.prev.0);
    let locked =
        lease.rows(include_str!("sql/lock_streams.sql"), &[(&stream, Type::TEXT), (&prev, Type::INT8)]).await?;
    let mine = locked.iter().find(|row| row.get::<_, &str>(0) == stream).ok_or(StoreError::NotOwner)?;
    if mine.get::<_, i64>(1) != open.token.0 {
        return Err(StoreError::NotOwner);
    }
    let open_now: Option<i64> = mine.get(2);
    if open_now == Some(open.lane.0) {
        return Ok(None);
    }
    let LaneFor { scope, recipe } = open.lane_for;
    let now = Stamp(open.now);
    let recorded = lease
        .rows(
            include_str!("sql/record_lane.sql"),
            &[
                (&open.lane.0, Type::INT8),
                (&stream, Type::TEXT),
                (&scope.as_str(), Type::TEXT),
                (recipe, Type::TEXT),
                (&now, Type::TIMESTAMPTZ),
            ],
        )
        .await?;
    if recorded.is_empty() {
        return Err(StoreError::NotOwner);
    }
    let mut released = 0;
    if let Some(Cut { prev, cut }) = open.cut {
        let params: [Param<'_>; 2] = [(&prev.0, Type::INT8), (&cut, Type::INT8)];
        released = count(&lease.rows(include_str!("sql/delete_unsettled.sql"), &params).await?)?;
        close(lease, prev.0, Some(cut), now).await?;
        let params: [Param<'_>; 3] = [(&stream, Type::TEXT), (&prev.0, Type::INT8), (&open.token.0, Type::INT8)];
        lease.rows(include_str!("sql/close_elsewhere.sql"), &params).await?;
    }
    if let Some(other) = open_now.filter(|&lane| Some(lane) != prev) {
        close(lease, other, None, now).await?;
    }
    let opened = lease
        .rows(
            include_str!("sql/open_lane.sql"),
            &[
                (&stream, Type::TEXT),
                (&open.token.0, Type::INT8),
                (&open.lane.0, Type::INT8),
                (&scope.as_str(), Type::TEXT),
                (recipe, Type::TEXT),
            ],
        )
        .await?;
    if opened.is_empty() { Err(StoreError::NotOwner) } else { Ok(Some(released)) }
}

/// As [`open_locked`], for a lane that none follows.
async fn close_locked(
    lease: &mut Lease,
    stream: &StreamId,
    guard: Guard,
    cut: Position,
    now: Stamp,
) -> Result<Option<u64>, StoreError> {
    let stream = stream.as_str();
    let params: [Param<'_>; 2] = [(&stream, Type::TEXT), (&guard.lane.0, Type::INT8)];
    let locked = lease.rows(include_str!("sql/lock_streams.sql"), &params).await?;
    let mine = locked.iter().find(|row| row.get::<_, &str>(0) == stream).ok_or(StoreError::NotOwner)?;
    match (mine.get::<_, i64>(1), mine.get::<_, Option<i64>>(2)) {
        (owner, _) if owner != guard.token.0 => return Err(StoreError::NotOwner),
        (_, None) => return Ok(None),
        (_, Some(open)) if open != guard.lane.0 => return Err(StoreError::NotOwner),
        _ => {}
    }
    let params: [Param<'_>; 2] = [(&guard.lane.0, Type::INT8), (&cut, Type::INT8)];
    let released = count(&lease.rows(include_str!("sql/delete_unsettled.sql"), &params).await?)?;
    close(lease, guard.lane.0, Some(cut), now).await?;
    let params: [Param<'_>; 2] = [(&stream, Type::TEXT), (&guard.token.0, Type::INT8)];
    lease.rows(include_str!("sql/leave_stream.sql"), &params).await?;
    Ok(Some(released))
}

pub(super) async fn close(lease: &mut Lease, lane: i64, cut: Option<Position>, now: Stamp) -> Result<(), StoreError> {
    let params: [Param<'_>; 3] = [(&lane, Type::INT8), (&cut, Type::INT8), (&now, Type::TIMESTAMPTZ)];
    lease.rows(include_str!("sql/close_lane.sql"), &params).await.map(|_| ())
}

/// The columns `open_lane, drained, scope, recipe` from column `at` on.
pub(super) fn stream_of(row: &PgRow, at: usize) -> (Option<Row>, Option<LaneFor>) {
    let open: Option<i64> = row.get(at);
    let scope: Option<String> = row.get(at + 2);
    let recipe: Option<String> = row.get(at + 3);
    let lane_for = scope.zip(recipe).and_then(|(scope, recipe)| {
        // Written from a scope, so it is one.
        crate::protocol::event::Scope::new(&scope).ok().map(|scope| LaneFor { scope, recipe })
    });
    (open.map(|lane| Row { open: LaneId(lane), drained: row.get(at + 1) }), lane_for)
}

/// The answer of a statement that counts.
pub(super) fn count(rows: &[PgRow]) -> Result<u64, StoreError> {
    let count: i64 = rows.first().ok_or_else(|| unexpected("a count answered no row"))?.get(0);
    Ok(count as u64)
}
