//! One window of one partition, step by step: claimed, published, settled. What cannot go on now is left as it is, and gone
//! on with in a later round: in between the worker polls, and answers rebalances.

use std::time::{Duration, Instant};

use metrics::{counter, histogram};

use super::batch::Batch;
use super::store::{TRIES, attend};
use super::worker::Worker;
use super::{SettledError, Trouble};
use crate::config::policy::StoreAway;
use crate::kafka::TopicPartition;
use crate::metrics as names;
use crate::pipeline::leased::keyer::Unsendable;
use crate::pipeline::leased::window::log_keys;
use crate::protocol::instance::Answer;
use crate::protocol::settled::Wait;
use crate::sink::{Doubt, Published};
use crate::store::slots::Reserved;

impl Worker {
    /// Does as much of this partition's next window as can be done now.
    pub(super) fn step(&mut self, place: TopicPartition) -> Result<(), Trouble> {
        if !self.begin(place)? || !self.claim(place)? || !self.publish(place)? {
            return Ok(());
        }
        let Some(lane) = self.lanes.get_mut(&place) else { return Ok(()) };
        let Some(batch) = lane.batch.take() else { return Ok(()) };
        lane.done = lane.done.max(batch.done());
        if batch.len() > 0 {
            batch.count(self.options.scope.as_str());
        }
        Ok(())
    }

    /// Tells the store what is done, unless the next window is about to.
    pub(super) fn settle_idle(&mut self, place: TopicPartition) -> Result<(), Trouble> {
        let Some(lane) = self.lanes.get_mut(&place) else { return Ok(()) };
        let is_idle = lane.batch.is_none() && (lane.waiting.is_empty() || lane.is_held());
        if lane.batch.is_none() && lane.waiting.is_empty() {
            // Positions that hold no message (a transaction's own records) are passed over too.
            lane.done = lane.done.max(lane.next);
        }
        if is_idle && lane.owes() && !self.store_away.is_now() {
            let started = Instant::now();
            if self.reserve(place, &[], Duration::ZERO)?.is_some() {
                histogram!(names::PHASE_SECONDS, "phase" => "commit").record(started.elapsed());
            }
        }
        Ok(())
    }

    /// False where there is nothing to do.
    fn begin(&mut self, place: TopicPartition) -> Result<bool, Trouble> {
        let Some(lane) = self.lanes.get_mut(&place) else { return Ok(false) };
        if lane.batch.is_some() {
            return Ok(true);
        }
        if lane.waiting.is_empty() || lane.is_held() {
            return Ok(false);
        }
        if let Some(since) = lane.since {
            histogram!(names::PHASE_SECONDS, "phase" => "gather").record(since.elapsed());
        }
        let mut bounds = self.options.window;
        if lane.held.is_some() {
            // Whatever is behind it would be claimed only to be given back.
            bounds.messages_max = 1;
        }
        let items = lane.take(&bounds);
        let name = self.name_of(place);
        let (sink, now) = (&self.sink, self.clock.now());
        let batch = Batch::new(items, &self.keyer, (&|outgoing| sink.unfit(outgoing), now), &name);
        let batch = batch.map_err(|(origin, why)| {
            Trouble::Leave(match why {
                Unsendable::Stop { cause, detail } => SettledError::Stopped { origin, cause: cause.label(), detail },
                Unsendable::DeadLetter { detail } => SettledError::DeadLetterUnfit { origin, detail },
            })
        })?;
        if let Some(lane) = self.lanes.get_mut(&place) {
            lane.batch = Some(batch);
        }
        Ok(true)
    }

    /// False where that has to wait.
    fn claim(&mut self, place: TopicPartition) -> Result<bool, Trouble> {
        let Some(batch) = self.lanes.get(&place).and_then(|lane| lane.batch.as_ref()) else { return Ok(false) };
        if batch.is_judged {
            return Ok(true);
        }
        let (started, (rows, asked)) = (Instant::now(), batch.questions());
        let answers = if self.store_away.is_now() { None } else { self.reserve(place, &rows, self.options.lease)? };
        let Some(answers) = answers else { return Ok(self.goes_without_store(place)) };
        let answers: Vec<Answer> = answers.into_iter().map(answer).collect();
        let Some(lane) = self.lanes.get_mut(&place) else { return Ok(false) };
        let Some(batch) = &mut lane.batch else { return Ok(false) };
        let found = batch.judge(&asked, &answers, lane.lane);
        let inserted = answers.iter().filter(|answer| **answer == Answer::Inserted).count();
        let inserted = inserted.saturating_sub(found.give_back.len()) as u64;
        let from = batch.done_at_most();
        lane.put_back(found.later);
        if found.wait.is_none() {
            lane.held = None;
        }
        let scope = self.options.scope.as_str().to_owned();
        counter!(names::CLAIMS, "consumer_scope_id" => scope, "outcome" => "claimed").increment(inserted);
        counter!(names::REDELIVERED).increment(found.again);
        histogram!(names::PHASE_SECONDS, "phase" => "reserve").record(started.elapsed());
        if found.wait.is_some() && !self.give_back(place, &found.give_back, from)? {
            // They stand, and would hold others up: everything is asked for again, and they are given back then.
            self.unjudge(place);
            return Ok(false);
        }
        if let Some(wait) = found.wait {
            self.hold(place, wait)?;
        }
        let name = self.name_of(place);
        if let Some(batch) = self.lanes.get_mut(&place).and_then(|lane| lane.batch.as_mut()) {
            batch.send_duplicates_on(&self.keyer, &name);
        }
        Ok(true)
    }

