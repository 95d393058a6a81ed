//! `semel check`: connects, and tells everything that a start depends on, a line each.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::{Subcommand, flags};
use crate::clock::SystemClock;
use crate::config::reader;
use crate::config::route::Route;
use crate::pipeline::operator::check::{Facts, Level, check, leased, settled};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

fn declare() -> Command {
    let command =
        Command::new("check").about("Checks all that `semel run` depends on: store, brokers, topics, privileges");
    let command =
        command.after_help("A line for each fact: ok, warn, or FAIL with what to do. Ends with 1 where one is FAIL.");
    flags::with_listed(command, reader::Command::Run, &flags::AS_RUN)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let facts = match flags::route(matches)? {
        Route::KafkaToKafka(config) => check(&config, &SystemClock),
        Route::Settled(config) => settled::check(&config, &SystemClock),
        Route::Leased(config) => leased::check(&config, &SystemClock),
    };
    Ok(told(&facts))
}

pub(super) fn told(facts: &Facts) -> ExitCode {
    print!("{facts}");
    if facts.worst() == Level::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
