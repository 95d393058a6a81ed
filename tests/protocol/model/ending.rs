//! What must be true of every state: left to itself, it ends with nothing lost and nothing doubled.
//!
//! *Left to itself*: the instances are gone, each transaction that was open commits or aborts, each statement that was
//! under way is carried out or is not, and one fresh instance reads everything that is left, without a fault.

use super::act::{Act, next_of_transaction};
use super::instance::{Instance, Stage};
use super::kafka::Kafka;
use super::world::{EVENTS, Event, PARTITIONS, Places, Setup, World};
use semel::protocol::lane::Position;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrong {
    Lost(Event),
    Doubled(Event),
    /// The same record is twice among the dead letters, though nobody moved an offset.
    DeadLetterDoubled,
    /// It halted, although no fault explains that.
    Halted,
    /// It found no end.
    Stuck,
}

/// Steps that the longest ending may take.
const STEPS_MAX: usize = 200;

pub fn doubled(kafka: &Kafka) -> Option<Wrong> {
    (0..EVENTS).find(|&event| kafka.published[event] > 1).map(Wrong::Doubled)
}

impl World {
    /// The worlds that are left when the instances are gone: one fresh instance is about to be assigned everything.
    pub fn endings(&self, setup: &Setup) -> impl Iterator<Item = World> + use<'_> {
        let choices = [(false, false), (false, true), (true, false), (true, true)];
        let setup = setup.clone();
        choices.into_iter().map(move |(commits, lands)| self.ending(&setup, commits, lands))
    }

    fn ending(&self, setup: &Setup, commits: bool, lands: bool) -> World {
        let mut world = self.clone();
        for k in 0..world.instances.len() {
            let calls = world.calls_of(setup, k);
            world.late.extend(calls);
            world.vanish(k);
        }
        for transaction in std::mem::take(&mut world.kafka.loose) {
            if commits && transaction.may_commit() {
                world.kafka.commit(setup, &transaction);
            }
        }
        for statement in std::mem::take(&mut world.late) {
            if lands {
                world.postgres.carry_out(setup, &statement);
            }
        }
        world.left = super::faults::Faults::NONE;
        world.kafka.generation += 1;
        world.kafka.assigned = [Some(0); PARTITIONS];
        world.instances.iter_mut().for_each(|instance| *instance = Instance::out(0));
        world
    }

    /// Reads an [`ending`](World::endings) to its end.
    pub fn wrong_at_end(self, setup: &Setup, counts: fn(Wrong) -> bool) -> Option<Wrong> {
        let begin: [Position; PARTITIONS] =
            std::array::from_fn(|p| self.kafka.partitions[p].committed.unwrap_or(self.kafka.partitions[p].log_start));
        let mut world = self;
        for _ in 0..STEPS_MAX {
            if world.instances[0].stage == Stage::Halted {
                let faults = &setup.faults;
                let explained = faults.settled_lost > 0 || faults.new_stores > 0;
                return Some(Wrong::Halted).filter(|&wrong| !explained && counts(wrong));
            }
            let Some(act) = world.next_of_ending(setup) else { return world.wrong_when_read(setup, begin, counts) };
            world = world.after(setup, &act)?;
        }
        Some(Wrong::Stuck).filter(|&wrong| counts(wrong))
    }

    /// Windows of one record of each partition, one after another; none when all is read.
    fn next_of_ending(&self, setup: &Setup) -> Option<Act> {
        let instance = &self.instances[0];
        Some(match instance.stage {
            Stage::Out | Stage::Halted => Act::Assign(0),
            Stage::Taking => Act::Take(0),
            Stage::Fetching | Stage::FetchingMore => Act::Fetch(0),
            Stage::Opening => Act::Open(0),
            Stage::Moving => next_of_transaction(instance, 0),
            Stage::Reading if self.out_of_range(0) => Act::OutOfRange(0),
            Stage::Reading => match instance.windows.first() {
                Some(window) if window.claimed.is_none() => Act::Claim(0, 0),
                Some(_) if instance.transaction.as_ref().is_some_and(|open| open.refused) => Act::AbortRefused(0),
                Some(_) => next_of_transaction(instance, 0),
                None => {
                    let counts: [Position; PARTITIONS] = std::array::from_fn(|p| {
                        let position = instance.reads[p].as_ref().map_or(0, |reading| reading.position);
                        (setup.end(self.kafka.topic, p) - position).min(1)
                    });
                    if counts == [0; PARTITIONS] {
                        return None;
                    }
                    Act::Poll(0, counts)
                }
            },
        })
    }

    fn wrong_when_read(
        &self,
        setup: &Setup,
        begin: [Position; PARTITIONS],
        counts: fn(Wrong) -> bool,
    ) -> Option<Wrong> {
        let lost = (0..EVENTS).find(|&event| self.lost(setup, event, begin)).map(Wrong::Lost);
        let dead_again = !self.kafka.dead_again.is_empty() && setup.faults.moves == 0;
        let dead_again = dead_again.then_some(Wrong::DeadLetterDoubled);
        [doubled(&self.kafka), lost, dead_again].into_iter().flatten().find(|&wrong| counts(wrong))
    }

    /// An event is lost that is neither published nor a dead letter, though a copy of it was there to be read.
    ///
    /// Where a copy was passed over by an operator's skip, or left the log unread, another that is already read may
    /// have been dropped for its sake: then only a copy that is still to be read, at or after `begin`, must appear.
    fn lost(&self, setup: &Setup, event: Event, begin: [Position; PARTITIONS]) -> bool {
        let topic = self.kafka.topic;
        let copies: Places = setup.places(topic).filter(|&place| setup.event(topic, place) == event).collect();
        let readable = |&place: &_| !self.skipped.contains(place) && self.kafka.keeps(place);
        let passed_over = !copies.iter().all(|place| readable(&place));
        let mut due =
            copies.iter().filter(readable).filter(|place| !passed_over || place.offset >= begin[place.partition]);
        self.kafka.published[event] == 0 && self.kafka.dead.and(copies).is_empty() && due.next().is_some()
    }
}
