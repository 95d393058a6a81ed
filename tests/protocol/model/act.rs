//! Everything that can happen next.

use semel::protocol::lane::Position;

use super::faults::{Fault, unclaimed};
use super::instance::{Instance, Stage};
use super::world::{INSTANCES, PARTITIONS, Setup, World};

/// One step of the world. The first number names the instance, the statement or the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Assign(usize),
    Take(usize),
    Fetch(usize),
    Open(usize),
    /// How many records of each partition.
    Poll(usize, [Position; PARTITIONS]),
    /// Which of its windows.
    Claim(usize, usize),
    Retake(usize),
    Send(usize),
    Commit(usize),
    AbortRefused(usize),
    /// The next offset is no longer in the log.
    OutOfRange(usize),
    /// The topic is another one now.
    LeaveTopic(usize),
    /// A statement that was left under way is carried out.
    Land(usize),
    /// A transaction that was left open commits, or aborts.
    Resolve(usize, bool),
    Fault(Fault),
}

impl World {
    pub fn acts(&self, setup: &Setup) -> Vec<Act> {
        let mut acts = Vec::new();
        for k in 0..INSTANCES {
            self.acts_of_instance(setup, k, &mut acts);
        }
        for (n, transaction) in self.kafka.loose.iter().enumerate() {
            acts.push(Act::Resolve(n, false));
            if transaction.may_commit() {
                acts.push(Act::Resolve(n, true));
            }
        }
        acts.extend((0..self.late.len()).map(Act::Land));
        acts.extend(self.faults(setup).into_iter().map(Act::Fault));
        acts
    }

    fn acts_of_instance(&self, setup: &Setup, k: usize, acts: &mut Vec<Act>) {
        let instance = &self.instances[k];
        if instance.generation < self.kafka.generation && self.kafka.assigned.contains(&Some(k)) {
            acts.push(Act::Assign(k));
        }
        match instance.stage {
            Stage::Out | Stage::Halted => {}
            Stage::Taking => acts.push(Act::Take(k)),
            Stage::Fetching | Stage::FetchingMore => acts.push(Act::Fetch(k)),
            Stage::Opening => acts.push(Act::Open(k)),
            Stage::Starting => acts.push(next_of_transaction(instance, k)),
            Stage::Reading => self.acts_of_reader(setup, k, acts),
        }
    }

    fn acts_of_reader(&self, setup: &Setup, k: usize, acts: &mut Vec<Act>) {
        let instance = &self.instances[k];
        if instance.topic != self.kafka.topic && instance.transaction.is_none() {
            acts.push(Act::LeaveTopic(k));
        }
        if self.out_of_range(k) {
            acts.push(Act::OutOfRange(k));
        } else if instance.windows.len() < setup.windows && instance.topic == self.kafka.topic {
            acts.extend(self.polls(setup, k));
        }
        acts.extend(unclaimed(instance).map(|n| Act::Claim(k, n)));
        if instance.windows.iter().any(|window| window.in_doubt) {
            acts.push(Act::Retake(k));
        }
        if instance.transaction.as_ref().is_some_and(|transaction| transaction.refused) {
            acts.push(Act::AbortRefused(k));
        }
        if instance.transaction.is_some() || instance.windows.first().is_some_and(|first| first.claimed.is_some()) {
            acts.extend(Some(next_of_transaction(instance, k)).filter(|act| self.possible(act)));
        }
    }

    fn possible(&self, act: &Act) -> bool {
        !matches!(act, Act::Commit(k) if self.instances[*k].transaction.as_ref().is_some_and(|open| open.refused))
    }

    pub fn out_of_range(&self, k: usize) -> bool {
        let readings = self.instances[k].reads.iter().zip(&self.kafka.partitions);
        readings
            .into_iter()
            .any(|(reading, partition)| reading.as_ref().is_some_and(|reading| reading.position < partition.log_start))
    }

    fn polls(&self, setup: &Setup, k: usize) -> impl Iterator<Item = Act> + use<> {
        let most = |p: usize| {
            let left =
                self.instances[k].reads[p].as_ref().map(|reading| setup.end(self.kafka.topic, p) - reading.position);
            left.unwrap_or(0).clamp(0, setup.records)
        };
        let (first, second) = (most(0), most(1));
        let counts = (0..=first).flat_map(move |a| (0..=second).map(move |b| [a, b]));
        counts.filter(|&counts| counts != [0, 0]).map(move |counts| Act::Poll(k, counts))
    }

    /// The world after an act that was possible; none where nothing comes of it yet.
    pub fn after(&self, setup: &Setup, act: &Act) -> Option<World> {
        let mut world = self.clone();
        match *act {
            Act::Assign(k) => world.assign(setup, k),
            Act::Take(k) => world.take(setup, k),
            Act::Fetch(k) => {
                if !world.fetch(setup, k) {
                    return None;
                }
            }
            Act::Open(k) => world.open(setup, k),
            Act::Poll(k, counts) => world.poll(k, counts),
            Act::Claim(k, n) => world.claim(setup, k, n),
            Act::Retake(k) => world.retake(setup, k),
            Act::Send(k) => world.send(setup, k),
            Act::Commit(k) => world.commit(setup, k),
            Act::AbortRefused(k) => world.abort_refused(setup, k),
            Act::OutOfRange(k) => world.start_over(k),
            Act::LeaveTopic(k) => world.leave_topic(setup, k),
            Act::Land(n) => {
                let statement = world.late.remove(n);
                world.postgres.carry_out(setup, &statement);
            }
            Act::Resolve(n, commits) => {
                let transaction = world.kafka.loose.remove(n);
                if commits {
                    world.kafka.commit(setup, &transaction);
                }
            }
            Act::Fault(ref fault) => world.suffer(setup, fault),
        }
        Some(world)
    }
}

/// What the instance does next for the transaction that is open, or about to be.
pub fn next_of_transaction(instance: &Instance, k: usize) -> Act {
    match &instance.transaction {
        Some(transaction) if transaction.sent_to_settled && transaction.sent_to_group => Act::Commit(k),
        _ => Act::Send(k),
    }
}
