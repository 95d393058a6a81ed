//! Streams of NATS as places of tests, and what only they have to show.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, stream};
use async_nats::{HeaderMap, ServerAddr};
use async_trait::async_trait;
use semel::message::{Header, Message};
use semel::source::nats::{NatsSource, NatsSourceOptions};
use semel::source::{Source, SourceError};

use super::kit::{gather, numbered, numbers, once, rest, tags, take, until_lost};
use super::subjects::{BIG_BYTES, of_value};
use super::{Place, block_on};
use crate::support::proxy::Proxy;
use crate::support::unique;

pub struct Stream {
    name: String,
    address: ServerAddr,
    proxy: Proxy,
    context: jetstream::Context,
    ack_wait: Duration,
}

impl Stream {
    pub async fn new(ack_wait: Duration) -> Stream {
        let url = std::env::var("SEMEL_TEST_NATS").expect("SEMEL_TEST_NATS is not set: run tests/run");
        let address: ServerAddr = url.parse().expect("a URL");
        let options = async_nats::ConnectOptions::with_user_and_password(
            address.username().expect("a user").into(),
            address.password().expect("a password").into(),
        );
        let client = options.connect(address.clone()).await.expect("NATS answers");
        let context = jetstream::new(client);
        let name = unique("stream");
        let config = stream::Config { name: name.clone(), subjects: vec![name.clone()], ..stream::Config::default() };
        context.create_stream(config).await.expect("a stream");
        let proxy = Proxy::of_anything(address.port());
        Stream { name, address, proxy, context, ack_wait }
    }

    fn options(&self, prefetch: usize) -> NatsSourceOptions {
        NatsSourceOptions {
            hosts: vec![format!("127.0.0.1:{}", self.proxy.port())],
            tls: false,
            user: self.address.username().map(str::to_owned),
            password: self.address.password().map(str::to_owned),
            stream: self.name.clone(),
            consumer: "once".into(),
            prefetch,
            ack_wait: self.ack_wait,
            client: unique("instance"),
            timeout: Duration::from_secs(5),
        }
    }

    async fn send_with(&self, message: &Message) {
        let mut headers = HeaderMap::new();
        for header in &message.headers {
            let value = header.value.as_deref().map(|value| std::str::from_utf8(value).expect("text"));
            headers.append(&*header.name, value.expect("a value"));
        }
        let body = message.value.clone().unwrap_or_default();
        let sent = self.context.publish_with_headers(self.name.clone(), headers, body).await.expect("sent");
        sent.await.expect("stored");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let (context, name) = (self.context.clone(), self.name.clone());
        tokio::spawn(async move { context.delete_stream(name).await });
    }
}

#[async_trait]
impl Place for Stream {
    fn open(&self, prefetch: usize) -> Box<dyn Source> {
        Box::new(NatsSource::new(self.options(prefetch)))
    }

    async fn send(&self, messages: &[Message]) {
        let mut stored = Vec::new();
        for message in messages {
            if !message.headers.is_empty() {
                self.send_with(message).await;
                continue;
            }
            let body = message.value.clone().unwrap_or_default();
            stored.push(self.context.publish(self.name.clone(), body).await.expect("sent"));
            // The client sends no more than some thousand without an answer.
            if stored.len() == 1_000 {
                for stored in stored.drain(..) {
                    stored.await.expect("stored");
                }
            }
        }
        for stored in stored {
            stored.await.expect("stored");
        }
    }

    fn cut(&self) {
        self.proxy.cut();
    }

    fn refuse(&self, refuses: bool) {
        self.proxy.refuse(refuses);
    }

    fn samples(&self) -> Vec<(Message, Message)> {
        let header = |name: &str, value: &'static str| Header::new(name, value.as_bytes());
        let sent = vec![header("b", "2"), header("a", "1"), header("Nats-Msg-Id", "m-1"), header("a", "0")];
        let right = vec![header("Nats-Msg-Id", "m-1"), header("a", "1"), header("a", "0"), header("b", "2")];
        let [sent, right] = [sent, right].map(|headers| Message { headers, ..of_value(b"body") });
        // A body of a MiB is the server's limit, headers included.
        let big = of_value(&[b'x'; BIG_BYTES]);
        vec![(sent, right), (of_value(b""), of_value(b"")), (big.clone(), big)]
    }

    /// What a process had that is gone comes back after the wait for acknowledgements.
    fn patience(&self) -> Duration {
        self.ack_wait * 3
    }
}

