//! What every sink shows. Each takes how to make a subject with room for so many messages.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use semel::message::Message;
use semel::sink::{Destination, Outgoing, Published, SinkError};

use super::kit::{all_confirmed, answered, forward, header, is_in_doubt, is_refused, noise, numbered, texts, to};
use super::{Stored, Subject};

const PATIENCE: Duration = Duration::from_secs(20);

/// What is read from the broker by other means is what was given.
pub async fn as_it_was(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    let headers = vec![
        header("text", Some(b"some text, with = and %41")),
        header("again", Some(b"1")),
        header("empty", Some(b"")),
        header("again", Some(b"2")),
        header("again", Some(b"1")),
        header("null", None),
        header("binary", Some(&[0xff, 0, b'\n', 0xfe])),
        header("blanks", Some(b" x ")),
        header("größe", Some("ü".as_bytes())),
        header("a name:with, all (sorts)", Some(b"x")),
    ];
    let messages = [
        Message { headers, ..value(b"with headers") },
        Message { key: Some("key".into()), timestamp_millis: Some(1_700_000_000_123), ..value(b"with key and time") },
        Message { key: Some(vec![0xff, 0, b' '].into()), ..value(b"a key of bytes") },
        Message { key: Some("".into()), ..value(b"an empty key") },
        value(b""),
        Message { key: Some("deleted".into()), ..Message::default() },
        value(&noise(1, 300_000)),
        value(&[0, 0xff, b'\r', b'\n']),
    ];
    let keys = (0..messages.len()).map(|n| super::kit::key(&n.to_string())).collect::<Vec<_>>();
    let outgoing: Vec<Outgoing> = messages
        .iter()
        .zip(&keys)
        .map(|(message, key)| Outgoing {
            destination: Destination::Forward,
            message: message.clone(),
            idempotency_key: Some(key.clone()),
        })
        .chain([Outgoing { destination: Destination::Forward, message: value(b"no key"), idempotency_key: None }])
        .collect();
    assert!(outgoing.iter().all(|outgoing| sink.unfit(outgoing).is_none()));
    all_confirmed(&sink.publish(&outgoing).await);
    let stored = broker.take(Destination::Forward).await;
    let right: Vec<Stored> = outgoing.iter().map(|outgoing| expected(outgoing, broker.keeps_millis())).collect();
    for (n, (stored, right)) in stored.iter().zip(&right).enumerate() {
        assert_eq!(stored, right, "message {n}");
    }
    assert_eq!(stored.len(), right.len());
}

fn value(value: &[u8]) -> Message {
    Message { value: Some(value.to_vec().into()), ..Message::default() }
}

fn expected(outgoing: &Outgoing, keeps_millis: bool) -> Stored {
    let message = &outgoing.message;
    let mut headers: BTreeMap<String, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    for header in &message.headers {
        headers.entry(header.name.to_string()).or_default().push(header.value.as_ref().map(|value| value.to_vec()));
    }
    let exact = message.timestamp_millis;
    Stored {
        id: outgoing.idempotency_key.as_deref().map(str::to_owned),
        key: message.key.as_ref().map(|key| key.to_vec()),
        value: message.value.as_ref().map(|value| value.to_vec()),
        headers,
        timestamp_millis: if keeps_millis { exact } else { exact.map(|millis| millis / 1000 * 1000) },
    }
}

pub async fn in_order_to_each_destination(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    let destinations = [Destination::Forward, Destination::DeadLetter, Destination::Duplicates];
    let messages: Vec<Outgoing> = (0..300).map(|n| to(destinations[n * n % 3], &format!("message {n}"))).collect();
    sink.check().await.expect("everything is there");
    all_confirmed(&sink.publish(&messages[..200]).await);
    all_confirmed(&sink.publish(&messages[200..]).await);
    for destination in destinations {
        let own = messages.iter().filter(|outgoing| outgoing.destination == destination);
        let own: Vec<String> = own.map(super::kit::text_of).collect();
        assert_eq!(texts(&broker.take(destination).await), own, "{destination:?}");
    }
}

pub async fn five_thousand(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    let messages = numbered("message", 5_000);
    let begin = Instant::now();
    for window in messages.chunks(1_250) {
        all_confirmed(&sink.publish(window).await);
    }
    println!("{:.0} messages/s confirmed, in windows of 1250", 5_000.0 / begin.elapsed().as_secs_f64());
    let stored = broker.take(Destination::Forward).await;
    assert_eq!(stored.len(), 5_000);
    for (stored, outgoing) in stored.iter().zip(&messages) {
        assert_eq!(*stored, expected(outgoing, true));
    }
}

