//! What `semel check` asks of the server: its version and settings, what this role may do, the server's time.

use chrono::{DateTime, Utc};

use super::PostgresStore;
use super::error::unexpected;
use crate::protocol::event::EventTime;
use crate::store::StoreError;

/// The server as this connection finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    pub version: String,
    pub database: String,
    pub user: String,
    /// When it answered, by its own clock.
    pub now: EventTime,
    /// A standby takes no claim.
    pub in_recovery: bool,
    pub fsync: bool,
    /// `off`, `local`, `remote_write`, `on`, `remote_apply`.
    pub synchronous_commit: String,
    /// Names the standbys that every commit waits for; empty: none.
    pub synchronous_standbys: String,
    /// Standbys that are connected now.
    pub standbys: i64,
    pub connections_max: i64,
}

/// What this role may do with the claims' tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    /// Missing for claims: `INSERT on processed_kafka_events`.
    pub missing: Vec<String>,
    /// Weeks are made and retired by the table's owner, with CREATE on its schema.
    pub may_tend_weeks: bool,
}

impl PostgresStore {
    /// Looks at no table of Semel's. One round trip.
    pub async fn server_facts(&self) -> Result<ServerFacts, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/server_facts.sql"), &[]).await?;
        let row = rows.first().ok_or_else(|| unexpected("the server says nothing of itself"))?;
        Ok(ServerFacts {
            version: row.get(0),
            database: row.get(1),
            user: row.get(2),
            now: EventTime::from(row.get::<_, DateTime<Utc>>(3)),
            in_recovery: row.get(4),
            fsync: row.get(5),
            synchronous_commit: row.get(6),
            synchronous_standbys: row.get(7),
            standbys: row.get(8),
            connections_max: row.get(9),
        })
    }

    /// Where the schema is there. Two round trips.
    pub async fn privileges(&self) -> Result<Privileges, StoreError> {
        let missing = self.pool.rows(&self.limits, include_str!("sql/missing_privileges.sql"), &[]).await?;
        let tends = self.pool.rows(&self.limits, include_str!("sql/may_tend_weeks.sql"), &[]).await?;
        Ok(Privileges {
            missing: missing.iter().map(|row| row.get(0)).collect(),
            may_tend_weeks: tends.first().is_some_and(|row| row.get(0)),
        })
    }
}
