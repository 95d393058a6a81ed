//! Sends messages to Kafka and remembers them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};

use super::generator::Message;

/// Sends all, and returns when the broker has them all. Not paced where `rate` (messages/s) is none.
pub fn send(kafka: &str, topic: &str, messages: impl IntoIterator<Item = Message>, rate: Option<u32>) -> Vec<Message> {
    let mut sent = Vec::new();
    let messages = messages.into_iter().inspect(|message| sent.push(message.clone()));
    stream(kafka, topic, messages, rate, &Progress::default());
    sent
}

/// Sends in transactions of `size` messages, every third of which is aborted. Answers what was committed.
pub fn send_in_transactions(kafka: &str, topic: &str, messages: Vec<Message>, size: usize) -> Vec<Message> {
    let producer: BaseProducer<Failures> = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("transactional.id", topic)
        .create_with_context(Failures)
        .expect("a producer");
    let patience = Duration::from_secs(30);
    producer.init_transactions(patience).expect("transactions");
    let mut committed = Vec::new();
    for (n, part) in messages.chunks(size).enumerate() {
        producer.begin_transaction().expect("a transaction begins");
        part.iter().for_each(|message| enqueue(&producer, topic, message));
        producer.flush(patience).expect("the broker takes them");
        if n % 3 == 1 {
            producer.abort_transaction(patience).expect("an abort");
        } else {
            producer.commit_transaction(patience).expect("a commit");
            committed.extend_from_slice(part);
        }
    }
    committed
}

/// Sends messages each in a compressed batch of its own, as producers do whose large values fit a topic only so.
pub fn send_compressed(kafka: &str, topic: &str, messages: &[Message]) {
    let producer: BaseProducer<Failures> = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("compression.type", "gzip")
        .set("batch.num.messages", "1")
        .set("message.max.bytes", "20000000")
        .create_with_context(Failures)
        .expect("a producer");
    messages.iter().for_each(|message| enqueue(&producer, topic, message));
    producer.flush(Duration::from_secs(30)).expect("the broker takes them");
}

/// Sends all without remembering them; answers how many.
pub fn stream_all(kafka: &str, topic: &str, messages: impl IntoIterator<Item = Message>) -> u64 {
    let progress = Progress::default();
    stream(kafka, topic, messages, None, &progress);
    progress.sent.load(Ordering::SeqCst)
}

/// Messages that are being sent in the background.
pub struct Feed {
    thread: JoinHandle<Vec<Message>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    sent: AtomicU64,
    enough: AtomicBool,
}

impl Feed {
    pub fn start(kafka: &str, topic: &str, messages: Vec<Message>, rate: u32) -> Feed {
        let (kafka, topic) = (kafka.to_owned(), topic.to_owned());
        let progress = Arc::new(Progress::default());
        let told = Arc::clone(&progress);
        let thread = thread::spawn(move || {
            stream(&kafka, &topic, messages.iter().cloned(), Some(rate), &told);
            let sent = told.sent.load(Ordering::SeqCst) as usize;
            messages.into_iter().take(sent).collect()
        });
        Feed { thread, progress }
    }

    /// How many were handed to the client.
    pub fn sent(&self) -> u64 {
        self.progress.sent.load(Ordering::SeqCst)
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end and answers what was sent.
    pub fn finish(self) -> Vec<Message> {
        self.thread.join().expect("the feed sends all")
    }

    /// Sends no more and answers what was sent.
    pub fn enough(self) -> Vec<Message> {
        self.progress.enough.store(true, Ordering::SeqCst);
        self.finish()
    }
}

struct Failures;

impl ClientContext for Failures {
    fn error(&self, _error: KafkaError, _reason: &str) {} // A broker that is away is part of some tests.
}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result {
            // Nothing may be missing silently; the checker finds what was sent and not stored.
            eprintln!("feed: a message to partition {} was not stored: {error}", message.partition());
        }
    }
}

fn stream(
    kafka: &str,
    topic: &str,
    messages: impl IntoIterator<Item = Message>,
    rate: Option<u32>,
    progress: &Progress,
) {
    let producer: BaseProducer<Failures> = ClientConfig::new()
        .set("bootstrap.servers", kafka)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "5")
        .set("message.timeout.ms", "300000")
        .set("message.max.bytes", "20000000")
        .set("queue.buffering.max.messages", "50000")
        .create_with_context(Failures)
        .expect("a producer");
    let begun = Instant::now();
    for (n, message) in messages.into_iter().enumerate() {
        if let Some(rate) = rate {
            let due = begun + Duration::from_secs_f64(n as f64 / f64::from(rate));
            while Instant::now() < due {
                producer.poll(Duration::from_millis(1));
            }
        }
        if progress.enough.load(Ordering::SeqCst) {
            break;
        }
        enqueue(&producer, topic, &message);
        progress.sent.fetch_add(1, Ordering::SeqCst);
    }
    producer.flush(Duration::from_secs(300)).expect("the broker takes what is left");
}

fn enqueue(producer: &BaseProducer<Failures>, topic: &str, message: &Message) {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: value.as_deref() });
    }
    let mut record: BaseRecord<'_, [u8], [u8]> =
        BaseRecord::to(topic).partition(message.partition).timestamp(message.timestamp).headers(headers);
    if let Some(key) = &message.key {
        record = record.key(key);
    }
    if let Some(value) = &message.value {
        record = record.payload(value);
    }
    loop {
        match producer.send(record) {
            Ok(()) => break,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                producer.poll(Duration::from_millis(10));
                record = again;
            }
            Err((error, _)) => panic!("the feed cannot send: {error}"),
        }
    }
}
