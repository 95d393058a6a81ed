//! A delivery as a message: every typed header also as its text, so that any sink can carry it.
//!
//! Headers come by rising names, each once: the client keeps them in no other way. What the broker itself writes on a
//! delivery (how often this one was made) is not part of the message and is left out, or a copy would differ from
//! itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable};
use serde_json::Value as Json;

use crate::message::{Header, Message};
use crate::source::names;

/// Of quorum queues: they count deliveries.
const OF_DELIVERY: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

pub(super) fn of(delivery: Delivery) -> Message {
    let properties = without_counts(delivery.properties);
    let table = properties.headers().iter().flat_map(FieldTable::inner);
    let headers = table.map(|(name, value)| Header { name: name.as_str().into(), value: text(value) }).collect();
    let seconds = properties.timestamp().and_then(|seconds| i64::try_from(seconds).ok());
    let mut message = Message {
        key: None,
        value: Some(Bytes::from(delivery.data)),
        headers,
        timestamp_millis: seconds.and_then(|seconds| seconds.checked_mul(1_000)),
        amqp: Some(Box::new(properties)),
    };
    names::undo(&mut message);
    message
}

fn without_counts(properties: BasicProperties) -> BasicProperties {
    let Some(headers) = properties.headers() else { return properties };
    if !OF_DELIVERY.iter().any(|name| headers.contains_key(name)) {
        return properties;
    }
    let kept = headers.inner().iter().filter(|(name, _)| !OF_DELIVERY.contains(&name.as_str()));
    let kept: BTreeMap<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    properties.with_headers(kept.into())
}

/// None for what has no value.
fn text(value: &AMQPValue) -> Option<Bytes> {
    Some(match value {
        AMQPValue::Void => return None,
        AMQPValue::LongString(text) => Bytes::copy_from_slice(text.as_bytes()),
        AMQPValue::ShortString(text) => Bytes::copy_from_slice(text.as_str().as_bytes()),
        AMQPValue::ByteArray(bytes) => Bytes::copy_from_slice(bytes.as_slice()),
        AMQPValue::Float(number) => number.to_string().into(),
        AMQPValue::Double(number) => number.to_string().into(),
        AMQPValue::DecimalValue(decimal) => self::decimal(decimal.scale, decimal.value).into(),
        other => json(other).to_string().into(),
    })
}

/// As JSON, where tables and arrays hold it.
fn json(value: &AMQPValue) -> Json {
    match value {
        AMQPValue::Void => Json::Null,
        AMQPValue::Boolean(value) => (*value).into(),
        AMQPValue::ShortShortInt(value) => (*value).into(),
        AMQPValue::ShortShortUInt(value) => (*value).into(),
        AMQPValue::ShortInt(value) => (*value).into(),
        AMQPValue::ShortUInt(value) => (*value).into(),
        AMQPValue::LongInt(value) => (*value).into(),
        AMQPValue::LongUInt(value) => (*value).into(),
        AMQPValue::LongLongInt(value) => (*value).into(),
        AMQPValue::Timestamp(value) => (*value).into(),
        // What is no number (NaN) is null in JSON.
        AMQPValue::Float(value) => f64::from(*value).into(),
        AMQPValue::Double(value) => (*value).into(),
        AMQPValue::DecimalValue(value) => decimal(value.scale, value.value).into(),
        AMQPValue::ShortString(text) => text.as_str().into(),
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into(),
        AMQPValue::ByteArray(bytes) => String::from_utf8_lossy(bytes.as_slice()).into(),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => {
            table.inner().iter().map(|(name, value)| (name.as_str(), json(value))).collect()
        }
    }
}

