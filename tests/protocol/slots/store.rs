//! The store, by the properties that the protocol builds on: each statement is one transaction.

use semel::protocol::lane::{Coordinate, Cut, Holder, LaneId, Position, Token};
use semel::protocol::slot::{Conflicting, LaneSeen, SlotSeen};

use super::rules::Rule;
use super::world::{EVENTS, Event, SLOTS, Setup};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane {
    pub slot: usize,
    pub seen: LaneSeen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotRow {
    pub owner: Token,
    pub open: LaneId,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Store {
    pub claims: [Option<Coordinate>; EVENTS],
    /// By their ids. One that was drawn and not opened yet is closed.
    pub lanes: Vec<Lane>,
    pub slots: [SlotRow; SLOTS],
}

/// The right under which a run writes, and what it knows to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Right {
    pub token: Token,
    pub lane: LaneId,
    pub committed: Position,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Statement {
    /// Raises the settled position and the lease, and claims. Without rows: the idle flush.
    Reserve { right: Right, rows: Vec<(Event, Position)> },
    /// Deletes the claims from `from` to below `to` of what surely was not published.
    Release { right: Right, from: Position, to: Position },
    /// With a plain sink the whole takeover; with Kafka the token alone.
    Take(Taking),
    /// With Kafka the takeover's last step.
    Open { taking: Taking, cut: Cut },
    /// Deletes what was left in doubt on a closed lane whose lease is over.
    Sweep(LaneId),
}

/// A takeover under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taking {
    pub slot: usize,
    pub token: Token,
    /// The owner that was seen before.
    pub instead_of: Token,
    /// The lane to be opened.
    pub lane: LaneId,
    /// What the taker itself had, where it takes its own slot after a fault.
    pub former: Option<Right>,
    /// With a plain sink: the position of the taker's own publish that is in doubt. Its claim is left behind.
    pub doubt: Option<Position>,
    /// The taker's own slot; else another's, whose lease has lapsed.
    pub own: bool,
    /// What was open when the token was written.
    pub found: LaneId,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The events whose rows were inserted.
    Reserved(Vec<Event>),
    Done,
    /// Another token, another lane, or a lease that still runs.
    Refused,
}

impl Store {
    pub fn new() -> Store {
        let lane = |slot| Lane { slot, seen: LaneSeen { settled: 0, open: true, lapsed: false } };
        let row = |slot| SlotRow { owner: Token(slot + 1), open: LaneId(slot) };
        Store { claims: [None; EVENTS], lanes: vec![lane(0), lane(1)], slots: [row(0), row(1)] }
    }

    pub fn draw_lane(&mut self, slot: usize) -> LaneId {
        self.lanes.push(Lane { slot, seen: LaneSeen { settled: 0, open: false, lapsed: false } });
        LaneId(self.lanes.len() as i64 - 1)
    }

    pub fn lane(&self, lane: LaneId) -> &Lane {
        &self.lanes[lane.0 as usize]
    }

    pub fn lane_mut(&mut self, lane: LaneId) -> &mut LaneSeen {
        &mut self.lanes[lane.0 as usize].seen
    }

    /// The lane that a slot has open.
    pub fn open_lane(&self, slot: usize) -> LaneSeen {
        self.lane(self.slots[slot].open).seen
    }

    pub fn slot_seen(&self, slot: usize) -> SlotSeen {
        let open = self.slots[slot].open;
        let mirror = self.lane(open).seen.settled;
        let claimed_above = self.claims.iter().flatten().any(|claim| claim.lane == open && claim.position >= mirror);
        SlotSeen { open, mirror, claimed_above }
    }

    fn allows(&self, right: Right) -> bool {
        let lane = self.lane(right.lane);
        lane.seen.open && self.slots[lane.slot].owner == right.token
    }

    /// The second statement: the claim and its lane in one read.
    pub fn conflicting(&self, event: Event) -> Option<Conflicting> {
        let Coordinate { lane, position } = self.claims[event]?;
        Some(Conflicting { holder: Holder { lane: Some(lane), position }, lane: Some(self.lane(lane).seen) })
    }

    fn delete(&mut self, lane: LaneId, positions: impl Fn(Position) -> bool) {
        for claim in &mut self.claims {
            claim.take_if(|claim| claim.lane == lane && positions(claim.position));
        }
    }

    pub fn carry_out(&mut self, setup: &Setup, statement: &Statement) -> Answer {
        match statement {
            Statement::Reserve { right, rows } => self.reserve(*right, rows),
            Statement::Release { right, from, to } => self.release(setup, *right, *from, *to),
            Statement::Take(taking) if setup.is_transactional() => self.write_token(setup, taking),
            Statement::Take(taking) => self.take(setup, taking),
            Statement::Open { taking, cut } => self.open(setup, taking, *cut),
            Statement::Sweep(lane) => self.sweep(*lane),
        }
    }

    fn reserve(&mut self, right: Right, rows: &[(Event, Position)]) -> Answer {
        if !self.allows(right) {
            return Answer::Refused;
        }
        let lane = self.lane_mut(right.lane);
        lane.settled = lane.settled.max(right.committed);
        lane.lapsed = false;
        let inserted = rows.iter().filter(|(event, position)| {
            let free = self.claims[*event].is_none();
            if free {
                self.claims[*event] = Some(Coordinate { lane: right.lane, position: *position });
            }
            free
        });
        Answer::Reserved(inserted.map(|(event, _)| *event).collect())
    }

    fn release(&mut self, setup: &Setup, right: Right, from: Position, to: Position) -> Answer {
        if !self.allows(right) {
            return Answer::Refused;
        }
        let lane = self.lane_mut(right.lane);
        lane.settled = lane.settled.max(right.committed);
        let bounded = !setup.drops(Rule::ReleaseBounded);
        self.delete(right.lane, |position| position >= from && (position < to || !bounded));
        Answer::Done
    }

    fn sweep(&mut self, lane: LaneId) -> Answer {
        let LaneSeen { settled, open, lapsed } = self.lane(lane).seen;
        if open || !lapsed {
            return Answer::Refused;
        }
        self.delete(lane, |position| position >= settled);
        Answer::Done
    }

    /// Closes what the slot has open and opens the taker's lane.
    fn replace(&mut self, taking: &Taking) {
        let open = self.slots[taking.slot].open;
        self.lane_mut(open).open = false;
        *self.lane_mut(taking.lane) = LaneSeen { settled: 0, open: true, lapsed: false };
        self.slots[taking.slot].open = taking.lane;
    }

    /// With a plain sink: one transaction, the lane locked.
    fn take(&mut self, setup: &Setup, taking: &Taking) -> Answer {
        let row = self.slots[taking.slot];
        if row.owner == taking.token {
            return Answer::Done;
        }
        if row.owner != taking.instead_of {
            return Answer::Refused;
        }
        let mine = taking.former.filter(|former| former.token == row.owner && former.lane == row.open);
        let lane = self.lane_mut(row.open);
        match mine {
            Some(former) => lane.settled = lane.settled.max(former.committed),
            None => {
                let early = if taking.own { Rule::StartWaits } else { Rule::StealOnlyLapsed };
                if !lane.lapsed && !setup.drops(early) {
                    return Answer::Refused;
                }
            }
        }
        let settled = lane.settled;
        let doubt = mine.and(taking.doubt);
        self.delete(row.open, |position| position >= settled && Some(position) != doubt);
        self.replace(taking);
        self.slots[taking.slot].owner = taking.token;
        Answer::Done
    }

    fn write_token(&mut self, setup: &Setup, taking: &Taking) -> Answer {
        let row = self.slots[taking.slot];
        if row.owner == taking.token {
            return Answer::Done;
        }
        let lapsed = taking.own || self.open_lane(taking.slot).lapsed || setup.drops(Rule::StealOnlyLapsed);
        if row.owner != taking.instead_of || !lapsed {
            return Answer::Refused;
        }
        self.slots[taking.slot].owner = taking.token;
        Answer::Done
    }

    fn open(&mut self, setup: &Setup, taking: &Taking, cut: Cut) -> Answer {
        let row = self.slots[taking.slot];
        if row.owner == taking.token && row.open == taking.lane {
            return Answer::Done;
        }
        let guarded = !setup.drops(Rule::OpenGuarded);
        if guarded && (row.owner != taking.token || row.open != cut.prev) {
            return Answer::Refused;
        }
        self.delete(cut.prev, |position| position >= cut.cut);
        let prev = self.lane_mut(cut.prev);
        prev.settled = prev.settled.max(cut.cut);
        prev.open = false;
        self.replace(taking);
        Answer::Done
    }
}
