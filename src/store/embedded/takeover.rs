//! Slots and who has them: a run takes its own after a start or a fault, or another's whose lease has lapsed.
//!
//! Nothing here waits for the run before to be gone: a run of this process is held back by its token, and one of an
//! earlier process ended with it, and its leases too ([`super::slot_lanes`]).

use super::Trouble;
use super::change::{Change, Fate};
use super::inner::{Inner, LANE};
use super::lanes::Stream;
use super::slot_lanes::SlotLane;
use super::tail::Tail;
use crate::protocol::lane::{LaneId, Position, StreamId, Token};
use crate::store::slots::{Former, OpenSlot, TakeSlot, TakenSlot};
use crate::store::{Guard, LaneFor};

/// A lane that is to be opened.
struct Opened<'a> {
    slot: &'a StreamId,
    guard: Guard,
    lane_for: &'a LaneFor,
    of_slot: SlotLane,
}

const DONE: TakenSlot = TakenSlot::Taken { released: 0 };

impl Inner {
    pub fn take_slot(&mut self, take: &TakeSlot<'_>) -> Result<TakenSlot, Trouble> {
        let owner = self.check_turn(take.slot, take.token, take.instead_of)?;
        let open = self.open_on(take.slot);
        if owner == Some(take.token) && open == Some(take.lane) {
            return Ok(DONE);
        }
        let mine = |former: &Former<'_>| Some(former.guard.token) == owner && Some(former.guard.lane) == open;
        let former = take.former.filter(mine);
        if former.is_none()
            && let Some(leased) = self.leased(open)?
        {
            return Ok(leased);
        }
        self.check_new(take.lane)?;
        let (mut change, mut closed) = (Change::new(self.batch()), None);
        if let Some(lane) = open {
            let of_slot = *self.slot_lanes.get(&lane).ok_or(Trouble::NotOwner)?;
            let of_slot = former.map_or(of_slot, |former| of_slot.raised(former.committed));
            change = self.give_up(lane, of_slot.settled, former)?;
            closed = Some((lane, of_slot.closed(change.left_in_doubt)));
        }
        let opened = Opened {
            slot: take.slot,
            guard: Guard { lane: take.lane, token: take.token },
            lane_for: take.lane_for,
            of_slot: SlotLane::opened(0, take.lease),
        };
        let released = self.replace(change, closed, opened)?;
        Ok(TakenSlot::Taken { released })
    }

    /// `former`: what the taker knows of the lane, if it was its own.
    fn give_up(&self, lane: LaneId, settled: Position, former: Option<Former<'_>>) -> Result<Change, Trouble> {
        let (published, in_doubt) = former.map_or((&[][..], &[][..]), |former| (former.published, former.in_doubt));
        let from = published.first().map_or(settled, |first| settled.min(*first));
        self.change(lane, from, |position| {
            if published.binary_search(&position).is_ok() {
                Fate::SettledForEver
            } else if position < settled {
                Fate::Untouched
            } else if in_doubt.binary_search(&position).is_ok() {
                Fate::LeftInDoubt
            } else {
                Fate::Deleted
            }
        })
    }

    pub fn write_token(
        &mut self,
        slot: &StreamId,
        token: Token,
        instead_of: Option<Token>,
        own: bool,
    ) -> Result<TakenSlot, Trouble> {
        if self.check_turn(slot, token, instead_of)? == Some(token) {
            return Ok(DONE);
        }
        if !own && let Some(leased) = self.leased(self.open_on(slot))? {
            return Ok(leased);
        }
        let known = self.streams.get(slot).cloned().unwrap_or_else(|| Stream::owned_by(token));
        self.write_stream(slot, Stream { owner: token, ..known })?;
        Ok(DONE)
    }

    pub fn open_slot(&mut self, open: &OpenSlot<'_>) -> Result<u64, Trouble> {
        let row = self.streams.get(open.slot).filter(|row| row.owner == open.token).ok_or(Trouble::NotOwner)?;
        if row.open == Some(open.lane) {
            return Ok(0);
        }
        if row.open != open.cut.map(|cut| cut.prev) {
            return Err(Trouble::NotOwner);
        }
        self.check_new(open.lane)?;
        let (mut change, mut closed) = (Change::new(self.batch()), None);
        if let Some(cut) = open.cut {
            let of_slot = self.slot_lanes.get(&cut.prev).ok_or(Trouble::NotOwner)?.raised(cut.cut);
            change = self.change(cut.prev, cut.cut, |_| Fate::Deleted)?;
            closed = Some((cut.prev, of_slot.closed(false)));
        }
        let opened = Opened {
            slot: open.slot,
            guard: Guard { lane: open.lane, token: open.token },
            lane_for: open.lane_for,
            of_slot: SlotLane::opened(open.settled, open.lease),
        };
        self.replace(change, closed, opened)
    }

    fn open_on(&self, slot: &StreamId) -> Option<LaneId> {
        self.streams.get(slot)?.open
    }

    /// Who owns the slot: whom the caller means to follow, or already the caller itself.
    fn check_turn(&self, slot: &StreamId, token: Token, instead_of: Option<Token>) -> Result<Option<Token>, Trouble> {
        let owner = self.streams.get(slot).map(|row| row.owner);
        if owner == instead_of || owner == Some(token) { Ok(owner) } else { Err(Trouble::NotOwner) }
    }

    /// What stands in the way of taking a lane from its run. A lane without a lease is no slot's and is never taken.
    fn leased(&self, open: Option<LaneId>) -> Result<Option<TakenSlot>, Trouble> {
        let Some(lane) = open else { return Ok(None) };
        let left = self.slot_lanes.get(&lane).ok_or(Trouble::NotOwner)?.lease_left();
        Ok((!left.is_zero()).then_some(TakenSlot::Leased { left }))
    }

    /// Refuses a straggler: its lane was open once and another has followed it.
    fn check_new(&self, lane: LaneId) -> Result<(), Trouble> {
        if self.lanes.contains_key(&lane) { Err(Trouble::NotOwner) } else { Ok(()) }
    }

    /// Closes one lane and opens another. Answers how many claims were released.
    fn replace(
        &mut self,
        mut change: Change,
        closed: Option<(LaneId, SlotLane)>,
        opened: Opened<'_>,
    ) -> Result<u64, Trouble> {
        let Opened { slot, guard: Guard { lane, token }, lane_for, of_slot } = opened;
        let row = Stream { open: Some(lane), opened_for: Some(lane_for.clone()), ..Stream::owned_by(token) };
        if let Some((closed, of_slot)) = &closed {
            self.put_slot_lane(&mut change.batch, *closed, of_slot);
            if !of_slot.unsettled {
                self.remove_tail(&mut change.batch, *closed);
            }
        }
        self.put_stream(&mut change.batch, slot, &row);
        self.put(&mut change.batch, LANE, &lane.0.to_be_bytes(), slot.as_str().as_bytes().to_vec());
        self.put_slot_lane(&mut change.batch, lane, &of_slot);
        let released = self.commit_change(change)?;

        self.streams.insert(slot.clone(), row);
        self.lanes.insert(lane, slot.clone());
        if let Some((closed, of_slot)) = closed {
            self.slot_lanes.insert(closed, of_slot);
            if !of_slot.unsettled {
                self.tails.remove(&closed);
            }
        }
        self.slot_lanes.insert(lane, of_slot);
        self.tails.insert(lane, Tail::default());
        Ok(released)
    }
}
