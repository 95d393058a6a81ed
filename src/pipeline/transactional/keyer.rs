//! What a message is called, or what becomes of it without a claim. Pure: the same record under the same options gives
//! the same answer, whoever reads it, except that old and future times are judged by the clock.

use super::known::Digester;
use super::window::{Cause, Fate, Name, RefusedRecord};
use crate::config::policy::{Oversize, Policies, Unclaimable};
use crate::kafka::TopicPartition;
use crate::kafka::native::Record;
use crate::key::{Bounds, Extraction, Key, KeyError, OutOfBounds, TimeError, Unkeyed, View};
use crate::protocol::event::EventTime;

/// What the batch format adds to a record at most, so that the bound of a topic is kept: the batch's own header, the
/// record's varints, and per header two more.
const BATCH_OVERHEAD_BYTES: usize = 128;
const HEADER_OVERHEAD_BYTES: usize = 10;

pub struct Keyer {
    pub extraction: Extraction,
    pub bounds: Bounds,
    pub policies: Policies,
    /// Of the forward topic: larger records are dead letters before they are claimed.
    pub record_bytes_max: usize,
    pub digester: Digester,
}

impl Keyer {
    /// `size`: of the record, in bytes. `refused`: what the sink refused before and is read again.
    pub fn name(
        &self,
        place: TopicPartition,
        record: &Record,
        size: usize,
        refused: &[RefusedRecord],
        now: EventTime,
    ) -> Name {
        if let Some(refusal) = refused.iter().find(|refused| refused.is(place, record)) {
            let detail = refusal.reason.clone();
            return Name::Fate(Fate::DeadLetter { cause: Cause::RefusedBySink, detail });
        }
        match self.key(record, size, now) {
            Ok(key) => {
                let digest = self.digester.digest(&key);
                Name::Key(key, digest)
            }
            Err((cause, detail)) => match self.policy(cause) {
                Unclaimable::Reject => Name::Fate(Fate::DeadLetter { cause, detail }),
                Unclaimable::Forward => Name::Fate(Fate::ForwardUnclaimed(cause)),
                Unclaimable::Stop => Name::Stop { cause, detail },
            },
        }
    }

    fn key(&self, record: &Record, size: usize, now: EventTime) -> Result<Key, (Cause, String)> {
        let size = size + BATCH_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * record.headers().count();
        if size > self.record_bytes_max {
            let bound = self.record_bytes_max;
            return Err((Cause::TooLarge, format!("{size} bytes with headers, the sink's topic takes {bound}")));
        }
        self.key_at_any_size(record, now)
    }

    /// For the claim of a record that was refused later, or is known to be too large only since a restart.
    pub fn key_at_any_size(&self, record: &Record, now: EventTime) -> Result<Key, (Cause, String)> {
        let view = View {
            key: record.key(),
            value: record.value(),
            timestamp_millis: record.timestamp().map(|(millis, _)| millis),
            headers: record,
        };
        let key = self.extraction.key(&view).map_err(|error| (cause_of(&error), error.to_string()))?;
        self.bounds.check(key.week, now).map_err(|error| match error {
            OutOfBounds::Old { .. } => (Cause::OldEvent, error.to_string()),
            OutOfBounds::Ahead { .. } => (Cause::FutureEvent, error.to_string()),
        })?;
        Ok(key)
    }

    fn policy(&self, cause: Cause) -> Unclaimable {
        match cause {
            Cause::MissingId | Cause::BadId => self.policies.missing_id,
            Cause::MissingTime | Cause::BadTime => self.policies.missing_time,
            Cause::OldEvent => self.policies.old_event,
            Cause::FutureEvent => self.policies.future_event,
            Cause::TooLarge if self.policies.oversize == Oversize::Stop => Unclaimable::Stop,
            Cause::TooLarge | Cause::RefusedBySink | Cause::StoreAway => Unclaimable::Reject,
        }
    }
}

fn cause_of(error: &Unkeyed) -> Cause {
    match error {
        Unkeyed::Id(KeyError::Missing) => Cause::MissingId,
        Unkeyed::Id(_) => Cause::BadId,
        Unkeyed::Time(TimeError::Missing) => Cause::MissingTime,
        Unkeyed::Time(_) => Cause::BadTime,
    }
}
