//! Who may extend a lane, and what the settled offset's metadata says about it.
//!
//! A *stream* is what a lane runs along: for Kafka the partition of one topic (by its id, so that a topic made anew
//! under its name is another stream) as read by one group. At most one lane of a stream is open. Whoever wrote its
//! owner [`Token`] last may extend it; tokens and lane ids are drawn by the writer, so that a takeover whose outcome is
//! unknown can be repeated or told from another's.

use std::fmt;

/// Identity of a lane; positive, drawn at random by whoever opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub i64);

/// Right of one assignment to extend a stream's lane; positive, drawn at random, new for every assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub i64);

/// A slot's token says what its writer took the slot for: the lowest bit is set where it took another's. So a run that
/// was overtaken knows whether its claims were taken over, or another process runs under its name. (Releases before this
/// drew any number: one in two of their takeovers looks like a run.)
impl Token {
    pub fn of_run(self) -> Token {
        Token((self.0 & !1).max(2))
    }

    pub fn of_takeover(self) -> Token {
        Token(self.0 | 1)
    }

    pub fn is_of_run(self) -> bool {
        self.0 & 1 == 0
    }
}

/// Place on a lane. For Kafka: the offset.
pub type Position = i64;

/// Identity of a stream, as the store keeps it: `kafka:<cluster>/<group>/<topic>/<topic id>/<partition>`, where the id
/// tells a topic from the one that had its name before and the name tells that they are of one name; `partition:` and the
/// same where the store knows what is settled, since the sink has no transactions; or, of an
/// instance ([`crate::protocol::slot`]), `slot:<pipeline>/<instance>` where the store knows what is settled, and
/// `kafka-slot:<cluster>/<pipeline>/<instance>` where Kafka does. Whoever takes a slot must know which.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(Box<str>);

impl StreamId {
    pub fn kafka(cluster: &str, group: &str, (name, id): (&str, &TopicId), partition: i32) -> StreamId {
        StreamId(format!("kafka:{cluster}/{group}/{name}/{id}/{partition}").into())
    }

    /// The same for a sink without transactions: the store knows what is settled.
    pub fn partition(cluster: &str, group: &str, (name, id): (&str, &TopicId), partition: i32) -> StreamId {
        StreamId(format!("partition:{cluster}/{group}/{name}/{id}/{partition}").into())
    }

    /// An instance's slot. A pipeline's name has no slash in it.
    pub fn slot(pipeline: &str, instance: &str) -> StreamId {
        StreamId(format!("slot:{pipeline}/{instance}").into())
    }

    /// The same, where the truth about it is in Kafka.
    pub fn slot_in_kafka(cluster: &str, pipeline: &str, instance: &str) -> StreamId {
        StreamId(format!("kafka-slot:{cluster}/{pipeline}/{instance}").into())
    }

    pub fn is_slot(&self) -> bool {
        self.0.starts_with("slot:")
    }

    /// The instance of a slot, of either kind.
    pub fn instance(&self) -> Option<&str> {
        let in_store = || self.0.strip_prefix("slot:")?.split_once('/').map(|(_, instance)| instance);
        self.as_slot_in_kafka().map(|(.., instance)| instance).or_else(in_store)
    }

    /// What [`StreamId::slot_in_kafka`] put together: cluster, pipeline, instance.
    pub fn as_slot_in_kafka(&self) -> Option<(&str, &str, &str)> {
        let (cluster, rest) = self.0.strip_prefix("kafka-slot:")?.split_once('/')?;
        let (pipeline, instance) = rest.split_once('/')?;
        Some((cluster, pipeline, instance))
    }

    /// Takes back an identity as read from a store.
    pub fn from_stored(stored: impl Into<Box<str>>) -> StreamId {
        StreamId(stored.into())
    }

    /// What [`StreamId::kafka`] put together; None for a stream of another kind of source. A group's name may hold
    /// slashes, a topic's and ids do not.
    pub fn as_kafka(&self) -> Option<KafkaStream<'_>> {
        self.taken_apart("kafka:")
    }

    /// What [`StreamId::partition`] put together, as [`StreamId::as_kafka`].
    pub fn as_partition(&self) -> Option<KafkaStream<'_>> {
        self.taken_apart("partition:")
    }

    fn taken_apart(&self, kind: &str) -> Option<KafkaStream<'_>> {
        let (cluster, rest) = self.0.strip_prefix(kind)?.split_once('/')?;
        let (rest, partition) = rest.rsplit_once('/')?;
        let (rest, topic) = rest.rsplit_once('/')?;
        let (group, name) = rest.rsplit_once('/')?;
        Some(KafkaStream { cluster, group, name, topic, partition: partition.parse().ok()? })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A partition of a topic, by its id, as read by one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KafkaStream<'a> {
    pub cluster: &'a str,
    pub group: &'a str,
    pub name: &'a str,
    /// A [`TopicId`].
    pub topic: &'a str,
    pub partition: i32,
}

impl KafkaStream<'_> {
    /// Whether this is the same partition of the same group's topic, when the topic had another id.
    pub fn is_former_of(&self, now: &KafkaStream<'_>) -> bool {
        KafkaStream { topic: now.topic, ..*self } == *now && self.topic != now.topic
    }
}

