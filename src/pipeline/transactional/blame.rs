//! Which records of a refused batch are to blame.
//!
//! For its size the broker refuses a batch as a whole, and the client tells every record in it the same. Taken at its
//! word, that would make dead letters of all that happened to travel with one large record, or of everything once the
//! topic's bound is below the size of a batch. So a record is to blame only where the broker meant that one: it was
//! alone, or the code is one that is told record by record. Where that is nobody, batches are made smaller and the
//! window is read again: either it passes, or the record that is too large is alone at last. It needs no question to
//! the broker, whose answer may not be permitted, and it ends: the smallest batch holds one record.

use rdkafka::types::RDKafkaErrorCode as Code;

use super::PipelineError;
use super::control::{Trouble, lock};
use super::publisher::Publisher;
use super::window::{Fate, Judged, RefusedRecord};
use crate::kafka::TopicPartition;
use crate::kafka::native::Record;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blame {
    /// These, by their numbers.
    Records(Vec<(usize, Code)>),
    /// Nobody yet: try again with batches of so many bytes.
    SmallerBatches(usize),
}

/// `size`: of a record by its number, not more than what it takes in a batch. The client lets a record of
/// `batch_bytes_max` or more travel alone.
pub fn blame(refused: &[(usize, Code)], batch_bytes_max: usize, size: impl Fn(usize) -> usize) -> Blame {
    let is_meant = |&&(number, code): &&(usize, Code)| {
        let told_by_record = matches!(code, Code::InvalidRecord | Code::InvalidTimestamp | Code::UnknownPartition);
        told_by_record || refused.len() == 1 || size(number).max(1) >= batch_bytes_max
    };
    let meant: Vec<_> = refused.iter().filter(is_meant).copied().collect();
    if meant.is_empty() { Blame::SmallerBatches((batch_bytes_max / 4).max(1)) } else { Blame::Records(meant) }
}

/// Room for the headers that a dead letter is given.
const DEAD_LETTER_HEADERS_BYTES: usize = 1024;

impl Publisher {
    pub(super) fn refused(&mut self, window: &Judged, records: &[(usize, Code)], why: String) -> Trouble {
        if let Err(trouble) = self.abort() {
            return trouble;
        }
        let read = &window.raw.records;
        let size = |number: usize| read.get(number).map_or(0, |(_, record)| record.size());
        match blame(records, self.options.batch_bytes_max, size) {
            Blame::Records(records) => {
                let mut refused = Vec::with_capacity(records.len());
                for (number, code) in records {
                    let Some((place, record)) = read.get(number) else { continue };
                    // A dead letter is tried once more without its value. There is nothing smaller to try then.
                    let without_value = matches!(window.fates.get(number), Some(Fate::DeadLetter { .. }));
                    if without_value && self.goes_without_value(*place, record) {
                        return self.no_room(*place, record.offset(), code);
                    }
                    let (place, offset, reason) = (*place, record.offset(), code.to_string());
                    refused.push(RefusedRecord { place, offset, reason, without_value });
                }
                Trouble::Reread { why, refused }
            }
            Blame::SmallerBatches(bytes) => {
                tracing::warn!(batch_bytes_max = bytes, "batches are refused, sending smaller ones from now on");
                self.options.batch_bytes_max = bytes;
                self.sink = None;
                Trouble::Reread { why, refused: Vec::new() }
            }
        }
    }

    /// Whether the dead letter of this record leaves its value behind: it is known, or was seen, to be too large.
    pub(super) fn goes_without_value(&self, place: TopicPartition, record: &Record) -> bool {
        record.size() + DEAD_LETTER_HEADERS_BYTES > self.dead_letter_bytes_max
            || lock(&self.refused).iter().any(|refused| refused.without_value && refused.is(place, record))
    }

    fn no_room(&self, place: TopicPartition, offset: i64, code: Code) -> Trouble {
        Trouble::Leave(PipelineError::DeadLetterRefused {
            topic: self.source_topics[usize::from(place.topic)].to_string(),
            partition: place.partition,
            offset,
            dead_letter: self.topics.dead_letter.clone().unwrap_or_default(),
            code,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Blame, Code, blame};

    #[test]
    fn who_is_meant() {
        let large = Code::MessageSizeTooLarge;
        // Record n has n bytes.
        let cases = [
            (vec![(7, large)], 1000, Blame::Records(vec![(7, large)]), "one alone, whatever its size"),
            (vec![(7, large), (8, large)], 1000, Blame::SmallerBatches(250), "two in a batch"),
            (vec![(7, large), (900, large)], 900, Blame::Records(vec![(900, large)]), "one of them was alone"),
            (vec![(0, large), (1, large)], 3, Blame::SmallerBatches(1), "no smaller than one record"),
            (vec![(0, large), (1, large)], 1, Blame::Records(vec![(0, large), (1, large)]), "each was alone"),
            (
                vec![(7, Code::InvalidRecord), (8, large)],
                1000,
                Blame::Records(vec![(7, Code::InvalidRecord)]),
                "the broker names bad records one by one",
            ),
        ];
        for (refused, batch_bytes_max, right, why) in cases {
            assert_eq!(blame(&refused, batch_bytes_max, |number| number), right, "{why}");
        }
    }
}
