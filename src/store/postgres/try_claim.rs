//! Claims without a lane: each for itself, in one shared commit.
//!
//! Settled from the moment they are made, and so the simplest: insert or nothing, then read who holds those that
//! conflicted. Rows are sorted by key, as those of windows are: batches that share keys cannot deadlock.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::claim::{GONE_ROUNDS, Index, Key, day_of, out_of_step};
use super::error::{is_missing_partition, rolled_back};
use super::inspect::week_of;
use super::params::{Day, Param, Stamp};
use super::pool::Ended;
use crate::protocol::event::EventTime;
use crate::protocol::lane::Holder;
use crate::protocol::verdict::Claimed;
use crate::store::{StoreError, TryClaim};

impl PostgresStore {
    pub(super) async fn try_claim_rows(&self, rows: &[TryClaim], now: EventTime) -> Result<Vec<Claimed>, StoreError> {
        let keys: Vec<Key<'_>> = rows.iter().map(Key::of_try).collect();
        // The first row of each key asks for it; the others are answered from what it finds.
        let mut first: HashMap<Key<'_>, Index> = HashMap::with_capacity(rows.len());
        let asker: Vec<Index> = (0..rows.len()).map(|n| *first.entry(keys[n]).or_insert(n)).collect();
        let mut asked: Vec<Index> = first.into_values().collect();
        asked.sort_unstable_by_key(|&n| keys[n]);
        let mut answers: Vec<Option<Claimed>> = vec![None; rows.len()];
        let mut round = 0;
        while !asked.is_empty() {
            round += 1;
            if round > GONE_ROUNDS {
                return Err(StoreError::Unknown("claims come and go under this call".into()));
            }
            let lost = self.insert_tries(rows, &asked, now, &mut answers).await?;
            let lost_keys: Vec<Key<'_>> = lost.iter().map(|&n| keys[n]).collect();
            asked.clear();
            for (n, holder) in lost.into_iter().zip(self.holders(&lost_keys).await?) {
                match holder {
                    Some(holder) => answers[n] = Some(Claimed::Held(holder)),
                    None => asked.push(n),
                }
            }
            if !asked.is_empty() {
                out_of_step(round).await;
            }
        }
        let answer = |(n, &asker): (Index, &Index)| match answers[asker]? {
            Claimed::Inserted if n != asker => Some(Claimed::Held(holder_of(&rows[asker]))),
            answered => Some(answered),
        };
        Ok(asker.iter().enumerate().filter_map(answer).collect())
    }

    /// Inserts the rows `asked`, marks those that it inserted, answers the others.
    async fn insert_tries(
        &self,
        rows: &[TryClaim],
        asked: &[Index],
        now: EventTime,
        answers: &mut [Option<Claimed>],
    ) -> Result<Vec<Index>, StoreError> {
        let rows_asked = || asked.iter().map(|&n| &rows[n]);
        let scopes: Vec<&str> = rows_asked().map(|row| row.scope.as_str()).collect();
        let ids: Vec<&str> = rows_asked().map(|row| row.event_id.as_str()).collect();
        let days: Vec<Day> = rows_asked().map(|row| day_of(row.week)).collect::<Result<_, _>>()?;
        let topics: Vec<&str> = rows_asked().map(|row| &*row.topic).collect();
        let partitions: Vec<Option<i32>> = rows_asked().map(|row| row.partition).collect();
        let offsets: Vec<Option<i64>> = rows_asked().map(|row| row.offset).collect();
        let params: [Param<'_>; 7] = [
            (&Stamp(now), Type::TIMESTAMPTZ),
            (&scopes, Type::TEXT_ARRAY),
            (&ids, Type::TEXT_ARRAY),
            (&days, Type::DATE_ARRAY),
            (&topics, Type::TEXT_ARRAY),
            (&partitions, Type::INT4_ARRAY),
            (&offsets, Type::INT8_ARRAY),
        ];
        let made = match self.pool.run(&self.limits, include_str!("sql/try_claim.sql"), &params).await? {
            Ended::Committed(made) => made,
            Ended::RolledBack(error) if is_missing_partition(&error) => {
                return Err(self.missing_week(rows.iter().map(|row| row.week)).await);
            }
            Ended::RolledBack(error) => return Err(rolled_back(error)),
        };
        let made: HashSet<(&str, &str, _)> =
            made.iter().map(|row| (row.get(0), row.get(1), week_of(row.get(2)))).collect();
        let mut lost = Vec::new();
        for &n in asked {
            let row = &rows[n];
            if made.contains(&(row.scope.as_str(), row.event_id.as_str(), row.week)) {
                answers[n] = Some(Claimed::Inserted);
            } else {
                lost.push(n);
            }
        }
        Ok(lost)
    }
}

fn holder_of(row: &TryClaim) -> Holder {
    Holder { lane: None, position: row.offset.unwrap_or(0) }
}
