//! Kafka as a sink: one transactional producer, driven by one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header as KafkaHeader, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;

use super::Destination;
use crate::kafka::client::{ClusterOptions, Context};
use crate::kafka::native::{self, Membership, NativeError, Outgoing, TopicHandle};
use crate::kafka::transaction::{self, TransactionError};
use crate::message::Message;

#[derive(Debug, Clone)]
pub struct KafkaSinkOptions {
    pub cluster: ClusterOptions,
    /// Of the pipeline, the instance and the worker: stable over restarts, different between live processes.
    pub transactional_id: String,
    pub transaction_timeout: Duration,
    /// Largest record that any of the topics takes, and the smallest such bound among them, in bytes.
    pub record_bytes_max: usize,
    pub batch_bytes_max: usize,
}

impl KafkaSinkOptions {
    /// What the producer is told.
    pub fn producer(&self) -> ClientConfig {
        let mut config = self.cluster.config();
        config
            .set("transactional.id", &self.transactional_id)
            .set("transaction.timeout.ms", self.transaction_timeout.as_millis().to_string())
            .set("message.timeout.ms", self.transaction_timeout.as_millis().to_string())
            .set("message.max.bytes", self.record_bytes_max.to_string())
            .set("batch.size", self.batch_bytes_max.to_string())
            .set("partitioner", "murmur2_random")
            .set("delivery.report.only.error", "true")
            .set("retry.backoff.ms", "5")
            .set("retry.backoff.max.ms", "100");
        for (name, value) in [("linger.ms", "0"), ("queue.buffering.max.messages", "100000")] {
            if !self.cluster.properties.contains_key(name) {
                config.set(name, value);
            }
        }
        config
    }
}

