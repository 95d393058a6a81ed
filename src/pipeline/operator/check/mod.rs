//! Everything that a start depends on, fact by fact, with what to do about what is wrong.
//!
//! Each part is asked for itself, so that one that is away hides as little of the others as can be. Nothing is written,
//! with one exception: whether this client may use transactional ids is found out by registering one that no instance
//! has (see [`transactions`]).
//!
//! *Not told:* the brokers' versions and clocks, which Kafka's protocol does not give away.

use std::fmt;

use super::{ASK, Claims};
use crate::clock::Clock;
use crate::config::Config;
use crate::pipeline::transactional::wiring;
use crate::pipeline::{chain, preflight};
use crate::source::kafka::KafkaSource;
use crate::store::StreamState;

mod brokers;
mod group;
pub mod ingest;
pub mod leased;
pub mod settled;
mod store;
mod topics;
mod transactions;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    /// It runs, and something is not as it should be.
    Warn,
    /// It does not run, or not right.
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub level: Level,
    /// What it is about: `topic orders`.
    pub about: String,
    /// What was found and, where that is not right, what to do.
    pub found: String,
}

#[derive(Debug, Default)]
pub struct Facts(pub Vec<Fact>);

impl Facts {
    fn ok(&mut self, about: impl Into<String>, found: impl Into<String>) {
        self.0.push(Fact { level: Level::Ok, about: about.into(), found: found.into() });
    }

    fn warn(&mut self, about: impl Into<String>, found: impl Into<String>) {
        self.0.push(Fact { level: Level::Warn, about: about.into(), found: found.into() });
    }

    fn fail(&mut self, about: impl Into<String>, found: impl Into<String>) {
        self.0.push(Fact { level: Level::Fail, about: about.into(), found: found.into() });
    }

    /// A line of the preflight: `topic orders: it is not there`.
    fn preflight(&mut self, level: Level, line: &str) {
        let (about, found) = line.split_once(": ").unwrap_or(("start", line));
        self.0.push(Fact { level, about: about.to_owned(), found: found.to_owned() });
    }

    pub fn worst(&self) -> Level {
        self.0.iter().map(|fact| fact.level).max().unwrap_or(Level::Ok)
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|fact| fact.about.chars().count()).max().unwrap_or(0).min(60);
        for Fact { level, about, found } in &self.0 {
            let level = match level {
                Level::Ok => "ok",
                Level::Warn => "warn",
                Level::Fail => "FAIL",
            };
            writeln!(f, "{level:4}  {about:width$}  {found}")?;
        }
        Ok(())
    }
}

/// Asks for everything. Blocks for some seconds where something does not answer.
pub fn check(config: &Config, clock: &dyn Clock) -> Facts {
    let mut facts = Facts::default();
    let recipe = config.keys.extraction.digest();
    facts.ok("settings", format!("valid; event id {}, recipe {recipe}", config.keys.extraction.recipe()));
    facts.ok(
        "promise",
        "kafka to kafka: exactly once, as seen by a read_committed reader (isolation.level=read_committed downstream)",
    );
    let claims = store::check(&mut facts, &config.store, config.identity.workers, Some(config.retention.bounds), clock);
    let streams = claims.as_ref().and_then(|claims| {
        let streams = claims.ask(|store| async move { store.streams().await });
        streams.map_err(|error| facts.fail("lanes", chain(&error))).ok()
    });
    let Some(groups) = brokers::check(&mut facts, config) else { return facts };
    let all_there = topics::check(&mut facts, config, &groups);
    let own = config.identity.transactional_id(0);
    transactions::check(&mut facts, &wiring::sink_cluster(config), &own, config.sink.transaction_timeout);
    let members = group::check(&mut facts, config, &groups);
    if all_there {
        lanes(&mut facts, config, claims.as_ref(), streams.as_deref(), members);
    }
    facts
}

/// What the lanes say of this pipeline, and what a start would make of each partition.
fn lanes(facts: &mut Facts, config: &Config, claims: Option<&Claims>, streams: Option<&[StreamState]>, members: usize) {
    let (Some(claims), Some(streams)) = (claims, streams) else { return };
    let asked = KafkaSource::new(&wiring::source(config)).map_err(|error| chain(&error)).and_then(|source| {
        let partitions = super::standing::Partitions::of(&source, &config.source.topics);
        partitions.map(|partitions| (source, partitions)).map_err(|error| chain(&error))
    });
    let (source, partitions) = match asked {
        Ok(asked) => asked,
        Err(error) => return facts.fail(format!("group {}", config.source.group), error),
    };
    let (who, is_allowed) = ((&config.scope, config.source.group.as_str()), config.identity.allow_shared_scope);
    let sharing = preflight::sharing(who, is_allowed, &partitions.cluster, &partitions.ids, streams);
    if sharing.is_empty() {
        facts.ok(format!("scope {}", config.scope), "no other group claims the same topics under it");
    }
    sharing.iter().for_each(|line| facts.preflight(Level::Fail, line));
    group::recipe(facts, config, &partitions, streams);
    group::starts(facts, config, claims, &source, &partitions, members);
}
