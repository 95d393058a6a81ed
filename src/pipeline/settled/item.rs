//! A message as it was read.

use bytes::Bytes;

use crate::kafka::native::Record;
use crate::key::Key;
use crate::message::{Header, Message};
use crate::pipeline::leased::keyer::{Keyer, Name};
use crate::protocol::lane::Position;

/// What a record takes in memory beside its own bytes, roughly: it counts for a window's bound.
const RECORD_BYTES: usize = 256;

/// A message that was read.
#[derive(Debug)]
pub struct Item {
    pub offset: Position,
    pub message: Message,
    /// How many headers it came with.
    pub headers: usize,
    pub name: Name,
    pub bytes: usize,
}

impl Item {
    pub fn of(record: &Record, keyer: &Keyer) -> Item {
        let message = message_of(record);
        let (name, headers, bytes) = (keyer.name(&message), message.headers.len(), message.size() + RECORD_BYTES);
        Item { offset: record.offset(), message, headers, name, bytes }
    }

    pub fn key(&self) -> Option<&Key> {
        match &self.name {
            Name::Key(key) => Some(key),
            _ => None,
        }
    }
}

/// Copied out of the client's memory, which is freed with the record. A header's name that is not text is mended.
fn message_of(record: &Record) -> Message {
    let bytes = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
    let header = |(name, value): (&[u8], Option<&[u8]>)| Header {
        name: String::from_utf8_lossy(name).into(),
        value: bytes(value),
    };
    Message {
        key: bytes(record.key()),
        value: bytes(record.value()),
        headers: record.headers().map(header).collect(),
        timestamp_millis: record.timestamp().map(|(millis, _)| millis),
        amqp: None,
    }
}
