//! The command line: one file per subcommand, flags made from the registry of settings.
//!
//! Exit codes: 0 done, 1 failed, 64 told something that makes no sense, 128 and the signal's number where `semel pipe` or
//! `semel demo` was ended by one. README has the whole list.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};

use crate::config::ConfigError;

mod check;
mod completions;
mod config;
mod demo;
mod flags;
mod ingest;
mod migrate;
mod operator;
mod partitions;
mod pipe;
mod recover;
mod release;
mod run;
mod signals;
mod table;
mod validate;
mod why;

/// Bad usage or a bad configuration, as `sysexits.h` has it.
pub const EXIT_USAGE: u8 = 64;

/// How a subcommand is declared and run.
struct Subcommand {
    declare: fn() -> Command,
    run: fn(&ArgMatches) -> anyhow::Result<ExitCode>,
}

const SUBCOMMANDS: &[Subcommand] = &[
    run::SUBCOMMAND,
    ingest::SUBCOMMAND,
    pipe::SUBCOMMAND,
    demo::SUBCOMMAND,
    migrate::SUBCOMMAND,
    validate::SUBCOMMAND,
    check::SUBCOMMAND,
    why::SUBCOMMAND,
    release::SUBCOMMAND,
    recover::SUBCOMMAND,
    partitions::SUBCOMMAND,
    config::SUBCOMMAND,
    completions::SUBCOMMAND,
];

fn command() -> Command {
    Command::new("semel")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Lets each event through once")
        .after_help("Every setting is a flag, an environment variable or a line of a file: semel config schema")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(SUBCOMMANDS.iter().map(|subcommand| (subcommand.declare)()))
}

/// Parses the arguments, runs the subcommand, and says by the exit code how it ended.
pub fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nothing can be told to whom does not listen.
            let _ = error.print();
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) };
        }
    };
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(EXIT_USAGE) };
    let subcommand = SUBCOMMANDS.iter().find(|subcommand| (subcommand.declare)().get_name() == name);
    let Some(subcommand) = subcommand else { return ExitCode::from(EXIT_USAGE) };
    (subcommand.run)(matches).unwrap_or_else(|error| ended(&error))
}

/// Tells why a subcommand failed: a bad configuration line by line, anything else with its causes in one line.
fn ended(error: &anyhow::Error) -> ExitCode {
    if let Some(ConfigError(problems)) = error.downcast_ref() {
        problems.iter().for_each(|problem| eprintln!("semel: {problem}"));
        return ExitCode::from(EXIT_USAGE);
    }
    eprintln!("semel: {error:#}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
