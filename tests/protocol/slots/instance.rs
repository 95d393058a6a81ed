//! One run of an instance: what it holds, and what it does when nothing is in its way.

use semel::protocol::lane::{Cut, LaneId, Position, Token};
use semel::protocol::slot::{Conflict, Mine, Truth, judge_conflict};

use super::rules::Rule;
use super::store::{Answer, Right, Statement, Taking};
use super::world::{Delivery, Event, Setup, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Delivered, and to be reserved.
    Fresh,
    /// Its claim is this run's, at this position.
    Mine(Position),
    /// Its claim was in the way; who holds it is not read yet.
    Conflicting,
    /// In flight elsewhere.
    InFlight,
    /// Published, its end known: at this position.
    Published(Position),
    Duplicate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    pub delivery: usize,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stage {
    Down,
    Working,
    /// The end of a Kafka transaction is about to be sent.
    Sending,
    /// What this and later positions are was surely not published: to be released.
    Releasing(Position),
    /// Something is unknown: a new lane is needed. The publish in doubt, if that is what it is.
    MustCut(Option<Position>),
    Taking(Taking, Step),
}

/// The steps of a takeover. With a plain sink there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Take,
    Initialise,
    Fetch { epoch: u8 },
    Kafka { epoch: u8, cut: Cut },
    Open { epoch: u8, cut: Cut },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    pub stage: Stage,
    /// None until the first takeover is done, and from a fault to the next lane.
    pub lane: Option<LaneId>,
    pub token: Token,
    /// Of the transactional id.
    pub epoch: u8,
    /// The next position.
    pub next: Position,
    /// Everything below is published, as far as this run knows.
    pub committed: Position,
    /// The store has answered that it knows as much.
    pub settled: Position,
    pub items: Vec<Item>,
}

/// A Kafka transaction: the events and the slot's truth move as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub slot: usize,
    pub epoch: u8,
    pub truth: Truth,
    pub events: Vec<Event>,
}

impl Instance {
    pub fn down() -> Instance {
        let (lane, token, items) = (None, Token(0), Vec::new());
        Instance { stage: Stage::Down, lane, token, epoch: 0, next: 0, committed: 0, settled: 0, items }
    }

    pub fn running(lane: LaneId, token: Token, epoch: u8) -> Instance {
        Instance { stage: Stage::Working, lane: Some(lane), token, epoch, ..Instance::down() }
    }

    pub fn right(&self) -> Option<Right> {
        Some(Right { token: self.token, lane: self.lane?, committed: self.committed })
    }

    /// What it knows of its lane, or, after a fault, of the one before the lane that it is taking.
    pub fn known(&self) -> Option<Right> {
        match self.stage {
            Stage::Taking(taking, _) if taking.own => taking.former,
            _ => self.right(),
        }
    }

    pub fn any(&self, is: impl Fn(State) -> bool) -> bool {
        self.items.iter().any(|item| is(item.state))
    }

    /// Its first message that is claimed and not published, by position.
    pub fn first_mine(&self) -> Option<(usize, Position)> {
        let mine = self.items.iter().enumerate().filter_map(|(n, item)| match item.state {
            State::Mine(position) => Some((n, position)),
            _ => None,
        });
        mine.min_by_key(|(_, position)| *position)
    }

    /// The rows of the next reserve.
    pub fn rows(&self, setup: &Setup) -> Vec<(Event, Position)> {
        let fresh = self.items.iter().filter(|item| item.state == State::Fresh);
        fresh.zip(self.next..).map(|(item, position)| (setup.queue[item.delivery], position)).collect()
    }
}

impl World {
    /// Takes the answer to a reserve of everything fresh.
    pub fn reserved(&mut self, setup: &Setup, n: usize, rows: &[(Event, Position)], answer: &Answer) {
        let Answer::Reserved(inserted) = answer else {
            self.instances[n].stage = Stage::MustCut(None);
            return;
        };
        let instance = &mut self.instances[n];
        instance.settled = instance.settled.max(instance.committed);
        let mut inserted = inserted.clone();
        let mut rows = rows.iter();
        for item in instance.items.iter_mut().filter(|item| item.state == State::Fresh) {
            let Some(&(event, position)) = rows.next() else { break };
            debug_assert_eq!(event, setup.queue[item.delivery]);
            // The first row of an event in a window is the one that was inserted.
            item.state = match inserted.iter().position(|one| *one == event) {
                Some(at) => {
                    inserted.remove(at);
                    // A position that the store answered it has not used may be used: the search would never end.
                    instance.next = position + 1;
                    State::Mine(position)
                }
                None => State::Conflicting,
            };
        }
    }

