//! A model of protocol.md, "Kafka into a sink without transactions": one partition, two consumers of which one may be a
//! zombie, the settled position in the store.
//!
//! Nothing is lost. A second copy comes only after a crash between publish and settle, or where an owner outlived its
//! lease, and only one after each.

use semel::protocol::lane::{Coordinate, LaneId, Position};
use semel::protocol::settled::{Held, Settling, cut_at_start, judge_settling};

use crate::searching::{self, goes_wrong, holds};

type Event = usize;
const CONSUMERS: usize = 2;
const EVENTS: usize = 4;
/// The log, and that of the topic made anew under its name.
const LOG: &[Event] = &[0, 1, 0];
const LOG_ANEW: &[Event] = &[2, 3];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A start that is not at the settled position releases and opens a new lane.
    StartCuts,
    /// It goes on from the start, not from the larger of start and settled.
    FromTheStart,
    /// Claims and settlements are guarded by the owner's token.
    Token,
    /// The group's offset is committed after the settled position.
    SettledFirst,
    /// A window that is published is settled before the partition is let go.
    SettledOnRevoke,
    /// A partition is not taken while its owner has a window under way and its lease runs.
    LeaseWaited,
    /// The token is written once the lease is over: who is waited for has to settle under its own.
    TokenAfterLease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Faults {
    crashes: u8,
    handovers: u8,
    /// Moves of the group's offset by an operator, back or forward.
    moves: u8,
    refused: u8,
    topics_anew: u8,
    /// Leases that run out although their owners are at work.
    lapses: u8,
}

const NONE: Faults = Faults { crashes: 0, handovers: 0, moves: 0, refused: 0, topics_anew: 0, lapses: 0 };

type Setup = searching::Setup<Faults, Rule>;

/// How far a consumer is with the record at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    Idle,
    Read,
    Claimed,
    Published,
    /// A duplicate: passed over.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Consumer {
    generation: u8,
    token: u8,
    lane: LaneId,
    position: Position,
    stage: Stage,
    /// It has not found yet that another owns the lane.
    works: bool,
    /// Its lease ran out while it was at work.
    late: bool,
}

const OUT: Consumer =
    Consumer { generation: 0, token: 0, lane: LaneId(0), position: 0, stage: Stage::Idle, works: false, late: false };

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    committed: Position,
    generation: u8,
    assigned: Option<usize>,
    token: u8,
    /// Whose lease runs: since its claim, until it has settled.
    lease: Option<usize>,
    /// The settled position of each lane; the last one is open.
    settled: Vec<Position>,
    claims: [Option<Coordinate>; EVENTS],
    published: [u8; EVENTS],
    consumers: [Option<Consumer>; CONSUMERS],
    anew: bool,
    /// Offsets that an operator's move passed over.
    skipped: [bool; 3],
    /// Crashes between publish and settle, and publishes of who outlived its lease: each may have doubled once.
    excuses: u8,
    left: Faults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Handover(usize),
    Take(usize),
    Read(usize),
    Claim(usize),
    Publish(usize),
    Refused(usize),
    Settle(usize),
    CommitOffset(usize),
    Crash(usize),
    Move(Position),
    TopicAnew,
    Lapse,
    /// Of whoever waits for the lease.
    TokenEarly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Lost(Position),
    Doubled(Event),
    Stuck,
}

