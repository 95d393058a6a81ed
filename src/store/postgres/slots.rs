//! Lanes of instances: reserving, releasing, and what is read of them. Taking slots is `takes`'.
//!
//! **A reserve is one statement** (`reserve_window.sql`), as a claim is: it locks the slot's row FOR SHARE, and so is
//! wholly before a takeover or finds its guard gone; under that it raises settled position and lease of the lane's own
//! row, and inserts. The lane's row makes reserves of one lane take turns, though there should never be two: one that
//! waits finds the row as the other left it.
//!
//! **Order of locks**: the slot's row, its lane's row, claims by their keys. Only a sweep begins with a lane's row, of a
//! lane that is closed and that nobody extends. No other's lane is locked, and whoever waits for a claim holds nothing
//! that its holder would wait for: there is no cycle.
//!
//! **What was in the way** is read by a second statement together with its lane, since a settled position read later
//! than the claim could be that of a lane which has released it meanwhile. What is gone by then is not claimed again
//! here but told: the caller has to tell its messages apart anyway.
//!
//! **Leases** are set and judged by `clock_timestamp()` in the statement itself, never by this process's clock or the
//! transaction's beginning, before which it may have waited.
//!
//! **Failures.** As for claims: an error that the server answers to the first statement wrote nothing; when the second
//! one fails for good the outcome is reported as unknown, though the reserve stands.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::claim::{Index, Rounds, day_of};
use super::error::{is_missing_partition, rolled_back, unexpected};
use super::lanes::stream_of;
use super::params::{Day, Param, Stamp};
use super::pool::Ended;
use crate::protocol::event::{Scope, Week};
use crate::protocol::lane::{Holder, LaneId, Position, StreamId, Token};
use crate::protocol::slot::Conflicting;
use crate::store::slots::{
    Cursor, Expire, Expired, LaneStanding, OpenSlot, OpenSlotLane, Reserve, Reserved, Slot, SlotAsk, SlotStore,
    StreamSeen, TakeSlot, TakenSlot, lane_seen,
};
use crate::store::{Guard, StoreError};

/// The longest lease that is kept. Beyond it, and a long way, timestamps end.
const LEASE_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

pub(super) fn micros(lease: Duration) -> i64 {
    lease.min(LEASE_MAX).as_micros() as i64
}

/// What is left of a lease. None for a lane without one.
pub(super) fn left(micros: Option<i64>) -> Option<Duration> {
    micros.map(|micros| Duration::from_micros(micros.max(0) as u64))
}

#[async_trait]
impl SlotStore for PostgresStore {
    async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Reserved>, StoreError> {
        reserve.check()?;
        let mut answers = vec![Reserved::Inserted; reserve.rows.len()];
        let lost = self.insert_reserve(reserve).await?;
        if lost.is_empty() {
            return Ok(answers);
        }
        let rows: Vec<&SlotAsk> = lost.iter().map(|&n| &reserve.rows[n]).collect();
        let mut rounds = Rounds::default();
        let found = loop {
            match self.in_the_way(reserve, &rows).await {
                Ok(found) => break found,
                Err(error) => rounds.failed(error).await?,
            }
        };
        for (n, conflicting) in lost.into_iter().zip(found) {
            answers[n] = Reserved::InTheWay(conflicting);
        }
        Ok(answers)
    }

    async fn release(
        &self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        from: Position,
        to: Position,
    ) -> Result<u64, StoreError> {
        let params: [Param<'_>; 6] = [
            (&guard.lane.0, Type::INT8),
            (&guard.token.0, Type::INT8),
            (&committed, Type::INT8),
            (&published, Type::INT8_ARRAY),
            (&from, Type::INT8),
            (&to, Type::INT8),
        ];
        let rows = self.pool.rows(&self.scan_limits, include_str!("sql/release_window.sql"), &params).await?;
        match counts(&rows)? {
            (0, _) => Err(StoreError::NotOwner),
            (_, released) => Ok(released),
        }
    }

    async fn give_back(&self, guard: Guard, scope: &Scope, claims: &[SlotAsk]) -> Result<u64, StoreError> {
        let ids: Vec<&str> = claims.iter().map(|claim| claim.event_id.as_str()).collect();
        let days: Vec<Day> = claims.iter().map(|claim| day_of(claim.week)).collect::<Result<_, _>>()?;
        let positions: Vec<i64> = claims.iter().map(|claim| claim.position).collect();
        let mut distinct = days.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let params: [Param<'_>; 7] = [
            (&guard.lane.0, Type::INT8),
            (&guard.token.0, Type::INT8),
            (&scope.as_str(), Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&days, Type::DATE_ARRAY),
            (&positions, Type::INT8_ARRAY),
            (&distinct, Type::DATE_ARRAY),
        ];
        let rows = self.pool.rows(&self.limits, include_str!("sql/give_back.sql"), &params).await?;
        match counts(&rows)? {
            (0, _) => Err(StoreError::NotOwner),
            (_, given_back) => Ok(given_back),
        }
    }

