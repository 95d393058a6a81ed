//! A model of windows that wait for one another: two events, each once in either of two partitions, in opposite orders; a
//! sink without transactions, and windows of two messages. Somebody else may have claimed one of them, and give it back.
//!
//! A window goes as far as its first message whose event is in flight elsewhere. What is behind it is neither settled nor
//! kept claimed.

use semel::protocol::instance::Answer;
use semel::protocol::lane::{Coordinate, Holder, LaneId, Position};
use semel::protocol::settled::{Front, Judged, front, judge_answer};
use semel::protocol::slot::{Conflicting, LaneSeen};

use crate::searching::{self, goes_wrong, holds};

type Event = usize;
const EVENTS: usize = 2;
const LOGS: [[Event; EVENTS]; 2] = [[0, 1], [1, 0]];
const END: Position = EVENTS as Position;
const OTHER: LaneId = LaneId(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// What is in flight is waited for: it is no duplicate.
    Waits,
    /// Nothing behind it is settled before it.
    NothingBehind,
    /// The claims of what is behind it are given back.
    GivesBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Faults {
    crashes: u8,
    /// An operator passes over a record.
    skips: u8,
    /// Somebody else has claimed the first event, and is going to give it back.
    others: u8,
}

type Setup = searching::Setup<Faults, Rule>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Partition {
    lane: LaneId,
    settled: Position,
    /// What its window publishes, and the position behind it.
    window: Option<([bool; EVENTS], Position)>,
    is_published: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    claims: [Option<Coordinate>; EVENTS],
    published: [u8; EVENTS],
    partitions: [Partition; 2],
    /// Closed lanes, and where they left off.
    closed: Vec<(LaneId, Position)>,
    skipped: [[bool; EVENTS]; 2],
    excuses: u8,
    left: Faults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Reserve(usize),
    Publish(usize),
    Settle(usize),
    Crash(usize),
    Skip(usize),
    OtherGone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Lost(Event),
    Doubled(Event),
    Stuck,
}

impl World {
    fn seen(&self, lane: LaneId) -> LaneSeen {
        if lane == OTHER {
            return LaneSeen { settled: 0, open: true, lapsed: false };
        }
        let open = self.partitions.iter().find(|partition| partition.lane == lane);
        let closed = || self.closed.iter().find(|(id, _)| *id == lane).map_or(0, |(_, settled)| *settled);
        LaneSeen { settled: open.map_or_else(closed, |open| open.settled), open: open.is_some(), lapsed: false }
    }

    fn reserve(&mut self, setup: &Setup, p: usize) -> Option<()> {
        let Partition { lane, settled, window: None, .. } = self.partitions[p] else { return None };
        if settled >= END {
            return None;
        }
        let messages: Vec<(Position, Event)> =
            (settled..END).map(|offset| (offset, LOGS[p][offset as usize])).collect();
        let before = self.claims;
        let mut judged = Vec::new();
        for &(position, event) in &messages {
            let me = Coordinate { lane, position };
            let answer = self.claims[event].map_or(Answer::Inserted, |by| {
                let holder = Holder { lane: Some(by.lane), position: by.position };
                Answer::InTheWay(Some(Conflicting { holder, lane: Some(self.seen(by.lane)) }))
            });
            self.claims[event].get_or_insert(me);
            let mut found = judge_answer(answer, me);
            if setup.drops(Rule::Waits) && matches!(found, Judged::InFlight(_)) {
                found = Judged::Duplicate;
            }
            judged.push(Some(found));
        }
        let Front { mut length, wait, give_back } = front(&judged);
        if setup.drops(Rule::NothingBehind) {
            length = judged.len();
        }
        if !setup.drops(Rule::GivesBack) && !setup.drops(Rule::NothingBehind) {
            give_back.into_iter().for_each(|n| self.claims[messages[n].1] = None);
        }
        if length == 0 && wait.is_some() {
            return (self.claims != before).then_some(());
        }
        let mut publishes = [false; EVENTS];
        for n in 0..length {
            publishes[messages[n].1] = matches!(judged[n], Some(Judged::Publish { .. }));
        }
        self.partitions[p].window = Some((publishes, settled + length as Position));
        self.partitions[p].is_published = false;
        Some(())
    }

    fn ending(&self, setup: &Setup) -> Option<World> {
        let mut world = self.clone();
        world.claims[0].take_if(|by| by.lane == OTHER);
        for _ in 0..20 {
            for p in 0..2 {
                for act in [Act::Reserve(p), Act::Publish(p), Act::Settle(p)] {
                    world = searching::World::after(&world, setup, act).unwrap_or(world);
                }
            }
        }
        world.partitions.iter().all(|partition| partition.settled == END).then_some(world)
    }

    fn doubled(&self) -> Option<Wrong> {
        (0..EVENTS).find(|&event| self.published[event] > 1 + self.excuses).map(Wrong::Doubled)
    }

    fn lost(&self) -> Option<Wrong> {
        let stays = |event: Event| (0..2).any(|p| (0..EVENTS).any(|n| LOGS[p][n] == event && !self.skipped[p][n]));
        (0..EVENTS).find(|&event| self.published[event] == 0 && stays(event)).map(Wrong::Lost)
    }
}

impl searching::World for World {
    type Setup = Setup;
    type Act = Act;
    type Wrong = Wrong;

    fn of(setup: &Setup) -> World {
        let partition = |lane| Partition { lane: LaneId(lane), settled: 0, window: None, is_published: false };
        let other = (setup.faults.others > 0).then_some(Coordinate { lane: OTHER, position: 0 });
        World {
            claims: [other, None],
            published: [0; EVENTS],
            partitions: [partition(1), partition(2)],
            closed: vec![],
            skipped: [[false; EVENTS]; 2],
            excuses: 0,
            left: setup.faults,
        }
    }

    fn acts(&self, _setup: &Setup) -> Vec<Act> {
        let mut acts: Vec<Act> = (0..2).flat_map(|p| [Act::Reserve(p), Act::Publish(p), Act::Settle(p)]).collect();
        if self.left.crashes > 0 {
            acts.extend([Act::Crash(0), Act::Crash(1)]);
        }
        if self.left.others > 0 {
            acts.push(Act::OtherGone);
        }
        if self.left.skips > 0 {
            acts.extend([Act::Skip(0), Act::Skip(1)]);
        }
        acts
    }

    fn after(&self, setup: &Setup, act: Act) -> Option<World> {
        let mut world = self.clone();
        match act {
            Act::Reserve(p) => world.reserve(setup, p)?,
            Act::OtherGone => {
                world.left.others -= 1;
                world.claims[0].take_if(|by| by.lane == OTHER);
            }
            Act::Publish(p) => {
                let (publishes, _) = world.partitions[p].window.filter(|_| !self.partitions[p].is_published)?;
                (0..EVENTS).filter(|&event| publishes[event]).for_each(|event| world.published[event] += 1);
                world.partitions[p].is_published = true;
            }
            Act::Settle(p) => {
                let partition = &mut world.partitions[p];
                let (_, upto) = partition.window.filter(|_| partition.is_published)?;
                (partition.settled, partition.window) = (upto, None);
            }
            Act::Crash(p) => {
                let partition = &mut world.partitions[p];
                partition.window?;
                world.left.crashes -= 1;
                world.excuses += u8::from(partition.is_published);
                partition.window = None;
            }
            Act::Skip(p) => {
                // Its owner is gone, whatever it was at; a start behind settled releases and opens a new lane.
                let Partition { lane, settled, window, is_published } = world.partitions[p];
                if settled >= END {
                    return None;
                }
                world.left.skips -= 1;
                world.excuses += u8::from(window.is_some() && is_published);
                for claim in &mut world.claims {
                    claim.take_if(|by| by.lane == lane && by.position >= settled);
                }
                world.skipped[p][settled as usize] = true;
                world.closed.push((lane, settled));
                let next = Partition { lane: LaneId(lane.0 + 2), settled: settled + 1, window: None, is_published };
                world.partitions[p] = next;
            }
        }
        Some(world)
    }

    fn wrong(&self, setup: &Setup) -> Option<Wrong> {
        match self.ending(setup) {
            None => Some(Wrong::Stuck),
            Some(ending) => self.doubled().or_else(|| ending.doubled()).or_else(|| ending.lost()),
        }
    }
}

const FAULTS: Faults = Faults { crashes: 2, skips: 1, others: 0 };

#[test]
fn windows_that_cross_come_to_their_end() {
    holds::<World>(&Setup { faults: FAULTS, dropped: None });
    holds::<World>(&Setup { faults: Faults { others: 1, ..FAULTS }, dropped: None });
}

#[test]
fn each_rule_is_needed() {
    let lost: fn(Wrong) -> bool = |wrong| matches!(wrong, Wrong::Lost(_));
    let stuck: fn(Wrong) -> bool = |wrong| wrong == Wrong::Stuck;
    for (rule, counts, how, faults) in [
        (Rule::Waits, lost, "dropped for a record that an operator then passes over", FAULTS),
        (Rule::NothingBehind, lost, "settled with one before it that waited", FAULTS),
        (Rule::GivesBack, stuck, "each waits for what the other has claimed behind", Faults { others: 1, ..FAULTS }),
    ] {
        goes_wrong::<World>(&Setup { faults, dropped: Some(rule) }, counts, how);
    }
}
