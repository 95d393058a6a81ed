//! The sinks under test.

use std::time::Duration;

use async_trait::async_trait;
use semel::sink::memory::MemorySink;
use semel::sink::nats::{NatsOptions, NatsSink, Servers};
use semel::sink::rabbitmq::{RabbitOptions, RabbitSink, Route, Server};
use semel::sink::{Destination, Sink};
use serde_json::{Value, json};

pub use super::files::file;
use super::nats::Streams;
use super::rabbitmq::Management;
use super::{Broker, Stored, Subject};
use crate::support::services::Services;
use crate::support::unique;

pub const DESTINATIONS: [Destination; 3] = [Destination::Forward, Destination::DeadLetter, Destination::Duplicates];

pub async fn memory(room: Option<usize>) -> Subject {
    let sink = MemorySink::new();
    sink.room(room);
    // As many as real sinks let out behind a failure.
    sink.out(100);
    Subject { sink: Box::new(sink.clone()), broker: Box::new(Remembered { sink, room }) }
}

struct Remembered {
    sink: MemorySink,
    room: Option<usize>,
}

#[async_trait]
impl Broker for Remembered {
    async fn take(&self, destination: Destination) -> Vec<Stored> {
        self.sink.room(self.room);
        let taken = self.sink.take(destination);
        taken
            .into_iter()
            .map(|outgoing| {
                let mut stored = Stored {
                    id: outgoing.idempotency_key.as_deref().map(str::to_owned),
                    key: outgoing.message.key.map(|key| key.to_vec()),
                    value: outgoing.message.value.map(|value| value.to_vec()),
                    timestamp_millis: outgoing.message.timestamp_millis,
                    ..Stored::default()
                };
                for header in outgoing.message.headers {
                    let values = stored.headers.entry(header.name.into()).or_default();
                    values.push(header.value.map(|value| value.to_vec()));
                }
                stored
            })
            .collect()
    }

    async fn remove(&self, destination: Destination) {
        self.sink.remove(destination);
    }

    async fn make(&self, destination: Destination) {
        self.sink.make(destination);
    }

    fn without_duplicates(&self) -> Option<Box<dyn Sink>> {
        None
    }

    fn keeps_millis(&self) -> bool {
        true
    }
}

pub async fn classic(room: Option<usize>) -> Subject {
    Queues::make_all(&Services::shared(), "classic", room).await.under_test()
}

pub async fn quorum(room: Option<usize>) -> Subject {
    Queues::make_all(&Services::shared(), "quorum", room).await.under_test()
}

/// A queue for each destination.
pub struct Queues {
    pub management: Management,
    pub server: Server,
    name: String,
    kind: &'static str,
    room: Option<usize>,
}

impl Queues {
    /// `kind`: classic or quorum.
    pub async fn make_all(services: &Services, kind: &'static str, room: Option<usize>) -> Queues {
        let queues = Queues {
            management: Management::new(&services.rabbitmq.management),
            name: unique("sink"),
            server: server(&services.rabbitmq.url),
            kind,
            room,
        };
        for destination in DESTINATIONS {
            queues.make(destination).await;
        }
        queues
    }

    fn under_test(self) -> Subject {
        Subject { sink: Box::new(RabbitSink::new(self.options())), broker: Box::new(self) }
    }

    pub fn queue(&self, destination: Destination) -> String {
        format!("{}-{destination:?}", self.name)
    }

    pub fn options(&self) -> RabbitOptions {
        let route = |destination| Route::to_queue(&self.queue(destination));
        RabbitOptions {
            dead_letter: Some(route(Destination::DeadLetter)),
            duplicates: Some(route(Destination::Duplicates)),
            ..RabbitOptions::new(self.server.clone(), route(Destination::Forward))
        }
    }
}

#[async_trait]
impl Broker for Queues {
    async fn take(&self, destination: Destination) -> Vec<Stored> {
        self.management.take(&self.queue(destination)).await
    }

    async fn remove(&self, destination: Destination) {
        self.management.delete(&self.queue(destination)).await;
    }

    async fn make(&self, destination: Destination) {
        let mut arguments = json!({ "x-queue-type": self.kind });
        if let (Some(room), Destination::Forward) = (self.room, destination) {
            arguments["x-max-length"] = room.into();
            arguments["x-overflow"] = "reject-publish".into();
        }
        self.management.declare(&self.queue(destination), arguments).await;
    }

    fn without_duplicates(&self) -> Option<Box<dyn Sink>> {
        Some(Box::new(RabbitSink::new(RabbitOptions { duplicates: None, ..self.options() })))
    }

    fn keeps_millis(&self) -> bool {
        false
    }
}

/// User, password and `host:port` of a URL.
pub fn login(url: &str) -> (String, String, String) {
    let url = url::Url::parse(url).expect("a URL");
    let host = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
    (url.username().to_owned(), url.password().expect("a password").to_owned(), host)
}

pub fn server(url: &str) -> Server {
    let (user, password, host) = login(url);
    Server::new(vec![host], &user, &password, "/")
}

pub async fn nats(room: Option<usize>) -> Subject {
    OwnStreams::make_all(&Services::shared(), room).await.under_test()
}

/// A stream for each destination.
pub struct OwnStreams {
    pub streams: Streams,
    pub servers: Servers,
    name: String,
    room: Option<usize>,
}

impl OwnStreams {
    pub async fn make_all(services: &Services, room: Option<usize>) -> OwnStreams {
        let streams = OwnStreams {
            streams: Streams::connect(&services.nats).await,
            servers: servers(&services.nats),
            name: unique("sink"),
            room,
        };
        for destination in DESTINATIONS {
            streams.make(destination).await;
        }
        streams
    }

    fn under_test(self) -> Subject {
        Subject { sink: Box::new(NatsSink::new(self.options())), broker: Box::new(self) }
    }

    pub fn subject(&self, destination: Destination) -> String {
        format!("{}-{destination:?}", self.name)
    }

    pub fn options(&self) -> NatsOptions {
        NatsOptions {
            dead_letter: Some(self.subject(Destination::DeadLetter)),
            duplicates: Some(self.subject(Destination::Duplicates)),
            lease: Duration::from_secs(30),
            ..NatsOptions::new(self.servers.clone(), &self.subject(Destination::Forward))
        }
    }
}

#[async_trait]
impl Broker for OwnStreams {
    async fn take(&self, destination: Destination) -> Vec<Stored> {
        self.streams.take(&self.subject(destination)).await
    }

    async fn remove(&self, destination: Destination) {
        self.streams.delete(&self.subject(destination)).await;
    }

    async fn make(&self, destination: Destination) {
        let limits = match (self.room, destination) {
            (Some(room), Destination::Forward) => json!({ "max_msgs": room }),
            _ => Value::Object(serde_json::Map::new()),
        };
        self.streams.create(&self.subject(destination), limits).await;
    }

    fn without_duplicates(&self) -> Option<Box<dyn Sink>> {
        Some(Box::new(NatsSink::new(NatsOptions { duplicates: None, ..self.options() })))
    }

    fn keeps_millis(&self) -> bool {
        true
    }
}

pub fn servers(url: &str) -> Servers {
    let (user, password, host) = login(url);
    Servers { user: Some(user), password: Some(password), ..Servers::new(vec![host]) }
}
