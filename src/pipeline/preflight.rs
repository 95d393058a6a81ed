//! What has to be true of the brokers and the store before a pipeline may run. Problems that only a connection shows;
//! what the settings alone show is refused before.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Config;
use crate::config::settled::SettledConfig;
use crate::config::sink::Partitioning;
use crate::kafka::admin::{AdminError, TopicFacts, cluster_id, topic_facts};
use crate::key::TimeRecipe;
use crate::pipeline::transactional::wiring;
use crate::pipeline::{counted, settled};
use crate::protocol::event::Scope;
use crate::protocol::lane::{StreamId, TopicId};
use crate::store::StreamState;

/// Sizes that the pipeline needs to know, and what is wrong.
#[derive(Debug, Default)]
pub struct Topics {
    pub forward_bytes_max: usize,
    pub dead_letter_bytes_max: usize,
    /// Every topic of the pipeline, by name.
    pub found: BTreeMap<String, TopicFacts>,
    pub problems: Vec<String>,
    pub warnings: Vec<String>,
}

/// Looks at every topic of the pipeline.
pub async fn topics(config: &Config, timeout: Duration) -> Result<Topics, AdminError> {
    let source = wiring::source_cluster(config);
    let sink = wiring::sink_cluster(config);
    let read: Vec<&str> = config.source.topics.iter().map(String::as_str).collect();
    let mut written = vec![config.sink.topic.as_str()];
    written.extend(config.sink.dead_letter.as_deref());
    written.extend(config.sink.duplicates.as_deref());
    let of_source = topic_facts(&source, &read, timeout).await?;
    let of_sink = topic_facts(&sink, &written, timeout).await?;
    let mut found = Topics::default();
    if source.brokers != sink.brokers {
        let ids = (cluster_id(&source, timeout)?, cluster_id(&sink, timeout)?);
        found.problems.extend(two_clusters(&ids, &source.brokers, &sink.brokers));
    }
    for (name, facts) in &of_source {
        let (outage, time) = (config.retention.longest_outage, config.keys.extraction.time());
        check_source((outage, time), name, facts, &mut found);
    }
    for (name, facts) in &of_sink {
        check_presence(name, facts, &mut found);
    }
    let forward = &of_sink[&config.sink.topic];
    check_partitions(config, forward, of_source.values(), &mut found);
    found.forward_bytes_max = forward.record_bytes_max;
    let dead_letter = config.sink.dead_letter.as_ref().map(|name| of_sink[name].record_bytes_max);
    found.dead_letter_bytes_max = dead_letter.unwrap_or(forward.record_bytes_max);
    found.found = of_source.into_iter().chain(of_sink).collect();
    Ok(found)
}

/// The same where only the source is Kafka.
pub async fn source_topics(config: &SettledConfig, timeout: Duration) -> Result<Topics, AdminError> {
    let read: Vec<&str> = config.source.topics.iter().map(String::as_str).collect();
    let mut found = Topics::default();
    let facts = topic_facts(&settled::wiring::source_cluster(config), &read, timeout).await?;
    for (name, facts) in &facts {
        let (outage, time) = (config.retention.longest_outage, config.keys.extraction.time());
        check_source((outage, time), name, facts, &mut found);
    }
    found.found = facts;
    Ok(found)
}

/// A transaction cannot span clusters: the group's offsets would be committed where nobody reads them.
fn two_clusters(ids: &(Option<String>, Option<String>), source: &str, sink: &str) -> Option<String> {
    (ids.0 != ids.1).then(|| {
        format!("SEMEL_SINK: {sink} is another cluster than the source's {source}: one transaction cannot span both")
    })
}

fn check_presence(name: &str, facts: &TopicFacts, found: &mut Topics) {
    if facts.partitions.is_none() {
        found.problems.push(format!("topic {name}: it is not there, or may not be described"));
    } else if let Some(why) = &facts.unread {
        found
            .warnings
            .push(format!("topic {name}: its configuration may not be read ({why}), kafka's defaults are assumed"));
    }
}

fn check_source((outage, time): (Duration, &TimeRecipe), name: &str, facts: &TopicFacts, found: &mut Topics) {
    check_presence(name, facts, found);
    if let Some(lag) = facts.compaction.filter(|lag| *lag <= outage) {
        found.problems.push(format!(
            "topic {name}: it is compacted and a message may be gone after {} s, while SEMEL_LONGEST_OUTAGE is {} s: an \
             event in doubt could be lost. raise min.compaction.lag.ms",
            lag.as_secs(),
            outage.as_secs(),
        ));
    }
    if facts.log_append_time && *time == TimeRecipe::Record {
        found.problems.push(format!(
            "topic {name}: its timestamps are the broker's (LogAppendTime), which differ between copies of an event. set \
             SEMEL_EVENT_TIME to a time that the producer stores"
        ));
    }
}

