//! Claiming: the insert, and the reading of those that were held.
//!
//! **One statement locks and inserts** (`claim_window.sql`). The guards' rows are locked FOR SHARE, which waits for a
//! takeover that is writing its token and then finds the guard gone; and a takeover waits for the lock's end. So a
//! claim is either wholly before a new token or not at all, also one that lands long after its caller is gone.
//!
//! **A second one reads the holders** (`find_holders.sql`) of the keys that conflicted, and only theirs. In the first
//! statement the row of a transaction that it waited for is invisible: it is younger than the statement's snapshot. In
//! the second it is there, unless it was deleted in between; those keys are claimed again.
//!
//! **Which rows were inserted** is told by the coordinates that the insert returns, which come in the order of the rows
//! asked, so that one walk over both pairs them.
//!
//! **Failures.** An error that the server answers to the first statement wrote nothing. A failure of the second one
//! leaves claims of known outcome behind: it is repeated a few times, then reported as unknown, which makes the caller
//! retake the stream and ask again: its own claims recognise their coordinate.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::error::{is_missing_partition, rolled_back, unexpected};
use super::params::{Day, Param, Stamp};
use super::pool::Ended;
use crate::protocol::event::{EventId, Scope, Week};
use crate::protocol::lane::{Holder, LaneId};
use crate::protocol::verdict::Claimed;
use crate::store::{Ask, ClaimWindow, StoreError, TryClaim};

/// How often holders are asked for before the call is given up.
const ROUNDS: u32 = 8;

/// Of reading who holds what, after an insert that has committed.
#[derive(Default)]
pub(super) struct Rounds(u32);