/// Names of the topics that a sink writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    pub forward: String,
    pub dead_letter: Option<String>,
    pub duplicates: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("cannot make a kafka client")]
    Client(#[source] KafkaError),
    #[error("the topic {topic} cannot be used")]
    Topic { topic: String, source: NativeError },
    /// These records, by their numbers, were refused for what they are; the transaction has to be aborted.
    #[error("{} records were refused by the sink, the first of them with {:?}", .0.len(), .0.first())]
    Refused(Vec<(usize, RDKafkaErrorCode)>),
    #[error("there is no topic for this destination")]
    NoTopic,
    #[error(transparent)]
    Transaction(#[from] TransactionError),
}

/// Registers a transactional id and lets it go, to see that this client may. Fences whoever uses the id.
pub fn probe(
    cluster: &ClusterOptions,
    transactional_id: &str,
    transaction_timeout: Duration,
    patience: Duration,
) -> Result<(), SinkError> {
    let mut config = cluster.config();
    config
        .set("transactional.id", transactional_id)
        .set("transaction.timeout.ms", transaction_timeout.as_millis().to_string())
        .set("message.timeout.ms", transaction_timeout.as_millis().to_string());
    let producer: BaseProducer<Context> =
        config.create_with_context(cluster.context("operator")).map_err(SinkError::Client)?;
    Ok(transaction::initialise(&producer, patience)?)
}

/// How long deliveries are left alone before they are looked at again.
const STEP: Duration = Duration::from_millis(5);

pub struct KafkaSink {
    // Before the producer, which they hold on to.
    forward: TopicHandle,
    dead_letter: Option<TopicHandle>,
    duplicates: Option<TopicHandle>,
    producer: Arc<BaseProducer<Context>>,
    timeout: Duration,
    begun: Option<Instant>,
}

impl KafkaSink {
    /// Makes the producer and initialises its transactional id: an earlier holder of the id is fenced, and what it left
    /// open is over when this returns. Takes up to `patience`.
    pub fn new(options: &KafkaSinkOptions, topics: &Topics, patience: Duration) -> Result<KafkaSink, SinkError> {
        let producer: BaseProducer<Context> =
            options.producer().create_with_context(options.cluster.context("sink")).map_err(SinkError::Client)?;
        let producer = Arc::new(producer);
        let handle = |topic: &str| {
            let opened = TopicHandle::new(&producer, topic);
            opened.map_err(|source| SinkError::Topic { topic: topic.to_owned(), source })
        };
        let forward = handle(&topics.forward)?;
        let dead_letter = topics.dead_letter.as_deref().map(handle).transpose()?;
        let duplicates = topics.duplicates.as_deref().map(handle).transpose()?;
        transaction::initialise(&producer, patience)?;
        let timeout = options.transaction_timeout;
        Ok(KafkaSink { forward, dead_letter, duplicates, producer, timeout, begun: None })
    }

    pub fn begin(&mut self) -> Result<(), SinkError> {
        self.producer.client().context().take_failed();
        transaction::begin(&self.producer)?;
        self.begun = Some(Instant::now());
        Ok(())
    }

    /// Whether the open transaction is older than the coordinator lets it grow: then a fence is the coordinator's doing
    /// and not another producer's.
    pub fn outlived_its_time(&self) -> bool {
        self.begun.is_some_and(|begun| begun.elapsed() >= self.timeout)
    }

    /// Queues one record. Waits while the queue is full.
    pub fn send(&self, destination: Destination, outgoing: &mut Outgoing<'_>) -> Result<(), SinkError> {
        let topic = self.topic(destination)?;
        self.queue(outgoing.number, || native::produce(&self.producer, topic, outgoing))
    }

    /// Queues one message of another kind of source, with these headers. Waits while the queue is full. `number`: the
    /// sender's own, returned with a failed delivery.
    pub fn send_message(
        &self,
        destination: Destination,
        message: &Message,
        headers: &[(&str, Option<&[u8]>)],
        number: usize,
    ) -> Result<(), SinkError> {
        let topic = self.topic(destination)?;
        self.queue(number, || {
            let headers = headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |list, (key, value)| {
                list.insert(KafkaHeader { key, value: *value })
            });
            let mut record = BaseRecord::with_opaque_to(topic.name(), number).headers(headers);
            record.key = message.key.as_deref();
            record.payload = message.value.as_deref();
            record.timestamp = message.timestamp_millis;
            self.producer.send(record).map_err(|(error, _)| NativeError::of_client(&error))
        })
    }

    fn topic(&self, destination: Destination) -> Result<&TopicHandle, SinkError> {
        match destination {
            Destination::Forward => Some(&self.forward),
            Destination::DeadLetter => self.dead_letter.as_ref(),
            Destination::Duplicates => self.duplicates.as_ref(),
        }
        .ok_or(SinkError::NoTopic)
    }

    fn queue(&self, number: usize, mut produce: impl FnMut() -> Result<(), NativeError>) -> Result<(), SinkError> {
        let until = Instant::now() + self.timeout;
        loop {
            match produce() {
                Ok(()) => return Ok(()),
                Err(error) if error.code == RDKafkaErrorCode::QueueFull && Instant::now() < until => {
                    if self.producer.in_flight_count() == 0 {
                        // Nothing to wait for: the record alone is more than the client's queue takes.
                        std::thread::sleep(STEP);
                    }
                    native::wait_for_deliveries(&self.producer, Duration::from_millis(1));
                    self.producer.poll(Duration::ZERO);
                    if let Some(failure) = self.failure() {
                        return Err(failure);
                    }
                }
                Err(error) if is_about_the_record(error.code) => {
                    return Err(SinkError::Refused(vec![(number, error.code)]));
                }
                Err(error) => {
                    return Err(self.failure_soon().unwrap_or_else(|| TransactionError::of_produce(error).into()));
                }
            }
        }
    }

    /// Waits until everything queued is delivered, in steps of [`STEP`] rather than the crate's hundred milliseconds. The
    /// wait is the client's own: it sends what lingers at once, and a poll of a millisecond would spend it busy.
    pub fn flush(&self) -> Result<(), SinkError> {
        let until = Instant::now() + self.timeout;
        loop {
            // At the first failure: the client keeps back what is queued behind it, and only its time would end that.
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if self.producer.in_flight_count() == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                let late = undelivered(RDKafkaErrorCode::MessageTimedOut, "records were not delivered in time");
                return Err(TransactionError::Abort(late).into());
            }
            native::wait_for_deliveries(&self.producer, STEP);
            self.producer.poll(Duration::ZERO);
        }
    }

    /// What the failed deliveries come to that were reported so far. What an abort threw away may be reported late, and
    /// is no failure.
    fn failure(&self) -> Option<SinkError> {
        let mut failed = self.producer.client().context().take_failed();
        if !failed.is_empty() {
            // Each poll takes one report, of one batch: all that are there are judged together.
            self.producer.poll(Duration::from_millis(1));
            failed.extend(self.producer.client().context().take_failed());
        }
        failed.retain(|(_, code)| !matches!(code, RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight));
        let &(_, code) = failed.first()?;
        let refused: Vec<_> = failed.into_iter().filter(|(_, code)| is_about_the_record(*code)).collect();
        if refused.is_empty() {
            return Some(TransactionError::of_produce(undelivered(code, "a record was not delivered")).into());
        }
        Some(SinkError::Refused(refused))
    }

    /// Why the client takes no more records of this transaction, where a failed delivery is the reason: its report comes
    /// a moment after.
    fn failure_soon(&self) -> Option<SinkError> {
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            self.producer.poll(Duration::ZERO);
            if let Some(failure) = self.failure() {
                return Some(failure);
            }
            std::thread::sleep(STEP);
        }
        None
    }

    pub fn send_offsets(&self, offsets: &TopicPartitionList, membership: &Membership) -> Result<(), SinkError> {
        Ok(transaction::send_offsets(&self.producer, offsets, membership, self.timeout)?)
    }

    pub fn commit(&mut self) -> Result<(), SinkError> {
        transaction::commit(&self.producer, self.timeout + Duration::from_secs(5))?;
        self.begun = None;
        Ok(())
    }

    /// `Ok`: nothing of the transaction is or will be visible.
    pub fn abort(&mut self) -> Result<(), SinkError> {
        transaction::abort(&self.producer, self.timeout)?;
        self.begun = None;
        Ok(())
    }

    /// Serves callbacks while there is nothing to send.
    pub fn poll(&self) {
        self.producer.poll(Duration::ZERO);
    }
}

fn undelivered(code: RDKafkaErrorCode, text: &str) -> NativeError {
    NativeError { code, text: text.to_owned(), retriable: false, fatal: false, requires_abort: true }
}

/// The broker or the client refused the record for what it is: sending it again is useless.
fn is_about_the_record(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{
        InvalidMessage, InvalidMessageSize, InvalidRecord, InvalidTimestamp, MessageSizeTooLarge, UnknownPartition,
    };
    matches!(
        code,
        MessageSizeTooLarge | InvalidMessageSize | InvalidRecord | InvalidTimestamp | InvalidMessage | UnknownPartition
    )
}
