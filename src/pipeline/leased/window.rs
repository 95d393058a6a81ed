//! One window, step by step as [`crate::protocol::instance`] says.

use std::time::Duration;

use metrics::{counter, histogram};

use super::LeasedError;
use super::flush::Told;
use super::keyer::{Form, Item};
use super::open::Open;
use super::slots::{Known, Other, RETRY_FIRST, RETRY_LONGEST, TRIES, TakeOverError};
use super::worker::Worker;
use crate::config::policy::StoreAway;
use crate::key::Key;
use crate::metrics as names;
use crate::pipeline::causes::Cause;
use crate::pipeline::chain;
use crate::protocol::backoff::Backoff;
use crate::protocol::instance::{Answer, Beyond, End, Next, Remedy, Row, State};
use crate::sink::{Doubt, Outgoing, Published};
use crate::store::StoreError;
use crate::store::slots::{Reserve, Reserved, SlotAsk};

const PUBLISH_FIRST: Duration = Duration::from_millis(50);

/// The tries of a window to publish.
struct Tries {
    backoff: Backoff,
    /// What needs no claim is tried for as long as a lease, too.
    until: Duration,
}

impl Worker {
    /// Whatever happens, each message is acknowledged, held, or void in the end.
    pub(super) async fn window(&mut self, items: Vec<Item>) -> Result<(), LeasedError> {
        let pauses = self.pauses;
        let mut open = match Open::new(items, &self.keyer, &self.sink, self.clock.now()) {
            Ok(open) => open,
            Err((tags, stopped)) => {
                let handed_back = self.source.hand_back(&tags).await;
                self.passing(handed_back)?;
                return Err(stopped);
            }
        };
        let until = self.machine.now() + self.options.lease;
        let mut tries = Tries { backoff: Backoff::new(PUBLISH_FIRST, RETRY_LONGEST), until };
        loop {
            match open.window.next() {
                Next::Reserve => self.reserve(&mut open).await?,
                Next::Publish(items) => self.publish(&mut open, &items, &mut tries).await?,
                Next::Remedy(remedy) => self.remedy(&mut open, remedy).await?,
                Next::Cut => {
                    let known = self.known(&open);
                    self.cut(&mut open, Some(known), "in_doubt").await?;
                }
                Next::Done => break,
            }
            self.send_duplicates_on(&mut open);
            let done = open.newly_done();
            if !done.is_empty() {
                // A lost acknowledgement brings the message back, which then is a duplicate.
                let acknowledged = self.source.acknowledge(&done).await;
                self.passing(acknowledged)?;
            }
        }
        let later = open.close(self.options.scope.as_str());
        if pauses == self.pauses {
            let (now, spread) = (self.machine.now(), self.spread());
            self.holding.hold(later, now, spread);
        }
        Ok(())
    }

    fn known(&self, open: &Open) -> Known {
        Known { committed: self.standing.committed, beyond: open.window.beyond(&self.standing) }
    }

    /// The lane is given up with what is not done; the next one is opened.
    async fn cut(&mut self, open: &mut Open, known: Option<Known>, reason: &'static str) -> Result<(), LeasedError> {
        open.discarded = true;
        self.give_up(known, reason);
        self.take_own().await?;
        open.window.given_back(&mut self.standing);
        Ok(())
    }

