//! The sources under test.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use semel::message::{Header, Message};
use semel::source::Source;
use semel::source::memory::{MemoryQueue, MemorySource};

use super::{Place, nats, rabbitmq};

/// As large as messages usually are at most.
pub const BIG_BYTES: usize = 1 << 20;

pub async fn memory() -> Box<dyn Place> {
    Box::new(Memory(MemoryQueue::default()))
}

pub async fn rabbitmq_classic() -> Box<dyn Place> {
    Box::new(rabbitmq::Queue::new("classic").await)
}

pub async fn rabbitmq_quorum() -> Box<dyn Place> {
    Box::new(rabbitmq::Queue::new("quorum").await)
}

pub async fn nats() -> Box<dyn Place> {
    Box::new(nats::Stream::new(Duration::from_secs(2)).await)
}

struct Memory(MemoryQueue);

#[async_trait]
impl Place for Memory {
    fn open(&self, prefetch: usize) -> Box<dyn Source> {
        Box::new(MemorySource::new(&self.0, "memory", prefetch))
    }

    async fn send(&self, messages: &[Message]) {
        messages.iter().for_each(|message| self.0.send(message.clone()));
    }

    fn cut(&self) {
        self.0.lose_connection();
    }

    fn refuse(&self, refuses: bool) {
        self.0.set_away(refuses);
    }

    fn samples(&self) -> Vec<(Message, Message)> {
        let message = Message {
            key: Some("k".into()),
            value: None,
            headers: vec![Header::new("a", b"1".as_slice()), Header { name: "a".into(), value: None }],
            timestamp_millis: Some(5),
            amqp: None,
        };
        [message, of_value(b""), of_value(&[b'x'; BIG_BYTES])].map(|message| (message.clone(), message)).into()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(1)
    }
}

pub fn of_value(value: &[u8]) -> Message {
    Message { value: Some(Bytes::copy_from_slice(value)), ..Message::default() }
}
