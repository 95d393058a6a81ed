//! A message as sources without offsets hand it over and as sinks without transactions take it, whatever it came from.
//!
//! Kafka to Kafka does not use it: there a record stays where the client library read it to.

use std::borrow::Cow;

use bytes::Bytes;
use lapin::BasicProperties;

use crate::key::{Headers, View};

/// Owned and cheap to clone, but for the headers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    pub key: Option<Bytes>,
    /// None: a tombstone. Empty is not none.
    pub value: Option<Bytes>,
    /// In their order, with repeats. A null value is none. Values that are not text in their own protocol are here as
    /// their text, so that any sink can carry them.
    pub headers: Vec<Header>,
    /// The producer's own time, in milliseconds since the epoch.
    pub timestamp_millis: Option<i64>,
    /// AMQP's properties and typed headers as they came, so that RabbitMQ to RabbitMQ keeps them. None from other
    /// sources.
    pub amqp: Option<Box<BasicProperties>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: Box<str>,
    pub value: Option<Bytes>,
}

impl Header {
    pub fn new(name: &str, value: impl Into<Cow<'static, [u8]>>) -> Header {
        let value = match value.into() {
            Cow::Borrowed(value) => Bytes::from_static(value),
            Cow::Owned(value) => Bytes::from(value),
        };
        Header { name: name.into(), value: Some(value) }
    }
}

impl Message {
    /// What event id and event time are picked out of.
    pub fn view(&self) -> View<'_> {
        View {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            timestamp_millis: self.timestamp_millis,
            headers: self,
        }
    }

    /// In bytes, about what it takes in memory and on the wire.
    pub fn size(&self) -> usize {
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter().map(|header| header.name.len() + length(&header.value) + 16);
        length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// AMQP's own properties answer to their names (`message_id`, `correlation_id`, `type`, `app_id`, `content_type`,
/// `reply_to`) where no header of that name stands.
impl Headers for Message {
    fn last(&self, name: &str) -> Option<Option<&[u8]>> {
        if let Some(header) = self.headers.iter().rev().find(|header| &*header.name == name) {
            return Some(header.value.as_deref());
        }
        self.properties().find(|(known, _)| *known == name).map(|(_, text)| Some(text))
    }
}

impl Message {
    /// AMQP's own properties that are text, under their names.
    pub fn properties(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.amqp.as_deref().into_iter().flat_map(|amqp| {
            let texts = [
                ("message_id", amqp.message_id()),
                ("correlation_id", amqp.correlation_id()),
                ("type", amqp.kind()),
                ("app_id", amqp.app_id()),
                ("content_type", amqp.content_type()),
                ("reply_to", amqp.reply_to()),
            ];
            texts.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?.as_str().as_bytes())))
        })
    }
}
