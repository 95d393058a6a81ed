//! A window under way: a run of one partition's messages in the form in which they go out, and how far each is.

use super::item::Item;
use crate::pipeline::causes::Cause;
use crate::pipeline::leased::counts::{End, count};
use crate::pipeline::leased::keyer::{Form, Keyer, Unsendable};
use crate::protocol::event::EventTime;
use crate::protocol::instance::Answer;
use crate::protocol::lane::{Coordinate, LaneId, Position};
use crate::protocol::settled::{Judged, Wait, front, judge_answer};
use crate::protocol::window::Questions;
use crate::sink::{Outgoing, Published};
use crate::store::slots::SlotAsk;

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Of the same event as an earlier one, or to be asked for.
    Claim,
    /// To be published, with its claim or without one.
    Send,
    Sent,
    /// A duplicate: passed over.
    Dropped,
}

#[derive(Debug)]
pub struct Batch {
    /// Without their messages, which are in `sending`.
    items: Vec<Item>,
    forms: Vec<Form>,
    sending: Vec<Outgoing>,
    states: Vec<State>,
    /// The position behind its last message.
    upto: Position,
    /// Its claims are made, or it goes out without them.
    pub is_judged: bool,
    pub discarded: bool,
}

impl Batch {
    /// Err: the message that cannot go out, by its place.
    pub fn new(
        mut items: Vec<Item>,
        keyer: &Keyer,
        unfit: (&dyn Fn(&Outgoing) -> Option<String>, EventTime),
        place: &str,
    ) -> Result<Batch, (String, Unsendable)> {
        let upto = items.last().map_or(0, |item| item.offset + 1);
        let (mut forms, mut sending, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for item in &mut items {
            let origin = origin(place, item.offset);
            let Item { message, headers, name, .. } = item;
            let (form, outgoing) = keyer.form(message, *headers, name, unfit, &origin).map_err(|why| (origin, why))?;
            states.push(if form == Form::Forward { State::Claim } else { State::Send });
            forms.push(form);
            sending.push(outgoing);
        }
        Ok(Batch { items, forms, sending, states, upto, is_judged: false, discarded: false })
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Those that are to be claimed, in the order of the log.
    fn claiming(&self) -> Vec<usize> {
        (0..self.len()).filter(|&n| self.states[n] == State::Claim).collect()
    }

    /// The claims to ask for, and which of the messages that are to be claimed asks on behalf of each.
    pub fn questions(&self) -> (Vec<SlotAsk>, Asked) {
        let claiming = self.claiming();
        let name = |n: &usize| self.items[*n].key().map(|key| (&key.event_id, key.week));
        let names: Vec<_> = claiming.iter().map(name).collect();
        let questions = Questions::of(&names);
        let rows = questions.asking.iter().filter_map(|&asker| self.ask(claiming[asker])).collect();
        (rows, Asked { claiming, questions })
    }

    fn ask(&self, n: usize) -> Option<SlotAsk> {
        let item = &self.items[n];
        let key = item.key()?;
        Some(SlotAsk { event_id: key.event_id.clone(), week: key.week, position: item.offset })
    }

    /// Takes the answers in. What stays behind the front goes out of the window.
    pub fn judge(&mut self, asked: &Asked, answers: &[Answer], lane: LaneId) -> Outcome {
        let mut judged: Vec<Option<Judged>> = vec![None; self.len()];
        for (answer, &asker) in answers.iter().zip(&asked.questions.asking) {
            let n = asked.claiming[asker];
            let found = judge_answer(*answer, Coordinate { lane, position: self.items[n].offset });
            judged[n] = Some(found);
            self.states[n] = match found {
                Judged::Publish { .. } => State::Send,
                Judged::Duplicate => State::Dropped,
                Judged::InFlight(_) => State::Claim,
            };
        }
        let front = front(&judged);
        let give_back = front.give_back.iter().filter_map(|&n| self.ask(n)).collect();
        let again = judged.iter().filter(|one| **one == Some(Judged::Publish { again: true })).count() as u64;
        let later = self.split(front.length);
        // What is left of the others repeats an event before it, which this window publishes or knows to be done.
        self.states.iter_mut().filter(|state| **state == State::Claim).for_each(|state| *state = State::Dropped);
        self.is_judged = true;
        Outcome { wait: front.wait, give_back, later, again }
    }

    /// Takes out what is behind so many messages.
    fn split(&mut self, length: usize) -> Vec<Item> {
        let mut later = self.items.split_off(length);
        let (sending, _) = (self.sending.split_off(length), self.forms.split_off(length));
        self.states.truncate(length);
        if let Some(first) = later.first() {
            self.upto = first.offset;
        }
        for (item, outgoing) in later.iter_mut().zip(sending) {
            item.message = outgoing.message;
            item.message.headers.truncate(item.headers);
        }
        later
    }

    /// As they were read.
    pub fn into_items(mut self) -> Vec<Item> {
        self.split(0)
    }

    /// Whether one of these goes out by its claim.
    pub fn is_claimed(&self, unsent: &[usize]) -> bool {
        unsent.iter().any(|&n| self.forms[n] == Form::Forward)
    }

    /// Those that were to be claimed go out all the same, marked.
    pub fn send_unclaimed(&mut self, keyer: &Keyer, place: &str) {
        for n in self.claiming() {
            self.reform(n, Form::ForwardUnclaimed(Cause::StoreAway), keyer, place);
        }
        self.is_judged = true;
    }

    /// Where a policy sends duplicates on.
    pub fn send_duplicates_on(&mut self, keyer: &Keyer, place: &str) {
        let Some(form) = keyer.duplicate() else { return };
        for n in 0..self.len() {
            if self.states[n] == State::Dropped {
                self.reform(n, form.clone(), keyer, place);
            }
        }
    }

    fn reform(&mut self, n: usize, form: Form, keyer: &Keyer, place: &str) {
        let item = &self.items[n];
        let mut message = std::mem::take(&mut self.sending[n].message);
        message.headers.truncate(item.headers);
        self.sending[n] = keyer.outgoing(message, item.key(), &form, &origin(place, item.offset));
        self.forms[n] = form;
        self.states[n] = State::Send;
    }

    /// What is still to be published, in its order.
    pub fn unsent(&self) -> (Vec<usize>, Vec<Outgoing>) {
        let unsent: Vec<usize> = (0..self.len()).filter(|&n| self.states[n] == State::Send).collect();
        let messages = unsent.iter().map(|&n| self.sending[n].clone()).collect();
        (unsent, messages)
    }

    pub fn published(&mut self, unsent: &[usize], answers: &[Published]) {
        for (&n, _) in unsent.iter().zip(answers).filter(|(_, answer)| answer.is_stored()) {
            self.states[n] = State::Sent;
        }
    }

    /// The position behind its last message.
    pub fn done_at_most(&self) -> Position {
        self.upto
    }

    /// Everything below is published, or its event is.
    pub fn done(&self) -> Position {
        let is_open = |n: &usize| matches!(self.states[*n], State::Claim | State::Send);
        (0..self.len()).find(is_open).map_or(self.upto, |n| self.items[n].offset)
    }

    /// Published with their claims although something before them is not. Ascending.
    pub fn beyond(&self) -> Vec<Position> {
        let done = self.done();
        let of = |n: usize| {
            let is_claimed = self.forms[n] == Form::Forward && self.states[n] == State::Sent;
            (is_claimed && self.items[n].offset >= done).then_some(self.items[n].offset)
        };
        (0..self.len()).filter_map(of).collect()
    }

    pub fn count(&self, scope: &str) {
        let how = if self.discarded { "discarded" } else { "committed" };
        let ended = |state: &State| End { is_sent: *state == State::Sent, is_duplicate: *state == State::Dropped };
        count(scope, how, self.forms.iter().zip(&self.states).map(|(form, state)| (form, ended(state))));
    }
}

/// What the store's answers came to.
pub struct Outcome {
    /// What the first message behind the window waits for.
    pub wait: Option<Wait>,
    /// Claims of messages behind it.
    pub give_back: Vec<SlotAsk>,
    /// Those messages, and what waits: they come again.
    pub later: Vec<Item>,
    /// So many found their own claim.
    pub again: u64,
}

/// Which messages ask.
pub struct Asked {
    claiming: Vec<usize>,
    questions: Questions,
}

fn origin(place: &str, offset: Position) -> String {
    format!("{place}/{offset}")
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
