//! What operators ask: who claimed an event, what streams there are, free a claim.

use chrono::{DateTime, Utc};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::claim::day_of;
use super::error::unexpected;
use super::lanes::{count, stream_of};
use super::params::{Day, Param};
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{Holder, LaneId, StoreId, StreamId, Token};
use crate::store::{Claim, Free, Refused, StoreError, StreamState};

impl PostgresStore {
    pub(super) async fn read_store_id(&self) -> Result<StoreId, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/store_id.sql"), &[]).await?;
        let row = rows.first().ok_or_else(|| unexpected("the store has no id: semel_store is empty"))?;
        Ok(StoreId(row.get::<_, String>(0).into()))
    }

    /// One index look-up a partition, and a scope where none is named.
    pub(super) async fn find_claims(
        &self,
        scope: Option<&Scope>,
        event_id: &EventId,
    ) -> Result<Vec<Claim>, StoreError> {
        let scopes: Vec<String> = match scope {
            Some(scope) => vec![scope.as_str().to_owned()],
            None => {
                let rows = self.pool.rows(&self.scan_limits, include_str!("sql/list_scopes.sql"), &[]).await?;
                rows.iter().map(|row| row.get(0)).collect()
            }
        };
        let mut found = Vec::new();
        for scope in scopes {
            let params: [Param<'_>; 2] = [(&event_id.as_str(), Type::TEXT), (&scope, Type::TEXT)];
            let rows = self.pool.rows(&self.limits, include_str!("sql/find_claims.sql"), &params).await?;
            found.extend(rows.iter().map(|row| claim_of(row, event_id)).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(found)
    }

    pub(super) async fn list_streams(&self) -> Result<Vec<StreamState>, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/list_streams.sql"), &[]).await?;
        let state = |row: &Row| {
            let (lane, opened_for) = stream_of(row, 2);
            let stream = StreamId::from_stored(row.get::<_, String>(0));
            StreamState { stream, owner: Some(Token(row.get(1))), row: lane, opened_for }
        };
        Ok(rows.iter().map(state).collect())
    }

    pub(super) async fn free_claims(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError> {
        let rows = match free {
            Free::Event { scope, event_id, week } => {
                let day = week.map(day_of).transpose()?;
                let params: [Param<'_>; 3] =
                    [(&scope.as_str(), Type::TEXT), (&event_id.as_str(), Type::TEXT), (&day, Type::DATE)];
                let sql = match dry_run {
                    true => include_str!("sql/count_event.sql"),
                    false => include_str!("sql/delete_event.sql"),
                };
                self.pool.rows(&self.limits, sql, &params).await?
            }
            Free::Unsettled { lane, from } => {
                let params: [Param<'_>; 2] = [(&lane.0, Type::INT8), (from, Type::INT8)];
                let sql = match dry_run {
                    true => include_str!("sql/count_unsettled.sql"),
                    false => include_str!("sql/delete_unsettled.sql"),
                };
                self.pool.rows(&self.scan_limits, sql, &params).await?
            }
        };
        count(&rows)
    }

    pub(super) async fn delete_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError> {
        let ids: Vec<&str> = refused.iter().map(|one| one.event_id.as_str()).collect();
        let days: Vec<Day> = refused.iter().map(|one| day_of(one.week)).collect::<Result<_, _>>()?;
        let lanes: Vec<i64> = refused.iter().map(|one| one.lane.0).collect();
        let positions: Vec<i64> = refused.iter().map(|one| one.position).collect();
        let mut distinct = days.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let params: [Param<'_>; 6] = [
            (&scope.as_str(), Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&days, Type::DATE_ARRAY),
            (&lanes, Type::INT8_ARRAY),
            (&positions, Type::INT8_ARRAY),
            (&distinct, Type::DATE_ARRAY),
        ];
        count(&self.pool.rows(&self.limits, include_str!("sql/delete_refused.sql"), &params).await?)
    }
}

fn claim_of(row: &Row, event_id: &EventId) -> Result<Claim, StoreError> {
    let scope = Scope::new(row.get(0)).map_err(|error| StoreError::Rejected(error.into()))?;
    let first_seen_at: Option<DateTime<Utc>> = row.get(7);
    Ok(Claim {
        scope,
        event_id: event_id.clone(),
        week: week_of(row.get(1)),
        holder: Holder { lane: row.get::<_, Option<i64>>(2).map(LaneId), position: row.get(3) },
        topic: row.get(4),
        partition: row.get(5),
        offset: row.get(6),
        first_seen_at: first_seen_at.map_or(EventTime::from_micros(0), EventTime::from),
        stream: row.get::<_, Option<String>>(8).map(StreamId::from_stored),
    })
}

/// The week of a stored day. Semel writes Mondays only; a row of another origin is shown in the week that it lies in.
pub(super) fn week_of(day: i32) -> Week {
    let micros = i64::from(day).saturating_mul(EventTime::MICROS_PER_DAY);
    Week::from_day_number(day).unwrap_or_else(|| Week::of(EventTime::from_micros(micros)))
}
