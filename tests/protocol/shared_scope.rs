//! A model of protocol.md, "One scope, several pipelines": two events, each as a record of a Kafka partition and as a
//! delivery of a queue, under one scope. That each side is right by itself, with an atomic sink, is taken as shown.
//!
//! A record that meets an instance's claim in flight ends its window there: nothing behind it is claimed. A delivery that
//! meets a record's claim in flight comes back later. Neither waits while it holds what the other waits for.

use semel::protocol::lane::{Holder, LaneId, Position};
use semel::protocol::slot::{Conflict, Conflicting, LaneSeen, Mine, judge_conflict};

use crate::searching::{self, goes_wrong, holds};

const EVENTS: usize = 2;
/// Lanes of the partition have odd numbers, lanes of the instance even ones.
const FIRST_RECORDS: i64 = 1;
const FIRST_DELIVERIES: i64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    RecordsWait,
    DeliveriesWait,
    /// Each side tells the store what it has settled, also when idle.
    MirrorFlushed,
    /// Nothing behind a record that waits is claimed.
    NothingBehind,
    /// A lapsed instance's slot is taken over, by whoever needs it.
    SlotTaken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Faults {
    aborts: u8,
    crashes: u8,
    /// An operator skips a record.
    skips: u8,
    /// A caller does not come again.
    gone: u8,
    lapses: u8,
}

type Setup = searching::Setup<Faults, Rule>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Delivery {
    Ready,
    Out,
    Acknowledged,
    Gone,
}

/// One side: its open lane and what is settled on it, in truth and as the store knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Side {
    up: bool,
    lane: LaneId,
    settled: Position,
    mirror: Position,
    /// The events that its window holds.
    window: [bool; EVENTS],
    /// The next position: of the queue's side its own count, of the partition's the offset.
    next: Position,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    claims: [Option<(LaneId, Position)>; EVENTS],
    published: [u8; EVENTS],
    records: Side,
    skipped: [bool; EVENTS],
    deliveries: Side,
    lapsed: bool,
    queue: [Delivery; EVENTS],
    left: Faults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Reserve,
    Commit,
    Abort,
    Crash,
    Up,
    Skip,
    Flush,
    Deliver(usize),
    ReserveDelivery(usize),
    CommitDeliveries,
    AbortDeliveries,
    CrashInstance,
    InstanceUp,
    FlushInstance,
    Lapse,
    TakeSlot,
    GivenUp(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// Passed or acknowledged, and visible nowhere.
    Lost(usize),
    Doubled(usize),
    Stuck,
}

impl World {
    fn found(&self, event: usize) -> Option<Conflicting> {
        let (lane, position) = self.claims[event]?;
        let is_record = lane.0 % 2 == FIRST_RECORDS % 2;
        let side = if is_record { &self.records } else { &self.deliveries };
        let open = lane == side.lane;
        // A closed lane has no claim left that is not settled.
        let settled = if open { side.mirror } else { Position::MAX };
        let lapsed = !is_record && self.lapsed;
        Some(Conflicting {
            holder: Holder { lane: Some(lane), position },
            lane: Some(LaneSeen { settled, open, lapsed }),
        })
    }

    fn reserve(&mut self, setup: &Setup) -> Option<()> {
        let side = self.records;
        if !side.up || side.window.contains(&true) || side.settled >= EVENTS as Position {
            return None;
        }
        let mut passed = side.settled;
        for event in side.settled as usize..EVENTS {
            let offset = event as Position;
            match self.claims[event] {
                None => {
                    self.claims[event] = Some((side.lane, offset));
                    self.records.window[event] = true;
                }
                Some(by) if by == (side.lane, offset) => self.records.window[event] = true,
                Some(_) => {
                    let mine = Mine { lane: side.lane, committed: side.settled };
                    let done = judge_conflict(self.found(event), mine) == Conflict::Duplicate;
                    if !done && !setup.drops(Rule::RecordsWait) {
                        if setup.drops(Rule::NothingBehind) {
                            continue;
                        }
                        break;
                    }
                }
            }
            if !self.records.window.contains(&true) {
                passed = offset + 1;
            }
        }
        if !self.records.window.contains(&true) {
            if passed == side.settled {
                return None;
            }
            (self.records.settled, self.records.mirror) = (passed, passed);
        }
        Some(())
    }

    fn commit(&mut self, setup: &Setup) -> Option<()> {
        let last = (0..EVENTS).rfind(|&event| self.records.window[event]).filter(|_| self.records.up)?;
        (0..EVENTS).filter(|&event| self.records.window[event]).for_each(|event| self.published[event] += 1);
        self.records.settled = last as Position + 1;
        self.records.window = [false; EVENTS];
        if !setup.drops(Rule::MirrorFlushed) {
            self.records.mirror = self.records.settled;
        }
        Some(())
    }