    async fn reserve(&mut self, open: &mut Open) -> Result<(), LeasedError> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        let (started, pauses) = (self.machine.now(), self.pauses);
        let has_lane = self.take_own().await?;
        let rows = open.window.rows(&self.standing);
        let asks: Vec<SlotAsk> = rows.iter().filter_map(|row| Some(ask(open.key(row.item)?, row))).collect();
        let committed = self.standing.committed;
        while has_lane && pauses == self.pauses {
            let before = self.machine.now();
            let reserve = Reserve {
                guard: self.guard,
                scope: &self.options.scope,
                committed,
                lease: self.options.lease,
                rows: &asks,
                origin: &self.keyer.origin,
                partition: None,
                first_seen_at: self.clock.now(),
            };
            match self.store.reserve(&reserve).await {
                Ok(answers) => {
                    self.store_answers();
                    self.leased_until = before + self.options.lease;
                    self.owes_since = None;
                    let answers: Vec<Answer> = answers.iter().map(answer).collect();
                    open.window.reserved(&mut self.standing, &rows, &answers);
                    self.owe();
                    let inserted = answers.iter().filter(|answer| **answer == Answer::Inserted).count() as u64;
                    let scope = self.options.scope.as_str().to_owned();
                    counter!(names::CLAIMS, "consumer_scope_id" => scope, "outcome" => "claimed").increment(inserted);
                    counter!(names::STORE_COMMITS).increment(1);
                    histogram!(names::PHASE_SECONDS, "phase" => "reserve").record(self.machine.now() - started);
                    return Ok(());
                }
                Err(StoreError::NotOwner) => return self.cut(open, None, "overtaken").await,
                Err(StoreError::Unknown(cause)) => {
                    tracing::warn!(error = chain(&*cause), "the outcome of a reserve is unknown");
                    let known = Known { committed, beyond: Beyond::default() };
                    return self.cut(open, Some(known), "unknown_outcome").await;
                }
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        break;
                    }
                }
            }
        }
        if self.options.policies.store_away == StoreAway::Forward && !self.is_ending() {
            for n in 0..open.len() {
                if matches!(open.window.states()[n], State::Fresh | State::Repeat { .. }) {
                    open.reform(n, Form::ForwardUnclaimed(Cause::StoreAway), &self.keyer);
                }
            }
        } else {
            open.window.given_back(&mut self.standing);
        }
        Ok(())
    }

    async fn publish(&mut self, open: &mut Open, items: &[usize], tries: &mut Tries) -> Result<(), LeasedError> {
        let claimed = items.iter().any(|&n| matches!(open.window.states()[n], State::Mine(_)));
        let started = self.machine.now();
        let until = if claimed { self.leased_until } else { tries.until };
        let is_late = started + self.options.publish_timeout > until;
        if is_late || self.sink_away || (self.is_ending() && tries.backoff.tries() >= TRIES) {
            return self.release(open).await;
        }
        let messages = open.take_out(items);
        let published = self.sink.publish(messages, self.standing).await;
        let Some((messages, mut answers)) = published else { return Err(LeasedError::Panicked) };
        answers.resize_with(items.len(), || Published::InDoubt(Doubt::silent("the sink did not say")));
        let ended = self.machine.now();
        histogram!(names::PHASE_SECONDS, "phase" => "publish").record(ended - started);
        let ends: Vec<End> = answers.iter().map(end).collect();
        let doubts = ends.iter().filter(|end| **end == End::InDoubt).count() as u64;
        if claimed && ended > self.leased_until {
            counter!(names::LEASES_OUTLIVED).increment(1);
            let text = "a publish outlived its lease: these may come out again";
            log_keys(&messages, &answers, Published::is_stored, text);
        }
        if doubts > 0 {
            counter!(names::IN_DOUBT).increment(doubts);
            let in_doubt = |answer: &Published| matches!(answer, Published::InDoubt(_));
            log_keys(&messages, &answers, in_doubt, "in doubt whether these were published: they may come out again");
        }
        open.put_back(items, messages);
        open.window.published(&mut self.standing, items, &ends);
        self.owe();
        if self.sink.is_lost() {
            return self.cut(open, None, "outcome_in_kafka").await;
        }
        let Some(failed) = answers.iter().find(|answer| !answer.is_stored()) else { return Ok(()) };
        if open.window.next() == Next::Cut {
            return Ok(());
        }
        let done_before = tries.backoff.tries();
        if done_before.is_multiple_of(10) {
            tracing::warn!(answer = ?failed, tries = done_before, "the sink does not take a message, trying again");
        }
        self.sink_away = matches!(failed, Published::NotSent) && done_before >= TRIES;
        self.machine.sleep(tries.backoff.next(self.spread())).await;
        if !self.is_flush_due() {
            return Ok(());
        }
        let left = self.leased_until.saturating_sub(self.machine.now());
        match self.tell(left).await? {
            Told::Settled | Told::NotYet => Ok(()),
            Told::Overtaken => self.cut(open, None, "overtaken").await,
            Told::Unknown => {
                let known = self.known(open);
                self.cut(open, Some(known), "unknown_outcome").await
            }
        }
    }

    /// From the first claim on that is not published: surely not published, so that anybody may have it.
    async fn release(&mut self, open: &mut Open) -> Result<(), LeasedError> {
        let unpublished = open.window.states().iter().filter_map(|state| match state {
            State::Mine(position) => Some(*position),
            _ => None,
        });
        let Some(from) = unpublished.min() else {
            open.window.given_back(&mut self.standing);
            return Ok(());
        };
        let Known { committed, beyond } = self.known(open);
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let to = self.standing.next;
            match self.store.release(self.guard, committed, &beyond.published, from, to).await {
                Ok(released) => {
                    tracing::warn!(released, "gave back the claims of messages that the sink did not take");
                    counter!(names::RELEASED).increment(released);
                    self.standing.settled = committed;
                    open.window.given_back(&mut self.standing);
                    self.owe();
                    return Ok(());
                }
                Err(StoreError::NotOwner) => return self.cut(open, None, "overtaken").await,
                Err(StoreError::Unknown(cause)) => {
                    tracing::warn!(error = chain(&*cause), "the outcome of a release is unknown");
                    return self.cut(open, Some(Known { committed, beyond }), "unknown_outcome").await;
                }
                Err(error) => {
                    if !self.bear(error, &mut backoff).await? {
                        return self.cut(open, Some(Known { committed, beyond }), "store_away").await;
                    }
                }
            }
        }
    }

    async fn remedy(&mut self, open: &mut Open, remedy: Remedy) -> Result<(), LeasedError> {
        let again = match remedy {
            Remedy::TakeOver(lane) => match self.take_over(lane).await {
                Ok(Other::Again) => true,
                Ok(Other::Leased) => false,
                Ok(Other::Own) => return self.cut(open, None, "overtaken").await,
                Err(TakeOverError::Store(error)) => self.is_left(&error),
                Err(TakeOverError::End(error)) => return Err(error),
            },
            Remedy::Sweep(lane) => match self.store.sweep(lane).await {
                Ok(Some(released)) => {
                    counter!(names::RELEASED).increment(released);
                    tracing::info!(lane = %lane, released, "released claims that were left in doubt");
                    true
                }
                Ok(None) => false,
                Err(error) => self.is_left(&error),
            },
        };
        open.window.remedied(remedy, again);
        Ok(())
    }

    /// Never again at once: the messages are held.
    fn is_left(&self, error: &StoreError) -> bool {
        counter!(names::STORE_ERRORS, "recovery" => error.recovery().label()).increment(1);
        tracing::warn!(error = chain(error), "a claim whose holder is gone could not be had yet");
        false
    }

    /// Notes since when the store is to be told.
    fn owe(&mut self) {
        if self.standing.owes() && self.to_take.is_none() {
            self.owes_since.get_or_insert(self.machine.now());
        }
    }

    /// Where a policy sends duplicates on.
    fn send_duplicates_on(&self, open: &mut Open) {
        let Some(form) = self.keyer.duplicate() else { return };
        for n in 0..open.len() {
            if open.window.states()[n] == State::Duplicate && open.forms[n] == Form::Forward {
                open.reform(n, form.clone(), &self.keyer);
            }
        }
    }
}

