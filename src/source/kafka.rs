//! Kafka as a source: one member of a consumer group, and the group of the settled offsets beside it.
//!
//! The client never assigns, commits or resets anything by itself. Offers and revocations of partitions come out of
//! [`KafkaSource::poll`] as events; librdkafka waits until they are answered by [`KafkaSource::assign`] or
//! [`KafkaSource::unassign`], which is how the pipeline gets to take its tokens and offsets before the first fetch, and
//! to abort its window before the revocation is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use crate::kafka::TopicPartition;
use crate::kafka::client::{ClusterOptions, Context};
use crate::kafka::native::{self, Committed, Event, Membership, NativeError, Queue};
use crate::protocol::lane::{Mark, Position, TopicId};
use crate::protocol::start::Settled;

#[derive(Debug, Clone)]
pub struct KafkaSourceOptions {
    pub cluster: ClusterOptions,
    pub topics: Vec<String>,
    pub group: String,
    pub assignment: Assignment,
    pub session_timeout: Duration,
    /// Bound of what librdkafka fetches ahead, in KiB.
    pub fetch_ahead_kib: u32,
}

impl KafkaSourceOptions {
    /// The group that holds the settled offsets. Operators do not touch it.
    pub fn settled_group(&self) -> String {
        format!("{}.settled", self.group)
    }