    fn reserve_delivery(&mut self, setup: &Setup, event: usize) -> Option<()> {
        if !self.deliveries.up || self.queue[event] != Delivery::Out || self.deliveries.window[event] {
            return None;
        }
        if self.claims[event].is_none() {
            self.claims[event] = Some((self.deliveries.lane, self.deliveries.next));
            self.deliveries.next += 1;
            self.deliveries.window[event] = true;
            return Some(());
        }
        let mine = Mine { lane: self.deliveries.lane, committed: self.deliveries.settled };
        let done = judge_conflict(self.found(event), mine) == Conflict::Duplicate;
        let ends = done || setup.drops(Rule::DeliveriesWait);
        self.queue[event] = if ends { Delivery::Acknowledged } else { Delivery::Ready };
        Some(())
    }

    fn commit_deliveries(&mut self, setup: &Setup) -> Option<()> {
        if !self.deliveries.up || !self.deliveries.window.contains(&true) {
            return None;
        }
        for event in (0..EVENTS).filter(|&event| self.deliveries.window[event]) {
            self.published[event] += 1;
            if self.queue[event] == Delivery::Out {
                self.queue[event] = Delivery::Acknowledged;
            }
        }
        self.deliveries.window = [false; EVENTS];
        self.deliveries.settled = self.deliveries.next;
        if !setup.drops(Rule::MirrorFlushed) {
            self.deliveries.mirror = self.deliveries.settled;
        }
        Some(())
    }

    /// A new lane in place of the instance's, whose claims that are not settled are released.
    fn cut(&mut self) {
        let Side { lane, settled, .. } = self.deliveries;
        for claim in &mut self.claims {
            claim.take_if(|(of, position)| *of == lane && *position >= settled);
        }
        let lane = LaneId(lane.0 + 2);
        let up = self.deliveries.up;
        self.deliveries = Side { up, lane, settled: 0, mirror: 0, window: [false; EVENTS], next: 0 };
        self.give_back();
    }

    fn give_back(&mut self) {
        for delivery in self.queue.iter_mut().filter(|delivery| **delivery == Delivery::Out) {
            *delivery = Delivery::Ready;
        }
    }

    fn crash_instance(&mut self) {
        self.deliveries.up = false;
        self.deliveries.window = [false; EVENTS];
        self.give_back();
    }

    /// Nothing more goes wrong. `gone`: the instance is, for good, and so is who called it.
    fn ending(&self, setup: &Setup, gone: bool) -> (World, bool) {
        let mut world = self.clone();
        if gone {
            world.crash_instance();
            world.lapsed = true;
            for delivery in world.queue.iter_mut().filter(|delivery| **delivery == Delivery::Ready) {
                *delivery = Delivery::Gone;
            }
        }
        let of_records = [Act::Up, Act::Commit, Act::Flush, Act::Reserve];
        let of_deliveries = [
            Act::InstanceUp,
            Act::CommitDeliveries,
            Act::ReserveDelivery(0),
            Act::ReserveDelivery(1),
            Act::Deliver(0),
            Act::Deliver(1),
            Act::FlushInstance,
        ];
        for _ in 0..40 {
            let others = if gone { [Act::TakeSlot].as_slice() } else { of_deliveries.as_slice() };
            for act in of_records.iter().chain(others) {
                world = searching::World::after(&world, setup, *act).unwrap_or(world);
            }
        }
        let ended = world.queue.iter().all(|one| matches!(one, Delivery::Acknowledged | Delivery::Gone));
        (world.clone(), ended && world.records.settled == EVENTS as Position)
    }

    fn wrong_now(&self) -> Option<Wrong> {
        (0..EVENTS).find_map(|event| {
            let passed = self.records.settled > event as Position && !self.skipped[event];
            match self.published[event] {
                0 if passed || self.queue[event] == Delivery::Acknowledged => Some(Wrong::Lost(event)),
                0 | 1 => None,
                _ => Some(Wrong::Doubled(event)),
            }
        })
    }
}

impl searching::World for World {
    type Setup = Setup;
    type Act = Act;
    type Wrong = Wrong;

    fn of(setup: &Setup) -> World {
        let side =
            |lane| Side { up: true, lane: LaneId(lane), settled: 0, mirror: 0, window: [false; EVENTS], next: 0 };
        World {
            claims: [None; EVENTS],
            published: [0; EVENTS],
            records: side(FIRST_RECORDS),
            skipped: [false; EVENTS],
            deliveries: side(FIRST_DELIVERIES),
            lapsed: false,
            queue: [Delivery::Ready; EVENTS],
            left: setup.faults,
        }
    }

    fn acts(&self, setup: &Setup) -> Vec<Act> {
        let mut acts = vec![Act::Reserve, Act::Commit, Act::Up, Act::CommitDeliveries, Act::InstanceUp];
        acts.extend((0..EVENTS).flat_map(|event| [Act::Deliver(event), Act::ReserveDelivery(event)]));
        if !setup.drops(Rule::MirrorFlushed) {
            acts.extend([Act::Flush, Act::FlushInstance]);
        }
        acts.push(Act::TakeSlot);
        if self.left.aborts > 0 {
            acts.extend([Act::Abort, Act::AbortDeliveries]);
        }
        if self.left.crashes > 0 {
            acts.extend([Act::Crash, Act::CrashInstance]);
        }
        if self.left.skips > 0 {
            acts.push(Act::Skip);
        }
        if self.left.gone > 0 {
            acts.extend((0..EVENTS).map(Act::GivenUp));
        }
        if self.left.lapses > 0 {
            acts.push(Act::Lapse);
        }
        acts
    }

