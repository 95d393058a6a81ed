//! What must be true: of every state, and of every state left to itself.
//!
//! Left to itself means that nothing more goes wrong. What is pending in Kafka ends one way or the other, statements under
//! way land or do not, and then either every run that is there goes on, or all die and the first instance starts
//! afresh. Leases of runs that are gone lapse.

use super::act::{Act, How};
use super::instance::{Instance, Remedy, Stage, State};
use super::world::{Delivery, EVENTS, Event, Faults, INSTANCES, Setup, World};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Acknowledged, not visible, and not to come again.
    Lost(Event),
    Doubled(Event),
    /// Deliveries are left that nobody ever acknowledges, or nothing says how far a lane was published.
    Stuck,
}

/// More than any good ending takes.
const ROUNDS: usize = 24;
const ACTS: usize = 16;
const ENOUGH: u8 = 99;

impl World {
    pub fn wrong(&self, setup: &Setup) -> Option<Wrong> {
        if self.stuck {
            return Some(Wrong::Stuck);
        }
        self.wrong_now(setup).or_else(|| {
            self.endings(setup).find_map(
                |(ending, ended)| {
                    if !ended { Some(Wrong::Stuck) } else { ending.wrong_now(setup) }
                },
            )
        })
    }

    fn wrong_now(&self, setup: &Setup) -> Option<Wrong> {
        (0..EVENTS).find_map(|event| {
            let of_event = |is: fn(&Delivery) -> bool| {
                setup.queue.iter().zip(&self.queue).any(|(one, delivery)| *one == event && is(delivery))
            };
            let acknowledged = of_event(|delivery| *delivery == Delivery::Acknowledged);
            let to_come = of_event(|delivery| matches!(delivery, Delivery::Ready | Delivery::Out(_)));
            let excused = !setup.is_transactional() && self.excused;
            match self.published[event] {
                0 if acknowledged && !to_come => Some(Wrong::Lost(event)),
                0 | 1 => None,
                _ if excused => None,
                _ => Some(Wrong::Doubled(event)),
            }
        })
    }

    /// Each ending, and whether every delivery was acknowledged in it.
    fn endings<'a>(&'a self, setup: &'a Setup) -> impl Iterator<Item = (World, bool)> + 'a {
        let both = |is: bool| if is { [false, true].as_slice() } else { [false].as_slice() };
        let commits = both(!self.pending.is_empty());
        let lands = both(!self.late.is_empty());
        let who = [None, Some(0), Some(1)];
        who.into_iter().flat_map(move |first| {
            commits
                .iter()
                .flat_map(move |&commits| lands.iter().map(move |&lands| self.ending(setup, first, commits, lands)))
        })
    }

    /// `first`: who is given deliveries, where all that are there go on. None: all die.
    fn ending(&self, setup: &Setup, first: Option<usize>, commits: bool, lands: bool) -> (World, bool) {
        let mut world = self.clone();
        world.left = Faults { takeovers: ENOUGH, ..Faults::NONE };
        while !world.pending.is_empty() {
            world = world.after(setup, Act::PendingEnds(0, commits)).unwrap_or_else(|| {
                let mut fenced = world.clone();
                fenced.pending.remove(0);
                fenced
            });
        }
        if first.is_none() {
            (0..INSTANCES).for_each(|n| world = world.after(setup, Act::Crash(n)).expect("anybody may crash"));
        }
        while !world.late.is_empty() {
            if lands {
                world = world.after(setup, Act::Lands(0)).expect("whatever comes of it");
            } else {
                world.late.remove(0);
            }
        }
        if world.instances.iter().all(|instance| instance.stage == Stage::Down) {
            world = world.after(setup, Act::Start(0)).expect("anybody may start");
        }
        for _ in 0..ROUNDS {
            world.lapse_of_the_gone();
            for n in 0..INSTANCES {
                for _ in 0..ACTS {
                    let Some(next) = world.next_good(setup, n, first.unwrap_or(0)) else { break };
                    let Some(after) = world.after(setup, next) else { break };
                    world = after;
                }
            }
            if world.queue.iter().all(|delivery| matches!(delivery, Delivery::Acknowledged | Delivery::Gone)) {
                return (world, true);
            }
        }
        (world, false)
    }

    fn lapse_of_the_gone(&mut self) {
        for lane in 0..self.store.lanes.len() {
            let used = self.instances.iter().filter_map(Instance::known).any(|known| known.lane.0 as usize == lane);
            self.store.lanes[lane].seen.lapsed |= !used;
        }
    }

    /// What a run does next when nothing goes wrong.
    fn next_good(&self, setup: &Setup, n: usize, first: usize) -> Option<Act> {
        let instance = &self.instances[n];
        let at = |is: &dyn Fn(State) -> bool| instance.items.iter().position(|item| is(item.state));
        if let Some(item) = at(&|state| matches!(state, State::Duplicate | State::Published(_))) {
            return Some(Act::Acknowledge(n, item));
        }
        match instance.stage {
            Stage::Down => return None,
            Stage::Taking(..) => return Some(Act::Take(n, How::Answered, false)),
            Stage::MustCut(_) => return Some(Act::Cut(n)),
            Stage::Releasing(_) => return Some(Act::Release(n, How::Answered)),
            Stage::Sending => return Some(Act::Commit(n)),
            Stage::Working => {}
        }
        if let Some(item) = at(&|state| state == State::Conflicting) {
            return Some(Act::ReadHolder(n, item));
        }
        if at(&|state| matches!(state, State::Mine(_))).is_some() {
            return Some(if setup.is_transactional() { Act::Send(n) } else { Act::Publish(n) });
        }
        if at(&|state| state == State::Fresh).is_some() {
            return Some(Act::Reserve(n, How::Answered));
        }
        if let Some(item) = at(&|state| state == State::InFlight) {
            return Some(match self.remedy(setup, n, instance.items[item].delivery) {
                Some(Remedy::Steal(slot)) if slot != setup.slots[n] => Act::Steal(n, slot),
                Some(Remedy::Sweep(_)) => Act::Sweep(n, item),
                _ => Act::HandBack(n, item),
            });
        }
        if instance.committed > instance.settled && !setup.drops(super::rules::Rule::IdleFlush) {
            return Some(Act::Reserve(n, How::Answered));
        }
        let turn = n == first || self.instances[first].stage != Stage::Working;
        let ready = self.queue.iter().position(|delivery| *delivery == Delivery::Ready).filter(|_| turn)?;
        // One at a time, and once a round for each that could not be done.
        instance.items.is_empty().then_some(Act::Deliver(n, ready))
    }
}
