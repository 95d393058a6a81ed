//! Claims in PostgreSQL: many instances, one table partitioned by week.
//!
//! | file | does |
//! | --- | --- |
//! | [`options`], `tls` | from URL and environment to a client's settings |
//! | `pool` | connections, and the one way in which statements are sent |
//! | `claim`, `try_claim` | the insert, and who holds what conflicted |
//! | `lanes` | owner tokens, opening and closing lanes |
//! | `slots`, `takes` | lanes of instances: reserving on them, taking them |
//! | `partitions` | weeks made ahead and retired |
//! | `indexes` | an index on weeks that were there before it |
//! | `inspect`, [`health`] | what operators ask of the claims, and of the server |
//! | [`migrate`] | the schema and its version |
//! | `error` | what an error of the database means for the call |
//!
//! Every statement is a file of its own in `sql/`, so that a second dialect is a few files.
//!
//! **What is assumed of the server**: PostgreSQL 14 or later, with `fsync` and `synchronous_commit` on: a claim is
//! durable when its commit is answered. An asynchronous standby that is promoted may lack the last claims: their events
//! are then forwarded a second time, never lost. PgBouncer in transaction mode may stand between. No setting of server,
//! database or role for isolation, time zone or date style has an influence.

use std::fmt;

use async_trait::async_trait;

use self::options::{PostgresOptions, connect_settings};
use self::pool::{Limits, Pool};
use super::{
    Claim, ClaimStore, ClaimWindow, Free, Guard, OpenLane, Refused, Room, StoreError, StreamState, Take, Taken,
    TryClaim,
};
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{LaneId, Position, StoreId, StreamId};
use crate::protocol::verdict::Claimed;

mod claim;
mod error;
pub mod health;
mod indexes;
mod inspect;
mod lanes;
pub mod migrate;
pub mod options;
mod params;
mod partitions;
mod pool;
mod slots;
mod takes;
mod tls;
mod try_claim;

pub struct PostgresStore {
    pool: Pool,
    /// For what a claim waits on.
    limits: Limits,
    /// For statements that may read every claim.
    scan_limits: Limits,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresStore")
    }
}

impl PostgresStore {
    /// Reads the settings, with libpq's `PG*` variables where the URL is silent, and makes one connection to see that
    /// it can. Looks at no table: [`PostgresStore::check_schema`] does.
    ///
    /// Errors: [`StoreError::Rejected`] for settings that are not valid or refused by the server (user, password,
    /// database), [`StoreError::Unavailable`] where there is no server to be had just now.
    pub async fn connect(options: &PostgresOptions) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect_with(options, &|name| std::env::var(name).ok()).await
    }

    /// As [`PostgresStore::connect`], with another environment.
    pub async fn connect_with(
        options: &PostgresOptions,
        env: &(dyn Fn(&str) -> Option<String> + Sync),
    ) -> Result<PostgresStore, StoreError> {
        let settings = connect_settings(options, &|name| env(name))?;
        let store = PostgresStore {
            pool: Pool::new(options, settings)?,
            limits: Limits::new(options.lock_timeout, options.statement_timeout),
            scan_limits: Limits::new(options.lock_timeout, options.scan_timeout),
        };
        store.pool.probe().await?;
        Ok(store)
    }
}

#[async_trait]
impl ClaimStore for PostgresStore {
    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.read_store_id().await
    }

    async fn take(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        self.take_stream(take).await
    }

    async fn claim(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError> {
        self.claim_window(window).await
    }

    async fn open_lane(&self, open: &OpenLane<'_>) -> Result<u64, StoreError> {
        self.open(open).await
    }

    async fn close_lane(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        now: EventTime,
    ) -> Result<u64, StoreError> {
        self.close_open(stream, guard, cut, now).await
    }

    async fn record_drain(&self, stream: &StreamId, guard: Guard, settled: Position) -> Result<(), StoreError> {
        self.set_drained(stream, guard, Some(settled)).await
    }

    async fn forget_drain(&self, stream: &StreamId, guard: Guard) -> Result<(), StoreError> {
        self.set_drained(stream, guard, None).await
    }

    async fn is_open(&self, lane: LaneId) -> Result<bool, StoreError> {
        self.lane_is_open(lane).await
    }

    async fn try_claim(&self, rows: &[TryClaim], first_seen_at: EventTime) -> Result<Vec<Claimed>, StoreError> {
        self.try_claim_rows(rows, first_seen_at).await
    }

    async fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, StoreError> {
        self.find_claims(scope, event_id).await
    }

    async fn streams(&self) -> Result<Vec<StreamState>, StoreError> {
        self.list_streams().await
    }

    async fn free(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError> {
        self.free_claims(free, dry_run).await
    }

    async fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError> {
        self.delete_refused(scope, refused).await
    }

    async fn ensure_weeks(&self, first: Week, last: Week) -> Result<(), StoreError> {
        self.make_weeks(first, last).await
    }

    async fn weeks(&self) -> Result<Vec<Week>, StoreError> {
        self.list_weeks().await
    }

    async fn rooms(&self) -> Result<Vec<Room>, StoreError> {
        self.list_rooms().await
    }

    async fn retire_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        self.drop_weeks(first_kept).await
    }
}