/// Kafka's topic id: 128 bits in unpadded URL-safe base64, as the broker and its tools print it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub Box<str>);

/// Identity of a claim store, drawn once when its schema is made: a wrong or a new database is noticed by it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub Box<str>);

/// A position on a lane: where a claim is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinate {
    pub lane: LaneId,
    pub position: Position,
}

/// Who made a claim, as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// None for a claim without a lane (a try claim, an import): settled for ever.
    pub lane: Option<LaneId>,
    pub position: Position,
}

impl Holder {
    pub fn is(&self, me: Coordinate) -> bool {
        self.lane == Some(me.lane) && self.position == me.position
    }
}

/// Where a closed lane left off: claims of `prev` at or above `cut` were not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    pub prev: LaneId,
    pub cut: Position,
}

/// What goes with a settled offset as its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mark {
    pub store: StoreId,
    pub topic: TopicId,
    pub lane: LaneId,
    /// Stands until the lane is opened in the store, and harmlessly after.
    pub cut: Option<Cut>,
}

impl Mark {
    const FORMAT: &'static str = "semel1";

    /// One line of ASCII, at most 160 bytes with the ids that Semel draws (Kafka allows 4,096).
    pub fn encode(&self) -> String {
        let (store, topic, lane) = (&self.store.0, &self.topic.0, self.lane.0);
        let mut text = format!("{} store={store} topic={topic} lane={lane}", Self::FORMAT);
        if let Some(Cut { prev, cut }) = self.cut {
            text.push_str(&format!(" prev={} cut={cut}", prev.0));
        }
        text
    }

    /// None where the text is not one that [`Mark::encode`] made: somebody else moved the settled offset.
    pub fn decode(text: &str) -> Option<Mark> {
        let mut words = text.split(' ');
        if words.next()? != Self::FORMAT {
            return None;
        }
        let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        let store = StoreId(value("store")?.into());
        let topic = TopicId(value("topic")?.into());
        let lane = LaneId(value("lane")?.parse().ok()?);
        let cut = match value("prev") {
            None => None,
            Some(prev) => Some(Cut { prev: LaneId(prev.parse().ok()?), cut: value("cut")?.parse().ok()? }),
        };
        let mark = Mark { store, topic, lane, cut };
        (mark.encode() == text).then_some(mark)
    }
}

macro_rules! shown_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &self.0)
            }
        }
    )*};
}
shown_as_text!(StreamId, TopicId, StoreId);

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_taken_apart() {
        let kafka = |group: &str, partition| StreamId::kafka("c", group, ("orders", &TopicId("t".into())), partition);
        let cases = [
            (kafka("g", 3), Some(("c", "g", "orders", "t", 3)), "as it was made"),
            (kafka("a/b/c", 0), Some(("c", "a/b/c", "orders", "t", 0)), "slashes in a group"),
            (StreamId::from_stored("slot:orders/1"), None, "another kind of stream"),
            (StreamId::from_stored("kafka:c/t/0"), None, "a part is missing"),
        ];
        for (stream, right, why) in cases {
            let found = stream.as_kafka().map(|of| (of.cluster, of.group, of.name, of.topic, of.partition));
            assert_eq!(found, right, "{why}");
        }
    }

    #[test]
    fn partitions_of_both_kinds_are_told_apart() {
        let of = ("c", "a/b", ("orders", &TopicId("t".into())), 3);
        let (kafka, plain) = (StreamId::kafka(of.0, of.1, of.2, of.3), StreamId::partition(of.0, of.1, of.2, of.3));
        assert_eq!(kafka.as_kafka(), plain.as_partition());
        assert!(plain.as_partition().is_some() && plain.as_kafka().is_none() && kafka.as_partition().is_none());
        assert!(!plain.is_slot() && plain.as_slot_in_kafka().is_none());
    }

    #[test]
    fn slots_of_both_kinds_are_told_apart() {
        let (plain, in_kafka) = (StreamId::slot("orders", "a/b"), StreamId::slot_in_kafka("c", "orders", "a/b"));
        assert!(plain.is_slot() && plain.as_slot_in_kafka().is_none() && plain.as_kafka().is_none());
        assert!(!in_kafka.is_slot() && in_kafka.as_kafka().is_none());
        assert_eq!(in_kafka.as_slot_in_kafka(), Some(("c", "orders", "a/b")));
    }

    #[test]
    fn a_topic_made_anew_is_known_by_its_name() {
        let stream = |group: &str, name: &str, id: &str, partition| {
            StreamId::kafka("c", group, (name, &TopicId(id.into())), partition)
        };
        let cases = [
            (stream("g", "orders", "old", 1), true, "the same but for the id"),
            (stream("g", "orders", "new", 1), false, "itself"),
            (stream("g", "orders", "old", 2), false, "another partition"),
            (stream("g", "other", "old", 1), false, "another topic"),
            (stream("h", "orders", "old", 1), false, "another group"),
        ];
        let now = stream("g", "orders", "new", 1);
        for (other, right, why) in cases {
            let former = other.as_kafka().zip(now.as_kafka()).is_some_and(|(other, now)| other.is_former_of(&now));
            assert_eq!(former, right, "{why}");
        }
    }
}
