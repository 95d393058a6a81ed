//! Clients of one cluster, and what they report on their own.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::message::Message;
use rdkafka::producer::ProducerContext;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use std::path::PathBuf;
use std::sync::Mutex;

/// How to reach a cluster: brokers, and librdkafka properties that the operator set for this side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterOptions {
    /// `host:port`, separated by commas.
    pub brokers: String,
    pub properties: BTreeMap<String, String>,
    /// A file with the bearer token for OAUTHBEARER, read anew at each refresh.
    pub oauth_token_file: Option<PathBuf>,
}

impl ClusterOptions {
    /// The operator's properties first, so that what the protocol needs is set over them.
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        // A topic that is missing is refused, never made on the way: producers and admin clients would by default.
        config.set("allow.auto.create.topics", "false");
        config.set_log_level(RDKafkaLogLevel::Info);
        config
    }

    /// Which names of brokers do not resolve, and why. For the time when nobody answers: it asks the system's resolver,
    /// which may take its time.
    pub fn unresolved(&self) -> Option<String> {
        let told = self.brokers.split(',').filter_map(|broker| {
            let error = broker.to_socket_addrs().err()?;
            let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
            Some(format!("the name {host} does not resolve: {error}"))
        });
        Some(told.collect::<Vec<_>>().join("; ")).filter(|told| !told.is_empty())
    }

    pub fn context(&self, role: &'static str) -> Context {
        Context {
            role,
            oauth_token_file: self.oauth_token_file.clone(),
            failed: Mutex::default(),
            reported: Mutex::default(),
        }
    }
}

/// Callbacks of one client. Its log lines and errors go to the process's own log.
pub struct Context {
    role: &'static str,
    oauth_token_file: Option<PathBuf>,
    /// Deliveries that failed, as (the sender's own number of the record, what the broker or the client said).
    failed: Mutex<Vec<(usize, RDKafkaErrorCode)>>,
    /// What the client last reported on its own.
    reported: Mutex<Option<String>>,
}

impl Context {
    /// Takes the failed deliveries that were reported since the last call.
    pub fn take_failed(&self) -> Vec<(usize, RDKafkaErrorCode)> {
        std::mem::take(&mut *self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Why a client that gets no answer gets none, as far as it knows.
    pub fn last_error(&self) -> Option<String> {
        self.reported.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// What is known of a failure beside the error itself, in brackets.
pub(super) fn said(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"))
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let client = self.role;
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::warn!(client, facility, "kafka client: {message}");
            }
            RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice => {
                tracing::info!(client, facility, "kafka client: {message}");
            }
            RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                tracing::debug!(client, facility, "kafka client: {message}");
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            // Told as an error by the library, while a consumer is being dropped: it is none.
            return;
        }
        let client = self.role;
        metrics::counter!("semel_broker_errors_total", "client" => client).increment(1);
        tracing::warn!(client, %error, reason, "kafka client reports an error");
        *self.reported.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(reason.to_owned());
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        let Some(path) = &self.oauth_token_file else {
            return Err("no token file is configured for OAUTHBEARER".into());
        };
        let token = std::fs::read_to_string(path)?.trim().to_owned();
        // The file is renewed by whoever writes it; a short life makes the client come back for the newer one.
        let lifetime = Duration::from_secs(300);
        let lifetime_ms = crate::clock::unix_millis() + lifetime.as_millis() as i64;
        Ok(OAuthToken { token, principal_name: String::new(), lifetime_ms })
    }
}

impl ConsumerContext for Context {
    /// Called only while a consumer is being dropped; in its life the pipeline polls the events itself. Without an
    /// answer to the last revocation the drop would wait for ever.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, _err: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        super::native::give_up(consumer, partitions);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        if let Err((error, message)) = result {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            tracing::debug!(topic = message.topic(), %error, "a delivery failed");
            self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, code));
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientContext as _;

    use super::ClusterOptions;

    #[test]
    fn names_that_do_not_resolve() {
        let of = |brokers: &str| ClusterOptions { brokers: brokers.into(), ..ClusterOptions::default() }.unresolved();
        assert_eq!(of("127.0.0.1:9092,[::1]:9092,localhost:1"), None);
        let told = of("127.0.0.1:9092,no-such-host.invalid:9092").expect("one of them does not");
        assert!(told.starts_with("the name no-such-host.invalid does not resolve: "), "{told}");
    }

    /// Whoever writes the token renews it in place.
    #[test]
    fn a_token_is_read_anew_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let options = ClusterOptions { oauth_token_file: Some(path.clone()), ..ClusterOptions::default() };
        let context = options.context("source");
        for token in ["first", "second"] {
            std::fs::write(&path, format!("{token}\n")).expect("written");
            assert_eq!(context.generate_oauth_token(None).expect("a token").token, token);
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(context.generate_oauth_token(None).is_err());
    }
}
