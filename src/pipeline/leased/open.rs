//! A window under way: its messages in the form in which they go out, beside what [`Window`] knows of them.

use std::mem::take;

use super::LeasedError;
use super::Outlet;
use super::counts::{Counts, End, count};
use super::keyer::{Form, Item, Keyer, Name, Unsendable};
use crate::key::Key;
use crate::protocol::event::EventTime;
use crate::protocol::instance::{State, Window};
use crate::sink::Outgoing;
use crate::source::Tag;

pub struct Open {
    /// Without their messages, which are in `sending`.
    items: Vec<Item>,
    pub forms: Vec<Form>,
    /// None while it is being published.
    sending: Vec<Option<Outgoing>>,
    pub window: Window,
    acknowledged: Vec<bool>,
    /// Its lane was given up under it.
    pub discarded: bool,
}

impl Open {
    /// Judges old and future times by `now`, since a message may have been held, and asks the sink what it can never
    /// take: both before anything is claimed. Err: the tags of all, where a policy stops the pipeline at one.
    pub fn new(
        mut items: Vec<Item>,
        keyer: &Keyer,
        sink: &Outlet,
        now: EventTime,
    ) -> Result<Open, (Vec<Tag>, LeasedError)> {
        let mut forms = Vec::with_capacity(items.len());
        let mut sending = Vec::with_capacity(items.len());
        for n in 0..items.len() {
            let Item { message, headers, name, .. } = &mut items[n];
            let unfit = |outgoing: &Outgoing| sink.unfit(outgoing);
            match keyer.form(message, *headers, name, (&unfit, now), &keyer.origin) {
                Ok((form, outgoing)) => {
                    forms.push(form);
                    sending.push(Some(outgoing));
                }
                Err(why) => {
                    let origin = keyer.origin.to_string();
                    let stopped = match why {
                        Unsendable::Stop { cause, detail } => {
                            LeasedError::Stopped { origin, cause: cause.label(), detail }
                        }
                        Unsendable::DeadLetter { detail } => LeasedError::DeadLetterUnfit { origin, detail },
                    };
                    return Err((items.iter().map(|item| item.tag).collect(), stopped));
                }
            }
        }
        let key = |(item, form): (&Item, &Form)| match (&item.name, form) {
            (Name::Key(key), Form::Forward) => Some((key.event_id.clone(), key.week)),
            _ => None,
        };
        let keys: Vec<_> = items.iter().zip(&forms).map(key).collect();
        let (window, acknowledged) = (Window::of(&keys), vec![false; items.len()]);
        Ok(Open { items, forms, sending, window, acknowledged, discarded: false })
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn key(&self, item: usize) -> Option<&Key> {
        match &self.items[item].name {
            Name::Key(key) => Some(key),
            _ => None,
        }
    }

    /// Has it go out in another form.
    pub fn reform(&mut self, item: usize, form: Form, keyer: &Keyer) {
        let message = self.message(item);
        let outgoing = keyer.outgoing(message, self.key(item), &form, &keyer.origin);
        self.sending[item] = Some(outgoing);
        self.forms[item] = form;
        self.window.unclaimed(item);
    }

    /// As it was received.
    fn message(&mut self, item: usize) -> crate::message::Message {
        let mut message = self.sending[item].as_mut().map(|outgoing| take(&mut outgoing.message)).unwrap_or_default();
        message.headers.truncate(self.items[item].headers);
        message
    }

    /// To be given back by [`Open::put_back`].
    pub fn take_out(&mut self, items: &[usize]) -> Vec<Outgoing> {
        items.iter().filter_map(|&n| self.sending[n].take()).collect()
    }

    pub fn put_back(&mut self, items: &[usize], outgoing: Vec<Outgoing>) {
        items.iter().zip(outgoing).for_each(|(&n, outgoing)| self.sending[n] = Some(outgoing));
    }

    /// Tags of what is done and was not acknowledged before.
    pub fn newly_done(&mut self) -> Vec<Tag> {
        let done = |n: &usize| self.window.states()[*n].is_done() && !self.acknowledged[*n];
        let done: Vec<usize> = (0..self.len()).filter(done).collect();
        done.iter().for_each(|&n| self.acknowledged[n] = true);
        done.iter().map(|&n| self.items[n].tag).collect()
    }

    /// Counts, and answers what is not done.
    pub fn close(mut self, scope: &str) -> Vec<Item> {
        self.count(scope);
        let later: Vec<usize> = (0..self.len()).filter(|&n| !self.window.states()[n].is_done()).collect();
        for &n in &later {
            self.items[n].message = self.message(n);
        }
        let mut later = later.into_iter().peekable();
        let items = self.items.into_iter().enumerate();
        items.filter(|(n, _)| later.next_if(|next| next == n).is_some()).map(|(_, item)| item).collect()
    }

    fn count(&self, scope: &str) {
        let how = if self.discarded { "discarded" } else { "committed" };
        let ended = |state: &State| End {
            is_sent: matches!(state, State::Published(_)),
            is_duplicate: *state == State::Duplicate,
        };
        let messages = self.forms.iter().zip(self.window.states()).map(|(form, state)| (form, ended(state)));
        let Counts { forwarded, duplicates } = count(scope, how, messages);
        tracing::debug!(messages = self.len(), forwarded, duplicates, end = how, "a window is over");
    }
}
