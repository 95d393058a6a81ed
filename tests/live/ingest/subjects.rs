//! Stores and sinks under test.

use std::sync::Arc;
use std::time::Duration;

use semel::config::kafka::Properties;
use semel::config::kafka_end;
use semel::pipeline::leased::wiring::IntoKafka;
use semel::sink::kafka::Topics;
use semel::sink::memory::MemorySink;
use semel::sink::nats::{NatsOptions, NatsSink, Servers};
use semel::store::embedded::EmbeddedStore;
use semel::store::memory::MemoryStore;
use semel::store::slots::SlotStore;

use super::Subject;
use crate::store::subjects::{OwnDatabase, connect, make_database};
use crate::support::broker::Broker;
use crate::support::services::Services;
use crate::support::unique;

/// Not in whole seconds: `Retry-After` is the next one.
const LEASE: Duration = Duration::from_millis(8_500);
/// Where it has to be waited for.
const SHORT_LEASE: Duration = Duration::from_millis(3_500);

fn over(store: Arc<dyn SlotStore>, lease: Duration) -> Subject {
    let sink = MemorySink::deduplicating();
    let stored = sink.clone();
    Subject {
        pipeline: "ingest".to_owned(),
        store,
        sink: Box::new(move || Box::new(sink.clone())),
        kafka: None,
        published: Box::new(move || {
            let values =
                stored.stored().into_iter().map(|outgoing| outgoing.message.value.unwrap_or_default().to_vec());
            let values: Vec<Vec<u8>> = values.collect();
            Box::pin(async move { values })
        }),
        lease,
        lapse: Box::new(move || Box::pin(tokio::time::sleep(lease + Duration::from_millis(100)))),
        keep: Box::new(()),
    }
}

pub async fn memory() -> Subject {
    let store = Arc::new(MemoryStore::new());
    let clock = Arc::clone(&store);
    let lapse = move || -> super::kit::Later<()> {
        clock.advance(LEASE);
        Box::pin(async {})
    };
    Subject { lapse: Box::new(lapse), ..over(store, LEASE) }
}

pub async fn embedded() -> Subject {
    let folder = tempfile::tempdir().expect("a folder");
    let store = EmbeddedStore::open(&folder.path().join("claims")).expect("the store opens");
    Subject { keep: Box::new(folder), ..over(Arc::new(store), SHORT_LEASE) }
}

pub async fn postgres() -> Subject {
    let url = make_database(&Services::shared()).await;
    let store = connect(&url).await;
    store.migrate().await.expect("a schema");
    Subject { keep: Box::new(OwnDatabase(url)), ..over(Arc::new(store), SHORT_LEASE) }
}

/// A stream of NATS that a test has to itself.
pub struct Stream {
    context: async_nats::jetstream::Context,
    name: String,
    servers: Servers,
}

impl Stream {
    pub async fn make(services: &Services, duplicate_window: Duration) -> Stream {
        assert!(!services.nats.is_empty(), "NATS was not started: run tests/run");
        let context = connected(&services.nats).await;
        let name = unique("ingest");
        let config = async_nats::jetstream::stream::Config {
            name: name.clone(),
            subjects: vec![name.clone()],
            duplicate_window,
            num_replicas: 1,
            ..Default::default()
        };
        context.create_stream(config).await.expect("a stream");
        let (host, user, password) = log_in(&services.nats);
        let servers = Servers { user: Some(user), password: Some(password), ..Servers::new(vec![host]) };
        Stream { context, name, servers }
    }

    /// As a setting.
    pub fn url(&self) -> String {
        let Servers { hosts, user, password, .. } = &self.servers;
        let [user, password] = [user, password].map(|part| part.clone().unwrap_or_default());
        format!("nats://{user}:{password}@{}?subject={}", hosts[0], self.name)
    }

    pub fn sink(&self, lease: Duration) -> NatsSink {
        NatsSink::new(NatsOptions { lease, timeout: lease / 2, ..NatsOptions::new(self.servers.clone(), &self.name) })
    }

