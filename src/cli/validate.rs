//! `semel validate`: reads the configuration as `semel run` would, connects to nothing, and tells every problem.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::{Subcommand, flags};
use crate::config::reader;
use crate::config::route::Route;
use crate::key::TimeRecipe;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

fn declare() -> Command {
    let command = Command::new("validate").about("Checks the configuration of `semel run` without connecting");
    flags::with_listed(command, reader::Command::Run, &flags::AS_RUN)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (scope, source, sink, keys, instance) = match flags::route(matches)? {
        Route::KafkaToKafka(config) => {
            let source = format!("{} in group {}", config.source.topics.join(", "), config.source.group);
            let instance = config.identity.transactional_id(0);
            (config.scope, source, config.sink.topic, config.keys, instance)
        }
        Route::Settled(config) => {
            let source = format!("{} in group {}", config.source.topics.join(", "), config.source.group);
            let instance = format!("{}/{}", config.identity.pipeline, config.identity.instance);
            (config.scope, source, config.sink.to_string(), config.keys, instance)
        }
        Route::Leased(config) => {
            let (source, sink) = (config.source.to_string(), config.sink.to_string());
            (config.scope, source, sink, config.keys, format!("{}/{}", config.pipeline, config.instance))
        }
    };
    let extraction = &keys.extraction;
    println!("the configuration is valid");
    println!("scope        {scope}");
    println!("source       {source}");
    println!("sink         {sink}");
    println!("event id     {}", extraction.recipe());
    println!("event time   {}", extraction.time());
    println!("recipe       {}", extraction.digest());
    println!("instance     {instance}");
    if *extraction.time() == TimeRecipe::Record {
        println!("note: the event time is the record's timestamp; it must be the producer's, the same in every copy");
    }
    Ok(ExitCode::SUCCESS)
}
