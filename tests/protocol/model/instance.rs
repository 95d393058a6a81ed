//! One instance, as it follows protocol.md ("Kafka to Kafka"): from an assignment to its start, window by window.
//!
//! Each step is one call to Kafka or PostgreSQL and what the instance concludes from the answer; the two instances'
//! steps, the faults and what was left under way interleave in every order. An instance that has not yet heard of a
//! newer generation goes on in its own: a zombie is nothing else.

use semel::protocol::lane::{Cut, LaneId, Position, Token};
use semel::protocol::start::Row;

use super::kafka::{Offset, Transaction};
use super::postgres::{Claim, Open};
use super::variants::{self, Rule};
use super::world::{EVENTS, Known, PARTITIONS, Parts, Places, Setup, World, records};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    pub stage: Stage,
    /// The group's generation, as far as this instance has heard.
    pub generation: u8,
    pub topic: usize,
    pub token: Token,
    /// The generation was still the current one after the token was written.
    pub confirmed: bool,
    /// Tokens and lanes that it drew in this generation.
    drawn: i64,
    /// The assigned partitions.
    pub reads: [Option<Reading>; PARTITIONS],
    /// Windows under way, the first to be committed first.
    pub windows: Vec<Window>,
    /// Of the first window, or of a discontinuity.
    pub transaction: Option<Transaction>,
    pub known: [bool; EVENTS],
    /// Records that the broker refused: they are read as dead letters.
    pub dead: Places,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not a member, or it found that it no longer is: waits for an assignment.
    Out,
    /// It knows its partitions and is about to write its token.
    Taking,
    /// About to fetch one group's offsets, then the other's.
    Fetching,
    FetchingMore,
    /// The transaction of the start is under way; then new lanes are opened, if there are any.
    Starting,
    Opening,
    Reading,
    /// The start table asks for an operator.
    Halted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Reading {
    /// The next offset to poll.
    pub position: Position,
    /// What PostgreSQL said when the token was written, and what this instance changed since.
    pub row: Option<Row>,
    /// Fetched for the decision where to start.
    pub committed: Option<Position>,
    pub settled: Option<Offset>,
    /// A lane to be opened.
    pub opens: Option<(LaneId, Option<Cut>)>,
    /// Only where lanes are dropped: the settled position that this instance knows.
    pub done: Position,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Window {
    /// Captured before it was polled.
    pub generation: u8,
    pub parts: Parts,
    pub claimed: Option<Claimed>,
    /// A claim of it has an unknown outcome: a new token comes before the next.
    pub in_doubt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claimed {
    pub publishes: Places,
    pub dead: Places,
}

impl Instance {
    pub fn out(generation: u8) -> Instance {
        Instance {
            stage: Stage::Out,
            generation,
            topic: 0,
            token: Token(0),
            confirmed: false,
            drawn: 0,
            reads: Default::default(),
            windows: Vec::new(),
            transaction: None,
            known: [false; EVENTS],
            dead: Places::default(),
        }
    }

    /// Stops at once. What is open aborts; nothing is written any more before a new assignment.
    pub fn leave(&mut self, setup: &Setup) {
        self.empty_known(setup, Rule::KnownEmptiedOnRelease);
        *self = Instance { known: self.known, ..Instance::out(self.generation) };
    }

    /// Ids that were learned before their commit was known go on each occasion that may leave them undone.
    pub fn empty_known(&mut self, setup: &Setup, occasion: Rule) {
        if setup.known != Known::Committed && !setup.drops(occasion) {
            self.known = [false; EVENTS];
        }
    }

    /// A number that nobody else draws: a partition has one assignee in a generation.
    pub fn draw(&mut self) -> i64 {
        self.drawn += 1;
        i64::from(self.generation) * 100 + self.drawn * 10
    }

    pub fn draw_lane(&mut self, partition: usize) -> LaneId {
        LaneId(self.draw() + partition as i64)
    }

    /// Discards every window and goes back to where the first of them began.
    pub fn discard_windows(&mut self) {
        for window in std::mem::take(&mut self.windows).iter().rev() {
            for (reading, part) in self.reads.iter_mut().zip(&window.parts) {
                if let (Some(reading), Some(part)) = (reading, part) {
                    reading.position = part.from;
                }
            }
        }
    }

    pub fn claim_of(&self, setup: &Setup, window: &Window) -> Claim {
        let known = records(&window.parts)
            .map(|(place, _)| place)
            .filter(|&place| self.known[setup.event(self.topic, place)])
            .collect();
        Claim {
            topic: self.topic,
            token: self.token,
            parts: window.parts,
            except: self.dead.or(known),
            done: std::array::from_fn(|p| self.reads[p].as_ref().map_or(0, |reading| reading.done)),
        }
    }

    /// Whether lanes are still to be opened.
    pub fn opens(&self) -> bool {
        self.reads.iter().flatten().any(|reading| reading.opens.is_some())
    }

    pub fn open_statement(&self) -> Open {
        let lanes = std::array::from_fn(|p| self.reads[p].as_ref().and_then(|reading| reading.opens));
        Open { topic: self.topic, token: self.token, lanes }
    }

    pub fn learn(&mut self, setup: &Setup, publishes: Places) {
        for place in publishes.iter() {
            self.known[setup.event(self.topic, place)] = true;
        }
    }
}

impl World {
    /// The group's coordinator names the generation and the partitions: what was held before is discarded.
    pub fn assign(&mut self, setup: &Setup, k: usize) {
        let kafka = &self.kafka;
        let mine = std::array::from_fn(|p| (kafka.assigned[p] == Some(k)).then(Reading::default));
        let (generation, topic) = (kafka.generation, kafka.topic);
        let instance = &mut self.instances[k];
        if variants::keeps_windows(setup, instance, &mine) {
            instance.generation = generation;
            instance.windows.iter_mut().for_each(|window| window.generation = generation);
            instance.reads = std::array::from_fn(|p| mine[p].as_ref().and(instance.reads[p].take()));
            return;
        }
        instance.leave(setup);
        *instance = Instance { stage: Stage::Taking, generation, topic, reads: mine, ..instance.clone() };
    }

    /// Rule 3, before any fetch.
    pub fn take(&mut self, setup: &Setup, k: usize) {
        let instance = &mut self.instances[k];
        instance.token = Token(instance.draw());
        for (partition, reading) in instance.reads.iter_mut().enumerate() {
            if let Some(reading) = reading {
                reading.row = self.postgres.take(setup, instance.topic, partition, instance.token);
            }
        }
        instance.stage = Stage::Fetching;
    }
}
