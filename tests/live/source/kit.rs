//! Short words for what the suite says over and over.

use std::time::{Duration, Instant};

use bytes::Bytes;
use semel::message::Message;
use semel::source::{Delivery, Gather, Received, Source, SourceError, Tag};

/// Messages that say their number.
pub fn numbered(numbers: impl IntoIterator<Item = usize>) -> Vec<Message> {
    numbers.into_iter().map(|number| Message { value: Some(number.to_string().into()), ..Message::default() }).collect()
}

pub fn number(delivery: &Delivery) -> usize {
    let value: &Bytes = delivery.message.value.as_ref().expect("a value");
    std::str::from_utf8(value).expect("text").parse().expect("a number")
}

pub fn numbers(deliveries: &[Delivery]) -> Vec<usize> {
    deliveries.iter().map(number).collect()
}

pub fn sorted(deliveries: &[Delivery]) -> Vec<usize> {
    let mut numbers = numbers(deliveries);
    numbers.sort_unstable();
    numbers
}

pub fn tags<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> Vec<Tag> {
    deliveries.into_iter().map(|delivery| delivery.tag).collect()
}

pub fn gather(messages_max: usize, wait_ms: u64) -> Gather {
    let (wait, linger) = (Duration::from_millis(wait_ms), Duration::from_millis(20));
    Gather { messages_max, bytes_max: 64 << 20, wait, linger }
}

pub async fn once(source: &mut dyn Source, gather: Gather) -> Result<Vec<Delivery>, SourceError> {
    match source.receive(gather).await? {
        Received::Deliveries(deliveries) => Ok(deliveries),
        Received::End => panic!("a queue has no end"),
    }
}

/// Receives until there are so many, connecting again where a connection was lost; fails where they do not come.
pub async fn take(source: &mut dyn Source, count: usize, within: Duration) -> Vec<Delivery> {
    let (mut taken, begun) = (Vec::new(), Instant::now());
    while taken.len() < count {
        assert!(begun.elapsed() < within, "{} of {count} came: {:?}", taken.len(), numbers(&taken));
        match once(source, gather(count - taken.len(), 200)).await {
            Ok(deliveries) => taken.extend(deliveries),
            Err(SourceError::Lost(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
    taken
}

/// Whatever else comes within this time.
pub async fn rest(source: &mut dyn Source, within: Duration) -> Vec<Delivery> {
    let (mut rest, until) = (Vec::new(), Instant::now() + within);
    while Instant::now() < until {
        rest.extend(once(source, gather(100_000, 100)).await.expect("a connection"));
    }
    rest
}

/// Receives until the lost connection is told.
pub async fn until_lost(source: &mut dyn Source) {
    for _ in 0..100 {
        match once(source, gather(1, 50)).await {
            Ok(_) => {}
            Err(SourceError::Lost(_)) => return,
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the lost connection is not told");
}
