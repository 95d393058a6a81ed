//! What a message is called, or what becomes of it without a claim. Pure: the same record under the same options gives
//! the same answer, whoever reads it, except that old and future times are judged by the clock.

use super::window::{Cause, Fate, Raw, RefusedRecord};
use crate::config::policy::{Oversize, Policies, Unclaimable};
use crate::kafka::TopicPartition;
use crate::kafka::native::Record;
use crate::key::{Bounds, Extraction, Key, KeyError, OutOfBounds, TimeError, Unkeyed, View};
use crate::protocol::event::EventTime;

/// What the batch format adds to a record at most, so that the bound of a topic is kept: the batch's own header, the
/// record's varints, and per header two more.
const BATCH_OVERHEAD_BYTES: usize = 128;
const HEADER_OVERHEAD_BYTES: usize = 10;

#[derive(Debug, Clone)]
pub struct Keyer {
    pub extraction: Extraction,
    pub bounds: Bounds,
    pub policies: Policies,
    /// Of the forward topic: larger records are dead letters before they are claimed.
    pub record_bytes_max: usize,
}

/// A message that a policy wants the pipeline to stop at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    pub place: TopicPartition,
    pub offset: i64,
    pub cause: Cause,
    pub detail: String,
}

impl Keyer {
    /// Per record its key, or its fate without one.
    pub fn keys(
        &self,
        raw: &Raw,
        refused: &[RefusedRecord],
        now: EventTime,
    ) -> Result<Vec<Result<Key, Fate>>, Box<Stopped>> {
        raw.records
            .iter()
            .map(|(place, record)| {
                let refusal = refused.iter().find(|refused| refused.is(*place, record));
                if let Some(refusal) = refusal {
                    let detail = refusal.reason.clone();
                    return Ok(Err(Fate::DeadLetter { cause: Cause::RefusedBySink, detail }));
                }
                match self.key(record, now) {
                    Ok(key) => Ok(Ok(key)),
                    Err((cause, detail)) => match self.policy(cause) {
                        Unclaimable::Reject => Ok(Err(Fate::DeadLetter { cause, detail })),
                        Unclaimable::Forward => Ok(Err(Fate::ForwardUnclaimed(cause))),
                        Unclaimable::Stop => {
                            Err(Box::new(Stopped { place: *place, offset: record.offset(), cause, detail }))
                        }
                    },
                }
            })
            .collect()
    }

    fn key(&self, record: &Record, now: EventTime) -> Result<Key, (Cause, String)> {
        let size = record.size() + BATCH_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * record.headers().count();
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
