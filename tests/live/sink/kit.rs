//! Messages, and what is expected of them.

use bytes::Bytes;
use semel::message::{Header, Message};
use semel::sink::{Destination, Outgoing, Published, Sink};

use super::{Broker, Stored};

pub fn to(destination: Destination, text: &str) -> Outgoing {
    let message = Message { value: Some(Bytes::from(text.to_owned())), ..Message::default() };
    Outgoing { destination, message, idempotency_key: Some(key(text)) }
}

pub fn forward(text: &str) -> Outgoing {
    to(Destination::Forward, text)
}

/// `PREFIX-0`, `PREFIX-1`, …
pub fn numbered(prefix: &str, messages: usize) -> Vec<Outgoing> {
    (0..messages).map(|n| forward(&format!("{prefix}-{n}"))).collect()
}

pub fn key(text: &str) -> Box<str> {
    semel::protocol::idempotency::of_row("tests", "messages", text)
}

pub fn header(name: &str, value: Option<&[u8]>) -> Header {
    Header { name: name.into(), value: value.map(Bytes::copy_from_slice) }
}

pub fn texts(stored: &[Stored]) -> Vec<String> {
    let text = |stored: &Stored| String::from_utf8_lossy(stored.value.as_deref().expect("a value")).into_owned();
    stored.iter().map(text).collect()
}

pub fn text_of(outgoing: &Outgoing) -> String {
    String::from_utf8_lossy(outgoing.message.value.as_deref().expect("a value")).into_owned()
}

/// Those of the messages that were answered so.
pub fn answered(messages: &[Outgoing], answers: &[Published], so: fn(&Published) -> bool) -> Vec<String> {
    assert_eq!(messages.len(), answers.len(), "each is answered for");
    let which = messages.iter().zip(answers).filter(|(_, answer)| so(answer));
    which.map(|(outgoing, _)| text_of(outgoing)).collect()
}

pub fn is_refused(answer: &Published) -> bool {
    matches!(answer, Published::Refused(_))
}

pub fn is_in_doubt(answer: &Published) -> bool {
    matches!(answer, Published::InDoubt(_))
}

#[track_caller]
pub fn all_confirmed(answers: &[Published]) {
    let first = answers.iter().enumerate().find(|(_, answer)| **answer != Published::Confirmed);
    assert_eq!(first, None, "of {} messages", answers.len());
}

/// Of a sink that has room for 5 messages and lets 10 out.
pub async fn ends_at_a_failure(sink: &mut dyn Sink, broker: &dyn Broker) {
    let messages = numbered("message", 500);
    let answers = sink.publish(&messages).await;
    let sent = answers.iter().position(|answer| *answer == Published::NotSent).expect("some were not sent");
    assert!(answers[sent..].iter().all(|answer| *answer == Published::NotSent), "{answers:?}");
    // The first to fail is the sixth, and 10 are out when that is known.
    assert!(sent <= 5 + 1 + 10, "{sent} were sent: {:?}", &answers[..sent]);
    let confirmed = answered(&messages, &answers, Published::is_stored);
    assert!(confirmed.len() >= 5 && confirmed.len() < sent, "{:?}", &answers[..sent]);
    assert_eq!(texts(&broker.take(Destination::Forward).await), confirmed);
}

/// Without white space at its ends and hardly by chance twice.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}
