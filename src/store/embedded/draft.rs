//! One batch in the making: claims, and notes that are to stand or fall with them.
//!
//! A draft holds the store's mutex from its first question to its commit, so what it answered stays true until its
//! claims are written. Dropped without a commit it has written nothing.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard};

use fjall::{Keyspace, OwnedWriteBatch, UserKey};

use super::body::{self, Whence};
use super::code::Out;
use super::inner::{Inner, NOTE};
use super::key;
use super::names::Origin;
use super::slot_lanes::SlotLane;
use super::tail::Added;
use super::{Trouble, folder, inner};
use crate::protocol::event::{EventId, EventTime, Scope, Week};
use crate::protocol::lane::{Coordinate, Holder, LaneId, Position};
use crate::protocol::slot::Conflicting;
use crate::protocol::verdict::Claimed;
use crate::store::slots::SlotAsk;
use crate::store::{Ask, Guard, StoreError, TryClaim};

/// The key of a claim without a lane, ready to be asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey {
    week: Week,
    key: UserKey,
}

impl ClaimKey {
    /// `scope`: its number in the store.
    pub fn new(scope: u32, event_id: &EventId, week: Week) -> ClaimKey {
        let mut out = Out::default();
        key::write(&mut out, scope, event_id);
        ClaimKey { week, key: UserKey::from(out.0) }
    }

    pub fn week(&self) -> Week {
        self.week
    }
}

pub struct Draft<'a> {
    inner: MutexGuard<'a, Inner>,
    batch: OwnedWriteBatch,
    first_seen_at: EventTime,
    /// What this draft has claimed, where one key may be asked for twice.
    claimed: HashMap<(Week, UserKey), Holder>,
    repeats: bool,
    /// Few and asked for at every row.
    origins: Vec<(Origin, u32)>,
    week: Option<(Week, Keyspace)>,
    touched: Vec<Keyspace>,
    added: Vec<(LaneId, Added)>,
    /// What slots' lanes will be.
    slot_lanes: Vec<(LaneId, SlotLane)>,
    key: Out,
    value: Out,
}