    /// What the consumer is told.
    pub fn consumer(&self) -> ClientConfig {
        let mut config = self.cluster.config();
        config
            .set("group.id", &self.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("enable.partition.eof", "true")
            .set("session.timeout.ms", self.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (self.session_timeout.as_millis() / 4).to_string())
            .set("queued.max.messages.kbytes", self.fetch_ahead_kib.to_string())
            .set(
                "partition.assignment.strategy",
                match self.assignment {
                    Assignment::Eager => "range",
                    Assignment::Cooperative => "cooperative-sticky",
                },
            );
        // How long the client leaves a full queue alone: its own default of a second starves a fast reader.
        if !self.cluster.properties.contains_key("fetch.queue.backoff.ms") {
            config.set("fetch.queue.backoff.ms", "10");
        }
        config
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// The range assignor: a rebalance takes every partition away and offers anew.
    Eager,
    /// The cooperative-sticky assignor: only what moves is taken away.
    Cooperative,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot make a kafka client")]
    Client(#[source] KafkaError),
    #[error("kafka does not answer in time about {what}")]
    Ask { what: String, source: Box<dyn std::error::Error + Send + Sync> },
}

fn ask<E: Into<Box<dyn std::error::Error + Send + Sync>>>(what: impl Into<String>) -> impl FnOnce(E) -> SourceError {
    move |error| SourceError::Ask { what: what.into(), source: error.into() }
}

/// As [`ask`], of offsets that are told only once no transaction is pending on them.
fn stable(what: &str) -> impl FnOnce(NativeError) -> SourceError {
    ask(format!(
        "{what} (it waits for transactions that are open on them; one that does not end is found with \
         kafka-transactions.sh find-hanging)"
    ))
}

/// What the brokers say of a partition at an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offsets {
    pub committed: Option<Position>,
    pub settled: Option<Settled>,
    pub log_start: Position,
    pub log_end: Position,
}

pub struct KafkaSource {
    queue: Queue,
    consumer: Arc<BaseConsumer<Context>>,
    /// Never subscribes; `read_committed` makes its fetch of offsets stable. None where the store knows what is settled.
    settled: Option<BaseConsumer<Context>>,
    topics: Vec<String>,
}

impl KafkaSource {
    /// Makes the clients. Connects in the background; nothing is subscribed to yet.
    pub fn new(options: &KafkaSourceOptions) -> Result<KafkaSource, SourceError> {
        let source = KafkaSource::without_settled(options)?;
        let mut config = options.cluster.config();
        config
            .set("group.id", options.settled_group())
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed");
        let settled = config.create_with_context(options.cluster.context("settled")).map_err(SourceError::Client)?;
        Ok(KafkaSource { settled: Some(settled), ..source })
    }

    /// The same without the settled group, where the store knows what is settled.
    pub fn without_settled(options: &KafkaSourceOptions) -> Result<KafkaSource, SourceError> {
        let consumer: BaseConsumer<Context> =
            options.consumer().create_with_context(options.cluster.context("source")).map_err(SourceError::Client)?;
        let consumer = Arc::new(consumer);
        let queue = Queue::of(Arc::clone(&consumer))
            .ok_or_else(|| SourceError::Client(KafkaError::ClientCreation("no consumer queue".to_owned())))?;
        Ok(KafkaSource { queue, consumer, settled: None, topics: options.topics.clone() })
    }

    pub fn subscribe(&self) -> Result<(), SourceError> {
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(ask("the subscription"))
    }

    pub fn poll(&self, timeout: Duration) -> Option<Event> {
        self.queue.poll(timeout)
    }

    /// Serves the settled group's client: its tokens are refreshed only so.
    pub fn poll_settled(&self) {
        if let Some(settled) = &self.settled {
            settled.poll(Duration::ZERO);
        }
    }

    /// The membership now, None outside of a group.
    pub fn membership(&self) -> Option<Membership> {
        Membership::of(&self.consumer)
    }

    pub fn topic_name(&self, topic: u16) -> &str {
        &self.topics[usize::from(topic)]
    }

    /// None for a topic that the pipeline does not read.
    pub fn place(&self, topic: &str, partition: i32) -> Option<TopicPartition> {
        let index = self.topics.iter().position(|name| name == topic)?;
        Some(TopicPartition { topic: index as u16, partition })
    }

    pub fn places(&self, list: &TopicPartitionList) -> Vec<TopicPartition> {
        let mut places: Vec<_> =
            list.elements().iter().filter_map(|element| self.place(element.topic(), element.partition())).collect();
        places.sort_unstable();
        places
    }

    pub fn cluster_id(&self, timeout: Duration) -> Result<String, SourceError> {
        let id = self.consumer.client().fetch_cluster_id(timeout);
        id.ok_or_else(|| ask("the cluster's id")("no answer"))
    }

    /// Ids of all topics, in the order of the configuration.
    pub fn topic_ids(&self, timeout: Duration) -> Result<Vec<TopicId>, NativeError> {
        native::topic_ids(&self.consumer, &self.topics, timeout)
    }

    /// How many partitions a topic has.
    pub fn partition_count(&self, topic: u16, timeout: Duration) -> Result<i32, SourceError> {
        let name = self.topic_name(topic);
        let metadata = self.consumer.fetch_metadata(Some(name), timeout).map_err(ask(name))?;
        Ok(metadata
            .topics()
            .iter()
            .find(|found| found.name() == name)
            .map_or(0, |found| found.partitions().len() as i32))
    }

    /// Committed, settled and the log's ends, in this order of fetching: the group's own offset first, then the
    /// settled one. The other order doubles.
    pub fn offsets(
        &self,
        places: &[TopicPartition],
        timeout: Duration,
    ) -> Result<BTreeMap<TopicPartition, Offsets>, SourceError> {
        let list = self.list(places.iter().map(|place| (*place, None)));
        let committed = native::committed(&self.consumer, &list, timeout).map_err(stable("the group's offsets"))?;
        let settled = match &self.settled {
            Some(settled) => native::committed(settled, &list, timeout).map_err(stable("the settled offsets"))?,
            None => Vec::new(),
        };
        let by_place = |fetched: Vec<Committed>| -> BTreeMap<TopicPartition, Committed> {
            fetched.into_iter().filter_map(|one| Some((self.place(&one.topic, one.partition)?, one))).collect()
        };
        let (mut committed, mut settled) = (by_place(committed), by_place(settled));
        places
            .iter()
            .map(|place| {
                let name = self.topic_name(place.topic);
                let ends = self.consumer.fetch_watermarks(name, place.partition, timeout);
                let (log_start, log_end) = ends.map_err(ask(format!("the log of {name}/{}", place.partition)))?;
                let settled = settled
                    .remove(place)
                    .and_then(|one| Some(Settled { position: one.offset?, mark: Mark::decode(&one.metadata) }));
                let committed = committed.remove(place).and_then(|one| one.offset);
                Ok((*place, Offsets { committed, settled, log_start, log_end }))
            })
            .collect()
    }

    /// Whether the group has an offset on any partition of the topic.
    pub fn group_knows(&self, topic: u16, timeout: Duration) -> Result<bool, SourceError> {
        let count = self.partition_count(topic, timeout)?;
        let list = self.list((0..count).map(|partition| (TopicPartition { topic, partition }, None)));
        let fetched = native::committed(&self.consumer, &list, timeout).map_err(ask("the group's offsets"))?;
        Ok(fetched.iter().any(|one| one.offset.is_some()))
    }

    /// Answers an offer: read these partitions from these positions.
    pub fn assign(&self, positions: &[(TopicPartition, Position)]) -> Result<(), SourceError> {
        let list = self.list(positions.iter().map(|(place, position)| (*place, Some(*position))));
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_assign(&list),
            _ => self.consumer.assign(&list),
        }
        .map_err(ask("the assignment"))
    }

    /// Answers a revocation.
    pub fn unassign(&self, places: &[TopicPartition]) -> Result<(), SourceError> {
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => {
                self.consumer.incremental_unassign(&self.list(places.iter().map(|place| (*place, None))))
            }
            _ => self.consumer.unassign(),
        }
        .map_err(ask("the assignment"))
    }

