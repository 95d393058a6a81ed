//! Taking a slot: its own after a start or a fault, or another's whose lease has lapsed.
//!
//! With a plain sink it is one transaction. With Kafka it is five steps in this order, and each has its reason: the
//! token, so that the run before can claim nothing more; the producer, so that it can publish nothing more; the slot's
//! row again, since both may have been overtaken meanwhile; what Kafka says is settled; Kafka's step, so that the cut
//! is recorded; the store's step.

use semel::protocol::lane::{Cut, Position};
use semel::protocol::slot::{Truth, cut_of};

use super::act::How;
use super::instance::{Instance, Stage, Step, Transaction};
use super::rules::Rule;
use super::store::{Answer, Statement, Taking};
use super::world::{Setup, World};

impl World {
    pub fn begin_taking(&mut self, n: usize, slot: usize, own: bool, doubt: Option<Position>) {
        let (token, lane) = (self.draw_token(), self.store.draw_lane(slot));
        let former = if own { self.instances[n].right() } else { None };
        let instead_of = self.store.slots[slot].owner;
        let found = self.store.slots[slot].open;
        let taking = Taking { slot, token, instead_of, lane, former, doubt, own, found };
        let instance = &mut self.instances[n];
        if own {
            instance.lane = None;
        }
        instance.stage = Stage::Taking(taking, Step::Take);
    }

    /// Overtaken, or of unknown outcome: from the beginning, with a new token and a new lane.
    fn begin_again(&mut self, n: usize, taking: &Taking) -> Option<()> {
        self.left.takeovers = self.left.takeovers.checked_sub(1)?;
        if !taking.own && !self.store.open_lane(taking.slot).lapsed {
            self.instances[n].stage = Stage::Working;
            return Some(());
        }
        let (token, lane) = (self.draw_token(), self.store.draw_lane(taking.slot));
        let instead_of = self.store.slots[taking.slot].owner;
        self.instances[n].stage = Stage::Taking(Taking { token, lane, instead_of, ..*taking }, Step::Take);
        Some(())
    }

    /// A statement without an answer is asked again as it is: tokens and lanes are the taker's own, so that it is told
    /// from another's.
    pub fn take_step(&mut self, setup: &Setup, n: usize, how: How, commits: bool) -> Option<()> {
        let Stage::Taking(mut taking, step) = self.instances[n].stage else { return None };
        let next = match step {
            Step::Take => {
                let Some(answer) = self.ask(setup, Statement::Take(taking), how)? else { return Some(()) };
                taking.found = self.store.slots[taking.slot].open;
                match answer {
                    Answer::Refused => return self.refused(n, &taking),
                    _ if setup.is_transactional() && setup.drops(Rule::ProducerInitialised) => {
                        Step::Fetch { epoch: self.groups[taking.slot].epoch }
                    }
                    _ if setup.is_transactional() => Step::Initialise,
                    _ => return self.taken(n, &taking, 0),
                }
            }
            Step::Initialise => self.initialise(&taking, commits)?,
            Step::Fetch { epoch } => match self.fetch(setup, &taking) {
                None => return self.begin_again(n, &taking),
                Some(cut) if setup.drops(Rule::KafkaStepFirst) => Step::Open { epoch, cut },
                Some(cut) => Step::Kafka { epoch, cut },
            },
            Step::Kafka { epoch, cut } => {
                let group = self.groups[taking.slot];
                if epoch != group.epoch {
                    return if how == How::Answered { self.begin_again(n, &taking) } else { None };
                }
                let truth = Truth { lane: taking.lane, settled: 0, cut: Some(cut) };
                let transaction = Transaction { slot: taking.slot, epoch, truth, events: Vec::new() };
                if how != How::Answered {
                    self.left.unknown -= 1;
                    self.pending.push(transaction);
                    return self.begin_again(n, &taking);
                }
                self.commit(&transaction);
                if setup.drops(Rule::KafkaStepFirst) {
                    return self.taken(n, &taking, epoch);
                }
                Step::Open { epoch, cut }
            }
            Step::Open { epoch, cut } => {
                let asked = self.ask(setup, Statement::Open { taking, cut }, how)?;
                let Some(answer) = asked else { return Some(()) };
                match answer {
                    Answer::Refused => return self.begin_again(n, &taking),
                    _ if setup.drops(Rule::KafkaStepFirst) => Step::Kafka { epoch, cut },
                    _ => return self.taken(n, &taking, epoch),
                }
            }
        };
        self.instances[n].stage = Stage::Taking(taking, next);
        Some(())
    }

    /// Another was quicker, or the lease still runs: then it is waited for.
    fn refused(&mut self, n: usize, taking: &Taking) -> Option<()> {
        if self.store.slots[taking.slot].owner != taking.instead_of {
            return self.begin_again(n, taking);
        }
        if taking.own {
            return None;
        }
        self.instances[n].stage = Stage::Working;
        Some(())
    }

    fn initialise(&mut self, taking: &Taking, commits: bool) -> Option<Step> {
        let group = &mut self.groups[taking.slot];
        group.epoch += 1;
        let epoch = group.epoch;
        let (of_slot, rest): (Vec<Transaction>, Vec<Transaction>) =
            std::mem::take(&mut self.pending).into_iter().partition(|one| one.slot == taking.slot);
        self.pending = rest;
        if commits {
            of_slot.iter().for_each(|transaction| self.commit(transaction));
        }
        Some(Step::Fetch { epoch })
    }

    /// None where another has written its token since.
    fn fetch(&mut self, setup: &Setup, taking: &Taking) -> Option<Cut> {
        let mut slot = self.store.slot_seen(taking.slot);
        if setup.drops(Rule::RowReadAgain) {
            slot.open = taking.found;
        } else if self.store.slots[taking.slot].owner != taking.token {
            return None;
        }
        let mut truth = self.groups[taking.slot].truth;
        if setup.drops(Rule::RecordedCutUsed) {
            truth.cut = Some(Cut { prev: slot.open, cut: 0 });
        }
        match cut_of(slot, Some(truth)) {
            Ok(cut) => Some(cut),
            Err(_) => {
                self.stuck = true;
                Some(Cut { prev: slot.open, cut: slot.mirror })
            }
        }
    }

    fn taken(&mut self, n: usize, taking: &Taking, epoch: u8) -> Option<()> {
        let instance = &mut self.instances[n];
        if taking.own {
            let items = std::mem::take(&mut instance.items);
            *instance = Instance { items, ..Instance::running(taking.lane, taking.token, epoch) };
        } else {
            // Nobody extends it: its next run opens one of its own.
            self.store.lane_mut(taking.lane).lapsed = true;
            instance.stage = Stage::Working;
        }
        Some(())
    }
}