impl World {
    fn log(&self) -> &'static [Event] {
        if self.anew { LOG_ANEW } else { LOG }
    }

    fn open(&self) -> LaneId {
        LaneId(self.settled.len() as i64 - 1)
    }

    fn settle(&mut self, lane: LaneId, to: Position) {
        let settled = &mut self.settled[lane.0 as usize];
        *settled = to.max(*settled);
    }

    fn take(&mut self, setup: &Setup, n: usize) {
        for (other, consumer) in self.consumers.into_iter().enumerate() {
            let Some(consumer) = consumer else { continue };
            if consumer.stage != Stage::Published || consumer.token != self.token {
                continue;
            }
            if other == n && !setup.drops(Rule::SettledOnRevoke) {
                // Let go a moment ago: it settles what it has published.
                self.settle(consumer.lane, consumer.position + 1);
            } else if other != n {
                self.excuses += u8::from(consumer.late);
            }
        }
        self.lease = None;
        self.token += 1;
        let open = self.open();
        let settled = self.settled[open.0 as usize];
        let mut start = self.committed;
        if setup.drops(Rule::FromTheStart) {
            start = start.max(settled);
        }
        let cut = cut_at_start(open, settled, start).filter(|_| !setup.drops(Rule::StartCuts));
        if let Some(cut) = cut {
            for claim in &mut self.claims {
                claim.take_if(|claim| claim.lane == cut.prev && claim.position >= cut.cut);
            }
            self.settled.push(start);
        }
        let (generation, token, lane) = (self.generation, self.token, self.open());
        self.consumers[n] =
            Some(Consumer { generation, token, lane, position: start, stage: Stage::Idle, works: true, late: false });
    }

    fn claim(&mut self, setup: &Setup, n: usize) -> Option<()> {
        let event = self.log()[self.consumers[n]?.position as usize];
        let consumer = self.consumers[n].as_mut()?;
        if consumer.token != self.token && !setup.drops(Rule::Token) {
            (consumer.works, consumer.stage) = (false, Stage::Idle);
            return Some(());
        }
        let me = Coordinate { lane: consumer.lane, position: consumer.position };
        let held = self.claims[event].map(|by| Held { by, settled: self.settled[by.lane.0 as usize] });
        consumer.stage = match judge_settling(held, me) {
            Settling::Publish => Stage::Claimed,
            Settling::Duplicate => Stage::Done,
            Settling::InFlight => return None,
        };
        self.lease = self.lease.or((consumer.stage == Stage::Claimed).then_some(n));
        self.claims[event].get_or_insert(me);
        Some(())
    }

    fn crash(&mut self, n: usize) {
        let consumer = self.consumers[n].take();
        let unsettled = |consumer: Consumer| consumer.stage == Stage::Published && consumer.token == self.token;
        self.excuses += u8::from(consumer.is_some_and(unsettled));
        self.assigned.take_if(|assigned| *assigned == n);
    }

    fn moved(&mut self, to: Position) {
        self.generation += 1;
        self.assigned = None;
        for (offset, skipped) in self.skipped.iter_mut().enumerate() {
            let offset = offset as Position;
            *skipped = offset < to && (*skipped || offset >= self.committed);
        }
        self.committed = to;
    }

    /// Everybody dies, and one consumer starts afresh and reads to the end.
    fn ending(&self, setup: &Setup) -> Option<World> {
        let mut world = self.clone();
        (0..CONSUMERS).for_each(|n| world.crash(n));
        world.lease = None;
        (world.generation, world.assigned) = (world.generation + 1, Some(0));
        world.take(setup, 0);
        for _ in 0..40 {
            let consumer = world.consumers[0]?;
            let act = match consumer.stage {
                Stage::Idle if consumer.position >= world.log().len() as Position => return Some(world),
                Stage::Idle => Act::Read(0),
                Stage::Read => Act::Claim(0),
                Stage::Claimed => Act::Publish(0),
                Stage::Published | Stage::Done => Act::Settle(0),
            };
            world = searching::World::after(&world, setup, act)?;
        }
        None
    }

    fn doubled(&self) -> Option<Wrong> {
        (0..EVENTS).find(|&event| self.published[event] > 1 + self.excuses).map(Wrong::Doubled)
    }

    fn lost(&self, before: &World) -> Option<Wrong> {
        let passed_over = |offset: usize| {
            self.skipped[offset]
                || !self.anew && self.skipped.contains(&true) && (offset as Position) < before.committed
        };
        let lost = |&(offset, event): &(usize, &Event)| self.published[*event] == 0 && !passed_over(offset);
        self.log().iter().enumerate().find(lost).map(|(offset, _)| Wrong::Lost(offset as Position))
    }
}

impl searching::World for World {
    type Setup = Setup;
    type Act = Act;
    type Wrong = Wrong;

    fn of(setup: &Setup) -> World {
        World {
            committed: 0,
            generation: 0,
            assigned: None,
            token: 0,
            lease: None,
            settled: vec![0],
            claims: [None; EVENTS],
            published: [0; EVENTS],
            consumers: [None; CONSUMERS],
            anew: false,
            skipped: [false; 3],
            excuses: 0,
            left: setup.faults,
        }
    }

    fn acts(&self, setup: &Setup) -> Vec<Act> {
        let mut acts = Vec::new();
        for n in 0..CONSUMERS {
            let consumer = self.consumers[n].unwrap_or(OUT);
            if self.left.handovers > 0 && self.assigned != Some(n) {
                acts.push(Act::Handover(n));
            }
            let is_free = self.lease.is_none_or(|owner| owner == n) || setup.drops(Rule::LeaseWaited);
            if self.assigned == Some(n) && consumer.generation != self.generation {
                if is_free {
                    acts.push(Act::Take(n));
                } else if setup.drops(Rule::TokenAfterLease) && self.left.handovers > 0 {
                    acts.push(Act::TokenEarly);
                }
            }
            if self.consumers[n].is_some() && self.left.crashes > 0 {
                acts.push(Act::Crash(n));
            }
            if !consumer.works {
                continue;
            }
            let early = setup.drops(Rule::SettledFirst) && consumer.stage >= Stage::Claimed;
            if consumer.stage == Stage::Idle || early {
                acts.push(Act::CommitOffset(n));
            }
            match consumer.stage {
                Stage::Idle => {
                    let more = consumer.position < self.log().len() as Position;
                    if more && (consumer.generation == self.generation || !self.anew) {
                        acts.push(Act::Read(n));
                    }
                }
                Stage::Read => acts.push(Act::Claim(n)),
                Stage::Claimed => {
                    acts.push(Act::Publish(n));
                    if self.left.refused > 0 {
                        acts.push(Act::Refused(n));
                    }
                }
                Stage::Published | Stage::Done => acts.push(Act::Settle(n)),
            }
        }
        if let Some(owner) = self.lease {
            let is_gone = self.consumers[owner].is_none_or(|one| !one.works || one.token != self.token);
            if is_gone || self.left.lapses > 0 {
                acts.push(Act::Lapse);
            }
        }
        if self.left.moves > 0 {
            acts.extend((0..3).filter(|to| *to != self.committed).map(Act::Move));
        }
        let quiet = self.consumers.iter().flatten().all(|one| one.stage == Stage::Idle || !one.works);
        if self.left.topics_anew > 0 && quiet {
            acts.push(Act::TopicAnew);
        }
        acts
    }

