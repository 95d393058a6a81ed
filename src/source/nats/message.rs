//! A message of NATS as a message. Headers come by rising names, the repeats of one name in their order: the client
//! keeps them in no other way. `Nats-Msg-Id` stays readable under its name.

use bytes::Bytes;

use crate::message::{Header, Message};
use crate::source::names;

pub(super) fn of(message: async_nats::Message) -> Message {
    let table = message.headers.unwrap_or_default();
    let mut headers: Vec<Header> = Vec::new();
    for (name, values) in table.iter() {
        let header = |value| Header { name: name.to_string().into(), value: Some(Bytes::from(value)) };
        headers.extend(values.iter().map(|value| header(value.to_string())));
    }
    // A stable sort: repeats stay in their order.
    headers.sort_by(|one, other| one.name.cmp(&other.name));
    let mut message = Message { value: Some(message.payload), headers, ..Message::default() };
    names::undo(&mut message);
    message
}
