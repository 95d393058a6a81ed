//! Where messages without offsets come from, and where they go.

use std::fmt;

use super::kafka_url::check_topic;
use super::reader::Reader;
use super::route::{Kind, kind};
use super::setting::Setting;
use super::sink::{SINK, SINK_PASSWORD};
use super::source::{SOURCE, SOURCE_PASSWORD};
use super::{file_end, kafka_end, nats, rabbitmq};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    RabbitMq(rabbitmq::Source),
    Nats(nats::Source),
    Stdin,
}

/// For people: what it is and its name, no server and no log-in.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::RabbitMq(source) => write!(f, "queue {}", source.queue),
            Source::Nats(source) => write!(f, "stream {} by consumer {}", source.stream, source.consumer),
            Source::Stdin => f.write_str("standard input"),
        }
    }
}

impl Source {
    pub(super) fn read(reader: &Reader<'_>) -> Option<Source> {
        let mut source = reader.parsed(&SOURCE, Source::parse);
        match &mut source {
            Some(Source::RabbitMq(source)) => source.servers.log_in(reader, &SOURCE, &SOURCE_PASSWORD, false),
            Some(Source::Nats(source)) => source.servers.log_in(reader, &SOURCE, &SOURCE_PASSWORD, true),
            Some(Source::Stdin) => reader.has_no_effect(&SOURCE_PASSWORD, "nobody logs in to standard input"),
            None => {}
        }
        source
    }

    pub(super) fn parse(text: &str) -> Result<Source, String> {
        match kind(text)? {
            Kind::RabbitMq => rabbitmq::Source::parse(text).map(Source::RabbitMq),
            Kind::Nats => nats::Source::parse(text).map(Source::Nats),
            Kind::Stdin if text == "stdin:" => Ok(Source::Stdin),
            Kind::Stdin => Err("nothing follows `stdin:`".to_owned()),
            Kind::Kafka => Err("Kafka's messages have offsets".to_owned()),
            Kind::File => Err("a file is read by `semel pipe`, or by a redirection into `stdin:`".to_owned()),
        }
    }

    /// What its pipeline is called when nobody gives it a name. None where nothing has a name, or one with a slash.
    pub(super) fn pipeline(&self) -> Option<String> {
        match self {
            Source::RabbitMq(source) => Some(source.queue.clone()),
            Source::Nats(source) => Some(source.pipeline()),
            Source::Stdin => None,
        }
        .filter(|name| !name.contains('/'))
    }

    /// Why there is no time of the producer's own in what comes from here.
    pub(super) fn is_timeless(&self) -> Option<&'static str> {
        match self {
            Source::RabbitMq(_) => None,
            Source::Nats(_) => Some("in NATS a message has the time at which it was stored, which a retry renews"),
            Source::Stdin => Some("lines have no time of their own"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    RabbitMq(rabbitmq::Sink),
    Nats(nats::Sink),
    Kafka(kafka_end::Sink),
    File(file_end::Sink),
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sink::RabbitMq(sink) => match sink.queue() {
                Some(queue) => write!(f, "queue {queue}"),
                None => write!(f, "exchange {} with routing key {:?}", sink.exchange, sink.routing_key),
            },
            Sink::Nats(sink) => write!(f, "subject {}", sink.subject),
            Sink::Kafka(sink) => write!(f, "topic {}", sink.topic),
            Sink::File(sink) => write!(f, "file {}", sink.path.display()),
        }
    }
}

impl Sink {
    pub(super) fn read(reader: &Reader<'_>, source: Option<&Source>) -> Option<Sink> {
        let mut sink = reader.parsed(&SINK, |text| Sink::parse(text, source))?;
        let (servers, token) = match &mut sink {
            Sink::RabbitMq(sink) => (&mut sink.servers, false),
            Sink::Nats(sink) => (&mut sink.servers, true),
            Sink::Kafka(kafka) => {
                reader.has_no_effect(&SINK_PASSWORD, "Kafka's password is SEMEL_SINK_KAFKA_SASL_PASSWORD");
                kafka.complete(reader)?;
                return Some(sink);
            }
            Sink::File(_) => {
                reader.has_no_effect(&SINK_PASSWORD, "nobody logs in to a file");
                return Some(sink);
            }
        };
        let of_source = match source {
            Some(Source::RabbitMq(source)) => Some(&source.servers),
            Some(Source::Nats(source)) => Some(&source.servers),
            Some(Source::Stdin) | None => None,
        };
        if of_source == Some(&*servers) && servers.user.is_some() {
            reader.has_no_effect(&SINK_PASSWORD, "the sink is on the source's servers");
        } else {
            servers.log_in(reader, &SINK, &SINK_PASSWORD, token);
        }
        Some(sink)
    }

    fn parse(text: &str, source: Option<&Source>) -> Result<Sink, String> {
        match (kind(text)?, source) {
            (Kind::RabbitMq, Some(Source::RabbitMq(source))) => rabbitmq::Sink::parse(text, Some(source)),
            (Kind::RabbitMq, _) => rabbitmq::Sink::parse(text, None),
            (Kind::Nats, Some(Source::Nats(source))) => return nats::Sink::parse(text, Some(source)).map(Sink::Nats),
            (Kind::Nats, _) => return nats::Sink::parse(text, None).map(Sink::Nats),
            (Kind::Stdin, _) => Err("nothing can be written to standard input".to_owned()),
            (Kind::Kafka, _) => return kafka_end::Sink::parse(text).map(Sink::Kafka),
            (Kind::File, _) => return file_end::Sink::parse(text).map(Sink::File),
        }
        .map(Sink::RabbitMq)
    }

    /// A destination beside the sink's own: the name of a queue, a subject or a topic, or a path.
    pub(super) fn destination(&self, reader: &Reader<'_>, setting: &'static Setting) -> Option<Option<String>> {
        let check = match self {
            Sink::RabbitMq(_) => rabbitmq::check_queue,
            Sink::Nats(_) => nats::check_subject,
            Sink::Kafka(_) => check_topic,
            Sink::File(_) => file_end::check_path,
        };
        reader.optional(setting, || reader.parsed(setting, |text| check(text).map(|()| text.to_owned())))
    }

    /// Refuses what would feed itself, and two destinations that are one. What exchanges and streams lead to is not
    /// seen here.
    pub(super) fn check_apart(&self, reader: &Reader<'_>, source: Option<&Source>, others: &[(&Setting, &str)]) {
        let own = match self {
            Sink::RabbitMq(sink) => sink.queue(),
            Sink::Nats(sink) => Some(sink.subject.as_str()),
            Sink::Kafka(sink) => Some(sink.topic.as_str()),
            Sink::File(sink) => sink.path.to_str(),
        };
        let outputs: Vec<(&Setting, &str)> =
            own.map(|name| (&SINK, name)).into_iter().chain(others.iter().copied()).collect();
        for (n, (setting, name)) in outputs.iter().enumerate() {
            if let (Sink::RabbitMq(sink), Some(Source::RabbitMq(source))) = (self, source)
                && sink.feeds(name, source)
            {
                reader.problem_with(setting, format!("{name} is read by {}: it would feed itself", SOURCE.name));
            }
            if let Some((other, _)) = outputs[..n].iter().find(|(_, there)| there == name) {
                reader.problem_with(setting, format!("{name} is where {} goes already", other.name));
            }
        }
    }
}
