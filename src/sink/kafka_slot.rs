//! Kafka as the sink of an instance's slot: each window is one transaction of its messages and of the slot's truth.
//!
//! The truth is an offset of the slot's own group, which nobody joins, on partition 0 of the forward topic (an offset for
//! a partition that does not exist hangs): how far the open lane is published, and in its metadata which lane that is and
//! where the one before it left off ([`Mark`]). It moves in the transaction of the messages that it speaks of, so that
//! after any fault it says which windows were published, to the last one.
//!
//! There is one transactional id per slot. Whoever initialises it ends whatever the run before it left open, and fences
//! that run for good; so the truth is read after that, never before ([`crate::protocol::slot`]).
//!
//! Every call blocks, for up to the transaction's time limit and five seconds: none of them belongs on a runtime's
//! worker.

use std::time::Duration;

use rdkafka::consumer::BaseConsumer;
use rdkafka::{Offset, TopicPartitionList};

use super::Outgoing;
use super::kafka::{KafkaSink, KafkaSinkOptions, SinkError, Topics};
use crate::kafka::client::Context;
use crate::kafka::native::{self, Membership, NativeError};
use crate::protocol::lane::{Mark, Position, TopicId};

/// Carries the idempotency key. A message that comes round again has the one from the last time: it is replaced.
pub const IDEMPOTENCY_KEY: &str = "semel-idempotency-key";

/// Where the truth is kept.
const PARTITION: i32 = 0;

#[derive(Debug, Clone)]
pub struct SlotSinkOptions {
    /// Its transactional id is the slot's.
    pub kafka: KafkaSinkOptions,
    pub topics: Topics,
    /// The slot's group. Operators do not touch it.
    pub group: String,
}

/// An offset of the slot's group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub position: Position,
    /// None where something else than Semel committed it.
    pub mark: Option<Mark>,
}

pub struct SlotSink {
    sink: KafkaSink,
    /// Never subscribes; `read_committed` makes its fetch of offsets stable.
    offsets: BaseConsumer<Context>,
    group: Membership,
    topic: String,
    topic_id: TopicId,
}

impl SlotSink {
    /// Initialises the slot's transactional id: the run before is fenced, and what it left open is over, one way or the
    /// other. Takes up to `patience`, and as much for the topic's id.
    pub fn new(options: &SlotSinkOptions, patience: Duration) -> Result<SlotSink, SinkError> {
        let SlotSinkOptions { kafka, topics, group } = options;
        let mut config = kafka.cluster.config();
        config.set("group.id", group).set("enable.auto.commit", "false").set("isolation.level", "read_committed");
        let offsets: BaseConsumer<Context> =
            config.create_with_context(kafka.cluster.context("settled")).map_err(SinkError::Client)?;
        let topic = topics.forward.clone();
        let of_topic = |source| SinkError::Topic { topic: topic.clone(), source };
        let ids = native::topic_ids(&offsets, std::slice::from_ref(&topic), patience).map_err(of_topic)?;
        let topic_id = ids.into_iter().next().ok_or_else(|| SinkError::NoTopic)?;
        let group = Membership::without_members(group).ok_or(SinkError::NoTopic)?;
        let sink = KafkaSink::new(kafka, topics, patience)?;
        Ok(SlotSink { sink, offsets, group, topic, topic_id })
    }

    pub fn topic_id(&self) -> &TopicId {
        &self.topic_id
    }

    /// The truth, once no transaction is open on it any more. None: the slot has none yet, or it has expired.
    pub fn truth(&self, timeout: Duration) -> Result<Option<Settled>, NativeError> {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, PARTITION);
        let fetched = native::committed(&self.offsets, &list, timeout)?;
        Ok(fetched
            .into_iter()
            .find_map(|one| Some(Settled { position: one.offset?, mark: Mark::decode(&one.metadata) })))
    }

    /// One transaction: these messages, and the truth. `Ok`: it is known to have committed. On
    /// [`SinkError::Transaction`] and [`SinkError::Refused`] see [`SlotSink::abort`]; after an unknown outcome or a fence
    /// this is to be dropped, and the slot taken anew.
    pub fn commit(&mut self, messages: &[Outgoing], position: Position, mark: &Mark) -> Result<(), SinkError> {
        self.sink.begin()?;
        for (number, outgoing) in messages.iter().enumerate() {
            self.sink.send_message(outgoing.destination, &outgoing.message, &headers(outgoing), number)?;
        }
        self.sink.flush()?;
        let mut offsets = TopicPartitionList::new();
        // Only a negative number could be refused.
        offsets.add_partition_offset(&self.topic, PARTITION, Offset::Offset(position)).map_err(SinkError::Client)?;
        if let Some(mut element) = offsets.find_partition(&self.topic, PARTITION) {
            element.set_metadata(mark.encode());
        }
        self.sink.send_offsets(&offsets, &self.group)?;
        self.sink.commit()
    }

    /// `Ok`: nothing of the transaction is or will be visible.
    pub fn abort(&mut self) -> Result<(), SinkError> {
        self.sink.abort()
    }

    /// What one message takes, as a broker counts it, at most.
    pub fn size(outgoing: &Outgoing) -> usize {
        let headers = headers(outgoing);
        let of_headers = headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 10);
        let of = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
        of(&outgoing.message.key) + of(&outgoing.message.value) + of_headers.sum::<usize>() + 128
    }

    /// Serves callbacks while there is nothing to send: tokens are refreshed only so.
    pub fn poll(&self) {
        self.sink.poll();
        self.offsets.poll(Duration::ZERO);
    }
}

/// The message's own headers, AMQP's properties where no header has their name, and the idempotency key.
fn headers(outgoing: &Outgoing) -> Vec<(&str, Option<&[u8]>)> {
    let Outgoing { message, idempotency_key, .. } = outgoing;
    let own = message.headers.iter().filter(|header| &*header.name != IDEMPOTENCY_KEY);
    let mut headers: Vec<(&str, Option<&[u8]>)> = own.map(|header| (&*header.name, header.value.as_deref())).collect();
    for (name, value) in message.properties() {
        if headers.iter().all(|(known, _)| *known != name) {
            headers.push((name, Some(value)));
        }
    }
    headers.extend(idempotency_key.as_deref().map(|key| (IDEMPOTENCY_KEY, Some(key.as_bytes()))));
    headers
}