/// A full queue refuses: what it refused it has not, what it confirmed it has; and there is an end to refusing.
pub async fn full(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(Some(20)).await;
    let (mut confirmed, mut refused) = (Vec::new(), Vec::new());
    let messages = numbered("message", 3_000);
    for window in messages.chunks(100) {
        let answers = sink.publish(window).await;
        confirmed.extend(answered(window, &answers, Published::is_stored));
        refused.extend(answered(window, &answers, is_refused));
        assert_eq!(answered(window, &answers, is_in_doubt), Vec::<String>::new(), "{answers:?}");
        if !refused.is_empty() {
            let first = answers.iter().position(is_refused).expect("refused");
            assert!(answers[..first].iter().all(Published::is_stored), "in order up to the first: {answers:?}");
            break;
        }
    }
    assert!(confirmed.len() >= 20 && !refused.is_empty(), "{} confirmed, {refused:?} refused", confirmed.len());
    let again = forward(&refused[0]);
    assert!(is_refused(&sink.publish(std::slice::from_ref(&again)).await[0]), "it is still full");
    assert_eq!(texts(&broker.take(Destination::Forward).await), confirmed);
    let begin = Instant::now();
    loop {
        let answers = sink.publish(std::slice::from_ref(&again)).await;
        if answers == [Published::Confirmed] {
            break;
        }
        assert!(is_refused(&answers[0]) && begin.elapsed() < PATIENCE, "there is room again: {answers:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(texts(&broker.take(Destination::Forward).await), [refused[0].clone()]);
}

/// A destination that is not there is told by the check, nothing sent to it succeeds, and it may come later.
pub async fn missing(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    broker.remove(Destination::DeadLetter).await;
    let refusal = sink.check().await.expect_err("one is missing");
    assert!(matches!(refusal, SinkError::Refused(_)), "{refusal:?}");
    let messages = [to(Destination::DeadLetter, "a"), to(Destination::DeadLetter, "b")];
    let answers = sink.publish(&messages).await;
    assert!(answers.iter().all(|answer| matches!(answer, Published::InDoubt(_) | Published::NotSent)), "{answers:?}");
    broker.make(Destination::DeadLetter).await;
    sink.check().await.expect("it is there");
    all_confirmed(&sink.publish(&messages).await);
    assert_eq!(texts(&broker.take(Destination::DeadLetter).await), ["a", "b"]);
}

/// What loses its way while the sink is at work is in doubt, and only that is; the sink works on.
pub async fn unroutable(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    all_confirmed(&sink.publish(&[forward("first"), to(Destination::DeadLetter, "first")]).await);
    broker.remove(Destination::DeadLetter).await;
    let lost = |n: usize| n % 7 == 3;
    let message = |n: usize| {
        let destination = if lost(n) { Destination::DeadLetter } else { Destination::Forward };
        to(destination, &format!("message {n}"))
    };
    for round in 0..5 {
        let messages: Vec<Outgoing> = (round * 500..round * 500 + 500).map(message).collect();
        let answers = sink.publish(&messages).await;
        assert!(answers.iter().any(is_in_doubt), "{answers:?}");
        for (outgoing, answer) in messages.iter().zip(&answers) {
            let right = match outgoing.destination {
                Destination::Forward => matches!(answer, Published::Confirmed | Published::NotSent),
                _ => matches!(answer, Published::InDoubt(_) | Published::NotSent),
            };
            assert!(right, "{:?}: {answer:?}", outgoing.destination);
        }
        let mut stored = answered(&messages, &answers, Published::is_stored);
        if round == 0 {
            stored.insert(0, "first".to_owned());
        }
        assert_eq!(texts(&broker.take(Destination::Forward).await), stored);
    }
    broker.make(Destination::DeadLetter).await;
    all_confirmed(&sink.publish(&[to(Destination::DeadLetter, "last")]).await);
}

/// A destination that nobody set is refused for ever; that is known beforehand, and holds nothing else up.
pub async fn not_configured(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    let Some(mut unset) = broker.without_duplicates() else { return };
    let messages = [forward("a"), to(Destination::Duplicates, "b"), forward("c")];
    assert!(unset.unfit(&messages[1]).is_some() && unset.unfit(&messages[0]).is_none());
    let answers = unset.publish(&messages).await;
    assert!(answers[0] == Published::Confirmed && is_refused(&answers[1]), "{answers:?}");
    assert_eq!(answers[2], Published::NotSent);
    all_confirmed(&sink.publish(&messages[2..]).await);
    assert_eq!(texts(&broker.take(Destination::Forward).await), ["a", "c"]);
}

pub async fn nothing(make: impl AsyncFn(Option<usize>) -> Subject) {
    let Subject { mut sink, broker } = make(None).await;
    assert_eq!(sink.publish(&[]).await, []);
    assert_eq!(broker.take(Destination::Forward).await, []);
}
