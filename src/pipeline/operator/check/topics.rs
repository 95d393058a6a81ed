//! The topics: there, fit for the pipeline, safe from loss, and open to this client.

use std::collections::BTreeSet;

use super::{ASK, Facts, Level};
use crate::config::Config;
use crate::kafka::groups::Groups;
use crate::pipeline::{chain, counted, preflight};

/// Whether all are there.
pub(super) fn check(facts: &mut Facts, config: &Config, groups: &Groups) -> bool {
    let Ok(runtime) = super::super::claims::runtime() else { return false };
    let topics = match runtime.block_on(preflight::topics(config, ASK)) {
        Ok(topics) => topics,
        Err(error) => {
            facts.fail("topics", chain(&error));
            return false;
        }
    };
    let bad: BTreeSet<&str> = topics.problems.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    for (name, found) in &topics.found {
        let about = format!("topic {name}");
        let Some(partitions) = found.partitions else { continue };
        if !bad.contains(about.as_str()) {
            let replicas = found.replicas_min.map(|count| format!(", {}", counted(count as u64, "replica")));
            let replicas = replicas.unwrap_or_default();
            let (partitions, size) = (counted(partitions as u64, "partition"), found.record_bytes_max);
            facts.ok(&about, format!("{partitions}{replicas}, records up to {size} bytes"));
        }
        if found.replicas_min == Some(1) {
            facts.warn(
                &about,
                "one replica: what it holds is gone with its broker. exactly once presumes that it is not",
            );
        }
        if found.unclean_election {
            facts
                .warn(&about, "unclean.leader.election.enable is true: committed records may be lost. set it to false");
        }
    }
    topics.problems.iter().for_each(|line| facts.preflight(Level::Fail, line));
    topics.warnings.iter().for_each(|line| facts.preflight(Level::Warn, line));
    operations(facts, config, groups);
    topics.found.values().all(|found| found.partitions.is_some())
}

/// What this client may do, by the brokers' own word.
fn operations(facts: &mut Facts, config: &Config, groups: &Groups) {
    let mut needs: Vec<(&String, &[&str])> = Vec::new();
    needs.extend(config.source.topics.iter().map(|topic| (topic, &["READ", "DESCRIBE"][..])));
    let outputs = [Some(&config.sink.topic), config.sink.dead_letter.as_ref(), config.sink.duplicates.as_ref()];
    needs.extend(outputs.into_iter().flatten().map(|topic| (topic, &["WRITE", "DESCRIBE"][..])));
    let names: Vec<String> = needs.iter().map(|(name, _)| (*name).clone()).collect();
    let found = match groups.topic_operations(&names, ASK) {
        Ok(found) => found,
        Err(error) => return facts.warn("privileges", chain(&error)),
    };
    let (mut lacking, mut untold, mut seen) = (false, false, 0);
    let all = needs.len();
    for (name, needed) in needs {
        // One that is missing was told already.
        let Some((_, Ok(allowed))) = found.iter().find(|(topic, _)| topic == name) else { continue };
        seen += 1;
        untold |= allowed.0.is_none();
        let lacks = allowed.lacks(needed);
        if !lacks.is_empty() {
            lacking = true;
            facts.fail(format!("topic {name}"), format!("this client lacks {} on it: allow it", lacks.join(" and ")));
        }
    }
    match (lacking, untold) {
        (true, _) => {}
        (false, true) => facts.warn("topics", "the brokers do not tell what this client may do with them"),
        (false, false) if seen < all => {}
        (false, false) => facts.ok("topics", "this client may read the source's and write the sink's"),
    }
}
