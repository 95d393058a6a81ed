//! What the brokers say of topics, asked once at start.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::Client;
use rdkafka::error::KafkaError;

use super::client::{ClusterOptions, Context, said};

/// Kafka's own default for `max.message.bytes`.
pub const RECORD_BYTES_DEFAULT: usize = 1_048_588;

/// A topic as far as it matters here. Where the configuration may not be read, Kafka's defaults are assumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// None: there is no such topic.
    pub partitions: Option<usize>,
    pub record_bytes_max: usize,
    /// Compacted, and how long a record stays before it may be compacted away.
    pub compaction: Option<Duration>,
    /// The broker overwrites timestamps with the time of appending.
    pub log_append_time: bool,
    /// A replica that lacks committed records may become the leader.
    pub unclean_election: bool,
    /// Of the partition that has the fewest.
    pub replicas_min: Option<usize>,
    /// Why the configuration could not be read.
    pub unread: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot ask the brokers {brokers} about topics")]
pub struct AdminError {
    /// And which of their names do not resolve.
    brokers: String,
    #[source]
    source: KafkaError,
}

impl AdminError {
    fn of(cluster: &ClusterOptions) -> impl Fn(KafkaError) -> AdminError {
        move |source| AdminError { brokers: format!("{}{}", cluster.brokers, said(&cluster.unresolved())), source }
    }
}

/// Identity of a cluster; None where it does not tell. One round trip.
pub fn cluster_id(cluster: &ClusterOptions, timeout: Duration) -> Result<Option<String>, AdminError> {
    let failed = AdminError::of(cluster);
    let admin: AdminClient<Context> =
        cluster.config().create_with_context(cluster.context("admin")).map_err(&failed)?;
    Ok(admin.inner().fetch_cluster_id(timeout))
}

/// Facts of each named topic. Two round trips.
pub async fn topic_facts(
    cluster: &ClusterOptions,
    names: &[&str],
    timeout: Duration,
) -> Result<BTreeMap<String, TopicFacts>, AdminError> {
    let failed = AdminError::of(cluster);
    let admin: AdminClient<Context> =
        cluster.config().create_with_context(cluster.context("admin")).map_err(&failed)?;
    let mut facts = BTreeMap::new();
    for name in names {
        let replicas = replicas(admin.inner(), name, timeout).map_err(&failed)?;
        let none_read = TopicFacts {
            partitions: replicas.as_ref().map(Vec::len),
            record_bytes_max: RECORD_BYTES_DEFAULT,
            compaction: None,
            log_append_time: false,
            unclean_election: false,
            replicas_min: replicas.and_then(|counts| counts.into_iter().min()),
            unread: None,
        };
        facts.insert((*name).to_owned(), none_read);
    }
    let resources: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let options = AdminOptions::new().request_timeout(Some(timeout));
    for (name, described) in names.iter().zip(admin.describe_configs(&resources, &options).await.map_err(&failed)?) {
        let Some(topic) = facts.get_mut(*name).filter(|topic| topic.partitions.is_some()) else { continue };
        match described {
            Ok(config) => read(topic, &config),
            Err(code) => topic.unread = Some(code.to_string()),
        }
    }
    Ok(facts)
}

/// A broker's settings that were ever set or have a default. One round trip; needs DescribeConfigs on the cluster.
pub async fn broker_settings(
    cluster: &ClusterOptions,
    broker: i32,
    timeout: Duration,
) -> Result<BTreeMap<String, String>, AdminError> {
    let failed = AdminError::of(cluster);
    let admin: AdminClient<Context> =
        cluster.config().create_with_context(cluster.context("admin")).map_err(&failed)?;
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let described = admin.describe_configs(&[ResourceSpecifier::Broker(broker)], &options).await.map_err(&failed)?;
    let mut settings = BTreeMap::new();
    for resource in described {
        let resource = resource.map_err(|code| failed(KafkaError::AdminOp(code)))?;
        settings.extend(resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))));
    }
    Ok(settings)
}

/// How many replicas each partition has; None where there is no such topic. Blocks for one round trip at most.
fn replicas(client: &Client<Context>, name: &str, timeout: Duration) -> Result<Option<Vec<usize>>, KafkaError> {
    let metadata = client.fetch_metadata(Some(name), timeout)?;
    let topic = metadata.topics().iter().find(|topic| topic.name() == name && topic.error().is_none());
    let counts = topic.map(|topic| topic.partitions().iter().map(|partition| partition.replicas().len()).collect());
    Ok(counts.filter(|counts: &Vec<usize>| !counts.is_empty()))
}

fn read(topic: &mut TopicFacts, config: &ConfigResource) {
    let value = |name: &str| config.get(name).and_then(|entry| entry.value.clone());
    if let Some(bytes) = value("max.message.bytes").and_then(|text| text.parse().ok()) {
        topic.record_bytes_max = bytes;
    }
    if value("cleanup.policy").is_some_and(|policy| policy.split(',').any(|one| one.trim() == "compact")) {
        let lag = value("min.compaction.lag.ms").and_then(|text| text.parse().ok()).unwrap_or(0);
        topic.compaction = Some(Duration::from_millis(lag));
    }
    topic.unclean_election = value("unclean.leader.election.enable").as_deref() == Some("true");
    topic.log_append_time = value("message.timestamp.type").as_deref() == Some("LogAppendTime");
}
