//! PostgreSQL: claims, and who may extend which lane. Every method is one committed transaction.
//!
//! The second statement of a claim, which reads the rows of those that conflicted, is not a step of its own here: a
//! row that is gone between the two is claimed again, which is the same as a claim that comes later.

use semel::protocol::lane::{Coordinate, Cut, Holder, LaneId, Position, Token};
use semel::protocol::start::Row;
use semel::protocol::verdict::{Claimed, Verdict};
use semel::protocol::window::Questions;

use super::variants::{self, Rule};
use super::world::{EVENTS, Event, PARTITIONS, Parts, Place, Places, Setup, TOPICS, records};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Postgres {
    /// Drawn when the schema was made: a new database has another.
    pub store: u8,
    pub claims: [Option<Holder>; EVENTS],
    streams: [[Stream; PARTITIONS]; TOPICS],
    /// Only where lanes are dropped for a watermark: everything below it is taken to be done.
    pub watermark: [Position; PARTITIONS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Stream {
    owner: Option<Token>,
    row: Option<Row>,
}

/// A call as it is sent: it may be carried out when its caller no longer waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Statement {
    Claim(Claim),
    Open(Open),
    Forget { event: Event, holder: Holder },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    pub topic: usize,
    pub token: Token,
    pub parts: Parts,
    /// Records that ask for nothing: dead letters and known ids.
    pub except: Places,
    /// Only where lanes are dropped: where the own claims end that are taken to be done.
    pub done: [Position; PARTITIONS],
}

/// Rule 7 (c), for each partition that needs it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Open {
    pub topic: usize,
    pub token: Token,
    pub lanes: [Option<(LaneId, Option<Cut>)>; PARTITIONS],
}

/// Another's token stands there, or another lane is open.
#[derive(Debug)]
pub struct NotOwner;

impl Postgres {
    pub fn new(store: u8) -> Postgres {
        Postgres { store, claims: [None; EVENTS], streams: Default::default(), watermark: [0; PARTITIONS] }
    }

    pub fn begin_lane(&mut self, partition: usize, lane: LaneId) {
        self.streams[0][partition].row = Some(Row { open: lane, drained: None });
    }

    pub fn row(&self, setup: &Setup, topic: usize, partition: usize) -> Option<Row> {
        self.streams[variants::stream(setup, topic)][partition].row
    }

    pub fn owner(&self, setup: &Setup, topic: usize, partition: usize) -> Option<Token> {
        self.streams[variants::stream(setup, topic)][partition].owner
    }

    fn stream(&mut self, setup: &Setup, topic: usize, partition: usize) -> &mut Stream {
        &mut self.streams[variants::stream(setup, topic)][partition]
    }

    /// Whether a lane is open, on whatever stream.
    pub fn is_open(&self, lane: LaneId) -> bool {
        self.streams.iter().flatten().any(|stream| stream.row.is_some_and(|row| row.open == lane))
    }

    pub fn take(&mut self, setup: &Setup, topic: usize, partition: usize, token: Token) -> Option<Row> {
        let stream = self.stream(setup, topic, partition);
        stream.owner = Some(token);
        stream.row
    }

    /// Claims a window: which of its records are to be published.
    pub fn claim(&mut self, setup: &Setup, claim: &Claim) -> Result<Places, NotOwner> {
        for (partition, part) in claim.parts.iter().enumerate() {
            let Some(part) = part else { continue };
            let stream = self.stream(setup, claim.topic, partition);
            let mine = stream.owner == Some(claim.token) || setup.drops(Rule::OwnerToken);
            if !mine || stream.row.is_none_or(|row| row.open != part.lane) {
                return Err(NotOwner);
            }
            if let Some(row) = stream.row.as_mut().filter(|_| !setup.drops(Rule::DrainForgotten)) {
                row.drained = None;
            }
        }
        let done = variants::done(setup, self, claim);
        let asking: Vec<(Place, Coordinate)> =
            records(&claim.parts).filter(|&(place, _)| !claim.except.contains(place)).collect();
        let events: Vec<Event> = asking.iter().map(|&(place, _)| setup.event(claim.topic, place)).collect();
        let questions = Questions::of(&events);
        let answers: Vec<Claimed> =
            questions.asking.iter().map(|&n| self.insert_or_read(events[n], asking[n].1)).collect();
        let verdicts = questions.verdicts(&answers, |n| asking[n].1);
        let publishes = asking.iter().zip(verdicts).filter(|&(&(place, _), verdict)| match verdict {
            Verdict::Redelivered => place.offset >= done[place.partition],
            verdict => verdict.publishes(),
        });
        Ok(publishes.map(|(&(place, _), _)| place).collect())
    }

    fn insert_or_read(&mut self, event: Event, at: Coordinate) -> Claimed {
        match self.claims[event] {
            Some(holder) => Claimed::Held(holder),
            None => {
                self.claims[event] = Some(Holder { lane: Some(at.lane), position: at.position });
                Claimed::Inserted
            }
        }
    }

    pub fn open(&mut self, setup: &Setup, open: &Open) -> Result<(), NotOwner> {
        let mine = |partition: usize| self.owner(setup, open.topic, partition) == Some(open.token);
        if !setup.drops(Rule::OwnerToken) && !(0..PARTITIONS).all(|p| open.lanes[p].is_none() || mine(p)) {
            return Err(NotOwner);
        }
        for (partition, lane) in open.lanes.iter().enumerate() {
            let &Some((lane, cut)) = lane else { continue };
            if let Some(cut) = cut {
                self.release(setup, cut);
            }
            self.stream(setup, open.topic, partition).row = Some(Row { open: lane, drained: None });
        }
        Ok(())
    }

    fn release(&mut self, setup: &Setup, Cut { prev, cut }: Cut) {
        if !setup.drops(Rule::Release) {
            for claim in &mut self.claims {
                if claim.is_some_and(|holder| holder.lane == Some(prev) && holder.position >= cut) {
                    *claim = None;
                }
            }
        }
        for stream in self.streams.iter_mut().flatten() {
            if stream.row.is_some_and(|row| row.open == prev) {
                stream.row = None;
            }
        }
    }

    pub fn record_drain(&mut self, setup: &Setup, topic: usize, partition: usize, token: Token, settled: Position) {
        let stream = self.stream(setup, topic, partition);
        if let Some(row) = stream.row.as_mut().filter(|_| stream.owner == Some(token)) {
            row.drained = Some(settled);
        }
    }

    /// Deletes a claim only if it is still the one that is meant.
    pub fn forget(&mut self, event: Event, holder: Holder) {
        if self.claims[event] == Some(holder) {
            self.claims[event] = None;
        }
    }

    pub fn carry_out(&mut self, setup: &Setup, statement: &Statement) {
        // Nobody waits for the answer.
        match statement {
            Statement::Claim(claim) => drop(self.claim(setup, claim)),
            Statement::Open(open) => drop(self.open(setup, open)),
            Statement::Forget { event, holder } => self.forget(*event, *holder),
        }
    }
}
