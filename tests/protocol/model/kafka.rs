//! Kafka: the log, the group's coordinator, the offsets of both groups, transactions.
//!
//! Of a transaction only what the protocol builds on is modelled: its records and offsets become visible together or
//! not at all; offsets that were sent to a group make that group's fetch unstable until the end; the generation is
//! checked when the group's own offsets are sent, and never for the settled group.

use std::sync::Arc;

use semel::protocol::lane::{Cut, LaneId, Mark, Position, StoreId, TopicId};

use super::variants::Rule;
use super::world::{EVENTS, PARTITIONS, Place, Places, Setup, World};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kafka {
    pub generation: u8,
    /// Which instance each partition is assigned to in this generation.
    pub assigned: [Option<usize>; PARTITIONS],
    /// 0, or 1 once the topic was deleted and made anew.
    pub topic: usize,
    pub partitions: [Partition; PARTITIONS],
    /// Transactions without a producer that could end them: each commits or aborts at any later time.
    pub loose: Vec<Transaction>,
    /// How often a read_committed reader finds each event, counted up to 2.
    pub published: [u8; EVENTS],
    /// Dead letters, and those that were written more than once.
    pub dead: Places,
    pub dead_again: Places,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Partition {
    pub log_start: Position,
    /// The offset of the group itself.
    pub committed: Option<Position>,
    /// The offset of the settled group.
    pub settled: Option<Offset>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset {
    pub position: Position,
    pub metadata: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transaction {
    pub topic: usize,
    /// Captured before the window was polled.
    pub generation: u8,
    /// The offset for both groups of each partition that it moves.
    pub offsets: [Option<Offset>; PARTITIONS],
    pub publishes: Places,
    pub dead: Places,
    pub sent_to_settled: bool,
    pub sent_to_group: bool,
    /// Partitions whose group offset was moved by an operator after ours was sent: ours no longer counts.
    pub overtaken: [bool; PARTITIONS],
    /// It carries a record that the broker refused: it can only abort.
    pub refused: bool,
}

impl Transaction {
    pub fn new(topic: usize, generation: u8) -> Transaction {
        Transaction {
            topic,
            generation,
            offsets: [const { None }; PARTITIONS],
            publishes: Places::default(),
            dead: Places::default(),
            sent_to_settled: false,
            sent_to_group: false,
            overtaken: [false; PARTITIONS],
            refused: false,
        }
    }

    /// Whether the broker holds something pending for it.
    pub fn is_begun(&self) -> bool {
        self.sent_to_settled || self.sent_to_group
    }

    pub fn may_commit(&self) -> bool {
        self.sent_to_settled && self.sent_to_group && !self.refused
    }
}

/// Whose offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Own,
    Settled,
}

impl Kafka {
    pub fn new() -> Kafka {
        Kafka {
            generation: 0,
            assigned: [None; PARTITIONS],
            topic: 0,
            partitions: Default::default(),
            loose: Vec::new(),
            published: [0; EVENTS],
            dead: Places::default(),
            dead_again: Places::default(),
        }
    }

    pub fn begin_lane(&mut self, partition: usize, lane: LaneId, store: u8) {
        let metadata = mark(store, 0, lane, None);
        let partition = &mut self.partitions[partition];
        partition.committed = Some(0);
        partition.settled = Some(Offset { position: 0, metadata });
    }

    /// The group's members agree anew on who reads what.
    pub fn rebalance(&mut self, assigned: [Option<usize>; PARTITIONS]) {
        self.generation += 1;
        self.assigned = assigned;
    }

    pub fn commit(&mut self, setup: &Setup, transaction: &Transaction) {
        for (partition, offset) in transaction.offsets.iter().enumerate() {
            let Some(offset) = offset else { continue };
            let partition_state = &mut self.partitions[partition];
            if !transaction.overtaken[partition] {
                partition_state.committed = Some(offset.position);
            }
            let ahead =
                |settled: &Offset| settled.position > offset.position && setup.drops(Rule::LanesNotSettledAlone);
            if !partition_state.settled.as_ref().is_some_and(ahead) {
                partition_state.settled = Some(offset.clone());
            }
        }
        for place in transaction.publishes.iter() {
            let published = &mut self.published[setup.event(transaction.topic, place)];
            *published = (*published + 1).min(2);
        }
        self.dead_again = self.dead_again.or(self.dead.and(transaction.dead));
        self.dead = self.dead.or(transaction.dead);
    }

    /// An operator sets the group's own offset, which Kafka allows while the group has no members.
    pub fn move_group(&mut self, partition: usize, to: Option<Position>) {
        self.rebalance([None; PARTITIONS]);
        self.partitions[partition].committed = to;
    }

    /// Whether the log still has this record.
    pub fn keeps(&self, place: Place) -> bool {
        place.offset >= self.partitions[place.partition].log_start
    }
}

impl World {
    /// Whether a stable fetch of this offset waits for the end of a transaction.
    pub fn unstable(&self, partition: usize, group: Group) -> bool {
        let open = self.instances.iter().filter_map(|instance| instance.transaction.as_ref());
        self.kafka.loose.iter().chain(open).any(|transaction| {
            transaction.offsets[partition].is_some()
                && match group {
                    Group::Settled => transaction.sent_to_settled,
                    Group::Own => transaction.sent_to_group && !transaction.overtaken[partition],
                }
        })
    }

    /// Marks the offsets that were sent before an operator's move.
    pub fn overtake(&mut self, partition: usize) {
        let open = self.instances.iter_mut().filter_map(|instance| instance.transaction.as_mut());
        for transaction in self.kafka.loose.iter_mut().chain(open) {
            if transaction.sent_to_group && transaction.offsets[partition].is_some() {
                transaction.overtaken[partition] = true;
            }
        }
    }
}

pub fn store_id(store: u8) -> StoreId {
    StoreId(store.to_string().into())
}

pub fn topic_id(topic: usize) -> TopicId {
    TopicId(topic.to_string().into())
}

/// The settled offset's metadata, as the broker keeps it.
pub fn mark(store: u8, topic: usize, lane: LaneId, cut: Option<Cut>) -> Arc<str> {
    Mark { store: store_id(store), topic: topic_id(topic), lane, cut }.encode().into()
}
