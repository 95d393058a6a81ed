//! The schema: making it, and refusing one that this program was not built for.
//!
//! Each migration is one transaction that begins by taking an advisory lock: of several that start at once, one
//! applies it and the others find it applied. Behind PgBouncer too, since the lock belongs to the transaction.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::params::Param;
use super::pool::{Lease, Limits};
use crate::store::StoreError;

/// Applied in this order. The rules for adding one: `migrations/README.md`.
const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "claims", sql: include_str!("../../../migrations/0001_claims.sql") },
    Migration { version: 2, name: "instance_lanes", sql: include_str!("../../../migrations/0002_instance_lanes.sql") },
    Migration {
        version: 3,
        name: "claims_of_slots",
        sql: include_str!("../../../migrations/0003_claims_of_slots.sql"),
    },
];

/// The schema that this program reads and writes.
pub const SCHEMA_VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Since it has `DETACH PARTITION … CONCURRENTLY`.
const SERVER_VERSION_MIN: i32 = 140_000;

/// For another migrator to end, and for the exclusive lock on a claims table in use. One that is not had in this time
/// is an error: waiting for it holds up every claim.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(600);

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

impl Migration {
    fn digest(&self) -> String {
        hex::encode(Sha256::digest(self.sql))
    }
}

/// Why a schema cannot be worked with.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SchemaProblem {
    #[error("PostgreSQL {0} is too old: 14 is the oldest that retires partitions without blocking claims")]
    OldServer(i32),
    #[error("the database has no schema of Semel's: run `semel migrate`")]
    Missing,
    #[error("the schema is at version {found}, this program needs {SCHEMA_VERSION}: run `semel migrate`")]
    Old { found: i32 },
    #[error("the schema is at version {found}, newer than the {SCHEMA_VERSION} that this program knows: upgrade it")]
    New { found: i32 },
    #[error("migration {version} was applied in another form than this program has it")]
    Altered { version: i32 },
}

impl PostgresStore {
    /// Brings the schema up to [`SCHEMA_VERSION`], from nothing or from an earlier version. Answers the versions that
    /// it applied; safe to repeat and to run at once from several places. What is to be made of them on weeks with claims
    /// in them comes last, without holding claims up; a call that finds another at it leaves it to that.
    pub async fn migrate(&self) -> Result<Vec<i32>, StoreError> {
        let limits = Limits::new(LOCK_WAIT, LONGEST);
        let mut applied = Vec::new();
        for migration in MIGRATIONS {
            let mut lease = self.pool.lease().await?;
            lease.begin(&limits).await?;
            if apply(&mut lease, migration).await? {
                lease.commit().await?;
                applied.push(migration.version);
            } else {
                lease.rollback().await;
            }
        }
        self.index_weeks().await?;
        Ok(applied)
    }

    /// The highest version applied; None where there is no schema.
    pub async fn schema_version(&self) -> Result<Option<i32>, StoreError> {
        let (_, applied) = self.applied().await?;
        Ok(applied.last().map(|(version, _)| *version))
    }

    /// Refuses a schema that is missing, older, newer or altered, and a server that is too old. One or two round trips.
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        let (server, applied) = self.applied().await?;
        let rejected = |problem: SchemaProblem| Err(StoreError::Rejected(problem.into()));
        if server < SERVER_VERSION_MIN {
            return rejected(SchemaProblem::OldServer(server / 10_000));
        }
        check(&applied).or_else(rejected)
    }

    /// The server's version number, and version and digest of what was applied.
    async fn applied(&self) -> Result<(i32, Vec<(i32, String)>), StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/has_migrations.sql"), &[]).await?;
        let (has, server): (bool, i32) = rows.first().map_or((false, 0), |row| (row.get(0), row.get(1)));
        if !has {
            return Ok((server, Vec::new()));
        }
        let rows = self.pool.rows(&self.limits, include_str!("sql/list_migrations.sql"), &[]).await?;
        Ok((server, rows.iter().map(|row| (row.get(0), row.get(1))).collect()))
    }
}

fn check(applied: &[(i32, String)]) -> Result<(), SchemaProblem> {
    let found = match applied.last() {
        None => return Err(SchemaProblem::Missing),
        Some((found, _)) => *found,
    };
    if found > SCHEMA_VERSION {
        return Err(SchemaProblem::New { found });
    }
    for migration in MIGRATIONS {
        match applied.iter().find(|(version, _)| *version == migration.version) {
            None => return Err(SchemaProblem::Old { found }),
            Some((_, digest)) if *digest != migration.digest() => {
                return Err(SchemaProblem::Altered { version: migration.version });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// False: it was applied before.
async fn apply(lease: &mut Lease, migration: &Migration) -> Result<bool, StoreError> {
    lease.rows(include_str!("sql/lock_migrations.sql"), &[]).await?;
    lease.batch(include_str!("sql/make_migrations.sql")).await?;
    let there = lease.rows(include_str!("sql/list_migrations.sql"), &[]).await?;
    if let Some(row) = there.iter().find(|row| row.get::<_, i32>(0) == migration.version) {
        if row.get::<_, &str>(1) != migration.digest() {
            return Err(StoreError::Rejected(SchemaProblem::Altered { version: migration.version }.into()));
        }
        return Ok(false);
    }
    lease.batch(migration.sql).await?;
    let digest = migration.digest();
    let params: [Param<'_>; 3] =
        [(&migration.version, Type::INT4), (&migration.name, Type::TEXT), (&digest, Type::TEXT)];
    lease.rows(include_str!("sql/record_migration.sql"), &params).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A migration that was applied anywhere is never edited: what is to change is a new one. A new one's line is added
    /// here with it.
    const RELEASED: &[(i32, &str)] = &[
        (1, "d73830db20120a549302470ddefc8531a5e2c8f5a4c4ce86ebe93f12642701d4"),
        (2, "c8065ce66f546227c89fd809779497d6af07a98f47aeae57b19fbf7ff4ff25a6"),
        (3, "25ad2f3803022f329e128ed6092cd6350baacea23a2c466400a88f5f4934cdb4"),
    ];

    #[test]
    fn released_ones_never_change() {
        assert_eq!(RELEASED.len(), MIGRATIONS.len(), "a digest for each");
        for (version, digest) in RELEASED {
            let migration = MIGRATIONS.iter().find(|migration| migration.version == *version).expect("still there");
            assert_eq!(migration.digest(), *digest, "migration {version} was changed");
        }
        assert!(MIGRATIONS.iter().zip(1..).all(|(migration, n)| migration.version == n), "numbered without gaps");
    }

    #[test]
    fn refusals() {
        let applied = |version: i32| {
            let there = MIGRATIONS.iter().filter(|migration| migration.version <= version);
            there.map(|migration| (migration.version, migration.digest())).collect::<Vec<_>>()
        };
        let newest = applied(SCHEMA_VERSION);
        let altered = newest.iter().map(|(version, _)| (*version, "other".to_owned())).collect::<Vec<_>>();
        let newer = [&newest[..], &[(SCHEMA_VERSION + 1, String::new())]].concat();
        let cases = [
            (vec![], Err(SchemaProblem::Missing)),
            (vec![(0, String::new())], Err(SchemaProblem::Old { found: 0 })),
            (applied(1), Err(SchemaProblem::Old { found: 1 })),
            (newest, Ok(())),
            (altered, Err(SchemaProblem::Altered { version: 1 })),
            (newer, Err(SchemaProblem::New { found: SCHEMA_VERSION + 1 })),
        ];
        for (applied, expected) in cases {
            assert_eq!(check(&applied), expected, "{applied:?}");
        }
    }
}
