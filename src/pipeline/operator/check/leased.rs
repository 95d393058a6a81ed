//! The same for pipelines whose source has no offsets.

use super::{ASK, Facts, store, transactions};
use crate::clock::Clock;
use crate::config::ends::Sink;
use crate::config::extraction::Keys;
use crate::config::kafka_end;
use crate::config::leased::LeasedConfig;
use crate::kafka::admin::{cluster_id, topic_facts};
use crate::pipeline::leased::outlet::transactional_id;
use crate::pipeline::leased::wiring;
use crate::pipeline::operator::Claims;
use crate::pipeline::operator::claims::runtime;
use crate::pipeline::{chain, preflight, transactional};
use crate::protocol::event::Scope;
use crate::sink::Sink as PlainSink;

/// Asks for everything. Blocks for some seconds where something does not answer. Takes no message and publishes none.
pub fn check(config: &LeasedConfig, clock: &dyn Clock) -> Facts {
    let mut facts = Facts::default();
    let extraction = &config.keys.extraction;
    facts.ok("settings", format!("valid; event id {}, recipe {}", extraction.recipe(), extraction.digest()));
    facts.ok("promise", wiring::promise(config));
    if let Some(claims) = store::check(&mut facts, &config.store, 1, Some(config.retention.bounds), clock) {
        lanes(&mut facts, &config.scope, &config.keys, &claims);
    }
    match runtime() {
        Ok(runtime) => runtime.block_on(ends(&mut facts, config)),
        Err(error) => facts.fail("source", chain(&error)),
    }
    facts
}

/// Who else claims under this scope, and by which recipe.
pub(super) fn lanes(facts: &mut Facts, scope: &Scope, keys: &Keys, claims: &Claims) {
    let streams = match claims.ask(|store| async move { store.streams().await }) {
        Ok(streams) => streams,
        Err(error) => return facts.fail("lanes", chain(&error)),
    };
    let foreign = preflight::of_other_kind(scope, false, &streams);
    foreign.iter().for_each(|line| facts.preflight(super::Level::Fail, line));
    if foreign.is_empty() {
        facts.ok(format!("scope {scope}"), "no pipeline from Kafka to Kafka claims under it");
    }
    let digest = keys.extraction.digest();
    let of_scope = streams.iter().filter_map(|state| state.opened_for.as_ref());
    let other = of_scope.filter(|lane_for| lane_for.scope == *scope && lane_for.recipe != digest).count();
    match (other, keys.accept_change) {
        (0, _) => facts.ok("recipe", format!("no lane of this scope was opened for another than {digest}")),
        (_, true) => facts.warn("recipe", "there are lanes for another; SEMEL_ACCEPT_RECIPE lets the start go on"),
        (_, false) => facts.fail(
            "recipe",
            format!(
                "a lane of this scope was opened for another than {digest}: event ids or times are extracted in another \
                 way now, and old claims would not be recognised. undo it, use a new scope, or set \
                 SEMEL_ACCEPT_RECIPE={digest}"
            ),
        ),
    }
}

async fn ends(facts: &mut Facts, config: &LeasedConfig) {
    let about = config.source.to_string();
    match wiring::source(config).check().await {
        Ok(seen) => {
            facts.ok(&about, seen.found);
            seen.warnings.into_iter().for_each(|warning| facts.warn(&about, warning));
        }
        Err(error) => facts.fail(about, chain(&error)),
    }
    match &config.sink {
        Sink::Kafka(kafka) => kafka_sink(facts, config, kafka).await,
        sink => plain_sink(facts, sink.to_string(), wiring::sink(config)).await,
    }
}

pub(super) async fn plain_sink(facts: &mut Facts, about: String, sink: Option<Box<dyn PlainSink>>) {
    let Some(mut sink) = sink else { return };
    match sink.check().await {
        Ok(()) => facts.ok(about, "it is there, with every other destination that is set"),
        Err(error) => facts.fail(about, chain(&error)),
    }
}

async fn kafka_sink(facts: &mut Facts, config: &LeasedConfig, kafka: &kafka_end::Sink) {
    let cluster = transactional::wiring::cluster(&kafka.oauth_token_file, &kafka.brokers, &kafka.properties);
    let names: Vec<&str> = std::iter::once(kafka.topic.as_str())
        .chain(config.dead_letter.as_deref())
        .chain(config.duplicates.as_deref())
        .collect();
    let found = match topic_facts(&cluster, &names, ASK).await {
        Ok(found) => found,
        Err(error) => return facts.fail("kafka", chain(&error)),
    };
    match cluster_id(&cluster, ASK) {
        Ok(Some(id)) => facts.ok("kafka", format!("cluster {id} at {}", cluster.brokers)),
        Ok(None) => facts.fail("kafka", "the brokers do not say which cluster they are"),
        Err(error) => facts.fail("kafka", chain(&error)),
    }
    for (name, topic) in found {
        let about = format!("topic {name}");
        match topic.partitions {
            None => facts.fail(about, "it is not there, or may not be described. make it, or allow Describe on it"),
            Some(_) => facts.ok(about, format!("records of up to {} bytes", topic.record_bytes_max)),
        }
    }
    let own = format!("{}.0", transactional_id(&config.pipeline, &config.instance));
    transactions::check(facts, &cluster, &own, kafka.transaction_timeout);
}
