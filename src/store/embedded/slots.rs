//! The calls for lanes of instances ([`SlotStore`]).
//!
//! Under the mutex each is one look and one batch: a claim and its lane are read as they stand together, and nobody
//! gets between a guard and what it guards. Claims at or above a settled position are found in their lane's ring
//! ([`super::tail`]), which a closed lane keeps as long as claims are left in doubt on it.
//!
//! A call decides, fills a batch and commits it, in this order, and memory is changed last. Reserves that come at the same
//! time share a batch ([`super::together`]).

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;

use super::change::Fate;
use super::inner::Inner;
use super::slot_lanes::SlotLane;
use super::{EmbeddedStore, Trouble, together};
use crate::protocol::event::Scope;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::protocol::slot::LaneSeen;
use crate::store::slots::{
    Expire, Expired, LaneStanding, OpenSlot, OpenSlotLane, Reserve, Reserved, Slot, SlotAsk, SlotStore, StreamSeen,
    TakeSlot, TakenSlot,
};
use crate::store::{Guard, Refused, StoreError};

#[async_trait]
impl SlotStore for EmbeddedStore {
    /// One sync, which those that come at the same time share; none for an idle flush that raises nothing.
    async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Reserved>, StoreError> {
        reserve.check()?;
        let asked = self.queue.push(reserve);
        self.run_locked(|inner| {
            if let Some(answer) = asked.answer() {
                return Ok(answer);
            }
            together::reserve(inner, &self.queue.take());
            Ok(asked.answer().unwrap_or(Err(StoreError::Unknown("it was answered to nobody".into()))))
        })?
    }

    async fn release(
        &self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        from: Position,
        to: Position,
    ) -> Result<u64, StoreError> {
        self.run(|inner| inner.release_on_slot(guard, committed, published, from..to))
    }

    async fn give_back(&self, guard: Guard, scope: &Scope, claims: &[SlotAsk]) -> Result<u64, StoreError> {
        let claim = |SlotAsk { event_id, week, position }: &SlotAsk| {
            let (event_id, week, lane, position) = (event_id.clone(), *week, guard.lane, *position);
            Refused { event_id, week, lane, position }
        };
        let claims: Vec<Refused> = claims.iter().map(claim).collect();
        self.run(|inner| {
            inner.guarded_slot_lane(guard)?;
            inner.forget_refused(scope, &claims)
        })
    }

    async fn standing(&self, stream: &StreamId) -> Result<Option<StreamSeen>, StoreError> {
        self.run(|inner| Ok(inner.standing(stream)))
    }

    async fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, StoreError> {
        self.run(|inner| inner.slot(slot))
    }

    async fn slot_of(&self, lane: LaneId) -> Result<Option<StreamId>, StoreError> {
        self.run(|inner| Ok(inner.lanes.get(&lane).cloned()))
    }

    async fn take_slot(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError> {
        self.run(|inner| inner.take_slot(take))
    }

    async fn write_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError> {
        self.run(|inner| inner.write_token(slot, token, instead_of, own))
    }

    async fn open_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError> {
        self.run(|inner| inner.open_slot(open))
    }

    async fn sweep(&self, lane: LaneId) -> Result<Option<u64>, StoreError> {
        self.run(|inner| inner.sweep(lane))
    }

    async fn expire(&self, expire: &Expire<'_>) -> Result<Expired, StoreError> {
        self.run(|inner| inner.expire(expire))
    }

    async fn scopes(&self) -> Result<Vec<Scope>, StoreError> {
        self.run(|inner| Ok(inner.scopes.all().map(|(_, scope)| scope.clone()).collect()))
    }
}

impl Inner {
    pub fn guarded_slot_lane(&self, guard: Guard) -> Result<SlotLane, Trouble> {
        self.check_guard(guard)?;
        // A partition's lane is no slot's.
        self.slot_lanes.get(&guard.lane).copied().ok_or(Trouble::NotOwner)
    }

    fn standing(&self, stream: &StreamId) -> Option<StreamSeen> {
        let row = self.streams.get(stream)?;
        let lane = |lane: LaneId| {
            let settled = self.lane_seen(lane)?.settled;
            let lease_left = self.slot_lanes.get(&lane).map_or(Duration::MAX, SlotLane::lease_left);
            Some(LaneStanding { lane, settled, lease_left })
        };
        Some(StreamSeen { owner: row.owner, open: row.open.and_then(lane), opened_for: row.opened_for.clone() })
    }

    fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, Trouble> {
        let Some(row) = self.streams.get(slot) else { return Ok(None) };
        let mut open = None;
        if let Some((lane, seen)) = row.open.and_then(|lane| Some((lane, self.lane_seen(lane)?))) {
            let claimed_above = self.claims_from(lane, seen.settled)?.next().transpose()?.is_some();
            let lease_left = self.slot_lanes.get(&lane).map_or(Duration::MAX, SlotLane::lease_left);
            // Read once more: it may have lapsed a moment ago.
            let seen = LaneSeen { lapsed: lease_left.is_zero(), ..seen };
            open = Some(OpenSlotLane { lane, seen, lease_left, claimed_above });
        }
        Ok(Some(Slot { owner: row.owner, open }))
    }

    fn release_on_slot(
        &mut self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        released: Range<Position>,
    ) -> Result<u64, Trouble> {
        let of_slot = self.guarded_slot_lane(guard)?.raised(committed);
        let from = published.first().map_or(released.start, |first| released.start.min(*first));
        let mut change = self.change(guard.lane, from, |position| match published.binary_search(&position) {
            Ok(_) => Fate::SettledForEver,
            Err(_) if released.contains(&position) => Fate::Deleted,
            Err(_) => Fate::Untouched,
        })?;
        self.put_slot_lane(&mut change.batch, guard.lane, &of_slot);
        let deleted = self.commit_change(change)?;
        self.slot_lanes.insert(guard.lane, of_slot);
        Ok(deleted)
    }

    fn sweep(&mut self, lane: LaneId) -> Result<Option<u64>, Trouble> {
        let is_over = |of_slot: &&SlotLane| !self.is_open(lane) && of_slot.lease_left().is_zero();
        let Some(&of_slot) = self.slot_lanes.get(&lane).filter(is_over) else { return Ok(None) };
        if !of_slot.unsettled {
            return Ok(Some(0));
        }
        let swept = of_slot.closed(false);
        let mut change = self.change(lane, of_slot.settled, |_| Fate::Deleted)?;
        self.put_slot_lane(&mut change.batch, lane, &swept);
        self.remove_tail(&mut change.batch, lane);
        let deleted = self.commit_change(change)?;
        self.slot_lanes.insert(lane, swept);
        self.tails.remove(&lane);
        Ok(Some(deleted))
    }
}
