//! RabbitMQ's queues as places of tests, and what only they have to show.

use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel::message::{Header, Message};
use semel::source::rabbitmq::{RabbitMqSource, RabbitMqSourceOptions};
use semel::source::{Source, SourceError};

use super::kit::{gather, numbered, once, rest, tags, take};
use super::subjects::{BIG_BYTES, of_value};
use super::{Place, block_on};
use crate::support::proxy::Proxy;
use crate::support::unique;

pub struct Queue {
    name: String,
    uri: AMQPUri,
    proxy: Proxy,
    channel: Channel,
    _connection: Connection,
}

impl Queue {
    /// `kind`: `classic` or `quorum`.
    pub async fn new(kind: &str) -> Queue {
        let url = std::env::var("SEMEL_TEST_RABBITMQ").expect("SEMEL_TEST_RABBITMQ is not set: run tests/run");
        let uri: AMQPUri = url.parse().expect("a URL");
        let connection = Connection::connect_uri(uri.clone(), ConnectionProperties::default()).await;
        let connection = connection.expect("RabbitMQ answers");
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        let name = unique(kind);
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        if kind == "quorum" {
            // Well above what the tests hand back, as an operator must set it.
            arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(1_000));
        }
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.as_str().into(), options, arguments).await.expect("a queue");
        let proxy = Proxy::of_anything(uri.authority.port);
        Queue { name, uri, proxy, channel, _connection: connection }
    }

    fn options(&self, prefetch: usize) -> RabbitMqSourceOptions {
        let user = &self.uri.authority.userinfo;
        RabbitMqSourceOptions {
            hosts: vec![format!("127.0.0.1:{}", self.proxy.port())],
            tls: false,
            user: Some((user.username.clone(), user.password.clone())),
            vhost: self.uri.vhost.clone(),
            queue: self.name.clone(),
            prefetch: u16::try_from(prefetch).expect("a prefetch"),
            client: unique("instance"),
            timeout: Duration::from_secs(5),
        }
    }

    /// How often the broker counted each of the next messages as given back, in the order of the queue.
    async fn delivery_counts(&self) -> Vec<i64> {
        let mut counts = Vec::new();
        let get = || self.channel.basic_get(self.name.as_str().into(), BasicGetOptions { no_ack: true });
        while let Some(message) = get().await.expect("an answer") {
            let count =
                message.properties.headers().as_ref().and_then(|table| table.inner().get("x-delivery-count").cloned());
            counts.push(match count {
                None => 0,
                Some(AMQPValue::LongLongInt(count)) => count,
                Some(other) => panic!("{other:?}"),
            });
        }
        counts
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let (channel, name) = (self.channel.clone(), self.name.clone());
        tokio::spawn(async move { channel.queue_delete(name.into(), QueueDeleteOptions::default()).await });
    }
}

#[async_trait]
impl Place for Queue {
    fn open(&self, prefetch: usize) -> Box<dyn Source> {
        Box::new(RabbitMqSource::new(self.options(prefetch)))
    }

    async fn send(&self, messages: &[Message]) {
        let mut confirms = Vec::new();
        for message in messages {
            let properties = message.amqp.as_deref().cloned().unwrap_or_default().with_delivery_mode(2);
            let body = message.value.as_deref().unwrap_or_default();
            let options = BasicPublishOptions::default();
            let sent = self.channel.basic_publish("".into(), self.name.as_str().into(), options, body, properties);
            confirms.push(sent.await.expect("sent"));
        }
        for confirm in confirms {
            assert!(confirm.await.expect("an answer").is_ack());
        }
    }

    fn cut(&self) {
        self.proxy.cut();
    }

    fn refuse(&self, refuses: bool) {
        self.proxy.refuse(refuses);
    }

