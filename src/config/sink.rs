//! Where messages go.

use std::time::Duration;

use super::kafka::{Clients, Properties};
use super::kafka_url::{KafkaUrl, check_topic};
use super::policy::{DUPLICATES, Duplicates, Policies};
use super::reader::Reader;
use super::route::kind;
use super::setting::{Choice, Default, Kind, Setting};
use super::source::Source;

pub const SINK: Setting = Setting::new(
    "SEMEL_SINK",
    Kind::Url(
        "kafka://HOST:PORT,…/TOPIC?partition=murmur2|same, \
         amqp://USER:PASSWORD@HOST:PORT,…/VHOST?queue=QUEUE or ?exchange=EXCHANGE&routing_key=KEY (or amqps://), \
         nats://USER:PASSWORD@HOST:PORT,…?subject=SUBJECT, file:PATH?format=value|record",
    ),
    Default::Required,
    "What is written to: a topic on the source's cluster, a queue or exchange of RabbitMQ, a subject of NATS JetStream, a \
     file that gets a line a message (its value, or a JSON object of all of it). \
     Without a host (`kafka:///TOPIC`) it is on the source's servers. Partitions by key as Java's clients do (murmur2), \
     or the message's own number (same).",
)
.with_references();

pub const SINK_PASSWORD: Setting = Setting::new(
    "SEMEL_SINK_PASSWORD",
    Kind::Text,
    Default::Absent("the one in the URL"),
    "Password of the user in SEMEL_SINK; for NATS without a user the token. Not for Kafka.",
)
.secret();

pub const TRANSACTION_TIMEOUT: Setting = Setting::new(
    "SEMEL_TRANSACTION_TIMEOUT",
    Kind::Duration,
    Default::Value("15s"),
    "How long a window's transaction may stay open; read_committed readers wait so long for a worker that died.",
);

pub const DEAD_LETTER: Setting = Setting::new(
    "SEMEL_DEAD_LETTER",
    Kind::Text,
    Default::Absent("needed where a policy is `reject`"),
    "Topic, queue or subject on the sink's servers (beside a file another) for messages that cannot be claimed or \
     forwarded.",
)
.with_references()
.in_pipe_without("a file `OUT.rejected`, beside a stream `./semel-rejected.ndjson`")
.written_in_pipe("path")
.told_in_pipe("File for lines that are rejected, each with its cause and its place.");

pub const DUPLICATES_TOPIC: Setting = Setting::new(
    "SEMEL_DUPLICATES_TOPIC",
    Kind::Text,
    Default::Absent("needed with SEMEL_DUPLICATES=route"),
    "Topic, queue or subject on the sink's servers (beside a file another) for duplicates.",
)
.with_references();

pub const SETTINGS: &[&Setting] = &[&SINK, &SINK_PASSWORD, &TRANSACTION_TIMEOUT, &DEAD_LETTER, &DUPLICATES_TOPIC];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioning {
    /// By the key, like Java's clients; without a key anywhere.
    Murmur2,
    /// The number of the partition that the message was read from.
    Same,
}

impl Choice for Partitioning {
    const ALL: &'static [(&'static str, Partitioning)] =
        &[("murmur2", Partitioning::Murmur2), ("same", Partitioning::Same)];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// `host:port` each.
    pub brokers: Vec<String>,
    pub topic: String,
    pub partitioning: Partitioning,
    pub transaction_timeout: Duration,
    pub dead_letter: Option<String>,
    pub duplicates: Option<String>,
    pub properties: Properties,
}

impl Sink {
    pub(super) fn read(
        reader: &Reader<'_>,
        clients: Option<&Clients>,
        source: Option<&Source>,
        policies: Option<&Policies>,
    ) -> Option<Sink> {
        let url = reader.parsed(&SINK, |text| {
            kind(text)?;
            let url = KafkaUrl::parse(text, &["partition"])?;
            let [topic] = &url.topics[..] else { return Err("it names one topic".to_owned()) };
            let partitioning = match url.parameter("partition") {
                None => Partitioning::Murmur2,
                Some(word) => Partitioning::ALL
                    .iter()
                    .find(|(known, _)| *known == word)
                    .map(|(_, partitioning)| *partitioning)
                    .ok_or_else(|| format!("`partition={word}` is neither murmur2 nor same"))?,
            };
            Ok((topic.clone(), partitioning, url.brokers))
        });
        let transaction_timeout = reader.duration(&TRANSACTION_TIMEOUT, "1s", "15m");
        let topic = |setting| {
            reader.optional(setting, || reader.parsed(setting, |text| check_topic(text).map(|()| text.to_owned())))
        };
        let dead_letter = topic(&DEAD_LETTER);
        let duplicates = topic(&DUPLICATES_TOPIC);
        if let Some(policies) = policies {
            check_topics_needed(reader, policies);
        }
        let (topic, partitioning, brokers) = url?;
        let brokers = if brokers.is_empty() { source?.brokers.clone() } else { brokers };
        Some(Sink {
            brokers,
            topic,
            partitioning,
            transaction_timeout: transaction_timeout?,
            dead_letter: dead_letter?,
            duplicates: duplicates?,
            properties: clients?.sink.clone(),
        })
    }
}

pub(super) fn check_topics_needed(reader: &Reader<'_>, policies: &Policies) {
    let rejecting = policies.rejecting();
    match (reader.is_given(&DEAD_LETTER), &rejecting[..]) {
        (false, [_, ..]) => {
            let settings = rejecting.join(", ");
            reader.problem(format!("{}: it must be given, since these reject: {settings}", DEAD_LETTER.name));
        }
        (true, []) => reader.has_no_effect(&DEAD_LETTER, "no policy rejects"),
        _ => {}
    }
    match (reader.is_given(&DUPLICATES_TOPIC), policies.duplicates == Duplicates::Route) {
        (false, true) => {
            reader.problem(format!("{}: {}=route needs it", DUPLICATES_TOPIC.name, DUPLICATES.name));
        }
        (true, false) => {
            reader.has_no_effect(&DUPLICATES_TOPIC, &format!("{} is not route", DUPLICATES.name));
        }
        _ => {}
    }
}

/// Topics of which two must not be one.
pub(super) fn check_topics(reader: &Reader<'_>, source: &Source, sink: &Sink) {
    let outputs = [
        (&SINK, Some(&sink.topic)),
        (&DEAD_LETTER, sink.dead_letter.as_ref()),
        (&DUPLICATES_TOPIC, sink.duplicates.as_ref()),
    ];
    let outputs: Vec<(&Setting, &String)> =
        outputs.into_iter().filter_map(|(setting, topic)| Some((setting, topic?))).collect();
    for (n, (setting, topic)) in outputs.iter().enumerate() {
        if source.topics.contains(topic) {
            reader.problem_with(setting, format!("{topic} is read by SEMEL_SOURCE: it would feed itself"));
        }
        if let Some((other, _)) = outputs[..n].iter().find(|(_, there)| there == topic) {
            reader.problem_with(setting, format!("{topic} is {}'s topic already", other.name));
        }
    }
}
