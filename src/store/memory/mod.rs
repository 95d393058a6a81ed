//! The reference: what the promises mean, in the plainest form. Nothing is durable, everything is behind one mutex.
//!
//! The conformance suite runs random histories against this store and another one and compares every answer, so where
//! the two could reasonably differ, this file decides: guards are checked before weeks, weeks before anything is
//! written, and no call writes a part of what it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{
    Ask, Claim, ClaimStore, ClaimWindow, Free, Guard, LaneFor, OpenLane, Refused, Room, StoreError, StreamState, Take,
    Taken, TryClaim,
};
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{Holder, LaneId, Position, StoreId, StreamId, Token};
use crate::protocol::start::Row;
use crate::protocol::verdict::Claimed;

mod slots;

type Key = (Scope, EventId, Week);

#[derive(Debug)]
pub struct MemoryStore {
    id: StoreId,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    claims: BTreeMap<Key, Body>,
    streams: BTreeMap<StreamId, Stream>,
    /// Every lane that was ever opened. Outlives the lane's claims.
    lanes: BTreeMap<LaneId, Lane>,
    weeks: BTreeSet<Week>,
    clock: slots::LeaseClock,
}

/// What a claim's row has beside its key.
#[derive(Debug, Clone)]
struct Body {
    holder: Holder,
    topic: String,
    partition: Option<i32>,
    offset: Option<i64>,
    first_seen_at: EventTime,
}

#[derive(Debug)]
struct Stream {
    owner: Token,
    open: Option<LaneId>,
    drained: Option<Position>,
    opened_for: Option<LaneFor>,
}

#[derive(Debug)]
struct Lane {
    /// That it was opened on.
    stream: StreamId,
    /// None for a Kafka partition's.
    of_slot: Option<slots::OfSlot>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store with an id of its own. It has room for undated claims only, until weeks are ensured.
    pub fn new() -> MemoryStore {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the system has randomness");
        MemoryStore::with_id(StoreId(hex::encode(id).into()))
    }

    pub fn with_id(id: StoreId) -> MemoryStore {
        MemoryStore { id, inner: Mutex::new(Inner { weeks: [Week::UNDATED].into(), ..Inner::default() }) }
    }

    /// Sets the clock of leases forward. By itself it goes as the runtime's does.
    pub fn advance(&self, by: Duration) {
        self.lock().clock.advance(by);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No call panics between two writes, so that what a poisoned lock guards is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn owned(&mut self, stream: &StreamId, token: Token) -> Result<&mut Stream, StoreError> {
        self.streams.get_mut(stream).filter(|row| row.owner == token).ok_or(StoreError::NotOwner)
    }

    fn guarded(&mut self, stream: &StreamId, guard: Guard) -> Result<&mut Stream, StoreError> {
        let row = self.owned(stream, guard.token)?;
        if row.open == Some(guard.lane) { Ok(row) } else { Err(StoreError::NotOwner) }
    }

    fn has_room(&self, weeks: impl IntoIterator<Item = Week>) -> Result<(), StoreError> {
        match weeks.into_iter().find(|week| !self.weeks.contains(week)) {
            Some(missing) => Err(StoreError::NoWeek(missing)),
            None => Ok(()),
        }
    }

    fn insert_or_read(&mut self, key: Key, row: Body) -> Claimed {
        match self.claims.entry(key) {
            std::collections::btree_map::Entry::Occupied(there) => Claimed::Held(there.get().holder),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(row);
                Claimed::Inserted
            }
        }
    }

    fn delete(&mut self, dry_run: bool, which: impl Fn(&Key, &Body) -> bool) -> u64 {
        let before = self.claims.len();
        if dry_run {
            return self.claims.iter().filter(|(key, row)| which(key, row)).count() as u64;
        }
        self.claims.retain(|key, row| !which(key, row));
        (before - self.claims.len()) as u64
    }

    fn delete_unsettled(&mut self, dry_run: bool, lane: LaneId, from: Position) -> u64 {
        self.delete(dry_run, |_, row| row.holder.lane == Some(lane) && row.holder.position >= from)
    }
}

