//! What a message is called, or what becomes of it without a claim. Pure: the same record under the same options gives
//! the same answer, whoever reads it, except that old and future times are judged by the clock, just before the claim.

use super::known::Digester;
use super::window::{Fate, Name, RefusedRecord};
use crate::config::policy::{Policies, Unclaimable};
use crate::kafka::TopicPartition;
use crate::kafka::native::Record;
use crate::key::{Bounds, Extraction, Key, Unkeyed, View};
use crate::pipeline::causes::Cause;
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
    pub fn name(&self, place: TopicPartition, record: &Record, size: usize, refused: &[RefusedRecord]) -> Name {
        if let Some(refusal) = refused.iter().find(|refused| refused.is(place, record)) {
            let detail = refusal.reason.clone();
            return Name::Fate(Fate::DeadLetter { cause: Cause::RefusedBySink, detail });
        }
        let size = size + BATCH_OVERHEAD_BYTES + HEADER_OVERHEAD_BYTES * record.headers().count();
        if size > self.record_bytes_max {
            let bound = self.record_bytes_max;
            let detail = format!("{size} bytes with headers, the sink's topic takes {bound}");
            return self.unclaimed(Cause::TooLarge, detail);
        }
        match self.key(record) {
            Ok(key) => {
                let digest = self.digester.digest(&key);
                Name::Key(key, digest)
            }
            Err(error) => self.unclaimed(Cause::of(&error), error.to_string()),
        }
    }

    /// The key of a record of any size, in whatever week.
    pub fn key(&self, record: &Record) -> Result<Key, Unkeyed> {
        self.extraction.key(&View {
            key: record.key(),
            value: record.value(),
            timestamp_millis: record.timestamp().map(|(millis, _)| millis),
            headers: record,
        })
    }

    /// What becomes of a key whose week is not taken. Asked just before the claim: a message may have waited for long,
    /// and a week that was retired meanwhile must not be made again.
    pub fn out_of_bounds(&self, key: &Key, now: EventTime) -> Option<Name> {
        let error = self.bounds.check(key.week, now).err()?;
        Some(self.unclaimed(Cause::of_week(error), error.to_string()))
    }

    fn unclaimed(&self, cause: Cause, detail: String) -> Name {
        match cause.policy(&self.policies) {
            Unclaimable::Reject => Name::Fate(Fate::DeadLetter { cause, detail }),
            Unclaimable::Forward => Name::Fate(Fate::ForwardUnclaimed(cause)),
            Unclaimable::Stop => Name::Stop { cause, detail },
        }
    }
}
