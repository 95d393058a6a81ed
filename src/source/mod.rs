//! Where messages come from. A source knows nothing of stores and sinks.
//!
//! [`kafka`] is a source of its own kind: its offsets make the lanes. All others hand out deliveries that are settled
//! one by one, and are behind [`Source`], which promises:
//!
//! 1. **Nothing is settled unasked.** A delivery that was not acknowledged comes back: after [`Source::hand_back`],
//!    after a lost connection, after the end of the process.
//! 2. **Acknowledging is not certain.** A delivery whose acknowledgement was lost comes back too.
//! 3. **Old tags are harmless.** What was handed out before a connection was lost is void: acknowledging or handing it
//!    back does nothing and is no error.
//! 4. **Bounded.** No more than the source's own limit (its prefetch) is out at a time.
//!
//! | source | what was handed back or lost comes back |
//! | --- | --- |
//! | [`rabbitmq`] | at once; in a quorum queue each return counts towards its delivery limit |
//! | [`nats`] | at once when handed back; after the consumer's wait for acknowledgements when lost |
//! | [`lines`] | at once, while the process lives: the sender repeats after its end |
//! | [`memory`] | at once; it is the reference of the promises |

use std::time::Duration;

use async_trait::async_trait;

use crate::message::Message;

pub mod kafka;
pub mod lines;
pub mod memory;
pub mod names;
pub mod nats;
pub mod rabbitmq;
pub mod split;

/// One delivery of a message, to be acknowledged or handed back.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub tag: Tag,
    pub message: Message,
}

/// Names a delivery to the source that made it. Not an identity of the event or of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// Counts the connections (or channels) of this source.
    pub connection: u64,
    pub number: u64,
}

/// How much is received at once.
#[derive(Debug, Clone, Copy)]
pub struct Gather {
    pub messages_max: usize,
    pub bytes_max: usize,
    /// How long to wait for the first message.
    pub wait: Duration,
    /// How long to wait for another one, once nothing is at hand.
    pub linger: Duration,
}

#[derive(Debug, Clone)]
pub enum Received {
    /// In the order of the source; empty where nothing came in time.
    Deliveries(Vec<Delivery>),
    /// There will be none any more (a file or a stream that was read to its end).
    End,
}

#[async_trait]
pub trait Source: Send {
    /// The name that claims keep of it: the queue, the stream.
    fn name(&self) -> &str;

    /// Takes what is at hand, up to the bounds; connects again where the connection was lost. A call that is dropped
    /// loses nothing: what it took is handed out by the next.
    async fn receive(&mut self, gather: Gather) -> Result<Received, SourceError>;

    /// These are done.
    async fn acknowledge(&mut self, tags: &[Tag]) -> Result<(), SourceError>;

    /// These are not done and are to be delivered again, to anybody.
    async fn hand_back(&mut self, tags: &[Tag]) -> Result<(), SourceError>;

    /// How long what is out may stay so while nobody calls [`Source::receive`]: for longer, a limit of the source's own
    /// may hit it.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Hands back all that is out, once, and receives nothing more until the next [`Source::receive`]: for a store that
    /// is away, so that neither a delivery limit nor a consumer's time limit drops anything.
    async fn pause(&mut self) -> Result<(), SourceError>;

    /// Whether it can be reached and is there. Takes no message and makes nothing.
    async fn check(&self) -> Result<Seen, SourceError>;
}

/// What [`Source::check`] found, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    pub found: String,
    /// What is not as it should be, with what to do about it.
    pub warnings: Vec<String>,
}

pub type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The connection is gone, or could not be made; everything handed out is void. Call again after a wait.
    #[error("the source is out of reach")]
    Lost(#[source] Cause),
    /// Trying again is useless: no such queue, no right to it.
    #[error("the source refuses")]
    Refused(#[source] Cause),
}
