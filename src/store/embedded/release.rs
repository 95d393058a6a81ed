//! Finding claims, and deleting them.

use std::collections::{BTreeMap, BTreeSet};

use fjall::{AbstractTree, Keyspace, OwnedWriteBatch, UserKey, UserValue};

use super::Trouble;
use super::body;
use super::code::Out;
use super::inner::Inner;
use super::key;
use super::tail;
use crate::protocol::event::{EventId, Scope, Week};
use crate::protocol::lane::{Holder, LaneId, Position};
use crate::store::{Claim, Free, Refused, Room};

/// Deletions per commit, where a scan finds more than the claims of a few windows.
const DELETIONS_PER_BATCH: usize = 50_000;

/// A claim that was found by its lane.
#[derive(Debug)]
pub(super) struct Found {
    pub week: Week,
    pub key: UserKey,
    pub position: Position,
    pub record: UserValue,
}

type AllFound<'a> = Box<dyn Iterator<Item = Result<Found, Trouble>> + 'a>;

impl Inner {
    /// Adds the deletion of a lane's claims at or above `from` to `batch`.
    pub fn release(
        &self,
        mut batch: OwnedWriteBatch,
        lane: LaneId,
        from: Position,
    ) -> Result<(OwnedWriteBatch, u64), Trouble> {
        let mut released = 0;
        for found in self.claims_from(lane, from)? {
            self.delete(&mut batch, found?)?;
            released += 1;
        }
        Ok((batch, released))
    }

    /// Adds the deletion of a claim that is to go in any case. Where there are very many of them, batches are committed
    /// on the way, and a repeated call deletes the rest.
    pub fn delete(&self, batch: &mut OwnedWriteBatch, found: Found) -> Result<(), Trouble> {
        batch.remove(&self.weeks[&found.week], found.key);
        if batch.len() >= DELETIONS_PER_BATCH {
            std::mem::replace(batch, self.batch()).commit().map_err(Trouble::Write)?;
        }
        Ok(())
    }

