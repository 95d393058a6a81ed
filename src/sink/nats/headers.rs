//! How a message looks in NATS.
//!
//! - A header goes as it is where NATS can carry it: a name of visible ASCII without `:`, and a value that is text
//!   without control characters and without blanks at its ends (clients cut them off). Repeated names keep their order,
//!   the order among names is lost.
//! - Any other goes as a value of the header `semel-header`: `NAME=VALUE`, or `NAME` alone for a null value, name and
//!   value percent-encoded but for letters, digits and `-._~`.
//! - A header that would tell the server what to do (`Nats-…`: roll up the stream, expect a sequence, expire) is
//!   disarmed to `semel-Nats-…`. `Nats-Msg-Id` is the idempotency key, and is missing where there is none.
//! - Key, time and null value are headers, see [`names`]; so are the AMQP properties of a message from RabbitMQ, under
//!   the names by which they answer (`correlation_id`, …), where no header of that name stands.

use std::borrow::Cow;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue, NATS_MESSAGE_ID};
use lapin::BasicProperties;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::sink::{Outgoing, names};

const OF_THE_SERVER: &str = "nats-";
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn headers(outgoing: &Outgoing) -> HeaderMap {
    let message = &outgoing.message;
    let mut headers = HeaderMap::new();
    for header in &message.headers {
        append(&mut headers, &header.name, header.value.as_deref());
    }
    let mut add = |name: &str, value: &[u8]| {
        if !message.headers.iter().any(|header| &*header.name == name) {
            append(&mut headers, name, Some(value));
        }
    };
    if let Some(key) = &message.key {
        add(names::KEY, key);
    }
    if message.value.is_none() {
        add(names::NULL, b"1");
    }
    if let Some(millis) = message.timestamp_millis {
        add(names::TIMESTAMP, millis.to_string().as_bytes());
    }
    for (name, value) in message.amqp.as_deref().into_iter().flat_map(properties) {
        add(name, value);
    }
    if let Some(key) = &outgoing.idempotency_key {
        headers.insert(NATS_MESSAGE_ID, &**key);
    }
    headers
}

fn properties(amqp: &BasicProperties) -> impl Iterator<Item = (&'static str, &[u8])> {
    let properties = [
        ("message_id", amqp.message_id()),
        ("correlation_id", amqp.correlation_id()),
        ("type", amqp.kind()),
        ("app_id", amqp.app_id()),
        ("content_type", amqp.content_type()),
        ("content_encoding", amqp.content_encoding()),
        ("reply_to", amqp.reply_to()),
    ];
    properties.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.as_str().as_bytes())))
}

fn append(headers: &mut HeaderMap, name: &str, value: Option<&[u8]>) {
    let named: Cow<'_, str> = match name.get(..OF_THE_SERVER.len()) {
        Some(begins) if begins.eq_ignore_ascii_case(OF_THE_SERVER) => format!("{}{name}", names::DISARMED).into(),
        _ => name.into(),
    };
    match (plain_name(&named), value.and_then(plain_value)) {
        (Some(name), Some(value)) => headers.append(name, value),
        _ => {
            let mut text = percent_encode(named.as_bytes(), ESCAPED).to_string();
            if let Some(value) = value {
                text.push('=');
                text.extend(percent_encode(value, ESCAPED));
            }
            headers.append(names::ENCODED, text);
        }
    }
}

fn plain_name(name: &str) -> Option<HeaderName> {
    let visible = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    visible.then(|| name.parse().ok()).flatten()
}

fn plain_value(value: &[u8]) -> Option<HeaderValue> {
    let text = std::str::from_utf8(value).ok()?;
    let whole = text.trim() == text && !text.chars().any(char::is_control);
    whole.then(|| text.parse().ok()).flatten()
}