    /// Reads assigned partitions again from these positions; what was fetched before is thrown away by the client.
    pub fn seek(&self, positions: &[(TopicPartition, Position)], timeout: Duration) -> Result<(), SourceError> {
        let list = self.list(positions.iter().map(|(place, position)| (*place, Some(*position))));
        let sought = self.consumer.seek_partitions(list, timeout).map_err(ask("a seek"))?;
        for element in sought.elements() {
            element.error().map_err(ask(format!("a seek of {}/{}", element.topic(), element.partition())))?;
        }
        Ok(())
    }

    /// Fetches nothing more, but keeps the membership while it is polled.
    pub fn pause(&self, places: &[TopicPartition]) -> Result<(), SourceError> {
        self.consumer.pause(&self.list(places.iter().map(|place| (*place, None)))).map_err(ask("a pause"))
    }

    pub fn resume(&self, places: &[TopicPartition]) -> Result<(), SourceError> {
        self.consumer.resume(&self.list(places.iter().map(|place| (*place, None)))).map_err(ask("a resumption"))
    }

    /// Commits offsets of the group, outside of any transaction. Waits for the answer, for a session's time if the group
    /// cannot be reached, or does not: what then fails is not told.
    pub fn commit(&self, positions: &[(TopicPartition, Position)], waits: bool) -> Result<(), SourceError> {
        let list = self.list(positions.iter().map(|(place, position)| (*place, Some(*position))));
        let mode = if waits { CommitMode::Sync } else { CommitMode::Async };
        self.consumer.commit(&list, mode).map_err(ask("a commit of the group's offsets"))
    }

    /// The client's latest knowledge of where the log ends; no round trip.
    pub fn known_end(&self, place: TopicPartition) -> Option<Position> {
        native::known_end(&self.consumer, self.topic_name(place.topic), place.partition)
    }

    fn list(&self, places: impl Iterator<Item = (TopicPartition, Option<Position>)>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for (place, position) in places {
            let name = self.topic_name(place.topic);
            match position {
                None => {
                    list.add_partition(name, place.partition);
                }
                // Only a negative number could be refused, and positions come from the brokers.
                Some(position) => list
                    .add_partition_offset(name, place.partition, Offset::Offset(position))
                    .unwrap_or_else(|error| tracing::error!(topic = name, %error, "a position was refused")),
            }
        }
        list
    }
}