/// What is held for longer than the wait for acknowledgements stays with its holder, as long as that one receives.
#[test]
fn what_is_held_is_kept() {
    block_on(async {
        let stream = Stream::new(Duration::from_secs(1)).await;
        stream.send(&numbered(0..3)).await;
        let mut source = stream.open(10);
        let held = take(&mut *source, 3, stream.patience()).await;
        let until = Instant::now() + stream.ack_wait * 4;
        while Instant::now() < until {
            let came = once(&mut *source, gather(10, 100)).await.expect("a connection");
            assert_eq!(numbers(&came), Vec::<usize>::new(), "they are held");
        }
        source.acknowledge(&tags(&held)).await.expect("acknowledged");
        stream.send(&numbered(3..5)).await;
        let held = take(&mut *source, 2, stream.patience()).await;
        tokio::time::sleep(stream.ack_wait * 2).await;
        let again = take(&mut *source, 2, stream.patience()).await;
        assert_eq!(numbers(&again), [3, 4], "who does not receive is taken for gone");
        source.acknowledge(&tags(&held)).await.expect("the older tag ends them, too");
        assert_eq!(numbers(&rest(&mut *source, stream.ack_wait * 2).await), Vec::<usize>::new());
    });
}

/// The server would wait for half a minute; the next connection does not.
#[test]
fn a_new_connection_hands_back_what_the_old_one_had() {
    block_on(async {
        let stream = Stream::new(Duration::from_secs(30)).await;
        stream.send(&numbered(0..8)).await;
        let mut source = stream.open(5);
        take(&mut *source, 3, Duration::from_secs(5)).await;
        stream.cut();
        until_lost(&mut *source).await;
        let again = take(&mut *source, 5, Duration::from_secs(5)).await;
        source.acknowledge(&tags(&again)).await.expect("acknowledged");
        let last = take(&mut *source, 3, Duration::from_secs(5)).await;
        source.acknowledge(&tags(&last)).await.expect("acknowledged");
    });
}

/// A thousand acknowledgements are not a thousand round trips.
#[test]
fn acknowledgements_go_together() {
    block_on(async {
        let stream = Stream::new(Duration::from_secs(30)).await;
        stream.send(&numbered(0..1_000)).await;
        let mut source = stream.open(1_000);
        let held = take(&mut *source, 1_000, Duration::from_secs(10)).await;
        let begun = Instant::now();
        source.acknowledge(&tags(&held)).await.expect("acknowledged");
        let took = begun.elapsed();
        println!("1,000 acknowledgements took {took:?}");
        let info = stream.context.get_stream(&stream.name).await.expect("there").consumer_info("once").await;
        assert_eq!(info.expect("an answer").num_ack_pending, 0, "confirmed when the call returns");
    });
}

/// A consumer that is there keeps what the source does not ask for, and one that acknowledges otherwise is refused.
#[test]
fn consumers_that_are_there() {
    block_on(async {
        let stream = Stream::new(Duration::from_secs(2)).await;
        let there = stream.context.get_stream(&stream.name).await.expect("there");
        let named = |name: &str, ack_policy| pull::Config {
            durable_name: Some(name.into()),
            description: Some("the operator's".into()),
            ack_policy,
            ack_wait: Duration::from_secs(60),
            max_batch: 2,
            ..pull::Config::default()
        };
        there.create_consumer(named("once", AckPolicy::Explicit)).await.expect("made");
        there.create_consumer(named("all", AckPolicy::All)).await.expect("made");
        stream.send(&numbered(0..5)).await;
        let came = take(&mut *stream.open(5), 5, Duration::from_secs(5)).await;
        assert_eq!(numbers(&came), [0, 1, 2, 3, 4], "two at a time");
        let config = there.consumer_info("once").await.expect("there").config;
        assert_eq!(config.description.as_deref(), Some("the operator's"));
        assert_eq!((config.ack_wait, config.max_ack_pending), (Duration::from_secs(2), 5));
        let wrong = [
            NatsSourceOptions { consumer: "all".into(), ..stream.options(5) },
            NatsSourceOptions { stream: unique("nowhere"), ..stream.options(5) },
            NatsSourceOptions { password: Some("wrong".into()), ..stream.options(5) },
        ];
        for options in wrong {
            let shown = format!("{options:?}");
            assert!(!shown.contains("wrong"), "{shown}");
            let told = once(&mut NatsSource::new(options), gather(1, 100)).await;
            assert!(matches!(told, Err(SourceError::Refused(_))), "{shown}: {told:?}");
        }
    });
}
