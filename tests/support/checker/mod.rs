//! Judges a run from the outside: what went in, what came out, which claims and offsets stand at the end.
//!
//! It knows nothing of how Semel works inside a window. It holds what a user may hold Semel to:
//!
//! 1. every event that has a copy in the input came out, and came out once, by a read_committed reader's eyes;
//! 2. what came out is a copy that went in, unchanged: key, value, headers in their order with nulls, timestamp;
//! 3. it is the copy on the position that owns the event's claim, and lies in the partition where it belongs;
//! 4. the copies of one input partition kept their order in each output partition;
//! 5. claims and output agree, claim for event and event for claim, and nothing is left unsettled;
//! 6. both groups stand at the end of every input partition;
//! 7. what could not be claimed is in the dead letters, once, with what it was made of.
//!
//! Everything here is a pure function of [`Evidence`], so that faults can be seeded into it and seen to be found:
//! `tests/protocol/seeded_faults.rs` has one row for each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use semel::protocol::event::EventId;

use super::generator::{COPY, EVENT_ID, Header, Message};

mod claims;
mod finding;
mod forwarded;
pub mod murmur2;
mod offsets;

pub use finding::{Finding, Part};

/// A record as it lies in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    pub timestamp: Option<i64>,
}

impl Record {
    /// The number of the copy, if it has exactly one.
    pub fn copy(&self) -> Option<u64> {
        let mut all = self.headers.iter().filter(|(name, _)| name == COPY);
        let (_, value) = all.next()?;
        std::str::from_utf8(value.as_deref()?).ok()?.parse().ok()
    }

    /// The event's id as it is stored, if it has one.
    pub fn event(&self) -> Option<EventId> {
        let (_, value) = self.headers.iter().rfind(|(name, _)| name == EVENT_ID)?;
        EventId::encode(value.as_deref()?).ok()
    }
}

/// One partition's log, whole, by a read_committed reader.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub topic: String,
    /// Counts up when a topic is deleted and made again under its name.
    pub generation: u32,
    pub partition: i32,
    pub records: Vec<Record>,
    /// Next offset to be written, and next to be read by a read_committed reader: apart while a transaction is open.
    pub end: i64,
    pub stable_end: i64,
}

/// A place in the input: where a copy lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub topic: String,
    pub generation: u32,
    pub partition: i32,
    pub offset: i64,
}

/// A row of `processed_kafka_events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub event: EventId,
    pub week: String,
    pub lane: Option<i64>,
    pub position: Option<i64>,
    pub topic: String,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
}

/// What both groups have committed for one input partition, and the lane that the store has open for it.
#[derive(Debug, Clone)]
pub struct Offsets {
    pub topic: String,
    pub partition: i32,
    pub committed: Option<i64>,
    /// Offset and metadata.
    pub settled: Option<(i64, String)>,
    pub open_lane: Option<i64>,
    pub end: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioning {
    /// By the key, like Java's client; records without a key may go anywhere.
    Murmur2,
    /// The number of the input partition.
    Same,
}

/// A part of an input log that an operator or retention took away before it was read.
#[derive(Debug, Clone)]
pub struct Skipped {
    pub topic: String,
    pub generation: u32,
    pub partition: i32,
    pub from: i64,
    pub to: i64,
    /// Whether claims of it may have stood unsettled: then another copy may have been dropped against one of them.
    pub unsettled: bool,
}

/// What of the promise does not hold in a scenario, because of what was done to Semel in it.
#[derive(Debug, Clone, Default)]
pub struct Excused {
    pub skipped: Vec<Skipped>,
    /// A rewind repeats dead letters.
    pub dead_letters_repeat: bool,
}

#[derive(Debug, Clone)]
pub struct Evidence {
    pub partitioning: Partitioning,
    /// What the generator remembers. Empty: the input is taken as it lies in the topic.
    pub sent: Vec<Message>,
    /// One log for every topic, generation and partition.
    pub input: Vec<Log>,
    pub output: Vec<Log>,
    pub dead: Vec<Log>,
    pub claims: Vec<Claim>,
    /// One for each partition of the input as it is now.
    pub offsets: Vec<Offsets>,
    pub excused: Excused,
}

/// What the judgement of a run says.
pub struct Report {
    pub sent: usize,
    pub distinct: usize,
    pub forwarded: usize,
    pub dead: usize,
    pub findings: Vec<Finding>,
}

/// Everything that is wrong with a run; nothing, if it is right.
pub fn judge(evidence: &Evidence) -> Report {
    let input = Input::of(evidence);
    let mut findings = Vec::new();
    forwarded::sent_is_stored(evidence, &input, &mut findings);
    let outcome = forwarded::judge(evidence, &input, &mut findings);
    forwarded::dead_letters(evidence, &input, &mut findings);
    claims::judge(evidence, &input, &outcome, &mut findings);
    offsets::judge(evidence, &mut findings);
    Report {
        sent: evidence.input.iter().map(|log| log.records.len()).sum(),
        distinct: input.copies_of.len(),
        forwarded: evidence.output.iter().map(|log| log.records.len()).sum(),
        dead: evidence.dead.iter().map(|log| log.records.len()).sum(),
        findings,
    }
}

/// The input by copy and by event.
pub(super) struct Input<'a> {
    pub by_copy: HashMap<u64, (Place, &'a Record)>,
    pub copies_of: BTreeMap<EventId, Vec<u64>>,
    pub without_id: HashSet<u64>,
    /// Copies that lie twice in the input.
    pub stored_twice: Vec<u64>,
}

impl<'a> Input<'a> {
    fn of(evidence: &'a Evidence) -> Input<'a> {
        let mut input = Input {
            by_copy: HashMap::new(),
            copies_of: BTreeMap::new(),
            without_id: HashSet::new(),
            stored_twice: vec![],
        };
        for log in &evidence.input {
            for record in &log.records {
                let Some(copy) = record.copy() else { continue };
                let place = Place {
                    topic: log.topic.clone(),
                    generation: log.generation,
                    partition: log.partition,
                    offset: record.offset,
                };
                if input.by_copy.insert(copy, (place, record)).is_some() {
                    input.stored_twice.push(copy);
                    continue;
                }
                match record.event() {
                    Some(event) => input.copies_of.entry(event).or_default().push(copy),
                    None => drop(input.without_id.insert(copy)),
                }
            }
        }
        input
    }
}

impl Excused {
    fn skipped(&self, place: &Place) -> Option<&Skipped> {
        self.skipped.iter().find(|span| {
            span.topic == place.topic
                && span.generation == place.generation
                && span.partition == place.partition
                && (span.from..span.to).contains(&place.offset)
        })
    }
}

impl Report {
    /// Fails the test where anything is wrong.
    pub fn assert_clean(&self, what: &str) {
        println!("{what}: {self}");
        assert!(self.findings.is_empty(), "{what}: {self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, distinct, forwarded, dead) = (self.sent, self.distinct, self.forwarded, self.dead);
        write!(f, "{sent} sent, {distinct} distinct, {forwarded} forwarded, {dead} dead letters, ")?;
        write!(f, "{} findings", self.findings.len())?;
        let mut kinds: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
        for finding in &self.findings {
            kinds.entry(finding.kind()).or_default().push(finding);
        }
        for (kind, findings) in kinds {
            write!(f, "\n  {} × {kind}", findings.len())?;
            for finding in findings.iter().take(5) {
                write!(f, "\n    {finding:?}")?;
            }
        }
        Ok(())
    }
}
