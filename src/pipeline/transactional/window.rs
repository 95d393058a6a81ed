//! A window on its way through the worker's three threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;

use crate::kafka::TopicPartition;
use crate::kafka::native::{Membership, Record};
use crate::key::Key;
use crate::pipeline::causes::Cause;
use crate::protocol::lane::{LaneId, Mark, Position};
use crate::store::Refused;

/// What the threads hand on. All of it keeps its order, so a barrier that came back has swept everything before it.
pub enum Job<W> {
    Window(W),
    /// Answered by the last thread.
    Barrier(Sender<()>),
    /// Rule 7 (b), done by the thread that owns the producer.
    NewLanes(NewLanes),
}

/// Messages as they were read, with the membership that was captured before the first of them was polled.
pub struct Raw {
    pub epoch: u64,
    pub membership: Arc<Membership>,
    pub records: Vec<(TopicPartition, Record)>,
    /// One per record.
    pub names: Vec<Name>,
    /// The records that have a key, ascending by it, repeats in the order in which they were read: see [`Raw::seal`].
    pub order: Vec<usize>,
    /// How many names `order` knows.
    pub sealed: usize,
    pub bytes: usize,
    /// Per partition the position after everything that was read, records or not: what the window commits.
    pub next: BTreeMap<TopicPartition, Position>,
    pub opened: Instant,
}

impl Raw {
    /// Sorts by key, so that the claimer, which waits for the store most of the time, has less to do in between: the reader
    /// calls it before it hands over, the claimer once more. Costs nothing where nothing was added since.
    pub fn seal(&mut self) {
        let keyed = |n: &usize| matches!(self.names[*n], Name::Key(..));
        if !self.order.is_empty() && self.sealed == self.names.len() {
            return;
        }
        self.order = (0..self.names.len()).filter(keyed).collect();
        let key = |n: usize| match &self.names[n] {
            Name::Key(key, _) => Some((&key.event_id, key.week)),
            Name::Fate(_) | Name::Stop { .. } => None,
        };
        self.order.sort_unstable_by(|&a, &b| key(a).cmp(&key(b)).then(a.cmp(&b)));
        self.sealed = self.names.len();
    }
}

/// What a message is called, found as it is read.
pub enum Name {
    /// The key, and what stands for it in memory.
    Key(Key, u128),
    /// What becomes of it without a claim.
    Fate(Fate),
    /// A policy wants the pipeline to stop at it.
    Stop { cause: Cause, detail: String },
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Forward,
    Drop,
    /// On to the sink although it is a duplicate, marked.
    ForwardDuplicate,
    /// To the topic of the duplicates.
    RouteDuplicate,
    ForwardUnclaimed(Cause),
    DeadLetter {
        cause: Cause,
        detail: String,
    },
}

/// A window whose claims are made and judged.
pub struct Judged {
    pub raw: Raw,
    /// One per record.
    pub fates: Vec<Fate>,
    /// The lane of each partition that the window commits.
    pub lanes: BTreeMap<TopicPartition, LaneId>,
    pub duplicates: usize,
    /// Digests of the keys that are settled once the window has committed.
    pub known: Vec<u128>,
    /// Claims to delete after the commit: their records go out as dead letters in this window.
    pub to_forget: Vec<Refused>,
}

/// A record that the sink refused although it was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecord {
    pub place: TopicPartition,
    pub offset: i64,
    pub reason: String,
    /// Its dead letter was refused too, with its value.
    pub without_value: bool,
}

impl RefusedRecord {
    pub fn is(&self, place: TopicPartition, record: &Record) -> bool {
        self.place == place && self.offset == record.offset()
    }
}

/// Start positions to commit to both groups, in a transaction without records: of new lanes, and of lanes that go on after
/// an assignment.
pub struct NewLanes {
    pub membership: Arc<Membership>,
    pub lanes: Vec<(TopicPartition, Position, Mark)>,
    pub answer: Sender<Result<(), NotCommitted>>,
}

/// Why the transaction of [`NewLanes`] is not known to have committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotCommitted {
    /// Fetch the offsets again and decide anew.
    Again(String),
    /// The membership does not count any more.
    NotAMember(String),
}
