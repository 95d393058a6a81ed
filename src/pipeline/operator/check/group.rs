//! The group and the group of its settled offsets: members, privileges, and what a start makes of each partition.

use super::{ASK, Facts};
use crate::config::Config;
use crate::kafka::groups::Groups;
use crate::pipeline::operator::Claims;
use crate::pipeline::operator::settled::settled_group;
use crate::pipeline::operator::standing::{Partitions, Standing, known, standings};
use crate::pipeline::{chain, counted};
use crate::protocol::recovery::recovered;
use crate::protocol::start::{Start, Why};
use crate::source::kafka::KafkaSource;
use crate::store::StreamState;

/// Answers how many members the group has.
pub(super) fn check(facts: &mut Facts, config: &Config, groups: &Groups) -> usize {
    let group = &config.source.group;
    let settled = settled_group(group);
    let mut members = 0;
    for (name, own) in [(group, true), (&settled, false)] {
        let about = format!("group {name}");
        let found = match groups.describe(name, ASK) {
            Ok(found) => found,
            Err(error) => {
                facts.fail(&about, format!("{}. allow Read on it", chain(&error)));
                continue;
            }
        };
        let lacks = found.allowed.lacks(&["READ", "DESCRIBE"]);
        if !lacks.is_empty() {
            facts.fail(&about, format!("this client lacks {} on it: allow Read", lacks.join(" and ")));
        } else if own {
            members = found.members.len();
            facts.ok(&about, format!("{} now; this client may read it", counted(members as u64, "member")));
        } else if found.members.is_empty() {
            facts.ok(&about, "nobody is in it, as it should be; this client may read it");
        } else {
            let count = counted(found.members.len() as u64, "member");
            facts.fail(&about, format!("{count}: it holds {group}'s settled offsets, nobody may join it. stop them"));
        }
    }
    members
}

/// Claims of this scope that were made by another way of extracting ids and times.
pub(super) fn recipe(facts: &mut Facts, config: &Config, partitions: &Partitions, streams: &[StreamState]) {
    let digest = config.keys.extraction.digest();
    let own: Vec<_> = partitions.places.iter().map(|place| partitions.stream(&config.source.group, *place)).collect();
    let open_for =
        streams.iter().filter(|state| own.contains(&state.stream)).filter_map(|state| state.opened_for.as_ref());
    let (mut other_scope, mut other_recipe, mut same) = (0, 0, 0);
    for lane_for in open_for {
        match (lane_for.scope == config.scope, lane_for.recipe == digest) {
            (true, true) => same += 1,
            (true, false) => other_recipe += 1,
            (false, _) => other_scope += 1,
        }
    }
    let lanes = counted(other_recipe, "lane");
    if other_recipe > 0 && config.keys.accept_change {
        facts.warn(
            "recipe",
            format!(
                "{lanes} opened for another; SEMEL_ACCEPT_RECIPE lets the start go on: old claims are not recognised"
            ),
        );
    } else if other_recipe > 0 {
        facts.fail(
            "recipe",
            format!(
                "{lanes} of this scope opened for another than {digest}: event ids or times are extracted in another way \
                 now, and old claims would not be recognised. undo it, use a new scope, or set \
                 SEMEL_ACCEPT_RECIPE={digest}"
            ),
        );
    } else {
        facts.ok("recipe", format!("{}, all for this recipe ({digest})", counted(same, "open lane")));
    }
    if other_scope > 0 {
        facts.warn(
            format!("scope {}", config.scope),
            format!("{} opened for another scope: events count anew under this one", counted(other_scope, "lane")),
        );
    }
}

/// What a start would make of each partition, as far as nobody reads them meanwhile.
pub(super) fn starts(
    facts: &mut Facts,
    config: &Config,
    claims: &Claims,
    source: &KafkaSource,
    partitions: &Partitions,
    members: usize,
) {
    let group = &config.source.group;
    if members > 0 {
        return facts.ok(format!("group {group}"), "it is at work, so its offsets are not judged");
    }
    let of = (group.as_str(), config.source.reset);
    let found = known(claims).and_then(|known| standings(claims, source, partitions, &partitions.places, &known, of));
    let found = match found {
        Ok(found) => found,
        Err(error) => return facts.fail(format!("group {group}"), chain(&error)),
    };
    let mut going_on = 0;
    for standing in &found {
        let about = format!("partition {}/{}", standing.topic, standing.place.partition);
        match &standing.start {
            Start::Continue { .. } => going_on += 1,
            Start::NewLane { position, why: Why::FirstStart | Why::Adoption | Why::DrainRecorded, .. } => {
                facts.ok(about, format!("a start begins at {position}"));
            }
            Start::NewLane { position, why, .. } => {
                facts.warn(
                    about,
                    format!("a start opens a new lane at {position} ({}){}", why.label(), moved(standing)),
                );
            }
            Start::Halt(_) => {
                let at = recovered(&standing.seen).map_or(0, |recovered| recovered.position);
                facts.fail(
                    about,
                    format!(
                        "a start halts: the settled offset is gone, is not semel's, or belongs to another store. \
                         `semel recover` lets it go on at {at}, and may lose the window that was in doubt"
                    ),
                );
            }
        }
    }
    if going_on > 0 {
        facts
            .ok(format!("group {group}"), format!("a start goes on where {} left off", counted(going_on, "partition")));
    }
}

fn moved(standing: &Standing) -> String {
    let seen = &standing.seen;
    let settled = seen.settled.as_ref().map(|settled| settled.position);
    match (seen.committed, settled) {
        (Some(committed), Some(settled)) if committed != settled => {
            format!(": the group's offset is {committed}, settled is {settled}")
        }
        _ => String::new(),
    }
}