    async fn standing(&self, stream: &StreamId) -> Result<Option<StreamSeen>, StoreError> {
        let params: [Param<'_>; 1] = [(&stream.as_str(), Type::TEXT)];
        let rows = self.pool.rows(&self.limits, include_str!("sql/read_standing.sql"), &params).await?;
        Ok(rows.first().map(|row| {
            let (open, opened_for) = stream_of(row, 0);
            let lease_left = left(row.get(6));
            let open = open.map(|found| LaneStanding {
                lane: found.open,
                settled: lane_seen(row.get(5), true, lease_left).settled,
                lease_left: lease_left.unwrap_or(Duration::MAX),
            });
            StreamSeen { owner: Token(row.get(4)), open, opened_for }
        }))
    }

    async fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, StoreError> {
        let params: [Param<'_>; 1] = [(&slot.as_str(), Type::TEXT)];
        let rows = self.pool.rows(&self.scan_limits, include_str!("sql/read_slot.sql"), &params).await?;
        Ok(rows.first().map(slot_of_row))
    }

    async fn slot_of(&self, lane: LaneId) -> Result<Option<StreamId>, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/find_slot.sql"), &[(&lane.0, Type::INT8)]).await?;
        Ok(rows.first().map(|row| StreamId::from_stored(row.get::<_, String>(0))))
    }

    async fn take_slot(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError> {
        self.take_slot_whole(take).await
    }

    async fn write_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError> {
        self.write_slot_token(slot, token, instead_of, own).await
    }

    async fn open_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError> {
        self.open_taken_slot(open).await
    }

    async fn sweep(&self, lane: LaneId) -> Result<Option<u64>, StoreError> {
        let params: [Param<'_>; 1] = [(&lane.0, Type::INT8)];
        let rows = self.pool.rows(&self.scan_limits, include_str!("sql/sweep_lane.sql"), &params).await?;
        let (swept, released) = counts(&rows)?;
        Ok((swept > 0).then_some(released))
    }

    async fn expire(&self, expire: &Expire<'_>) -> Result<Expired, StoreError> {
        let after = match expire.after {
            None => "",
            Some(Cursor(id)) => std::str::from_utf8(id).map_err(|_| unexpected("a cursor is not an event id"))?,
        };
        let params: [Param<'_>; 5] = [
            (&expire.scope.as_str(), Type::TEXT),
            (&day_of(Week::UNDATED)?, Type::DATE),
            (&after, Type::TEXT),
            (&i64::try_from(expire.claims_max).unwrap_or(i64::MAX), Type::INT8),
            (&Stamp(expire.seen_before), Type::TIMESTAMPTZ),
        ];
        let rows = self.pool.rows(&self.limits, include_str!("sql/expire_claims.sql"), &params).await?;
        let row = rows.first().ok_or_else(|| unexpected("an expiry has no answer"))?;
        let reached: Option<String> = row.get(1);
        let reached = reached.map(|id| Cursor(id.into_bytes().into()));
        Ok(Expired { deleted: row.get::<_, i64>(0).unsigned_abs(), reached })
    }

    async fn scopes(&self) -> Result<Vec<Scope>, StoreError> {
        let rows = self.pool.rows(&self.scan_limits, include_str!("sql/list_scopes.sql"), &[]).await?;
        // An earlier guard may have written what is none here.
        Ok(rows.iter().filter_map(|row| Scope::new(row.get(0)).ok()).collect())
    }
}

impl PostgresStore {
    /// Answers the rows that were not inserted.
    async fn insert_reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Index>, StoreError> {
        let ids: Vec<&str> = reserve.rows.iter().map(|row| row.event_id.as_str()).collect();
        let days: Vec<Day> = reserve.rows.iter().map(|row| day_of(row.week)).collect::<Result<_, _>>()?;
        let positions: Vec<i64> = reserve.rows.iter().map(|row| row.position).collect();
        let params: [Param<'_>; 11] = [
            (&reserve.scope.as_str(), Type::TEXT),
            (&Stamp(reserve.first_seen_at), Type::TIMESTAMPTZ),
            (&&**reserve.origin, Type::TEXT),
            (&reserve.guard.lane.0, Type::INT8),
            (&reserve.guard.token.0, Type::INT8),
            (&reserve.committed, Type::INT8),
            (&micros(reserve.lease), Type::INT8),
            (&ids, Type::TEXT_ARRAY),
            (&days, Type::DATE_ARRAY),
            (&positions, Type::INT8_ARRAY),
            (&reserve.partition, Type::INT4),
        ];
        let ended = self.pool.run(&self.limits, include_str!("sql/reserve_window.sql"), &params).await?;
        let answer = match ended {
            Ended::Committed(answer) => answer,
            Ended::RolledBack(error) if is_missing_partition(&error) => {
                return Err(self.missing_week(reserve.rows.iter().map(|row| row.week)).await);
            }
            Ended::RolledBack(error) => return Err(rolled_back(error)),
        };
        let answer = answer.first().ok_or_else(|| unexpected("the reserve answered no row"))?;
        if answer.get::<_, i64>(0) == 0 {
            return Err(StoreError::NotOwner);
        }
        // They come in the order of the rows.
        let made: Vec<i64> = answer.get::<_, Option<_>>(1).unwrap_or_default();
        let mut made = made.into_iter().peekable();
        let lost = |n: &Index| made.next_if_eq(&positions[*n]).is_none();
        let lost = (0..reserve.rows.len()).filter(lost).collect();
        match made.next() {
            None => Ok(lost),
            Some(_) => Err(StoreError::Unknown("the reserve answered rows that were not asked for".into())),
        }
    }

    /// Who holds each of the keys, and that lane. None: nobody any more.
    async fn in_the_way(
        &self,
        reserve: &Reserve<'_>,
        asked: &[&SlotAsk],
    ) -> Result<Vec<Option<Conflicting>>, StoreError> {
        let ids: Vec<&str> = asked.iter().map(|row| row.event_id.as_str()).collect();
        let days: Vec<Day> = asked.iter().map(|row| day_of(row.week)).collect::<Result<_, _>>()?;
        let mut distinct = days.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let params: [Param<'_>; 4] = [
            (&reserve.scope.as_str(), Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&days, Type::DATE_ARRAY),
            (&distinct, Type::DATE_ARRAY),
        ];
        let rows = self.pool.rows(&self.limits, include_str!("sql/find_in_the_way.sql"), &params).await?;
        let row = rows.first().ok_or_else(|| unexpected("the query for what is in the way answered no row"))?;
        let places: Vec<i64> = row.get::<_, Option<_>>(0).unwrap_or_default();
        let lanes: Vec<Option<i64>> = row.get::<_, Option<_>>(1).unwrap_or_default();
        let positions: Vec<i64> = row.get::<_, Option<_>>(2).unwrap_or_default();
        let known: Vec<bool> = row.get::<_, Option<_>>(3).unwrap_or_default();
        let settled: Vec<Option<i64>> = row.get::<_, Option<_>>(4).unwrap_or_default();
        let open: Vec<bool> = row.get::<_, Option<_>>(5).unwrap_or_default();
        let lefts: Vec<Option<i64>> = row.get::<_, Option<_>>(6).unwrap_or_default();
        let mut found = vec![None; asked.len()];
        for (n, place) in places.into_iter().enumerate() {
            let holder = Holder { lane: lanes[n].map(LaneId), position: positions[n] };
            let lane = known[n].then(|| lane_seen(settled[n], open[n], left(lefts[n])));
            found[place as usize - 1] = Some(Conflicting { holder, lane });
        }
        Ok(found)
    }
}

/// The answer of a statement that counts what it guards and what it deletes.
fn counts(rows: &[Row]) -> Result<(i64, u64), StoreError> {
    let row = rows.first().ok_or_else(|| unexpected("a count answered no row"))?;
    Ok((row.get(0), row.get::<_, i64>(1) as u64))
}

/// The columns `owner, open_lane, settled, lease_left, claimed_above`.
fn slot_of_row(row: &Row) -> Slot {
    let open = row.get::<_, Option<i64>>(1).map(|lane| {
        let lease_left = left(row.get(3));
        OpenSlotLane {
            lane: LaneId(lane),
            seen: lane_seen(row.get(2), true, lease_left),
            lease_left: lease_left.unwrap_or(Duration::MAX),
            claimed_above: row.get(4),
        }
    });
    Slot { owner: Token(row.get(0)), open }
}