    /// The claims of a lane at or above `from`, from its ring, or by a scan where that does not reach so far down.
    pub fn claims_from(&self, lane: LaneId, from: Position) -> Result<AllFound<'_>, Trouble> {
        let wanted = move |holder: Holder| holder.lane == Some(lane) && holder.position >= from;
        if let Some(places) = self.tails.get(&lane).and_then(|tail| tail.places(lane, from)) {
            let mut found = BTreeMap::new();
            for place in places {
                let Some(record) = self.tails_space.get(place).map_err(Trouble::Read)? else { continue };
                for entry in tail::entries(&record)?.into_iter().filter(|entry| entry.position >= from) {
                    let Some(claim) = self.record(entry.week, entry.key)? else { continue };
                    let holder = body::holder(&claim, &self.origins)?;
                    if wanted(holder) {
                        found.insert((entry.week, UserKey::from(entry.key)), (holder.position, claim));
                    }
                }
            }
            let found = found.into_iter();
            return Ok(Box::new(
                found.map(|((week, key), (position, record))| Ok(Found { week, key, position, record })),
            ));
        }
        // A lane that was never opened here has no claims either.
        if !self.lanes.contains_key(&lane) {
            return Ok(Box::new(std::iter::empty()));
        }
        let scan = self.weeks.iter().flat_map(|(&week, space)| space.iter().map(move |claim| (week, claim)));
        Ok(Box::new(scan.filter_map(move |(week, claim)| {
            let found = || -> Result<Option<Found>, Trouble> {
                let (key, record) = claim.into_inner().map_err(Trouble::Read)?;
                let holder = body::holder(&record, &self.origins)?;
                Ok(wanted(holder).then_some(Found { week, key, position: holder.position, record }))
            };
            found().transpose()
        })))
    }

    fn record(&self, week: Week, key: &[u8]) -> Result<Option<UserValue>, Trouble> {
        let Some(space) = self.weeks.get(&week) else { return Ok(None) };
        space.get(key).map_err(Trouble::Read)
    }

    fn holder(&self, week: Week, key: &[u8]) -> Result<Option<Holder>, Trouble> {
        Ok(self.record(week, key)?.map(|record| body::holder(&record, &self.origins)).transpose()?)
    }

    pub fn free(&self, free: &Free, dry_run: bool) -> Result<u64, Trouble> {
        let mut batch = self.batch();
        let freed = match free {
            Free::Unsettled { lane, from } if dry_run => {
                self.claims_from(*lane, *from)?.try_fold(0, |count, found| found.map(|_| count + 1))?
            }
            Free::Unsettled { lane, from } => {
                let count;
                (batch, count) = self.release(batch, *lane, *from)?;
                count
            }
            Free::Event { scope, event_id, week } => {
                let Some(scope) = self.scopes.get(scope) else { return Ok(0) };
                let mut key = Out::default();
                key::write(&mut key, scope, event_id);
                let asked = self.weeks.iter().filter(|(at, _)| week.is_none_or(|week| week == **at));
                for (_, space) in asked {
                    if space.contains_key(&key.0).map_err(Trouble::Read)? {
                        batch.remove(space, key.0.as_slice());
                    }
                }
                batch.len() as u64
            }
        };
        if !dry_run {
            batch.commit().map_err(Trouble::Write)?;
        }
        Ok(freed)
    }

    /// Deletes claims where key, lane and position all match.
    pub fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, Trouble> {
        let Some(scope) = self.scopes.get(scope) else { return Ok(0) };
        let (mut batch, mut key, mut seen) = (self.batch(), Out::default(), BTreeSet::new());
        for one in refused {
            key::write(&mut key, scope, &one.event_id);
            let held_by = Holder { lane: Some(one.lane), position: one.position };
            if self.holder(one.week, &key.0)? == Some(held_by) && seen.insert((one.week, key.0.clone())) {
                batch.remove(&self.weeks[&one.week], key.0.as_slice());
            }
        }
        batch.commit().map_err(Trouble::Write)?;
        Ok(seen.len() as u64)
    }

    /// By scope, then week.
    pub fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, Trouble> {
        let (mut claims, mut key) = (Vec::new(), Out::default());
        let mut scopes: Vec<(u32, &Scope)> =
            self.scopes.all().filter(|(_, name)| scope.is_none_or(|scope| scope == *name)).collect();
        scopes.sort_by_key(|&(_, name)| name);
        for (number, name) in scopes {
            key::write(&mut key, number, event_id);
            for (&week, space) in &self.weeks {
                let Some(record) = space.get(&key.0).map_err(Trouble::Read)? else { continue };
                let body = body::read(&record, &self.origins)?;
                claims.push(Claim {
                    scope: name.clone(),
                    event_id: event_id.clone(),
                    week,
                    holder: body.holder,
                    topic: body.topic.to_string(),
                    partition: body.partition,
                    offset: body.offset,
                    first_seen_at: body.first_seen_at,
                    stream: body.holder.lane.and_then(|lane| self.lanes.get(&lane)).cloned(),
                });
            }
        }
        Ok(claims)
    }

    pub fn rooms(&self) -> Vec<Room> {
        let room = |(&week, space): (&Week, &Keyspace)| Room {
            first: week,
            last: week,
            claims_estimate: Some(space.approximate_len() as u64),
            // What no table holds yet stands in the journal.
            bytes: Some(space.disk_space() + space.tree.active_memtable().size()),
        };
        self.weeks.iter().map(room).collect()
    }

    pub fn retire_weeks(&mut self, first_kept: Week) -> Result<Vec<(Week, Keyspace)>, Trouble> {
        let retires = |week: Week| week < first_kept && week != Week::UNDATED;
        let retired: Vec<Week> = self.weeks.keys().copied().filter(|&week| retires(week)).collect();
        let mut retire = |week| {
            self.database.delete_keyspace(self.weeks[&week].clone()).map_err(Trouble::Write)?;
            Ok(self.weeks.remove_entry(&week))
        };
        retired.into_iter().filter_map(|week| retire(week).transpose()).collect()
    }
}