    /// Values in the order in which they were stored.
    pub async fn values(&self) -> Vec<Vec<u8>> {
        let mut stream = self.context.get_stream(&self.name).await.expect("the stream");
        let last = stream.info().await.expect("its state").state.last_sequence;
        let mut values = Vec::new();
        for sequence in 1..=last {
            values.push(stream.get_raw_message(sequence).await.expect("a message").payload.to_vec());
        }
        values
    }

    /// Ids of what was stored. The client's connection may be of a runtime that is gone: it is made anew.
    pub fn ids_now(&self) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let values = runtime.block_on(async {
            let context = connected(&Services::shared().nats).await;
            Stream { context, name: self.name.clone(), servers: self.servers.clone() }.values().await
        });
        values.iter().map(|value| super::kit::id_of(value)).collect()
    }
}

/// Host, user and password of a URL.
fn log_in(url: &str) -> (String, String, String) {
    let url = url::Url::parse(url).expect("a URL");
    let host = format!("{}:{}", url.host_str().expect("a host"), url.port().expect("a port"));
    (host, url.username().to_owned(), url.password().expect("a password").to_owned())
}

async fn connected(url: &str) -> async_nats::jetstream::Context {
    let (host, user, password) = log_in(url);
    let options = async_nats::ConnectOptions::with_user_and_password(user, password);
    async_nats::jetstream::new(options.connect(host).await.expect("a connection"))
}

async fn nats(store: Arc<dyn SlotStore>, keep: Box<dyn std::any::Any>) -> Subject {
    let stream = Arc::new(Stream::make(&Services::shared(), Duration::from_secs(120)).await);
    let (sinks, stored) = (Arc::clone(&stream), stream);
    Subject {
        sink: Box::new(move || Box::new(sinks.sink(SHORT_LEASE))),
        published: Box::new(move || {
            let stored = Arc::clone(&stored);
            Box::pin(async move { stored.values().await })
        }),
        keep,
        ..over(store, SHORT_LEASE)
    }
}

pub async fn embedded_nats() -> Subject {
    let Subject { store, keep, .. } = embedded().await;
    nats(store, keep).await
}

pub async fn postgres_nats() -> Subject {
    let Subject { store, keep, .. } = postgres().await;
    nats(store, keep).await
}

/// Of a transaction, where none is to fail by it.
const PATIENT: Duration = Duration::from_secs(6);

/// A topic of one partition that a test has to itself.
pub async fn in_kafka(subject: Subject) -> (Subject, String) {
    in_kafka_by(&Services::shared().kafka, PATIENT, subject).await
}

/// By these brokers, with transactions of up to this long.
pub async fn in_kafka_by(
    brokers: &str,
    transaction_timeout: Duration,
    Subject { store, keep, .. }: Subject,
) -> (Subject, String) {
    let broker = Broker(Services::shared().kafka);
    let topic = unique("ingest");
    tokio::task::block_in_place(|| broker.make_topic(&topic, 1, &[]));
    let sink = kafka_end::Sink {
        brokers: vec![brokers.to_owned()],
        topic: topic.clone(),
        transaction_timeout,
        properties: Properties::default(),
        oauth_token_file: None,
    };
    let topics = Topics { forward: topic.clone(), dead_letter: None, duplicates: None };
    let found = IntoKafka::find(&sink, topics, &*store, Duration::from_secs(10)).await.expect("an answer");
    let read = topic.clone();
    let subject = Subject {
        pipeline: topic.clone(),
        kafka: Some(found.unwrap_or_else(|problems| panic!("{problems:?}"))),
        published: Box::new(move || {
            let logs = tokio::task::block_in_place(|| broker.read(&read));
            let values = logs.into_iter().flat_map(|log| log.records).map(|record| record.value.unwrap_or_default());
            let values: Vec<Vec<u8>> = values.collect();
            Box::pin(async move { values })
        }),
        keep,
        ..over(store, LEASE)
    };
    (subject, topic)
}

pub async fn embedded_kafka() -> Subject {
    in_kafka(embedded().await).await.0
}

pub async fn postgres_kafka() -> Subject {
    in_kafka(postgres().await).await.0
}
