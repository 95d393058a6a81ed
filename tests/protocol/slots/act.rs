//! What can happen next, and what the world is after it.

use super::instance::{Instance, Remedy, Stage, State, Step};
use super::rules::Rule;
use super::store::{Answer, Statement, Taking};
use super::world::{Delivery, INSTANCES, Setup, World};

/// How a statement ends for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Answered,
    /// Carried out, and the answer lost.
    Lost,
    /// No answer; it may be carried out at any later time.
    Late,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Start(usize),
    Crash(usize),
    Deliver(usize, usize),
    /// Everything fresh; with nothing fresh the idle flush.
    Reserve(usize, How),
    ReadHolder(usize, usize),
    Acknowledge(usize, usize),
    AcknowledgeInVain(usize, usize),
    HandBack(usize, usize),
    /// With a plain sink: the first claimed message.
    Publish(usize),
    Refused(usize),
    /// A publish in doubt that was carried out, or not.
    Doubt(usize, bool),
    /// With Kafka: the window's transaction.
    Send(usize),
    Commit(usize),
    Unknown(usize),
    Abort(usize),
    Release(usize, How),
    Cut(usize),
    Steal(usize, usize),
    Sweep(usize, usize),
    /// The next step of a takeover. Initialising the producer commits what is pending, or aborts it.
    Take(usize, How, bool),
    ConnectionLost(usize),
    GivenUp(usize),
    Lapse(usize),
    Lands(usize),
    PendingEnds(usize, bool),
}

impl World {
    pub fn acts(&self, setup: &Setup) -> Vec<Act> {
        let mut acts = Vec::new();
        for n in 0..INSTANCES {
            self.acts_of(setup, n, &mut acts);
        }
        if self.left.lapses > 0 {
            let held = |lane: usize| self.store.claims.iter().flatten().any(|claim| claim.lane.0 as usize == lane);
            let lanes = self.store.lanes.iter().enumerate();
            let running = lanes.filter(|(lane, row)| !row.seen.lapsed && (row.seen.open || held(*lane)));
            acts.extend(running.map(|(lane, _)| Act::Lapse(lane)));
        }
        if self.left.gone > 0 {
            let ready = (0..self.queue.len()).filter(|delivery| self.queue[*delivery] == Delivery::Ready);
            acts.extend(ready.map(Act::GivenUp));
        }
        acts.extend((0..self.late.len()).map(Act::Lands));
        acts.extend((0..self.pending.len()).flat_map(|n| [Act::PendingEnds(n, true), Act::PendingEnds(n, false)]));
        acts
    }

