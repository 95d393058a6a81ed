//! Lanes of instances, in the plainest form.
//!
//! Where others could reasonably differ: a token is checked before a lease, a lease before whether the lane to be opened
//! is new; a lane that is not an instance's is never taken, extended or swept here.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Body, Inner, Key, Lane, MemoryStore, Stream};
use crate::protocol::event::{EventId, Scope, Week};
use crate::protocol::lane::{Holder, LaneId, Position, StreamId, Token};
use crate::protocol::slot::{Conflicting, LaneSeen};
use crate::protocol::verdict::Claimed;
use crate::store::slots::{
    Cursor, Expire, Expired, LaneStanding, OpenSlot, OpenSlotLane, Reserve, Reserved, Slot, SlotAsk, SlotStore,
    StreamSeen, TakeSlot, TakenSlot, lane_seen,
};
use crate::store::{Guard, LaneFor, StoreError};

/// What an instance's lane has beside a partition's.
#[derive(Debug)]
pub(super) struct OfSlot {
    settled: Position,
    /// By [`LeaseClock`].
    lease_until: Duration,
}

/// Time since the store was made.
#[derive(Debug)]
pub(super) struct LeaseClock {
    made: Instant,
    ahead: Duration,
}

impl Default for LeaseClock {
    fn default() -> LeaseClock {
        LeaseClock { made: Instant::now(), ahead: Duration::ZERO }
    }
}

impl LeaseClock {
    pub fn advance(&mut self, by: Duration) {
        self.ahead = self.ahead.saturating_add(by);
    }

    fn now(&self) -> Duration {
        self.made.elapsed().saturating_add(self.ahead)
    }
}

impl Inner {
    /// None for a lane without a lease.
    fn lease_left(&self, lane: LaneId) -> Option<Duration> {
        let until = self.lanes.get(&lane)?.of_slot.as_ref()?.lease_until;
        Some(until.saturating_sub(self.clock.now()))
    }

    fn seen(&self, lane: LaneId) -> Option<LaneSeen> {
        let Lane { stream, of_slot } = self.lanes.get(&lane)?;
        let open = self.streams.get(stream).is_some_and(|stream| stream.open == Some(lane));
        Some(lane_seen(of_slot.as_ref().map(|of_slot| of_slot.settled), open, self.lease_left(lane)))
    }

    fn in_the_way(&self, holder: Holder) -> Conflicting {
        Conflicting { holder, lane: holder.lane.and_then(|lane| self.seen(lane)) }
    }

    fn of_slot(&mut self, lane: LaneId) -> Result<&mut OfSlot, StoreError> {
        self.lanes.get_mut(&lane).and_then(|lane| lane.of_slot.as_mut()).ok_or(StoreError::NotOwner)
    }

    /// Raises the settled position of a lane, where it has one.
    pub(super) fn settle(&mut self, lane: LaneId, committed: Position) {
        if let Ok(of_slot) = self.of_slot(lane) {
            of_slot.settled = of_slot.settled.max(committed);
        }
    }

    /// Refuses a guard that does not hold.
    fn extended(&mut self, guard: Guard) -> Result<&mut OfSlot, StoreError> {
        let holds = |stream: &Stream| stream.open == Some(guard.lane) && stream.owner == guard.token;
        if self.streams.values().any(holds) { self.of_slot(guard.lane) } else { Err(StoreError::NotOwner) }
    }

    /// Owner and open lane of a slot, where this token may be written or stands. A slot without a row counts as owned.
    fn found(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
    ) -> Result<(Token, Option<LaneId>), StoreError> {
        match self.streams.get(slot) {
            None if instead_of.is_none() => Ok((token, None)),
            Some(row) if row.owner == token || Some(row.owner) == instead_of => Ok((row.owner, row.open)),
            _ => Err(StoreError::NotOwner),
        }
    }

    /// What stands in the way of taking a lane from its run.
    fn lease_of(&self, lane: LaneId) -> Result<Option<TakenSlot>, StoreError> {
        let left = self.lease_left(lane).ok_or(StoreError::NotOwner)?;
        Ok((!left.is_zero()).then_some(TakenSlot::Leased { left }))
    }

    /// Their claims lose their lane.
    fn keep(&mut self, lane: LaneId, published: &[Position]) {
        let kept = |holder: &Holder| holder.lane == Some(lane) && published.contains(&holder.position);
        for row in self.claims.values_mut().filter(|row| kept(&row.holder)) {
            row.holder.lane = None;
        }
    }

    fn is_new(&self, lane: LaneId) -> Result<(), StoreError> {
        if self.lanes.contains_key(&lane) { Err(StoreError::NotOwner) } else { Ok(()) }
    }

