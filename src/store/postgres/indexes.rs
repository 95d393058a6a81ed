//! The index of slots' claims on the weeks that were there before it: one by one, never in the way of claims.
//!
//! The migration makes it on the parent alone, and a week that is made later has it from its beginning. On a week with
//! claims in it `CREATE INDEX` would hold up every insert until all its claims are read, so it is `CREATE INDEX
//! CONCURRENTLY`, which only waits itself: for the transactions that are older. Nothing needs the index but for its
//! speed, so that whatever interrupts this does no harm; what it left behind is not whole, and is dropped and made again
//! by the next `semel migrate`.
//!
//! **Election.** As for retiring weeks: by a lock that a second connection holds in a transaction without a snapshot,
//! since `CONCURRENTLY` waits for every snapshot that is older. Who is not elected leaves it to the one who is, and does
//! not wait for the lock: that would be a snapshot.

use std::time::Duration;

use super::PostgresStore;
use crate::store::StoreError;

/// For one week: its claims are read twice, and transactions that are older are waited for.
const BUILD_WAIT: Duration = Duration::from_secs(3_600);

impl PostgresStore {
    /// Makes what is missing of the index. Some seconds for ten million claims.
    pub(super) async fn index_weeks(&self) -> Result<(), StoreError> {
        if self.unindexed().await?.is_empty() {
            return Ok(());
        }
        let mut elected = self.pool.lease().await?;
        elected.begin(&self.limits).await?;
        let answer = elected.rows(include_str!("sql/elect_indexing.sql"), &[]).await?;
        // As a simple query it also closes the portal of the one before, and with it the snapshot.
        elected.batch("SET LOCAL idle_in_transaction_session_timeout = 0").await?;
        let mut made = Ok(());
        if answer.first().is_some_and(|row| row.get(0)) {
            made = self.index_weeks_elected().await;
        }
        elected.rollback().await;
        made
    }

    async fn index_weeks_elected(&self) -> Result<(), StoreError> {
        for Unindexed { table, index, name, is_there, is_whole } in self.unindexed().await? {
            if is_there && !is_whole {
                self.pool.alone(&format!("DROP INDEX CONCURRENTLY {index}"), BUILD_WAIT).await?;
            }
            if !is_whole {
                let make = format!(
                    r#"CREATE INDEX CONCURRENTLY {name} ON {table} (lane, position)
                       WHERE lane IS NOT NULL AND "offset" IS NULL"#
                );
                self.pool.alone(&make, BUILD_WAIT).await?;
            }
            self.ddl(&format!("ALTER INDEX processed_kafka_events_of_slots ATTACH PARTITION {index}")).await?;
        }
        Ok(())
    }

    async fn unindexed(&self) -> Result<Vec<Unindexed>, StoreError> {
        let rows = self.pool.rows(&self.limits, include_str!("sql/list_unindexed.sql"), &[]).await?;
        let read = |row: &tokio_postgres::Row| Unindexed {
            table: row.get(0),
            index: row.get(1),
            name: row.get(2),
            is_there: row.get(3),
            is_whole: row.get(4),
        };
        Ok(rows.iter().map(read).collect())
    }
}

struct Unindexed {
    table: String,
    /// With its schema.
    index: String,
    name: String,
    is_there: bool,
    is_whole: bool,
}
