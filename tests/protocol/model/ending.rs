//! What must be true of every state: left to itself, it ends with nothing lost and nothing doubled.
//!
//! *Left to itself*: the instances are gone, each transaction that was open commits or aborts, each statement that was
//! under way is carried out or is not, and one fresh instance reads everything that is left, without a fault.

use semel::protocol::lane::{Mark, Position};

use super::act::{Act, next_of_transaction};
use super::instance::{Instance, Stage};
use super::kafka::{Kafka, topic_id};
use super::world::{EVENTS, Event, PARTITIONS, Places, Setup, World};

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
        let commits = self.instances.iter().filter_map(|instance| instance.transaction.as_ref());
        let commits = self.kafka.loose.iter().chain(commits).any(|transaction| transaction.may_commit());
        let lands = !self.late.is_empty() || (0..self.instances.len()).any(|k| self.has_calls(k));
        let choices = [(false, false), (false, true), (true, false), (true, true)];
        let differ = choices.into_iter().filter(move |choice| (commits || !choice.0) && (lands || !choice.1));
        let setup = setup.clone();
        differ.map(move |(commits, lands)| self.ending(&setup, commits, lands))
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
    ///
    /// It may halt where the settled offset was lost, or went with its topic. `semel recover` then may lose what was in doubt, but not double.
    pub fn wrong_at_end(self, setup: &Setup, counts: fn(Wrong) -> bool) -> Option<Wrong> {
        let begin = std::array::from_fn(|p| self.reads_on_at(setup, p));
        let mut world = self;
        let mut recovered = false;
        for _ in 0..STEPS_MAX {
            if world.instances[0].stage == Stage::Halted {
                if setup.faults.new_stores > 0 {
                    return None;
                }
                let offsets_went = setup.faults.topics_anew > 0 && setup.faults.offsets_go;
                if setup.faults.settled_lost == 0 && !offsets_went || recovered {
                    return Some(Wrong::Halted).filter(|&wrong| counts(wrong));
                }
                recovered = true;
                world.recover(setup);
                world.kafka.rebalance([Some(0); PARTITIONS]);
            }
            let Some(act) = world.next_of_ending(setup) else {
                return world
                    .wrongs_when_read(setup, begin)
                    .find(|&wrong| counts(wrong) && !(recovered && matches!(wrong, Wrong::Lost(_))));
            };
            let Some(next) = world.after(setup, &act) else { break };
            world = next;
        }
        Some(Wrong::Stuck).filter(|&wrong| counts(wrong))
    }

    /// Where a group goes on reading, by what is recorded anywhere.
    fn reads_on_at(&self, setup: &Setup, p: usize) -> Position {
        let partition = &self.kafka.partitions[p];
        let settled = partition.settled.as_ref().map(|offset| offset.position);
        let mark = partition.settled.as_ref().and_then(|offset| Mark::decode(&offset.metadata));
        if mark.is_some_and(|mark| mark.topic != topic_id(self.kafka.topic)) {
            return partition.log_start;
        }
        let drained = self.postgres.row(setup, self.kafka.topic, p).and_then(|row| row.drained);
        partition.committed.or(settled).or(drained).unwrap_or(partition.log_start)
    }

    /// Windows of one record of each partition, one after another; none when all is read.
    fn next_of_ending(&self, setup: &Setup) -> Option<Act> {
        let instance = &self.instances[0];
        Some(match instance.stage {
            Stage::Out | Stage::Halted => Act::Assign(0),
            Stage::Taking => Act::Take(0),
            Stage::Fetching | Stage::FetchingMore => Act::Fetch(0),
            Stage::Opening => Act::Open(0),
            Stage::Starting => next_of_transaction(instance, 0),
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

    fn wrongs_when_read(&self, setup: &Setup, begin: [Position; PARTITIONS]) -> impl Iterator<Item = Wrong> {
        let lost = (0..EVENTS).find(|&event| self.lost(setup, event, begin)).map(Wrong::Lost);
        let dead_again = !self.kafka.dead_again.is_empty() && setup.faults.moves == 0;
        let dead_again = dead_again.then_some(Wrong::DeadLetterDoubled);
        [doubled(&self.kafka), lost, dead_again].into_iter().flatten()
    }

    /// An event is lost that is neither published nor a dead letter, though a copy of it was there to be read.
    ///
    /// Where a copy was passed over by an operator's skip, left the log or went with its topic, another that is already
    /// read may have been dropped for its sake: then only a copy that is still to be read, at or after `begin`, must
    /// appear.
    fn lost(&self, setup: &Setup, event: Event, begin: [Position; PARTITIONS]) -> bool {
        let topic = self.kafka.topic;
        let copies: Places = setup.places(topic).filter(|&place| setup.event(topic, place) == event).collect();
        let readable = |&place: &_| !self.skipped.contains(place) && self.kafka.keeps(place);
        let gone = topic > 0 && setup.places(0).any(|place| setup.event(0, place) == event);
        let passed_over = gone || !copies.iter().all(|place| readable(&place));
        let mut due =
            copies.iter().filter(readable).filter(|place| !passed_over || place.offset >= begin[place.partition]);
        self.kafka.published[event] == 0 && self.kafka.dead.and(copies).is_empty() && due.next().is_some()
    }
}