    fn after(&self, setup: &Setup, act: Act) -> Option<World> {
        let mut world = self.clone();
        let (records, deliveries) = (&mut world.records, &mut world.deliveries);
        match act {
            Act::Reserve => world.reserve(setup)?,
            Act::Commit => world.commit(setup)?,
            Act::Abort if records.up && records.window.contains(&true) => {
                world.left.aborts -= 1;
                records.window = [false; EVENTS];
            }
            Act::Crash if records.up => {
                world.left.crashes -= 1;
                (records.up, records.window) = (false, [false; EVENTS]);
            }
            Act::Up if !records.up => (records.up, records.mirror) = (true, records.settled),
            Act::Skip if records.settled < EVENTS as Position => {
                world.left.skips -= 1;
                // Rule 7: what was not settled is released, and a new lane goes on behind.
                let Side { lane, settled, .. } = *records;
                for claim in &mut world.claims {
                    claim.take_if(|(of, position)| *of == lane && *position >= settled);
                }
                world.skipped[settled as usize] = true;
                let (lane, to) = (LaneId(lane.0 + 2), settled + 1);
                *records = Side { up: false, lane, settled: to, mirror: to, window: [false; EVENTS], next: to };
            }
            Act::Flush if records.mirror != records.settled && !setup.drops(Rule::MirrorFlushed) => {
                records.mirror = records.settled;
            }
            Act::Deliver(event) if deliveries.up && self.queue[event] == Delivery::Ready => {
                world.queue[event] = Delivery::Out;
            }
            Act::ReserveDelivery(event) => world.reserve_delivery(setup, event)?,
            Act::CommitDeliveries => world.commit_deliveries(setup)?,
            Act::AbortDeliveries if deliveries.up && deliveries.window.contains(&true) => {
                world.left.aborts -= 1;
                world.cut();
            }
            Act::CrashInstance if deliveries.up => {
                world.left.crashes -= 1;
                world.crash_instance();
            }
            Act::InstanceUp if !deliveries.up => {
                (deliveries.up, world.lapsed) = (true, false);
                world.cut();
            }
            Act::FlushInstance if deliveries.up && !setup.drops(Rule::MirrorFlushed) => {
                if deliveries.mirror == deliveries.settled && !self.lapsed {
                    return None;
                }
                (deliveries.mirror, world.lapsed) = (deliveries.settled, false);
            }
            Act::Lapse if !self.lapsed => {
                world.left.lapses -= 1;
                world.lapsed = true;
            }
            Act::TakeSlot if self.lapsed && self.records.up && !setup.drops(Rule::SlotTaken) => {
                // Whoever it was is fenced: with an atomic sink nothing of it commits any more.
                world.cut();
                world.crash_instance();
                world.lapsed = false;
            }
            Act::GivenUp(event) if self.queue[event] == Delivery::Ready => {
                world.left.gone -= 1;
                world.queue[event] = Delivery::Gone;
            }
            _ => return None,
        }
        Some(world)
    }

    fn wrong(&self, setup: &Setup) -> Option<Wrong> {
        let at_end = |gone| {
            let (ending, ended) = self.ending(setup, gone);
            if ended { ending.wrong_now() } else { Some(Wrong::Stuck) }
        };
        self.wrong_now().or_else(|| at_end(false)).or_else(|| at_end(true))
    }
}

const FAULTS: Faults = Faults { aborts: 2, crashes: 2, skips: 0, gone: 0, lapses: 1 };

#[test]
fn both_wait() {
    holds::<World>(&Setup { faults: FAULTS, dropped: None });
    holds::<World>(&Setup { faults: Faults { skips: 1, gone: 1, aborts: 1, crashes: 1, ..FAULTS }, dropped: None });
}

#[test]
fn each_rule_is_needed() {
    let lost: fn(Wrong) -> bool = |wrong| matches!(wrong, Wrong::Lost(_));
    let stuck: fn(Wrong) -> bool = |wrong| wrong == Wrong::Stuck;
    let (skipped, gone) = (Faults { skips: 1, ..FAULTS }, Faults { gone: 1, ..FAULTS });
    for (rule, counts, how, faults) in [
        (Rule::RecordsWait, lost, "a record is passed over for a delivery that is never published", gone),
        (Rule::DeliveriesWait, lost, "a delivery is acknowledged for a record that is then skipped", skipped),
        (Rule::MirrorFlushed, stuck, "what is done looks in flight for ever", FAULTS),
        (Rule::NothingBehind, lost, "the group's offset moves past a record that waits", FAULTS),
        (Rule::SlotTaken, stuck, "a record waits for an instance that is gone", FAULTS),
    ] {
        goes_wrong::<World>(&Setup { faults, dropped: Some(rule) }, counts, how);
    }
}
