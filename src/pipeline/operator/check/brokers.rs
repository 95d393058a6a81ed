//! The clusters: whether they answer, that they are one, and what their settings leave room for.

use std::time::Duration;

use super::{ASK, Facts};
use crate::config::Config;
use crate::kafka::admin::broker_settings;
use crate::kafka::client::ClusterOptions;
use crate::kafka::groups::Groups;
use crate::pipeline::transactional::wiring;
use crate::pipeline::{chain, counted};

/// What is asked for of a broker's settings, and what it is when nobody says otherwise (Kafka's own defaults).
const TRANSACTION_MAX: (&str, u64) = ("transaction.max.timeout.ms", 900_000);
const SESSION_MIN: (&str, u64) = ("group.min.session.timeout.ms", 6_000);
const SESSION_MAX: (&str, u64) = ("group.max.session.timeout.ms", 1_800_000);
const OFFSETS_KEPT: (&str, u64) = ("offsets.retention.minutes", 10_080);
const TRANSACTIONS_KEPT_BY: (&str, u64) = ("transaction.state.log.replication.factor", 3);
const OFFSETS_KEPT_BY: (&str, u64) = ("offsets.topic.replication.factor", 3);

/// The settled offsets of idle partitions are committed again daily: with less, one missed refresh loses them.
const OFFSETS_KEPT_MINUTES_MIN: u64 = 3 * 24 * 60;

/// A client of the cluster, where both sides answer.
pub(super) fn check(facts: &mut Facts, config: &Config) -> Option<Groups> {
    let source = wiring::source_cluster(config);
    let sink = wiring::sink_cluster(config);
    let ask = |facts: &mut Facts, side: &str, cluster| {
        let asked = Groups::new(cluster).and_then(|groups| groups.cluster(ASK).map(|found| (groups, found)));
        asked.map_err(|error| facts.fail(side, chain(&error))).ok()
    };
    let (groups, (id, ids)) = ask(facts, "source", &source)?;
    if sink != source {
        let (_, (of_sink, _)) = ask(facts, "sink", &sink)?;
        if of_sink != id {
            facts
                .fail("sink", format!("it is on cluster {of_sink}, the source on {id}: a transaction cannot span two"));
            return None;
        }
    }
    let brokers = counted(ids.len() as u64, "broker");
    facts.ok("kafka", format!("cluster {id} with {brokers} at {}", source.brokers));
    settings(facts, config, &source, &ids);
    Some(groups)
}

fn settings(facts: &mut Facts, config: &Config, cluster: &ClusterOptions, ids: &[i32]) {
    let Some(&broker) = ids.first() else { return };
    let Ok(runtime) = super::super::claims::runtime() else { return };
    let settings = match runtime.block_on(broker_settings(cluster, broker, ASK)) {
        Ok(settings) => settings,
        Err(error) => {
            return facts.warn(
                "kafka",
                format!(
                    "the brokers' settings may not be read ({}): transaction.max.timeout.ms and \
                     offsets.retention.minutes are not checked. allow DescribeConfigs on the cluster to have them checked",
                    chain(&error)
                ),
            );
        }
    };
    let value = |(name, default): (&str, u64)| settings.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let millis = |time: Duration| time.as_millis() as u64;
    let (transaction, most) = (millis(config.sink.transaction_timeout), value(TRANSACTION_MAX));
    if transaction > most {
        facts.fail(
            "kafka",
            format!("{} is {most}, SEMEL_TRANSACTION_TIMEOUT is {transaction} ms: lower it", TRANSACTION_MAX.0),
        );
    } else {
        facts.ok("kafka", format!("{} is {most}, enough for SEMEL_TRANSACTION_TIMEOUT", TRANSACTION_MAX.0));
    }
    let (session, least, most) = (millis(config.source.session_timeout), value(SESSION_MIN), value(SESSION_MAX));
    if !(least..=most).contains(&session) {
        facts.fail(
            "kafka",
            format!("it takes session timeouts from {least} to {most} ms, SEMEL_SESSION_TIMEOUT is {session} ms"),
        );
    }
    for what in [TRANSACTIONS_KEPT_BY, OFFSETS_KEPT_BY] {
        // While a partition has no leader, Kafka drops the transaction markers that are due to it.
        if value(what) == 1 {
            facts.warn(
                "kafka",
                format!(
                    "{} is 1: a crash of that broker may leave a transaction half committed, which can double or hold up \
                     a window. use 3 replicas",
                    what.0
                ),
            );
        }
    }
    let kept = value(OFFSETS_KEPT);
    if kept < OFFSETS_KEPT_MINUTES_MIN {
        facts.warn(
            "kafka",
            format!(
                "{} is {kept}: the offsets of a group that is stopped for so long are gone, and `semel recover` is needed. \
                 raise it above SEMEL_LONGEST_OUTAGE",
                OFFSETS_KEPT.0
            ),
        );
    }
    let longest = config.retention.longest_outage.as_secs() / 60;
    if kept >= OFFSETS_KEPT_MINUTES_MIN && kept < longest {
        facts.warn(
            "kafka",
            format!("{} is {kept}, less than SEMEL_LONGEST_OUTAGE ({longest} min): raise it", OFFSETS_KEPT.0),
        );
    }
}