    /// The second statement of a reserve, for one message. `None` where a takeover or a sweep is in place.
    pub fn read_holder(&mut self, setup: &Setup, n: usize, item: usize) {
        let event = setup.queue[self.instances[n].items[item].delivery];
        let found = self.store.conflicting(event);
        let Some(lane) = self.instances[n].lane else { return };
        let instance = &mut self.instances[n];
        let committed = if setup.is_transactional() { instance.committed } else { instance.settled };
        let state = match judge_conflict(found, Mine { lane, committed }) {
            Conflict::Duplicate => State::Duplicate,
            Conflict::Gone if setup.drops(Rule::GoneIsAskedAgain) => State::Duplicate,
            Conflict::Gone => State::Fresh,
            _ if setup.drops(Rule::InFlightNotAcknowledged) => State::Duplicate,
            Conflict::InFlight | Conflict::TakeOver(_) | Conflict::LeftBehind(_) => State::InFlight,
        };
        instance.items[item].state = state;
    }

    /// What is to be done about the holder of a message in flight, if anything can be.
    pub fn remedy(&self, setup: &Setup, n: usize, delivery: usize) -> Option<Remedy> {
        let instance = &self.instances[n];
        let mine = Mine { lane: instance.lane?, committed: instance.committed };
        match judge_conflict(self.store.conflicting(setup.queue[delivery]), mine) {
            Conflict::TakeOver(lane) => Some(Remedy::Steal(self.store.lane(lane).slot)),
            Conflict::LeftBehind(lane) => Some(Remedy::Sweep(lane)),
            _ => None,
        }
    }

    /// Whether a message may be acknowledged.
    pub fn is_done(item: &Item) -> bool {
        matches!(item.state, State::Duplicate | State::Published(_))
    }

    /// After a fault: what is done stays to be acknowledged, the rest goes back.
    pub fn hand_back(&mut self, n: usize) {
        let items = std::mem::take(&mut self.instances[n].items);
        let (done, rest): (Vec<Item>, Vec<Item>) = items.into_iter().partition(World::is_done);
        self.instances[n].items = done.into_iter().map(|item| Item { state: State::Duplicate, ..item }).collect();
        rest.iter().for_each(|item| self.give_back(n, item.delivery));
    }

    /// The window's transaction.
    pub fn transaction(&self, setup: &Setup, n: usize) -> Option<Transaction> {
        let instance = &self.instances[n];
        let slot = setup.slots[n];
        let cut = self.groups[slot].truth.cut;
        let truth = Truth { lane: instance.lane?, settled: instance.next, cut };
        let mine = instance.items.iter().filter(|item| matches!(item.state, State::Mine(_)));
        let events = mine.map(|item| setup.queue[item.delivery]).collect();
        Some(Transaction { slot, epoch: instance.epoch, truth, events })
    }

    /// Everything that was this window's is published and known to be.
    pub fn mark_published(&mut self, n: usize) {
        for item in &mut self.instances[n].items {
            if let State::Mine(position) = item.state {
                item.state = State::Published(position);
            }
        }
    }

    pub fn deliver(&mut self, n: usize, delivery: usize) {
        self.queue[delivery] = Delivery::Out(n);
        self.instances[n].items.push(Item { delivery, state: State::Fresh });
    }

    /// A definite failure: nothing from this position on was published.
    pub fn failed(&mut self, n: usize, from: Position) {
        self.instances[n].stage = Stage::Releasing(from);
    }

    /// The statement that a definite failure asks for.
    pub fn release(&self, n: usize) -> Option<Statement> {
        let instance = &self.instances[n];
        let Stage::Releasing(from) = instance.stage else { return None };
        Some(Statement::Release { right: instance.right()?, from, to: instance.next })
    }

    pub fn released(&mut self, n: usize, answer: &Answer) {
        if *answer == Answer::Refused {
            self.instances[n].stage = Stage::MustCut(None);
            return;
        }
        self.instances[n].stage = Stage::Working;
        let items = std::mem::take(&mut self.instances[n].items);
        let (mine, rest): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(|item| matches!(item.state, State::Mine(_)));
        self.instances[n].items = rest;
        mine.iter().for_each(|item| self.give_back(n, item.delivery));
    }
}

/// How a message that is in flight is helped on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    Steal(usize),
    Sweep(LaneId),
}