fn ask(key: &Key, row: &Row) -> SlotAsk {
    SlotAsk { event_id: key.event_id.clone(), week: key.week, position: row.position }
}

fn answer(reserved: &Reserved) -> Answer {
    match reserved {
        Reserved::Inserted => Answer::Inserted,
        Reserved::InTheWay(found) => Answer::InTheWay(*found),
    }
}

fn end(answer: &Published) -> End {
    match answer {
        Published::Confirmed | Published::Deduplicated => End::Stored,
        Published::Refused(_) | Published::NotSent => End::NotStored,
        Published::InDoubt(_) => End::InDoubt,
    }
}

/// Keys of one line of the log.
const KEYS_A_LINE: usize = 100;

/// A second copy that somebody finds is accounted for by its idempotency key.
pub(crate) fn log_keys(
    messages: &[Outgoing],
    answers: &[Published],
    which: impl Fn(&Published) -> bool,
    text: &'static str,
) {
    let those: Vec<(&Outgoing, &Published)> =
        messages.iter().zip(answers).filter(|(_, answer)| which(answer)).collect();
    for some in those.chunks(KEYS_A_LINE) {
        let keys: Vec<&str> = some.iter().map(|(sent, _)| sent.idempotency_key.as_deref().unwrap_or("none")).collect();
        let first = some.first().map(|(_, answer)| *answer);
        tracing::warn!(count = some.len(), answer = ?first, idempotency_keys = keys.join(","), "{text}");
    }
}
