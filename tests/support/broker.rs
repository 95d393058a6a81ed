//! What the tests ask of Kafka besides sending: topics, whole logs, offsets of groups.

use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::checker::{Log, Record};

const PATIENCE: Duration = Duration::from_secs(30);

/// A broker, by its address; each call makes its own client.
#[derive(Debug, Clone)]
pub struct Broker(pub String);

impl Broker {
    pub fn make_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        // The messages' own times would let retention delete them at once.
        topic = topic.set("retention.ms", "-1");
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let made = block_on(self.admin().create_topics([&topic], &options())).expect("the broker answers");
        assert!(made.iter().all(Result::is_ok), "topic {name}: {made:?}");
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete_topic(&self, name: &str) {
        let gone = block_on(self.admin().delete_topics(&[name], &options())).expect("the broker answers");
        assert!(gone.iter().all(Result::is_ok), "topic {name}: {gone:?}");
        wait_until("the topic is gone", PATIENCE, || self.partitions(name) == 0);
    }

    /// Deletes the records below these offsets, as retention does.
    pub fn delete_records(&self, topic: &str, below: &[(i32, i64)]) {
        let mut list = TopicPartitionList::new();
        for &(partition, offset) in below {
            list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset");
        }
        let gone = block_on(self.admin().delete_records(&list, &options())).expect("the broker answers");
        for element in gone.elements() {
            assert!(element.error().is_ok(), "{topic}/{}: {:?}", element.partition(), element.error());
        }
    }

    pub fn add_partitions(&self, topic: &str, count: i32) {
        let more = NewPartitions::new(topic, count as usize);
        let made = block_on(self.admin().create_partitions([&more], &options())).expect("the broker answers");
        assert!(made.iter().all(Result::is_ok), "topic {topic}: {made:?}");
    }

    /// Deletes a group with all its offsets, once it is empty.
    pub fn delete_group(&self, group: &str) {
        wait_until("the group is empty and deleted", PATIENCE, || self.try_delete_group(group));
    }

    pub fn try_delete_group(&self, group: &str) -> bool {
        let gone = block_on(self.admin().delete_groups(&[group], &options())).expect("the broker answers");
        gone.iter().all(Result::is_ok)
    }

    /// Gives a topic these settings, and for all others the broker's, except that its records are kept as long as before.
    pub fn set_topic(&self, topic: &str, settings: &[(&str, &str)]) {
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set("retention.ms", "-1");
        for (key, value) in settings {
            change = change.set(key, value);
        }
        let set = block_on(self.admin().alter_configs([&change], &options())).expect("the broker answers");
        assert!(set.iter().all(Result::is_ok), "topic {topic}: {set:?}");
        for (key, value) in settings {
            wait_until("the topic is set", PATIENCE, || self.setting_of_topic(topic, key).as_deref() == Some(value));
        }
    }

    pub fn setting_of_topic(&self, topic: &str, key: &str) -> Option<String> {
        let asked = ResourceSpecifier::Topic(topic);
        let answer = block_on(self.admin().describe_configs([&asked], &options())).expect("the broker answers");
        answer.into_iter().next()?.ok()?.get(key)?.value.clone()
    }

    /// How many members a group has.
    pub fn members(&self, group: &str) -> usize {
        let found = self.consumer("semel-tests", true).fetch_group_list(Some(group), PATIENCE);
        let found = found.unwrap_or_else(|error| panic!("group {group}: {error}"));
        found.groups().iter().find(|one| one.name() == group).map_or(0, |one| one.members().len())
    }

    /// How many partitions a topic has; 0 if there is no such topic.
    pub fn partitions(&self, topic: &str) -> i32 {
        let consumer = self.consumer("semel-tests", true);
        let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("the broker answers");
        metadata.topics().iter().find(|found| found.name() == topic).map_or(0, |found| found.partitions().len() as i32)
    }

    /// First offset, and next offset for all readers (`stable`: for those of committed transactions).
    pub fn bounds(&self, topic: &str, partition: i32, stable: bool) -> (i64, i64) {
        let consumer = self.consumer("semel-tests", stable);
        let begun = Instant::now();
        loop {
            match consumer.fetch_watermarks(topic, partition, PATIENCE) {
                Ok(bounds) => return bounds,
                // A broker that came back a moment ago does not lead its partitions yet.
                Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(100)),
                Err(error) => panic!("{topic}/{partition}: {error}"),
            }
        }
    }

    /// Offset and metadata of a group, for each partition of a topic. `stable`: pending transactions are waited for.
    pub fn offsets(&self, group: &str, topic: &str, stable: bool) -> Vec<Option<(i64, String)>> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, self.partitions(topic) - 1);
        let found = self.consumer(group, stable).committed_offsets(asked, PATIENCE);
        let found = found.unwrap_or_else(|error| panic!("offsets of {group}: {error}"));
        let elements = found.elements();
        elements
            .iter()
            .map(|element| Some((element.offset().to_raw()?, element.metadata().to_owned())))
            .map(|found| found.filter(|(offset, _)| *offset >= 0))
            .collect()
    }

    /// Moves the offsets of a group that has no members, as an operator does.
    pub fn move_offsets(&self, group: &str, topic: &str, to: &[(i32, i64)]) {
        let mut list = TopicPartitionList::new();
        for &(partition, offset) in to {
            list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset");
        }
        // A group is empty only some time after its last member was killed.
        wait_until("the group lets its offsets be moved", Duration::from_secs(60), || {
            self.consumer(group, true).commit(&list, CommitMode::Sync).is_ok()
        });
    }

    /// A topic from its start to its end, by a reader of committed transactions. Waits some time for a transaction
    /// that is open at the end.
    pub fn read(&self, topic: &str) -> Vec<Log> {
        let partitions = self.partitions(topic);
        let empty = |partition| Log { topic: topic.to_owned(), partition, ..Log::default() };
        let mut logs: Vec<Log> = (0..partitions).map(empty).collect();
        for log in &mut logs {
            let patience = Instant::now() + PATIENCE;
            loop {
                log.end = self.bounds(topic, log.partition, false).1;
                log.stable_end = self.bounds(topic, log.partition, true).1;
                if log.stable_end == log.end || Instant::now() > patience {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let consumer = self.consumer("semel-tests", true);
        let mut asked = TopicPartitionList::new();
        for partition in 0..partitions {
            asked.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&asked).expect("an assignment");
        let mut ended = 0;
        while ended < partitions {
            match consumer.poll(PATIENCE) {
                Some(Ok(message)) => logs[message.partition() as usize].records.push(record_of(&message)),
                Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
                Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::BrokerTransportFailure))) => {}
                Some(Err(error)) => panic!("{topic}: {error}"),
                None => panic!("{topic}: nothing more, and not at its end"),
            }
        }
        logs
    }

    fn consumer(&self, group: &str, stable: bool) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", &self.0)
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "20")
            .set("fetch.message.max.bytes", "10000000")
            .set("isolation.level", if stable { "read_committed" } else { "read_uncommitted" })
            .create()
            .expect("a consumer")
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new().set("bootstrap.servers", &self.0).create().expect("an admin client")
    }
}

fn record_of(message: &BorrowedMessage<'_>) -> Record {
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    Record {
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
        timestamp: message.timestamp().to_millis(),
    }
}

/// Waits for a condition, and fails the test if it does not come true.
pub fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}
