//! Weeks: making room for them and retiring them, never in the way of claims in other weeks.
//!
//! **Making one**: `CREATE TABLE … (LIKE …)` and `ATTACH PARTITION`, in one transaction. Of the claims table this
//! takes a SHARE UPDATE EXCLUSIVE lock, beside which inserts go on; `CREATE TABLE … PARTITION OF` would take an
//! exclusive one and, waiting for the oldest open transaction, hold up every claim behind it. The table is new and
//! empty, so that there is nothing for `ATTACH` to scan, and no CHECK constraint is needed, for which every later
//! insert would pay.
//!
//! There is never a default partition: it would forbid both this and what follows. A week without a partition refuses
//! its claims ([`StoreError::NoWeek`]).
//!
//! **Retiring one**: mark it by a comment, `DETACH PARTITION … CONCURRENTLY`, `DROP TABLE`. An interruption leaves one
//! of two traces, and the next retirement goes on from either: a detachment that is pending is finished by `FINALIZE`,
//! a detached table that has the mark is dropped. A table without the mark is an operator's own, and kept.
//!
//! **Election.** `DETACH … CONCURRENTLY` waits for all transactions that touched the claims table, and cannot run in
//! one. So the lock that elects who retires is held by a second connection, in a transaction that touches no table. It
//! is a transaction's lock: a session's would stay with the server connection behind PgBouncer.
//!
//! **Not handled**: a transaction of somebody else's that stays open for hours on the claims table. Retirement then
//! gives up after [`DETACH_WAIT`], harming nobody, and is taken up at the next call.

use std::time::Duration;

use chrono::Datelike;
use tokio_postgres::Row;

use super::PostgresStore;
use super::error::unexpected;
use super::pool::{Lease, Limits};
use crate::config::retention::{RETENTION_WEEKS_MAX, WEEKS_AHEAD_MAX};
use crate::protocol::event::Week;
use crate::store::{Room, StoreError};

/// Most weeks that one call makes room for: some twenty years.
const WEEKS_MAX: i32 = 1_100;
const _: () = assert!(RETENTION_WEEKS_MAX + 1 + WEEKS_AHEAD_MAX <= WEEKS_MAX as u64, "a start asks for all of them");

/// Tries for a lock, and how long each waits.
const TRIES: u32 = 5;
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// For the transactions that still see a partition that is being detached.
const DETACH_WAIT: Duration = Duration::from_secs(60);

/// A table, its first day, and the day after its last.
struct Partition {
    table: String,
    from: i32,
    until: i32,
}

impl Partition {
    /// Columns `table, from, until`, from `from` on where other columns stand between.
    fn read(row: &Row, from: usize) -> Partition {
        Partition { table: row.get(0), from: row.get(from), until: row.get(from + 1) }
    }

    fn takes(&self, week: Week) -> bool {
        (self.from..self.until).contains(&week.day_number())
    }

    /// The Mondays in it: one, unless somebody else made it.
    fn weeks(&self) -> impl Iterator<Item = Week> + use<> {
        let until = self.until;
        // The first Monday at or after `from`.
        let monday = (self.from..).find_map(Week::from_day_number);
        std::iter::successors(monday, |week| Some(week.plus(1))).take_while(move |week| week.day_number() < until)
    }
}

impl PostgresStore {
    pub(super) async fn list_weeks(&self) -> Result<Vec<Week>, StoreError> {
        let mut weeks: Vec<Week> = self.partitions().await?.iter().flat_map(Partition::weeks).collect();
        weeks.sort_unstable();
        Ok(weeks)
    }