#[async_trait]
impl ClaimStore for MemoryStore {
    async fn store_id(&self) -> Result<StoreId, StoreError> {
        Ok(self.id.clone())
    }

    async fn take(&self, take: &Take<'_>) -> Result<Taken, StoreError> {
        let mut inner = self.lock();
        if let Some(old) = take.instead_of {
            // The new token already stands there where an earlier try has landed.
            let owner = inner.streams.get(take.stream).map(|row| row.owner);
            if owner != Some(old) && owner != Some(take.token) {
                return Err(StoreError::NotOwner);
            }
        }
        let stream = inner.streams.entry(take.stream.clone()).or_insert(Stream {
            owner: take.token,
            open: None,
            drained: None,
            opened_for: None,
        });
        stream.owner = take.token;
        Ok(Taken { row: stream.row(), opened_for: stream.opened_for.clone() })
    }

    async fn claim(&self, window: &ClaimWindow<'_>) -> Result<Vec<Claimed>, StoreError> {
        window.check()?;
        let mut inner = self.lock();
        for guard in window.guards {
            let holds = |row: &Stream| row.open == Some(guard.lane) && row.owner == guard.token;
            if !inner.streams.values().any(holds) {
                return Err(StoreError::NotOwner);
            }
        }
        inner.has_room(window.rows.iter().map(|row| row.week))?;
        let claim = |row: &Ask| {
            let claim = Body {
                holder: Holder { lane: Some(row.lane), position: row.position },
                topic: row.topic.to_string(),
                partition: Some(row.partition),
                offset: Some(row.offset),
                first_seen_at: window.first_seen_at,
            };
            inner.insert_or_read((window.scope.clone(), row.event_id.clone(), row.week), claim)
        };
        Ok(window.rows.iter().map(claim).collect())
    }

