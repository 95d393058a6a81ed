//! Kafka as the sink of messages without offsets: a topic that windows go to in transactions.

use std::path::PathBuf;
use std::time::Duration;

use super::kafka::{Clients, Properties};
use super::kafka_url::KafkaUrl;
use super::reader::Reader;
use super::sink::TRANSACTION_TIMEOUT;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    /// `host:port` each.
    pub brokers: Vec<String>,
    pub topic: String,
    pub transaction_timeout: Duration,
    pub properties: Properties,
    pub oauth_token_file: Option<PathBuf>,
}

impl Sink {
    /// Topic and brokers alone; the rest is read by [`Sink::complete`].
    pub(super) fn parse(text: &str) -> Result<Sink, String> {
        let url = KafkaUrl::parse(text, &[])?;
        let [topic] = &url.topics[..] else { return Err("it names one topic".to_owned()) };
        if url.brokers.is_empty() {
            return Err("it names no broker, and the source has none that it could take".to_owned());
        }
        let (topic, transaction_timeout, properties) = (topic.clone(), Duration::ZERO, Properties::default());
        Ok(Sink { brokers: url.brokers, topic, transaction_timeout, properties, oauth_token_file: None })
    }

    pub(super) fn complete(&mut self, reader: &Reader<'_>) -> Option<()> {
        let clients = Clients::read(reader);
        self.transaction_timeout = reader.duration(&TRANSACTION_TIMEOUT, "1s", "15m")?;
        let clients = clients?;
        self.properties = clients.sink;
        self.oauth_token_file = clients.oauth_token_file;
        Some(())
    }
}
