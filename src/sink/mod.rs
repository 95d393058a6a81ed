//! Where messages go. A sink knows nothing of stores and sources.
//!
//! [`kafka`] is a sink of its own kind: it has transactions. All others confirm one by one, and are behind [`Sink`],
//! which promises:
//!
//! 1. **Confirmed means stored**, as durably as the broker does it, and routed to at least one queue or stream.
//! 2. **A definite failure left nothing behind.** Only what surely was not stored is [`Published::Refused`] or
//!    [`Published::NotSent`]; whatever may have been is [`Published::InDoubt`].
//! 3. **In order.** Messages are sent in the order given; each is answered for.
//! 4. **Named.** Each message carries its idempotency key where the protocol has a place for it, so that a broker (or a
//!    reader) that deduplicates drops a second copy.
//!
//! | sink | the key is | what the protocol cannot carry |
//! | --- | --- | --- |
//! | [`rabbitmq`] | `message_id` | see its `properties` |
//! | [`nats`] | `Nats-Msg-Id`; the broker deduplicates | see its `headers` |
//! | [`file`] | `id`, where lines are records | see its formats |
//! | [`memory`] | kept | nothing: it is the reference |

use async_trait::async_trait;

use crate::message::Message;

pub mod file;
mod flight;
pub mod kafka;
pub mod kafka_slot;
pub mod memory;
pub mod names;
pub mod nats;
pub mod rabbitmq;

/// Which of the sink's destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    Forward,
    DeadLetter,
    Duplicates,
}

/// A message on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub destination: Destination,
    pub message: Message,
    /// 32 lower-case hexadecimal digits, the same in every copy; None for what has no event id.
    pub idempotency_key: Option<Box<str>>,
}

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    Confirmed,
    /// The broker has a copy with this idempotency key already and dropped this one: as good as confirmed.
    Deduplicated,
    /// Surely not stored: the broker answered so (a full queue). Sending it again may succeed.
    Refused(String),
    /// May have been stored: no answer in time, a lost connection, or returned as unroutable.
    InDoubt(Doubt),
    /// Never left this process.
    NotSent,
}

/// Why it is not known whether a message was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub why: String,
    /// The broker did answer, but neither that it is stored nor that it surely is not: it was unroutable, or an error.
    /// Otherwise it is out of reach, or was silent for too long.
    pub answered: bool,
}

impl Doubt {
    pub fn answered(why: impl Into<String>) -> Doubt {
        Doubt { why: why.into(), answered: true }
    }

    pub fn silent(why: impl Into<String>) -> Doubt {
        Doubt { why: why.into(), answered: false }
    }
}

impl Published {
    pub fn is_stored(&self) -> bool {
        matches!(self, Published::Confirmed | Published::Deduplicated)
    }
}

#[async_trait]
pub trait Sink: Send {
    /// One answer per message, in their order. Sends without waiting for each confirm, and stops sending at the first
    /// answer that is not a success: what was not sent by then is [`Published::NotSent`]. Connects where it has to;
    /// with no connection, all are not sent. Never takes much longer than the sink's own time limit.
    ///
    /// Cancel safety: a dropped call leaves everything in doubt.
    async fn publish(&mut self, messages: &[Outgoing]) -> Vec<Published>;

    /// Why this message can never be sent there, as far as is known without asking: too large, a header that has no
    /// form. [`Sink::publish`] refuses it, and would for ever; so it is to be asked before the event is claimed.
    fn unfit(&self, message: &Outgoing) -> Option<String> {
        let _ = message;
        None
    }

    /// Whether it can be reached and every destination exists, as far as the protocol lets one ask.
    async fn check(&mut self) -> Result<(), SinkError>;
}

pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Call again after a wait.
    #[error("the sink is out of reach")]
    Lost(#[source] Cause),
    /// Trying again is useless: no such exchange or stream, no right to it, a duplicate window that is too short.
    #[error("the sink refuses")]
    Refused(#[source] Cause),
}