    fn acts_of(&self, setup: &Setup, n: usize, acts: &mut Vec<Act>) {
        let (instance, left) = (&self.instances[n], &self.left);
        let mut statement = |act: fn(usize, How) -> Act| {
            acts.push(act(n, How::Answered));
            if left.lost > 0 {
                acts.push(act(n, How::Lost));
            }
            if left.late > 0 {
                acts.push(act(n, How::Late));
            }
        };
        match instance.stage {
            Stage::Down => {
                if left.takeovers > 0 {
                    acts.push(Act::Start(n));
                }
                return;
            }
            Stage::Working => {
                let idle = !instance.any(|state| matches!(state, State::Fresh | State::Mine(_)));
                let behind = instance.committed > instance.settled && !setup.drops(Rule::IdleFlush);
                let reading = instance.any(|state| state == State::Conflicting);
                if !instance.any(|state| matches!(state, State::Mine(_))) && !reading {
                    if !idle || behind {
                        statement(Act::Reserve);
                    }
                    if instance.items.len() < setup.window {
                        let ready = self.queue.iter().enumerate().filter(|(_, one)| **one == Delivery::Ready);
                        acts.extend(ready.map(|(delivery, _)| Act::Deliver(n, delivery)));
                    }
                } else if !reading {
                    self.publishing(setup, n, acts);
                }
            }
            Stage::Sending => {
                acts.push(Act::Commit(n));
                if left.unknown > 0 {
                    acts.push(Act::Unknown(n));
                }
                if left.refused > 0 {
                    acts.push(Act::Abort(n));
                }
            }
            Stage::Releasing(_) => statement(Act::Release),
            Stage::MustCut(_) => {
                if left.takeovers > 0 {
                    acts.push(Act::Cut(n));
                }
            }
            Stage::Taking(taking, step) => self.taking(setup, n, (&taking, step), acts),
        }
        for (at, item) in instance.items.iter().enumerate() {
            if World::is_done(item) {
                acts.push(Act::Acknowledge(n, at));
                if left.acks_lost > 0 {
                    acts.push(Act::AcknowledgeInVain(n, at));
                }
            }
            match item.state {
                State::Conflicting if instance.stage == Stage::Working => acts.push(Act::ReadHolder(n, at)),
                State::InFlight => {
                    acts.push(Act::HandBack(n, at));
                    match self.remedy(setup, n, item.delivery) {
                        _ if instance.stage != Stage::Working || left.takeovers == 0 => {}
                        Some(Remedy::Steal(slot)) if slot != setup.slots[n] => acts.push(Act::Steal(n, slot)),
                        Some(Remedy::Sweep(_)) => acts.push(Act::Sweep(n, at)),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        if left.crashes > 0 {
            acts.push(Act::Crash(n));
        }
        if left.cuts > 0 && self.queue.contains(&Delivery::Out(n)) {
            acts.push(Act::ConnectionLost(n));
        }
        if setup.drops(Rule::StealOnlyLapsed) && instance.stage == Stage::Working && left.takeovers > 0 {
            acts.push(Act::Steal(n, 1 - setup.slots[n]));
        }
    }

    fn publishing(&self, setup: &Setup, n: usize, acts: &mut Vec<Act>) {
        if setup.is_transactional() {
            acts.push(Act::Send(n));
            return;
        }
        acts.push(Act::Publish(n));
        if self.left.refused > 0 {
            acts.push(Act::Refused(n));
        }
        if self.left.doubts > 0 {
            acts.extend([Act::Doubt(n, true), Act::Doubt(n, false)]);
        }
    }

    fn taking(&self, setup: &Setup, n: usize, (taking, step): (&Taking, Step), acts: &mut Vec<Act>) {
        acts.push(Act::Take(n, How::Answered, false));
        match step {
            Step::Initialise if self.pending.iter().any(|one| one.slot == taking.slot) => {
                acts.push(Act::Take(n, How::Answered, true));
            }
            Step::Initialise | Step::Fetch { .. } => {}
            Step::Kafka { .. } => {
                if self.left.unknown > 0 {
                    acts.push(Act::Take(n, How::Lost, false));
                }
            }
            Step::Take | Step::Open { .. } => {
                if self.left.lost > 0 {
                    acts.push(Act::Take(n, How::Lost, false));
                }
                if self.left.late > 0 {
                    acts.push(Act::Take(n, How::Late, false));
                }
            }
        }
        debug_assert!(setup.is_transactional() || step == Step::Take);
    }

    /// `None` where nothing would come of it.
    pub fn after(&self, setup: &Setup, act: Act) -> Option<World> {
        let mut world = self.clone();
        world.act(setup, act)?;
        Some(world)
    }

    fn act(&mut self, setup: &Setup, act: Act) -> Option<()> {
        match act {
            Act::Start(n) => {
                self.left.takeovers -= 1;
                self.instances[n] = Instance::down();
                self.begin_taking(n, setup.slots[n], true, None);
            }
            Act::Crash(n) => self.crash(n),
            Act::Deliver(n, delivery) => self.deliver(n, delivery),
            Act::Reserve(n, how) => self.reserve(setup, n, how)?,
            Act::ReadHolder(n, item) => self.read_holder(setup, n, item),
            Act::Acknowledge(n, item) | Act::AcknowledgeInVain(n, item) => {
                let item = self.instances[n].items.remove(item);
                let held = self.queue[item.delivery] == Delivery::Out(n);
                let arrives = matches!(act, Act::Acknowledge(..));
                match (held, arrives) {
                    (true, true) => self.queue[item.delivery] = Delivery::Acknowledged,
                    (true, false) => {
                        self.left.acks_lost -= 1;
                        self.queue[item.delivery] = Delivery::Ready;
                    }
                    (false, true) => {}
                    (false, false) => return None,
                }
            }
            Act::HandBack(n, item) => {
                let item = self.instances[n].items.remove(item);
                self.give_back(n, item.delivery);
            }
            Act::Publish(n) | Act::Refused(n) | Act::Doubt(n, _) => self.publish_one(setup, n, act)?,
            Act::Send(n) => self.instances[n].stage = Stage::Sending,
            Act::Commit(n) | Act::Unknown(n) | Act::Abort(n) => self.end_transaction(setup, n, act)?,
            Act::Release(n, how) => self.release_window(setup, n, how)?,
            Act::Cut(n) => {
                let Stage::MustCut(doubt) = self.instances[n].stage else { return None };
                self.left.takeovers -= 1;
                self.hand_back(n);
                self.begin_taking(n, setup.slots[n], true, doubt);
            }
            Act::Steal(n, slot) => {
                self.left.takeovers -= 1;
                self.begin_taking(n, slot, false, None);
            }
            Act::Sweep(n, item) => {
                self.left.takeovers -= 1;
                let item = self.instances[n].items[item];
                let Some(Remedy::Sweep(lane)) = self.remedy(setup, n, item.delivery) else { return None };
                self.store.carry_out(setup, &Statement::Sweep(lane));
            }
            Act::Take(n, how, commits) => self.take_step(setup, n, how, commits)?,
            Act::ConnectionLost(n) => {
                self.left.cuts -= 1;
                (0..self.queue.len()).for_each(|delivery| self.give_back(n, delivery));
            }
            Act::GivenUp(delivery) => {
                self.left.gone -= 1;
                self.queue[delivery] = Delivery::Gone;
            }
            Act::Lapse(lane) => {
                self.left.lapses -= 1;
                let seen = &mut self.store.lanes[lane].seen;
                seen.lapsed = true;
                let settled = seen.settled;
                let outlived = |instance: &Instance| {
                    instance.known().is_some_and(|known| known.lane.0 as usize == lane && known.committed > settled)
                };
                self.excused |= self.instances.iter().any(outlived);
            }
            Act::Lands(n) => {
                let statement = self.late.remove(n);
                self.store.carry_out(setup, &statement);
            }
            Act::PendingEnds(n, commits) => {
                let transaction = self.pending.remove(n);
                if commits {
                    if transaction.epoch != self.groups[transaction.slot].epoch {
                        return None;
                    }
                    self.commit(&transaction);
                }
            }
        }
        Some(())
    }

    fn crash(&mut self, n: usize) {
        self.left.crashes = self.left.crashes.saturating_sub(1);
        let instance = std::mem::replace(&mut self.instances[n], Instance::down());
        self.excused |=
            instance.known().is_some_and(|known| known.committed > self.store.lane(known.lane).seen.settled);
        instance.items.iter().for_each(|item| self.give_back(n, item.delivery));
    }

    /// Asks the store. Outer `None`: nothing would come of it; inner: there is no answer.
    pub fn ask(&mut self, setup: &Setup, statement: Statement, how: How) -> Option<Option<Answer>> {
        match how {
            How::Answered => Some(Some(self.store.carry_out(setup, &statement))),
            How::Lost => {
                self.left.lost -= 1;
                (self.store.carry_out(setup, &statement) != Answer::Refused).then_some(None)
            }
            How::Late => {
                self.left.late -= 1;
                self.late.push(statement);
                Some(None)
            }
        }
    }

    fn reserve(&mut self, setup: &Setup, n: usize, how: How) -> Option<()> {
        let right = self.instances[n].right()?;
        let rows = self.instances[n].rows(setup);
        if let Some(answer) = self.ask(setup, Statement::Reserve { right, rows: rows.clone() }, how)? {
            self.reserved(setup, n, &rows, &answer);
            return Some(());
        }
        let instance = &mut self.instances[n];
        if setup.drops(Rule::UnknownReserveCuts) {
            instance.next += rows.len() as i64;
        } else {
            instance.stage = Stage::MustCut(None);
        }
        Some(())
    }

    fn publish_one(&mut self, setup: &Setup, n: usize, act: Act) -> Option<()> {
        let (item, position) = self.instances[n].first_mine()?;
        let event = setup.queue[self.instances[n].items[item].delivery];
        match act {
            Act::Publish(_) => {
                let lane = self.instances[n].lane?;
                self.excused |= self.store.lane(lane).seen.lapsed;
                self.publish(event);
                let instance = &mut self.instances[n];
                instance.items[item].state = State::Published(position);
                instance.committed = position + 1;
            }
            Act::Refused(_) => {
                self.left.refused -= 1;
                self.failed(n, position);
            }
            _ => {
                self.left.doubts -= 1;
                self.excused = true;
                if act == Act::Doubt(n, true) {
                    self.publish(event);
                }
                self.instances[n].stage = Stage::MustCut(Some(position));
            }
        }
        Some(())
    }

    fn end_transaction(&mut self, setup: &Setup, n: usize, act: Act) -> Option<()> {
        let transaction = self.transaction(setup, n)?;
        if transaction.epoch != self.groups[transaction.slot].epoch {
            // Fenced, whatever else would have happened.
            if !matches!(act, Act::Commit(_)) {
                return None;
            }
            self.instances[n].stage = Stage::MustCut(None);
            return Some(());
        }
        match act {
            Act::Commit(_) => {
                self.commit(&transaction);
                self.mark_published(n);
                let instance = &mut self.instances[n];
                instance.committed = transaction.truth.settled;
                instance.stage = Stage::Working;
            }
            Act::Unknown(_) => {
                self.left.unknown -= 1;
                self.pending.push(transaction);
                if setup.drops(Rule::AckAfterKnownCommit) {
                    self.mark_published(n);
                }
                self.instances[n].stage = Stage::MustCut(None);
            }
            _ => {
                self.left.refused -= 1;
                let (_, from) = self.instances[n].first_mine()?;
                self.failed(n, from);
            }
        }
        Some(())
    }

    fn release_window(&mut self, setup: &Setup, n: usize, how: How) -> Option<()> {
        let statement = self.release(n)?;
        match self.ask(setup, statement, how)? {
            Some(answer) => self.released(n, &answer),
            None if setup.drops(Rule::ReleaseRepeated) => self.released(n, &Answer::Done),
            None => {}
        }
        Some(())
    }
}