    /// The window's messages, of which none is published yet, wait to be claimed again.
    fn unjudge(&mut self, place: TopicPartition) {
        let Some(lane) = self.lanes.get_mut(&place) else { return };
        if let Some(batch) = lane.batch.take() {
            lane.put_back(batch.into_items());
        }
    }

    fn hold(&mut self, place: TopicPartition, wait: Wait) -> Result<(), Trouble> {
        if let Wait::Remedy(remedy) = wait {
            self.remedy(remedy)?;
        }
        let (name, spread) = (self.name_of(place), self.spread());
        if let Some(lane) = self.lanes.get_mut(&place) {
            if lane.held.is_none() {
                let offset = lane.waiting.front().map(|item| item.offset);
                tracing::debug!(partition = name, offset, ?wait, "waits for an event that is in flight elsewhere");
            }
            lane.hold(spread);
        }
        Ok(())
    }

    /// By policy, once the store counts as away.
    fn goes_without_store(&mut self, place: TopicPartition) -> bool {
        let forwards = self.options.policies.store_away == StoreAway::Forward;
        if !forwards || self.store_away.tries() < TRIES || self.shutdown.is_requested() {
            return false;
        }
        let name = self.name_of(place);
        let Some(batch) = self.lanes.get_mut(&place).and_then(|lane| lane.batch.as_mut()) else { return false };
        batch.send_unclaimed(&self.keyer, &name);
        true
    }

    /// False where something is left to be published.
    fn publish(&mut self, place: TopicPartition) -> Result<bool, Trouble> {
        let Some(lane) = self.lanes.get(&place) else { return Ok(false) };
        let Some(batch) = &lane.batch else { return Ok(false) };
        let (unsent, messages) = batch.unsent();
        if unsent.is_empty() {
            return Ok(true);
        }
        if self.sink_away.is_now() {
            return Ok(false);
        }
        let is_leased = |until: Option<Instant>| {
            until.is_some_and(|until| until.saturating_duration_since(Instant::now()) >= self.options.publish_timeout)
        };
        let is_claimed = batch.is_claimed(&unsent);
        if is_claimed && !is_leased(lane.leased_until) {
            // Nobody took it over: the store says so, or a token does.
            let renewed = !self.store_away.is_now() && self.reserve(place, &[], self.options.lease)?.is_some();
            if !renewed {
                return Ok(false);
            }
        }
        let started = Instant::now();
        let call = self.sink.publish(&messages);
        let mut answers = attend(&self.runtime, &self.source, &mut self.events, call);
        answers.resize_with(messages.len(), || Published::InDoubt(Doubt::silent("the sink did not say")));
        histogram!(names::PHASE_SECONDS, "phase" => "publish").record(started.elapsed());
        let Some(lane) = self.lanes.get_mut(&place) else { return Ok(false) };
        let Some(batch) = &mut lane.batch else { return Ok(false) };
        if is_claimed && lane.leased_until.is_some_and(|until| until < Instant::now()) {
            counter!(names::LEASES_OUTLIVED).increment(1);
            let text = "a publish outlived its lease: these may come out again";
            log_keys(&messages, &answers, Published::is_stored, text);
        }
        batch.published(&unsent, &answers);
        let in_doubt = |answer: &Published| matches!(answer, Published::InDoubt(_));
        let doubts = answers.iter().filter(|answer| in_doubt(answer)).count() as u64;
        if doubts > 0 {
            counter!(names::IN_DOUBT).increment(doubts);
            log_keys(&messages, &answers, in_doubt, "in doubt whether these were published: they may come out again");
        }
        let Some(failed) = answers.iter().find(|answer| !answer.is_stored()) else {
            self.sink_away.back();
            return Ok(true);
        };
        if answers.iter().any(Published::is_stored) {
            self.sink_away.back();
        }
        let tries = self.sink_away.tries();
        if tries.is_multiple_of(10) {
            tracing::warn!(answer = ?failed, tries, "the sink does not take a message, trying again");
        }
        if tries >= TRIES {
            self.status.set(Some("the sink does not take messages".to_owned()));
        }
        let spread = self.spread();
        self.sink_away.failed(spread);
        Ok(false)
    }
}

fn answer(reserved: Reserved) -> Answer {
    match reserved {
        Reserved::Inserted => Answer::Inserted,
        Reserved::InTheWay(found) => Answer::InTheWay(found),
    }
}
