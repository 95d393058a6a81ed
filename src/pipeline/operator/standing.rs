//! Where each partition stands, and what a start would make of it: the daemon's own decision, without its writing.

use std::collections::BTreeMap;

use super::{ASK, Claims, OperatorError};
use crate::kafka::TopicPartition;
use crate::protocol::lane::{StoreId, StreamId, TopicId};
use crate::protocol::start::{Reset, Row, Seen, Start, decide};
use crate::source::kafka::{KafkaSource, Offsets};
use crate::store::{LaneFor, former};

/// One partition of the group.
#[derive(Debug, Clone)]
pub struct Standing {
    pub place: TopicPartition,
    pub topic: String,
    pub stream: StreamId,
    /// Of the open lane.
    pub opened_for: Option<LaneFor>,
    pub seen: Seen,
    pub start: Start,
}

/// A group's topics, and who they are.
pub struct Partitions {
    pub cluster: String,
    pub names: Vec<String>,
    pub ids: Vec<TopicId>,
    pub places: Vec<TopicPartition>,
}

/// What the store knows of a stream.
pub type Known = (Option<Row>, Option<LaneFor>);

impl Partitions {
    pub fn of(source: &KafkaSource, topics: &[String]) -> Result<Partitions, OperatorError> {
        let cluster = source.cluster_id(ASK)?;
        let ids = source.topic_ids(ASK);
        let ids = ids.map_err(|source| OperatorError::Topics { topics: topics.join(", "), source })?;
        let mut places = Vec::new();
        for topic in 0..topics.len() as u16 {
            let partitions = 0..source.partition_count(topic, ASK)?;
            places.extend(partitions.map(|partition| TopicPartition { topic, partition }));
        }
        Ok(Partitions { cluster, names: topics.to_vec(), ids, places })
    }

    pub fn stream(&self, group: &str, place: TopicPartition) -> StreamId {
        let topic = usize::from(place.topic);
        StreamId::kafka(&self.cluster, group, (&self.names[topic], &self.ids[topic]), place.partition)
    }
}

/// What the store knows of every stream. Writes nothing.
pub fn known(claims: &Claims) -> Result<BTreeMap<StreamId, Known>, OperatorError> {
    let streams = claims.ask(|store| async move { store.streams().await })?;
    Ok(streams.into_iter().map(|state| (state.stream, (state.row, state.opened_for))).collect())
}

/// Where `places` stand. Offsets are fetched as at an assignment: the group's own first, then settled, both stable.
pub fn standings(
    claims: &Claims,
    source: &KafkaSource,
    partitions: &Partitions,
    places: &[TopicPartition],
    known: &BTreeMap<StreamId, Known>,
    (group, reset): (&str, Reset),
) -> Result<Vec<Standing>, OperatorError> {
    let store_id = claims.ask(|store| async move { store.store_id().await })?;
    let mut offsets = source.offsets(places, ASK)?;
    let mut standings = Vec::new();
    for &place in places {
        let Some(found) = offsets.remove(&place) else { continue };
        let stream = partitions.stream(group, place);
        let (row, opened_for) = known.get(&stream).cloned().unwrap_or_default();
        let topic_id = partitions.ids[usize::from(place.topic)].clone();
        let seen = look(claims, source, place, (found, row, reset), (store_id.clone(), topic_id))?;
        let nowhere = seen.settled.is_none() && seen.row.is_none();
        let rows = known.iter().map(|(stream, (row, _))| (stream, *row));
        let seen = Seen { former: nowhere.then(|| former(rows, &stream)).flatten(), ..seen };
        let start = decide(&seen);
        let topic = source.topic_name(place.topic).to_owned();
        standings.push(Standing { place, topic, stream, opened_for, seen, start });
    }
    Ok(standings)
}

fn look(
    claims: &Claims,
    source: &KafkaSource,
    place: TopicPartition,
    (offsets, row, reset): (Offsets, Option<Row>, Reset),
    (store, topic): (StoreId, TopicId),
) -> Result<Seen, OperatorError> {
    let Offsets { committed, settled, log_start, log_end } = offsets;
    let mark = settled.as_ref().and_then(|settled| settled.mark.as_ref());
    let open_elsewhere = match mark.filter(|mark| mark.topic != topic).map(|mark| mark.lane) {
        None => false,
        Some(lane) => claims.ask(|store| async move { store.is_open(lane).await })?,
    };
    let nobody_knows = committed.is_none() && settled.is_none() && row.is_none();
    let added_later = nobody_knows && reset == Reset::Latest && source.group_knows(place.topic, ASK)?;
    Ok(Seen {
        committed,
        settled,
        row,
        open_elsewhere,
        former: None,
        store,
        topic,
        log_start,
        log_end,
        reset,
        added_later,
    })
}
