//! `semel validate`: reads the configuration as `semel run` would, connects to nothing, and tells every problem.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::{Subcommand, flags};
use crate::config::reader;
use crate::key::TimeRecipe;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

fn declare() -> Command {
    let command = Command::new("validate").about("Checks the configuration of `semel run` without connecting");
    flags::with_listed(command, reader::Command::Run, &flags::AS_RUN)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = flags::config(matches)?;
    let extraction = &config.keys.extraction;
    println!("the configuration is valid");
    println!("scope        {}", config.scope);
    println!("source       {} in group {}", config.source.topics.join(", "), config.source.group);
    println!("sink         {}", config.sink.topic);
    println!("event id     {}", extraction.recipe());
    println!("event time   {}", extraction.time());
    println!("recipe       {}", extraction.digest());
    println!("instance     {}", config.identity.transactional_id(0));
    if *extraction.time() == TimeRecipe::Record {
        println!("note: the event time is the record's timestamp; it must be the producer's, the same in every copy");
    }
    Ok(ExitCode::SUCCESS)
}
