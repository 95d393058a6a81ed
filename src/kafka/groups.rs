//! What operators ask and do of consumer groups, from outside of them.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::client::{ClusterOptions, Context, said};
use super::native::{self, Allowed, Committed, Group, NativeError};

#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("cannot make a kafka client")]
    Client(#[source] KafkaError),
    #[error("the brokers {brokers} do not answer{}", said(.reason))]
    NoAnswer {
        brokers: String,
        /// A name that does not resolve, or what the client said on its own.
        reason: Option<String>,
    },
    #[error("kafka does not tell about group {group}")]
    Ask { group: String, source: NativeError },
    #[error("kafka does not tell what may be done with the topics")]
    Topics(#[source] NativeError),
    #[error(
        "a transaction on the offsets of group {group} stays open: let it end (its producer's transaction.timeout.ms)"
    )]
    Unstable { group: String },
    #[error("the offsets of group {group} were not committed, or only a part of them; repeating it is safe")]
    Commit { group: String, source: KafkaError },
}

/// An offset to commit, with its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOffset {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub metadata: String,
}

/// A client that is in no group.
pub struct Groups {
    cluster: ClusterOptions,
    consumer: BaseConsumer<Context>,
}

impl Groups {
    /// Connects in the background.
    pub fn new(cluster: &ClusterOptions) -> Result<Groups, GroupError> {
        let consumer = cluster.config().create_with_context(cluster.context("operator")).map_err(GroupError::Client)?;
        Ok(Groups { cluster: cluster.clone(), consumer })
    }

    /// Waits for the first answer of the cluster: its id, and how many brokers it has.
    pub fn cluster(&self, timeout: Duration) -> Result<(String, Vec<i32>), GroupError> {
        let until = Instant::now() + timeout;
        let mut id = None;
        while id.is_none() && Instant::now() < until {
            // Serves the client's own reports, a token that it asks for among them.
            self.consumer.poll(Duration::ZERO);
            id = self.consumer.client().fetch_cluster_id(Duration::from_millis(500));
        }
        // A topic that cannot be: what is asked for is the list of brokers.
        let asked = || self.consumer.fetch_metadata(Some("semel.no.such.topic"), timeout).ok();
        match id.map(|id| (id, asked())) {
            Some((id, Some(metadata))) => Ok((id, metadata.brokers().iter().map(|broker| broker.id()).collect())),
            _ => {
                self.consumer.poll(Duration::ZERO);
                // The client's last word is that its brokers are down, whatever the cause.
                let said = || self.consumer.client().context().last_error();
                let reason = self.cluster.unresolved().or_else(said);
                Err(GroupError::NoAnswer { brokers: self.cluster.brokers.clone(), reason })
            }
        }
    }

    /// Members of a group, and what this client may do with it.
    pub fn describe(&self, group: &str, timeout: Duration) -> Result<Group, GroupError> {
        native::describe_group(&self.consumer, group, timeout).map_err(|source| ask(group, source))
    }

    /// Every offset of a group, as it is visible now.
    pub fn offsets(&self, group: &str, timeout: Duration) -> Result<Vec<Committed>, GroupError> {
        native::group_offsets(&self.consumer, group, false, timeout).map_err(|source| ask(group, source))
    }

    /// The same, once no transaction is pending on any of them.
    pub fn stable_offsets(&self, group: &str, timeout: Duration) -> Result<Vec<Committed>, GroupError> {
        let until = Instant::now() + timeout;
        loop {
            match native::group_offsets(&self.consumer, group, true, timeout) {
                Ok(offsets) => return Ok(offsets),
                Err(error) if error.code != RDKafkaErrorCode::UnstableOffsetCommit => return Err(ask(group, error)),
                Err(_) if Instant::now() >= until => return Err(GroupError::Unstable { group: group.to_owned() }),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// What this client may do with each topic.
    pub fn topic_operations(
        &self,
        names: &[String],
        timeout: Duration,
    ) -> Result<Vec<(String, Result<Allowed, NativeError>)>, GroupError> {
        native::topic_operations(&self.consumer, names, timeout).map_err(GroupError::Topics)
    }

    /// Commits offsets of a group that has no members. The broker refuses it where the group has one.
    pub fn commit(&self, group: &str, offsets: &[NewOffset]) -> Result<(), GroupError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let failed = |source| GroupError::Commit { group: group.to_owned(), source };
        let mut config = self.cluster.config();
        config.set("group.id", group).set("enable.auto.commit", "false");
        let member_of_none: BaseConsumer<Context> =
            config.create_with_context(self.cluster.context("operator")).map_err(GroupError::Client)?;
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for new in offsets {
            let mut element = list.add_partition(&new.topic, new.partition);
            element.set_metadata(&new.metadata);
            element.set_offset(Offset::Offset(new.offset)).map_err(failed)?;
        }
        member_of_none.commit(&list, CommitMode::Sync).map_err(failed)
    }
}

fn ask(group: &str, source: NativeError) -> GroupError {
    GroupError::Ask { group: group.to_owned(), source }
}