    async fn open_lane(&self, open: &OpenLane<'_>) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        if inner.owned(open.stream, open.token)?.open == Some(open.lane) {
            return Ok(0);
        }
        if inner.lanes.contains_key(&open.lane) {
            // A straggler: this lane was open once and another has followed it.
            return Err(StoreError::NotOwner);
        }
        let mut released = 0;
        if let Some(cut) = open.cut {
            released = inner.delete_unsettled(false, cut.prev, cut.cut);
            inner.settle(cut.prev, cut.cut);
            for stream in inner.streams.values_mut().filter(|stream| stream.open == Some(cut.prev)) {
                *stream = Stream { owner: open.token, open: None, drained: None, opened_for: None };
            }
        }
        let opened_for = Some(open.lane_for.clone());
        let row = Stream { owner: open.token, open: Some(open.lane), drained: None, opened_for };
        inner.streams.insert(open.stream.clone(), row);
        inner.lanes.insert(open.lane, Lane { stream: open.stream.clone(), of_slot: None });
        Ok(released)
    }

    async fn close_lane(
        &self,
        stream: &StreamId,
        guard: Guard,
        cut: Position,
        _now: EventTime,
    ) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        match inner.owned(stream, guard.token)?.open {
            None => return Ok(0),
            Some(open) if open != guard.lane => return Err(StoreError::NotOwner),
            Some(_) => {}
        }
        let row = Stream { owner: guard.token, open: None, drained: None, opened_for: None };
        inner.streams.insert(stream.clone(), row);
        inner.settle(guard.lane, cut);
        Ok(inner.delete_unsettled(false, guard.lane, cut))
    }

    async fn record_drain(&self, stream: &StreamId, guard: Guard, settled: Position) -> Result<(), StoreError> {
        self.lock().guarded(stream, guard)?.drained = Some(settled);
        Ok(())
    }

    async fn forget_drain(&self, stream: &StreamId, guard: Guard) -> Result<(), StoreError> {
        self.lock().guarded(stream, guard)?.drained = None;
        Ok(())
    }

    async fn is_open(&self, lane: LaneId) -> Result<bool, StoreError> {
        Ok(self.lock().streams.values().any(|row| row.open == Some(lane)))
    }

    async fn try_claim(&self, rows: &[TryClaim], first_seen_at: EventTime) -> Result<Vec<Claimed>, StoreError> {
        let mut inner = self.lock();
        inner.has_room(rows.iter().map(|row| row.week))?;
        let claim = |row: &TryClaim| {
            let claim = Body {
                holder: Holder { lane: None, position: row.offset.unwrap_or(0) },
                topic: row.topic.to_string(),
                partition: row.partition,
                offset: row.offset,
                first_seen_at,
            };
            inner.insert_or_read((row.scope.clone(), row.event_id.clone(), row.week), claim)
        };
        Ok(rows.iter().map(claim).collect())
    }

    async fn find(&self, scope: Option<&Scope>, event_id: &EventId) -> Result<Vec<Claim>, StoreError> {
        let inner = self.lock();
        let asked = |key: &Key| key.1 == *event_id && scope.is_none_or(|scope| key.0 == *scope);
        let shown = |(key, row): (&Key, &Body)| Claim {
            scope: key.0.clone(),
            event_id: key.1.clone(),
            week: key.2,
            holder: row.holder,
            topic: row.topic.clone(),
            partition: row.partition,
            offset: row.offset,
            first_seen_at: row.first_seen_at,
            stream: row.holder.lane.and_then(|lane| inner.lanes.get(&lane)).map(|lane| lane.stream.clone()),
        };
        Ok(inner.claims.iter().filter(|(key, _)| asked(key)).map(shown).collect())
    }

    async fn streams(&self) -> Result<Vec<StreamState>, StoreError> {
        let state = |(stream, row): (&StreamId, &Stream)| StreamState {
            stream: stream.clone(),
            owner: Some(row.owner),
            row: row.row(),
            opened_for: row.opened_for.clone(),
        };
        Ok(self.lock().streams.iter().map(state).collect())
    }

    async fn free(&self, free: &Free, dry_run: bool) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        Ok(match free {
            Free::Event { scope, event_id, week } => inner.delete(dry_run, |key, _| {
                key.0 == *scope && key.1 == *event_id && week.is_none_or(|week| key.2 == week)
            }),
            Free::Unsettled { lane, from } => inner.delete_unsettled(dry_run, *lane, *from),
        })
    }

    async fn forget_refused(&self, scope: &Scope, refused: &[Refused]) -> Result<u64, StoreError> {
        let matches = |key: &Key, row: &Body| {
            let is = |one: &Refused| {
                let held_by = Holder { lane: Some(one.lane), position: one.position };
                key.0 == *scope && key.1 == one.event_id && key.2 == one.week && row.holder == held_by
            };
            refused.iter().any(is)
        };
        Ok(self.lock().delete(false, matches))
    }

    async fn ensure_weeks(&self, first: Week, last: Week) -> Result<(), StoreError> {
        let mut week = first;
        let mut inner = self.lock();
        while week <= last {
            inner.weeks.insert(week);
            week = week.plus(1);
        }
        Ok(())
    }

    async fn weeks(&self) -> Result<Vec<Week>, StoreError> {
        Ok(self.lock().weeks.iter().copied().collect())
    }

    async fn rooms(&self) -> Result<Vec<Room>, StoreError> {
        let inner = self.lock();
        let room = |&week: &Week| {
            let claims = inner.claims.keys().filter(|key| key.2 == week).count() as u64;
            Room { first: week, last: week, claims_estimate: Some(claims), bytes: None }
        };
        Ok(inner.weeks.iter().map(room).collect())
    }

    async fn retire_weeks(&self, first_kept: Week) -> Result<Vec<Week>, StoreError> {
        let mut inner = self.lock();
        let retires = |week: Week| week < first_kept && week != Week::UNDATED;
        let retired: Vec<Week> = inner.weeks.iter().copied().filter(|&week| retires(week)).collect();
        inner.weeks.retain(|&week| !retires(week));
        inner.claims.retain(|key, _| !retires(key.2));
        Ok(retired)
    }
}

impl Stream {
    fn row(&self) -> Option<Row> {
        self.open.map(|open| Row { open, drained: self.drained })
    }
}