impl Rounds {
    /// Waits for the next one. An error that waiting does not mend, or the last one, is the call's: its outcome is then
    /// unknown to the caller.
    pub async fn failed(&mut self, error: StoreError) -> Result<(), StoreError> {
        self.0 += 1;
        match error {
            StoreError::Unavailable(cause) | StoreError::Unknown(cause) if self.0 >= ROUNDS => {
                Err(StoreError::Unknown(cause))
            }
            StoreError::Unavailable(_) | StoreError::Unknown(_) => {
                tokio::time::sleep(Duration::from_millis(20 * u64::from(self.0))).await;
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// How often keys whose claim was gone before it could be read are claimed again before the call is given up. Whoever
/// claims and frees in a loop falls into step with this one, so each round waits a little longer than the one before.
pub(super) const GONE_ROUNDS: u32 = 40;

pub(super) async fn out_of_step(round: u32) {
    tokio::time::sleep(Duration::from_millis(u64::from(round / 4))).await;
}

/// A row of a batch, by its index there.
pub(super) type Index = usize;

impl PostgresStore {
    pub(super) async fn claim_window(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError> {
        window.check()?;
        let mut answers: Vec<Option<Claimed>> = vec![None; window.rows.len()];
        let mut asked: Vec<Index> = (0..window.rows.len()).collect();
        for round in 0..GONE_ROUNDS {
            let lost = self.insert_window(window, &asked, &mut answers).await?;
            if lost.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            let keys: Vec<Key<'_>> = lost.iter().map(|&n| Key::of(window.scope, &window.rows[n])).collect();
            let held = self.holders(&keys).await?;
            asked.clear();
            for (n, holder) in lost.into_iter().zip(held) {
                match holder {
                    Some(holder) => answers[n] = Some(Claimed::Held(holder)),
                    None => asked.push(n),
                }
            }
            if asked.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            out_of_step(round).await;
        }
        Err(StoreError::Unknown("claims come and go under this window".into()))
    }

    /// Inserts the rows `asked`, marks those that it inserted, answers the others.
    async fn insert_window(
        &self,
        window: &ClaimWindow<'_>,
        asked: &[Index],
        answers: &mut [Option<Claimed>],
    ) -> Result<Vec<Index>, StoreError> {
        let rows = || asked.iter().map(|&n| &window.rows[n]);
        let ids: Vec<&str> = rows().map(|row| row.event_id.as_str()).collect();
        let days: Vec<Day> = rows().map(|row| day_of(row.week)).collect::<Result<_, _>>()?;
        let lanes: Vec<i64> = rows().map(|row| row.lane.0).collect();
        let positions: Vec<i64> = rows().map(|row| row.position).collect();
        let topics: Vec<&str> = rows().map(|row| &*row.topic).collect();
        let partitions: Vec<i32> = rows().map(|row| row.partition).collect();
        let offsets: Vec<i64> = rows().map(|row| row.offset).collect();
        let guard_lanes: Vec<i64> = window.guards.iter().map(|guard| guard.lane.0).collect();
        let guard_tokens: Vec<i64> = window.guards.iter().map(|guard| guard.token.0).collect();
        let ended = self
            .pool
            .run(
                &self.limits,
                include_str!("sql/claim_window.sql"),
                &[
                    (&window.scope.as_str(), Type::TEXT),
                    (&Stamp(window.first_seen_at), Type::TIMESTAMPTZ),
                    (&ids, Type::TEXT_ARRAY),
                    (&days, Type::DATE_ARRAY),
                    (&lanes, Type::INT8_ARRAY),
                    (&positions, Type::INT8_ARRAY),
                    (&topics, Type::TEXT_ARRAY),
                    (&partitions, Type::INT4_ARRAY),
                    (&offsets, Type::INT8_ARRAY),
                    (&guard_lanes, Type::INT8_ARRAY),
                    (&guard_tokens, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let answer = match ended {
            Ended::Committed(answer) => answer,
            Ended::RolledBack(error) if is_missing_partition(&error) => {
                return Err(self.missing_week(rows().map(|row| row.week)).await);
            }
            Ended::RolledBack(error) => return Err(rolled_back(error)),
        };
        let answer = answer.first().ok_or_else(|| unexpected("the claim answered no row"))?;
        let owned: i64 = answer.get(0);
        if owned != window.guards.len() as i64 {
            return Err(StoreError::NotOwner);
        }
        let made_lanes: Vec<i64> = answer.get::<_, Option<_>>(1).unwrap_or_default();
        let made_positions: Vec<i64> = answer.get::<_, Option<_>>(2).unwrap_or_default();
        let mut made = made_lanes.into_iter().zip(made_positions).peekable();
        let mut lost = Vec::new();
        for &n in asked {
            let row = &window.rows[n];
            if made.next_if_eq(&(row.lane.0, row.position)).is_some() {
                answers[n] = Some(Claimed::Inserted);
            } else {
                lost.push(n);
            }
        }
        match made.next() {
            None => Ok(lost),
            // Committed, but not understood: as unknown as if the answer had not come.
            Some(_) => Err(StoreError::Unknown("the claim answered rows that were not asked for".into())),
        }
    }

    /// Who holds each of the keys. None: nobody any more.
    pub(super) async fn holders(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Holder>>, StoreError> {
        let mut rounds = Rounds::default();
        loop {
            match self.holders_once(keys).await {
                Err(error) => rounds.failed(error).await?,
                done => return done,
            }
        }
    }

    async fn holders_once(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Holder>>, StoreError> {
        let mut held = vec![None; keys.len()];
        // Keys come sorted by scope: windows have one, and batches of try claims few.
        let mut start = 0;
        for keys in keys.chunk_by(|a, b| a.scope == b.scope) {
            let ids: Vec<&str> = keys.iter().map(|key| key.event_id.as_str()).collect();
            let days: Vec<Day> = keys.iter().map(|key| day_of(key.week)).collect::<Result<_, _>>()?;
            let mut distinct = days.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let params: [Param<'_>; 4] = [
                (&keys[0].scope.as_str(), Type::TEXT),
                (&ids, Type::TEXT_ARRAY),
                (&days, Type::DATE_ARRAY),
                (&distinct, Type::DATE_ARRAY),
            ];
            let rows = self.pool.rows(&self.limits, include_str!("sql/find_holders.sql"), &params).await?;
            let row = rows.first().ok_or_else(|| unexpected("the holders' query answered no row"))?;
            let places: Vec<i64> = row.get::<_, Option<_>>(0).unwrap_or_default();
            let lanes: Vec<Option<i64>> = row.get::<_, Option<_>>(1).unwrap_or_default();
            let positions: Vec<i64> = row.get::<_, Option<_>>(2).unwrap_or_default();
            for ((place, lane), position) in places.into_iter().zip(lanes).zip(positions) {
                held[start + place as usize - 1] = Some(Holder { lane: lane.map(LaneId), position });
            }
            start += keys.len();
        }
        Ok(held)
    }

    /// The answer to a batch that found a week without a partition: the first of its weeks that has none.
    pub(super) async fn missing_week(&self, asked: impl Iterator<Item = Week> + Send) -> StoreError {
        let mut asked: Vec<Week> = asked.collect();
        asked.dedup();
        match self.list_weeks().await {
            Err(error) => error,
            // All there by now: the same batch again.
            Ok(there) => match asked.into_iter().find(|week| there.binary_search(week).is_err()) {
                Some(missing) => StoreError::NoWeek(missing),
                None => StoreError::Unavailable("the partition of a week was being made".into()),
            },
        }
    }
}

/// What a claim is made of. Ordered as the rows of every insert are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    scope: &'a Scope,
    event_id: &'a EventId,
    week: Week,
}

impl<'a> Key<'a> {
    fn of(scope: &'a Scope, row: &'a Ask) -> Key<'a> {
        Key { scope, event_id: &row.event_id, week: row.week }
    }

    pub(super) fn of_try(row: &'a TryClaim) -> Key<'a> {
        Key { scope: &row.scope, event_id: &row.event_id, week: row.week }
    }
}

/// A week that no date can name has no partition either.
pub(super) fn day_of(week: Week) -> Result<Day, StoreError> {
    Day::of(week).ok_or(StoreError::NoWeek(week))
}
