//! `semel why`: why was this event dropped? Who claimed it, when, from where, and whether it is done.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::flags::Listed;
use super::{Subcommand, operator};
use crate::clock::{Clock, SystemClock};
use crate::config::CONFIG;
use crate::config::extraction::EVENT_ID;
use crate::config::identity::SCOPE;
use crate::config::kafka::OAUTH_TOKEN_FILE;
use crate::config::operator::OperatorConfig;
use crate::config::retention::RETENTION_WEEKS;
use crate::config::source::SOURCE;
use crate::config::store::STORE;
use crate::pipeline::operator::Claims;
use crate::pipeline::operator::why::{Found, why};
use crate::protocol::event::{EventId, Scope};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const SETTINGS: Listed =
    Listed { needed: &[&STORE], read: &[&SCOPE, &SOURCE, &OAUTH_TOKEN_FILE, &EVENT_ID, &RETENTION_WEEKS, &CONFIG] };

fn declare() -> Command {
    let command = Command::new("why").about("Tells who claimed an event, when and from where, and whether it is done");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("For programs");
    let all = Arg::new("all-scopes").long("all-scopes").action(ArgAction::SetTrue);
    let all = all.help("Look in every scope, though SEMEL_SCOPE names one");
    operator::with_settings(operator::with_event(command).arg(json).arg(all), &SETTINGS)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = operator::config(matches)?;
    let event_id = operator::event_id(matches, &config)?;
    let scope = config.scope.as_ref().filter(|_| !matches.get_flag("all-scopes"));
    let claims = Claims::open(&config.store)?;
    let found = why(&claims, operator::groups(&config)?.as_ref(), scope, &event_id)?;
    let conclusion = conclude(&config, scope, &found);
    if matches.get_flag("json") {
        println!("{:#}", as_json(&event_id, scope, &found, &conclusion));
        return Ok(ExitCode::SUCCESS);
    }
    println!("event     {event_id}");
    for found in &found {
        show(found);
    }
    println!("\n{conclusion}");
    Ok(ExitCode::SUCCESS)
}

fn show(found: &Found) {
    let claim = &found.claim;
    println!("\nscope     {}", claim.scope);
    println!("week      {}", claim.week);
    let at = operator::time(claim.first_seen_at);
    match found.line() {
        Some(_) => println!("claimed   by semel pipe at {at}\nline      {}", found.origin()),
        None => println!("claimed   by {} at {at}", found.origin()),
    }
    match (claim.holder.lane, &claim.stream, &found.group) {
        (None, ..) if found.line().is_some() => {}
        (None, ..) => println!("lane      none"),
        (Some(lane), _, Some(group)) => {
            println!("lane      {lane} of group {group}, position {}", claim.holder.position)
        }
        (Some(lane), Some(stream), None) => {
            println!("lane      {lane} of {stream}, position {}", claim.holder.position)
        }
        (Some(lane), None, None) => println!("lane      {lane}, which the store no longer knows"),
    }
    println!("state     {}", found.state.label());
    println!("meaning   {}", found.meaning());
}

/// What follows from all claims together.
fn conclude(config: &OperatorConfig, scope: Option<&Scope>, found: &[Found]) -> String {
    let mut weeks: Vec<_> = found.iter().map(|found| found.claim.week).collect();
    weeks.sort_unstable();
    weeks.dedup();
    match (found, &weeks[..]) {
        ([], _) => nothing(config, scope),
        ([_, ..], [_, _, ..]) => format!(
            "an event counts once within its week, and this one has claims in {} weeks: its copies carry times in \
             different weeks, and one of each week was forwarded. SEMEL_EVENT_TIME should name a time that is the same in \
             every copy",
            weeks.len()
        ),
        ([_], _) => {
            "a copy that was dropped as a duplicate was dropped because of this claim. to let one through again: \
                     semel release event"
                .to_owned()
        }
        _ => "each scope counts for itself. to let a copy through again in one of them: semel release event".to_owned(),
    }
}

fn nothing(config: &OperatorConfig, scope: Option<&Scope>) -> String {
    let place = scope.map_or_else(|| "any scope".to_owned(), |scope| format!("scope {scope}"));
    let (first_kept, _) = config.retention.bounds.weeks(SystemClock.now());
    let recipe = match &config.keys {
        Some(keys) => format!("(now {})", keys.extraction.recipe()),
        None => "(SEMEL_EVENT_ID, which is not set here)".to_owned(),
    };
    format!(
        "nothing claimed it: no claim of this id in {place}. a copy that is read now is forwarded. one that was dropped was \
         not dropped as a duplicate of it, or the claim is gone. look at: whether it was read at all (the group's lag); \
         the dead-letter topic or, of `semel pipe`, the file of rejected lines; the way ids are extracted {recipe}; its week, if that is before {first_kept} and was \
         retired; `semel release`, if somebody freed it"
    )
}

fn as_json(event_id: &EventId, scope: Option<&Scope>, found: &[Found], conclusion: &str) -> Value {
    let one = |found: &Found| {
        let claim = &found.claim;
        json!({
            "scope": claim.scope.as_str(),
            "week": claim.week.to_string(),
            "topic": claim.topic,
            "partition": claim.partition,
            "offset": claim.offset,
            "pipe": found.line().is_some(),
            "first_seen_at": operator::time(claim.first_seen_at),
            "lane": claim.holder.lane.map(|lane| lane.0),
            "position": claim.holder.position,
            "stream": claim.stream.as_ref().map(|stream| stream.as_str()),
            "group": found.group,
            "state": found.state.label(),
            "settled": found.state.position(),
            "meaning": found.meaning(),
        })
    };
    json!({
        "event_id": event_id.as_str(),
        "scope": scope.map(Scope::as_str),
        "claims": found.iter().map(one).collect::<Vec<_>>(),
        "conclusion": conclusion,
    })
}
