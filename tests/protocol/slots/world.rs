//! The state of a small world: a queue, a store, a sink, two instances.

use semel::protocol::lane::{LaneId, Token};
use semel::protocol::slot::Truth;

use super::instance::{Instance, Transaction};
use super::rules::Rule;
use super::store::{Statement, Store};

pub const INSTANCES: usize = 2;
pub const SLOTS: usize = 2;
pub const EVENTS: usize = 2;

pub type Event = usize;
pub const A: Event = 0;
pub const B: Event = 1;

/// What the sink can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// Confirms each message by itself; the store's settled position is the truth.
    Plain,
    /// Kafka: the settled position is committed with the output, the store's is a mirror.
    Transactional,
}

#[derive(Debug, Clone)]
pub struct Setup {
    pub sink: Sink,
    /// The slot of each instance. The same twice: the second is a later run under the same name, started while the
    /// first may still be there.
    pub slots: [usize; INSTANCES],
    /// Which event each delivery of the queue carries.
    pub queue: &'static [Event],
    /// Most deliveries that an instance holds.
    pub window: usize,
    pub faults: Faults,
    pub dropped: Option<Rule>,
}

impl Setup {
    pub fn drops(&self, rule: Rule) -> bool {
        self.dropped == Some(rule)
    }

    pub fn is_transactional(&self) -> bool {
        self.sink == Sink::Transactional
    }
}

/// How often each thing may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Faults {
    pub crashes: u8,
    /// A statement that was carried out without an answer.
    pub lost: u8,
    /// A statement without an answer that may be carried out at any later time.
    pub late: u8,
    /// A Kafka commit of unknown outcome.
    pub unknown: u8,
    /// A window that is known to have been aborted, or a message that the sink surely did not take.
    pub refused: u8,
    /// A publish that may have been carried out or not.
    pub doubts: u8,
    /// A lease that runs out under a run that is there.
    pub lapses: u8,
    /// The queue's connection is cut: what was not acknowledged is delivered again.
    pub cuts: u8,
    pub acks_lost: u8,
    /// A caller (HTTP) that does not come again with what was not acknowledged.
    pub gone: u8,
    /// Starts, new lanes after a fault, and slots taken from others.
    pub takeovers: u8,
}

impl Faults {
    pub const NONE: Faults = Faults {
        crashes: 0,
        lost: 0,
        late: 0,
        unknown: 0,
        refused: 0,
        doubts: 0,
        lapses: 0,
        cuts: 0,
        acks_lost: 0,
        gone: 0,
        takeovers: 0,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Delivery {
    Ready,
    /// Delivered to this instance and not acknowledged.
    Out(usize),
    Acknowledged,
    /// Never acknowledged, and not to come again.
    Gone,
}

/// A slot's own group in Kafka, and the epoch of its transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    pub truth: Truth,
    pub epoch: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub store: Store,
    pub groups: [Group; SLOTS],
    /// Transactions whose end was sent and not answered.
    pub pending: Vec<Transaction>,
    /// How often each event is visible in the sink, up to three.
    pub published: [u8; EVENTS],
    pub queue: Vec<Delivery>,
    pub instances: [Instance; INSTANCES],
    /// Statements whose caller has given up: each is carried out at any later time, or never.
    pub late: Vec<Statement>,
    pub tokens: i64,
    pub left: Faults,
    /// With a plain sink a second copy is promised away only where none of this happened: a publish in doubt, a crash
    /// between publish and settle, a holder that outlived its lease.
    pub excused: bool,
    /// A takeover did not know where the open lane left off.
    pub stuck: bool,
}

impl World {
    pub fn begin(setup: &Setup) -> World {
        let group = |slot| Group { truth: Truth { lane: LaneId(slot), settled: 0, cut: None }, epoch: 1 };
        let mut instances = [Instance::down(), Instance::down()];
        for (n, instance) in instances.iter_mut().enumerate() {
            if n == 0 || setup.slots[0] != setup.slots[1] {
                *instance = Instance::running(LaneId(n as i64), Token(n as i64 + 1), 1);
            }
        }
        World {
            store: Store::new(),
            groups: [group(0), group(1)],
            pending: Vec::new(),
            published: [0; EVENTS],
            queue: vec![Delivery::Ready; setup.queue.len()],
            instances,
            late: Vec::new(),
            tokens: SLOTS as i64,
            left: setup.faults,
            excused: false,
            stuck: false,
        }
    }

    pub fn draw_token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    pub fn publish(&mut self, event: Event) {
        self.published[event] = (self.published[event] + 1).min(3);
    }

    /// Makes a transaction visible.
    pub fn commit(&mut self, transaction: &Transaction) {
        let Transaction { slot, truth, events, .. } = transaction;
        self.groups[*slot].truth = *truth;
        for &event in events {
            self.publish(event);
        }
    }

    /// Gives a delivery back to the queue, if it is still this instance's.
    pub fn give_back(&mut self, instance: usize, delivery: usize) {
        if self.queue[delivery] == Delivery::Out(instance) {
            self.queue[delivery] = Delivery::Ready;
        }
    }
}