    /// In place of whatever the slot had open.
    fn open_on(&mut self, slot: &StreamId, guard: Guard, lane_for: &LaneFor, (settled, lease): (Position, Duration)) {
        let lease_until = self.clock.now().saturating_add(lease);
        let lane = Lane { stream: slot.clone(), of_slot: Some(OfSlot { settled, lease_until }) };
        self.lanes.insert(guard.lane, lane);
        let opened_for = Some(lane_for.clone());
        let row = Stream { owner: guard.token, open: Some(guard.lane), drained: None, opened_for };
        self.streams.insert(slot.clone(), row);
    }

    fn insert_or_show(&mut self, reserve: &Reserve<'_>, row: &SlotAsk) -> Reserved {
        let claim = Body {
            holder: Holder { lane: Some(reserve.guard.lane), position: row.position },
            topic: reserve.origin.to_string(),
            partition: reserve.partition,
            offset: reserve.partition.map(|_| row.position),
            first_seen_at: reserve.first_seen_at,
        };
        let key = (reserve.scope.clone(), row.event_id.clone(), row.week);
        match self.insert_or_read(key, claim) {
            Claimed::Inserted => Reserved::Inserted,
            Claimed::Held(holder) => Reserved::InTheWay(Some(self.in_the_way(holder))),
        }
    }
}

#[async_trait]
impl SlotStore for MemoryStore {
    async fn reserve(&self, reserve: &Reserve<'_>) -> Result<Vec<Reserved>, StoreError> {
        reserve.check()?;
        let mut inner = self.lock();
        inner.extended(reserve.guard)?;
        inner.has_room(reserve.rows.iter().map(|row| row.week))?;
        let lease_until = inner.clock.now().saturating_add(reserve.lease);
        let lane = inner.extended(reserve.guard)?;
        *lane = OfSlot { settled: lane.settled.max(reserve.committed), lease_until };
        Ok(reserve.rows.iter().map(|row| inner.insert_or_show(reserve, row)).collect())
    }