    fn samples(&self) -> Vec<(Message, Message)> {
        let typed = BasicProperties::default()
            .with_headers(every_type())
            .with_content_type("application/json".into())
            .with_content_encoding("gzip".into())
            .with_priority(3)
            .with_correlation_id("c".into())
            .with_reply_to("r".into())
            .with_expiration("600000".into())
            .with_message_id("m-1".into())
            .with_timestamp(1_767_225_600)
            .with_type("t".into())
            .with_app_id("a".into());
        let header = |name: &str, value: Option<&str>| Header {
            name: name.into(),
            value: value.map(|value| value.as_bytes().to_vec().into()),
        };
        let texts = vec![
            header("array", Some(r#"[1,"two",null]"#)),
            header("bool", Some("true")),
            header("bytes", Some("raw")),
            header("decimal", Some("1.23")),
            header("double", Some("0.1")),
            header("float", Some("1.5")),
            header("i16", Some("-300")),
            header("i32", Some("-70000")),
            header("i64", Some("-9223372036854775808")),
            header("i8", Some("-8")),
            header("text", Some("läng")),
            header("time", Some("1767225600")),
            header("void", None),
            header("with", Some(r#"{"in":true}"#)),
        ];
        let as_sent = |message: Message| {
            let properties = message.amqp.as_deref().cloned().unwrap_or_default().with_delivery_mode(2);
            let right = Message { amqp: Some(Box::new(properties)), ..message.clone() };
            (message, right)
        };
        let sent = Message { amqp: Some(Box::new(typed)), ..of_value(b"body") };
        let (sent, plain) = as_sent(sent);
        let right = Message { headers: texts, timestamp_millis: Some(1_767_225_600_000), ..plain };
        vec![(sent, right), as_sent(of_value(b"")), as_sent(of_value(&[b'x'; BIG_BYTES]))]
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }
}

/// Every type of header that RabbitMQ keeps.
fn every_type() -> FieldTable {
    let mut inner = FieldTable::default();
    inner.insert("in".into(), AMQPValue::Boolean(true));
    let array = vec![AMQPValue::LongInt(1), AMQPValue::LongString("two".into()), AMQPValue::Void];
    let values = [
        ("bool", AMQPValue::Boolean(true)),
        ("i8", AMQPValue::ShortShortInt(-8)),
        ("i16", AMQPValue::ShortInt(-300)),
        ("i32", AMQPValue::LongInt(-70_000)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("float", AMQPValue::Float(1.5)),
        ("double", AMQPValue::Double(0.1)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 123 })),
        ("text", AMQPValue::LongString("läng".into())),
        ("bytes", AMQPValue::ByteArray(b"raw".to_vec().into())),
        ("time", AMQPValue::Timestamp(1_767_225_600)),
        ("array", AMQPValue::FieldArray(FieldArray::from(array))),
        ("with", AMQPValue::FieldTable(inner)),
        ("void", AMQPValue::Void),
    ];
    let mut table = FieldTable::default();
    for (name, value) in values {
        table.insert(name.into(), value);
    }
    table
}

/// A pause costs each message that was out one return, however long it lasts.
#[test]
fn a_quorum_queue_counts_one_return_for_a_pause() {
    block_on(async {
        let queue = Queue::new("quorum").await;
        queue.send(&numbered(0..10)).await;
        let mut source = queue.open(6);
        take(&mut *source, 4, queue.patience()).await;
        source.pause().await.expect("paused");
        source.pause().await.expect("paused already");
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut counts = queue.delivery_counts().await;
        counts.sort_unstable();
        assert_eq!(counts, [0, 0, 0, 0, 1, 1, 1, 1, 1, 1], "six were out, four of them handed out");
    });
}

/// The queue is gone under a source: what it says first is passing, and then it is not.
#[test]
fn what_is_not_there_is_refused() {
    block_on(async {
        let queue = Queue::new("classic").await;
        queue.send(&numbered(0..1)).await;
        let mut source = queue.open(1);
        let came = take(&mut *source, 1, queue.patience()).await;
        queue.channel.queue_delete(queue.name.as_str().into(), QueueDeleteOptions::default()).await.expect("deleted");
        let told = once(&mut *source, gather(1, 2_000)).await;
        assert!(matches!(told, Err(SourceError::Lost(_))), "{told:?}");
        source.acknowledge(&tags(&came)).await.expect("no error");
        let told = once(&mut *source, gather(1, 2_000)).await;
        assert!(matches!(told, Err(SourceError::Refused(_))), "{told:?}");
        let wrong = [
            RabbitMqSourceOptions { user: Some(("semel".into(), "wrong".into())), ..queue.options(1) },
            RabbitMqSourceOptions { vhost: "nowhere".into(), ..queue.options(1) },
        ];
        for options in wrong {
            let shown = format!("{options:?}");
            assert!(!shown.contains("wrong"), "{shown}");
            let told = once(&mut RabbitMqSource::new(options), gather(1, 100)).await;
            assert!(matches!(told, Err(SourceError::Refused(_))), "{shown}: {told:?}");
        }
    });
}

/// One host that does not answer is no reason to stop.
#[test]
fn any_host_will_do() {
    block_on(async {
        let queue = Queue::new("classic").await;
        queue.send(&numbered(0..1)).await;
        let mut options = queue.options(1);
        options.hosts.insert(0, "127.0.0.1:1".into());
        let mut source = RabbitMqSource::new(options);
        assert_eq!(rest(&mut source, Duration::from_secs(1)).await.len(), 1);
    });
}
