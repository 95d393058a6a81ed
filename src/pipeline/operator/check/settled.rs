//! The same from Kafka into a sink without transactions.

use super::leased::{lanes, plain_sink};
use super::{ASK, Facts, Level, store};
use crate::clock::Clock;
use crate::config::settled::SettledConfig;
use crate::kafka::groups::Groups;
use crate::pipeline::operator::claims::runtime;
use crate::pipeline::settled::wiring;
use crate::pipeline::{chain, counted, preflight};

/// Asks for everything. Blocks for some seconds where something does not answer. Takes no message and publishes none.
pub fn check(config: &SettledConfig, clock: &dyn Clock) -> Facts {
    let mut facts = Facts::default();
    let extraction = &config.keys.extraction;
    facts.ok("settings", format!("valid; event id {}, recipe {}", extraction.recipe(), extraction.digest()));
    facts.ok("promise", wiring::promise(config));
    let workers = config.identity.workers;
    if let Some(claims) = store::check(&mut facts, &config.store, workers, Some(config.retention.bounds), clock) {
        lanes(&mut facts, &config.scope, &config.keys, &claims);
    }
    source(&mut facts, config);
    match runtime() {
        Ok(runtime) => {
            runtime.block_on(plain_sink(&mut facts, config.sink.to_string(), wiring::sink(config, 0)));
        }
        Err(error) => facts.fail("sink", chain(&error)),
    }
    facts
}

fn source(facts: &mut Facts, config: &SettledConfig) {
    let cluster = wiring::source_cluster(config);
    let asked = Groups::new(&cluster).and_then(|groups| groups.cluster(ASK).map(|(id, _)| (groups, id)));
    let (groups, id) = match asked {
        Ok(asked) => asked,
        Err(error) => return facts.fail("source", chain(&error)),
    };
    facts.ok("kafka", format!("cluster {id} at {}", cluster.brokers));
    let looked = runtime()
        .map_err(|error| chain(&error))
        .and_then(|runtime| runtime.block_on(preflight::source_topics(config, ASK)).map_err(|error| chain(&error)));
    match looked {
        Err(error) => facts.fail("topics", error),
        Ok(topics) => {
            for (name, found) in &topics.found {
                let Some(partitions) = found.partitions else { continue };
                facts.ok(format!("topic {name}"), counted(partitions as u64, "partition"));
            }
            topics.problems.iter().for_each(|line| facts.preflight(Level::Fail, line));
            topics.warnings.iter().for_each(|line| facts.preflight(Level::Warn, line));
        }
    }
    let about = format!("group {}", config.source.group);
    match groups.describe(&config.source.group, ASK) {
        Err(error) => facts.fail(about, format!("{}. allow Read on it", chain(&error))),
        Ok(found) => match &found.allowed.lacks(&["READ", "DESCRIBE"])[..] {
            [] => {
                let members = counted(found.members.len() as u64, "member");
                facts.ok(about, format!("{members} now; this client may read it"));
            }
            lacks => facts.fail(about, format!("this client lacks {} on it: allow Read", lacks.join(" and "))),
        },
    }
}
