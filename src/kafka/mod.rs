//! What both sides of a Kafka pipeline share: clients, and the one place with unsafe code.
//!
//! rust-rdkafka makes and configures the clients. Four things it does not offer, or offers by a panic, are reached
//! through librdkafka itself in [`native`]: a group membership with its generation, offsets with metadata of any bytes,
//! topic ids, and messages handed on with their headers as they are.

pub mod admin;
pub mod client;
pub mod groups;
pub mod native;
pub mod transaction;

/// A partition of one of the topics that a pipeline reads: the index of the topic in the pipeline's list, and the
/// partition's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    pub topic: u16,
    pub partition: i32,
}