/// As the client counts them against what the server takes, or more: a line each, the first and the empty last line.
pub(super) fn bytes(headers: &HeaderMap) -> usize {
    let lines = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + 2 + value.as_str().len() + 2)
    });
    "NATS/1.0\r\n\r\n".len() + lines.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Header, Message};
    use crate::sink::Destination;

    fn outgoing(message: Message) -> Outgoing {
        Outgoing { destination: Destination::Forward, message, idempotency_key: None }
    }

    /// All headers by name and value, sorted.
    fn shown(outgoing: &Outgoing) -> Vec<(String, String)> {
        let headers = headers(outgoing);
        let lines = headers.iter().flat_map(|(name, values)| {
            values.iter().map(|value| (AsRef::<str>::as_ref(name).to_owned(), value.as_str().to_owned()))
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines
    }

    #[test]
    fn what_goes_as_it_is_and_what_is_encoded() {
        let cases: &[(&str, Option<&[u8]>, (&str, &str), &str)] = &[
            ("a-b.c!", Some(b"x = y, z"), ("a-b.c!", "x = y, z"), "text"),
            ("ä", Some("ö".as_bytes()), ("semel-header", "%C3%A4=%C3%B6"), "a name that is not ASCII"),
            ("a", Some("ö".as_bytes()), ("a", "ö"), "a value may be"),
            ("a b", Some(b"x"), ("semel-header", "a%20b=x"), "a blank in the name"),
            ("a:b", Some(b"x"), ("semel-header", "a%3Ab=x"), "a colon in the name"),
            ("", Some(b"x"), ("semel-header", "=x"), "no name"),
            ("a", Some(b""), ("a", ""), "an empty value"),
            ("a", None, ("semel-header", "a"), "a null value"),
            ("a", Some(b" x"), ("semel-header", "a=%20x"), "a blank before"),
            ("a", Some("x\u{a0}".as_bytes()), ("semel-header", "a=x%C2%A0"), "a blank of another kind behind"),
            ("a", Some(b"x\r\ny: z"), ("semel-header", "a=x%0D%0Ay%3A%20z"), "a line's end"),
            ("a", Some(b"\xff"), ("semel-header", "a=%FF"), "no text"),
            ("a", Some(b"x=%y"), ("a", "x=%y"), "signs of the encoding"),
            ("Nats-Rollup", Some(b"all"), ("semel-Nats-Rollup", "all"), "an order to the server"),
            ("nats-msg-id", Some(b"7"), ("semel-nats-msg-id", "7"), "in any case of letters"),
            ("natsy", Some(b"x"), ("natsy", "x"), "no order"),
        ];
        for (name, value, right, why) in cases {
            let header = Header { name: (*name).into(), value: value.map(bytes::Bytes::from_static) };
            let message = Message { value: Some("v".into()), headers: vec![header], ..Message::default() };
            assert_eq!(shown(&outgoing(message)), [(right.0.to_owned(), right.1.to_owned())], "{name:?}: {why}");
        }
    }

    #[test]
    fn what_nats_has_no_place_for() {
        let amqp = BasicProperties::default().with_correlation_id("c".into()).with_content_type("t".into());
        let message = Message {
            key: Some("k ".into()),
            value: None,
            headers: vec![
                Header::new("content_type", b"own".as_slice()),
                Header::new("r", b"1".as_slice()),
                Header::new("r", b"0".as_slice()),
            ],
            timestamp_millis: Some(-5),
            amqp: Some(Box::new(amqp)),
        };
        let named = Outgoing { idempotency_key: Some("0f".into()), ..outgoing(message) };
        let right = [
            ("Nats-Msg-Id", "0f"),
            ("content_type", "own"),
            ("correlation_id", "c"),
            ("r", "0"),
            ("r", "1"),
            ("semel-header", "semel-key=k%20"),
            ("semel-null", "1"),
            ("semel-timestamp-millis", "-5"),
        ];
        assert_eq!(shown(&named), right.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let repeated: Vec<_> = headers(&named).get_all("r").map(|value| value.as_str().to_owned()).collect();
        assert_eq!(repeated, ["1", "0"], "in their order");
    }

    #[test]
    fn size_is_that_of_the_wire() {
        let message = Message {
            value: Some("v".into()),
            headers: vec![Header::new("ab", b"cde".as_slice())],
            ..Message::default()
        };
        assert_eq!(bytes(&headers(&outgoing(message))), "NATS/1.0\r\nab: cde\r\n\r\n".len());
    }
}