impl<'a> Draft<'a> {
    pub(super) fn new(inner: MutexGuard<'a, Inner>, first_seen_at: EventTime) -> Draft<'a> {
        Draft {
            batch: inner.batch(),
            inner,
            first_seen_at,
            claimed: HashMap::new(),
            repeats: false,
            origins: Vec::new(),
            week: None,
            touched: Vec::new(),
            added: Vec::new(),
            slot_lanes: Vec::new(),
            key: Out::default(),
            value: Out::default(),
        }
    }

    /// The number under which claims of a scope are made.
    pub fn scope(&mut self, scope: &Scope) -> u32 {
        self.inner.scopes.get_or_draw(scope)
    }

    /// The number of an origin without a lane: claims that are settled for ever.
    pub fn unlaned_origin(&mut self, topic: &Arc<str>) -> u32 {
        self.inner.origins.get_or_draw(&Origin { lane: None, topic: topic.clone(), partition: None })
    }

    /// Makes room for a week at once, whether or not the draft is committed.
    pub fn make_week(&mut self, week: Week) -> Result<(), StoreError> {
        Ok(self.inner.make_week(week)?)
    }

    /// Claims for ever, at a place of an origin without a lane. `false`: somebody has it. The keys of a draft are
    /// distinct; in ascending order they are found faster.
    pub fn claim_unlaned(&mut self, origin: u32, key: &ClaimKey, position: Position) -> Result<bool, StoreError> {
        self.use_week(key.week)?;
        let Some((_, space)) = &self.week else { return Err(StoreError::NoWeek(key.week)) };
        if space.contains_key(&key.key).map_err(Trouble::Read)? {
            return Ok(false);
        }
        let whence = Whence::Numbered { origin, position, offset: Some(position) };
        body::write(&mut self.value, &whence, self.first_seen_at);
        self.batch.insert(space, key.key.clone(), self.value.0.as_slice());
        Ok(true)
    }

    pub(super) fn claim_laned(&mut self, scope: u32, ask: &Ask) -> Result<Claimed, Trouble> {
        let origin = self.origin(ask);
        key::write(&mut self.key, scope, &ask.event_id);
        let at = Coordinate { lane: ask.lane, position: ask.position };
        self.claim_at(ask.week, at, origin, Some(ask.offset))
    }

    /// `origin`: its number, of [`Draft::slot_origin`].
    pub(super) fn claim_on_slot(
        &mut self,
        scope: u32,
        (lane, origin): (LaneId, u32),
        ask: &SlotAsk,
        is_offset: bool,
    ) -> Result<Claimed, Trouble> {
        key::write(&mut self.key, scope, &ask.event_id);
        let offset = is_offset.then_some(ask.position);
        self.claim_at(ask.week, Coordinate { lane, position: ask.position }, origin, offset)
    }

    /// Claims the key that is in `self.key`. The keys of a window are distinct.
    fn claim_at(&mut self, week: Week, at: Coordinate, origin: u32, offset: Option<i64>) -> Result<Claimed, Trouble> {
        let Coordinate { lane, position } = at;
        body::write(&mut self.value, &Whence::Numbered { origin, position, offset }, self.first_seen_at);
        let claimed = self.insert_or_read(week, Holder { lane: Some(lane), position }, self.repeats)?;
        if claimed == Claimed::Inserted {
            let of_lane = self.added.iter().position(|(of, _)| *of == lane).unwrap_or_else(|| {
                self.added.push((lane, Added::default()));
                self.added.len() - 1
            });
            self.added[of_lane].1.push(week, position, &self.key.0);
        }
        Ok(claimed)
    }

    /// The same key may be asked for again, and then finds what this draft has claimed.
    pub(super) fn look_at_own_claims(&mut self) {
        self.repeats = true;
    }

    /// Of the claims that follow.
    pub(super) fn see_first_at(&mut self, first_seen_at: EventTime) {
        self.first_seen_at = first_seen_at;
    }

    pub(super) fn check_weeks(&self, weeks: impl IntoIterator<Item = Week>) -> Result<(), Trouble> {
        self.inner.check_weeks(weeks)
    }

    /// As it is when this draft is committed, under a guard that holds.
    pub(super) fn guarded_slot_lane(&self, guard: Guard) -> Result<SlotLane, Trouble> {
        let of_slot = self.inner.guarded_slot_lane(guard)?;
        Ok(self.changed(guard.lane).unwrap_or(of_slot))
    }

    fn changed(&self, lane: LaneId) -> Option<SlotLane> {
        self.slot_lanes.iter().find(|(of, _)| *of == lane).map(|(_, of_slot)| *of_slot)
    }

    /// Writes with this draft what a slot's lane is from then on.
    pub(super) fn set_slot_lane(&mut self, lane: LaneId, of_slot: SlotLane) {
        match self.slot_lanes.iter_mut().find(|(of, _)| *of == lane) {
            Some((_, changed)) => *changed = of_slot,
            None => self.slot_lanes.push((lane, of_slot)),
        }
    }

    /// A holder with its lane, as they are when this draft is committed.
    pub(super) fn conflicting(&self, holder: Holder) -> Conflicting {
        match holder.lane.and_then(|lane| self.changed(lane)) {
            Some(of_slot) => Conflicting { holder, lane: Some(of_slot.seen(true)) },
            None => self.inner.conflicting(holder),
        }
    }

    pub(super) fn try_claim(&mut self, row: &TryClaim) -> Result<Claimed, Trouble> {
        let scope = self.scope(&row.scope);
        key::write(&mut self.key, scope, &row.event_id);
        let whence = Whence::SpeltOut { topic: &row.topic, partition: row.partition, offset: row.offset };
        body::write(&mut self.value, &whence, self.first_seen_at);
        self.insert_or_read(row.week, body::unlaned(row.offset), true)
    }

    fn insert_or_read(&mut self, week: Week, holder: Holder, repeats: bool) -> Result<Claimed, Trouble> {
        self.use_week(week)?;
        let Some((_, space)) = &self.week else { return Err(Trouble::NoWeek(week)) };
        let key = UserKey::from(self.key.0.as_slice());
        if repeats {
            match self.claimed.entry((week, key.clone())) {
                std::collections::hash_map::Entry::Occupied(there) => return Ok(Claimed::Held(*there.get())),
                std::collections::hash_map::Entry::Vacant(free) => {
                    if let Some(record) = space.get(&key).map_err(Trouble::Read)? {
                        return Ok(Claimed::Held(body::holder(&record, &self.inner.origins)?));
                    }
                    free.insert(holder);
                }
            }
        } else if let Some(record) = space.get(&key).map_err(Trouble::Read)? {
            return Ok(Claimed::Held(body::holder(&record, &self.inner.origins)?));
        }
        self.batch.insert(space, key, self.value.0.as_slice());
        Ok(Claimed::Inserted)
    }

    /// Week by week: most drafts have one or two.
    fn use_week(&mut self, week: Week) -> Result<(), Trouble> {
        if self.week.as_ref().is_none_or(|(at, _)| *at != week) {
            let space = self.inner.weeks.get(&week).ok_or(Trouble::NoWeek(week))?;
            self.week = Some((week, space.clone()));
            if !self.touched.contains(space) {
                self.touched.push(space.clone());
            }
        }
        Ok(())
    }

    fn origin(&mut self, ask: &Ask) -> u32 {
        let same = |(origin, _): &&(Origin, u32)| {
            origin.lane == Some(ask.lane) && origin.partition == Some(ask.partition) && origin.topic == ask.topic
        };
        if let Some((_, number)) = self.origins.iter().find(same) {
            return *number;
        }
        let origin = Origin { lane: Some(ask.lane), topic: ask.topic.clone(), partition: Some(ask.partition) };
        let number = self.inner.origins.get_or_draw(&origin);
        self.origins.push((origin, number));
        number
    }

    /// The number of a slot's origin.
    pub(super) fn slot_origin(&mut self, lane: LaneId, topic: &Arc<str>, partition: Option<i32>) -> u32 {
        self.inner.origins.get_or_draw(&Origin { lane: Some(lane), topic: topic.clone(), partition })
    }

    /// A record of the caller's own that becomes durable with the claims.
    pub fn note(&mut self, name: &[u8], value: &[u8]) {
        self.batch.insert(&self.inner.small, inner::small_key(NOTE, name), value);
    }

    /// Writes everything, in one batch and one sync. An error leaves the outcome unknown, and the store unusable until
    /// it is opened again.
    pub fn commit(self) -> Result<(), StoreError> {
        Ok(self.commit_changes()?)
    }

    pub(super) fn commit_changes(mut self) -> Result<(), Trouble> {
        self.commit_under_lock()
    }

    /// The store stays locked until this draft is dropped. It is of no other use then.
    pub(super) fn commit_under_lock(&mut self) -> Result<(), Trouble> {
        let inner = &mut *self.inner;
        let mut batch = std::mem::replace(&mut self.batch, inner.batch());
        inner.put_new_names(&mut batch);
        for (lane, of_slot) in &self.slot_lanes {
            if inner.slot_lanes.get(lane).map(|known| known.settled) != Some(of_slot.settled) {
                inner.put_slot_lane(&mut batch, *lane, of_slot);
            }
        }
        for (lane, added) in &self.added {
            let changed = self.slot_lanes.iter().find(|(of, _)| of == lane);
            let settled = changed.map(|(_, of_slot)| of_slot.settled);
            let record = inner.tails.get_mut(lane).and_then(|tail| tail.put(*lane, added, settled));
            if let Some((place, record)) = record {
                batch.insert(&inner.tails_space, place, record);
            }
        }
        batch.commit().map_err(Trouble::Write)?;
        inner.keep_new_names();
        inner.slot_lanes.extend(self.slot_lanes.drain(..));
        let written = self.touched.iter().chain([&inner.small, &inner.tails_space]);
        written.into_iter().try_for_each(folder::rotate_if_large).map_err(Trouble::Write)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.inner.scopes.forget_new();
        self.inner.origins.forget_new();
    }
}