/// 12345 with two decimals: `123.45`.
fn decimal(scale: u8, value: u32) -> String {
    let scale = usize::from(scale);
    let digits = format!("{value:0width$}", width = scale + 1);
    let (whole, rest) = digits.split_at(digits.len() - scale);
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

#[cfg(test)]
mod tests {
    use lapin::types::{DecimalValue, FieldArray};

    use super::*;
    use crate::key::Headers;

    fn delivery(headers: &[(&str, AMQPValue)], data: &[u8]) -> Delivery {
        let mut delivery = Delivery::mock(1, "".into(), "q".into(), false, data.to_vec());
        let table: BTreeMap<_, _> = headers.iter().map(|(name, value)| ((*name).into(), value.clone())).collect();
        delivery.properties = BasicProperties::default().with_headers(table.into()).with_timestamp(1_767_225_600);
        delivery
    }

    #[test]
    fn every_type_has_a_text() {
        let array =
            FieldArray::from(vec![AMQPValue::LongInt(-1), AMQPValue::Void, AMQPValue::LongString("a\"".into())]);
        let mut table = FieldTable::default();
        table.insert("t".into(), AMQPValue::Timestamp(5));
        table.insert("a".into(), AMQPValue::FieldArray(array.clone()));
        let cases: Vec<(AMQPValue, Option<&str>)> = vec![
            (AMQPValue::Boolean(true), Some("true")),
            (AMQPValue::ShortShortInt(-8), Some("-8")),
            (AMQPValue::ShortShortUInt(200), Some("200")),
            (AMQPValue::ShortInt(-300), Some("-300")),
            (AMQPValue::ShortUInt(60_000), Some("60000")),
            (AMQPValue::LongInt(-70_000), Some("-70000")),
            (AMQPValue::LongUInt(4_000_000_000), Some("4000000000")),
            (AMQPValue::LongLongInt(i64::MIN), Some("-9223372036854775808")),
            (AMQPValue::Float(1.5), Some("1.5")),
            (AMQPValue::Double(0.1), Some("0.1")),
            (AMQPValue::Double(f64::NAN), Some("NaN")),
            (AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 5 }), Some("0.05")),
            (AMQPValue::DecimalValue(DecimalValue { scale: 0, value: 5 }), Some("5")),
            (AMQPValue::ShortString("kurz".into()), Some("kurz")),
            (AMQPValue::LongString("läng".into()), Some("läng")),
            (AMQPValue::LongString("".into()), Some("")),
            (AMQPValue::ByteArray(b"bytes".to_vec().into()), Some("bytes")),
            (AMQPValue::Timestamp(1_767_225_600), Some("1767225600")),
            (AMQPValue::FieldArray(array), Some(r#"[-1,null,"a\""]"#)),
            (AMQPValue::FieldTable(table), Some(r#"{"a":[-1,null,"a\""],"t":5}"#)),
            (AMQPValue::Void, None),
        ];
        for (value, right) in cases {
            let right = right.map(|text| Bytes::copy_from_slice(text.as_bytes()));
            let message = of(delivery(&[("h", value.clone())], b"body"));
            assert_eq!(message.headers, [Header { name: "h".into(), value: right }], "{value:?}");
            let kept = message.amqp.as_ref().and_then(|amqp| amqp.headers().as_ref()?.inner().get("h").cloned());
            // NaN is not equal to itself.
            assert_eq!(format!("{kept:?}"), format!("{:?}", Some(value)), "kept as it came");
        }
    }

    #[test]
    fn what_a_message_is_made_of() {
        let long = |text: &str| AMQPValue::LongString(text.into());
        let message = of(delivery(&[("semel-key", long("k")), ("a", long("1")), ("x-delivery-count", long("2"))], b""));
        assert_eq!(message.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(message.headers.iter().map(|header| &*header.name).collect::<Vec<_>>(), ["a"]);
        assert_eq!((message.value, message.timestamp_millis), (Some(Bytes::new()), Some(1_767_225_600_000)));
        let kept = message.amqp.expect("kept").headers().clone().expect("headers");
        assert!(kept.contains_key("semel-key") && !kept.contains_key("x-delivery-count"));
        let message = of(delivery(&[("x-delivery-count", AMQPValue::LongLongInt(1))], b"x"));
        assert_eq!(message.amqp.expect("kept").headers(), &Some(FieldTable::default()), "as if nothing was counted");
        let mut named = delivery(&[("app_id", long("a header"))], b"x");
        named.properties = named.properties.with_message_id("m-1".into()).with_app_id("a property".into());
        let named = of(named);
        let last =
            |name| Headers::last(&named, name).flatten().map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(last("message_id").as_deref(), Some("m-1"), "properties answer to their names");
        assert_eq!((last("app_id").as_deref(), last("type")), (Some("a header"), None), "headers before them");
        let mut late = delivery(&[], b"x");
        late.properties = BasicProperties::default().with_timestamp(u64::MAX);
        assert_eq!(of(late).timestamp_millis, None, "past all time");
    }
}
