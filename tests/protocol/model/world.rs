//! The state of a small world: Kafka, PostgreSQL, two instances, and what is still under way between them.

use std::fmt;

use semel::protocol::lane::{Coordinate, LaneId, Position};
use semel::protocol::start::Reset;

use super::faults::Faults;
use super::instance::Instance;
use super::kafka::Kafka;
use super::postgres::{Postgres, Statement};
use super::variants::Rule;

pub const PARTITIONS: usize = 2;
pub const INSTANCES: usize = 2;
pub const EVENTS: usize = 3;
/// A topic, and the one made anew under its name.
pub const TOPICS: usize = 2;

/// A business event; its copies may lie at several places of the log.
pub type Event = usize;
pub const A: Event = 0;
pub const B: Event = 1;
pub const C: Event = 2;

/// What lies at the offsets 0, 1, … of each partition.
pub type Log = [&'static [Event]; PARTITIONS];

/// The world to search: what is in the log, what may go wrong and how often, which rule is dropped.
#[derive(Debug, Clone)]
pub struct Setup {
    pub log: Log,
    /// The log of the topic that [`Faults::topics_anew`] puts in its place.
    pub log_anew: Log,
    pub faults: Faults,
    pub begins: Begins,
    pub reset: Reset,
    /// Windows of one instance that are under way at once.
    pub windows: usize,
    /// Most records that one window takes from a partition.
    pub records: Position,
    pub known: Known,
    /// Records that the broker refuses, by partition and offset.
    pub refused: &'static [(usize, Position)],
    pub dropped: &'static [Rule],
}

/// What is there before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// Both lanes are open, nothing is read.
    Running,
    /// Nobody has ever read the topic.
    Never,
    /// A group without Semel has read one record of the first partition.
    Adopted,
}

/// Ids that an instance keeps in memory and calls duplicates without asking the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    None,
    /// Those of windows whose Kafka commit is known.
    Committed,
    /// Those that it claimed; the set is emptied on every abort, unknown outcome, revoke and discontinuity.
    Claimed,
}

impl Setup {
    /// The protocol with one window at a time, nothing refused, and no fault.
    pub const fn new(log: Log) -> Setup {
        Setup {
            log,
            log_anew: [&[], &[]],
            faults: Faults::NONE,
            begins: Begins::Running,
            reset: Reset::Earliest,
            windows: 1,
            records: 2,
            known: Known::None,
            refused: &[],
            dropped: &[],
        }
    }

    pub fn drops(&self, rule: Rule) -> bool {
        self.dropped.contains(&rule)
    }

    pub fn log(&self, topic: usize) -> Log {
        if topic == 0 { self.log } else { self.log_anew }
    }

    pub fn end(&self, topic: usize, partition: usize) -> Position {
        self.log(topic)[partition].len() as Position
    }

    pub fn event(&self, topic: usize, place: Place) -> Event {
        self.log(topic)[place.partition][place.offset as usize]
    }

    /// Every place of the log.
    pub fn places(&self, topic: usize) -> impl Iterator<Item = Place> + use<> {
        let log = self.log(topic);
        (0..PARTITIONS).flat_map(move |partition| {
            (0..log[partition].len()).map(move |offset| Place { partition, offset: offset as Position })
        })
    }

    pub fn refused(&self) -> Places {
        self.refused.iter().map(|&(partition, offset)| Place { partition, offset }).collect()
    }
}

/// One record of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub partition: usize,
    pub offset: Position,
}

impl Place {
    const PER_PARTITION: u32 = 8;

    fn bit(self) -> u16 {
        1 << (self.partition as u32 * Self::PER_PARTITION + self.offset as u32)
    }
}

/// A set of places.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Places(u16);

impl Places {
    pub fn insert(&mut self, place: Place) {
        self.0 |= place.bit();
    }

    pub fn remove(&mut self, place: Place) {
        self.0 &= !place.bit();
    }

    pub fn contains(self, place: Place) -> bool {
        self.0 & place.bit() != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn and(self, other: Places) -> Places {
        Places(self.0 & other.0)
    }

    pub fn or(self, other: Places) -> Places {
        Places(self.0 | other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Place> {
        (0..u16::BITS).filter(move |bit| self.0 & (1 << bit) != 0).map(|bit| Place {
            partition: (bit / Place::PER_PARTITION) as usize,
            offset: Position::from(bit % Place::PER_PARTITION),
        })
    }
}

impl FromIterator<Place> for Places {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Places {
        let mut set = Places::default();
        places.into_iter().for_each(|place| set.insert(place));
        set
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|place| (place.partition, place.offset))).finish()
    }
}

/// A run of records of one partition, read on one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    pub lane: LaneId,
    pub from: Position,
    pub to: Position,
}

pub type Parts = [Option<Part>; PARTITIONS];

/// The records of some parts, each with the coordinate at which it may be claimed.
pub fn records(parts: &Parts) -> impl Iterator<Item = (Place, Coordinate)> + use<'_> {
    parts.iter().enumerate().filter_map(|(partition, part)| part.map(|part| (partition, part))).flat_map(
        |(partition, part)| {
            (part.from..part.to)
                .map(move |offset| (Place { partition, offset }, Coordinate { lane: part.lane, position: offset }))
        },
    )
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub kafka: Kafka,
    pub postgres: Postgres,
    pub instances: [Instance; INSTANCES],
    /// Statements whose caller is gone or has given up: each is carried out at any later time, or never.
    pub late: Vec<Statement>,
    /// Records that an operator's move passed over, unread.
    pub skipped: Places,
    /// The broker takes now what it refused before.
    pub healed: bool,
    /// How much may still go wrong.
    pub left: Faults,
}

impl World {
    pub fn of(setup: &Setup) -> World {
        let mut world = World {
            kafka: Kafka::new(),
            postgres: Postgres::new(0),
            instances: [Instance::out(0), Instance::out(0)],
            late: Vec::new(),
            skipped: Places::default(),
            healed: false,
            left: setup.faults,
        };
        match setup.begins {
            Begins::Running => world.begin_running(),
            Begins::Never => {}
            Begins::Adopted => {
                world.kafka.partitions[0].committed = Some(1);
                world.skipped.insert(Place { partition: 0, offset: 0 });
            }
        }
        world
    }

    fn begin_running(&mut self) {
        for partition in 0..PARTITIONS {
            let lane = LaneId(1 + partition as i64);
            self.postgres.begin_lane(partition, lane);
            self.kafka.begin_lane(partition, lane, self.postgres.store);
        }
    }

    /// The same world with the instances' names exchanged.
    pub fn mirrored(&self) -> World {
        let mut world = self.clone();
        world.instances.swap(0, 1);
        for owner in world.kafka.assigned.iter_mut().flatten() {
            *owner = 1 - *owner;
        }
        world
    }
}
