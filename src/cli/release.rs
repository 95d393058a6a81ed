//! `semel release`: frees the claims of an event, or those that a retired group left unsettled. A dry run comes first.

use std::process::ExitCode;

use chrono::NaiveDate;
use clap::{Arg, ArgMatches, Command};

use super::flags::Listed;
use super::table::{Table, known};
use super::{Subcommand, operator};
use crate::clock::{Clock, SystemClock};
use crate::config::CONFIG;
use crate::config::extraction::EVENT_ID;
use crate::config::identity::SCOPE;
use crate::config::kafka::OAUTH_TOKEN_FILE;
use crate::config::source::SOURCE;
use crate::config::store::STORE;
use crate::pipeline::counted;
use crate::pipeline::operator::why::{Found, State};
use crate::pipeline::operator::{Claims, release, settled};
use crate::protocol::event::Week;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const OF_EVENT: Listed = Listed { needed: &[&STORE, &SCOPE], read: &[&SOURCE, &OAUTH_TOKEN_FILE, &EVENT_ID, &CONFIG] };
const OF_GROUP: Listed = Listed { needed: &[&STORE, &SOURCE], read: &[&OAUTH_TOKEN_FILE, &CONFIG] };

fn declare() -> Command {
    let event = Command::new("event").about("Lets an event through once more: deletes its claims");
    let week = Arg::new("week").long("week").value_name("MONDAY").value_parser(week);
    let week = week.help("Only the claim of this week: the date of its Monday, or `undated`");
    let event = operator::with_settings(operator::with_event(event).arg(week).arg(operator::yes()), &OF_EVENT);
    let group = Command::new("group").about("Frees what a retired group claimed and never forwarded");
    let name = Arg::new("group").required(true).value_name("GROUP").help("All its instances are stopped for good");
    let group = operator::with_settings(group.arg(name).arg(operator::yes()), &OF_GROUP);
    Command::new("release")
        .about("Frees claims; shows which before it does it")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(event)
        .subcommand(group)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("event", matches)) => event(matches),
        Some((_, matches)) => group(matches),
        None => Ok(ExitCode::from(super::EXIT_USAGE)),
    }
}

fn event(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = operator::config(matches)?;
    let event_id = operator::event_id(matches, &config)?;
    let scope = operator::needed(config.scope.clone(), SCOPE.name)?;
    let week = matches.get_one::<Week>("week").copied();
    let claims = Claims::open(&config.store)?;
    let found = release::of_event(&claims, operator::groups(&config)?.as_ref(), &scope, &event_id, week)?;
    if found.is_empty() {
        println!("event {event_id} has no such claim in scope {scope}: there is nothing to free");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["scope", "week", "claimed by", "at", "state"]);
    for one in &found {
        let Found { claim, state, .. } = one;
        let at = operator::time(claim.first_seen_at);
        table.row([claim.scope.to_string(), claim.week.to_string(), one.origin(), at, state.label().to_owned()]);
    }
    print!("event {event_id}\n\n{table}\n");
    if found.iter().any(|found| matches!(found.state, State::Unsettled { .. } | State::Unknown { .. })) {
        println!(
            "warning: a claim that is not settled may be of a message that is being forwarded now, or will be read again. \
             freed, a copy of the event may be forwarded beside it"
        );
    }
    println!(
        "note: running instances may remember the id (SEMEL_RECENT_IDS) and drop copies until they are started again"
    );
    if !matches.get_flag("yes") {
        println!("{} would be deleted\n{}", counted(found.len() as u64, "claim"), operator::DRY_RUN);
        return Ok(ExitCode::SUCCESS);
    }
    let freed = release::free_event(&claims, &scope, &event_id, week)?;
    println!("{} deleted", counted(freed, "claim"));
    Ok(ExitCode::SUCCESS)
}

fn group(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = operator::config(matches)?;
    let name = matches.get_one::<String>("group").map(String::as_str).unwrap_or_default();
    let groups = operator::needed_groups(&config)?;
    let claims = Claims::open(&config.store)?;
    let planned = release::of_group(&claims, &groups, name)?;
    if planned.is_empty() {
        println!("group {name} has no open lane in this store: there is nothing to free");
        return Ok(ExitCode::SUCCESS);
    }
    print!("group {name}\n\n{}\n", lanes(&planned));
    let (known, unknown): (Vec<_>, Vec<_>) = planned.iter().partition(|lane| lane.settled.is_some());
    for lane in &unknown {
        let (topic, partition, settled) = (&lane.topic, lane.partition, settled::settled_group(name));
        println!(
            "{topic}/{partition}: left alone: group {settled} has no offset for lane {}, so nothing tells which of its \
             claims were forwarded. its claims stay, and what they hold stays a duplicate",
            lane.row.open
        );
    }
    if !matches.get_flag("yes") {
        let claims: u64 = known.iter().map(|lane| lane.claims).sum();
        let (claims, lanes) = (counted(claims, "claim"), counted(known.len() as u64, "lane"));
        println!("{claims} would be deleted and {lanes} closed\n{}", operator::DRY_RUN);
    } else {
        let freed = release::free_group(&claims, &groups, name, &planned, SystemClock.now())?;
        let claims: u64 = freed.iter().map(|lane| lane.claims).sum();
        println!("{} deleted, {} closed", counted(claims, "claim"), counted(freed.len() as u64, "lane"));
    }
    Ok(if unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn lanes(lanes: &[release::Lane]) -> Table {
    let mut table = Table::new(["topic/partition", "lane", "settled", "unsettled claims"]);
    for lane in lanes {
        let place = format!("{}/{}", lane.topic, lane.partition);
        let claims = lane.settled.map(|_| lane.claims);
        table.row([place, lane.row.open.to_string(), known(lane.settled), known(claims)]);
    }
    table
}

fn week(text: &str) -> Result<Week, String> {
    if text == "undated" {
        return Ok(Week::UNDATED);
    }
    let date: NaiveDate = text.parse().map_err(|_| "it is neither a date (YYYY-MM-DD) nor undated".to_owned())?;
    let monday = date - chrono::Days::new(u64::from(chrono::Datelike::weekday(&date).num_days_from_monday()));
    Week::starting(date).ok_or_else(|| format!("it is no Monday; the week of that day begins on {monday}"))
}
