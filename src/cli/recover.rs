//! `semel recover`: the operator's word for partitions that cannot go on by themselves. A dry run comes first.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::flags::Listed;
use super::table::{Table, known};
use super::{Subcommand, operator};
use crate::clock::{Clock, SystemClock};
use crate::config::CONFIG;
use crate::config::extraction::{EVENT_ID, EVENT_TIME};
use crate::config::identity::SCOPE;
use crate::config::kafka::OAUTH_TOKEN_FILE;
use crate::config::source::{SOURCE, START};
use crate::config::store::STORE;
use crate::pipeline::counted;
use crate::pipeline::operator::Claims;
use crate::pipeline::operator::recover::{Plan, Recover};
use crate::pipeline::transactional::wiring;
use crate::store::LaneFor;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const SETTINGS: Listed =
    Listed { needed: &[&STORE, &SOURCE, &SCOPE, &EVENT_ID], read: &[&START, &EVENT_TIME, &OAUTH_TOKEN_FILE, &CONFIG] };

fn declare() -> Command {
    let command =
        Command::new("recover").about("Lets partitions go on whose settled offset is gone or not to be trusted");
    let command = command.after_help(
        "No claim is released: the window that was in doubt may be lost, and nothing doubles. Every instance of the group \
         must be stopped. Partitions that can go on by themselves are not touched.",
    );
    operator::with_settings(command.arg(operator::yes()), &SETTINGS)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = operator::config(matches)?;
    let source = operator::needed(config.source.as_ref(), SOURCE.name)?;
    let scope = operator::needed(config.scope.clone(), SCOPE.name)?;
    let keys = operator::needed(config.keys.as_ref(), EVENT_ID.name)?;
    let lane_for = LaneFor { scope, recipe: keys.extraction.digest() };
    let claims = Claims::open(&config.store)?;
    let options = wiring::source_of(source, &config.oauth_token_file);
    let recover = Recover::new(&claims, &options, source.reset, lane_for)?;
    let plans = recover.plan()?;
    print!("group {}\n\n{}\n", source.group, table(&plans));
    let halted = plans.iter().filter(|plan| plan.recovered.is_some()).count();
    if halted == 0 {
        println!("nothing to recover: `semel run` goes on by itself");
        return Ok(ExitCode::SUCCESS);
    }
    for plan in &plans {
        if let Some((from, to)) = plan.repeated() {
            let (topic, partition) = (&plan.standing.topic, plan.standing.place.partition);
            println!(
                "warning: {topic}/{partition}: the group's offset lies before the settled one, and their claims are in \
                 another store: {from} to {to} will be forwarded a second time"
            );
        }
    }
    println!(
        "{} to recover without a cut: no claim is released. what was claimed and not forwarded when the settled offset was \
         lost, one window at most, is lost; nothing that this store has a claim of doubles",
        counted(halted as u64, "partition")
    );
    if !matches.get_flag("yes") {
        println!("{}", operator::DRY_RUN);
        return Ok(ExitCode::SUCCESS);
    }
    for done in recover.carry_out(&plans, SystemClock.now())? {
        println!("{}/{}: goes on at {} on lane {}", done.topic, done.partition, done.position, done.lane);
    }
    Ok(ExitCode::SUCCESS)
}

fn table(plans: &[Plan]) -> Table {
    let mut table = Table::new(["topic/partition", "log", "committed", "settled", "what"]);
    for plan in plans {
        let seen = &plan.standing.seen;
        let place = format!("{}/{}", plan.standing.topic, plan.standing.place.partition);
        let log = format!("{} to {}", seen.log_start, seen.log_end);
        let settled = seen.settled.as_ref().map(|settled| settled.position);
        table.row([place, log, known(seen.committed), known(settled), plan.words()]);
    }
    table
}
