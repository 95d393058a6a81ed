//! How a message looks in a file: one line each.
//!
//! - [`Format::Value`]: the value, byte for byte. What cannot be told apart then is unfit: a null value, a line break.
//! - [`Format::Record`]: a JSON object `{"id":…,"key":…,"timestamp_millis":…,"headers":[[NAME,VALUE],…],"value":…}`,
//!   without the members that there is nothing for. Bytes are text where they are UTF-8, else
//!   `{"base64":"…"}`; null is null. Properties of AMQP stand among the headers, under the names by which they answer,
//!   where no header of that name does.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::sink::Outgoing;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Value,
    Record,
}

impl Format {
    /// Why there is no line for it.
    pub(super) fn unfit(self, outgoing: &Outgoing) -> Option<String> {
        match (self, &outgoing.message.value) {
            (Format::Record, _) => None,
            (Format::Value, None) => Some(format!("its value is null, which a line cannot show: {KEEPS}")),
            (Format::Value, Some(value)) => {
                value.contains(&b'\n').then(|| format!("there is a line break in its value: {KEEPS}"))
            }
        }
    }

    /// Appends its line.
    pub(super) fn write(self, outgoing: &Outgoing, lines: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        match self {
            Format::Value => lines.extend_from_slice(outgoing.message.value.as_deref().unwrap_or_default()),
            Format::Record => serde_json::to_writer(&mut *lines, &Record(outgoing))?,
        }
        lines.push(b'\n');
        Ok(())
    }
}

const KEEPS: &str = "`?format=record` keeps it";

struct Record<'a>(&'a Outgoing);

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = &self.0.message;
        let headers = message.headers.iter().map(|header| (&*header.name, header.value.as_deref().map(Octets)));
        let is_new = |(name, _): &(&str, &[u8])| !message.headers.iter().any(|header| &*header.name == *name);
        let properties = message.properties().filter(is_new).map(|(name, value)| (name, Some(Octets(value))));
        let headers: Vec<_> = headers.chain(properties).collect();
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.0.idempotency_key {
            map.serialize_entry("id", id)?;
        }
        if let Some(key) = &message.key {
            map.serialize_entry("key", &Octets(key))?;
        }
        if let Some(millis) = message.timestamp_millis {
            map.serialize_entry("timestamp_millis", &millis)?;
        }
        if !headers.is_empty() {
            map.serialize_entry("headers", &headers)?;
        }
        map.serialize_entry("value", &message.value.as_deref().map(Octets))?;
        map.end()
    }
}

struct Octets<'a>(&'a [u8]);

impl Serialize for Octets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &STANDARD.encode(self.0))?;
        map.end()
    }
}