    fn after(&self, setup: &Setup, act: Act) -> Option<World> {
        let mut world = self.clone();
        match act {
            Act::Handover(n) => {
                world.left.handovers -= 1;
                world.generation += 1;
                world.assigned = Some(n);
            }
            Act::Take(n) => world.take(setup, n),
            Act::Read(n) => world.consumers[n].as_mut()?.stage = Stage::Read,
            Act::Claim(n) => world.claim(setup, n)?,
            Act::Publish(n) => {
                let consumer = world.consumers[n].as_mut()?;
                consumer.stage = Stage::Published;
                world.excuses += u8::from(consumer.late && consumer.token != self.token);
                let event = self.log()[consumer.position as usize];
                world.published[event] += 1;
            }
            Act::Refused(n) => {
                // Its own claim does not stand in its way.
                world.left.refused -= 1;
                world.consumers[n].as_mut()?.stage = Stage::Read;
            }
            Act::Settle(n) => {
                let consumer = world.consumers[n].as_mut()?;
                if consumer.token != self.token && !setup.drops(Rule::Token) {
                    (consumer.works, consumer.stage) = (false, Stage::Idle);
                } else {
                    consumer.stage = Stage::Idle;
                    consumer.position += 1;
                    let Consumer { lane, position, .. } = *consumer;
                    world.settle(lane, position);
                    world.lease.take_if(|owner| *owner == n);
                }
            }
            Act::CommitOffset(n) => {
                let consumer = self.consumers[n]?;
                let to = consumer.position + Position::from(consumer.stage >= Stage::Claimed);
                if consumer.generation != self.generation || to == self.committed {
                    return None;
                }
                world.committed = to;
            }
            Act::Crash(n) => {
                world.left.crashes -= 1;
                world.crash(n);
            }
            Act::Move(to) => {
                world.left.moves -= 1;
                world.moved(to);
            }
            Act::Lapse => {
                let owner = world.lease.take()?;
                if let Some(consumer) =
                    world.consumers[owner].as_mut().filter(|one| one.works && one.token == self.token)
                {
                    world.left.lapses -= 1;
                    consumer.late = true;
                }
            }
            Act::TokenEarly => {
                world.left.handovers -= 1;
                world.token += 1;
            }
            Act::TopicAnew => {
                world.left.topics_anew -= 1;
                (world.anew, world.committed, world.assigned, world.skipped) = (true, 0, None, [false; 3]);
                world.generation += 1;
            }
        }
        Some(world)
    }

    fn wrong(&self, setup: &Setup) -> Option<Wrong> {
        if let Some(doubled) = self.doubled() {
            return Some(doubled);
        }
        match self.ending(setup) {
            None => Some(Wrong::Stuck),
            Some(ending) => ending.doubled().or_else(|| ending.lost(self)),
        }
    }
}

const FAULTS: Faults = Faults { crashes: 1, handovers: 3, moves: 1, refused: 1, lapses: 1, ..NONE };

#[test]
fn it_holds() {
    holds::<World>(&Setup { faults: FAULTS, dropped: None });
    holds::<World>(&Setup { faults: Faults { moves: 0, topics_anew: 1, ..FAULTS }, dropped: None });
}

#[test]
fn each_rule_is_needed() {
    let lost: fn(Wrong) -> bool = |wrong| matches!(wrong, Wrong::Lost(_));
    let doubled: fn(Wrong) -> bool = |wrong| matches!(wrong, Wrong::Doubled(_));
    let stuck: fn(Wrong) -> bool = |wrong| wrong == Wrong::Stuck;
    let anew = Faults { moves: 0, topics_anew: 1, ..FAULTS };
    for (rule, counts, how, faults) in [
        (Rule::StartCuts, lost, "an operator skips, and claims that were never settled count as settled", FAULTS),
        (Rule::FromTheStart, lost, "a topic made anew is read from where the old one was settled", anew),
        (Rule::Token, stuck, "a zombie claims on a lane that is closed, and nobody ever settles it", FAULTS),
        (Rule::SettledFirst, lost, "killed between the offset and the publish", Faults { moves: 0, ..FAULTS }),
        (Rule::SettledOnRevoke, doubled, "a published window is published again after a handover", FAULTS),
        (Rule::LeaseWaited, doubled, "its owner before, who is not gone, has published it and not settled yet", FAULTS),
        (Rule::TokenAfterLease, doubled, "its owner before is fenced between publish and settle", FAULTS),
    ] {
        goes_wrong::<World>(&Setup { faults, dropped: Some(rule) }, counts, how);
    }
}
