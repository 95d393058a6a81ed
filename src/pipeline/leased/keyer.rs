//! What a message is called, and in which form it goes out. Pure, except that old and future times are judged by the
//! clock, just before the claim.

use std::mem::take;
use std::time::Duration;

use crate::config::policy::{Duplicates, Policies, Unclaimable};
use crate::key::{Bounds, Extraction, Key};
use crate::message::{Header, Message};
use crate::pipeline::causes::Cause;
use crate::protocol::backoff::Backoff;
use crate::protocol::event::{EventTime, Scope};
use crate::protocol::idempotency;
use crate::sink::{Destination, Outgoing};
use crate::source::Tag;

/// A message that is not done.
#[derive(Debug)]
pub struct Item {
    pub tag: Tag,
    pub message: Message,
    /// How many headers it came with.
    pub headers: usize,
    pub name: Name,
    /// By [`super::Machine::now`].
    pub received: Duration,
    /// None until it is held for the first time.
    pub backoff: Option<Backoff>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Key(Key),
    Unclaimed(Form),
    /// A policy wants the pipeline to stop at it.
    Stop {
        cause: Cause,
        detail: String,
    },
}

/// What goes out of a message, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    Forward,
    /// On to the sink although it is a duplicate, marked.
    ForwardDuplicate,
    /// To where duplicates go.
    RouteDuplicate,
    ForwardUnclaimed(Cause),
    DeadLetter {
        cause: Cause,
        detail: String,
    },
}

/// Why a message cannot go out in any form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsendable {
    /// A policy wants the pipeline to stop at it.
    Stop { cause: Cause, detail: String },
    /// The sink does not take it, not even as a dead letter.
    DeadLetter { detail: String },
}

pub struct Keyer {
    pub extraction: Extraction,
    pub bounds: Bounds,
    pub policies: Policies,
    pub scope: Scope,
    /// The source's name, as claims keep it and dead letters tell it.
    pub origin: std::sync::Arc<str>,
}

impl Keyer {
    pub fn name(&self, message: &Message) -> Name {
        match self.extraction.key(&message.view()) {
            Ok(key) => Name::Key(key),
            Err(error) => self.unclaimed(Cause::of(&error), error.to_string()),
        }
    }

    /// What becomes of a key whose week is not taken.
    pub fn out_of_bounds(&self, key: &Key, now: EventTime) -> Option<Name> {
        let error = self.bounds.check(key.week, now).err()?;
        Some(self.unclaimed(Cause::of_week(error), error.to_string()))
    }

    pub fn unclaimed(&self, cause: Cause, detail: String) -> Name {
        match cause.policy(&self.policies) {
            Unclaimable::Reject => Name::Unclaimed(Form::DeadLetter { cause, detail }),
            Unclaimable::Forward => Name::Unclaimed(Form::ForwardUnclaimed(cause)),
            Unclaimable::Stop => Name::Stop { cause, detail },
        }
    }

    /// None where a duplicate is dropped.
    pub fn duplicate(&self) -> Option<Form> {
        match self.policies.duplicates {
            _ if self.policies.observe => Some(Form::ForwardDuplicate),
            Duplicates::Drop => None,
            Duplicates::Route => Some(Form::RouteDuplicate),
            Duplicates::Mark => Some(Form::ForwardDuplicate),
        }
    }

    /// The form in which a message goes out, if it does, judged before anything is claimed: old and future times by `now`,
    /// and what the sink can never take. `message` is taken out; `headers`: how many it came with.
    pub fn form(
        &self,
        message: &mut Message,
        headers: usize,
        name: &Name,
        (unfit, now): (&dyn Fn(&Outgoing) -> Option<String>, EventTime),
        origin: &str,
    ) -> Result<(Form, Outgoing), Unsendable> {
        let key = match name {
            Name::Key(key) => Some(key),
            _ => None,
        };
        let mut name = key.and_then(|key| self.out_of_bounds(key, now)).unwrap_or_else(|| name.clone());
        loop {
            let form = match name {
                Name::Key(_) => Form::Forward,
                Name::Unclaimed(form) => form,
                Name::Stop { cause, detail } => return Err(Unsendable::Stop { cause, detail }),
            };
            let outgoing = self.outgoing(take(message), key, &form, origin);
            let Some(why) = unfit(&outgoing) else { return Ok((form, outgoing)) };
            if matches!(form, Form::DeadLetter { .. }) {
                // Without its value it would be lost once it is acknowledged.
                return Err(Unsendable::DeadLetter { detail: why });
            }
            *message = outgoing.message;
            message.headers.truncate(headers);
            name = self.unclaimed(Cause::TooLarge, why);
        }
    }

    /// `origin`: where it came from, for whoever finds it among dead letters or duplicates. Duplicates that are to go out
    /// as such carry no idempotency key: a sink that deduplicates would drop them.
    pub fn outgoing(&self, mut message: Message, key: Option<&Key>, form: &Form, origin: &str) -> Outgoing {
        let origin = || origin.to_owned();
        let mut add = |name: &str, value: String| message.headers.push(Header::new(name, value.into_bytes()));
        let destination = match form {
            Form::Forward => Destination::Forward,
            Form::ForwardDuplicate => {
                add("semel-verdict", "duplicate".to_owned());
                Destination::Forward
            }
            Form::RouteDuplicate => {
                add("semel-verdict", "duplicate".to_owned());
                add("semel-origin", origin());
                Destination::Duplicates
            }
            Form::ForwardUnclaimed(cause) => {
                add("semel-unclaimed", cause.label().to_owned());
                Destination::Forward
            }
            Form::DeadLetter { cause, detail } => {
                add("semel-cause", cause.label().to_owned());
                add("semel-detail", detail.clone());
                add("semel-origin", origin());
                add("semel-scope", self.scope.as_str().to_owned());
                Destination::DeadLetter
            }
        };
        let is_keyed = matches!(form, Form::Forward | Form::ForwardUnclaimed(_));
        let key = key.filter(|_| is_keyed);
        Outgoing {
            destination,
            message,
            idempotency_key: key.map(|key| idempotency::of_event(&self.scope, &key.event_id)),
        }
    }
}
