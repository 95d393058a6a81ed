use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable, ShortString};

use super::properties::{frame_bytes, properties};
use crate::message::{Header, Message};
use crate::sink::{Destination, Outgoing};

fn outgoing(message: Message, key: Option<&str>) -> Outgoing {
    Outgoing { destination: Destination::Forward, message, idempotency_key: key.map(Into::into) }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn table(entries: &[(&str, AMQPValue)]) -> FieldTable {
    let entries = entries.iter().map(|(name, value)| (ShortString::from(*name), value.clone()));
    entries.collect::<BTreeMap<_, _>>().into()
}

fn value() -> Message {
    Message { value: Some("v".into()), ..Message::default() }
}

#[test]
fn a_message_from_elsewhere() {
    let headers = vec![
        Header::new("a", b"1".as_slice()),
        Header::new("r", b"x".as_slice()),
        Header::new("a", b"".as_slice()),
        Header { name: "null".into(), value: None },
        Header::new("Content-Type", b"text/plain".as_slice()),
        Header::new("binary", vec![0xff, 0]),
        Header::new("CC", b"another queue".as_slice()),
    ];
    let message = Message {
        key: Some(bytes::Bytes::from_static(b"\xffk")),
        value: None,
        headers,
        timestamp_millis: Some(1_999),
        amqp: None,
    };
    let made = properties(&outgoing(message, Some("0f"))).expect("a form");
    let right = BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id("0f".into())
        .with_timestamp(1)
        .with_content_type("text/plain".into())
        .with_headers(table(&[
            ("Content-Type", text("text/plain")),
            ("a", AMQPValue::FieldArray(FieldArray::from(vec![text("1"), text("")]))),
            ("binary", AMQPValue::LongString(vec![0xff, 0].into())),
            ("null", AMQPValue::Void),
            ("r", text("x")),
            ("semel-CC", text("another queue")),
            ("semel-key", AMQPValue::LongString(b"\xffk".to_vec().into())),
            ("semel-null", text("1")),
        ]));
    assert_eq!(made, right);
    let bare = properties(&outgoing(Message { timestamp_millis: Some(-1), ..value() }, None)).expect("a form");
    assert_eq!(bare, BasicProperties::default().with_delivery_mode(2), "no id, no headers, no time before the epoch");
}

/// Everything typed stays typed; what was added on the way, and what Semel itself says, comes from the message.
#[test]
fn a_message_from_rabbitmq() {
    let death = AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(table(&[
        ("count", AMQPValue::LongLongInt(3)),
        ("time", AMQPValue::Timestamp(7)),
    ]))]));
    let typed = [
        ("x-death", death),
        ("n", AMQPValue::LongInt(-5)),
        ("CC", AMQPValue::FieldArray(FieldArray::from(vec![text("the queue it came from")]))),
        ("semel-verdict", AMQPValue::Boolean(true)),
    ];
    let amqp = BasicProperties::default()
        .with_content_type("t".into())
        .with_content_encoding("gzip".into())
        .with_priority(9)
        .with_delivery_mode(1)
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_expiration("60000".into())
        .with_message_id("its own".into())
        .with_timestamp(5)
        .with_type("y".into())
        .with_user_id("somebody".into())
        .with_app_id("a".into())
        .with_cluster_id("u".into())
        .with_headers(table(&typed));
    let headers = vec![
        Header::new("x-death", b"as text".as_slice()),
        Header::new("n", b"-5".as_slice()),
        Header::new("semel-verdict", b"duplicate".as_slice()),
        Header::new("added", b"1".as_slice()),
    ];
    let message = Message { headers, timestamp_millis: Some(9_000), amqp: Some(Box::new(amqp.clone())), ..value() };
    let made = properties(&outgoing(message.clone(), Some("0f"))).expect("a form");
    let [death, n, cc, _] = typed;
    let headers = table(&[
        death,
        n,
        ("semel-CC", cc.1),
        ("semel-verdict", text("duplicate")),
        ("added", text("1")),
        ("semel-user-id", text("somebody")),
        ("semel-message-id", text("its own")),
    ]);
    assert_eq!(made.user_id(), &None);
    let with_user = made.with_user_id("somebody".into());
    let right = amqp.with_delivery_mode(2).with_message_id("0f".into()).with_headers(headers);
    assert_eq!(with_user, right);

    let unnamed = properties(&outgoing(message.clone(), None)).expect("a form");
    assert_eq!(unnamed.message_id(), &Some("its own".into()), "without a key its own id stays in its place");
    assert!(!unnamed.headers().as_ref().expect("headers").contains_key("semel-message-id"));
    let same = properties(&outgoing(message, Some("its own"))).expect("a form");
    assert!(!same.headers().as_ref().expect("headers").contains_key("semel-message-id"), "nothing was replaced");
}

/// Through a second Semel the first own id stays.
#[test]
fn the_first_own_id_stays() {
    let amqp = BasicProperties::default()
        .with_message_id("key of the first hop".into())
        .with_headers(table(&[("semel-message-id", text("its own"))]));
    let headers = vec![Header::new("semel-message-id", b"its own".as_slice())];
    let message = Message { headers, amqp: Some(Box::new(amqp)), ..value() };
    let made = properties(&outgoing(message, Some("0f"))).expect("a form");
    assert_eq!(made.headers(), &Some(table(&[("semel-message-id", text("its own"))])));
}

#[test]
fn what_has_no_form() {
    let long = "n".repeat(256);
    let message = Message { headers: vec![Header::new(&long, b"x".as_slice())], ..value() };
    let problem = properties(&outgoing(message, None)).expect_err("no form");
    assert_eq!(problem, "a header's name has 256 bytes, and AMQP takes 255");
    let content_type = vec![Header::new("content-type", "t".repeat(256).into_bytes())];
    let made = properties(&outgoing(Message { headers: content_type, ..value() }, None)).expect("a form");
    assert_eq!(made.content_type(), &None, "a header may be so long, the property not");
}

/// Against what the client's own encoder writes.
#[test]
fn size_of_the_frame() {
    use lapin::types::generation::gen_field_table;
    let all = table(&[
        ("bool", AMQPValue::Boolean(true)),
        (
            "numbers",
            AMQPValue::FieldArray(FieldArray::from(vec![
                AMQPValue::ShortShortInt(1),
                AMQPValue::ShortShortUInt(1),
                AMQPValue::ShortInt(1),
                AMQPValue::ShortUInt(1),
                AMQPValue::LongInt(1),
                AMQPValue::LongUInt(1),
                AMQPValue::LongLongInt(1),
                AMQPValue::Float(1.0),
                AMQPValue::Double(1.0),
                AMQPValue::DecimalValue(DecimalValue { scale: 1, value: 1 }),
                AMQPValue::Timestamp(1),
            ])),
        ),
        ("text", text("some text")),
        ("bytes", AMQPValue::ByteArray(vec![1, 2, 3].into())),
        ("void", AMQPValue::Void),
        ("table", AMQPValue::FieldTable(table(&[("inside", text("x"))]))),
    ]);
    let mut space = [0; 1 << 10];
    let buffer = std::io::Cursor::new(&mut space[..]);
    let (_, written) = gen_field_table(&all)(buffer.into()).expect("it is encoded").into_inner();
    let bare = BasicProperties::default();
    assert_eq!(frame_bytes(&bare.clone().with_headers(all)) - frame_bytes(&bare), written as usize);
    assert_eq!(frame_bytes(&bare.clone().with_app_id("four".into())) - frame_bytes(&bare), 5);
}