    pub(super) async fn list_rooms(&self) -> Result<Vec<Room>, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/list_rooms.sql"), &[]).await?;
        let room = |row: &Row| {
            let mut weeks = Partition::read(row, 1).weeks();
            let first = weeks.next()?;
            let (claims, bytes): (i64, i64) = (row.get(3), row.get(4));
            let (claims_estimate, bytes) = (Some(claims.unsigned_abs()), Some(bytes.unsigned_abs()));
            Some(Room { first, last: weeks.last().unwrap_or(first), claims_estimate, bytes })
        };
        Ok(rows.iter().filter_map(room).collect())
    }

    pub(super) async fn make_weeks(&self, first: Week, last: Week) -> Result<(), StoreError> {
        if last.day_number().saturating_sub(first.day_number()) >= WEEKS_MAX * 7 {
            return Err(unexpected("more weeks at once than a store makes room for"));
        }
        let there = self.partitions().await?;
        let wanted = std::iter::successors(Some(first), |week| Some(week.plus(1))).take_while(|week| *week <= last);
        for week in wanted.filter(|week| !there.iter().any(|partition| partition.takes(*week))) {
            let mut tries = 1;
            while let Err(error) = self.make_week(week).await {
                pause(&mut tries, error).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn drop_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        let mut elected = self.pool.lease().await?;
        elected.begin(&self.limits).await?;
        let answer = elected.rows(include_str!("sql/elect_retiring.sql"), &[]).await?;
        // As a simple query it also closes the portal of the one before, whose snapshot `FINALIZE` would wait for.
        elected.batch("SET LOCAL idle_in_transaction_session_timeout = 0").await?;
        let mut retired = Vec::new();
        if answer.first().is_some_and(|row| row.get(0)) {
            let done = self.drop_weeks_elected(first_kept, &mut retired).await;
            // Those that are gone are gone, and told, even if the next one has to wait for another call.
            if retired.is_empty() {
                done?;
            }
        }
        elected.rollback().await;
        retired.sort_unstable();
        Ok(retired)
    }

    async fn drop_weeks_elected(&self, first_kept: Week, retired: &mut Vec<Week>) -> Result<(), StoreError> {
        self.finish_retiring(retired).await?;
        for partition in self.partitions().await? {
            if partition.until > first_kept.day_number() || partition.takes(Week::UNDATED) {
                continue;
            }
            let Partition { table, from, until } = &partition;
            let mark = format!("COMMENT ON TABLE {table} IS 'semel retires days {from} to {until}'");
            self.ddl(&mark).await?;
            self.pool
                .alone(
                    &format!("ALTER TABLE processed_kafka_events DETACH PARTITION {table} CONCURRENTLY"),
                    DETACH_WAIT,
                )
                .await?;
            self.finish_retiring(retired).await?;
        }
        Ok(())
    }

    /// Drops what is marked: detached, or with its detachment pending since an interruption.
    async fn finish_retiring(&self, retired: &mut Vec<Week>) -> Result<(), StoreError> {
        for row in self.pool.rows(&self.limits, include_str!("sql/list_retiring.sql"), &[]).await? {
            let (pending, partition): (bool, Partition) = (row.get(1), Partition::read(&row, 2));
            let table = &partition.table;
            if pending {
                let finalize = format!("ALTER TABLE processed_kafka_events DETACH PARTITION {table} FINALIZE");
                self.ddl(&finalize).await?;
            }
            let drop = format!("DROP TABLE {table}");
            self.ddl(&drop).await?;
            retired.extend(partition.weeks());
        }
        Ok(())
    }

    async fn partitions(&self) -> Result<Vec<Partition>, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/list_partitions.sql"), &[]).await?;
        Ok(rows.iter().map(|row| Partition::read(row, 1)).collect())
    }

    async fn make_week(&self, week: Week) -> Result<(), StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&Limits::new(LOCK_WAIT, DETACH_WAIT)).await?;
        make_week_locked(&mut lease, week).await?;
        lease.commit().await
    }

    /// One statement of data definition in a transaction of its own, repeated where it did not get its locks.
    pub(super) async fn ddl(&self, sql: &str) -> Result<(), StoreError> {
        let mut tries = 1;
        while let Err(error) = self.ddl_once(sql).await {
            pause(&mut tries, error).await?;
        }
        Ok(())
    }

    async fn ddl_once(&self, sql: &str) -> Result<(), StoreError> {
        let mut lease = self.pool.lease().await?;
        lease.begin(&Limits::new(LOCK_WAIT, DETACH_WAIT)).await?;
        lease.batch(sql).await?;
        lease.commit().await
    }
}

/// Waits before the next try, or gives up with the error of the last one.
async fn pause(tries: &mut u32, error: StoreError) -> Result<(), StoreError> {
    match error {
        StoreError::Unavailable(_) if *tries < TRIES => {
            tokio::time::sleep(Duration::from_millis(100 << *tries)).await;
            *tries += 1;
            Ok(())
        }
        error => Err(error),
    }
}

async fn make_week_locked(lease: &mut Lease, week: Week) -> Result<(), StoreError> {
    lease.rows(include_str!("sql/lock_making.sql"), &[]).await?;
    let rows = lease.rows(include_str!("sql/list_partitions.sql"), &[]).await?;
    let there: Vec<Partition> = rows.iter().map(|row| Partition::read(row, 1)).collect();
    if there.iter().any(|partition| partition.takes(week)) {
        return Ok(());
    }
    let monday = week.monday().filter(|monday| (1..=9999).contains(&monday.year()));
    let monday = monday.ok_or_else(|| unexpected("a week outside the years 1 to 9999"))?;
    // A partition that somebody else made may begin in the middle of this week.
    let next = there.iter().map(|partition| partition.from).filter(|from| *from > week.day_number()).min();
    let days = next.map_or(7, |next| (next - week.day_number()).min(7));
    let until = monday + chrono::Days::new(days as u64);
    let table = format!("processed_kafka_events_{}", monday.format("%Y%m%d"));
    lease
        .batch(&format!(
            "CREATE TABLE {table} (LIKE processed_kafka_events INCLUDING ALL);
             ALTER TABLE processed_kafka_events ATTACH PARTITION {table} FOR VALUES FROM ('{monday}') TO ('{until}')"
        ))
        .await
}