    async fn release(
        &self,
        guard: Guard,
        committed: Position,
        published: &[Position],
        from: Position,
        to: Position,
    ) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        let lane = inner.extended(guard)?;
        lane.settled = lane.settled.max(committed);
        inner.keep(guard.lane, published);
        let released = |holder: Holder| holder.lane == Some(guard.lane) && (from..to).contains(&holder.position);
        Ok(inner.delete(false, |_, row| released(row.holder)))
    }

    async fn give_back(&self, guard: Guard, scope: &Scope, claims: &[SlotAsk]) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        inner.extended(guard)?;
        let asked = |key: &Key, holder: Holder| {
            let is = |one: &SlotAsk| {
                let held_by = Holder { lane: Some(guard.lane), position: one.position };
                key.0 == *scope && key.1 == one.event_id && key.2 == one.week && holder == held_by
            };
            claims.iter().any(is)
        };
        Ok(inner.delete(false, |key, row| asked(key, row.holder)))
    }

    async fn standing(&self, stream: &StreamId) -> Result<Option<StreamSeen>, StoreError> {
        let inner = self.lock();
        let Some(Stream { owner, open, opened_for, .. }) = inner.streams.get(stream) else { return Ok(None) };
        let lane = |lane: LaneId| {
            let settled = inner.seen(lane)?.settled;
            let lease_left = inner.lease_left(lane).unwrap_or(Duration::MAX);
            Some(LaneStanding { lane, settled, lease_left })
        };
        let (open, opened_for) = (open.and_then(lane), opened_for.clone());
        Ok(Some(StreamSeen { owner: *owner, open, opened_for }))
    }

    async fn slot(&self, slot: &StreamId) -> Result<Option<Slot>, StoreError> {
        let inner = self.lock();
        let Some(Stream { owner, open, .. }) = inner.streams.get(slot) else { return Ok(None) };
        let lane = |lane| {
            let seen = inner.seen(lane)?;
            let above = |holder: Holder| holder.lane == Some(lane) && holder.position >= seen.settled;
            let claimed_above = inner.claims.values().any(|row| above(row.holder));
            let lease_left = inner.lease_left(lane).unwrap_or(Duration::MAX);
            // Read once more: what has lapsed by now was not, perhaps, a moment before.
            let seen = LaneSeen { lapsed: lease_left.is_zero(), ..seen };
            Some(OpenSlotLane { lane, seen, lease_left, claimed_above })
        };
        Ok(Some(Slot { owner: *owner, open: open.and_then(lane) }))
    }

    async fn slot_of(&self, lane: LaneId) -> Result<Option<StreamId>, StoreError> {
        Ok(self.lock().lanes.get(&lane).map(|lane| lane.stream.clone()))
    }

    async fn take_slot(&self, take: &TakeSlot<'_>) -> Result<TakenSlot, StoreError> {
        let mut inner = self.lock();
        let (owner, open) = inner.found(take.slot, take.token, take.instead_of)?;
        if owner == take.token && open == Some(take.lane) {
            return Ok(TakenSlot::Taken { released: 0 });
        }
        let mine = take.former.filter(|former| Some(former.guard.lane) == open && former.guard.token == owner);
        if let (Some(open), None) = (open, mine)
            && let Some(leased) = inner.lease_of(open)?
        {
            return Ok(leased);
        }
        inner.is_new(take.lane)?;
        let mut released = 0;
        if let Some(open) = open {
            let lane = inner.of_slot(open)?;
            lane.settled = mine.map_or(lane.settled, |mine| lane.settled.max(mine.committed));
            let settled = lane.settled;
            let (published, in_doubt) = mine.map_or((&[][..], &[][..]), |mine| (mine.published, mine.in_doubt));
            inner.keep(open, published);
            let unsent =
                |Holder { lane, position }| lane == Some(open) && position >= settled && !in_doubt.contains(&position);
            released = inner.delete(false, |_, row| unsent(row.holder));
        }
        inner.open_on(take.slot, Guard { lane: take.lane, token: take.token }, take.lane_for, (0, take.lease));
        Ok(TakenSlot::Taken { released })
    }

    async fn write_token(
        &self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, StoreError> {
        let mut inner = self.lock();
        let (owner, open) = inner.found(slot, token, instead_of)?;
        if owner != token
            && !own
            && let Some(open) = open
            && let Some(leased) = inner.lease_of(open)?
        {
            return Ok(leased);
        }
        let new = Stream { owner: token, open: None, drained: None, opened_for: None };
        inner.streams.entry(slot.clone()).or_insert(new).owner = token;
        Ok(TakenSlot::Taken { released: 0 })
    }

    async fn open_slot(&self, open: &OpenSlot<'_>) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        let found = inner.owned(open.slot, open.token)?.open;
        if found == Some(open.lane) {
            return Ok(0);
        }
        if found != open.cut.map(|cut| cut.prev) {
            return Err(StoreError::NotOwner);
        }
        inner.is_new(open.lane)?;
        let mut released = 0;
        if let Some(cut) = open.cut {
            let lane = inner.of_slot(cut.prev)?;
            lane.settled = lane.settled.max(cut.cut);
            released = inner.delete_unsettled(false, cut.prev, cut.cut);
        }
        inner.open_on(
            open.slot,
            Guard { lane: open.lane, token: open.token },
            open.lane_for,
            (open.settled, open.lease),
        );
        Ok(released)
    }

    async fn sweep(&self, lane: LaneId) -> Result<Option<u64>, StoreError> {
        let mut inner = self.lock();
        match inner.seen(lane) {
            Some(LaneSeen { settled, open: false, lapsed: true }) => {
                Ok(Some(inner.delete_unsettled(false, lane, settled)))
            }
            _ => Ok(None),
        }
    }

    async fn expire(&self, expire: &Expire<'_>) -> Result<Expired, StoreError> {
        let mut inner = self.lock();
        let after = expire.after.map(|Cursor(id)| EventId::from_stored(String::from_utf8_lossy(id).into_owned()));
        let of_scope = |key: &&Key| key.0 == *expire.scope && key.2 == Week::UNDATED;
        let beyond = |key: &&Key| after.as_ref().is_none_or(|after| key.1 > *after);
        let looked: Vec<Key> =
            inner.claims.keys().filter(of_scope).filter(beyond).take(expire.claims_max).cloned().collect();
        let reached = looked.last().map(|key| Cursor(key.1.as_str().as_bytes().into()));
        let goes = |key: &Key| {
            let claim = &inner.claims[key];
            let settled = |lane: LaneSeen| claim.holder.position < lane.settled;
            let is_settled = claim.holder.lane.and_then(|lane| inner.seen(lane)).is_none_or(settled);
            is_settled && claim.first_seen_at < expire.seen_before
        };
        let gone: Vec<Key> = looked.into_iter().filter(goes).collect();
        gone.iter().for_each(|key| drop(inner.claims.remove(key)));
        Ok(Expired { deleted: gone.len() as u64, reached })
    }

    async fn scopes(&self) -> Result<Vec<Scope>, StoreError> {
        let mut scopes: Vec<Scope> = self.lock().claims.keys().map(|key| key.0.clone()).collect();
        scopes.dedup();
        Ok(scopes)
    }
}