fn check_partitions<'a>(
    config: &Config,
    forward: &TopicFacts,
    sources: impl Iterator<Item = &'a TopicFacts>,
    found: &mut Topics,
) {
    let most = sources.filter_map(|facts| facts.partitions).max().unwrap_or(0);
    let there = forward.partitions.unwrap_or(0);
    if config.sink.partitioning == Partitioning::Same && there > 0 && most > there {
        found.problems.push(format!(
            "topic {}: it has {}, the source {most}: partition=same needs as many",
            config.sink.topic,
            counted(there as u64, "partition")
        ));
    }
}

/// Pipelines of the other kind that use this scope. From Kafka to Kafka an instance's unfinished claim would count as a
/// duplicate, and its event be lost where the instance gives it up; the other way round an event would be held for ever.
pub fn of_other_kind(scope: &Scope, from_kafka: bool, streams: &[StreamState]) -> Vec<String> {
    let foreign = streams.iter().find(|state| {
        let is_other = state.stream.as_kafka().is_some() != from_kafka;
        is_other && state.opened_for.as_ref().is_some_and(|lane_for| lane_for.scope == *scope)
    });
    let told = |state: &StreamState| {
        format!(
            "scope {scope}: {} has claims under it. a scope is either for pipelines from Kafka to Kafka or for others: \
             give this pipeline a scope of its own",
            state.stream
        )
    };
    foreign.map(told).into_iter().collect()
}

/// Other groups that read one of these topics under the same scope: the events would split between them.
pub fn sharing(
    (scope, group): (&Scope, &str),
    is_allowed: bool,
    cluster: &str,
    topics: &[TopicId],
    streams: &[StreamState],
) -> Vec<String> {
    if is_allowed {
        return Vec::new();
    }
    let mut groups: Vec<String> = streams
        .iter()
        .filter(|state| state.opened_for.as_ref().is_some_and(|lane_for| lane_for.scope == *scope))
        .filter_map(|state| other_group(&state.stream, cluster, group, topics))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
        .into_iter()
        .map(|group| {
            format!(
                "scope {scope}: group {group} has claims on the same topic under it, so the events would split between the two. \
                 if it is retired, free its unsettled claims with `semel release`; to share on purpose set \
                 SEMEL_ALLOW_SHARED_SCOPE=true"
            )
        })
        .collect()
}

fn other_group(stream: &StreamId, cluster: &str, group: &str, topics: &[TopicId]) -> Option<String> {
    let other =
        stream.as_kafka().or(stream.as_partition()).filter(|other| other.cluster == cluster && other.group != group)?;
    topics.iter().any(|known| *known.0 == *other.topic).then(|| other.group.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{of_other_kind, two_clusters};
    use crate::protocol::event::Scope;
    use crate::protocol::lane::{StreamId, TopicId};
    use crate::store::{LaneFor, StreamState};

    #[test]
    fn kinds_of_pipelines_share_no_scope() {
        let scope = |text: &str| Scope::new(text).expect("a scope");
        let of = |stream: StreamId, text: &str| {
            let opened_for = Some(LaneFor { scope: scope(text), recipe: "key".to_owned() });
            StreamState { stream, owner: None, row: None, opened_for }
        };
        let topic = TopicId("t".into());
        let kafka = || StreamId::kafka("c", "g", ("orders", &topic), 0);
        let plain = || StreamId::partition("c", "g", ("orders", &topic), 0);
        let cases = [
            (of(kafka(), "billing"), false, true, "an instance where Kafka is"),
            (of(StreamId::slot("p", "a"), "billing"), true, true, "Kafka where an instance is"),
            (of(StreamId::slot_in_kafka("c", "p", "a"), "billing"), true, true, "also one into Kafka"),
            (of(plain(), "billing"), true, true, "Kafka to Kafka where a sink has no transactions"),
            (of(plain(), "billing"), false, false, "both wait for what is in flight"),
            (of(kafka(), "billing"), true, false, "its own kind"),
            (of(StreamId::slot("p", "b"), "billing"), false, false, "its own kind"),
            (of(kafka(), "other"), false, false, "another scope"),
        ];
        for (state, from_kafka, refused, why) in cases {
            assert_eq!(!of_other_kind(&scope("billing"), from_kafka, &[state]).is_empty(), refused, "{why}");
        }
    }

    #[test]
    fn one_cluster_or_two() {
        let id = |text: &str| Some(text.to_owned());
        let cases = [
            ((id("a"), id("a")), false, "one cluster by two addresses"),
            ((id("a"), id("b")), true, "two clusters"),
            ((id("a"), None), true, "one that does not say who it is is not known to be the other"),
        ];
        for (ids, right, why) in cases {
            assert_eq!(two_clusters(&ids, "one:9092", "two:9092").is_some(), right, "{why}");
        }
    }
}
