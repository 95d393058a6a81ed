//! How a message looks in AMQP.
//!
//! - A message that came from RabbitMQ keeps its properties and typed headers, `x-death` and `expiration` too.
//!   Headers that were added on the way, and all whose names begin with `semel-`, are taken from the message.
//! - Another one's headers are byte strings (`S`), null is void (`V`), the values of a repeated name are an array (`A`)
//!   in their order. The order among names is not kept: AMQP has none. `content_type` is the header `content-type`.
//! - `delivery_mode` is 2: it is on disk when it is confirmed (in a durable queue). `message_id` is the idempotency key.
//! - What would act here is moved to `semel-…`: `user_id` (the broker refuses another than its own), and the headers
//!   `CC` and `BCC` (the broker would copy the message to the queues they name, perhaps into the one it came from).
//! - The time is kept in seconds, AMQP has no finer one. Key and null value are headers, see [`names`].

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};

use crate::message::Header;
use crate::sink::{Outgoing, names};

/// Headers by which a publisher tells the broker of further queues.
const COPIES: [&str; 2] = ["CC", "BCC"];
const PERSISTENT: u8 = 2;
/// A header frame beside the properties: its own frame (8), class, weight, body size and flags (14).
const FRAME_AROUND: usize = 22;

/// Err says what has no form in AMQP.
pub(super) fn properties(outgoing: &Outgoing) -> Result<BasicProperties, String> {
    let message = &outgoing.message;
    let amqp = message.amqp.as_deref();
    let mut headers = headers(&message.headers, amqp.and_then(|amqp| amqp.headers().as_ref()))?;
    let mut add = |name: &str, value: &[u8]| {
        let name = ShortString::try_new(name).map_err(|error| error.to_string())?;
        headers.entry(name).or_insert_with(|| AMQPValue::LongString(value.into()));
        Ok::<_, String>(())
    };
    if let Some(key) = &message.key {
        add(names::KEY, key)?;
    }
    if message.value.is_none() {
        add(names::NULL, b"1")?;
    }
    let mut properties = match amqp {
        Some(amqp) => without_user(amqp),
        None => of_another(&message.headers, message.timestamp_millis),
    };
    if let Some(user) = amqp.and_then(|amqp| amqp.user_id().as_ref()) {
        add(names::USER_ID, user.as_str().as_bytes())?;
    }
    if let Some(key) = &outgoing.idempotency_key {
        if let Some(own) = properties.message_id().as_ref().filter(|own| own.as_str() != &**key) {
            add(names::MESSAGE_ID, own.as_str().as_bytes())?;
        }
        let key = ShortString::try_new(&**key).map_err(|error| format!("the idempotency key: {error}"))?;
        properties = properties.with_message_id(key);
    }
    if !headers.is_empty() {
        properties = properties.with_headers(headers.into());
    }
    Ok(properties.with_delivery_mode(PERSISTENT))
}

fn headers(given: &[Header], typed: Option<&FieldTable>) -> Result<BTreeMap<ShortString, AMQPValue>, String> {
    let mut headers = typed.map(|typed| typed.inner().clone()).unwrap_or_default();
    headers.retain(|name, _| !name.as_str().starts_with(names::DISARMED));
    let typed_already = headers.keys().cloned().collect::<Vec<_>>();
    let mut added: BTreeMap<ShortString, Vec<AMQPValue>> = BTreeMap::new();
    for header in given {
        if typed_already.binary_search_by(|name| name.as_str().cmp(&header.name)).is_ok() {
            continue;
        }
        let name = ShortString::try_new(&*header.name)
            .map_err(|_| format!("a header's name has {} bytes, and AMQP takes 255", header.name.len()))?;
        let value = match &header.value {
            Some(value) => AMQPValue::LongString(LongString::from(&value[..])),
            None => AMQPValue::Void,
        };
        added.entry(name).or_default().push(value);
    }
    headers.extend(added.into_iter().map(|(name, mut values)| match values.len() {
        1 => (name, values.remove(0)),
        _ => (name, AMQPValue::FieldArray(FieldArray::from(values))),
    }));
    for name in COPIES {
        if let Some(value) = headers.remove(name) {
            headers.insert(ShortString::from(format!("{}{name}", names::DISARMED)), value);
        }
    }
    Ok(headers)
}

fn without_user(amqp: &BasicProperties) -> BasicProperties {
    macro_rules! copied {
        ($($get:ident => $set:ident),*) => {{
            let mut copy = BasicProperties::default();
            $(if let Some(value) = amqp.$get() {
                copy = copy.$set(value.to_owned());
            })*
            copy
        }};
    }
    copied!(
        content_type => with_content_type, content_encoding => with_content_encoding, priority => with_priority,
        correlation_id => with_correlation_id, reply_to => with_reply_to, expiration => with_expiration,
        message_id => with_message_id, timestamp => with_timestamp, kind => with_type, app_id => with_app_id,
        cluster_id => with_cluster_id
    )
}

fn of_another(headers: &[Header], timestamp_millis: Option<i64>) -> BasicProperties {
    let mut properties = BasicProperties::default();
    if let Some(seconds) = timestamp_millis.and_then(|millis| u64::try_from(millis).ok()) {
        properties = properties.with_timestamp(seconds / 1000);
    }
    let content_type = headers.iter().rev().find(|header| header.name.eq_ignore_ascii_case("content-type"));
    let content_type = content_type.and_then(|header| std::str::from_utf8(header.value.as_ref()?).ok());
    if let Some(content_type) = content_type.and_then(|text| ShortString::try_new(text).ok()) {
        properties = properties.with_content_type(content_type);
    }
    properties
}

/// Bytes of the frame that these properties take. It cannot be split: past the connection's limit the broker closes it.
pub(super) fn frame_bytes(properties: &BasicProperties) -> usize {
    let text = |text: &Option<ShortString>| text.as_ref().map_or(0, |text| 1 + text.as_str().len());
    let texts = [
        properties.content_type(),
        properties.content_encoding(),
        properties.correlation_id(),
        properties.reply_to(),
        properties.expiration(),
        properties.message_id(),
        properties.kind(),
        properties.user_id(),
        properties.app_id(),
        properties.cluster_id(),
    ];
    let headers = properties.headers().as_ref().map_or(0, table_bytes);
    let numbers = 1 + 1 + 8; // delivery mode, priority, timestamp
    FRAME_AROUND + numbers + headers + texts.into_iter().map(text).sum::<usize>()
}

fn table_bytes(table: &FieldTable) -> usize {
    4 + table.into_iter().map(|(name, value)| 1 + name.as_str().len() + 1 + value_bytes(value)).sum::<usize>()
}

fn value_bytes(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
        AMQPValue::ShortString(text) => 1 + text.as_str().len(),
        AMQPValue::LongString(text) => 4 + text.len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.len(),
        AMQPValue::FieldArray(array) => 4 + array.as_slice().iter().map(|value| 1 + value_bytes(value)).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_bytes(table),
    }
}
